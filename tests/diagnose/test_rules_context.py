"""Programs that train without a GPU: the rule fires, just does not, and abstains."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gputop.model import Frame, GpuShare, Missing, Process, Role
from tests.rule_cases import Machine, after, found, judged, refused, silent

QUIET: dict[str, Any] = {"busy_percent": 0.0, "power_watts": 70.0, "sm_active_percent": 0.0, "tensor_percent": 0.0}


def on_cpu(gpu: dict[str, Any] | None = None, loaders: int = 0, **trainer: Any) -> Machine:
    """A training run without a context."""
    plain = {"gpus": (), "cpu_percent": 790.0, "age_s": lambda t: 290 + t, "libraries": ("torch",)}
    return Machine(gpu=QUIET | {"vram_used_bytes": 5e8} | (gpu or {}), trainer=plain | trainer, loaders=loaders)


POOL = {"cpu_percent": 1590.0, "busy_threads": 16}


@pytest.mark.parametrize(
    ("machine", "severity"),
    [
        (on_cpu(), "warn"),
        (on_cpu(cpu_percent=101.0), "warn"),
        (on_cpu(cpu_percent=99.0), None),
        (on_cpu(cpu_percent=48.0, allowed_cpus=0.5), "warn"),  # all that it may use
        (on_cpu(cpu_percent=40.0, allowed_cpus=0.5), None),
        (on_cpu(age_s=44.0), None),
        (on_cpu(age_s=119.0), "info"),  # it may still start
        (on_cpu(age_s=119.0, loaders=1), "info"),
        (on_cpu(age_s=299.0), "info"),  # it may still prepare its data
        (on_cpu(age_s=121.0, **POOL), "warn"),  # a pool that computes
        (on_cpu(age_s=119.0, **POOL), "info"),
        (on_cpu(age_s=121.0, **POOL | {"cpu_percent": 1200.0}), "info"),  # of 16 cores
        (on_cpu(age_s=121.0, **POOL | {"busy_threads": 1}), "info"),
        (on_cpu(age_s=121.0, **POOL | {"read_chars_per_s": 2e6}), "info"),  # it may tokenise
        (on_cpu(age_s=121.0, **POOL | refused("read_chars_per_s", "write_chars_per_s")), "info"),
        (on_cpu(age_s=121.0, loaders=1), "warn"),
        (on_cpu(command=("python", "main.py")), None),  # nothing says that it trains
        (on_cpu(command=("python", "main.py"), loaders=1), "info"),  # who only reads its data has loaders, too
        (on_cpu(command=("python", "main.py"), loaders=1, age_s=lambda t: 5000 + t), "info"),
        (on_cpu(command=("python", "main.py"), world_size=2), "warn"),
        (on_cpu(write_chars_per_s=11e6), "info"),  # it may tokenise
        (on_cpu(read_chars_per_s=11e6, loaders=1), "info"),
        (on_cpu(read_chars_per_s=9e6, write_chars_per_s=9e6), "warn"),
        (on_cpu(write_chars_per_s=lambda t: 60e6 if t % 60 < 20 else 0.0), "info"),  # every now and then
        (on_cpu(write_chars_per_s=20e6, age_s=lambda t: 1100 + t), "warn"),
        (on_cpu(command=("python", "train.py", "--cpu", "--num-workers", "1"), loaders=1, age_s=170.0), "warn"),
        (on_cpu(command=("python", "train.py", "--data", "/data/shards"), loaders=1), "warn"),
        (on_cpu(command=("python", "train_cached.py"), loaders=1), "warn"),
        (on_cpu(command=("python", "train_embeddings.py")), "warn"),
        (on_cpu(command=("python", "compute_norm_stats.py"), loaders=8), None),
        (on_cpu(command=("python", "-m", "tools.compute_train_stats"), loaders=8), None),
        (on_cpu(command=("python", "-u", "filter_dataset.py"), loaders=8), None),
        (on_cpu(command=("python", "bench.py"), loaders=8), None),
        (on_cpu(command=("python", "state_space.py"), loaders=8), "info"),
        (on_cpu(command=("python", "-m", "train_sd3")), "warn"),
        (on_cpu(command=("python", "tools/prepare_train_data.py")), None),
        (on_cpu(command=("python", "train_tokenizer.py")), None),
        (on_cpu(command=("python", "-m", "ipykernel_launcher", "train.py")), None),
        (on_cpu(visible_gpus=""), "info"),  # it was told so
        (on_cpu(read_chars_per_s=9e8, cpu_percent=140.0), None),  # it loads weights
    ],
)
def test_no_cuda_context(machine: Machine, severity: str | None) -> None:
    finding = found(machine.verdict(), "no-cuda-context")
    assert (finding and finding.severity) == severity


def test_a_pool_that_prepares_its_data_is_no_training() -> None:
    machine = on_cpu(cpu_percent=100.0)

    def frame(t: float) -> Frame:
        one = machine.frame(t)
        pool = (replace(one.processes[0], pid=200 + n, parent_pid=100, role=Role.OTHER) for n in range(8))
        return replace(one, processes=(*one.processes, *pool))

    told = found(after(frame, 200), "no-cuda-context")
    assert told is not None
    assert told.severity == "info"
    assert told.headline == "no CUDA context, preparing data or running on CPU"
    assert told.steps[0].text == "Check whether it still prepares its data"


def shown(machine: Machine, seconds: int) -> list[tuple[int, str, str, str]]:
    """When it is said of a program that starts at 0, how bad that is, in what words and with what last evidence."""
    seen = [
        (round(frame.mono_s - 1000), said) for frame, said in judged(machine.frame(float(t)) for t in range(seconds))
    ]
    told = [(t, one) for t, said in seen if (one := found(said, "no-cuda-context"))]
    return [(t, one.severity, one.headline, one.evidence[-1].text) for t, one in told]


def test_it_is_said_early_and_named_within_two_minutes() -> None:
    said = shown(on_cpu(**POOL, age_s=lambda t: t), 200)
    assert 45 <= said[0][0] <= 75
    t, severity, headline, evidence = said[0]
    assert (severity, headline) == ("info", "no CUDA context yet, starting or running on CPU")
    assert evidence == f"judging for {120 - t} s more: it may still be starting"
    named = next(t for t, severity, *_ in said if severity == "warn")
    assert 120 <= named <= 155
    assert said[-1][1:3] == ("warn", "running on CPU, no CUDA context")


def test_it_is_over_at_once_when_its_context_is_there() -> None:
    share = GpuShare(uuid="G", busy_percent=0.0, vram_bytes=5e8)
    machine = on_cpu(**POOL, age_s=lambda t: t)
    machine.trainer["gpus"] = lambda t: (share,) if t >= 100 else ()
    assert 100 <= shown(machine, 200)[-1][0] <= 108


def test_no_cuda_context_says_how_to_move() -> None:
    told = found(on_cpu().verdict(200), "no-cuda-context")
    assert told is not None
    assert told.evidence[1].text == "no CUDA context on the GPU (0 % busy)", "there is one"
    assert told.primary
    assert told.evidence[0].text == "7.9 of 16 CPU cores in use, 8 min 8 s after its start"
    assert told.steps[1].command == 'model.to("cuda"); x = x.to("cuda", non_blocking=True)'


@pytest.mark.parametrize(
    ("libraries", "asks"), [(("tensorflow",), "import tensorflow"), (("jax",), "import jax"), ((), "import torch")]
)
def test_no_cuda_context_asks_the_framework_that_it_runs(libraries: tuple[str, ...], asks: str) -> None:
    told = found(on_cpu(libraries=libraries).verdict(), "no-cuda-context")
    assert told is not None
    assert asks in (told.steps[0].command or "")
    assert any("model.to" in (step.command or "") for step in told.steps) == (asks == "import torch")


def test_no_cuda_context_is_no_news_without_gpus() -> None:
    machine = on_cpu()
    assert found(after(lambda t: replace(machine.frame(t), gpus=())), "no-cuda-context") is None


@pytest.mark.parametrize("gpu", [{"vram_used_bytes": 20e9}, {"busy_percent": 60.0}])
def test_no_cuda_context_abstains_where_the_driver_names_nobody(gpu: dict[str, Any]) -> None:
    machine = on_cpu(gpu)
    said = machine.verdict()
    one = silent(said, "no-cuda-context")
    assert one is not None
    assert one.unlock == "the driver lists no process on it"
    assert found(said, "no-cuda-context") is None
    machine.host["own_pids"] = True  # in a container with pids of its own they are those of the host
    boxed = silent(machine.verdict(), "no-cuda-context")
    assert boxed is not None
    assert "--pid=host" in (boxed.unlock or "")


def test_no_cuda_context_does_not_say_of_a_gpu_what_it_does_not_tell() -> None:
    mute = {"busy_percent": None, "sm_active_percent": None}
    told = found(on_cpu(mute).verdict(), "no-cuda-context")
    assert told is not None
    assert told.evidence[1].text == "no CUDA context on the GPU"
    dumb = on_cpu(mute | {"vram_used_bytes": None}).verdict()
    assert found(dumb, "no-cuda-context") is None
    assert silent(dumb, "no-cuda-context") is not None


def test_no_cuda_context_abstains_where_the_driver_lists_nobody() -> None:
    said = on_cpu({"missing": (Missing(metric="processes", reason="unsupported"),)}).verdict()
    one = silent(said, "no-cuda-context")
    assert one is not None
    assert [(missing.metric, missing.reason) for missing in one.missing] == [("gpus", "unsupported")]
    assert found(said, "no-cuda-context") is None


def test_no_cuda_context_abstains_beside_pids_of_the_host() -> None:
    machine = on_cpu()
    foreign = Process(pid=7, started_ticks=0, verified=False, unseen="foreign", gpus=(GpuShare(uuid="G"),))

    def frame(t: float) -> Frame:
        one = machine.frame(t)
        return replace(one, processes=(*one.processes, foreign))

    assert silent(after(frame), "no-cuda-context") is not None
