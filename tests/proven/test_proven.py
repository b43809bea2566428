"""A fix is proven: what a finding was, and what the next run of the same script is like without its cause."""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gputop import cli
from gputop.demo import open_demo
from gputop.diagnose import Finding, Step, Subject
from gputop.diagnose.state import JobState
from gputop.model import Identity
from gputop.monitor import Monitor, Update
from gputop.proven import FixText, Proofs, follow
from gputop.proven.fixes import Fix, FixOutcome, advised_values, decode, encode
from gputop.proven.measured import Measured, Spread, sample
from gputop.proven.report import brief, is_faster, line, page, score, sentence
from gputop.proven.runs import JobRun, differences, options
from gputop.proven.store import KEPT_S, MOST, BackgroundStore, FixStore
from gputop.proven.watch import Watch, started_in
from gputop.ui.theme import ASCII, Look
from tests.advice_scenes import drawn, fine, found, hot, update
from tests.proven_runs import COMMAND, Kept, frame_of, run, watched
from tests.rule_cases import Machine, sampled

FASTER = {"step_s": 0.19, "samples_per_s": 337.0, "data_wait_percent": 2.0}
SLOWER = {"step_s": 0.31, "samples_per_s": 206.0, "data_wait_percent": 45.0}
NOW_S = 1_795_000_000.0


def few(pid: int = 100, **more: Any) -> Machine:
    """The run with a finding."""
    return run(pid, busy=55.0, workers=2, **{**SLOWER, **more})


def enough(pid: int = 300, **more: Any) -> Machine:
    """The next one, with as many workers as were advised."""
    return run(pid, busy=94.0, workers=5, **{**FASTER, **more})


def a_spread(value: float) -> Spread:
    return Spread(value, 0.98 * value, 1.02 * value)


def a_fix(step_s: float = 0.19, most: float | None = 1.8, **change: Any) -> Fix:
    """A fix that was measured."""
    own = JobRun(script="/home/ann/mnist/train.py", arguments=("--lr", "1"), host="h", user="ann", gpus="1× H100")
    before = Measured(seconds=80.0, busy_percent=a_spread(55.0), step_s=a_spread(0.31))
    after = Measured(seconds=60.0, busy_percent=a_spread(88.0), step_s=a_spread(step_s))
    outcome = FixOutcome(at_s=NOW_S + 900, process=Identity(2, 7), run=own, after=after, settings={"num_workers": 5.0})
    base: dict[str, Any] = {
        "run": own,
        "process": Identity(1, 7),
        "at_s": NOW_S,
        "rule": "starved-cpu-idle",
        "headline": "dataloader-bound, 2 workers are too few",
        "settings": {"num_workers": 2.0},
        "advised": {"num_workers": "5"},
        "before": before,
        "most": most,
        "outcome": outcome,
    }
    return Fix(**{**base, **change})


def test_the_next_run_proves_what_was_advised() -> None:
    kept = Kept()
    watch = watched(kept, few(), enough())
    said = "num_workers 2 → 5: GPU busy 55 → 94 %, step 310 → 190 ms, 1.6× (up to 1.8× was predicted)"
    assert sentence(kept.fix) == said
    assert watch.proven == ((Identity(300, 1), kept.fix),)
    assert kept.fix.advised["num_workers"] == "5"
    assert kept.fix.before.data_wait_percent is not None
    assert kept.fix.before.data_wait_percent.median == 45.0


@pytest.mark.parametrize(
    ("then", "said"),
    [
        # no step meter: a busier GPU is told, and is not called faster
        (
            run(300, busy=94.0, workers=5),
            "num_workers 2 → 5: GPU busy 55 → 94 %, step time not measured (up to 1.8× was predicted)",
        ),
        (
            enough(step_s=0.305, samples_per_s=209.0),
            "num_workers 2 → 5: GPU busy 55 → 94 %, step 310 → 305 ms, 1.0×, no gain measured "
            "(up to 1.8× was predicted)",
        ),
        (
            enough(step_s=0.4, samples_per_s=160.0),
            "num_workers 2 → 5: GPU busy 55 → 94 %, step 310 → 400 ms, 0.8×, slower (up to 1.8× was predicted)",
        ),
        (
            run(300, busy=94.0, workers=2, **FASTER),
            "finding gone; the change that fixed it is not visible: GPU busy 55 → 94 %, step 310 → 190 ms, 1.6× "
            "(up to 1.8× was predicted)",
        ),
        (
            run(300, busy=94.0, workers=4, **FASTER),
            "num_workers 2 → 4 (5 advised): GPU busy 55 → 94 %, step 310 → 190 ms, 1.6× (up to 1.8× was predicted)",
        ),
        (
            enough(command=("/usr/bin/python3", "/home/ann/mnist/train.py", "--batch_size=64", "--amp")),
            "num_workers 2 → 5, amp off → on: GPU busy 55 → 94 %, step 310 → 190 ms, 1.6× (up to 1.8× was predicted)",
        ),
        (
            enough(command=("python", "train.py", "--batch-size", "128")),
            "num_workers 2 → 5: not comparable: batch-size 64 → 128",
        ),
        (
            run(300, busy=94.0, workers=2, command=(*COMMAND, "--model", "l"), **FASTER),
            "not comparable: model unset → l",
        ),
        # the batch stands in the code, and its meter tells
        (enough(step_s=0.38), "num_workers 2 → 5: not comparable: batch 64 → 128"),
        (
            enough(gpus=replace(frame_of(few(), 0.0).processes[0]).gpus * 2),
            "num_workers 2 → 5: not comparable: GPUs 1× H100 → 2× H100",
        ),
    ],
)
def test_what_the_next_run_shows_is_said_and_nothing_more(then: Any, said: str) -> None:
    kept = Kept()
    watched(kept, few(), then)
    assert sentence(kept.fix) == said


def test_how_busy_a_gpu_is_does_not_depend_on_when_it_is_looked_at() -> None:
    """Its steps take as long as lies between two looks: each of these sees the same part of a step."""
    machine = few()
    machine.gpu = sampled(lambda t: 100.0 if t % 2 < 1 else 0.0)
    frame = frame_of(machine, 11.0)
    (job,) = frame.jobs
    assert frame.gpus[0].busy_percent == 100.0
    busy, *_ = sample(job, frame.processes[:1], frame).values
    assert busy == pytest.approx(50, abs=5)


def test_a_gain_within_the_noise_is_called_so() -> None:
    """Each block of ten seconds is as fast as chance has it, before as after."""

    def noisy(t: float) -> float:
        return (0.21, 0.4, 0.3)[int(t / 10) % 3]

    kept = Kept()
    quiet = {"samples_per_s": None, "data_wait_percent": None}
    watched(kept, few(step_s=noisy, **quiet), enough(step_s=lambda t: 0.9 * noisy(t + 10), **quiet))
    gain = kept.fix.gain
    assert gain is not None
    assert not gain.certain
    assert ", within the noise" in sentence(kept.fix)


def test_a_run_that_has_the_finding_still_or_is_another_script_proves_nothing() -> None:
    for then in (few(pid=300), enough(command=("python", "other.py")), enough(user="eve")):
        kept = Kept()
        watched(kept, few(), then)
        assert all(fix.outcome is None for fix in kept.fixes.values())
    kept = Kept()
    watched(kept, few(), few(pid=300), enough(pid=500))
    assert kept.fix.process == Identity(300, 1), "of two runs with it the later one counts"
    assert kept.fix.gain is not None


@pytest.mark.parametrize(
    "command",
    [
        ("python", "-c", "train()"),
        ("python",),
        ("python -m train",),
        ("python", "-m", "ipykernel_launcher", "-f", "/tmp/kernel-1.json"),
        ("./train", "--fast"),
    ],
)
def test_what_cannot_be_told_from_other_runs_is_not_kept(command: tuple[str, ...]) -> None:
    kept = Kept()
    watched(kept, few(command=command))
    assert kept.fixes == {}


def test_what_others_do_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Kept()
    watched(kept, few(), folder=None)
    assert kept.fixes == {}
    process = replace(frame_of(few(), 0.0).processes[0], pid=os.getpid())
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert started_in(process) == str(Path.cwd())
    assert started_in(replace(process, uid=1001)) is None
    assert started_in(replace(process, verified=False)) is None


def shown(watch: Watch, seconds: Callable[[int], bool], each_s: int = 2) -> None:
    """Two minutes of a finding that is shown in some of its seconds, without the steadying of the engine."""
    for t in range(0, 120, each_s):
        frame = frame_of(few(), float(t))
        (job,) = frame.jobs
        own = Finding(
            rule="starved-cpu-idle", severity="warn", headline="waits", since_s=40.0, primary=True, lost_share=0.4,
            subject=Subject(kind="process", processes=job.ranks, job=job.key),
        )  # fmt: skip
        state = JobState(key=job.key, name="j", state="found", why="waits")
        watch.take(Update(frame=frame, findings=(own,) if seconds(t) else (), jobs=(state,)))


def test_a_finding_is_kept_once_it_is_believed() -> None:
    for seconds, count in (
        (lambda t: t < 14, 0),
        (lambda t: t % 24 < 12, 0),  # it comes and goes
        (lambda t: t % 24 != 0, 1),  # one look without it
        (lambda t: True, 1),
    ):
        kept = Kept()
        shown(Watch(kept, lambda _: "/home/ann"), seconds)
        assert len(kept.fixes) == count


def test_where_looks_are_rare_a_finding_is_believed_too() -> None:
    kept = Kept()
    shown(Watch(kept, lambda _: "/home/ann"), lambda t: True, each_s=10)
    assert len(kept.fixes) == 1


def test_what_a_report_ends_with_is_kept_however_short_it_was_shown() -> None:
    for seconds, count in ((lambda t: t >= 112, 1), (lambda t: t < 112, 0), (lambda t: False, 0)):
        kept = Kept()
        watch = Watch(kept, lambda _: "/home/ann")
        shown(watch, lambda t, of=seconds: of(t) and t >= 108)
        assert kept.fixes == {}
        watch.finish()
        assert len(kept.fixes) == count


def test_a_report_waits_until_a_run_is_compared() -> None:
    kept = Kept()
    watched(kept, few())
    watch = Watch(kept, lambda _: "/home/ann/mnist")
    pending = []
    for t in range(0, 60, 2):
        frame = frame_of(enough(), float(t))
        state = JobState(key="j", name="j", state="judging" if t < 30 else "healthy", why="")
        watch.take(Update(frame=frame, jobs=(state,)))
        pending.append(watch.pending)
    assert pending == [""] * 15 + ["train.py"] * 5 + [""] * 10, "for ten seconds after the verdict"
    assert kept.fix.gain is not None


def test_arguments_are_compared_by_name() -> None:
    assert options(("--lr", "0.1", "data", "--amp", "-b=64", "data.num_workers=4", "--betas", "0.9", "0.95")) == {
        "lr": "0.1 data",
        "amp": "",
        "b": "64",
        "data.num-workers": "4",
        "betas": "0.9 0.95",
    }
    old = JobRun(script="/t.py", arguments=("--model", "s", "--workers=2", "--out", "/a"), host="h", user="ann")
    new = replace(old, arguments=("--model=l", "--num_workers", "5", "--out", "/b"), ranks=2)
    assert [tuple(one) for one in differences(old, new)] == [
        ("", "model s → l"),
        ("loader", "workers 2 → unset"),
        ("results", "out /a → /b"),
        ("loader", "num-workers unset → 5"),
        ("", "ranks 1 → 2"),
    ]
    assert differences(old, replace(old, arguments=("--model=s", "--workers", "2", "--out", "/a"))) == ()


def test_the_values_to_set_are_those_of_the_steps() -> None:
    steps = (
        Step(text="a", command="export OMP_NUM_THREADS=4 MKL_NUM_THREADS=4"),
        Step(text="b", command="torch.set_num_threads(2)"),
        Step(text="c", command="DataLoader(..., num_workers=5, pin_memory=True)"),
        Step(text="d"),
    )
    finding = Finding(rule="r", severity="warn", subject=Subject(kind="host"), headline="h", steps=steps)
    assert advised_values(finding) == {"OMP_NUM_THREADS": "4", "num_workers": "5", "pin_memory": "True"}


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "gputop" / "proven"


def store(**how: Any) -> FixStore:
    return FixStore(**{"clock": lambda: NOW_S + 1000, **how})


def test_what_is_kept_is_private_and_comes_back(state: Path) -> None:
    kept = store()
    kept.put(a_fix())
    assert kept.load() == {a_fix().name: a_fix()}
    (file,) = state.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    assert decode(json.loads(json.dumps(encode(a_fix())))) == a_fix()


def test_secrets_of_a_command_line_are_masked_in_what_is_kept(state: Path) -> None:
    kept = Kept()
    watched(kept, few(command=(*COMMAND, "--hf-token", "hf_abcdefghijklmnopqrstuvwxyz0123456789")))
    store().put(kept.fix)
    assert "abcdefgh" not in next(state.iterdir()).read_text()


def test_it_goes_after_thirty_days_and_the_oldest_of_too_many_goes(state: Path) -> None:
    for number in range(MOST + 3):
        store().put(
            a_fix(at_s=NOW_S + number / 10, process=Identity(1000 + number, 1), outcome=None, rule=f"r{number}")
        )
    names = {fix.rule for fix in store().load().values()}
    assert len(names) == MOST == len([*state.iterdir()])
    assert {"r0", "r1", "r2"}.isdisjoint(names)
    assert len(store(clock=lambda: NOW_S + KEPT_S + 10).load()) == MOST - 97, "those of the last seconds stay"
    assert store(clock=lambda: NOW_S + KEPT_S + 100).load() == {}
    assert [*state.iterdir()] == []


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[" * 100_000,
        b"null",
        b"[]",
        b'{"version": 2}',
        b'{"version": 1, "run": 5}',
        json.dumps({**encode(a_fix()), "at_s": "now"}).encode(),
        json.dumps({**encode(a_fix()), "settings": [1]}).encode(),
        json.dumps({**encode(a_fix()), "before": None}).encode(),
        json.dumps({**encode(a_fix()), "most": 1e999}).encode(),
        b"\xff\xfe\x00",
    ],
)
def test_a_broken_file_is_nothing(state: Path, content: bytes) -> None:
    store().put(a_fix())
    (state / "0000000000000000.json").write_bytes(content)
    (state / "link.json").symlink_to("/etc/passwd")
    assert store().load() == {a_fix().name: a_fix()}
    assert [file.name for file in state.iterdir() if file.is_file() and not file.is_symlink()] == [a_fix().name]


def test_texts_of_a_file_cannot_steer_a_terminal(state: Path) -> None:
    hostile = replace(a_fix().run, script="/x/\x1b]0;owned\x07.py")
    assert "\x1b" not in line(decode(encode(a_fix(run=hostile))))


def test_several_gputops_lose_nothing(state: Path) -> None:
    store().put(a_fix(outcome=None))
    store().put(a_fix())  # another one sees what came of it
    store().put(a_fix(outcome=None))  # and the first keeps a longer window
    assert store().load() == {a_fix().name: a_fix()}
    later = a_fix(process=Identity(9, 9), outcome=None)
    store().put(later)
    assert len(store().load()) == 2, "what was measured stays, for --stats"
    store().put(a_fix(process=Identity(10, 9), outcome=None))
    assert later.name not in store().load(), "what waits is replaced by the newest run"


def test_read_only_nothing_is_made(state: Path) -> None:
    behind = BackgroundStore(FixStore(writes=False))
    behind.refresh()
    behind.put(a_fix())
    behind.finish()
    assert [*behind.fixes.values()] == [a_fix()]
    assert not state.parent.exists()


def test_nobody_waits_for_the_disk_and_what_it_says_is_used_when_it_comes(state: Path) -> None:
    store().put(a_fix(outcome=None, at_s=NOW_S))
    behind = BackgroundStore(store())
    behind.refresh()
    behind.finish()
    assert [*behind.fixes.values()] == [a_fix(outcome=None)]
    behind.put(a_fix())
    behind.finish()
    assert store().load() == behind.fixes == {a_fix().name: a_fix()}


def test_it_can_be_switched_off_and_what_is_not_of_here_leaves_nothing() -> None:
    def live() -> Monitor:
        monitor = Monitor(open_demo("healthy", pace=False))
        monitor.source.elsewhere = None
        return monitor

    monitor = live()
    proofs = follow(monitor, remember=True, readonly=True)
    assert proofs is not None
    assert monitor.sinks == (proofs.take,)
    assert follow(off := live(), remember=False, readonly=False) is None
    assert follow(demo := Monitor(open_demo("healthy", pace=False)), remember=True, readonly=False) is None
    assert off.sinks == demo.sinks == ()


def test_without_a_home_it_is_known_for_as_long_as_gputop_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/nowhere")
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    behind = BackgroundStore(FixStore())
    behind.put(a_fix())
    behind.finish()
    assert [*behind.fixes.values()] == [a_fix()]


def test_a_mistake_ends_the_comparison_and_not_the_monitor() -> None:
    def broken() -> Any:
        raise RuntimeError("mistake")

    proofs = Proofs(writes=False, memory=broken)
    proofs.take(Update(frame=frame_of(few(), 0.0), jobs=(JobState(key="j", name="j", state="judging", why=""),)))
    (told,) = proofs.lines
    assert told.whole == ("gains of fixes are not measured: RuntimeError: mistake; please report it")


def test_predictions_are_held_against_outcomes() -> None:
    fixes = [a_fix(), a_fix(step_s=0.1), a_fix(step_s=0.31), a_fix(most=None), a_fix(outcome=None)]
    counted = score(fixes)
    assert (counted.predictions, counted.gained, counted.within) == (3, 2, 1)
    assert counted.ratio == pytest.approx(0.31 / 0.19 / 1.8)
    assert (
        "3 predictions compared with an outcome: 2 runs faster, 1 of them by no more than predicted."
        in (page(fixes, stats=True).words[0])
    )


def test_the_command_lists_counts_and_forgets(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    now_s = time.time()
    assert cli.main(["proven", "--readonly"]) == 0
    assert "Nothing yet" in capsys.readouterr().out
    assert not state.parent.exists()
    outcome = replace(a_fix().outcome, at_s=now_s)
    FixStore().put(a_fix(at_s=now_s - 900, outcome=outcome))
    FixStore().put(a_fix(at_s=now_s + 9, outcome=None, rule="threads-host", process=Identity(3, 3)))
    assert cli.main(["proven"]) == 0
    said = capsys.readouterr().out
    assert "Fixes: 1 compared, 1 waiting" in said
    assert "train.py: num_workers 2 → 5: GPU busy 55 → 88 %, step 310 → 190 ms, 1.6×" in said
    assert cli.main(["proven", "--ascii"]) == 0
    assert capsys.readouterr().out.isascii()
    assert cli.main(["proven", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["stats"]["predictions"] == 1
    assert [one["rule"] for one in told["fixes"]] == ["threads-host", "starved-cpu-idle"]
    assert told["fixes"][1]["predicted"] == [1.0, 1.8]
    assert told["fixes"][1]["gain"]["times"] == pytest.approx(0.31 / 0.19)
    assert cli.main(["proven", "--stats"]) == 0
    assert "1 prediction compared" in capsys.readouterr().out
    assert cli.main(["proven", "--forget", "--readonly"]) == 64
    assert cli.main(["proven", "--forget"]) == 0
    assert "Deleted 2 stored findings and their outcomes." in capsys.readouterr().out
    assert [*state.iterdir()] == []


PROVEN = (FixText(line(a_fix()), brief(a_fix()), True),)


@pytest.mark.parametrize("size", [(120, 40), (200, 60)])
@pytest.mark.parametrize("findings", [(fine(),), (found(), hot(), fine())], ids=["calm", "findings"])
def test_it_stands_in_the_advice(size: tuple[int, int], findings: tuple[Finding, ...]) -> None:
    rows = drawn(update(*findings), size, proven=PROVEN)
    said = " ".join(" ".join(rows).split())
    assert "proven train.py: num_workers 2 → 5: GPU busy 55 → 88 %, step 310 → 190 ms, 1.6× (up to 1.8×" in said
    plain = drawn(update(*findings), size, Look(glyphs=ASCII), proven=PROVEN)
    assert "\n".join(plain).isascii()


def test_without_a_gain_nothing_is_called_proven() -> None:
    assert [is_faster(fix) for fix in (a_fix(), a_fix(step_s=0.31), a_fix(step_s=0.5), a_fix(outcome=None))] == [
        True,
        False,
        False,
        False,
    ]
    same = a_fix(step_s=0.31)
    for size in ((80, 24), (120, 40)):
        rows = drawn(update(fine()), size, proven=(FixText(line(same), brief(same), is_faster(same)),))
        assert any(row.startswith("  fix     train.py: num_workers 2 → 5: ") for row in rows)
        assert not any("proven" in row for row in rows)


def test_in_one_line_the_gain_comes_first() -> None:
    rows = drawn(update(fine()), (80, 24), proven=PROVEN)
    assert rows == ["  proven  train.py: num_workers 2 → 5: 1.6×, GPU busy 55 → 88 %, step 310 →…"]
