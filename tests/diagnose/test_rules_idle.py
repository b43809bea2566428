"""A busy CPU beside an idle GPU: what is told of who compiles, loads, begins, or has little to do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gputop.model import Frame, GpuShare, Process, Role
from tests.rule_cases import Machine, after, found

WORKER = ("python", "/x/torch/_inductor/compile_worker/__main__.py", "--pickler=x", "--workers=8")


def busy_until(end_s: float) -> dict[str, Any]:
    return {"busy_percent": lambda t: 30.0 if t < end_s else 0.0}


def helped(command: tuple[str, ...], **helper: Any) -> Callable[[float], Frame]:
    """A run that worked for 70 s, and eight processes that it started."""
    machine = Machine(gpu=busy_until(70))
    plain: dict[str, Any] = {"parent_pid": 100, "role": Role.OTHER, "command": command, "gpus": (), "cpu_percent": 60.0}

    def frame(t: float) -> Frame:
        one = machine.frame(t)
        helpers: tuple[Process, ...] = tuple(
            replace(one.processes[0], pid=300 + n, **(plain | helper)) for n in range(8)
        )
        return replace(one, processes=(*one.processes, *helpers))

    return frame


@pytest.mark.parametrize(
    ("frame", "fires"),
    [
        (helped(WORKER), False),
        (helped(WORKER, cpu_percent=21.0), False),
        (helped(WORKER, cpu_percent=19.0), True),  # it waits for the next graph, and something else works
        (helped(("python", "tokenise.py")), True),
        (helped(("python", "tokenise.py", "-o", "x", "/data/compile_worker")), True),
        (helped(("ptxas",), name="ptxas"), False),
    ],
)
def test_gpu_idle_cpu_busy_is_not_said_while_torch_compiles(frame: Callable[[float], Frame], fires: bool) -> None:
    assert (found(after(frame, 200), "gpu-idle-cpu-busy") is not None) == fires


def idle(end_s: float, **trainer: Any) -> Machine:
    """A run with work up to then, and none any more."""
    return Machine(gpu=busy_until(end_s), trainer=trainer)


def begun(context_s: float, end_s: float) -> Machine:
    """The same, seen when its context was so old."""
    return idle(end_s, age_s=lambda t: context_s + t)


def works(percent: float, every_s: int = 1, **trainer: Any) -> Machine:
    """A run with some work in each second, or in one of so many."""
    power = {"power_watts": 110.0, "sm_active_percent": 1.0, "tensor_percent": 0.0}
    busy = percent if every_s == 1 else lambda t: percent if t % every_s == 0 else 0.0
    return Machine(gpu={"busy_percent": busy} | power, trainer=trainer)


LOADS = "GPU idle, loading weights or data"
BEGINS = "GPU not used yet, possibly compiling or preparing data"
HARDLY, ELSEWHERE = "GPU mostly idle, process busy on CPU", "GPU idle, process busy on CPU"


@pytest.mark.parametrize(
    ("machine", "told"),
    [
        (idle(10, read_chars_per_s=1e9), ("info", LOADS)),
        (idle(100, read_chars_per_s=51e6, cpu_percent=149.0), ("info", LOADS)),
        (idle(100, read_chars_per_s=40e6), ("warn", ELSEWHERE)),
        (idle(100, read_chars_per_s=1e9, cpu_percent=400.0), ("warn", ELSEWHERE)),  # it works on what it reads
        (begun(0, 20), ("info", BEGINS)),
        (begun(0, 70), ("warn", ELSEWHERE)),  # it has trained for a minute
        (begun(990, 20), ("info", BEGINS)),
        (begun(1100, 20), ("warn", ELSEWHERE)),  # after twenty minutes nothing begins any more
        (works(4.0, cpu_percent=200.0), ("info", HARDLY)),
        (works(0.4, cpu_percent=200.0), ("info", HARDLY)),  # a fast GPU is busy for milliseconds
        (works(0.05, cpu_percent=200.0), ("warn", ELSEWHERE)),  # nor is a context without work nothing at all
        (works(4.0, every_s=3, cpu_percent=200.0), ("info", HARDLY)),
        (works(4.0, every_s=20, cpu_percent=200.0), ("warn", ELSEWHERE)),  # seconds of something else between two steps
        (works(4.0, cpu_percent=200.0, read_chars_per_s=1e9), ("info", HARDLY)),
        (works(4.0), None),  # its main thread alone works all the time: it waits for that one's data
        (works(4.0, every_s=3), None),
        (works(4.0, every_s=20), ("warn", ELSEWHERE)),
        (works(3.0, command=("python", "actor.py")), None),
        (idle(100, command=("python", "evaluate.py")), None),
    ],
)
def test_gpu_idle_cpu_busy_tells_what_it_may_do_instead(machine: Machine, told: tuple[str, str] | None) -> None:
    finding = found(machine.verdict(200), "gpu-idle-cpu-busy")
    assert (finding and (finding.severity, finding.headline)) == told


@pytest.mark.parametrize(
    ("machine", "evidence", "step"),
    [
        (idle(10, read_chars_per_s=1e9), "reads 1000 MB/s", "Map weights"),
        (works(4.0, cpu_percent=200.0), "GPU active in 100 % of the seconds", "several on this GPU"),
        (begun(0, 20), "1.0 CPU cores in use", "they build for minutes"),
        (begun(0, 70), "1.0 CPU cores in use", "torch.compile, XLA or TensorRT builds"),
    ],
)
def test_gpu_idle_cpu_busy_says_why_and_looks_first(machine: Machine, evidence: str, step: str) -> None:
    told = found(machine.verdict(200), "gpu-idle-cpu-busy")
    assert told is not None
    assert any(evidence in item.text for item in told.evidence)
    assert told.steps[0].command == "gputop stack 100"
    assert any(step in one.text for one in told.steps)


def on_a_desktop(t: float) -> Frame:
    """The same beside a program that draws on its GPU, which keeps it busy for a moment of every second."""
    own = (GpuShare(uuid="G", vram_bytes=2**30, busy_percent=0.0),)
    frame = works(0.4, gpus=own).frame(t)
    shares = (GpuShare(uuid="G", kind="graphics"),)
    drawing = replace(
        frame.processes[0], pid=900, role=Role.OTHER, name="Xorg", command=("Xorg",), gpus=shares, job=None
    )
    return replace(frame, processes=(*frame.processes, drawing))


def test_what_somebody_draws_on_its_gpu_is_no_work_of_a_training() -> None:
    told = found(after(on_a_desktop, 200), "gpu-idle-cpu-busy")
    assert told is not None
    assert told.headline == ELSEWHERE


def test_what_it_does_itself_beside_a_desktop_is_work() -> None:
    """Two loaders that work hard, a GPU that is fast and draws a screen, too: its own share says that it works."""
    machine = works(0.9, gpus=(GpuShare(uuid="G", vram_bytes=2**30, busy_percent=1.0),))
    machine.loaders, machine.loader = 2, {"cpu_percent": 100.0}

    def frame(t: float) -> Frame:
        one = machine.frame(t)
        draws = replace(
            one.processes[0], pid=900, role=Role.OTHER, gpus=(GpuShare(uuid="G", kind="graphics"),), job=None
        )
        return replace(one, processes=(*one.processes, draws))

    assert found(after(frame, 200), "starved-cpu-idle") is not None
    assert found(after(frame, 200), "gpu-idle-cpu-busy") is None


@pytest.mark.parametrize(
    "trainer",
    [
        {"command": ("python", "evaluate.py")},
        {"command": ("python", "-m", "ipykernel_launcher")},
        {"world_size": 4, "rank": 1},
        {"write_chars_per_s": 5e6},
    ],
)
def test_who_may_rest_write_or_wait_for_others_is_not_told_to_load_elsewhere(trainer: dict[str, Any]) -> None:
    assert found(works(1.0, **trainer).verdict(200), "loader-in-main") is None


def test_who_has_just_begun_may_still_compile() -> None:
    """A tuner tries kernels in every third look of the first minutes."""
    machine = works(1.5, every_s=3, age_s=lambda t: 20 + t)
    assert found(machine.verdict(90), "loader-in-main") is None


@pytest.mark.parametrize(
    "command",
    [
        ("vllm", "serve", "/models/llama-3-8b-finetuned"),
        ("llama-server", "-m", "llama-finetune.gguf"),
        ("python", "serve.py", "--model", "x_pretrain_v2"),
        ("python", "-m", "vllm.entrypoints.openai.api_server", "--model", "/m/fine-tuned"),
    ],
)
def test_a_server_of_a_model_that_was_trained_is_a_server(command: tuple[str, ...]) -> None:
    said = works(20.0, command=command).verdict(200)
    assert [one for one in said.findings if one.severity != "info"] == []


def test_one_rule_speaks_of_a_main_thread_that_never_rests() -> None:
    """At the limit between two of them neither flickers, nor do both speak."""
    machine = works(9.0)
    machine.gpu["busy_percent"] = lambda t: 9.0 + 0.6 * (-1) ** int(t / 2)
    told = {one.rule for one in machine.verdict(300).findings if one.severity != "info"}
    assert len(told & {"loader-in-main", "overhead-bound"}) <= 1
