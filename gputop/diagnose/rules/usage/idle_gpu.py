"""Rules on programs that do not compute on their GPU: they run on the CPU, or start slowly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gputop import units
from gputop.diagnose.cpu_budget import gpus_idle
from gputop.diagnose.finding import Evidence, Finding, Severity, Step
from gputop.diagnose.job_states import unnamed, why_unseen
from gputop.diagnose.program_kind import clearly_trains, is_auxiliary, is_notebook, serves, trains, uses_cpu
from gputop.diagnose.rule import Level, rule
from gputop.diagnose.starvation import is_starting, mostly_loads
from gputop.diagnose.steps import only_root_may_inspect, profile, stack
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.view import View
from gputop.labels import amount
from gputop.model import Gpu, Missing, Process

# how to query the framework, and what to do about the answer; all but PyTorch use every visible GPU by default
_ASKED = {
    "torch": (
        Step(
            text="Check PyTorch in its environment",
            command='python -c "import torch; print(torch.__version__, torch.version.cuda, torch.cuda.is_available())"',
        ),
        Step(
            text="If it prints None or False, install a CUDA build of PyTorch, or make a GPU visible to the job "
            "(CUDA_VISIBLE_DEVICES, Slurm --gres); if True, move the model and every batch to the GPU",
            command='model.to("cuda"); x = x.to("cuda", non_blocking=True)',
        ),
    ),
    "tensorflow": (
        Step(
            text="Check TensorFlow in its environment",
            command="python -c \"import tensorflow as tf; print(tf.config.list_physical_devices('GPU'))\"",
        ),
        Step(
            text="If the list is empty, install a CUDA build or a newer driver",
            command="pip install 'tensorflow[and-cuda]'",
        ),
    ),
    "jax": (
        Step(text="Check JAX in its environment", command='python -c "import jax; print(jax.devices())"'),
        Step(text="If it lists CPUs only, install a CUDA build or a newer driver, as docs.jax.dev says"),
    ),
}


@rule(
    "no-cuda-context",
    "Does a program train without its GPU?",
    level=Level.USE,
    state="no GPU",
    short="CPU!",
    needs=("gpus", "cpu_percent"),
    partly=("busy_percent",),
)
def no_cuda_context(view: View) -> Iterator[Finding]:
    """It trains with busy CPUs, and neither it nor a child of it has a CUDA context."""
    gpus = [gpu for gpu in view.frame.gpus if gpu.condition == "ok"]
    for trainer in view.trainers(cold=True) if gpus else ():
        if any(process.gpus for process in trainer.tree) or trainer.context_s is not None or trainer.compiling:
            continue
        old = (trainer.process.age_s or 0.0) >= view.limit("early_s")
        if not old or not trains(trainer) or is_notebook(trainer) or serves(trainer):
            continue
        if not view.knows(trainer, "cores"):
            continue
        loads = view.above(trainer.read_chars, "loads_bytes_per_s") and view.below(trainer.cores, "loads_cores")
        if loads or not uses_cpu(view, trainer):
            continue
        if unsure := _why_unsure(view, gpus):
            view.abstain(trainer, unsure)
        else:
            yield _cpu_finding(view, trainer, gpus)


def _why_unsure(view: View, gpus: list[Gpu]) -> Missing | None:
    """Why the driver might not name this process despite a context: None if it would."""
    for unseen in ("foreign", "hidden"):
        if any(process.unseen == unseen for process in view.frame.processes):
            return Missing(metric="gpus", reason="denied", unlock=why_unseen(view, unseen))
    for gpu in gpus:
        if gpu.unlisted:
            return unnamed(view, gpu)
        named = [share for process in view.frame.processes for share in process.gpus if share.uuid == gpu.uuid]
        held = sum(share.vram_bytes or 0 for share in named)
        nameless = gpu.vram_used_bytes is not None and gpu.vram_used_bytes - held >= view.limit("nameless_bytes")
        percent = view.mean(gpu, "busy_percent")
        at_work = percent is not None and percent >= view.limit("nameless_percent")
        if (nameless and all(share.vram_bytes is not None for share in named)) or (at_work and not named):
            return unnamed(view, gpu)
        if percent is None and gpu.vram_used_bytes is None:
            return Missing(metric="busy_percent", reason="unsupported")  # an invisible one is possible
    return None


def _prepares(view: View, trainer: Trainer) -> bool:
    """Whether it may still prepare data.

    It may if nothing but its loaders suggests training, if children other than loaders work for it, while it is young,
    and a while longer if it reads or writes files. It is young for less time with loaders, or with a thread pool that
    computes without I/O.
    """
    age_s, own = trainer.process.age_s or 0.0, trainer.own
    loaders = trainer.loaders * (trainer.loader_cpu or 0.0)
    helped = own is not None and (trainer.cores or 0.0) - own - loaders >= own
    if helped or not clearly_trains(trainer):
        return True
    sure = trainer.loaders > 0 or _computes(view, trainer)
    if age_s < view.limit("age_s" if sure else "sure_s"):
        return True
    return age_s < view.limit("late_s") and _moves_files(view, trainer, "files_s", "files_bytes_per_s")


def _computes(view: View, trainer: Trainer) -> bool:
    """Whether its own threads keep its CPUs busy, without file I/O."""
    full = trainer.allowed is not None and (trainer.own or 0.0) >= view.limit("full") * trainer.allowed
    pool = view.above(trainer.compute_threads, "pool")
    known = trainer.read_chars is not None and trainer.write_chars is not None
    return full and pool and known and not _moves_files(view, trainer, "still_s", "still_bytes_per_s")


def _moves_files(view: View, trainer: Trainer, seconds: str, limit: str) -> bool:
    """Whether file I/O is large enough for a pass over its data."""
    moved = (view.mean(trainer, name, view.limit(seconds)) for name in ("read_chars_per_s", "write_chars_per_s"))
    return any(view.against.above(one, limit) for one in moved)


def _without_context(gpus: int, busiest: float | None) -> str:
    said = "no CUDA context on the GPU" if gpus < 2 else f"no CUDA context on any of {gpus} GPUs"
    if busiest is None:
        return said
    return f"{said} ({'' if gpus < 2 else 'busiest '}{busiest:.0f} % busy)"


def _cpu_finding(view: View, trainer: Trainer, gpus: list[Gpu]) -> Finding:
    hidden, prepares = trainer.process.visible_gpus in ("", "-1"), _prepares(view, trainer)
    left_s = view.limit("age_s") - (trainer.process.age_s or 0.0)  # until more is known
    cores, allowed = trainer.cores or 0.0, trainer.allowed or view.frame.host.cpus_total
    of = f"{cores:.1f} of {amount(allowed, 'CPU core')}" if allowed else f"{cores:.1f} CPU cores"
    means = [mean for gpu in gpus if (mean := view.mean(gpu, "busy_percent")) is not None]
    busiest = max(means) if len(means) == len(gpus) and means else None
    age_s = trainer.process.age_s
    evidence = [
        Evidence(
            text=f"{of} in use, {units.ago_text(age_s)} after its start",
            value=cores,
            unit="cores",
            limit=view.limit("cores"),
            sense="flagged_above",
        ),
        Evidence(text=_without_context(len(gpus), busiest)),
    ]
    if hidden:
        evidence.append(Evidence(text=f"CUDA_VISIBLE_DEVICES={trainer.process.visible_gpus} hides all GPUs from it"))
    if left_s > 0:
        evidence.append(Evidence(text=f"judging for {max(1.0, left_s):.0f} s more: it may still be starting"))
    steps = next((_ASKED[name] for name in _ASKED if name in trainer.process.libraries), _ASKED["torch"])
    look = (stack(view, trainer.process, "Check whether it still prepares its data"),) if prepares else ()
    unset = Step(text="Make the GPUs visible to it, unless hidden on purpose", command="unset CUDA_VISIBLE_DEVICES")
    return view.found(
        trainer,
        "info" if hidden or prepares else "warn",
        _headline(starts=left_s > 0, prepares=prepares and not hidden),
        evidence=tuple(evidence),
        steps=(unset, *steps) if hidden else (*look, *steps, _environment_step(view, trainer.process)),
        confidence=0.6 if prepares else 0.8,
        lost_share=None,
        onset_s=age_s,
    )


def _headline(*, starts: bool, prepares: bool) -> str:
    if starts:
        return "no CUDA context yet, starting or running on CPU"
    return "no CUDA context, preparing data or running on CPU" if prepares else "running on CPU, no CUDA context"


def _environment_step(view: View, process: Process) -> Step:
    """Its environment is readable for its user only: a shell redirection runs as the user even with sudo."""
    file, root = f"/proc/{process.pid}/environ", only_root_may_inspect(view, process)
    read = f"sudo cat {file} | tr '\\0' '\\n'" if root else f"tr '\\0' '\\n' <{file}"
    text, command = "Check whether CUDA_VISIBLE_DEVICES names GPUs", f"{read} | grep CUDA_VISIBLE"
    return Step(text=text, command=command, needs_root=root)


class StartupPhase(NamedTuple):
    """What a program does before its first step, as far as visible."""

    doing: str
    evidence: Evidence
    steps: Sequence[Step]


@rule(
    "slow-start",
    "Does a training run take long to start?",
    level=Level.USE,
    state="starting",
    short="START",
    confirmed_by=("compiles",),
    needs=(),
    partly=("busy_percent",),
)
def slow_start(view: View) -> Iterator[Finding]:
    """A training run that has not used its GPU since its start, and what it does instead."""
    for trainer in view.trainers(cold=True):
        fresh = _seen_from_start(view, trainer)
        age_s = trainer.process.age_s or 0.0
        at_work = trainer.warm and trainer.duty is not None
        if at_work or (view.mean(trainer, "busy_percent", whole=True) or 0.0) > 0:
            view.notes(trainer)["worked"] = True
        if view.notes(trainer).get("worked") or not fresh or age_s < view.limit("info_s"):
            continue
        if not trains(trainer) or is_notebook(trainer) or serves(trainer):
            continue
        without = not any(process.gpus for process in trainer.tree)
        if without and any(gpu.unlisted for gpu in view.gpus()):
            continue  # it may be on one of these
        if without and (trainer.cores is None or uses_cpu(view, trainer)):
            continue  # it trains on the CPU, which another rule reports
        if not without and not view.knows(trainer, "duty"):
            continue
        severity: Severity = "warn" if age_s >= view.limit("warn_s") else "info"
        phase = _phase(view, trainer)
        text, most = f"GPU not used in {units.ago_text(age_s)} since its start", view.limit("info_s")
        waited = Evidence(text=text, value=age_s, unit="s", limit=most, sense="healthy_to")
        yield view.found(
            trainer,
            severity,
            f"not training yet, {phase.doing}",
            evidence=(waited, phase.evidence),
            steps=(*phase.steps, stack(view, trainer.process, "Check what its main thread does")),
            confidence=0.7,
            lost_share=None,
            onset_s=age_s,
        )


def _seen_from_start(view: View, trainer: Trainer) -> bool:
    """Whether its start was seen: first seen young, or without the thread of torch's first backward pass."""
    notes, names = view.notes(trainer), [name for name, _ in trainer.process.thread_names]
    first_s = notes.setdefault("first_s", trainer.process.age_s or 0.0)
    named = any(name.startswith(("pt_nccl", "pt_tcpstore", "pt_data_pin", "cuda")) for name in names)
    backward = any(name.startswith("pt_autograd") for name in names)
    return not backward and (first_s <= view.limit("young_s") or named)


def _phase(view: View, trainer: Trainer) -> StartupPhase:
    process, names = trainer.process, [name for name, _ in trainer.process.thread_names]
    cores = Evidence(text=f"{trainer.cores or 0:.1f} cores in use", value=trainer.cores, unit="cores")
    if trainer.compiling:
        return StartupPhase("compiling kernels", cores, _COMPILES)
    if view.above(trainer.read_chars, "loads_bytes_per_s") and view.below(trainer.cores, "loads_cores"):
        read, limit = trainer.read_chars or 0.0, view.limit("loads_bytes_per_s")
        text = f"reads {read / 1e6:.0f} MB/s"
        reads = Evidence(text=text, value=read, unit="B/s", limit=limit, sense="flagged_above")
        return StartupPhase("loading weights or data", reads, LOADS)
    blocked = process.blocked_percent
    if view.above(blocked, "blocked_percent"):
        text, limit = f"blocked on storage in {blocked:.0f} % of samples", view.limit("blocked_percent")
        waits = Evidence(text=text, value=blocked, unit="%", limit=limit, sense="flagged_above")
        return StartupPhase("waiting for files", waits, _files(view, process))
    store = any(name.startswith("pt_tcpstore") for name in names)
    if (process.world_size or 1) > 1 and view.below(trainer.cores, "asleep_cores"):
        here = len(trainer.job.ranks) if trainer.job else 1
        text = f"{here} of {process.world_size} ranks {'runs' if here == 1 else 'run'} on this machine; this one sleeps"
        return StartupPhase(
            "waiting for other ranks" if store else "possibly waiting for other ranks", Evidence(text=text), _RANKS
        )
    return StartupPhase("activity unknown", cores, ())


def _files(view: View, process: Process) -> tuple[Step, ...]:
    trace, root = f"strace -f -e trace=openat -p {process.pid}", only_root_may_inspect(view, process)
    return (
        Step(text="Move the Python environment to a local disk: it opens thousands of small files"),
        Step(text="Check which files it opens", command=f"sudo {trace}" if root else trace, needs_root=root),
    )


_COMPILES = (
    Step(
        text="Keep the torch.compile cache for the next start", command="export TORCHINDUCTOR_CACHE_DIR=$HOME/.inductor"
    ),
    Step(text="Compile extensions for the GPUs of this machine only", command="unset TORCH_CUDA_ARCH_LIST"),
)
LOADS = (
    Step(text="Map weights instead of reading them: safetensors, or torch.load(..., mmap=True)"),
    Step(text="Keep the checkpoint on a local disk; load it once per machine and broadcast it"),
)
_RANKS = (
    Step(text="Start the missing ranks: WORLD_SIZE must equal the number of ranks"),
    Step(text="Set the same MASTER_ADDR and MASTER_PORT on all ranks, and make them reachable"),
    Step(text="Let NCCL log what it waits for", command="export NCCL_DEBUG=INFO"),
)


@rule(
    "gpu-idle-cpu-busy",
    "Is a program busy on the CPU while its GPU is idle?",
    level=Level.USE,
    state="GPU idle",
    short="IDLE",
    needs=("busy_percent", "cpu_percent"),
)
def gpu_idle_cpu_busy(view: View) -> Iterator[Finding]:
    """A context that has worked before, no GPU work for a minute, and at least one busy CPU core."""
    from gputop.diagnose.rules.feed.main_thread_loading import loads_itself

    for trainer in view.trainers():
        calm = _same_loaders(view, trainer)
        if not trainer.gpus or trainer.compiling or is_notebook(trainer) or is_auxiliary(trainer):
            continue
        if not view.knows(trainer, "duty", "cores"):
            continue
        busy, cores = view.mean(trainer, "busy_percent"), view.mean(trainer, "cores")
        writes = (trainer.write_chars or 0.0) >= view.limit("writes_bytes_per_s")
        if (mostly_loads(trainer) or loads_itself(view, trainer)) and not gpus_idle(view, trainer):
            continue  # a little GPU work beside busy CPUs: it waits for its input
        if calm and not writes and view.below(busy, "busy_percent") and view.above(cores, "cores"):
            yield _elsewhere_finding(view, trainer, busy or 0.0, cores or 0.0)


def _same_loaders(view: View, trainer: Trainer) -> bool:
    """Whether its loaders are unchanged: new ones mean the end of an epoch, or an evaluation."""
    notes, now_s = view.notes(trainer), view.frame.mono_s
    if notes.get("loaders") != trainer.team:
        notes["changed_s"] = now_s if "loaders" in notes else -view.limit("window_s") + now_s
        notes["loaders"] = trainer.team
    return bool(now_s - notes["changed_s"] >= view.limit("window_s"))


class _Activity(NamedTuple):
    """What it may be doing instead: severity, headline and steps."""

    severity: Severity
    headline: str
    confidence: float
    evidence: tuple[Evidence, ...]
    steps: Sequence[Step]


def _activity(view: View, trainer: Trainer) -> _Activity:
    """Its activity: only if it worked before, reads little and has no GPU work, it certainly does something else."""
    works = view.mean(trainer, "worked") or 0.0
    if works >= view.limit("works"):
        each = Evidence(text=f"GPU active in {100 * works:.0f} % of the seconds", value=100 * works, unit="%")
        return _Activity("info", "GPU mostly idle, process busy on CPU", 0.6, (each,), _SMALL)
    if view.above(trainer.read_chars, "loads_bytes_per_s") and view.below(trainer.cores, "loads_cores"):
        read, limit = trainer.read_chars or 0.0, view.limit("loads_bytes_per_s")
        text = f"reads {read / 1e6:.0f} MB/s"
        reads = Evidence(text=text, value=read, unit="B/s", limit=limit, sense="flagged_above")
        return _Activity("info", "GPU idle, loading weights or data", 0.6, (reads,), LOADS)
    if is_starting(view, trainer):
        return _Activity("info", "GPU not used yet, possibly compiling or preparing data", 0.6, (), _FIRST)
    return _Activity("warn", "GPU idle, process busy on CPU", 0.7, (), (_REASONS,))


def _elsewhere_finding(view: View, trainer: Trainer, busy: float, cores: float) -> Finding:
    main = 100 * (trainer.main or 0.0)
    seconds, doing = view.limit("window_s"), _activity(view, trainer)
    return view.found(
        trainer,
        doing.severity,
        doing.headline,
        evidence=(
            Evidence(
                text=f"{trainer.reading(busy)} over the last {seconds:.0f} s",
                value=busy,
                unit="%",
                limit=view.limit("busy_percent"),
                sense="flagged_below",
            ),
            Evidence(
                text=f"{cores:.1f} CPU cores in use, main thread {main:.0f} % of a core",
                value=cores,
                unit="cores",
                limit=view.limit("cores"),
                sense="flagged_above",
            ),
            *doing.evidence,
        ),
        steps=(
            stack(view, trainer.process, "Check what its main thread does"),
            profile(view, trainer.process, "Profile it for some seconds to see where time goes"),
            *doing.steps,
        ),
        confidence=view.confidence(doing.confidence, trainer.main),
        lost_share=1 - busy / 100,
    )


_REASONS = Step(
    text="Check for the usual causes: tokenizing or indexing in the main process, tensors left on the CPU in the loop, "
    "validation on the CPU, decoding of a first batch, torch.compile, XLA or TensorRT builds"
)
_FIRST = (
    Step(text="Wait for torch.compile, XLA or TensorRT: they build for minutes before the first steps"),
    _REASONS,
)
_SMALL = (
    Step(text="If the job is small by nature, run several on this GPU with MPS"),
    Step(text="Use a smaller GPU, or a MIG slice (1g)"),
    Step(text="Use a larger batch, if the run allows it"),
)
