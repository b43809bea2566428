"""GPUs that are not used: each rule fires, just does not, and abstains."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gputop.model import Frame, Gpu, GpuShare, Job, Missing
from tests.diagnose.test_rules_works_on import holds
from tests.rule_cases import UNTOLD, Machine, after, found, hours, judged, silent

QUIET: dict[str, Any] = {"busy_percent": 0.0, "power_watts": 70.0, "sm_active_percent": 0.0, "tensor_percent": 0.0}


def elsewhere(gpu: dict[str, Any] | None = None, loaders: int = 0, **trainer: Any) -> Machine:
    """A run that trained for 100 s and then does something else."""
    before, now = 97.0, (gpu or {}).get("busy_percent", 0.0)
    return Machine(gpu={"busy_percent": lambda t: before if t < 100 else now}, trainer=trainer, loaders=loaders)


@pytest.mark.parametrize(
    ("machine", "fires"),
    [
        (elsewhere(), True),
        (elsewhere({"busy_percent": 4.9}, cpu_percent=200.0), True),
        (elsewhere({"busy_percent": 5.5}, cpu_percent=200.0), False),
        (elsewhere({"busy_percent": 4.9}), False),  # it waits for its main thread: another rule's subject
        (elsewhere(cpu_percent=91.0), True),
        (elsewhere(cpu_percent=89.0), False),
        (elsewhere(write_chars_per_s=6e7), False),  # it writes a checkpoint
        (elsewhere(command=("python", "-m", "vllm.entrypoints.api_server")), False),
        (elsewhere(command=("python", "-m", "ipykernel_launcher")), False),
    ],
)
def test_gpu_idle_cpu_busy(machine: Machine, fires: bool) -> None:
    assert (found(machine.verdict(240), "gpu-idle-cpu-busy") is not None) == fires


def test_gpu_idle_cpu_busy_waits_out_a_new_set_of_loaders() -> None:
    machine = elsewhere(loaders=2)

    def frame(t: float) -> Frame:
        one = machine.frame(t)
        trainer, *loaders = one.processes
        moved = (replace(loader, pid=loader.pid + 10 * int(t // 40)) for loader in loaders)
        return replace(one, processes=(trainer, *moved))

    assert found(after(frame, 240), "gpu-idle-cpu-busy") is None
    assert found(machine.verdict(240), "gpu-idle-cpu-busy") is not None


@pytest.mark.parametrize(("busy", "loader", "fires"), [(4.0, 95.0, False), (4.0, 5.0, True), (0.0, 95.0, True)])
def test_gpu_idle_cpu_busy_is_not_said_of_who_hardly_gets_any_input(busy: float, loader: float, fires: bool) -> None:
    machine = elsewhere({"busy_percent": busy}, loaders=2)
    machine.loader = {"cpu_percent": loader}
    assert (found(machine.verdict(240), "gpu-idle-cpu-busy") is not None) == fires


def test_gpu_idle_cpu_busy_says_where_to_look() -> None:
    told = found(elsewhere().verdict(240), "gpu-idle-cpu-busy")
    assert told is not None
    assert [item.text for item in told.evidence] == [
        "GPU busy 0 % over the last 60 s",
        "1.0 CPU cores in use, main thread 100 % of a core",
    ]
    assert told.steps[0].command == "gputop stack 100"


MUTE = (Missing(metric="busy_percent", reason="unsupported"),)


def test_gpu_idle_cpu_busy_abstains_where_the_gpu_no_longer_tells() -> None:
    machine = elsewhere()
    machine.gpu = {"busy_percent": lambda t: 97.0 if t < 80 else None, "sm_active_percent": None, "missing": MUTE}
    machine.trainer["gpus"] = UNTOLD
    assert silent(machine.verdict(110), "gpu-idle-cpu-busy") is not None


def pair(busy: float = 0.0, **trainer: Any) -> Callable[[float], Frame]:
    """A job on two GPUs, of which the second does this little."""
    shares = tuple(GpuShare(uuid=uuid, vram_bytes=30 * 2**30) for uuid in ("G", "H"))
    machine = Machine(trainer={"gpus": shares} | trainer)

    def frame(t: float) -> Frame:
        one = machine.frame(20 * t)  # an hour in few frames
        first = one.gpus[0]
        second: Gpu = replace(first, uuid="H", index="1", busy_percent=busy, power_watts=70.0)
        return replace(one, gpus=(first, second), jobs=(Job(key="j", name="j", ranks=(one.processes[0].identity,)),))

    return frame


@pytest.mark.parametrize(
    ("frame", "minutes", "severity"),
    [
        (pair(), 18, "info"),
        (pair(), 1, None),
        (pair(), 4, "info"),
        (pair(), 28, "info"),
        (pair(), 45, "warn"),
        (pair(busy=0.9), 18, "info"),
        (pair(busy=1.1), 45, None),
        (pair(command=("python", "evaluate.py")), 45, None),
        (pair(gpus=(GpuShare(uuid="G", vram_bytes=2**35),)), 45, None),  # nothing says that it has the other one
        (pair(gpus=(GpuShare(uuid="G", vram_bytes=2**35),), visible_gpus="0,1"), 45, "warn"),
        (pair(gpus=(GpuShare(uuid="G", vram_bytes=2**35),), visible_gpus="0"), 45, None),
        (pair(gpus=(GpuShare(uuid="G", vram_bytes=2**35), GpuShare(uuid="H", vram_bytes=2**28))), 45, None),
    ],
)
def test_gpu_unused_in_job(frame: Callable[[float], Frame], minutes: int, severity: str | None) -> None:
    finding = found(after(frame, minutes * 3, 1), "gpu-unused-in-job")
    assert (finding and finding.severity) == severity


def test_what_is_told_late_is_told_with_when_it_began() -> None:
    unused = found(hours(holds(97.0, 0.0, 0.0, 0.0), 25), "gpu-unused-in-job")
    assert unused is not None
    assert unused.since_s == pytest.approx(25 * 60, abs=60)
    begins = Machine(gpu=QUIET, trainer={"age_s": lambda t: 10.0 + t, "read_chars_per_s": 9e7}, loaders=2)
    starts = found(begins.verdict(420), "slow-start")
    assert starts is not None
    assert starts.since_s == pytest.approx(430, abs=5)


def test_gpu_unused_in_job_says_which() -> None:
    told = found(after(pair(command=("python", "-u", "train.py", "--hub_token", "x")), 54, 1), "gpu-unused-in-job")
    assert told is not None
    assert told.headline == "1 of 2 GPUs unused"
    assert told.evidence[1].text == "GPU 0 busy 97 %"
    assert [step.command for step in told.steps] == [
        "torchrun --nproc_per_node=2 train.py --hub_token '***'",
        "export CUDA_VISIBLE_DEVICES=0",
    ]


def test_gpu_unused_in_job_leaves_it_those_that_work_a_little() -> None:
    """Three GPUs: one at work, one that does little, one that does nothing."""

    def frame(t: float) -> Frame:
        now = pair()(t)
        little = replace(now.gpus[0], uuid="L", index="2", busy_percent=12.0)
        (trainer,) = now.processes
        shares = (*trainer.gpus, GpuShare(uuid="L", vram_bytes=2**35))
        return replace(now, gpus=(*now.gpus, little), processes=(replace(trainer, gpus=shares),))

    told = found(after(frame, 54, 1), "gpu-unused-in-job")
    assert told is not None
    assert told.headline == "1 of 3 GPUs unused"
    assert told.lost_share == pytest.approx(1 / 3)
    assert told.evidence[1].text == "GPUs 0, 2 busy 12-97 %"
    assert told.steps[0].command == "torchrun --nproc_per_node=3 train.py"
    assert told.steps[1].command == "export CUDA_VISIBLE_DEVICES=0,2"


@pytest.mark.parametrize(("worked", "fires"), [(True, False), (False, True)])
def test_gpu_unused_in_job_is_no_gpu_that_worked_between_two_looks(worked: bool, fires: bool) -> None:
    rest, work = pair(), pair(busy=30.0)

    def frame(t: float) -> Frame:
        return (work if worked and t % 60 == 57 else rest)(t / 20)

    *_, (_, said) = judged((frame(float(t)) for t in range(1000)), every_s=5.0)
    assert (found(said, "gpu-unused-in-job") is not None) == fires


def test_gpu_unused_in_job_goes_on_where_one_look_was_late() -> None:
    rest = pair()

    def frame(t: float) -> Frame:
        one = rest(t / 20)
        late = tuple(replace(gpu, age_s=1.5) for gpu in one.gpus)
        return replace(one, gpus=late) if t % 300 == 100 else one

    *_, (_, said) = judged((frame(float(t)) for t in range(1000)), every_s=5.0)
    assert found(said, "gpu-unused-in-job") is not None


def test_gpu_unused_in_job_abstains_on_instances() -> None:
    job = pair(visible_gpus="0,1")

    def frame(t: float) -> Frame:
        one = job(t)
        mute = {"busy_percent": None, "sm_active_percent": None, "missing": MUTE}
        return replace(one, gpus=tuple(replace(gpu, **mute) for gpu in one.gpus))

    assert silent(after(frame, 5), "gpu-unused-in-job") is not None


def begins(**trainer: Any) -> Machine:
    """A run that is started as we look and does not begin."""
    plain = {"age_s": lambda t: 5 * t, "cpu_percent": 30.0, "thread_names": (("python", 20), ("cuda-EvtHandlr", 1))}
    return Machine(gpu=QUIET, trainer=plain | trainer)


@pytest.mark.parametrize(
    ("machine", "severity", "words"),
    [
        (begins(), "info", "activity unknown"),
        (begins(read_chars_per_s=51e6), "info", "loading weights or data"),
        (begins(read_chars_per_s=44e6), "info", "activity unknown"),
        (begins(blocked_percent=31.0), "info", "waiting for files"),
        (begins(world_size=8, cpu_percent=2.0), "info", "possibly waiting for other ranks"),
        (
            begins(world_size=8, cpu_percent=2.0, thread_names=(("pt_tcpstore_uv", 1),)),
            "info",
            "waiting for other ranks",
        ),
        (begins(age_s=lambda t: 15 * t), "warn", "activity unknown"),
        (begins(age_s=299.0), None, ""),
        (begins(command=("python", "main.py")), None, ""),
        (begins(thread_names=(("python", 20), ("pt_autograd_0", 1))), None, ""),  # it has trained before we came
        (begins(age_s=lambda t: 5000 + t, thread_names=()), None, ""),  # nobody saw its start
    ],
)
def test_slow_start(machine: Machine, severity: str | None, words: str) -> None:
    finding = found(machine.verdict(120), "slow-start")
    assert (finding and finding.severity) == severity
    assert finding is None or finding.headline == f"not training yet, {words}"


@pytest.mark.parametrize("cpu", [99.0, None])  # of one that has just begun nobody knows
def test_slow_start_names_the_compiler(cpu: float | None) -> None:
    machine = begins()

    def frame(t: float) -> Frame:
        one = machine.frame(t)
        nvcc = replace(one.processes[0], pid=300, parent_pid=100, name="ptxas", cpu_percent=cpu, gpus=())
        return replace(one, processes=(one.processes[0], replace(nvcc, role=type(nvcc.role).OTHER)))

    told = found(after(frame, 120), "slow-start")
    assert told is not None
    assert told.headline.endswith("compiling kernels")


def test_slow_start_is_over_with_the_first_work() -> None:
    machine = begins()
    machine.gpu = QUIET | {"busy_percent": lambda t: 97.0 if t == 40 else 0.0}
    assert found(machine.verdict(120), "slow-start") is None


def test_slow_start_abstains_on_a_gpu_that_does_not_tell() -> None:
    machine = begins()
    machine.gpu = QUIET | {"busy_percent": None, "sm_active_percent": None, "missing": MUTE}
    machine.trainer["gpus"] = UNTOLD
    said = machine.verdict(120)
    assert silent(said, "slow-start") is not None
    assert found(said, "slow-start") is None
