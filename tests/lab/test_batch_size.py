"""The largest batch: the search, the margin, what is said, and whose GPU is left alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from gputop.cli.lab import in_use
from gputop.lab.batch_size import BatchPlan, fast_enough, page, recommended, search
from gputop.lab.child import NotMeasured
from gputop.model import Gpu, GpuShare, Process
from gputop.report import text

OUT = NotMeasured("CUDA out of memory: an allocation of 2.00 GiB failed", cause="memory")


class Memory:
    """A GPU with room for some samples."""

    def __init__(self, room: int, trouble: NotMeasured = OUT) -> None:
        self.room, self.trouble = room, trouble
        self.tried: list[int] = []

    def __call__(self, title: str, request: Mapping[str, Any]) -> dict[str, Any]:
        size = request["batch"]
        self.tried.append(size)
        if size > self.room:
            raise self.trouble
        return {
            "ready": {"torch": "2.9.0", "device": "cuda", "limit_bytes": None},
            "peak_bytes": 2_000_000_000 + size * 50_000_000,
            "reserved_bytes": 3_000_000_000 + size * 50_000_000,
            "step_s": 0.01 + 0.001 * size,
        }


def found(memory: Memory, **plan: Any) -> dict[str, Any]:
    result: dict[str, Any] = {"factory": "train.py:make", "inference": plan.get("inference", False), "gpu": "A100"}
    search(memory, BatchPlan(**plan), result)
    return result


@pytest.mark.parametrize(("room", "start"), [(1, 8), (3, 8), (8, 8), (100, 8), (1000, 8), (1000, 300), (5, 1)])
def test_it_doubles_then_halves_in_between(room: int, start: int) -> None:
    memory = Memory(room)
    result = found(memory, start=start)
    over = min(size for size in memory.tried if size > room)
    assert result["largest"] <= room < over
    assert over - result["largest"] <= max(1, result["largest"] // 32)
    assert len(memory.tried) <= 16
    assert len(set(memory.tried)) == len(memory.tried)


@pytest.mark.parametrize("cause", ["memory", "killed", "aborted"])
def test_what_is_killed_is_too_large_too(cause: str) -> None:
    assert found(Memory(100, NotMeasured("gone", cause=cause)))["largest"] == 100


def test_any_other_trouble_ends_it_and_leaves_what_was_tried() -> None:
    result: dict[str, Any] = {"factory": "f", "inference": False, "gpu": None}
    with pytest.raises(NotMeasured, match="a shape is wrong"):
        search(Memory(20, NotMeasured("a shape is wrong")), BatchPlan(), result)
    assert [one["batch"] for one in result["tries"]] == [8, 16]
    assert "not complete" in text(page({**result, "ended": "batch 32: a shape is wrong"}))


def test_a_batch_that_takes_too_long_is_a_limit_of_time() -> None:
    result = found(Memory(20, NotMeasured("hung", cause="hung")))
    assert result["largest"] == 16
    said = " ".join(text(page(result)).split())
    assert "the limit is time, not memory" in said
    assert "memory is not the limit up to 16" in said


def test_not_even_one() -> None:
    with pytest.raises(NotMeasured, match="even a batch of 1 does not fit: CUDA out of memory"):
        found(Memory(0))


def test_the_margin_is_of_the_memory_that_was_measured() -> None:
    """Mission row 42, conflict C5: no factor where training itself is tried."""
    tries = found(Memory(416))["tries"]
    fitting = [one for one in tries if one["fits"]]
    largest = max(one["batch"] for one in fitting)
    chosen = recommended(fitting)
    assert chosen % 8 == 0
    left = 1 - (2e9 + chosen * 50e6) / (2e9 + largest * 50e6)
    assert 0.10 <= left < 0.12
    assert fast_enough(fitting) < largest


def test_without_a_curve_the_margin_is_of_the_batch() -> None:
    assert recommended([{"batch": 5, "peak_bytes": 10}]) == 4
    assert recommended([{"batch": 1, "peak_bytes": 10}]) == 1
    assert recommended([{"batch": 8, "peak_bytes": 10}, {"batch": 100, "peak_bytes": 10}]) == 88


def test_inference_says_that_the_published_factor_is_no_measurement() -> None:
    said = text(page(found(Memory(100), inference=True)))
    assert "0.4 × 100 = 40" in said
    assert "measure without --inference" in said


def test_a_report(golden: Callable[[str, str], None]) -> None:
    golden("batch_size.txt", text(page(found(Memory(416)))))


USED = Gpu(uuid="GPU-a", index="0", name="A100", vram_used_bytes=500 << 20, vram_reserved_bytes=400 << 20)
TRAINS = Process(
    pid=7, started_ticks=1, user="ann", gpus=(GpuShare(uuid="GPU-a"), GpuShare(uuid="GPU-c", kind="graphics"))
)


@pytest.mark.parametrize(
    ("gpus", "processes", "uuid", "says"),
    [
        ((USED,), (), "GPU-a", None),
        ((USED,), (TRAINS,), "GPU-a", "PID 7 of ann uses GPU 0"),
        ((USED, Gpu(uuid="GPU-b", index="1", name="A100", vram_used_bytes=0)), (TRAINS,), "GPU-b", None),
        ((USED, Gpu(uuid="GPU-b", index="1", name="A100", vram_used_bytes=0)), (TRAINS,), None, "PID 7 of ann"),
        ((Gpu(uuid="GPU-c", index="2", name="A100", vram_used_bytes=0),), (TRAINS,), "GPU-c", None),
        ((Gpu(uuid="GPU-a", index="0", name="A100", vram_used_bytes=30 << 30),), (), "GPU-a", "that are not visible"),
        ((Gpu(uuid="GPU-a", index="0", name="A100"),), (), "GPU-a", "is unknown"),
        ((), (), "GPU-a", "the driver does not report"),
    ],
)
def test_a_gpu_that_others_use_is_left_alone(
    gpus: tuple[Gpu, ...], processes: tuple[Process, ...], uuid: str | None, says: str | None
) -> None:
    why = in_use(gpus, processes, uuid)
    assert why is None if says is None else says in (why or "")
