"""GPUs that come and go and processes that live a moment: what was kept of them goes, however long it runs."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from itertools import islice

import pytest

from gputop.collect.nvml import gpm
from gputop.collect.nvml.cadence import CallCosts
from gputop.collect.nvml.device import Device
from gputop.collect.nvml.gate import DriverGate
from gputop.collect.nvml.reader import COUNT_EVERY
from gputop.diagnose.engine import Engine
from gputop.history import History
from gputop.model import Frame, Gpu, GpuShare, Host, Identity, Job, Process
from tests.fakenvml import Fake
from tests.nvml_child import Child
from tests.rule_cases import GPU, HOST, LIMITS, LOADER, TRAINER

GENERATION_S = 20
KEPT_S = 900  # what is gone is forgotten after it
GONE = 64  # GPUs that are gone, in the rules
MOST_GONE = 16  # the same, in the driver's lane


def churn(instances: int = 2) -> Iterator[Frame]:
    """Two GPUs that stay, instances with another uuid in each generation, a job with loaders on each of them."""
    t = 0
    while True:
        born = t // GENERATION_S
        gpus, processes, jobs = [], [], []
        for n in range(2 + instances):
            uuid = f"GPU-{n}" if n < 2 else f"MIG-{born}-{n}"
            gpus.append(Gpu(**{"uuid": uuid, "index": str(n), "name": "H100", **GPU, "busy_percent": 20.0 + 20 * n}))
            pid, job = 1000 + born * 100 + n, f"job {born} {n}"
            share = GpuShare(uuid=uuid, busy_percent=20.0 + 20 * n, vram_bytes=30 << 30)
            of_it = {"started_ticks": born, "job": job, "age_s": 1.0 + t % GENERATION_S}
            processes += [
                Process(**{**TRAINER, **of_it, "pid": pid, "gpus": (share,)}),
                Process(**{**LOADER, **of_it, "pid": pid + 50, "parent_pid": pid}),
            ]
            jobs.append(Job(key=job, name=job, ranks=(Identity(pid, born),)))
        yield Frame(
            wall_s=t, mono_s=1000.0 + t, hostname="h", host=Host(**HOST), gpus=tuple(gpus), processes=tuple(processes),
            jobs=tuple(jobs),
        )  # fmt: skip
        t += 2


def remembered() -> list[int]:
    """The generations whose processes something still knows; others than those of `churn` are not counted."""
    gc.collect()
    known = (one for one in gc.get_objects() if type(one) is Identity)
    return [one.started_ticks for one in known if one.pid // 100 - 10 == one.started_ticks > 0]


def test_what_the_rules_keep_does_not_grow_with_those_who_are_gone() -> None:
    history, engine, frames = History(), Engine(lambda: LIMITS), churn()
    kept: list[tuple[int, ...]] = []
    notes: list[int] = []
    for _ in range(3):
        for frame in islice(frames, (KEPT_S + 200) // 2):
            history.add(frame, 2.0)
            engine.remember(frame, history)
            engine.judge(frame, history)
        known = engine._remembered
        assert len(known.cards) <= len(frame.gpus) + GONE
        kept.append((len(known.cards), len(known.sums._rows[-1].totals), len(engine._steady._known)))
        notes.append(len(known.notes))
        newest = frame.processes[0].started_ticks
        assert not [born for born in remembered() if born < newest - (KEPT_S + 100) // GENERATION_S]
    assert kept[1] == kept[2]
    assert notes[2] <= 1.1 * notes[0]  # by when they were dropped last


def test_a_driver_that_gives_another_uuid_each_time_is_not_remembered_for_a_quarter_of_an_hour() -> None:
    history, engine = History(), Engine(lambda: LIMITS)
    for n, frame in enumerate(islice(churn(0), 400)):
        gpus = tuple(Gpu(**{**GPU, "uuid": f"GPU-{n}-{m}", "index": str(m), "name": "H100"}) for m in range(2))
        frame = Frame(wall_s=frame.wall_s, mono_s=frame.mono_s, hostname="h", host=frame.host, gpus=gpus)
        history.add(frame, 2.0)
        engine.remember(frame, history)
    known = engine._remembered
    assert {len(known.cards), len(known.highest_mhz), len(known.listed_s)} <= {2 + GONE, 0}
    assert len(known.sums._places) <= 4 + GONE  # with the host and this monitor


def held(fake: Fake) -> int:
    """GPM samples that the driver has allocated for us and not got back."""
    counts = fake.counts()
    return counts["nvmlGpmSampleAlloc"] - counts["nvmlGpmSampleFree"]


@pytest.fixture
def on(fake: Fake) -> Iterator[Child]:
    fake.set("gpus", 2)
    with Child(fake, gpm="on") as child:
        yield child


def test_samples_of_a_gpu_that_is_read_by_another_handle_are_given_back(fake: Fake, on: Child) -> None:
    on.sweep(12)
    each = held(fake)
    assert each == 2 * 2 * 2  # of two probes, two samples that take turns
    for count in (1, 2) * 4:
        fake.set("gpus", count)
        seen = on.sweep(COUNT_EVERY + 2)
        assert len(seen.gpus) == count
        assert held(fake) <= each
    assert seen.gpu(1)["sm_active_percent"] == 84.25


def test_gpus_that_left_before_many_others_are_forgotten(fake: Fake, on: Child) -> None:
    for born in range(MOST_GONE + 20):
        fake.update({"gpus": 1 + born % 2, "gpu.0.uuid": f"GPU-{born}"})
        assert on.sweep(COUNT_EVERY).gpu(0)["uuid"] == f"GPU-{born}"
    assert held(fake) <= 2 * (MOST_GONE + 2) * 2


def test_samples_of_a_driver_that_was_opened_anew_are_not_given_to_the_next(fake: Fake, on: Child) -> None:
    on.sweep(12)
    before = fake.counts()["nvmlGpmSampleFree"]
    fake.fail("nvmlDevice*", 1)  # uninitialised: the driver as a whole is opened again
    on.sweep(2)
    fake.release("fail", "nvmlDevice*")
    assert on.sweep(14).gpu(0)["sm_active_percent"] == 83.25
    assert fake.counts()["nvmlGpmSampleFree"] == before


def test_samples_with_which_a_thread_is_inside_the_driver_are_not_given_back() -> None:
    """It writes to them when it comes back, and that memory may be somebody else's by then."""
    card = Device(0, "GPU-0", DriverGate(CallCosts()))
    freed: list[object] = []
    card.gate.call = lambda name, *args, **_: freed.append(args[0])  # type: ignore[method-assign,assignment]
    for inside in (True, False):
        one = gpm.GpmSamples("units", "before", "now", None, ())
        card.kept[gpm._UNITS] = one
        if inside:
            one.in_use.acquire()
        gpm.release(card)
        assert freed == ([] if inside else ["before", "now"])
        assert not card.kept
        assert one.in_use.locked()  # nobody may use them any more
