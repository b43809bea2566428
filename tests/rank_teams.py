"""Jobs of several ranks with a GPU each, made up by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gputop.diagnose import Finding
from gputop.model import Frame, GpuShare, Identity
from tests.rule_cases import Machine

NCCL = (("python", 40), ("pt_nccl_heartbt", 1), ("pt_nccl_watchdg", 1))
LINKS = {"nvlink_max_bytes_per_s": 450e9, "nvlink_rx_bytes_per_s": 38e9}
Dials = Callable[[int], dict[str, Any]]


def nothing(_: int) -> dict[str, Any]:
    return {}


def team(
    gpu: Dials = nothing,
    trainer: Dials = nothing,
    *,
    ranks: int = 4,
    world: int | None = 0,
    host: dict[str, Any] | None = None,
    launcher: str = "torchrun",
) -> Callable[[float], Frame]:
    """Frames of a job with a GPU for each rank; dials are by rank, `world` is by default as many."""
    machine = Machine(host=host or {})
    world = ranks if world == 0 else world

    def frame(t: float) -> Frame:
        one = machine.frame(t)
        (card,), (process,), (job,) = one.gpus, one.processes, one.jobs
        cards = tuple(replace(card, **{"uuid": f"G{n}", "index": f"{n}"} | LINKS | gpu(n)) for n in range(ranks))
        trainers = tuple(
            replace(
                process,
                pid=100 + n,
                **{
                    "gpus": (GpuShare(uuid=f"G{n}", vram_bytes=30 * 2**30),),
                    "thread_names": NCCL,
                    "rank": n,
                    "world_size": world,
                }
                | trainer(n),
            )
            for n in range(ranks)
        )
        identities = tuple(Identity(100 + n, 1) for n in range(ranks))
        return replace(one, gpus=cards, processes=trainers, jobs=(replace(job, ranks=identities, launcher=launcher),))

    return frame


def of(dials: dict[int, dict[str, Any]], others: dict[str, Any] | None = None) -> Dials:
    """Dials of some ranks, and those of the others."""
    return lambda n: dials.get(n, others or {})


def lines(finding: Finding | None) -> list[str]:
    assert finding is not None
    return [item.text for item in finding.evidence]
