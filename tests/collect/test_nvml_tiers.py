"""The extended tier: what no screen shows and no rule judges is read only while an export or a recording asks."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from threading import Event

import pytest

import gputop
from gputop.collect.live import Live
from gputop.model import Gpu
from gputop.model.metric import extended_names
from gputop.monitor import Monitor
from gputop.source import Interest
from gputop.ui.replay.recorder import ScreenRecorder
from tests.fakenvml import Fake
from tests.nvml_child import Child, Seen

EXTENDED = extended_names(Gpu)
NOTHING = (None, [], ())
EVERY = {"gpus": 1, "sample_hz": 1000, "gpu.*.memory_max_temperature": 95, "gpu.*.mma_stall_percent": 14}
EVERY |= {f"gpu.*.power_{kind}_{what}_mw": 9000 for kind in ("average", "instant") for what in ("module", "memory")}
EVERY |= {f"gpu.*.gpm.{number}": 20.5 for number in (30, 62, 63, 100, 101, 160, 162, 164, 174)}


def known(seen: Seen) -> set[str]:
    return {name for name, value in seen.gpu(0).items() if value not in NOTHING}


def test_what_is_not_read_says_what_would_unlock_it(fake: Fake) -> None:
    fake.update(EVERY)
    with Child(fake, gpm="on", extended=False) as child:
        seen = child.sweep(12)
    gpu = seen.gpu(0)
    assert {name: gpu[name] for name in EXTENDED if gpu[name] not in NOTHING} == {}
    assert {(one["reason"], one["unlock"]) for one in gpu["missing"] if one["metric"] in EXTENDED} == {
        ("absent", "gputop --json, or a recording")
    }
    assert set(seen.reasons(0)) >= EXTENDED


# these compare two looks: time slowed, and the details of GPM
LATER = {name for name in EXTENDED if name.startswith("throttled") or name.endswith("cache_hit_percent")}
LATER |= {"engines", "nvlink_bytes_per_s"}
SERIES = {name for name in EXTENDED if name.endswith("series")}  # of what was measured since the last look


def test_it_is_whole_from_the_sweep_on_that_asks_for_it(fake: Fake) -> None:
    """And what was known of it goes when nobody asks any more."""
    fake.update(EVERY)
    with Child(fake, gpm="on", extended=False) as child:
        core = known(child.sweep(13))
        child.call("read_extended", True)
        first = known(child.sweep())
        assert first == core | EXTENDED - LATER
        assert known(child.sweep(10)) == core | EXTENDED
        child.call("read_extended", False)
        freed = fake.counts()["nvmlGpmSampleFree"]
        seen = child.sweep()
        assert known(seen) == core
        assert {seen.reasons(0)[name] for name in EXTENDED} == {"absent"}
        assert fake.counts()["nvmlGpmSampleFree"] == freed + 2, "of the details"
        child.call("read_extended", True)
        assert known(child.sweep()) | SERIES == first


def test_whoever_asks_from_the_start_has_all(fake: Fake) -> None:
    fake.update(EVERY)
    with Child(fake, gpm="on", extended=True) as child:
        assert known(child.sweep(12)) >= EXTENDED


def test_a_value_that_is_dear_is_left_out_of_a_call_that_is_made(fake: Fake) -> None:
    fake.update({"gpus": 1, "gpu.0.field_us.186": 1000, "gpu.0.field_us.83": 1000})
    with Child(fake, gpm="off", extended=False) as child:
        child.sweep(50)
        assert fake.spent_s() == 0
        child.call("read_extended", True)
        child.sweep()
    assert fake.spent_s() >= 0.002


def test_time_slowed_that_nobody_shows_is_not_asked_of_older_drivers_either(fake: Fake) -> None:
    fake.update({"gpus": 1, **{f"gpu.*.field.{number}": None for number in range(74, 82)}})
    with Child(fake, gpm="off", extended=False) as child:
        child.sweep(60)
        assert fake.counts()["nvmlDeviceGetViolationStatus"] == 6 + 1, "by the power limit only"


@pytest.mark.parametrize("refuses_all", [2, 3, 25])
def test_units_stay_known_when_an_older_driver_refuses_what_a_recording_asks_for(fake: Fake, refuses_all: int) -> None:
    fake.update({"gpus": 1, "gpu.0.gpm_known_below": 98, "gpu.0.gpm_refuses_all": refuses_all})
    with Child(fake, gpm="on", extended=False) as child:
        seen = [child.sweep(3)]
        child.call("read_extended", True)
        seen += [child.sweep() for _ in range(3)]
        child.call("read_extended", False)
        seen += [child.sweep() for _ in range(3)]
    assert [one.gpu(0)["tensor_percent"] for one in seen] == [37.5] * 7
    assert [one.reasons(0)["c2c_tx_bytes_per_s"] for one in seen] == ["absent", *["unsupported"] * 3, *["absent"] * 3]


def test_interest_decides_and_may_change(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    source, stop = Live(interval_s=0.01, nvml=False), Event()
    monkeypatch.setattr(source._gpus, "read_extended", asked.append)
    frames = source.frames(stop)
    next(frames)
    assert set(asked) == {False}
    source.interest = replace(source.interest, extended=True)
    next(frames)
    assert asked[-1]
    stop.set()
    assert next(frames, None) is None


@pytest.mark.parametrize(
    ("command", "extended"),
    [
        (["--once"], False),
        (["snapshot", "--format", "csv"], False),
        (["--json"], True),
        (["snapshot", "--format", "jsonl"], True),
        (["record", "-", "--for", "1s"], True),
        (["log", "-", "--for", "1s", "--interval", "1"], True),
    ],
)
def test_who_asks_for_it(fake: Fake, command: list[str], extended: bool) -> None:
    fake.set("gpus", 1)
    done = subprocess.run(
        [sys.executable, "-m", "gputop", *command], env=fake.env(), capture_output=True, timeout=60, check=True
    )
    assert done.stdout
    assert (fake.counts()["nvmlDeviceGetEccMode"] > 0) is extended


class AtOnce:
    """Does on the spot what the screen has done beside it."""

    def do(self, work: Callable[[], str], tell: Callable[[str], None]) -> None:
        tell(work())


def test_the_screen_asks_for_it_while_it_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    source = Live(nvml=False)
    source.interest = Interest(every_process=True)
    recorder, said = ScreenRecorder(Monitor(source), AtOnce()), []
    recorder.start(lambda: None, said.append)
    assert source.interest == Interest(every_process=True, extended=True)
    recorder.stop(said.append)
    assert source.interest == Interest(every_process=True)
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    recorder.start(lambda: None, said.append)
    assert source.interest == Interest(every_process=True)
    assert [line.split()[0] for line in said] == ["recording", "nothing", "not"]


JUDGES = "model/plausible.py"  # compares values with each other


def test_the_tier_of_each_field_is_that_of_who_uses_it() -> None:
    """What is shown or judged is of the core, or it would be unknown there; nothing else is."""
    root = Path(gputop.__file__).parent
    # the exporter asks for the extended tier itself, as a recorder does (--extended)
    apart = ("collect/", "demo/", "docs/", "model/gpu.py", "model/ranges.py", "prometheus/")
    words = {
        name: set(re.findall(r"\w+", path.read_text()))
        for path in root.rglob("*.py")
        if not (name := str(path.relative_to(root))).startswith(apart)
    }
    for one in fields(Gpu):
        users = {name for name, used in words.items() if one.name in used}
        if one.name in EXTENDED:
            assert users <= {JUDGES}, f"{one.name} is of the extended tier"
        else:
            assert users, f"nobody uses {one.name}: tier='extended'"
