"""The NVIDIA driver: whether it responds, whether module and library match, whether a GPU is missing."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator

from gputop import labels
from gputop.doctor.check import CheckLine, Status, check
from gputop.doctor.machine import DoctorContext
from gputop.doctor.nvidia import PATIENCE_S, NvidiaFacts
from gputop.invocation import as_root

LOG = "sudo dmesg | grep -E 'NVRM|Xid'"
_CONTAINER = "docker run --gpus all IMAGE"
# remedy by reason, in a container and on a host
_REMEDIES: dict[str, tuple[str | None, str | None]] = {
    "no-library": (_CONTAINER, None),
    "not-loaded": (_CONTAINER, "sudo modprobe nvidia"),
    "no-permission": (_CONTAINER, None),  # on a host by user
    "lost-access": ("docker restart CONTAINER", LOG),
    "unknown-error": (LOG, LOG),
    "blocked": (_CONTAINER, LOG),
    "no-supported-gpu": (_CONTAINER, LOG),
}
_COVERED_ELSEWHERE = {  # another line covers it, with the remedy
    "mismatch": "no program can use a GPU: see match",
    "shadowed-pynvml": "cannot be queried without nvidia-ml-py: see pynvml",
}


@check("driver", "Does the NVIDIA driver respond?")
def responds(machine: DoctorContext) -> Iterator[CheckLine]:
    """Its version and GPUs, or why it does not respond."""
    facts = machine.driver.facts()
    value = {"driver": facts.version, "cuda": facts.cuda, "gpus": len(facts.cards), "gpus_on_bus": facts.in_sys}
    if facts.hanging:
        what = f"no response from the driver for {PATIENCE_S:g} s ({facts.hanging} does not return)"
        yield CheckLine("missing", what, LOG, value)
    elif facts.note:
        yield CheckLine(*_failure(facts, machine), value)
    elif not facts.cards:
        yield CheckLine(
            "missing", f"driver {facts.version} responds but lists no GPU", _remedy(machine, _CONTAINER), value
        )
    else:
        counted = Counter(card.name for card in facts.cards if card.name)
        listed = ", ".join(f"{number} x {name}" for name, number in counted.items())
        what = f"driver {facts.version} responds: {listed or 'no GPU does'}"
        if facts.folder:
            what = (
                f"{what}; its libraries are in {facts.folder}, outside the linker's search path: CUDA may not find them"
            )
            yield CheckLine(
                "limited", what, _into_path(facts.folder, machine), {**value, "library_folder": facts.folder}
            )
        else:
            yield CheckLine("ok", what, value=value)


@check("match", "Do the kernel module and the driver library match?")
def match(machine: DoctorContext) -> Iterator[CheckLine]:
    """Versions of module and library; after an upgrade they differ until a reboot."""
    facts = machine.driver.facts()
    kernel, library = facts.kernel, facts.library
    value = {"kernel": kernel, "library": library}
    if kernel is None:
        yield CheckLine("unknown", "no NVIDIA kernel module is loaded here", value=value)
    elif library is None:
        off = facts.note is not None and facts.note.key == "off"
        why = "was not queried" if off else "did not report its version"
        yield CheckLine("unknown", f"kernel module {kernel}; the library {why}", value=value)
    elif kernel == library:
        yield CheckLine("ok", f"kernel module and library are both {kernel}", value=value)
    else:
        what = f"kernel module {kernel}, library {library}: new CUDA programs fail, running jobs continue"
        yield CheckLine("missing", what, "sudo reboot", value)


@check("gpus", "Does every GPU respond?")
def every_gpu(machine: DoctorContext) -> Iterator[CheckLine]:
    """GPUs that are listed but silent, or on the bus but not listed."""
    facts = machine.driver.facts()
    silent = [index for index, card in enumerate(facts.cards) if card.name is None]
    hidden = facts.in_sys - len(facts.cards)
    value = {"silent": silent, "on_bus": facts.in_sys, "listed": len(facts.cards)}
    if silent:
        which = ", ".join(map(str, silent))
        yield CheckLine("missing", f"GPU {which} does not respond; the others do", LOG, value)
    elif facts.hanging or facts.note:
        what = (
            f"{labels.amount(facts.in_sys, 'NVIDIA GPU')} on the PCI bus, not queried"
            if facts.in_sys
            else "none on the PCI bus, none listed by the driver"
        )
        yield CheckLine("unknown", what, value=value)
    elif hidden > 0:
        what = f"{facts.in_sys} GPUs on the PCI bus, {len(facts.cards)} listed by the driver"
        yield CheckLine("limited", what, _CONTAINER if machine.in_container else LOG, value)
    elif facts.cards:
        yield CheckLine("ok", f"{labels.amount(len(facts.cards), 'GPU')}, all responding", value=value)
    else:
        yield CheckLine("unknown", "none listed", value=value)


def _failure(facts: NvidiaFacts, machine: DoctorContext) -> tuple[Status, str, str | None]:
    """Status, text and remedy of a driver that could not be opened."""
    note = facts.note
    assert note is not None
    if note.key == "off":
        return "unknown", "not queried, as --no-nvml says: run gputop doctor without it", None
    if note.key == "asleep":
        return "unknown", note.text, None
    text = _COVERED_ELSEWHERE.get(note.key, note.text).rstrip(".")
    if machine.in_container:
        remedy = _REMEDIES.get(note.key, (None, None))[0]
        if remedy == _CONTAINER and not facts.in_sys:
            text = f"{text}; none on the PCI bus either: only if the host has one, start the container with it"
        return "missing", text, remedy
    if note.key == "no-permission":
        return "missing", text, as_root("doctor") if machine.uid != 0 else None
    if note.key != "no-library":
        return "missing", text, _REMEDIES.get(note.key, (None, None))[1]
    if not facts.in_sys:
        return "missing", text, "gputop demo"
    text = f"{labels.amount(facts.in_sys, 'NVIDIA GPU')} on the PCI bus but no driver: libnvidia-ml.so.1 is missing"
    if machine.exists("/usr/bin/ubuntu-drivers"):
        return "missing", text, "sudo ubuntu-drivers install"
    # other distributions name the package differently, or have it in an optional repository
    return "missing", f"{text}; install NVIDIA's driver for this distribution", None


def _into_path(folder: str, machine: DoctorContext) -> str:
    """Command that adds a folder to the loader's search path: permanently if possible, else for this shell."""
    place = shlex.quote(folder)
    if machine.exists("/etc/ld.so.conf.d") and not machine.in_container:
        return f"echo {place} | sudo tee /etc/ld.so.conf.d/nvidia.conf && sudo ldconfig"
    return f"export LD_LIBRARY_PATH={place}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"  # an empty entry is the current one


def _remedy(machine: DoctorContext, in_container: str) -> str:
    return in_container if machine.in_container else LOG
