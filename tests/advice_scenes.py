"""Updates with findings made up by hand, and the advice drawn of them as the screen does it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gputop.diagnose import Abstained, Class, Evidence, Finding, Step, Subject
from gputop.diagnose.state import JobState
from gputop.model import Frame, Job, Missing
from gputop.monitor import Update
from gputop.ui.advice.finding_list import FindingList
from gputop.ui.advice.pane import advice
from gputop.ui.advice.scene import AdviceScene
from gputop.ui.commands.command import names
from gputop.ui.commands.table import COMMANDS
from gputop.ui.gpus.scene import with_instances
from gputop.ui.panes.layout import arrange
from gputop.ui.theme import Look
from tests.scripted_jobs import JUPYTER, LLAMA, SD3, frame

NAMES = names(COMMANDS)


def found(**change: Any) -> Finding:
    """A job that waits, with its cause."""
    shown = server()
    job = shown.jobs[0]
    base: dict[str, Any] = {
        "rule": "starved-cpu-idle",
        "severity": "warn",
        "subject": Subject(
            kind="job", job=job.key, gpus=tuple(gpu.uuid for gpu in shown.gpus[:4]), processes=job.ranks
        ),
        "headline": "waits for its workers, because the machine runs 256 compute threads of 4 trainers on 64 CPUs",
        "evidence": (
            Evidence(text="GPU busy 58 % of the last 60 s", value=58.3, unit="%", limit=80.0),
            Evidence(text="32 workers 42 % blocked on storage", value=42.0, unit="%", limit=20.0),
            Evidence(text="CPU only 47 % used"),
        ),
        "steps": (
            Step(text="start it with 8 compute threads", command="export OMP_NUM_THREADS=8"),
            Step(text="fewer, larger files"),
            Step(text="more room in /dev/shm", command="mount -o remount,size=64G /dev/shm", needs_root=True),
        ),
        "since_s": 372.0,
        "confidence": 0.9,
        "lost_share": 0.42,
        "state": "dataloader",
        "primary": True,
        "causes": ("threads-host",),
    }
    return Finding(**{**base, **change})


def hot(**change: Any) -> Finding:
    """A GPU that is too hot."""
    base: dict[str, Any] = {
        "rule": "thermal", "severity": "crit", "headline": "is slowed by heat", "since_s": 240.0, "confidence": 0.95,
        "subject": Subject(kind="gpu", gpus=(server().gpus[6].uuid,)), "grade": "driver", "lost_share": 0.29,
        "evidence": (Evidence(text="88 °C (slowdown at 90 °C)", value=88.0, unit="C", limit=90.0),),
        "steps": (Step(text="check the airflow"),), "state": "thermal", "primary": True,
    }  # fmt: skip
    return Finding(**{**base, **change})


def fine(**change: Any) -> Finding:
    """A job with which nothing is wrong."""
    job = server().jobs[1]
    base: dict[str, Any] = {
        "rule": "gpu-bound-healthy", "severity": "info", "healthy": True, "primary": True, "state": "healthy",
        "subject": Subject(kind="job", job=job.key, processes=job.ranks), "headline": "keeps its GPUs busy",
    }  # fmt: skip
    return Finding(**{**base, **change})


def server() -> Frame:
    """Eight GPUs, three jobs."""
    return frame(LLAMA, SD3, JUPYTER, gpus=8)


def update(*findings: Finding, shown: Frame | None = None) -> Update:
    """These findings, a rule that could not judge, a class."""
    shown = shown or server()
    lacks = Missing(metric="io_wait_percent", reason="denied", unlock="sudo sysctl -w kernel.task_delayacct=1")
    silent = Abstained(rule="neighbour", subject=Subject(kind="host"), missing=(lacks,), unlock=lacks.unlock)
    path = (
        ("compute, memory or overhead?", "compute-bound"),
        ("is the GPU busy?", "0.97 of 0.9"),
        ("is GPU busy steady?", "3 of 8"),
    )
    kinds = [
        Class(pid=job.ranks[0].pid, name="large/simple", margin=0.3, path=path, regime="compute-bound")
        for job in shown.jobs[:1]
    ]
    of = tuple(state_of(job, findings, shown) for job in shown.jobs)
    machine = JobState(key="host", name=shown.hostname, state="healthy", why="CPU 40 % in use", due=False)
    return Update(frame=shown, findings=findings, abstained=(silent,), classes=tuple(kinds), jobs=of, host=machine)


def state_of(job: Job, findings: Sequence[Finding], shown: Frame) -> JobState:
    """What these findings make of a job, as the engine would have it."""
    gpus = tuple(share.uuid for one in job.ranks for share in shown.by_identity[one].gpus)
    about = [one for one in findings if one.subject.job == job.key or {*one.subject.gpus} & {*gpus}]
    base: dict[str, Any] = {"key": job.key, "name": job.name, "user": job.user, "gpus": gpus, "processes": job.ranks}
    if bad := next((one for one in about if not one.healthy), None):
        return JobState(**base, state="found", why=bad.headline)
    if well := next((one for one in about if one.healthy), None):
        return JobState(**base, state="healthy", why=well.headline)
    return JobState(**base, state="judging", judged_in_s=20.0, why="GPU busy 33 % so far, 40 of 60 s")


def finding_list(told: Update) -> FindingList:
    """Its findings."""
    made = FindingList()
    made.feed(told)
    return made


def drawn(told: Update, size: tuple[int, int], look: Look | None = None, **how: Any) -> list[str]:
    """The lines of the advice on a screen of this size."""
    made = finding_list(told)
    panes = arrange(*size, len(with_instances(told.frame.gpus)), calm=made.calm)
    assert panes.advice
    scene = AdviceScene(update=told, finding_list=made, look=look or Look(), keys=NAMES, **how)
    strips = advice(scene, panes.advice.width, panes.advice.height)
    assert len(strips) <= panes.advice.height
    assert {strip.cell_length for strip in strips} == {panes.advice.width}
    return [strip.text.rstrip() for strip in strips]
