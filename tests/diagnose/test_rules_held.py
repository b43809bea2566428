"""Device memory that is held for nothing, or shared: each rule fires, just does not, and abstains."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gputop.model import Frame, Gpu, GpuShare, Identity, Job, Process, Role
from tests.rule_cases import Machine, after, found, hours, judged, silent

GIB = 2**30
NOTEBOOK = ("python", "-m", "ipykernel_launcher", "-f", "kernel.json")
PARKED = GpuShare(uuid="G", busy_percent=0.0, vram_bytes=31 * GIB)


def parked(gpu: dict[str, Any] | None = None, **trainer: Any) -> Machine:
    """A notebook that holds 31 GiB and does nothing."""
    plain = {"command": NOTEBOOK, "user": "carol", "gpus": (PARKED,), "cpu_percent": 0.3, "main_thread_percent": 0.3}
    idle = {"busy_percent": 0.0, "power_watts": 70.0, "vram_used_bytes": 31 * GIB}
    return Machine(gpu=idle | (gpu or {}), trainer=plain | trainer)


@pytest.mark.parametrize(
    ("machine", "minutes", "severity"),
    [
        (parked(), 13, "warn"),
        (parked(), 10, None),
        (parked(cpu_percent=0.9), 13, "warn"),
        (parked(cpu_percent=1.1), 13, None),
        (parked({"busy_percent": 1.0}), 13, None),
        (parked({"busy_percent": lambda t: 30.0 if t == 300 else 0.0}), 13, None),
        (parked(gpus=(replace(PARKED, vram_bytes=int(0.9e9)),), gpu={"vram_used_bytes": int(0.9e9)}), 13, None),
        (parked(command=("python", "-m", "vllm.entrypoints.api_server")), 13, None),  # it waits for requests
        (parked(command=("python", "app.py")), 13, "info"),  # somebody may come back to it
        (parked(command=("python", "train.py")), 13, "warn"),
        (parked({"vram_used_bytes": int(33.1 * GIB)}, command=("python", "app.py")), 13, "warn"),  # of nobody, too
        (parked(state="T"), 3, "info"),  # on purpose
        (parked(state="Z"), 3, "warn"),
        (parked({"vram_used_bytes": int(33.1 * GIB)}, cpu_percent=90.0), 3, "warn"),  # of nobody
        (parked({"vram_used_bytes": int(31.9 * GIB)}, cpu_percent=90.0), 3, None),
        (parked({"vram_used_bytes": 50 * GIB, "busy_percent": 6.0}, cpu_percent=90.0), 3, None),
    ],
)
def test_zombie_memory(machine: Machine, minutes: float, severity: str | None) -> None:
    finding = found(hours(machine.frame, minutes), "zombie-memory")
    assert (finding and finding.severity) == severity


def test_zombie_memory_of_nobody_is_not_told_where_the_system_runs_it() -> None:
    """Of a Grace superchip: pages of those who ended stay in use until somebody needs them."""
    machine = parked({"vram_used_bytes": 50 * GIB, "numa_memory": True}, cpu_percent=90.0)
    said = hours(machine.frame, 3)
    assert found(said, "zombie-memory") is None
    assert (one := silent(said, "zombie-memory")) is not None
    assert [missing.metric for missing in one.missing] == ["vram_used_bytes"]


def test_zombie_memory_names_the_owner_and_leaves_the_rest_to_him() -> None:
    told = found(hours(parked().frame, 75), "zombie-memory")
    assert told is not None
    assert told.primary
    assert told.headline == "31.0G of GPU memory held by python (carol, pid 100), idle"
    assert told.evidence[0].text == "31.0G held by python (carol, pid 100), idle for at least 1 h 14 min"
    assert told.steps[0].text.startswith("Ask carol to shut down its kernel")
    kill = told.steps[-1]
    assert kill.command is None
    assert kill.destroys
    assert kill.text.startswith("Have carol or root terminate it")


def test_zombie_memory_of_ones_own_may_be_ended() -> None:
    machine = parked(uid=1002)
    told = found(hours(lambda t: replace(machine.frame(t), viewer_uid=1002), 75), "zombie-memory")
    assert told is not None
    assert (told.steps[-1].command, told.steps[-1].destroys) == ("kill 100", True)
    assert told.steps[-1].text.startswith("Terminate it, if no longer needed")


@pytest.mark.parametrize(
    ("process", "words"),
    [
        (Process(pid=7, started_ticks=0, unseen="exited", gpus=(PARKED,)), "31.0G leaked by exited PID 7"),
        (
            Process(pid=7, started_ticks=1, parent_pid=1, name="pt_data_worker", gpus=(PARKED,), state="S"),
            "31.0G leaked by pt_data_worker (pid 7), an orphaned worker",
        ),
    ],
)
def test_zombie_memory_of_the_dead_and_of_orphans(process: Process, words: str) -> None:
    machine = parked({"vram_used_bytes": 62 * GIB}, cpu_percent=90.0)

    def frame(t: float) -> Frame:
        one = machine.frame(t)
        return replace(one, processes=(*one.processes, process))

    told = found(hours(frame, 3), "zombie-memory")
    assert told is not None
    assert words in told.evidence[0].text
    assert "of GPU memory leaked by" in told.headline


@pytest.mark.parametrize(("trains", "gone"), [(True, False), (False, True)])
def test_zombie_memory_knows_a_trainer_that_is_the_first_process_of_its_container(trains: bool, gone: bool) -> None:
    """Its loaders have the parent that orphans have."""
    busy = parked({"vram_used_bytes": 62 * GIB, "busy_percent": 97.0}, command=("python", "train.py"), cpu_percent=90.0)
    loader = Process(pid=27, started_ticks=2, parent_pid=1, name="pt_data_worker", gpus=(PARKED,), state="S")

    def frame(t: float) -> Frame:
        one = busy.frame(t)
        (trainer,) = one.processes
        first = replace(trainer, pid=1) if trains else replace(trainer, pid=1, role=Role.OTHER, name="tini", gpus=())
        return replace(one, processes=(first, loader), jobs=())

    told = found(hours(frame, 3), "zombie-memory")
    assert bool(told and "an orphaned worker" in told.headline) is gone


def test_zombie_memory_does_not_call_what_nobody_knows_nothing() -> None:
    unknown = Process(pid=7, started_ticks=0, unseen="exited", gpus=(GpuShare(uuid="G", vram_bytes=None),))
    machine = parked({"vram_used_bytes": 62 * GIB}, cpu_percent=90.0)
    said = hours(lambda t: replace(one := machine.frame(t), processes=(*one.processes, unknown)), 3)
    assert found(said, "zombie-memory") is None
    assert silent(said, "zombie-memory") is not None


def test_zombie_memory_abstains_where_it_cannot_tell() -> None:
    machine = parked({"vram_used_bytes": 62 * GIB}, cpu_percent=90.0)
    stranger = Process(pid=8, started_ticks=1, name="python", libraries=("torch", "cuda"))

    def frame(t: float) -> Frame:
        one = machine.frame(t)
        return replace(one, processes=(*one.processes, stranger))

    said = hours(frame, 3)
    assert silent(said, "zombie-memory") is not None
    assert found(said, "zombie-memory") is None
    unknown = parked(gpus=(replace(PARKED, vram_bytes=None),))
    assert silent(hours(unknown.frame, 1), "zombie-memory") is not None


def two(
    first: float, second: float | None, *, alone_s: float = 0.0, job: str = "k", kind: Any = "compute"
) -> Callable[[float], Frame]:
    """Two programs on one GPU, from some time on, and how busy each keeps it."""
    machine = Machine()

    def frame(t: float) -> Frame:
        one, shares = machine.frame(t), t >= alone_s
        trainer = replace(
            one.processes[0], gpus=(GpuShare(uuid="G", busy_percent=first if shares else 97.0, vram_bytes=GIB),)
        )
        other = replace(
            trainer, pid=300, job=job, user="bob",
            gpus=(GpuShare(uuid="G", busy_percent=second, vram_bytes=GIB, kind=kind),),
        )  # fmt: skip
        jobs = (*one.jobs, Job(key="k", name="k", ranks=(Identity(300, 1),))) if job == "k" else one.jobs
        busy = min(100.0, first + (second or 0.0)) if shares else 97.0
        gpu = replace(one.gpus[0], busy_percent=busy)
        return replace(one, gpus=(gpu,), processes=(trainer, other) if shares else (trainer,), jobs=jobs)

    return frame


@pytest.mark.parametrize(
    ("frame", "severity"),
    [
        (two(52, 44), "info"),
        (two(40, 38), None),
        (two(96, 4.5), None),  # the other is idle
        (two(52, 44, alone_s=90), "warn"),
        (two(90, 9, alone_s=90), "info"),  # the first keeps nearly all
        (two(52, 44, job="j"), None),  # of one job: it knows
        (two(52, 44, kind="mps"), None),
    ],
)
def test_gpu_shared(frame: Callable[[float], Frame], severity: str | None) -> None:
    finding = found(after(frame, 240), "gpu-shared")
    assert (finding and finding.severity) == severity


def test_gpu_shared_says_who_and_where_else() -> None:
    shares = two(52, 44, alone_s=90)

    def frame(t: float) -> Frame:
        one = shares(t)
        free: Gpu = replace(one.gpus[0], uuid="H", index="1", busy_percent=0.0)
        return replace(one, gpus=(*one.gpus, free))

    told = found(after(frame, 240), "gpu-shared")
    assert told is not None
    assert [item.text for item in told.evidence] == [
        "python (pid 100), busy 52 %, 97 % while alone",
        "python (bob, pid 300), busy 44 %",
    ]
    assert told.lost_share == pytest.approx(0.46, abs=0.01)
    assert told.steps[0].command == "export CUDA_VISIBLE_DEVICES=1"


@pytest.mark.parametrize(
    ("place", "visible", "text", "command"),
    [
        ({}, (None, None), "Start one of them on another GPU: 1 is free", "1"),
        ({"container": "c"}, (None, None), "Start one of them on another GPU, if assigned one: 1 is free", None),
        ({"slurm_job": "7"}, ("0", "0"), "Start one of them on another GPU, if assigned one: 1 is free", None),
        (
            {"slurm_job": "7"},
            ("GPU-1", "GPU-1,GPU-2"),
            "Start python (bob, pid 300) on another GPU: 1 is free",
            "GPU-2",
        ),
        ({"container": "c"}, ("0,1", None), "Start python (pid 100) on another GPU: 1 is free", "GPU-2"),
    ],
)
def test_gpu_shared_offers_what_a_container_or_a_slurm_job_was_given(
    place: dict[str, Any], visible: tuple[str | None, str | None], text: str, command: str | None
) -> None:
    shares = two(52, 44)

    def frame(t: float) -> Frame:
        one = shares(t)
        held = [replace(process.gpus[0], uuid="GPU-1") for process in one.processes]
        processes = tuple(
            replace(process, gpus=(share,), visible_gpus=gpus, **place)
            for process, share, gpus in zip(one.processes, held, visible, strict=True)
        )
        cards = tuple(
            replace(one.gpus[0], uuid=f"GPU-{n + 1}", index=str(n), busy_percent=96.0 * (1 - n)) for n in (0, 1)
        )
        return replace(one, gpus=cards, processes=processes)

    told = found(after(frame, 240), "gpu-shared")
    assert told is not None
    assert told.steps[0].text.startswith(text)
    assert told.steps[0].command == (command and f"export CUDA_VISIBLE_DEVICES={command}")


def test_gpu_shared_abstains_where_nothing_is_told_by_process() -> None:
    assert silent(after(two(52, None), 5), "gpu-shared") is not None


def test_gpu_shared_is_a_mean_however_rarely_it_looks() -> None:
    less, more = two(45, 40), two(52, 60)
    frames = ((less if t % 600 else more)(float(t)) for t in range(0, 12_000, 300))
    *_, (_, said) = judged(frames)
    told = found(said, "gpu-shared")
    assert told is not None
    assert all(30 <= (item.value or 0) <= 60 for item in told.evidence)


@pytest.mark.parametrize("every_s", [2.0, 5.0])
def test_gpu_shared_knows_what_each_got_however_often_it_looks(every_s: float) -> None:
    before, now = two(80, 10), two(40, 48)
    frames = ((before if t < 120 else now)(float(t)) for t in range(180))
    *_, (_, said) = judged(frames, every_s=every_s)
    told = found(said, "gpu-shared")
    assert told is not None
    assert told.evidence[0].value == pytest.approx(40 + (80 - 40) / math.e, abs=2)  # one window after the change
