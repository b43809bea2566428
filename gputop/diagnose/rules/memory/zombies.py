"""A rule on device memory held for nothing: by processes that ended, stopped, or wait for their user."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from shlex import quote
from typing import NamedTuple

from gputop import units
from gputop.diagnose.finding import Evidence, Finding, Step
from gputop.diagnose.job_states import unnamed
from gputop.diagnose.program_kind import is_notebook, serves, trains
from gputop.diagnose.rule import Level, rule
from gputop.diagnose.rules.memory.device import Held as Named
from gputop.diagnose.rules.memory.device import holders, named
from gputop.diagnose.steps import stack
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.view import View
from gputop.model import Gpu, GpuShare, Identity, Missing, Process, Role

_LOADER = "pt_data_w"


class HeldForNothing(NamedTuple):
    """Device memory held for nothing: bytes, holder, and remedy."""

    bytes: int
    text: str  # follows `held by`
    steps: tuple[Step, ...]
    meant: bool = False  # possibly intended: stopped by a debugger, or left for later
    since: str = ""  # how long it has been idle, if it could continue: follows the text
    idle_s: float | None = None  # the same in seconds


@rule(
    "zombie-memory",
    "Is GPU memory held by processes that do not use it?",
    level=Level.DEVICE,
    state="mem held",
    short="HELD",
    needs=(),
    partly=("vram_used_bytes", "vram_total_bytes", "vram_bytes", "gpus", "busy_percent", "cpu_percent"),
)
def zombie_memory(view: View) -> Iterator[Finding]:
    """Memory of exited, zombie, orphaned, suspended or long idle processes, or of no visible process."""
    idle_s, here = _idle_s(view), holders(view)
    for gpu in view.gpus():
        if gpu.unified_memory or gpu.mig_mode or gpu.virtualization in ("vgpu", "host"):
            continue
        named_here = here.get(gpu.uuid, ())
        found = [one for process, share in named_here if (one := _held_for_nothing(view, process, share, idle_s))]
        if (nobodys := _unowned_memory(view, gpu, named_here)) is not None:
            found.append(nobodys)
        if found:
            yield _finding(view, gpu, sorted(found, key=lambda one: -one.bytes))


def _held_for_nothing(
    view: View, process: Process, share: GpuShare, idle: Mapping[Identity, float]
) -> HeldForNothing | None:
    """What one process holds for nothing."""
    held, name = share.vram_bytes or 0, named(process)
    if process.unseen == "exited":
        # without a known size it is not certain that anything is held
        known = share.vram_bytes is not None
        return HeldForNothing(held, f"leaked by exited PID {process.pid}", _GONE) if known else None
    if process.unseen is not None or held < view.limit("least_bytes"):
        return None
    if process.state == "Z":
        parent = Step(text=f"Let its parent, PID {process.parent_pid}, reap it, or terminate the parent")
        return HeldForNothing(held, f"leaked by {name}, a zombie", (parent, *_GONE[1:]))
    if process.state in ("T", "t"):
        text = f"held by {name}, suspended"
        return HeldForNothing(held, text, (_release_step(view, process, "resume", "kill -CONT"),), meant=True)
    if _is_orphan(view, process):
        text = f"leaked by {name}, an orphaned worker"
        return HeldForNothing(held, text, (_release_step(view, process, "terminate", "kill", destroys=True),))
    idle_s = idle.get(process.identity)
    if idle_s is None or idle_s < view.limit("idle_s"):
        return None
    since = f", idle for at least {units.ago_text(idle_s)}"
    return HeldForNothing(
        held,
        f"held by {name}",
        tuple(_resume_steps(view, process)),
        meant=not _should_not_idle(view, process),
        since=since,
        idle_s=idle_s,
    )


def _should_not_idle(view: View, process: Process) -> bool:
    """Whether it should not be idle for so long: other programs may wait for requests."""
    return any(one.identity == process.identity and (is_notebook(one) or trains(one)) for one in view.vectors())


def _is_orphan(view: View, process: Process) -> bool:
    """Whether it is a loader of an ended trainer: adopted by init, or by a user's init."""
    if not process.name.startswith(_LOADER):
        return False
    parent = next((one for one in view.frame.processes if one.pid == process.parent_pid), None)
    if parent is None:
        return process.parent_pid == 1
    # in a container the trainer may be PID 1
    return parent.name == "systemd" or (parent.pid == 1 and parent.role is not Role.TRAINER)


def _idle_s(view: View) -> Mapping[Identity, float]:
    """Seconds that trainers have been idle while watched; without servers, and those with active relatives."""
    resting, awake = [], set()
    for one in view.vectors():
        if _idle(view, one):
            resting.append(one)
        else:
            awake.add(one.process.job or one.identity)
    notes, now_s = view.notes(view.frame.host), view.frame.mono_s
    before: Mapping[Identity, float] = notes.get("since_s", {})
    notes["since_s"] = since_s = {
        one.identity: before.get(one.identity, now_s)
        for one in resting
        if one.process.job not in awake and not serves(one)
    }
    return {identity: now_s - began_s for identity, began_s in since_s.items()}


def _idle(view: View, trainer: Trainer) -> bool:
    """Whether neither GPU nor CPUs work for it; unknown values do not count as idle."""
    if not trainer.gpus or not view.knows(trainer, "duty", "cores"):
        return False
    duty = trainer.duty
    return view.below(trainer.cores, "idle_cores") and duty is not None and 100 * duty <= view.limit("idle_percent")


def _unowned_memory(view: View, gpu: Gpu, named_here: Named) -> HeldForNothing | None:
    """Memory in use without an owner among the named processes, on an idle GPU."""
    if not view.knows(gpu, "vram_used_bytes", "vram_total_bytes"):
        return None
    if gpu.numa_memory:  # the kernel keeps pages of ended processes, and files: no driver fault
        view.abstain(gpu, Missing(metric="vram_used_bytes", reason="unsupported"))
        return None
    if any(share.vram_bytes is None for _, share in named_here):
        view.abstain(gpu, Missing(metric="vram_bytes", reason="unsupported"))
        return None
    rest = (gpu.vram_used_bytes or 0) - sum(share.vram_bytes or 0 for _, share in named_here)
    least = max(view.limit("nobodys_bytes"), view.limit("nobodys_share") * (gpu.vram_total_bytes or 0))
    if rest < least:
        return None
    busy = view.mean(gpu, "busy_percent")
    if busy is None or busy >= view.limit("busy_percent"):
        return None
    if gpu.unlisted or any("cuda" in process.libraries and not process.gpus for process in view.frame.processes):
        view.abstain(gpu, unnamed(view, gpu))  # it may belong to that process
        return None
    orphans = [one for one in view.frame.processes if _is_orphan(view, one)]
    perhaps = f", possibly by {named(orphans[0])}, an orphaned worker" if orphans else ""
    return HeldForNothing(rest, f"held by no visible process{perhaps}", _unowned_steps(gpu))


def _finding(view: View, gpu: Gpu, found: Sequence[HeldForNothing]) -> Finding:
    busy, more = view.mean(gpu, "busy_percent"), f", and {len(found) - 1} more" if len(found) > 1 else ""
    evidence = [
        Evidence(text=f"{units.size(one.bytes)} {one.text}{one.since}", value=float(one.bytes), unit="B")
        for one in found[:6]
    ]
    if busy is not None:
        text = f"{view.reading(gpu, busy)} over the last {view.limit('window_s'):.0f} s"
        least = view.limit("busy_percent")
        evidence.append(Evidence(text=text, value=busy, unit="%", limit=least, sense="flagged_below"))
    idle = ", idle" if found[0].since else ""
    return view.found(
        gpu,
        "info" if all(one.meant for one in found) else "warn",
        f"{units.size(sum(one.bytes for one in found))} of GPU memory {found[0].text}{idle}{more}",
        evidence=tuple(evidence),
        steps=tuple(dict.fromkeys(step for one in found[:3] for step in one.steps)),
        confidence=0.85,
        grade="driver",
        lost_share=None if busy is None else 1 - busy / 100,
        cost="none",
        onset_s=found[0].idle_s,
    )


def _release_step(view: View, process: Process, purpose: str, how: str, *, destroys: bool = False) -> Step:
    """A step only its owner can take: other users see the owner's name and no command."""
    owner, command = process.user or "its owner", f"{how} {process.pid}"
    if not _is_users(view, process):
        return Step(text=f"Ask {owner} to {purpose} it: only its owner or root can", destroys=destroys)
    return Step(text=f"{purpose.capitalize()} it, unless it is needed as it is", command=command, destroys=destroys)


def _is_users(view: View, process: Process) -> bool:
    """Whether it belongs to the user; root sees all."""
    return process.uid is not None and process.uid == view.frame.viewer_uid


def _resume_steps(view: View, process: Process) -> Iterator[Step]:
    owner = process.user or "its owner"
    if any(one.identity == process.identity and is_notebook(one) for one in view.vectors()):
        yield Step(text=f"Ask {owner} to shut down its kernel (Kernel, Shut Down): closing the tab leaves it running")
        yield Step(text="Or free unused memory in a cell", command="del model; torch.cuda.empty_cache()")
    elif _is_users(view, process):
        yield stack(view, process, "Check whether it is still needed: it is idle")
    else:
        yield Step(text=f"Ask {owner} whether it is still needed: it is idle")
    lost = "its state in memory is lost"
    if _is_users(view, process):
        yield Step(text=f"Terminate it, if no longer needed: {lost}", command=f"kill {process.pid}", destroys=True)
    else:
        yield Step(text=f"Have {owner} or root terminate it: {lost}", destroys=True)


def _unowned_steps(gpu: Gpu) -> tuple[Step, ...]:
    return (
        Step(
            text="Check which processes have the device open, of other users and containers too",
            command="sudo fuser -v /dev/nvidia*",
            needs_root=True,
        ),
        Step(
            text="If none has, reset the GPU once nothing runs on it: the driver missed an exit",
            command=f"sudo nvidia-smi -r -i {quote(gpu.index)}",
            needs_root=True,
            destroys=True,
        ),
    )


_GONE = (
    Step(text="Wait a minute: the driver frees the memory of a process when its last call returns"),
    Step(
        text="Check which processes have the device open: a child may have inherited it",
        command="sudo fuser -v /dev/nvidia*",
        needs_root=True,
    ),
    Step(
        text="If the memory stays, check the driver for errors: it may hang",
        command="sudo dmesg | grep -E 'NVRM|Xid'",
        needs_root=True,
    ),
)
