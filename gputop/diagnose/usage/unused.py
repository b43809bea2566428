"""A rule about GPUs that a job has and does not use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gputop import units
from gputop.diagnose.command import started_for_each_gpu
from gputop.diagnose.finding import Evidence, Finding, Severity, Step
from gputop.diagnose.rule import Level, rule
from gputop.diagnose.starved import spread
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.usage.programs import notebook, plays_a_part
from gputop.diagnose.view import View
from gputop.diagnose.visible import given, names
from gputop.model import Gpu, Job, Missing
from gputop.words import plural


@rule(
    "gpu-unused-in-job",
    "Does a job hold GPUs that it does not use?",
    level=Level.DEVICE,
    state="unused",
    short="NONE",
    number="R03",
    rows=(2, 47),
    needs=("busy_percent",),
    partly=("visible_gpus",),
)
def gpu_unused_in_job(view: View) -> Iterator[Finding]:
    """No work for some time on some of its GPUs, while it works on others."""
    for job in view.jobs():
        trainers = view.ranks(job)
        if not trainers or any(plays_a_part(one) or notebook(one) for one in trainers):
            view.notes(job).clear()
            continue
        held = _held(view, trainers)
        gpus = [gpu for gpu in held if _fresh(gpu) and view.knows(gpu, "busy_percent")]
        idle_s = _idle_s(view, job, held)
        unused = [(gpu, idle_s[gpu.uuid]) for gpu in gpus if idle_s.get(gpu.uuid, 0.0) >= view.limit("info_s")]
        if unused and any(view.above(view.mean(gpu, "busy_percent", 60), "others_percent") for gpu in gpus):
            yield _unused(view, job, trainers, unused, held)
        elif hidden := _hidden(view, trainers):
            view.abstain(job, hidden)


def _held(view: View, trainers: Sequence[Trainer]) -> list[Gpu]:
    """GPUs with a context of the job that holds memory, and those that its environment surely gives to it alone."""
    share = view.limit("held_share")
    found: dict[str, Gpu] = {}
    for trainer in trainers:
        for one in trainer.process.gpus:
            gpu = view.frame.by_uuid.get(one.uuid)
            known = gpu is not None and one.vram_bytes is not None and gpu.vram_total_bytes
            if gpu is not None and known and (one.vram_bytes or 0) >= share * (gpu.vram_total_bytes or 0):
                found[gpu.uuid] = gpu
        for gpu in given(view, trainer.process):
            if not view.tenants(gpu):
                found[gpu.uuid] = gpu
    return list(found.values()) if len(found) > 1 else []


def _hidden(view: View, trainers: Sequence[Trainer]) -> Missing | None:
    """That nobody may see which GPUs it was given, where there are some without a tenant."""
    if all(view.tenants(gpu) for gpu in view.frame.gpus):
        return None
    denied = (one for trainer in trainers for one in trainer.process.missing if one.reason == "denied")
    return next((one for one in denied if one.metric == "visible_gpus"), None)


def _fresh(gpu: Gpu) -> bool:
    return gpu.condition == "ok" and gpu.age_s == 0


def _idle_s(view: View, job: Job, held: Sequence[Gpu]) -> Mapping[str, float]:
    """For how long GPUs that a job holds have done nothing while we looked, by their uuids; none that works."""
    notes, now_s = view.notes(job), view.frame.mono_s
    before: Mapping[str, float] = notes.get("since_s", {})
    # one that does not answer for a moment goes on as it was
    idle = [gpu.uuid for gpu in held if (gpu.uuid in before or _fresh(gpu)) and not _worked(view, gpu)]
    notes["since_s"] = since_s = {uuid: before.get(uuid, now_s) for uuid in idle}
    return {uuid: now_s - began_s for uuid, began_s in since_s.items()}


def _worked(view: View, gpu: Gpu) -> bool:
    since_last = view.window(gpu, "busy_percent", view.stands_for_s + 1).values
    return any(percent >= view.limit("busy_percent") for percent in since_last)


def _cards(names: Sequence[str]) -> str:
    return f"{plural(len(names), 'GPU')} {', '.join(names)}"


def _unused(
    view: View, job: Job, trainers: Sequence[Trainer], unused: Sequence[tuple[Gpu, float]], held: Sequence[Gpu]
) -> Finding:
    longest_s = max(idle_s for _, idle_s in unused)
    severity: Severity = "warn" if longest_s >= view.limit("warn_s") else "info"
    idle, total = [gpu.index for gpu, _ in unused], len(held)
    others = [gpu for gpu in held if gpu.index not in idle]
    busy = {gpu.index: mean for gpu in others if (mean := view.mean(gpu, "busy_percent", 60)) is not None}
    kept = names(view, others, [trainer.process for trainer in trainers])
    return view.found(
        job,
        severity,
        f"leaves {len(idle)} of its {total} GPUs unused",
        evidence=(
            Evidence(
                text=f"{_cards(idle)} without work for {units.ago(longest_s)}",
                value=longest_s,
                unit="s",
                limit=view.limit("info_s"),
            ),
            Evidence(text=f"{_cards([*busy])} busy {spread([*busy.values()])}", value=min(busy.values()), unit="%"),
        ),
        steps=(
            Step(
                text="Start one DDP rank per GPU; batch size and num_workers are per rank",
                command=started_for_each_gpu(trainers[0].process, total),
            ),
            Step(text="or leave them to others", command=f"export CUDA_VISIBLE_DEVICES={kept}"),
        ),
        confidence=0.8,
        lost_share=len(idle) / total,
        gpus=[gpu.uuid for gpu, _ in unused],
    )
