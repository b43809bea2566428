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
    46: "GPU stopped processing",
    48: "double-bit ECC error",
    62: "PMU halt error",
    64: "row remapping failed",
    74: "NVLink error",
    79: "GPU has fallen off the bus",
    95: "uncontained memory error",
    109: "context switch timeout",
    110: "security fault",
    119: "GSP RPC timeout",
    120: "GSP error",
    136: "NVLink training failed",
    140: "unrecovered ECC error",
    143: "GPU initialization failed",
    158: "GPU fatal timeout",
    171: "uncorrectable DRAM error",
    172: "uncorrectable SRAM error",
}
# work continues: the GPU is reset when nothing runs on it
WORN: Mapping[int, str] = {
    63: "row remapping pending",
    94: "contained memory error",
    156: "resource retirement pending",
}
# of NVLink 5: the action is in a part of the message that comes without the number; the driver repeats urgent ones (Xid
# 154)
LINKS: Mapping[int, str] = dict.fromkeys((*range(144, 151), 155), "NVLink error")
PROGRAMS: Mapping[int, str] = {
    13: "graphics engine exception",
    31: "GPU memory page fault",
    32: "invalid push buffer stream",
    43: "channel reset after a fault",
    45: "cleanup after program termination",
    69: "graphics engine class error",
    137: "invalid address on a peer GPU",
}
# covered by the recovery action; a corrected error of the link to a CPU; a test; continued power smoothing
HARMLESS = frozenset({106, 107, 121, 154, 162})


_UNREPAIRED = 64  # for which the GPU has no spare row left
# recovery actions with a command; buses and domains are for the administrator
_RESETS, _REBOOTS, _LATER = ("reset", "drain and reset"), ("reboot", "reboot system"), ("drain peers",)


class Fault(NamedTuple):
    """One fault."""

    severity: Severity
    text: str  # follows the GPU's name and a colon
    evidence: Evidence
    reset: bool = False  # a reset helps
    reboot: bool = False  # a reboot helps
    replace: bool = False  # the GPU must be replaced


@rule(
    "hw-errors",
    "Does a GPU or an NVLink report hardware errors?",
    level=Level.HARDWARE,
    state="broken",
    short="HW",
    needs=(),
    partly=("ecc_uncorrected",),
)
def hw_errors(view: View) -> Iterator[Finding]:
    """Xids and errors counted by the driver since gputop started, failed row remapping, NVLinks down."""
    for gpu in view.gpus(silent=True):
        faults = [*_lost_gpu(gpu), *_xids(view, gpu), *_memory(view, gpu), *_recovery_fault(gpu), *_links(view, gpu)]
        if faults:
            yield _finding(view, gpu, sorted(faults, key=lambda fault: -RANKS[fault.severity]))
        elif gpu.parent_uuid is None and gpu.recovery_action is None:
            view.knows(gpu, "ecc_uncorrected")


def _lost_gpu(gpu: Gpu) -> Iterator[Fault]:
    if gpu.condition == "lost":
        text = f"no driver response for {units.ago_text(gpu.condition_s)}"
        yield Fault("crit", "lost, no response to the driver", Evidence(text=text, value=gpu.condition_s), reset=True)


def _xids(view: View, gpu: Gpu) -> Iterator[Fault]:
    """Xids reported by the driver; those caused by programs are marked as such."""
    for xid in {one.number: one for one in gpu.xids}.values():
        ago_s = view.frame.wall_s - xid.wall_s
        program = xid.number in PROGRAMS
        if xid.number in HARMLESS or ago_s >= view.limit("program_s" if program else "remembered_s"):
            continue
        evidence = Evidence(text=f"Xid {xid.number}, {units.ago_text(max(0.0, ago_s))} ago", value=float(xid.number))
        if program:
            text = f"{PROGRAMS[xid.number]}, likely a program error"
            yield Fault("info", _reported(xid, text), evidence)
        elif broken := BROKEN.get(xid.number):
            yield Fault("crit", _reported(xid, broken), evidence, reset=True, replace=xid.number == _UNREPAIRED)
        else:
            said = WORN.get(xid.number) or LINKS.get(xid.number)
            yield Fault("warn", _reported(xid, said), evidence, reset=xid.number in WORN)


def _reported(xid: Xid, text: str | None) -> str:
    return f"Xid {xid.number}, {text}" if text else f"Xid {xid.number}"


def _memory(view: View, gpu: Gpu) -> Iterator[Fault]:
    """Device memory: errors since the monitor started, and what is left of the spare rows."""
    notes, wrong = view.notes(gpu), gpu.ecc_uncorrected
    if wrong is not None:
        first = notes["ecc"] = min(notes.get("ecc", wrong), wrong)
        if wrong > first:
            text = f"{amount(wrong - first, 'uncorrectable memory error')} since gputop started"
            evidence = Evidence(text=text, value=float(wrong - first), limit=0.0, sense="healthy_to")
            yield Fault("crit", "uncorrectable memory errors", evidence, reset=True)
    if gpu.remap_failed:
        evidence = Evidence(text="no spare rows left", value=1.0, limit=0.0, sense="healthy_to")
        yield Fault("crit", "row remapping failed", evidence, replace=True)
    if gpu.remap_pending or gpu.retirement_pending:
        repair = "row remapping" if gpu.remap_pending else "page retirement"
        text = f"{repair} pending; running jobs are not affected"
        evidence = Evidence(text=text, value=1.0, limit=0.0, sense="healthy_to")
        yield Fault("warn", f"{repair} pending, GPU reset required", evidence, reset=True)
    for name, what in (("remapped_uncorrected", "rows remapped"), ("retired_pages", "pages retired")):
        count = getattr(gpu, name)
        if count is not None and count >= view.limit(name):
            text, most = f"{count} {what} in device memory", view.limit(name)
            evidence = Evidence(text=text, value=float(count), limit=most, sense="flagged_from")
            spent = name == "retired_pages" and count >= view.limit("retired_pages_most")
            yield Fault("crit" if spent else "warn", f"degraded memory, many {what}", evidence, replace=spent)


def _recovery_fault(gpu: Gpu) -> Iterator[Fault]:
    if gpu.recovery_action not in (None, "none"):
        asked = gpu.recovery_action
        evidence = Evidence(text=f"driver recovery action: {asked}", value=1.0, limit=0.0, sense="healthy_to")
        severity: Severity = "warn" if asked in _LATER else "crit"
        text = f"recovery required, {asked}"
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
            text, most = f"NVLink CRC errors {per_s:.0f}/s", view.limit("crc_per_s")
            evidence = Evidence(text=text, value=per_s, unit="1/s", limit=most, sense="healthy_to")
            yield Fault("crit", "NVLink CRC errors", evidence)
        per_s = _rate(view, gpu, "again", again, view.limit("again_s"))
        if per_s is not None and 60 * per_s >= view.limit("again_per_min"):
            text, most = f"NVLink replays and recoveries {60 * per_s:.1f}/min", view.limit("again_per_min")
            evidence = Evidence(text=text, value=60 * per_s, unit="1/min", limit=most, sense="healthy_to")
            yield Fault("warn", "unstable NVLinks, replays and recoveries", evidence)
    if (up := gpu.nvlinks_active) is not None:
        notes = view.notes(gpu)
        notes["most_up"] = most = max(up, notes.get("most_up", up), _links_of_peers(view, gpu))
        if up < most:
            text = f"{up} of {most} NVLinks up"
            evidence = Evidence(text=text, value=float(up), limit=float(most), sense="healthy_from")
            yield Fault("warn", f"{amount(most - up, 'NVLink')} down", evidence, reset=True)


def _links_of_peers(view: View, gpu: Gpu) -> int:
    """NVLinks up on all other GPUs of its kind, if enough agree (0 if not); bridges are wired individually."""
    others = [one.nvlinks_active for one in view.frame.gpus if one.name == gpu.name and one.uuid != gpu.uuid]
    known = {up for up in others if up is not None}
    return known.pop() if len(others) >= view.limit("sisters") and len(known) == 1 and None not in others else 0


def _rate(view: View, gpu: Gpu, name: str, count: int, window_s: float) -> float | None:
    """Growth of a counter per second, over the window and a little more; None before that has passed."""
    samples: list[tuple[float, int]] = view.notes(gpu).setdefault(name, [])
    now_s = view.frame.mono_s
    if samples and count < samples[-1][1]:
        samples.clear()
    if not samples or now_s - samples[-1][0] >= window_s / 6:
        samples.append((now_s, count))
    while len(samples) > 1 and now_s - samples[1][0] >= window_s:
        del samples[0]
    since_s, before = samples[0]
    return (count - before) / (now_s - since_s) if now_s - since_s >= window_s else None


def _finding(view: View, gpu: Gpu, faults: Sequence[Fault]) -> Finding:
    steps = []
    if all(fault.severity == "info" for fault in faults):
        steps.append(Step(text="Check the program's log; suspect the GPU only if several programs trigger this Xid"))
        steps.append(Step(text="Locate the failing kernel", command="export CUDA_LAUNCH_BLOCKING=1"))
    else:
        steps.append(Step(text="Checkpoint running jobs now and start no new ones on this GPU"))
    if any(fault.reset for fault in faults):
        steps.append(
            Step(
                text="Reset the GPU once it is idle; its NVLink peers must be idle too",
                command=f"sudo nvidia-smi -r -i {quote(gpu.index)}",
                needs_root=True,
                destroys=True,
            )
        )
    if any(fault.reboot for fault in faults):
        reboot, text = "sudo systemctl reboot", "Reboot the machine once no job runs on it"
        steps.append(Step(text=text, command=reboot, needs_root=True, destroys=True))
    if faults[0].severity != "info":
        test = f"sudo dcgmi diag -r 2 -i {quote(gpu.index)}"
        steps.append(Step(text="Run diagnostics afterwards, on the idle GPU", command=test, needs_root=True))
        log = "sudo dmesg | grep -E 'NVRM|Xid'"
        steps.append(Step(text="Save the kernel log for the vendor", command=log, needs_root=True))
    if any(fault.replace for fault in faults):
        steps.append(Step(text="Replace the GPU (RMA): the fault is permanent"))
    return view.found(
        gpu,
        faults[0].severity,
        faults[0].text,
        evidence=tuple(dict.fromkeys(fault.evidence for fault in faults)),
        steps=tuple(steps),
        confidence=0.98,
        grade="driver",
    )
