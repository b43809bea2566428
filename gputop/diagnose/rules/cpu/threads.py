"""Rules on compute threads: too many per process or per machine, and NumPy's BLAS on Intel CPUs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from gputop import numpy_blas as mkl
from gputop import units
from gputop.diagnose.contention import ThreadCrowd, contention, crowd_wait
from gputop.diagnose.cpu_budget import affinity, equal_share, fitting_threads, gpus_idle
from gputop.diagnose.finding import Evidence, Finding, Severity, Step
from gputop.diagnose.rule import Level, rule
from gputop.diagnose.rules.cpu.limits import pinned
from gputop.diagnose.rules.cpu.placement import apart, bound
from gputop.diagnose.starvation import (
    busy_evidence,
    cores_evidence,
    is_fed,
    is_starved,
    per_loader_text,
    range_text,
    waiting_threads,
)
from gputop.diagnose.steps import stack
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.view import View
from gputop.labels import amount
from gputop.model import Missing, Process

_HIDDEN = "the libraries of a process are visible to its owner only"


@rule(
    "openblas-on-intel",
    "Is NumPy slow because it uses OpenBLAS on Intel CPUs?",
    level=Level.CAUSE,
    state="openblas",
    short="BLAS",
    confirmed_by=("linalg-in-loaders",),
    needs=("busy_percent", "cpu_percent", "allowed_cpus", "cpu_model", "libraries"),
)
def openblas_on_intel(view: View) -> Iterator[Finding]:
    """NumPy from pip uses OpenBLAS: a mere suspicion, raised only for busy thread pools beside a waiting GPU."""
    for trainer in view.trainers():
        if not view.knows(trainer, "duty", "cores", "allowed") or not is_starved(view, trainer):
            continue
        model = view.frame.host.cpu_model
        if not view.above(trainer.saturation, "saturation") or (model is not None and not mkl.intel(model)):
            continue
        using = {name for process in trainer.tree for name in process.libraries}
        missing = [Missing(metric="cpu_model", reason="absent")] if model is None else []
        missing += [] if using else [Missing(metric="libraries", reason="denied", unlock=view.unlock(_HIDDEN))]
        if missing:
            view.abstain(trainer, *missing)
        elif slow(using, model or "") and _pools(view, trainer):
            yield _openblas_finding(view, trainer, model or "")


def slow(using: Collection[str], model: str) -> bool:
    """Whether it computes with OpenBLAS on a CPU with a faster BLAS."""
    return "openblas" in using and "mkl" not in using and mkl.intel(model)


def several_threads(view: View, trainer: Trainer) -> bool:
    """Whether each of its loaders computes with more than one thread.

    Where CPUs are short no loader gets more than one: the run-queue wait then shows its threads.
    """
    used, wanted = trainer.loader_cpu, _wanted_cores(trainer)
    above = view.above(used, "openblas-on-intel.loader_cores")
    return trainer.loaders > 0 and (above or view.above(wanted, "openblas-on-intel.loader_wanted"))


def _pools(view: View, trainer: Trainer) -> bool:
    """Whether its loaders, or the trainer if it has none, compute with more than one thread each."""
    if trainer.loaders:
        return several_threads(view, trainer)
    return view.above(trainer.compute_threads, "threads") and view.above(trainer.cores, "loader_cores")


def _wanted_cores(trainer: Trainer) -> float:
    """Cores that a loader uses or waits for."""
    return (trainer.loader_cpu or 0.0) + waiting_threads(trainer.loader_wait, trainer.loader_cpu)


def _openblas_finding(view: View, trainer: Trainer, model: str) -> Finding:
    if trainer.loaders:
        each, short = trainer.loader_cpu or 0.0, not view.above(trainer.loader_cpu, "loader_cores")
        much = f"wants {_wanted_cores(trainer):.1f} cores and gets {each:.1f}" if short else f"{each:.1f} cores"
        text = f"{per_loader_text(trainer)} {much}: multi-threaded"
        value, limit = (_wanted_cores(trainer), "loader_wanted") if short else (each, "loader_cores")
        at_work = Evidence(text=text, value=value, unit="cores", limit=view.limit(limit), sense="flagged_above")
    else:
        threads = trainer.compute_threads or 0.0
        at_work = Evidence(text=f"{threads:.0f} compute threads in the training process", value=threads)
    return view.found(
        trainer,
        "info",
        "NumPy uses OpenBLAS, slow on Intel CPUs",
        evidence=(
            Evidence(text=f"OpenBLAS loaded without MKL, on {model}"),
            at_work,
            cores_evidence(view, trainer, sense="flagged_above"),
            busy_evidence(view, trainer),
        ),
        steps=(
            Step(text="Start one BLAS thread per worker, to measure the cost", command=mkl.UNTIL_THEN),
            stack(view, trainer.process, "Check whether its time is in numpy.linalg or dot"),
            Step(text="Install NumPy with MKL, in a conda environment", command=mkl.IN_CONDA_FORGE),
            Step(
                text="If NumPy came from pip, which always ships OpenBLAS, replace it",
                command=mkl.AFTER_PIP,
                destroys=True,
            ),
            Step(
                text="Use the default channel of conda instead: some mirrors carry OpenBLAS only",
                command=mkl.IN_DEFAULTS,
            ),
        ),
        confidence=0.5,
        lost_share=trainer.lost,
    )


_POOLS = 2  # of OpenMP and of a BLAS with a separate one


def pool(process: Process) -> int | None:
    """Size of its libraries' thread pool: as configured, else one per visible CPU regardless of quotas."""
    if not process.libraries:  # its environment cannot be read either
        return None
    configured = process.omp_threads or process.mkl_threads
    return configured or len(affinity(process)) or None


@rule(
    "threads-process",
    "Does a process run more compute threads than it has CPUs?",
    level=Level.CAUSE,
    state="oversub",
    short="THR",
    needs=("allowed_cpus", "busy_threads", "run_wait_percent", "voluntary_switches_per_s", "cpu_percent"),
)
def threads_process(view: View) -> Iterator[Finding]:
    """More runnable compute threads than CPUs, waiting and spinning: threads that wait passively cost little."""
    for trainer in view.trainers():
        if not view.knows(trainer, "allowed", "compute_threads", "run_wait", "switches", "own"):
            continue
        room = trainer.thread_budget or 1.0
        wanted = view.mean(trainer.process, "busy_threads")
        waits = view.above(trainer.run_wait, "run_wait")
        if view.above(None if wanted is None else wanted / room, "threads"):
            certain = waits and view.below(trainer.switches, "switches")
        else:
            certain = False
        size = pool(trainer.process)
        large = view.above(None if size is None else size / room, "pool") and view.above(wanted, "pool_threads")
        hurts = waits or view.above(trainer.throttled, "throttled")
        crowded = certain or (large and hurts and view.below(trainer.switches, "passive"))
        if crowded and pinned(view.against, trainer) is None:  # else they need more CPUs, which are idle
            yield _oversubscribed_finding(view, trainer, wanted or 0.0, size, certain)


def _oversubscribed_finding(view: View, trainer: Trainer, wanted: float, size: int | None, certain: bool) -> Finding:
    allowed, room = trainer.allowed or 1.0, trainer.thread_budget or 1.0
    waited = 100 * (trainer.run_wait or 0.0)
    each = fitting_threads(equal_share(view, trainer))
    seen = len(affinity(trainer.process))
    evidence = [
        Evidence(
            text=f"{wanted:.0f} runnable compute threads on {amount(allowed, 'CPU')}",
            value=wanted,
            unit="threads",
            limit=view.limit("threads") * room,
            sense="flagged_above",
        ),
        Evidence(
            text=f"its threads waited for a CPU {waited:.0f} % of their runnable time",
            value=waited,
            unit="%",
            limit=100 * view.limit("run_wait"),
            sense="healthy_to",
        ),
        Evidence(text=f"{trainer.switches or 0:.0f} voluntary switches per CPU second: threads spin while waiting")
        if certain
        else Evidence(text=f"its libraries start a pool of {size} threads", value=size, unit="threads"),
    ]
    if seen >= view.limit("pool") * room:
        text = f"PyTorch and OpenMP detect {seen} CPUs, the quota allows {units.cpus(allowed)}"
        evidence.append(Evidence(text=text, value=seen))
    most = max(wanted, 0 if certain else size or 0)
    return view.found(
        trainer,
        "warn" if certain and not is_fed(view, trainer) else "info",
        f"CPU oversubscribed, {most:.0f} compute threads on {amount(allowed, 'CPU')}",
        evidence=tuple(evidence),
        steps=limit_threads(each, by_itself=_program_sets_threads(trainer, each)),
        confidence=0.75 if certain else 0.5,
        lost_share=None if trainer.duty is None else trainer.lost,
    )


def _program_sets_threads(trainer: Trainer, each: int) -> bool:
    """Whether the program sets its thread count, so that environment variables have no effect.

    It was started with at most `each`, or runs more threads than pools of the configured size explain.
    """
    asked, wanted = trainer.process.omp_threads, trainer.compute_threads or 0.0
    return asked is not None and (asked <= each or wanted > _POOLS * asked)


def _limit_steps(crowd: ThreadCrowd, each: int) -> Sequence[Step]:
    by_itself = all(_program_sets_threads(trainer, each) for trainer in crowd.trainers)
    return limit_threads(each, " each", by_itself=by_itself)[:2]


def thread_variables(each: int) -> str:
    """The environment that limits the pools of the usual libraries."""
    return " ".join(f"{name}={each}" for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"))


def limit_threads(each: int, which: str = "", *, by_itself: bool = False) -> tuple[Step, ...]:
    """Steps to limit the compute threads; `by_itself`: the program overrides its environment."""
    restart = f"Restart{which} with {amount(each, 'compute thread')}"
    start = Step(text=restart, command=f"export {thread_variables(each)}")
    ignores = f"Set {each} in its set_num_threads call, which overrides OMP_NUM_THREADS"
    also = "Change any set_num_threads call in the program: it overrides these variables"
    program = Step(text=ignores if by_itself else also, command=f"torch.set_num_threads({each})")
    return (
        *((program, start) if by_itself else (start, program)),
        Step(text="In workers that use OpenCV, disable its threads in worker_init_fn", command="cv2.setNumThreads(0)"),
    )


@rule(
    "threads-host",
    "Do all experiments together run more compute threads than there are CPUs?",
    level=Level.CAUSE,
    state="oversub",
    short="THR",
    instead_of=("threads-process",),
    needs=("allowed_cpus", "busy_threads"),
    partly=("cpus_total",),
)
def threads_host(view: View) -> Iterator[Finding]:
    """Each process sizes its thread pool for the whole machine; single-threaded processes do little harm."""
    warm = [trainer for trainer in view.vectors() if trainer.warm]
    if len(warm) < 2 or not all(view.knows(trainer, "compute_threads", "allowed") for trainer in warm):
        return
    now = contention(view)
    crowd = now.pools
    if crowd is None:
        return
    if crowd.cpus is None:
        view.cpus()  # records the abstention
        return
    share = crowd_wait(crowd)
    host = view.host()
    # the limit it is compared with is part of the evidence, too
    view.above(view.mean("host", "cpu_pressure"), "pressure_percent")
    view.above(share, "run_wait")
    view.above(crowd.threads / crowd.cpus, "threads")
    if now.crowded:
        work = [trainer for trainer in warm if _shares_cpus(view, trainer, crowd)]
        each, cpus = int(crowd.cpus // len(work)), amount(crowd.cpus, "CPU")
        yield view.found(
            host,
            _severity(view, crowd.trainers),
            f"CPU oversubscribed, {crowd.threads:.0f} compute threads on {cpus}",
            evidence=tuple(_experiments_evidence(view, crowd.trainers, crowd.threads, crowd.cpus, share)),
            steps=(*_limit_steps(crowd, max(1, each)), *_pin(view, work, each)),
            confidence=view.confidence(0.8, share),
            lost_share=_lost(crowd.trainers),
            gpus=[uuid for trainer in crowd.trainers for uuid in trainer.uuids],
            processes=[trainer.identity for trainer in crowd.trainers],
        )


def _shares_cpus(view: View, trainer: Trainer, crowd: ThreadCrowd) -> bool:
    """Whether it is in the crowd, or runs on the same CPUs as far as known."""
    if any(trainer.key == one.key for one in crowd.trainers):
        return True
    here, theirs = affinity(trainer.process), [affinity(one.process) for one in crowd.trainers]
    meets = not here or any(not cpus or here & cpus for cpus in theirs)
    return meets and not gpus_idle(view, trainer)


def _severity(view: View, trainers: Sequence[Trainer]) -> Severity:
    """By the loss of GPU time: a busy GPU loses nothing."""
    if all(trainer.duty is not None and trainer.duty < view.limit("crit_duty") for trainer in trainers):
        return "crit"
    harmed = any(trainer.duty is not None and trainer.duty < view.limit("starved.duty") for trainer in trainers)
    return "warn" if harmed else "info"


def _lost(trainers: Sequence[Trainer]) -> float | None:
    known = [trainer.lost for trainer in trainers if trainer.duty is not None]
    return sum(known) / len(known) if known else None


def _experiments_evidence(
    view: View, pools: Sequence[Trainer], total: float, cpus: float, waited: float | None
) -> Iterator[Evidence]:
    threads = [round(trainer.compute_threads or 0.0) for trainer in pools]
    each = f"{min(threads)}" if min(threads) == max(threads) else f"{min(threads)}-{max(threads)}"
    yield Evidence(
        text=f"{len(pools)} trainers with {each} compute threads each, {total:.0f} on {amount(cpus, 'CPU')}",
        value=total,
        unit="threads",
        limit=view.limit("threads") * cpus,
        sense="flagged_above",
    )
    if waited is not None:
        text = f"their threads waited for a CPU {100 * waited:.0f} % of their runnable time"
        yield Evidence(text=text, value=100 * waited, unit="%", limit=100 * view.limit("run_wait"), sense="healthy_to")
    duties = [100 * trainer.duty for trainer in pools if trainer.duty is not None]
    if duties:
        text, least = f"GPUs busy {range_text(duties)}", 100 * view.limit("starved.duty")
        yield Evidence(text=text, value=min(duties), unit="%", limit=least, sense="healthy_from")
    if all(trainer.process.libraries and trainer.process.omp_threads is None for trainer in pools):
        yield Evidence(text=f"OMP_NUM_THREADS unset in all {len(pools)}")


def _pin(view: View, trainers: Sequence[Trainer], each: int) -> Iterator[Step]:
    """Exclusive CPUs for each."""
    own = apart(view, trainers, each) if each >= 1 else []
    if own:
        text = f"Give each {amount(each, 'exclusive CPU')}: {', '.join(own[:2])}"
        text += ", and so on" if len(own) > 2 else ""
        yield bound(view, trainers[0], text, own[0])
    yield Step(text="Set OMP_NUM_THREADS for plain python commands: only torchrun sets one thread per rank")
