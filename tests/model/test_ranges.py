"""A recording's values are held to the ranges that the driver's are: beyond them they are unknown, with the reason."""

from __future__ import annotations

import contextlib
import json
import random
from dataclasses import fields, replace
from typing import Any

import pytest

from gputop.demo import SCENARIOS, Demo
from gputop.diagnose.engine import BROKEN, Engine
from gputop.export import codec
from gputop.history import History
from gputop.model import Frame, Gpu, Host, Process
from gputop.model.gpu import NvLink, PcieErrors
from gputop.model.host import Cgroup, Disk, Node, Pressure
from gputop.model.metric import Unit, metrics
from gputop.model.plausible import plausible
from gputop.model.process import GpuShare
from gputop.model.ranges import UNKNOWN_INDEX, bounds, held
from gputop.record.parse import frame_of
from tests.rule_cases import LIMITS, Machine, judged


def recorded(frame: Frame) -> Frame:
    """The frame as a recording of it is read."""
    return frame_of(json.loads(codec.dumps(codec.encode(frame))))


def broken(frames: list[Frame]) -> list[str]:
    """What rules say of themselves that fail."""
    engine, history = Engine(lambda: LIMITS), History()
    said = []
    for frame in map(plausible, frames):
        history.add(frame)
        engine.remember(frame, history)
        said += [one.unlock for one in engine.judge(frame, history).abstained if BROKEN in (one.unlock or "")]
    return sorted({one for one in said if one is not None})


@pytest.mark.parametrize("value", [9, 1024, 2000, 2**62, -1, -(2**62)])
@pytest.mark.parametrize(
    "metric", ["pcie_generation", "pcie_generation_max", "pcie_generation_device_max", "pcie_slot_generation"]
)
def test_no_pcie_generation_is_too_large_to_compute_with(metric: str, value: int) -> None:
    frames = [Machine(gpu={metric: value}).frame(float(t)) for t in range(0, 60, 2)]
    assert not broken(frames)
    seen = plausible(frames[-1]).gpus[0]
    assert getattr(seen, metric) is None
    assert any(one.metric == metric and one.reason == "implausible" for one in seen.missing)


@pytest.mark.parametrize("index", ["", "x", "²", "٣", "-1", "0;id", "--help", "9" * 30, "0:", "1:2:3:4"])
def test_a_gpu_index_that_is_no_number_is_unknown(index: str) -> None:
    gpu = recorded(Machine(gpu={"index": index}).frame(0)).gpus[0]
    assert gpu.index == UNKNOWN_INDEX
    assert [one.reason for one in gpu.missing if one.metric == "index"] == ["implausible"]
    assert not broken([recorded(Machine(gpu={"index": index}).frame(float(t))) for t in range(0, 60, 2)])


@pytest.mark.parametrize("index", ["0", "15", "0:1", "3:0:1"])
def test_numbers_of_gpus_and_of_their_instances_stay(index: str) -> None:
    assert recorded(Machine(gpu={"index": index}).frame(0)).gpus[0].index == index


@pytest.mark.parametrize("owner", [Gpu, Host, Process, GpuShare, Cgroup, Disk, Node, Pressure, NvLink, PcieErrors])
def test_every_number_that_is_declared_has_a_range(owner: type) -> None:
    declared = {one.name for one in metrics(owner) if one.unit not in (Unit.WORD, Unit.FLAG)}
    names, low, high = bounds(owner)
    assert set(names) == declared
    assert all(least < most for least, most in zip(low, high, strict=True))


def test_parts_of_parts_are_held_too() -> None:
    frame = Machine().frame(0)
    host = replace(
        frame.host,
        load=(-1.0, 0.0, 0.0),
        cpu_cores_percent=(50.0, -4.0, 900.0),
        io_pressure=Pressure(some_percent=-3.0, full_percent=5.0),
        nodes=(Node(number=0, free_bytes=-1), Node(number=-7)),
        cgroup=Cgroup(path="/a", cpu_quota=-2.0, memory_pressure=Pressure(some_percent=1e9)),
    )
    gpu = replace(
        frame.gpus[0],
        age_s=-5.0,
        compute_capability=(2**40, 0),
        busy_samples=((-3.0, 50.0), (1.0, 50.0)),
        nvlinks=(NvLink(numbers="0", replays=-1, speed_bytes_per_s=25e9),),
        pcie_errors=PcieErrors(fatal=-1, correctable=3),
    )
    seen = held(replace(frame, host=host, gpus=(gpu,), late_s=-1.0, cost_percent=-1.0))
    assert seen.host.load is None
    assert seen.host.cpu_cores_percent == (50.0, None, None)
    assert seen.host.io_pressure == Pressure(some_percent=None, full_percent=5.0)
    assert seen.host.nodes == (Node(number=0),)
    assert seen.host.cgroup is not None
    assert (seen.host.cgroup.cpu_quota, seen.host.cgroup.memory_pressure) == (None, Pressure())
    assert seen.host.cgroup.missing[0].reason == "implausible"
    (card,) = seen.gpus
    assert (card.age_s, card.compute_capability, card.busy_samples) == (0.0, None, ((1.0, 50.0),))
    assert card.nvlinks == (NvLink(numbers="0", speed_bytes_per_s=25e9),)
    assert card.pcie_errors == PcieErrors(correctable=3)
    assert (seen.late_s, seen.cost_percent) == (0.0, None)


@pytest.mark.parametrize(
    ("field", "value"),
    [("threads", -4), ("rank", -1), ("world_size", 0), ("omp_threads", 2**40)],
)
def test_of_a_process_in_no_job_likewise(field: str, value: int) -> None:
    frame = Machine().frame(0)
    other = Process(**{"pid": 7, "started_ticks": 7, field: value})
    assert getattr(recorded(replace(frame, processes=(*frame.processes, other))).processes[-1], field) is None


@pytest.mark.parametrize("pid", [-1, -(2**62), 2**40])
def test_a_process_that_cannot_be_is_damage(pid: int) -> None:
    frame = Machine().frame(0)
    other = Process(pid=pid, started_ticks=7)
    with pytest.raises(ValueError, match="invalid process"):
        recorded(replace(frame, processes=(*frame.processes, other)))


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_what_can_be_is_not_touched(name: str) -> None:
    demo = Demo(SCENARIOS[name], pace=False, anchor_s=1_795_185_127)
    frame = demo.frame(demo.at_s)
    assert held(frame) == frame


ODD = (-1, 0, 1e15, -1e15, 5e-324, 2**62, -(2**62), 1024, 1e-9, "", "x", "²", "--help")


def forged(data: Any, name: str, value: Any) -> Any:
    """JSON of a frame in which each value under a name is another, where it has the same kind of value."""
    if isinstance(data, list):
        return [forged(one, name, value) for one in data]
    if not isinstance(data, dict):
        return data
    return {
        key: value
        if key == name and isinstance(value, str) == isinstance(one, str) and not isinstance(one, (bool, list, dict))
        else forged(one, name, value)
        for key, one in data.items()
    }


@pytest.mark.parametrize("seed", range(6))
def test_no_forged_value_makes_a_rule_fail(seed: int) -> None:
    dice = random.Random(seed)
    name = dice.choice(sorted(SCENARIOS))
    demo = Demo(SCENARIOS[name], pace=False, anchor_s=1_795_185_127)
    whole = [codec.encode(demo.frame(demo.at_s + 2 * look)) for look in range(12)]
    names = [field.name for kind in (Gpu, Process, Host, GpuShare, Cgroup, Disk) for field in fields(kind)]
    for _ in range(12):
        one, other = dice.choice(names), dice.choice(names)
        odd, odder = dice.choice(ODD), dice.choice(ODD)
        frames = []
        for data in whole:
            with contextlib.suppress(ValueError):  # damage, which is skipped
                frames.append(frame_of(forged(forged(data, one, odd), other, odder)))
        assert not broken(frames), (name, one, odd, other, odder)


def test_a_rule_still_judges_what_is_left() -> None:
    """One forged value takes itself away, not the verdict on the rest."""
    machine = Machine(gpu={"pcie_generation": 2000, "throttled_heat_hard_percent": 60.0, "temperature_celsius": 90.0})
    *_, (_, said) = judged(recorded(machine.frame(float(t))) for t in range(0, 150, 2))
    assert said.findings
