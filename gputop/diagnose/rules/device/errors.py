"""A rule on GPU and link faults: Xids as classified by NVIDIA's catalog, ECC, NVLink and PCIe errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from shlex import quote
from typing import NamedTuple

from gputop import units
from gputop.diagnose.finding import Evidence, Finding, Severity, Step
from gputop.diagnose.rule import Level, rule
from gputop.diagnose.steadying import RANKS
from gputop.diagnose.view import View
from gputop.labels import amount
from gputop.model import Gpu, Xid

# the catalog asks for an immediate GPU reset, or more
BROKEN: Mapping[int, str] = {
    46: "the GPU stopped processing",
    48: "a memory error that could not be corrected",
    62: "the controller of its power stopped",
    64: "a bad row of memory could not be replaced",
    74: "an error of an NVLink",
    79: "the GPU has fallen off the bus",
    95: "a memory error that was not contained",
    109: "a change of contexts that did not end",
    110: "a security fault",
    119: "the GPU's own processor does not answer",
    120: "the GPU's own processor failed",
    136: "an NVLink that could not be trained",
    140: "an error of the memory's own correction",
    143: "the GPU could not be initialised",
    158: "the GPU stopped answering",
    171: "an error of its memory that could not be corrected",
    172: "an error of its caches that could not be corrected",
}
# work continues: the GPU is reset when nothing runs on it
WORN: Mapping[int, str] = {
    63: "a bad row of memory is to be replaced",
    94: "a memory error that was contained",
    156: "a broken part of it is to be put out of use",
}
# of NVLink 5: the action is in a part of the message that comes without the number; the driver repeats urgent ones (Xid
# 154)
LINKS: Mapping[int, str] = dict.fromkeys((*range(144, 151), 155), "an error of an NVLink")
PROGRAMS: Mapping[int, str] = {
    13: "an exception of a kernel",
    31: "a wrong address of a kernel",
    32: "an invalid command of a program",
    43: "a kernel that did not come back",
    45: "a program that was ended",
    69: "an invalid call of a program",
    137: "a wrong address of a kernel on another GPU",
}
# covered by the recovery action; a corrected error of the link to a CPU; a test; continued power smoothing
HARMLESS = frozenset({106, 107, 121, 154, 162})


_UNREPAIRED = 64  # for which the GPU has no spare row left
# recovery actions with a command; buses and domains are for the administrator
_RESETS, _REBOOTS, _LATER = ("reset", "drain and reset"), ("reboot", "reboot system"), ("drain peers",)


class Fault(NamedTuple):
    """One fault."""

    severity: Severity
    text: str  # follows the GPU's name
    evidence: Evidence
    reset: bool = False  # a reset helps
    reboot: bool = False  # a reboot helps
    replace: bool = False  # the GPU must be replaced


@rule(
    "hw-errors",
    "Does a GPU or its link break?",
    level=Level.HARDWARE,
    state="broken",
    short="HW",
    needs=(),
    partly=("ecc_uncorrected",),
)
def hw_errors(view: View) -> Iterator[Finding]:
    """Errors reported or counted by the driver since the monitor started, rows not remapped, links that are down."""
    for gpu in view.gpus(silent=True):
        faults = [*_lost_gpu(gpu), *_xids(view, gpu), *_memory(view, gpu), *_recovery_fault(gpu), *_links(view, gpu)]
        if faults:
            yield _finding(view, gpu, sorted(faults, key=lambda fault: -RANKS[fault.severity]))
        elif gpu.parent_uuid is None and gpu.recovery_action is None:
            view.knows(gpu, "ecc_uncorrected")


def _lost_gpu(gpu: Gpu) -> Iterator[Fault]:
    if gpu.condition == "lost":
        text = f"lost for {units.ago(gpu.condition_s)}"
        yield Fault("crit", "no longer answers the driver", Evidence(text=text, value=gpu.condition_s), reset=True)


def _xids(view: View, gpu: Gpu) -> Iterator[Fault]:
    """Xids reported by the driver; those caused by programs are marked as such."""
    for xid in {one.number: one for one in gpu.xids}.values():
        ago_s = view.frame.wall_s - xid.wall_s
        program = xid.number in PROGRAMS
        if xid.number in HARMLESS or ago_s >= view.limit("program_s" if program else "remembered_s"):
            continue
        evidence = Evidence(text=f"Xid {xid.number} {units.ago(max(0.0, ago_s))} ago", value=float(xid.number))
        if program:
            text = f"{PROGRAMS[xid.number]}: most likely a fault of the program"
            yield Fault("info", _reported(xid, text), evidence)
        elif broken := BROKEN.get(xid.number):
            yield Fault("crit", _reported(xid, broken), evidence, reset=True, replace=xid.number == _UNREPAIRED)
        else:
            said = WORN.get(xid.number) or LINKS.get(xid.number)
            yield Fault("warn", _reported(xid, said), evidence, reset=xid.number in WORN)


def _reported(xid: Xid, text: str | None) -> str:
    return f"reported Xid {xid.number}, {text}" if text else f"reported Xid {xid.number}"


def _memory(view: View, gpu: Gpu) -> Iterator[Fault]:
    """Device memory: errors since the monitor started, and what is left of the spare rows."""
    notes, wrong = view.notes(gpu), gpu.ecc_uncorrected
    if wrong is not None:
        first = notes["ecc"] = min(notes.get("ecc", wrong), wrong)
        if wrong > first:
            text = f"{amount(wrong - first, 'memory error')} could not be corrected since gputop looks"
            evidence = Evidence(text=text, value=float(wrong - first), limit=0.0)
            yield Fault("crit", "has memory errors that could not be corrected", evidence, reset=True)
    if gpu.remap_failed:
        evidence = Evidence(text="no spare row is left for it", value=1.0, limit=0.0)
        yield Fault("crit", "could not replace a bad row of its memory", evidence, replace=True)
    if gpu.remap_pending or gpu.retirement_pending:
        evidence = Evidence(text="a bad row or page is set aside; work goes on", value=1.0, limit=0.0)
        yield Fault("warn", "waits for a reset to replace bad memory", evidence, reset=True)
    for name, what in (("remapped_uncorrected", "rows"), ("retired_pages", "pages")):
        count = getattr(gpu, name)
        if count is not None and count >= view.limit(name):
            evidence = Evidence(text=f"{count} {what} of memory replaced", value=float(count), limit=view.limit(name))
            spent = what == "pages" and count >= view.limit("retired_pages_most")
            text = "wears out: much of its memory was replaced"
            yield Fault("crit" if spent else "warn", text, evidence, replace=spent)


def _recovery_fault(gpu: Gpu) -> Iterator[Fault]:
    if gpu.recovery_action not in (None, "none"):
        asked = gpu.recovery_action
        evidence = Evidence(text=f"recovery action: {asked}", value=1.0, limit=0.0)
        severity: Severity = "warn" if asked in _LATER else "crit"
        text = f"asks for this to work again: {asked}"
        yield Fault(severity, text, evidence, reset=asked in _RESETS, reboot=asked in _REBOOTS)


def _links(view: View, gpu: Gpu) -> Sequence[Fault]:
    """Faults of its NVLinks, which are polled every ten seconds."""
    if gpu.nvlinks_active is None and not gpu.nvlinks:
        return ()
    notes, now_s = view.notes(gpu), view.frame.mono_s
    if now_s >= notes.get("links_s", now_s):
        notes["links_s"], notes["links"] = now_s + view.limit("links_s"), tuple(_link_faults(view, gpu))
    faults: Sequence[Fault] = notes["links"]
    return faults


def _link_faults(view: View, gpu: Gpu) -> Iterator[Fault]:
    """NVLinks with replays, recoveries or losses since the monitor started, or down while those of its peers are up."""
    again = damaged = 0
    for link in gpu.nvlinks:
        many = len(units.parse_ranges(link.numbers)) if link.numbers else 1
        again += many * ((link.replays or 0) + (link.recoveries or 0))
        damaged += many * (link.crc_errors or 0)
    if gpu.nvlinks and gpu.condition == "ok":
        per_s = _rate(view, gpu, "damaged", damaged, view.limit("crc_s"))
        if per_s is not None and per_s >= view.limit("crc_per_s"):
            text = f"{per_s:.0f} damaged packets a second on its NVLinks"
            evidence = Evidence(text=text, value=per_s, unit="1/s", limit=view.limit("crc_per_s"))
            yield Fault("crit", "has NVLinks that damage data", evidence)
        per_s = _rate(view, gpu, "again", again, view.limit("again_s"))
        if per_s is not None and 60 * per_s >= view.limit("again_per_min"):
            text = f"{60 * per_s:.1f} times a minute an NVLink sent again or recovered"
            evidence = Evidence(text=text, value=60 * per_s, unit="1/min", limit=view.limit("again_per_min"))
            yield Fault("warn", "has NVLinks that fail now and then", evidence)
    if (up := gpu.nvlinks_active) is not None:
        notes = view.notes(gpu)
        notes["most_up"] = most = max(up, notes.get("most_up", up), _links_of_peers(view, gpu))
        if up < most:
            evidence = Evidence(text=f"{up} of {most} NVLinks are up", value=float(up), limit=float(most))
            yield Fault("warn", f"has {amount(most - up, 'NVLink')} down", evidence, reset=True)


def _links_of_peers(view: View, gpu: Gpu) -> int:
    """NVLinks up on all other GPUs of its kind, if enough agree (0 if not); bridges are wired individually."""
    others = [one.nvlinks_active for one in view.frame.gpus if one.name == gpu.name and one.uuid != gpu.uuid]
    known = {up for up in others if up is not None}
    return known.pop() if len(others) >= view.limit("sisters") and len(known) == 1 and None not in others else 0


def _rate(view: View, gpu: Gpu, name: str, count: int, window_s: float) -> float | None:
    """Growth of a counter per second, over the window and a little more; None before that has passed."""
    looks: list[tuple[float, int]] = view.notes(gpu).setdefault(name, [])
    now_s = view.frame.mono_s
    if looks and count < looks[-1][1]:
        looks.clear()
    if not looks or now_s - looks[-1][0] >= window_s / 6:
        looks.append((now_s, count))
    while len(looks) > 1 and now_s - looks[1][0] >= window_s:
        del looks[0]
    since_s, before = looks[0]
    return (count - before) / (now_s - since_s) if now_s - since_s >= window_s else None


def _finding(view: View, gpu: Gpu, faults: Sequence[Fault]) -> Finding:
    steps = []
    if all(fault.severity == "info" for fault in faults):
        steps.append(
            Step(text="look for what the program did then; only if it comes with many programs it is the card")
        )
        steps.append(Step(text="find the kernel at fault", command="export CUDA_LAUNCH_BLOCKING=1"))
    else:
        steps.append(Step(text="save what runs on it: a checkpoint now, then start no more there"))
    if any(fault.reset for fault in faults):
        steps.append(
            Step(
                text="reset it as soon as nothing runs on it; NVLink partners must rest too",
                command=f"sudo nvidia-smi -r -i {quote(gpu.index)}",
                needs_root=True,
                destroys=True,
            )
        )
    if any(fault.reboot for fault in faults):
        reboot, text = "sudo systemctl reboot", "restart the machine as soon as nothing runs on it"
        steps.append(Step(text=text, command=reboot, needs_root=True, destroys=True))
    if faults[0].severity != "info":
        test = f"sudo dcgmi diag -r 2 -i {quote(gpu.index)}"
        steps.append(Step(text="test it afterwards, idle", command=test, needs_root=True))
        log = "sudo dmesg | grep -E 'NVRM|Xid'"
        steps.append(Step(text="keep what the kernel said of it, for the vendor", command=log, needs_root=True))
    if any(fault.replace for fault in faults):
        steps.append(Step(text="have the card replaced (RMA): this does not heal"))
    return view.found(
        gpu,
        faults[0].severity,
        faults[0].text,
        evidence=tuple(dict.fromkeys(fault.evidence for fault in faults)),
        steps=tuple(steps),
        confidence=0.98,
        grade="driver",
    )
