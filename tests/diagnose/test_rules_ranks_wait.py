"""Ranks that wait for each other: each rule fires, just does not, and abstains."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from gputop.model import Frame, GpuShare, Network, Process, Role
from tests.rank_teams import NCCL, Dials, lines, nothing, of, team
from tests.rule_cases import after, found, judged, refused, scenario, silent

SPINS: dict[str, Any] = {
    "busy_percent": 100.0, "power_watts": 120.0, "sm_active_percent": 12.0, "tensor_percent": 0.0, "dram_percent": 0.5,
    "fp32_percent": 0.0,
    "memory_busy_percent": 1.0, "nvlink_rx_bytes_per_s": 0.0, "pcie_rx_bytes_per_s": 0.0, "pcie_tx_bytes_per_s": 0.0,
}  # fmt: skip
IDLE: dict[str, Any] = SPINS | {"busy_percent": 0.0, "power_watts": 80.0}
ASLEEP = {"cpu_percent": 0.0, "main_thread_percent": 0.0, "write_chars_per_s": 100.0}
NO_GPM = dict.fromkeys(
    ("tensor_percent", "dram_percent", "sm_active_percent", "fp32_percent", "nvlink_rx_bytes_per_s",
     "nvlink_tx_bytes_per_s", "nvlink_max_bytes_per_s", "pcie_rx_bytes_per_s", "pcie_tx_bytes_per_s"),
)  # fmt: skip
BEFORE_S = 60


@pytest.mark.parametrize(
    ("gpu", "trainer", "launcher", "fires"),
    [
        (of({3: {}}, SPINS), nothing, "torchrun", True),
        (of({3: {}}, SPINS | {"tensor_percent": 3.0}), nothing, "torchrun", False),
        (of({3: {}}, SPINS | {"dram_percent": 13.0}), nothing, "torchrun", False),
        (of({3: {}}, SPINS | {"fp32_percent": 3.0}), nothing, "torchrun", False),
        (of({3: {}}, SPINS | {"fp64_percent": 3.0}), nothing, "torchrun", False),
        (of({3: {}}, SPINS | {"power_watts": 330.0}), nothing, "torchrun", False),
        (of({3: {}}, SPINS | {"busy_percent": 94.0}), nothing, "torchrun", False),
        (of({3: {}}, SPINS | {"nvlink_rx_bytes_per_s": 30e9}), nothing, "torchrun", False),  # an exchange goes on
        (of({0: SPINS}), nothing, "torchrun", False),  # one of four: it may do something of its own
        (of({}, SPINS), lambda _: {"thread_names": ()}, "slurm", False),  # nothing says that they talk
        (of({}, SPINS), lambda _: {"thread_names": NCCL}, "slurm", True),
        (of({}, SPINS | NO_GPM), nothing, "torchrun", False),  # small kernels look the same, and it was always so
    ],
)
def test_collective_wait(gpu: Dials, trainer: Dials, launcher: str, fires: bool) -> None:
    finding = found(after(team(gpu, trainer, launcher=launcher), 60), "collective-wait")
    assert (finding and finding.severity) == ("warn" if fires else None)


def test_without_counters_it_is_told_by_the_power_it_used_to_draw() -> None:
    base = team(lambda n: NO_GPM)

    def frame(t: float) -> Frame:
        one = base(t)
        if t < BEFORE_S:
            return one
        return replace(one, gpus=tuple(replace(gpu, **{**SPINS, **NO_GPM}) for gpu in one.gpus))

    told = found(after(frame, 130), "collective-wait")
    assert told is not None
    assert told.confidence == 0.5
    assert "power 120 W, 600 W when it computes" in lines(told)


def test_collective_wait_says_for_whom() -> None:
    _, said = scenario("collective-wait")[-1]
    told = found(said, "collective-wait")
    assert told is not None
    assert told.headline == "collective wait for rank 0 (GPU 0), 3 of 4 ranks wait"
    assert "rank 0 (GPU 0): GPU busy 90 %" in lines(told)
    assert told.steps[0].command == "gputop stack --job 41207"
    assert len(told.subject.gpus) == 4


FP32 = {
    "busy_percent": 99.0, "power_watts": 640.0, "sm_active_percent": 92.0, "tensor_percent": 0.0, "fp32_percent": 55.0,
    "dram_percent": 9.0, "nvlink_rx_bytes_per_s": 5e9, "nvlink_tx_bytes_per_s": 5e9, "pcie_rx_bytes_per_s": 0.1e9,
}  # fmt: skip


@pytest.mark.parametrize("read", [0.0, 3e6])
def test_training_without_tensor_cores_is_no_wait(read: float) -> None:
    said = after(team(of({}, FP32), of({}, {"write_chars_per_s": 500.0, "read_chars_per_s": read})), 240)
    assert found(said, "collective-wait") is None
    assert said.findings[0].rule == "tensor-cores-idle"


def test_collective_wait_abstains_where_neither_power_nor_counters_tell() -> None:
    hidden = {**NO_GPM, **refused("power_watts")}
    assert silent(after(team(lambda _: hidden, ranks=2), 40), "collective-wait") is not None


CLOCK = {
    "sm_clock_mhz": 1290.0,
    "throttle_reasons": frozenset({"hw thermal"}),
    "tensor_percent": 50.0,
    "busy_percent": 99.0,
}
FAST = {"tensor_percent": 34.0, "busy_percent": 99.0}


@pytest.mark.parametrize(
    ("gpu", "trainer", "ranks", "severity"),
    [
        (of({2: CLOCK}, FAST), nothing, 4, "crit"),
        (of({2: CLOCK | {"sm_clock_mhz": 1680.0}}, FAST | {"tensor_percent": 43.0}), nothing, 4, "warn"),
        (of({2: CLOCK | {"sm_clock_mhz": 1800.0}}, FAST | {"tensor_percent": 46.0}), nothing, 4, None),
        (of({2: CLOCK}, FAST | {"tensor_percent": 50.0}), nothing, 4, None),  # the others get more done: nobody waits
        (of({0: CLOCK, 2: CLOCK}, FAST), nothing, 4, None),  # two of four are no odd one
        (of({2: {"busy_percent": 60.0}}, {"busy_percent": 100.0}), nothing, 4, "crit"),  # late, and the others spin
        (of({2: {"busy_percent": 91.0}}, {"busy_percent": 100.0}), nothing, 4, None),
        (of({2: {"busy_percent": 60.0, "tensor_percent": 30.0}}, {"busy_percent": 100.0}), nothing, 4, None),
        (of({1: {"tensor_percent": 50.0}}, {"tensor_percent": 42.0}), nothing, 2, "warn"),
        (of({1: {"tensor_percent": 50.0}}, {"tensor_percent": 46.0}), nothing, 2, None),
        (of({1: {"tensor_percent": 50.0}}, {"tensor_percent": 9.0}), nothing, 4, None),  # they do nothing at all
        (of({1: {"tensor_percent": 50.0}}, {"tensor_percent": 42.0}), nothing, 4, "warn"),
        (of({1: {"tensor_percent": 50.0, "nvlink_rx_bytes_per_s": 27e9}}, {"tensor_percent": 42.0}), nothing, 4, None),
        (of({1: {"tensor_percent": 50.0}}, {"tensor_percent": 30.0}),
         lambda n: {"gpus": (GpuShare(uuid=f"G{n}", vram_bytes=(40 if n == 1 else 30) * 2**30),)}, 4, None),  # stages
        (of({2: CLOCK | {"name": "A100"}}, FAST), nothing, 4, None),
    ],
)  # fmt: skip
def test_straggler(gpu: Dials, trainer: Dials, ranks: int, severity: str | None) -> None:
    finding = found(after(team(gpu, trainer, ranks=ranks), 100), "straggler")
    assert (finding and finding.severity) == severity


def test_straggler_names_the_rank_and_what_is_wrong_with_it() -> None:
    told = found(after(team(of({2: CLOCK}, FAST)), 100), "straggler")
    assert told is not None
    assert told.headline == "straggler rank 2 (GPU 2), hardware thermal slowdown"
    assert lines(told) == [
        "GPU 2: SM clock 1290 MHz, other ranks 1980 MHz; active: hw thermal",
        "ranks 0, 1, 3 wait for it up to 35 % of the time",
    ]
    assert told.steps[1].command == "export CUDA_VISIBLE_DEVICES=0,1,3"
    assert told.subject.gpus == ("G2",)


def test_straggler_names_gpus_by_uuid_in_a_container() -> None:
    told = found(after(team(of({2: CLOCK}, FAST), lambda _: {"container": "exp"}), 100), "straggler")
    assert told is not None
    assert told.steps[1].command == "export CUDA_VISIBLE_DEVICES=G0,G1,G3"


def test_straggler_leaves_out_gpus_that_no_rank_works_on() -> None:
    """Each has opened one more, of another kind."""
    base = team(of({2: CLOCK}, FAST), lambda n: {"gpus": tuple(GpuShare(uuid=f"{a}{n}", vram_bytes=1) for a in "GH")})

    def frame(t: float) -> Frame:
        one = base(t)
        more = (replace(gpu, uuid=f"H{gpu.index}", index=f"{4 + int(gpu.index)}", busy_percent=0.0) for gpu in one.gpus)
        return replace(one, gpus=(*one.gpus, *more))

    told = found(after(frame, 100), "straggler")
    assert told is not None
    assert told.steps[1].command == "export CUDA_VISIBLE_DEVICES=0,1,3"


def test_straggler_names_loaders_that_are_too_slow() -> None:
    base = team(of({2: {"busy_percent": 60.0}}, {"busy_percent": 100.0}))

    def frame(t: float) -> Frame:
        one = base(t)
        first = one.processes[0]
        loaders = tuple(
            replace(first, pid=200 + n, parent_pid=100 + n, gpus=(), name="pt_data_worker", thread_names=(),
                    role=Role.LOADER, cpu_percent=98.0 if n == 2 else 50.0)
            for n in range(4)
        )  # fmt: skip
        return replace(one, processes=(*one.processes, *loaders))

    told = found(after(frame, 100), "straggler")
    assert told is not None
    assert told.headline == "straggler rank 2 (GPU 2), slow workers"
    assert lines(told)[1] == "workers use 98 % of a core (other ranks 50 %)"


def _bound(command: str, rank: int, allowed: Iterable[int]) -> list[int]:
    """The CPUs that a rank asks for by that line, as it is printed."""
    asked: list[list[int]] = []
    machine = SimpleNamespace(
        environ={"LOCAL_RANK": str(rank)},
        sched_getaffinity=lambda _: set(allowed),
        sched_setaffinity=lambda _, cpus: asked.append(cpus),
    )
    exec(command, {"os": machine})
    return asked[0]


def test_a_rank_that_waits_for_a_cpu_is_given_cpus_of_its_own() -> None:
    late = of({2: {"run_wait_percent": 70.0}}, {"run_wait_percent": 1.0})
    told = found(after(team(of({2: {"busy_percent": 60.0}}, {"busy_percent": 100.0}), late), 100), "straggler")
    assert told is not None
    assert told.headline == "straggler rank 2 (GPU 2), CPU wait"
    assert told.steps[0].text == "Pin each rank to 4 separate CPUs before creating the DataLoader", "16 for 4 ranks"
    assert [_bound(told.steps[0].command or "", rank, range(16)) for rank in range(4)] == [
        [0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15],
    ]  # fmt: skip
    halves = [range(8), range(8), range(8, 16), range(8, 16)]  # who has been given a part stays in it
    assert [_bound(told.steps[0].command or "", rank, halves[rank])[0] for rank in range(4)] == [0, 4, 8, 12]


def test_straggler_abstains_where_a_gpu_does_not_tell() -> None:
    hidden = of({1: refused("busy_percent", "sm_active_percent")})
    assert silent(after(team(hidden, ranks=3), 40), "straggler") is not None


def test_while_one_rank_is_slow_its_victims_are_not_told() -> None:
    def gpu(n: int) -> dict[str, Any]:
        return CLOCK if n == 2 else FAST

    networks = (Network(name="eth0", speed_bytes_per_s=1e9, send_bytes_per_s=9e8, receive_bytes_per_s=9e8),)
    said = after(team(gpu, ranks=4, world=8, host={"networks": networks}), 110)
    assert found(said, "straggler") is not None
    assert found(said, "network-bound") is None


def test_a_process_in_between_is_no_rank() -> None:
    base = team(of({2: CLOCK}, FAST))

    def frame(t: float) -> Frame:
        one = base(t)
        other = Process(pid=900, started_ticks=1, name="python", gpus=(GpuShare(uuid="G2", busy_percent=30.0),))
        return replace(one, processes=(*one.processes, other))

    assert found(after(frame, 100), "straggler") is None  # its GPU is not its own


def test_ranks_that_compute_now_and_then_do_not_only_wait() -> None:
    waits, works = (team(of({1: IDLE}, SPINS | {"tensor_percent": busy}), of({1: ASLEEP}), ranks=2) for busy in (0, 30))
    seen = [said for _, said in judged(((works if t % 20 == 7 else waits)(float(t)) for t in range(200)), every_s=5.0)]
    assert not any(found(said, "collective-wait") for said in seen)
    assert found(after(waits, 190), "collective-wait") is not None
