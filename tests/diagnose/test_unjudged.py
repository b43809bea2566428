"""A GPU in use of which nothing can be said is not called healthy, whatever keeps it from being judged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gputop.demo import SCENARIOS, Demo
from gputop.diagnose.engine import EVERY_S, Verdict
from gputop.export.diagnosis import Diagnosis, page
from gputop.model import Frame, GpuShare, Identity, Job, Missing, Note, Process
from gputop.monitor import Monitor, Update
from gputop.report import text
from tests.rule_cases import Machine, after, refused

Frames = Callable[[float], Frame]
SHARE = GpuShare(uuid="G", busy_percent=None, vram_bytes=2**30)
MUTE = Missing(metric="busy_percent", reason="unsupported", unlock="an instance tells nothing")
ALONE = {"gpus": (SHARE,)}
WSL = Missing(
    metric="processes", reason="unsupported", unlock="the driver rejects this call every time (NVML error 999)"
)
DARK = {"busy_percent": None, "sm_active_percent": None, "missing": (MUTE,)}


UNUSED = {"no-cuda-context", "slow-start", "zombie-memory", "gpu-idle-cpu-busy", "gpu-unused-in-job"}


def seen(*processes: Process, **gpu: Any) -> Frames:
    """A machine of whose GPU nobody else works than these."""
    return lambda t: replace(Machine(gpu={"vram_used_bytes": 2**30, **gpu}).frame(t), processes=processes, jobs=())


def told(frame: Frames, seconds: int = 120) -> Diagnosis:
    said: Verdict = after(frame, seconds)
    update = Update(
        frame=frame(float(seconds)), findings=said.findings, abstained=said.abstained, jobs=said.jobs, host=said.host
    )
    return Diagnosis(update=update, seconds=float(seconds))


def unseen(why: Any) -> Process:
    return Process(pid=4121, started_ticks=0, verified=why != "foreign", unseen=why, gpus=(SHARE,))


def young(age_s: float) -> Frames:
    return lambda t: Machine(trainer={"age_s": age_s + t}).frame(t)


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (seen(unseen("foreign"), busy_percent=40.0), "outside this container: run gputop on the host"),
        (seen(unseen("foreign"), busy_percent=0.0), "outside this container: run gputop on the host"),
        (seen(unseen("hidden"), busy_percent=40.0), "hidden: /proc is mounted with hidepid: sudo "),
        (seen(busy_percent=40.0), "the driver lists no process on it"),
        (seen(busy_percent=40.0, missing=(WSL,)), "the driver rejects this call every time (NVML error 999)"),
        (seen(busy_percent=40.0, missing=(replace(WSL, unlock=None),)), "does not list the processes of this GPU"),
        (seen(busy_percent=40.0, missing=(Missing(metric="processes", reason="denied", unlock="ask"),)), "ask"),
        (young(-60.0), "GPU busy 97 % so far, 58 of 90 s"),
        (Machine(gpu=DARK, trainer=ALONE).frame, "an instance tells nothing"),
    ],
)
def test_a_gpu_in_use_that_nobody_can_judge_is_not_called_healthy(frame: Frames, why: str) -> None:
    found = told(frame)
    assert found.code == 0
    assert found.doubt in ("1 job unknown", "1 job (judging)")
    (reason,) = found.reasons
    assert why in reason
    shown = " ".join(text(page(found)).split())
    assert f"h: {found.doubt}" in shown
    assert why in shown


@pytest.mark.parametrize(
    "frame",
    [
        Machine().frame,
        seen(busy_percent=0.0),
        seen(busy_percent=4.0),
        seen(busy_percent=lambda t: 95.0 if t < 110 else 0.0),  # who worked on it has just ended
        seen(unseen("exited"), busy_percent=0.0),
        seen(replace(unseen("foreign"), gpus=(replace(SHARE, kind="graphics"),)), busy_percent=40.0),
        young(0.0),
        lambda t: replace(Machine().frame(t), processes=(*Machine().frame(t).processes, unseen("foreign"))),
    ],
)
def test_one_that_rests_or_has_a_process_that_is_seen_is_judged(frame: Frames) -> None:
    found = told(frame)
    assert (found.doubt, found.reasons) == ("", ())


@pytest.mark.parametrize(("own_pids", "advised"), [(True, True), (False, False), (None, False)])
def test_to_look_from_the_host_is_advised_only_where_this_is_a_container(own_pids: bool | None, advised: bool) -> None:
    def frame(t: float) -> Frame:
        one = seen(busy_percent=40.0)(t)
        return replace(one, host=replace(one.host, own_pids=own_pids))

    (reason,) = told(frame).reasons
    assert "the driver lists no process on it" in reason
    assert ("--pid=host" in reason) == advised


@pytest.mark.parametrize("busy", [0.0, 97.0])
def test_where_the_driver_lists_nobody_no_rule_says_that_a_gpu_is_not_used(busy: float) -> None:
    """As in WSL: the memory is somebody's, and who trains is most likely on the GPU."""
    gpu = {"busy_percent": busy, "vram_used_bytes": 6 << 30, "missing": (WSL,)}
    trainer = {"gpus": (), "cpu_percent": 60.0, "main_thread_percent": 60.0, "age_s": lambda t: 5.0 + t}
    said = after(Machine(gpu=gpu, trainer=trainer).frame, 900)
    assert not [finding.rule for finding in said.findings if finding.rule in UNUSED]
    nobodys = [one.unlock for one in said.abstained if one.rule == "zombie-memory"]
    assert nobodys == ([WSL.unlock] if busy == 0 else [])
    assert "--pid=host" not in str(said)


def test_what_is_wrong_is_told_with_what_could_not_be_judged() -> None:
    hot = seen(unseen("foreign"), throttled_heat_percent=9.0)
    found = told(hot)
    assert found.code > 0
    assert "outside this container" in text(page(found))


def test_what_the_driver_and_proc_do_not_show_is_on_the_page() -> None:
    notes = (
        Note(subject="processes", key="foreign-pids", text="1 of 1 GPU processes are outside this container."),
        Note(subject="monitor", key="slow", text="slow"),
    )
    said = page(told(lambda t: replace(Machine().frame(t), notes=notes))).notes
    assert "1 of 1 GPU processes are outside this container." in said
    assert "slow" not in said


@pytest.mark.parametrize(("seconds", "short"), [(39.4, True), (39.95, False), (40.0, False)])
def test_who_looked_for_forty_seconds_is_not_told_that_forty_are_too_few(seconds: float, short: bool) -> None:
    found = replace(told(Machine().frame, 60), seconds=seconds)
    assert bool(found.doubt) == short


def test_abstentions_of_jobs_of_one_name_are_told_apart_by_their_pids() -> None:
    def frame(t: float) -> Frame:
        one = Machine(trainer=refused("pss_bytes")).frame(t)
        jobs = tuple(Job(key=str(pid), name="train.py", ranks=(Identity(pid, 1),)) for pid in range(100, 104))
        (trainer,) = one.processes
        return replace(one, jobs=jobs, processes=tuple(replace(trainer, pid=int(job.key), job=job.key) for job in jobs))

    said = page(told(frame), explain=True).notes
    leaks = [note for note in said if note.startswith("host-memory-leak cannot judge train.py (pid 10")]
    assert len(set(leaks)) == len(leaks) == 4


def test_a_finding_of_a_demo_is_no_older_than_what_was_judged() -> None:
    demo = Demo(SCENARIOS["collective-wait"], pace=False, anchor_s=1_795_185_127.0)
    monitor = Monitor(demo)
    *_, last = monitor.updates()
    assert monitor.judged_s is not None
    assert monitor.judged_s < demo.scenario.server.uptime_s + demo.at_s, "its past is judged, too"
    oldest_s = max(finding.since_s for finding in last.findings)
    assert oldest_s <= last.frame.mono_s - monitor.judged_s + EVERY_S


@pytest.mark.parametrize("denied", [False, True])
def test_a_gpu_of_which_nothing_is_said_for_want_of_a_signal_is_not_well(denied: bool) -> None:
    """Hardly any of it works, and whether that is waiting for other ranks may not be read."""
    trainer = refused("world_size") if denied else {}
    units = {"sm_active_percent": 1.0, "tensor_percent": 0.0, "dram_percent": 0.0}
    found = told(Machine(gpu=units, trainer=trainer).frame, 180)
    assert found.doubt == ("1 job unknown" if denied else "")
    assert found.code == (0 if denied else 1)
