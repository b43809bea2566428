"""A rule about programs that take turns on one GPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from shlex import quote

from gputop.diagnose.finding import Evidence, Finding, Step
from gputop.diagnose.memory.holders import Held, holders, named
from gputop.diagnose.rule import Level, rule
from gputop.diagnose.view import View
from gputop.diagnose.visible import counts_its_own, given, names
from gputop.model import Gpu, Identity, Missing, Process

_MPS = "nvidia-cuda-mps"


@rule(
    "gpu-shared",
    "Do several programs take turns on one GPU?",
    level=Level.DEVICE,
    state="shared",
    short="2PRG",
    number="R38",
    rows=(19,),
    needs=("busy_percent",),
)
def gpu_shared(view: View) -> Iterator[Finding]:
    """Two jobs or more that work on a GPU and leave it no rest: without MPS only one of them computes at a time."""
    for gpu in view.gpus():
        tenants = view.tenants(gpu)
        if len(tenants) < 2:
            _remember_alone(view, gpu, tenants)
            continue
        held = [one for one in holders(view).get(gpu.uuid, ()) if one[1].kind != "graphics"]
        if any(process.name.startswith(_MPS) or share.kind == "mps" for process, share in held):
            continue
        if any(share.busy_percent is None for _, share in held):
            view.abstain(gpu, Missing(metric="busy_percent", reason="unsupported"))
            continue
        means = _means(view, gpu, held)
        active = [one for one in tenants if view.above(means.get(one.identity), "each_percent")]
        owners = {process.job or process.identity for process in active}
        if len(owners) > 1 and view.above(sum(means[one.identity] for one in active), "together_percent"):
            yield _in_turns(view, gpu, active, means)


def _remember_alone(view: View, gpu: Gpu, tenants: Sequence[Process]) -> None:
    """What a program gets out of a GPU that it has to itself."""
    notes = view.notes(gpu)
    notes.pop("means", None)
    if tenants and (busy := view.mean(gpu, "busy_percent")) is not None:
        notes["alone"] = {tenants[0].identity: busy}


def _means(view: View, gpu: Gpu, held: Held) -> Mapping[Identity, float]:
    """How busy each kept the GPU over the window; nothing of those who came within it."""
    before: dict[Identity, tuple[float, float]] = view.notes(gpu).get("means", {})
    now_s, look_s, window_s = view.frame.mono_s, view.stands_for_s, view.limit("window_s")
    fresh: dict[Identity, tuple[float, float]] = {}
    for process, share in held:
        busy = share.busy_percent or 0.0
        since_s, mean = before.get(process.identity, (now_s, busy))
        part = min(1.0, look_s / min(now_s - since_s + look_s, window_s))
        fresh[process.identity] = since_s, mean + (busy - mean) * part
    view.notes(gpu)["means"] = fresh
    return {identity: mean for identity, (since_s, mean) in fresh.items() if now_s - since_s >= window_s}


def _in_turns(view: View, gpu: Gpu, active: Sequence[Process], means: Mapping[Identity, float]) -> Finding:
    alone: Mapping[Identity, float] = view.notes(gpu).get("alone", {})
    kept = [
        means[process.identity] / alone[process.identity] for process in active if alone.get(process.identity, 0.0) > 0
    ]
    slowed = bool(kept) and max(kept) <= view.limit("kept")
    evidence = [
        Evidence(
            text=f"{named(process)}: {means[process.identity]:.0f} %{_before(alone.get(process.identity))}",
            value=means[process.identity],
            unit="%",
            limit=view.limit("each_percent"),
        )
        for process in sorted(active, key=lambda process: -means[process.identity])
    ]
    return view.found(
        gpu,
        "warn" if slowed else "info",
        f"is shared by {len(active)} programs that take turns",
        evidence=tuple(evidence[:6]),
        steps=(_elsewhere(view, active), *_side_by_side(gpu)),
        confidence=0.75,
        lost_share=1 - sum(kept) / len(kept) if slowed else None,
    )


def _before(percent: float | None) -> str:
    return "" if percent is None else f", {percent:.0f} % while it was alone"


def _elsewhere(view: View, active: Sequence[Process]) -> Step:
    """A free GPU for one of them, as far as it is known to be given to it: a container or a Slurm job has only some."""
    free = [one for one in view.frame.gpus if one.condition == "ok" and not view.tenants(one) and not one.mig_mode]
    if not free:
        return Step(text="let one wait for the other, or agree on who uses which GPU: none of this machine is free")
    for process in active:
        may = [one for one in given(view, process) if one in free] if counts_its_own(process) else free
        if may:
            who = named(process) if any(map(counts_its_own, active)) else "one of them"
            command = f"export CUDA_VISIBLE_DEVICES={names(view, may[:1], [process])}"
            return Step(text=f"start {who} on another GPU: {_are_free(may)}", command=command)
    return Step(text=f"start one of them on another GPU, if it was given one: {_are_free(free)} on this machine")


def _are_free(gpus: Sequence[Gpu]) -> str:
    return f"{', '.join(gpu.index for gpu in gpus[:4])} {'is' if len(gpus) == 1 else 'are'} free"


def _side_by_side(gpu: Gpu) -> Iterator[Step]:
    yield Step(
        text="small programs of one user run side by side under MPS, started before them",
        command="nvidia-cuda-mps-control -d",
    )
    if gpu.architecture in ("ampere", "hopper", "blackwell"):
        yield Step(
            text="or cut the GPU in instances, where the card can; it must be idle for that",
            command=f"sudo nvidia-smi -i {quote(gpu.index)} -mig 1",
            needs_root=True,
            destroys=True,
        )
