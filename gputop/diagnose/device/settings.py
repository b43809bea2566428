"""Rules about how a card is set up: whether its driver stays loaded, and whether it is cut in parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from shlex import quote

from gputop import units
from gputop.diagnose.finding import Evidence, Finding, Step
from gputop.diagnose.rule import Level, rule
from gputop.diagnose.view import View
from gputop.model import Gpu

_KEEPERS = ("nvidia-persiste", "nv-hostengine", "nvidia-cuda-mps", "dcgm", "Xorg", "gnome-shell", "Xwayland")


@rule(
    "persistence-off",
    "Does the driver forget the GPUs between programs?",
    level=Level.NEVER,
    state="",
    short="",
    number="R42",
    rows=(),
    needs=("persistence_mode",),
)
def persistence_off(view: View) -> Iterator[Finding]:
    """Without persistence, and nobody who keeps the driver: every first program waits, and settings are lost."""
    gpus = [gpu for gpu in view.gpus() if gpu.parent_uuid is None and view.knows(gpu, "persistence_mode")]
    off = [gpu for gpu in gpus if gpu.persistence_mode is False and gpu.virtualization != "vgpu"]
    if not off:
        return
    processes = view.frame.processes
    kept = any(process.name.startswith(_KEEPERS) for process in processes) or any(
        share.kind == "graphics" for process in processes for share in process.gpus
    )
    # from inside a container this can neither be seen nor set
    if kept or any(process.unseen == "foreign" for process in processes):
        return
    indexes = ", ".join(gpu.index for gpu in off)
    yield view.found(
        view.host(),
        "info",
        "unloads the driver whenever no program uses a GPU",
        evidence=(Evidence(text=f"persistence mode is off on GPU {indexes}", value=float(len(off)), limit=0.0),),
        steps=(
            Step(
                text="keep it loaded: programs begin seconds sooner, and power limits and clocks stay as they are set",
                command="sudo systemctl enable --now nvidia-persistenced",
                needs_root=True,
            ),
            Step(text="without systemd, until the next boot", command="sudo nvidia-smi -pm 1", needs_root=True),
        ),
        confidence=0.95,
        grade="driver",
    )


@rule(
    "mig-visibility",
    "Is a GPU cut in parts that tell little?",
    level=Level.NEVER,
    state="",
    short="",
    number="R45",
    rows=(),
    needs=(),
)
def mig_visibility(view: View) -> Iterator[Finding]:
    """What cannot be known of instances, the rules that are silent for it, and instances that are far too large."""
    for gpu in view.gpus():
        if gpu.mig_mode is not True or gpu.parent_uuid is not None:
            continue
        instances = [one for one in view.frame.gpus if one.parent_uuid == gpu.uuid]
        blind = [one for one in instances if one.busy_percent is None and one.sm_active_percent is None]
        large = [one for one in instances if _large(view, one)]
        if not instances:
            yield _empty(view, gpu)
        elif blind or large:
            yield _parts(view, gpu, instances, blind, large)


def _large(view: View, instance: Gpu) -> bool:
    """Whether it uses little of its memory and little of its units, for as long as was looked."""
    most, sm, total = _peak(view, instance), _units(view, instance), instance.vram_total_bytes
    if not total or most is None or sm is None:
        return False
    return most / total < view.limit("used_share") and 0 < sm < view.limit("sm_percent")


def _peak(view: View, instance: Gpu) -> float | None:
    return max(_known(view, instance, "vram_used_bytes"), default=None)


def _units(view: View, instance: Gpu) -> float | None:
    known = _known(view, instance, "sm_active_percent")
    return sum(known) / len(known) if known else None


def _known(view: View, instance: Gpu, metric: str) -> list[float]:
    """What is known of a metric over the time that tells its size; nothing where much is missing."""
    values = view.past(instance, metric, view.limit("size_s"))
    known = [value for value in values if value is not None]
    return known if len(known) >= view.limit("known") * len(values) else []


def _empty(view: View, gpu: Gpu) -> Finding:
    return view.found(
        gpu,
        "info",
        "is set up to be cut in instances and has none: no program can use it",
        evidence=(Evidence(text="MIG mode is on, and there is no instance", value=0.0),),
        steps=(
            Step(text="see which there can be", command=f"nvidia-smi mig -i {quote(gpu.index)} -lgip"),
            Step(
                text="or use it as a whole again; nothing may run on it meanwhile",
                command=f"sudo nvidia-smi -i {quote(gpu.index)} -mig 0",
                needs_root=True,
                destroys=True,
            ),
        ),
        confidence=0.9,
        grade="driver",
    )


def _parts(view: View, gpu: Gpu, instances: Sequence[Gpu], blind: Sequence[Gpu], large: Sequence[Gpu]) -> Finding:
    evidence, steps = [Evidence(text=f"{len(instances)} instances", value=float(len(instances)))], []
    if blind:
        uuids = {one.uuid for one in (*blind, gpu)}
        silent = dict.fromkeys(one.rule for one in view.abstained if uuids & set(one.subject.gpus))
        text = f"the driver does not tell how busy {', '.join(one.index for one in blind)} are"
        evidence.append(Evidence(text=f"{text}: {', '.join(silent)} cannot judge" if silent else text))
        if any(missing.unlock == "--gpm on" for one in blind for missing in one.missing):
            steps.append(Step(text="Read the activity of their units (GPM)", command="gputop --gpm on"))
    for one in large:
        sm, memory = _units(view, one) or 0.0, f"{units.size(_peak(view, one))} of {units.size(one.vram_total_bytes)}"
        text = f"{one.index} ({one.name}) uses {memory} and {sm:.0f} % of its units"
        evidence.append(Evidence(text=text, value=sm, unit="%", limit=view.limit("sm_percent")))
    if large:
        steps.append(Step(text="a smaller profile would do", command=f"nvidia-smi mig -i {quote(gpu.index)} -lgip"))
    steps.append(
        Step(
            text=f"a program sees an instance by its name only: {instances[0].index} is",
            command=f"export CUDA_VISIBLE_DEVICES={quote(instances[0].uuid)}",
        )
    )
    headline = "is cut in instances that do not tell how busy they are" if blind else "has instances larger than needed"
    return view.found(
        gpu, "info", headline, evidence=tuple(evidence), steps=tuple(steps), confidence=0.9, grade="driver"
    )
