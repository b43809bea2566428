"""A rule about a program that trains on the CPU beside GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from gputop import units
from gputop.diagnose.finding import Evidence, Finding, Step
from gputop.diagnose.looking import closed, stack
from gputop.diagnose.rule import Level, rule
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.unjudged import untold, why_unseen
from gputop.diagnose.usage.programs import called_so, computes, notebook, serves, trains
from gputop.diagnose.view import View
from gputop.model import Gpu, Missing, Process
from gputop.words import amount

# what to ask of the framework, and what to do by its answer; any but PyTorch takes the GPUs that it sees by itself
_ASKED = {
    "torch": (
        Step(
            text="ask its PyTorch, in its environment",
            command='python -c "import torch; print(torch.__version__, torch.version.cuda, torch.cuda.is_available())"',
        ),
        Step(text="False, or no CUDA version: a build for CPUs, or a driver too old; install as pytorch.org says"),
        Step(
            text="True: move the model and every batch",
            command='model.to("cuda"); x = x.to("cuda", non_blocking=True)',
        ),
    ),
    "tensorflow": (
        Step(
            text="ask its TensorFlow, in its environment",
            command="python -c \"import tensorflow as tf; print(tf.config.list_physical_devices('GPU'))\"",
        ),
        Step(
            text="an empty list: a build without CUDA, or a driver too old",
            command="pip install 'tensorflow[and-cuda]'",
        ),
    ),
    "jax": (
        Step(text="ask its JAX, in its environment", command='python -c "import jax; print(jax.devices())"'),
        Step(text="CPUs only: a build without CUDA, or a driver too old; install as docs.jax.dev says"),
    ),
}


@rule(
    "no-cuda-context",
    "Does a program train without its GPU?",
    level=Level.USE,
    state="no GPU",
    short="CPU!",
    number="R01",
    rows=(2,),
    needs=("gpus", "cpu_percent"),
    partly=("busy_percent",),
)
def no_cuda_context(view: View) -> Iterator[Finding]:
    """It trains, its CPUs are busy, and no GPU's driver knows it or any process below it."""
    gpus = [gpu for gpu in view.frame.gpus if gpu.condition == "ok"]
    for trainer in view.trainers(cold=True) if gpus else ():
        if any(process.gpus for process in trainer.tree) or trainer.context_s is not None or trainer.compiling:
            continue
        old = (trainer.process.age_s or 0.0) >= view.limit("early_s")
        if not old or not trains(trainer) or notebook(trainer) or serves(trainer):
            continue
        if not view.knows(trainer, "cores"):
            continue
        loads = view.above(trainer.read_chars, "loads_bytes_per_s") and view.below(trainer.cores, "loads_cores")
        if loads or not computes(view, trainer):
            continue
        if unsure := _unsure(view, gpus):
            view.abstain(trainer, unsure)
        else:
            yield _on_the_cpu(view, trainer, gpus)


def _unsure(view: View, gpus: list[Gpu]) -> Missing | None:
    """Why the driver might not name this process if it had a context: None where it would."""
    for unseen in ("foreign", "hidden"):
        if any(process.unseen == unseen for process in view.frame.processes):
            return Missing(metric="gpus", reason="denied", unlock=why_unseen(view, unseen))
    for gpu in gpus:
        if gpu.unlisted:
            return untold(view, gpu)
        named = [share for process in view.frame.processes for share in process.gpus if share.uuid == gpu.uuid]
        held = sum(share.vram_bytes or 0 for share in named)
        nameless = gpu.vram_used_bytes is not None and gpu.vram_used_bytes - held >= view.limit("nameless_bytes")
        percent = view.mean(gpu, "busy_percent")
        at_work = percent is not None and percent >= view.limit("nameless_percent")
        if (nameless and all(share.vram_bytes is not None for share in named)) or (at_work and not named):
            return untold(view, gpu)
        if percent is None and gpu.vram_used_bytes is None:
            return Missing(metric="busy_percent", reason="unsupported")  # there may be one that nobody sees
    return None


def _prepares(view: View, trainer: Trainer) -> bool:
    """Whether it may still prepare its data.

    Only loaders say that it trains, others than these work for it, it has none yet and is young, or files pass through
    it and it is not old. Young is less for a pool of threads that computes, and reads and writes nothing.
    """
    age_s, own = trainer.process.age_s or 0.0, trainer.own
    loaders = trainer.loaders * (trainer.loader_cpu or 0.0)
    helped = own is not None and (trainer.cores or 0.0) - own - loaders >= own
    if helped or not called_so(trainer):
        return True
    sure = trainer.loaders > 0 or _computes(view, trainer)
    if age_s < view.limit("age_s" if sure else "sure_s"):
        return True
    return age_s < view.limit("late_s") and _moves(view, trainer, "files_s", "files_bytes_per_s")


def _computes(view: View, trainer: Trainer) -> bool:
    """Whether threads of the trainer itself keep its CPUs busy, with nothing that goes through files."""
    full = trainer.allowed is not None and (trainer.own or 0.0) >= view.limit("full") * trainer.allowed
    pool = view.above(trainer.compute_threads, "pool")
    known = trainer.read_chars is not None and trainer.write_chars is not None
    return full and pool and known and not _moves(view, trainer, "still_s", "still_bytes_per_s")


def _moves(view: View, trainer: Trainer, seconds: str, limit: str) -> bool:
    """Whether so much goes through files that it may be a pass over its data."""
    moved = (view.mean(trainer, name, view.limit(seconds)) for name in ("read_chars_per_s", "write_chars_per_s"))
    return any(view.against.above(one, limit) for one in moved)


def _without_context(gpus: int, busiest: float | None) -> str:
    said = "no CUDA context on the GPU" if gpus < 2 else f"no CUDA context on any of {gpus} GPUs"
    if busiest is None:
        return said
    return f"{said}, {'which' if gpus < 2 else 'of which the busiest'} is {busiest:.0f} % busy"


def _on_the_cpu(view: View, trainer: Trainer, gpus: list[Gpu]) -> Finding:
    hidden, prepares = trainer.process.visible_gpus in ("", "-1"), _prepares(view, trainer)
    left_s = view.limit("age_s") - (trainer.process.age_s or 0.0)  # until more can be said
    cores, allowed = trainer.cores or 0.0, trainer.allowed or view.frame.host.cpus_total
    of = f"{cores:.1f} of {amount(allowed, 'CPU core')}" if allowed else f"{cores:.1f} CPU cores"
    means = [mean for gpu in gpus if (mean := view.mean(gpu, "busy_percent")) is not None]
    busiest = max(means) if len(means) == len(gpus) and means else None
    age_s = trainer.process.age_s
    evidence = [
        Evidence(
            text=f"{of} in use, {units.ago(age_s)} after its start",
            value=cores,
            unit="cores",
            limit=view.limit("cores"),
        ),
        Evidence(text=_without_context(len(gpus), busiest)),
    ]
    if hidden:
        evidence.append(Evidence(text=f"CUDA_VISIBLE_DEVICES={trainer.process.visible_gpus} hides all GPUs from it"))
    if left_s > 0:
        evidence.append(Evidence(text=f"judging for {max(1.0, left_s):.0f} s more: it may still be starting"))
    steps = next((_ASKED[name] for name in _ASKED if name in trainer.process.libraries), _ASKED["torch"])
    look = (stack(view, trainer.process, "see whether it still prepares its data"),) if prepares else ()
    unset = Step(text="let it see the GPUs, unless this was meant", command="unset CUDA_VISIBLE_DEVICES")
    return view.found(
        trainer,
        "info" if hidden or prepares else "warn",
        _headline(starts=left_s > 0, prepares=prepares and not hidden),
        evidence=tuple(evidence),
        steps=(unset, *steps) if hidden else (*look, *steps, _named(view, trainer.process)),
        confidence=0.6 if prepares else 0.8,
        lost_share=None,
        onset_s=age_s,
    )


def _headline(*, starts: bool, prepares: bool) -> str:
    if starts:
        return "no CUDA context so far: starting, or running on CPU"
    return "no CUDA context: preparing data, or running on CPU" if prepares else "running on CPU: no CUDA context"


def _named(view: View, process: Process) -> Step:
    """Its environment is for its user: a shell that redirects it reads as whoever typed that, sudo or not."""
    file, root = f"/proc/{process.pid}/environ", closed(view, process)
    read = f"sudo cat {file} | tr '\\0' '\\n'" if root else f"tr '\\0' '\\n' <{file}"
    text, command = "does CUDA_VISIBLE_DEVICES name GPUs?", f"{read} | grep CUDA_VISIBLE"
    return Step(text=text, command=command, needs_root=root)
