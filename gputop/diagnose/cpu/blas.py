"""A rule about NumPy on Intel CPUs."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from gputop import blas as mkl
from gputop.diagnose.finding import Evidence, Finding, Step
from gputop.diagnose.looking import stack
from gputop.diagnose.rule import Level, rule
from gputop.diagnose.starved import busy, cores, each_loader, starved, waiting
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.view import View
from gputop.model import Missing

_HIDDEN = "the libraries of a process are shown to its owner"


@rule(
    "openblas-on-intel",
    "Is NumPy slow because it has OpenBLAS on Intel CPUs?",
    level=Level.CAUSE,
    state="openblas",
    short="BLAS",
    confirmed_by=("linalg-in-loaders",),
    number="R18",
    rows=(16,),
    needs=("busy_percent", "cpu_percent", "allowed_cpus", "cpu_model", "libraries"),
)
def openblas_on_intel(view: View) -> Iterator[Finding]:
    """pip's NumPy always brings OpenBLAS: only pools at work beside a GPU that waits make it a suspect, and no more."""
    for trainer in view.trainers():
        if not view.knows(trainer, "duty", "cores", "allowed") or not starved(view, trainer):
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
            yield _suspect(view, trainer, model or "")


def slow(using: Collection[str], model: str) -> bool:
    """Whether what computes is OpenBLAS, on a CPU for which there is better."""
    return "openblas" in using and "mkl" not in using and mkl.intel(model)


def several_threads(view: View, trainer: Trainer) -> bool:
    """Whether each of its loaders computes with more than one thread.

    Where CPUs are short no loader gets more than one: then what it waits for tells of its threads.
    """
    used, wanted = trainer.loader_cpu, _wanted(trainer)
    above = view.above(used, "openblas-on-intel.loader_cores")
    return trainer.loaders > 0 and (above or view.above(wanted, "openblas-on-intel.loader_wanted"))


def _pools(view: View, trainer: Trainer) -> bool:
    """Whether its loaders, or it itself without any, compute with more than one thread each."""
    if trainer.loaders:
        return several_threads(view, trainer)
    return view.above(trainer.compute_threads, "threads") and view.above(trainer.cores, "loader_cores")


def _wanted(trainer: Trainer) -> float:
    """Cores that a loader uses or waits for."""
    return (trainer.loader_cpu or 0.0) + waiting(trainer.loader_wait, trainer.loader_cpu)


def _suspect(view: View, trainer: Trainer, model: str) -> Finding:
    if trainer.loaders:
        each, short = trainer.loader_cpu or 0.0, not view.above(trainer.loader_cpu, "loader_cores")
        much = f"wants {_wanted(trainer):.1f} cores and gets {each:.1f}" if short else f"{each:.1f} cores"
        several = "they compute" if trainer.loaders > 1 else "it computes"
        text = f"{each_loader(trainer)} {much}: {several} with several threads"
        value, limit = (_wanted(trainer), "loader_wanted") if short else (each, "loader_cores")
        at_work = Evidence(text=text, value=value, unit="cores", limit=view.limit(limit))
    else:
        threads = trainer.compute_threads or 0.0
        at_work = Evidence(text=f"{threads:.0f} compute threads in the training process", value=threads)
    return view.found(
        trainer,
        "info",
        "may lose CPU time in OpenBLAS, which is slow on Intel CPUs",
        evidence=(
            Evidence(text=f"OpenBLAS and no MKL is loaded, on {model}"),
            at_work,
            cores(view, trainer),
            busy(view, trainer),
        ),
        steps=(
            Step(text="Start one BLAS thread per loader process, to see what it costs", command=mkl.UNTIL_THEN),
            stack(view, trainer.process, "see whether its time is in numpy.linalg or dot"),
            Step(text="change to NumPy with MKL, in an environment of conda", command=mkl.IN_CONDA_FORGE),
            Step(text="where NumPy came with pip, as always with OpenBLAS", command=mkl.AFTER_PIP, destroys=True),
            Step(text="or from conda's own channel: some mirrors have OpenBLAS only", command=mkl.IN_DEFAULTS),
        ),
        confidence=0.5,
        lost_share=trainer.lost,
    )
