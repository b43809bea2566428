"""One process on several GPUs, and networks between machines: each rule fires, just does not, and abstains."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gputop.diagnose.engine import Verdict
from gputop.finding_text import limit
from gputop.model import Frame, GpuShare, Network
from tests.rank_teams import NCCL, lines, team
from tests.rule_cases import Machine, after, found, refused, scenario, silent

HELD = (22, 15, 15, 15)
BUSY = (71.0, 38.0, 37.0, 36.0)


def single(busy: tuple[float, ...] = BUSY, held: tuple[float | None, ...] = HELD, **trainer: Any) -> Verdict:
    """One process on several GPUs."""
    machine = Machine(trainer={"libraries": ("torch", "cuda"), "cpu_percent": 140.0} | trainer)

    def frame(t: float) -> Frame:
        one = machine.frame(t)
        cards = tuple(
            replace(one.gpus[0], uuid=f"G{n}", index=f"{n}", busy_percent=value) for n, value in enumerate(busy)
        )
        shares = tuple(
            GpuShare(uuid=f"G{n}", vram_bytes=None if size is None else int(size * 2**30))
            for n, size in enumerate(held)
        )
        return replace(one, gpus=cards, processes=(replace(one.processes[0], gpus=shares),))

    return after(frame, 70)


@pytest.mark.parametrize(
    ("busy", "held", "trainer", "confidence"),
    [
        (BUSY, HELD, {}, 0.8),
        ((95.0, 94.0, 94.0, 95.0), (17.3, 15, 15, 15), {}, 0.6),  # by its memory alone
        ((95.0, 94.0, 94.0, 95.0), (17.2, 15, 15, 15), {}, None),
        (BUSY, (None,) * 4, {}, 0.64),  # memory is hidden
        ((42.0, 38.0, 37.0, 36.0), (15,) * 4, {}, None),
        (BUSY, (22, 15, 12, 15), {}, None),  # pieces of a model
        ((50.0, 15.0, 14.0, 16.0), HELD, {}, None),  # one after the other
        ((71.0, 38.0, 10.0, 36.0), HELD, {}, None),
        ((71.0, 0.0, 0.0, 0.0), (22, 0.4, 0.4, 0.4), {}, None),  # contexts without work
        (BUSY, HELD, {"thread_names": NCCL}, None),
        (BUSY, HELD, {"world_size": 4, "rank": 0}, None),
        (BUSY, HELD, {"libraries": ("cuda",)}, None),  # JAX
        (BUSY, HELD, {"libraries": ()}, 0.64),
        (BUSY, HELD, {"command": ("python", "-m", "vllm.entrypoints.api_server")}, None),
    ],
)
def test_dataparallel(
    busy: tuple[float, ...], held: tuple[float | None, ...], trainer: dict[str, Any], confidence: float | None
) -> None:
    finding = found(single(busy, held, **trainer), "dataparallel")
    assert (finding and finding.confidence) == (confidence and pytest.approx(confidence))


def test_dataparallel_is_not_said_of_who_may_be_one_of_several_ranks() -> None:
    said = single(**refused("world_size"))
    assert found(said, "dataparallel") is None
    one = silent(said, "dataparallel")
    assert one is not None
    assert [missing.metric for missing in one.missing] == ["world_size"]
    assert silent(single((42.0, 38.0, 37.0, 36.0), (15,) * 4, **refused("world_size")), "dataparallel") is None


def test_dataparallel_says_what_to_start() -> None:
    secret = "sk-" + 20 * "a7"
    told = found(single(command=("python", "-u", "train.py", "--name", "a b", "--api-key", secret)), "dataparallel")
    assert lines(told)[:2] == [
        "GPUs 0, 1, 2, 3 of one process busy 71/38/37/36 %",
        "device memory 22.0/15.0/15.0/15.0 GiB",
    ]
    assert told is not None
    assert told.steps[0].command == "torchrun --nproc_per_node=4 train.py --name 'a b' --api-key '***'"


LOW = {"power_watts": 300.0, "tensor_percent": 20.0, "sm_active_percent": 45.0}


def link(sent: float, received: float, **more: Any) -> Network:
    """10 Gb/s of Ethernet, carrying so much of it."""
    values = {"speed_bytes_per_s": 1.25e9, "up": True, **more}
    return Network(name="eth0", send_bytes_per_s=sent * 1.25e9, receive_bytes_per_s=received * 1.25e9, **values)


IDLE_PORT = Network(
    name="mlx5_0:1", kind="infiniband", up=True, speed_bytes_per_s=25e9, send_bytes_per_s=1e6, receive_bytes_per_s=1e6
)


@pytest.mark.parametrize(
    ("networks", "world", "gpu", "severity"),
    [
        ((link(0.93, 0.9),), 8, LOW, "warn"),
        ((link(0.71, 0.71),), 8, LOW, "warn"),
        ((link(0.69, 0.69),), 8, LOW, None),
        ((link(0.3, 0.95),), 8, LOW, None),  # a data set comes
        ((link(0.93, 0.9),), 2, LOW, None),  # nobody is elsewhere
        ((link(0.93, 0.9),), 8, {}, "info"),  # every GPU works all the same
        ((link(0.93, 0.9, speed_bytes_per_s=None),), 8, LOW, None),
        ((link(0.93, 0.9, up=False),), 8, LOW, None),
        ((link(0.3, 0.3), IDLE_PORT), 8, LOW, "warn"),
        ((link(0.09, 0.09), IDLE_PORT), 8, LOW, None),
        ((link(0.3, 0.3), replace(IDLE_PORT, up=False)), 8, LOW, None),
        ((link(0.3, 0.3), replace(IDLE_PORT, send_bytes_per_s=1e9)), 8, LOW, None),
        ((link(0.3, 0.3), replace(IDLE_PORT, send_bytes_per_s=None)), 8, LOW, None),  # nobody counts
    ],
)
def test_network_bound(networks: tuple[Network, ...], world: int, gpu: dict[str, Any], severity: str | None) -> None:
    said = after(team(lambda _: gpu, ranks=2, world=world, host={"networks": networks}), 50)
    finding = found(said, "network-bound")
    assert (finding and finding.severity) == severity


def test_a_link_that_is_full_now_and_then_is_not_full() -> None:
    def networks(t: float) -> tuple[Network, ...]:
        return (link(0.95, 0.95) if t % 10 < 4 else link(0.6, 0.6),)

    assert found(after(team(lambda _: LOW, ranks=2, world=8, host={"networks": networks}), 60), "network-bound") is None


def test_network_bound_names_the_idle_adapter_and_the_setting() -> None:
    _, said = scenario("network-bound-tcp")[-1]
    told = found(said, "network-bound")
    assert lines(told)[1] == "mlx5_0, mlx5_1, mlx5_2 … (400 Gb/s each) idle"
    assert told is not None
    assert told.steps[1].command == "unset NCCL_IB_DISABLE; export NCCL_IB_HCA=" + ",".join(
        f"mlx5_{n}" for n in range(4)
    )
    assert lines(told)[-1] == "4 of 8 ranks on this machine"


def test_what_a_link_carries_is_held_against_the_limit_that_decided_in_the_unit_of_the_text() -> None:
    networks = (link(0.3, 0.25), IDLE_PORT)
    told = found(after(team(lambda _: LOW, ranks=2, world=8, host={"networks": networks}), 50), "network-bound")
    assert told is not None
    carried, idle, *_ = told.evidence
    assert carried.text == "eth0 sends 3 and receives 2.5 of 10 Gb/s"
    assert (carried.value, carried.unit, carried.limit) == (pytest.approx(2.5), "Gb/s", 1.0)
    assert (idle.unit, limit(carried)) == ("Gb/s", "1 Gb/s")
    told = found(after(team(lambda _: LOW, ranks=2, world=8, host={"networks": networks[:1]}), 50), "network-bound")
    assert told is None
    full = found(
        after(team(lambda _: LOW, ranks=2, world=8, host={"networks": (link(0.93, 0.9),)}), 50), "network-bound"
    )
    assert full is not None
    assert (full.evidence[0].value, full.evidence[0].limit) == (pytest.approx(9.3), pytest.approx(7.0))


def test_adapters_of_aws_are_used_by_a_plugin() -> None:
    idle = replace(IDLE_PORT, name="rdmap16s27:1")
    told = found(after(team(lambda _: LOW, ranks=2, world=8, host={"networks": (link(0.3, 0.3), idle)}), 50),
                 "network-bound")  # fmt: skip
    assert told is not None
    assert told.headline == "network-bound, gradients over TCP on eth0, EFA idle"
    assert "NET/OFI" in told.steps[0].text
    assert told.steps[1].command == "export FI_PROVIDER=efa"
    assert not any("NCCL_IB" in (step.command or "") for step in told.steps)


def test_network_bound_abstains_where_the_number_of_ranks_is_hidden() -> None:
    hidden = team(lambda _: LOW, ranks=2, world=None, host={"networks": (link(0.93, 0.9),)})
    one = silent(after(hidden, 40), "network-bound")
    assert one is not None
    assert "same user" in (one.unlock or "")


def test_a_rank_may_be_busy_waiting_for_others() -> None:
    said = Machine(gpu={"sm_active_percent": 20.0}, trainer={"world_size": 2}).verdict(90)
    assert found(said, "busy-not-effective") is None
    assert (one := silent(said, "busy-not-effective")) is not None
    assert "trace" in (one.unlock or "")
    assert [missing.metric for missing in one.missing] == ["facts"]


@pytest.mark.parametrize(
    ("trainer", "told", "lacks"),
    [
        (refused("world_size"), False, ["world_size"]),
        (refused("world_size") | {"thread_names": NCCL}, False, ["facts"]),  # everybody may read these
        ({"thread_names": NCCL}, False, ["facts"]),  # ranks that a program started itself
        ({"thread_names": NCCL, "world_size": 1}, True, None),
        ({}, True, None),
    ],
)
def test_who_may_be_a_rank_of_somebody_else_is_not_told_of_small_kernels(
    trainer: dict[str, Any], told: bool, lacks: list[str] | None
) -> None:
    said = Machine(gpu={"sm_active_percent": 20.0}, trainer=trainer).verdict(90)
    one = silent(said, "busy-not-effective")
    assert (found(said, "busy-not-effective") is not None) == told
    assert (one and [missing.metric for missing in one.missing]) == lacks
