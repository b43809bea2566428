"""Rules on GPUs that a job cannot use with its PyTorch build, or leaves unused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from gputop import pytorch, units
from gputop.diagnose.finding import Evidence, Finding, Severity, Step
from gputop.diagnose.program_kind import is_auxiliary, is_notebook
from gputop.diagnose.rule import Level, rule
from gputop.diagnose.start_command import torchrun_command
from gputop.diagnose.starvation import range_text
from gputop.diagnose.steps import cuda_visible_devices, visible_gpus
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.view import View
from gputop.labels import plural
from gputop.model import Gpu, Job, Missing

Version = tuple[int, int]

# The first CUDA whose compiler knows a compute capability; kernels of the same major number run too, but slower. CUDA
# release notes; sheffield_hpc#1890, pytorch#90761 (9.0), pytorch#167244 (10.0, 12.0), pytorch#52288 (8.6).
_NEEDS: dict[int, Version] = {8: (11, 0), 9: (11, 8), 10: (12, 8), 12: (12, 8)}
_LIKES: dict[Version, Version] = {(8, 6): (11, 1), (8, 9): (11, 8)}
# Oldest capability in wheels for this CUDA and later; those for CUDA 12 of some releases start lower. pytorch
# RELEASE.md; pytorch#145792 (2.7), pytorch#157968 (2.8), pytorch#172352 (2.11).
_DROPS_AT, _BEGIN_WITH = (12, 8), (7, 5)
_VOLTA, _WITH_VOLTA = (7, 0), ((2, 8), (2, 9), (2, 10))
# release dates as fractional years: github.com/pytorch/pytorch/releases
_RELEASED = {
    (1, 7): 2020.8, (1, 8): 2021.2, (1, 9): 2021.5, (1, 10): 2021.8, (1, 11): 2022.2, (1, 12): 2022.5,
    (1, 13): 2022.8, (2, 0): 2023.2, (2, 1): 2023.75, (2, 2): 2024.1, (2, 3): 2024.3, (2, 4): 2024.55,
    (2, 5): 2024.8, (2, 6): 2025.1, (2, 7): 2025.3, (2, 8): 2025.6, (2, 9): 2025.8,
}  # fmt: skip
_AMPERE = 8
_OF_PYPI = (13, 0)  # since PyTorch 2.11 the wheel from pip needs a driver for this CUDA: pytorch#177975
_YEAR_S, _EPOCH = 365.25 * 86400, 1970
_HIDDEN = "the libraries of a process are visible to its owner only"
_INSTALL = Step(text="Install a build for this GPU and driver, as https://pytorch.org/get-started says")


class Misfit(NamedTuple):
    """Why a build does not fit."""

    severity: Severity
    text: str  # the headline
    evidence: Evidence


@rule(
    "stack-vs-gpu",
    "Does the PyTorch build fit the GPU?",
    level=Level.USE,
    state="old torch",
    short="OLD",
    needs=("torch_version", "compute_capability"),
    lasting=True,
)
def stack_vs_gpu(view: View) -> Iterator[Finding]:
    """The build's CUDA version against the compute capability, in both directions, and its age."""
    for trainer in view.trainers(cold=True):
        process = trainer.process
        if not trainer.gpus:
            continue
        if process.torch_version is None:
            why = {one.metric for one in process.missing if one.reason == "denied"}
            if why & {"libraries", "torch_version"}:
                view.abstain(trainer, Missing(metric="torch_version", reason="denied", unlock=view.unlock(_HIDDEN)))
            continue
        gpus = (gpu for gpu in trainer.gpus if view.knows(gpu, "compute_capability"))
        misfits = [one for gpu in gpus if (one := _misfit(view, trainer, gpu))]
        if misfits:
            yield _misfit_finding(view, trainer, min(misfits, key=lambda one: one.severity != "warn"))


def _misfit(view: View, trainer: Trainer, gpu: Gpu) -> Misfit | None:
    """The worst misfit of its build on one GPU."""
    process, capability = trainer.process, gpu.compute_capability or (0, 0)
    cuda = pytorch.release(process.torch_cuda)
    built = f"PyTorch {process.torch_version} built with CUDA {process.torch_cuda}"
    chip = f"{gpu.name} has compute capability {_version_text(capability)}"
    needed, liked = _NEEDS.get(capability[0]), _LIKES.get(capability)
    if cuda is None:
        return _age_misfit(view, trainer, capability)
    if needed and cuda < needed:
        text = f"{built}; {chip}, supported from CUDA {_version_text(needed)} on"
        return Misfit("warn", "PyTorch build too old for this GPU", _evidence(text, cuda, needed))
    begin = _begins_with(process.torch_version or "", cuda)
    if begin and capability < begin:
        text = f"{built}; {chip}, wheels for CUDA {_version_text(cuda)} start at {_version_text(begin)}"
        return Misfit("warn", "PyTorch build no longer supports this GPU", _evidence(text, capability, begin))
    if liked and cuda < liked:
        text = f"{built}; {chip}, with its own kernels from CUDA {_version_text(liked)} on"
        return Misfit("info", "PyTorch build lacks kernels tuned for this GPU", _evidence(text, cuda, liked))
    return _age_misfit(view, trainer, capability)


def _begins_with(version: str, cuda: Version) -> Version | None:
    """The oldest compute capability that a wheel has kernels for, if it is known to matter."""
    if "+cu" not in version or cuda < _DROPS_AT:
        return None
    return _VOLTA if cuda[0] == _DROPS_AT[0] and pytorch.release(version) in _WITH_VOLTA else _BEGIN_WITH


def _age_misfit(view: View, trainer: Trainer, capability: Version) -> Misfit | None:
    """A release that is years old, on a GPU that has gained much support since."""
    version = trainer.process.torch_version
    released = _RELEASED.get(pytorch.release(version) or (0, 0))
    if released is None or capability[0] < _AMPERE:
        return None
    years = _EPOCH + view.frame.wall_s / _YEAR_S - released
    text = f"PyTorch {version} was released {years:.1f} years ago"
    evidence = Evidence(text=text, value=years, unit="years", limit=view.limit("years"), sense="flagged_above")
    return Misfit("info", "old PyTorch release", evidence) if view.above(years, "years") else None


def _misfit_finding(view: View, trainer: Trainer, misfit: Misfit) -> Finding:
    warns = misfit.severity == "warn"
    driver = view.frame.host.cuda_version
    evidence = [misfit.evidence]
    if driver:
        evidence.append(Evidence(text=f"this driver supports builds up to CUDA {driver}"))
    upgrades: tuple[Step, ...] = (Step(text=f"{_INSTALL.text}: newer releases are faster on such GPUs"),)
    if (pytorch.release(driver) or (0, 0)) >= _OF_PYPI:
        text = "Upgrade: newer releases are faster on such GPUs"
        upgrades = (Step(text=text, command="pip install --upgrade torch"), _INSTALL)
    steps = (
        _INSTALL,
        Step(text="Expect 'no kernel image is available', or kernels compiled at first use, until then"),
    ) if warns else upgrades  # fmt: skip
    return view.found(
        trainer,
        misfit.severity,
        misfit.text,
        evidence=tuple(evidence),
        steps=steps,
        confidence=0.85 if warns else 0.6,
        grade="driver",
        lost_share=None,
    )


def _version_text(version: Version) -> str:
    return f"{version[0]}.{version[1]}"


def _evidence(text: str, value: Version, limit: Version) -> Evidence:
    found, least = float(_version_text(value)), float(_version_text(limit))
    return Evidence(text=text, value=found, limit=least, sense="healthy_from")


@rule(
    "gpu-unused-in-job",
    "Does a job hold GPUs that it does not use?",
    level=Level.DEVICE,
    state="unused",
    short="NONE",
    needs=("busy_percent",),
    partly=("visible_gpus",),
)
def gpu_unused_in_job(view: View) -> Iterator[Finding]:
    """No work for some time on some of its GPUs, while it works on others."""
    for job in view.jobs():
        trainers = view.ranks(job)
        if not trainers or any(is_auxiliary(one) or is_notebook(one) for one in trainers):
            view.notes(job).clear()
            continue
        held = _job_gpus(view, trainers)
        gpus = [gpu for gpu in held if _is_fresh(gpu) and view.knows(gpu, "busy_percent")]
        idle_s = _idle_s(view, job, held)
        unused = [(gpu, idle_s[gpu.uuid]) for gpu in gpus if idle_s.get(gpu.uuid, 0.0) >= view.limit("info_s")]
        if unused and any(view.above(view.mean(gpu, "busy_percent", 60), "others_percent") for gpu in gpus):
            yield _unused_finding(view, job, trainers, unused, held)
        elif hidden := _hidden_gpus(view, trainers):
            view.abstain(job, hidden)


def _job_gpus(view: View, trainers: Sequence[Trainer]) -> list[Gpu]:
    """GPUs on which a context of the job holds memory, and those that its environment certainly assigns to it alone."""
    share = view.limit("held_share")
    found: dict[str, Gpu] = {}
    for trainer in trainers:
        for one in trainer.process.gpus:
            gpu = view.frame.by_uuid.get(one.uuid)
            known = gpu is not None and one.vram_bytes is not None and gpu.vram_total_bytes
            if gpu is not None and known and (one.vram_bytes or 0) >= share * (gpu.vram_total_bytes or 0):
                found[gpu.uuid] = gpu
        for gpu in visible_gpus(view, trainer.process):
            if not view.tenants(gpu):
                found[gpu.uuid] = gpu
    return list(found.values()) if len(found) > 1 else []


def _hidden_gpus(view: View, trainers: Sequence[Trainer]) -> Missing | None:
    """Missing visibility of the GPUs it was given, if some have no process."""
    if all(view.tenants(gpu) for gpu in view.frame.gpus):
        return None
    denied = (one for trainer in trainers for one in trainer.process.missing if one.reason == "denied")
    return next((one for one in denied if one.metric == "visible_gpus"), None)


def _is_fresh(gpu: Gpu) -> bool:
    return gpu.condition == "ok" and gpu.age_s == 0


def _idle_s(view: View, job: Job, held: Sequence[Gpu]) -> Mapping[str, float]:
    """Idle seconds of a job's GPUs while watched, by uuid; without those that work."""
    notes, now_s = view.notes(job), view.frame.mono_s
    before: Mapping[str, float] = notes.get("since_s", {})
    # one that does not respond for a moment keeps its state
    idle = [gpu.uuid for gpu in held if (gpu.uuid in before or _is_fresh(gpu)) and not _worked(view, gpu)]
    notes["since_s"] = since_s = {uuid: before.get(uuid, now_s) for uuid in idle}
    return {uuid: now_s - began_s for uuid, began_s in since_s.items()}


def _worked(view: View, gpu: Gpu) -> bool:
    since_last = view.window(gpu, "busy_percent", view.stands_for_s + 1).values
    return any(percent >= view.limit("busy_percent") for percent in since_last)


def _cards(names: Sequence[str]) -> str:
    return f"{plural(len(names), 'GPU')} {', '.join(names)}"


def _unused_finding(
    view: View, job: Job, trainers: Sequence[Trainer], unused: Sequence[tuple[Gpu, float]], held: Sequence[Gpu]
) -> Finding:
    longest_s = max(idle_s for _, idle_s in unused)
    severity: Severity = "warn" if longest_s >= view.limit("warn_s") else "info"
    idle, total = [gpu.index for gpu, _ in unused], len(held)
    others = [gpu for gpu in held if gpu.index not in idle]
    busy = {gpu.index: mean for gpu in others if (mean := view.mean(gpu, "busy_percent", 60)) is not None}
    kept = cuda_visible_devices(view, others, [trainer.process for trainer in trainers])
    return view.found(
        job,
        severity,
        f"{len(idle)} of {total} GPUs unused",
        evidence=(
            Evidence(
                text=f"{_cards(idle)} idle for {units.ago_text(longest_s)}",
                value=longest_s,
                unit="s",
                limit=view.limit("info_s"),
                sense="flagged_above",
            ),
            Evidence(text=f"{_cards([*busy])} busy {range_text([*busy.values()])}", value=min(busy.values()), unit="%"),
        ),
        steps=(
            Step(
                text="Start one DDP rank per GPU; batch size and num_workers are per rank",
                command=torchrun_command(trainers[0].process, total),
            ),
            Step(text="Release the unused GPUs to others", command=f"export CUDA_VISIBLE_DEVICES={kept}"),
        ),
        confidence=0.8,
        lost_share=len(idle) / total,
        onset_s=longest_s,
        gpus=[gpu.uuid for gpu, _ in unused],
    )
