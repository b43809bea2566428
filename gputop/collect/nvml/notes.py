"""Why the driver cannot be asked, in words: one note a cause, with lines that help."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Sequence
from ctypes import CDLL
from typing import NamedTuple

from gputop.collect.nvml import pci
from gputop.collect.nvml.cadence import CALL_S
from gputop.collect.nvml.gate import (
    BLOCKED,
    DRIVER_NOT_LOADED,
    LIBRARY_NOT_FOUND,
    MISMATCH,
    NO_GPU,
    NO_PERMISSION,
    SHADOWED,
    UNINITIALIZED,
    UNKNOWN,
    DriverGate,
    DriverGone,
    Late,
    Unanswered,
)
from gputop.invocation import as_root
from gputop.model import Note
from gputop.safe.identity import in_container
from gputop.safe.programs import unfit
from gputop.safe.text import clean, decode
from gputop.units import ago_text

NAME = "libnvidia-ml.so.1"
OWNERS = frozenset({0})  # users that may have put it there
WSL = "/usr/lib/wsl/lib"
_MACHINE = os.uname().machine
FOLDERS = (
    WSL,  # from Windows
    "/usr/lib64-nvidia",  # Colab
    "/usr/local/nvidia/lib64",  # GKE and others that mount the driver into containers
    "/usr/local/nvidia/lib",
    "/run/opengl-driver/lib",  # NixOS
    f"/usr/lib/{_MACHINE}-linux-gnu/nvidia/current",  # Debian, without its alternatives
    f"/usr/lib/{_MACHINE}-linux-gnu/nvidia",  # Jetson from JetPack 6 on
    f"/usr/lib/{_MACHINE}-linux-gnu/tegra",  # Jetson before
    f"/usr/lib/{_MACHINE}-linux-gnu",  # an interpreter whose loader is not the system's: conda, musl, Nix
    "/usr/lib64",
    "/usr/lib64/nvidia",
    "/usr/lib/nvidia",
    "/home/kubernetes/bin/nvidia/lib64",  # Container-Optimized OS
    "/var/lib/nvidia/lib64",
    "/run/nvidia/driver/usr/lib64",  # NVIDIA's GPU operator
    f"/run/nvidia/driver/usr/lib/{_MACHINE}-linux-gnu",
)
_MAPPED, _MAPS = re.compile(rb" (/[^\n]*)/libnvidia-ml\.so[^/\n]*\n"), 1 << 22
_BESIDE = ("libdxcore.so",)  # what that of WSL asks the loader for, in vain, unless it is loaded already


class UnloadedLibrary(NamedTuple):
    """A library that the loader does not find, and why it is not loaded, if it is not."""

    path: str
    refused: str | None = None

    @property
    def folder(self) -> str:
        """Where it is."""
        return os.path.dirname(self.path)


def elsewhere(root: str = "") -> Sequence[UnloadedLibrary]:
    """The libraries of known places, those that may be loaded first."""
    paths = [f"{root}{folder}/{NAME}" for folder in FOLDERS]
    found = [UnloadedLibrary(path, unfit(path, OWNERS) or _strange(path)) for path in paths if os.path.lexists(path)]
    return sorted(found, key=lambda one: one.refused is not None)


def _strange(path: str) -> str | None:
    """Why it is not loaded though it may be: to load holds the interpreter, for ever where it is a pipe.

    To open and to read wait as long, but hold no other thread.
    """
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return "it is no file"
        with open(path, "rb") as file:
            file.read(1)
    except OSError as error:
        return clean(str(error.strerror or error), 200)
    return None


class LibraryLoader:
    """Loads one if it may be; `result` says why not."""

    def __init__(self, found: UnloadedLibrary) -> None:
        self.result = found

    def __call__(self) -> CDLL | None:
        """The library, loaded after what it needs from its own folder; None where it cannot or must not be."""
        if self.result.refused is not None:
            return None
        try:
            for name in _BESIDE:
                path = os.path.join(self.result.folder, name)
                if os.path.lexists(path) and not unfit(path, OWNERS):
                    CDLL(path)
            return CDLL(self.result.path)
        except OSError as error:
            self.result = self.result._replace(refused=clean(str(error), 200))
            return None


def loaded(proc_root: str) -> str | None:
    """The folder of the one that this process has loaded."""
    try:
        with open(f"{proc_root}/self/maps", "rb") as file:
            found = _MAPPED.search(file.read(_MAPS))
    except OSError:
        return None
    return decode(found[1]) if found else None


def note(key: str, text: str, *help: str) -> Note:
    """A note about the driver."""
    return Note(subject="driver", key=key, text=text, help=help)


def _pair(case: str, advice: str) -> str:
    return f"{case:<43}{advice}"


_LOOKING = _pair(
    "no GPU: try the demo",
    "`gputop demo` · `gputop replay FILE` · `ssh node gputop record - | gputop replay -`",
)
_CONTAINER = _pair("in a container", "start it with `--gpus all` (or the nvidia runtime)")
_LOAD = "the driver is not loaded: `modprobe nvidia`; `dmesg | grep NVRM`"


def _devices(sys_root: str) -> str:
    return ", ".join(sorted({slot.device for slot in pci.gpus(sys_root)}))


def _seen(sys_root: str) -> tuple[str, ...]:
    found = _devices(sys_root)
    return (_pair(f"lspci shows an NVIDIA GPU ({found})", _LOAD),) if found else ()


def kernel_version(sys_root: str, proc_root: str) -> str | None:
    """The version of the kernel module that is loaded."""
    for path, pattern in (
        (f"{proc_root}/driver/nvidia/version", rb"Kernel Module(?: for \S+)?\s+(\d[\d.]+)"),
        (f"{sys_root}/module/nvidia/version", rb"(\d[\d.]+)"),
    ):
        try:
            with open(path, "rb") as file:
                if found := re.search(pattern, file.read(4096)):
                    return decode(found[1])
        except OSError:
            continue
    return None


def library_version(gate: DriverGate) -> str | None:
    """The version of the library; it answers before it is initialised, with its API's version in front."""
    try:
        version: str = gate.call("nvmlSystemGetNVMLVersion")
    except (Unanswered, DriverGone, Late):
        return None
    api, _, rest = version.partition(".")
    return rest if len(api) < 3 and rest.count(".") else version


def in_wsl(proc_root: str) -> bool:
    """Whether this is the Windows Subsystem for Linux, whose GPU driver is that of Windows."""
    try:
        with open(f"{proc_root}/sys/kernel/osrelease", "rb") as file:
            return b"microsoft" in file.read(256).lower()
    except OSError:
        return False


def _wsl(code: int, loaded: str | None) -> Note:
    """There the driver is that of Windows: nothing of it can be loaded here."""
    hides = loaded is not None and loaded != WSL
    first = f"Remove the NVIDIA driver installed inside WSL: its library in {loaded} hides that in {WSL}."
    return note(
        "blocked",
        f"WSL blocks access to the GPU (NVML error {code}): its driver comes from Windows.",
        *([first] if hides else []),
        "Update the NVIDIA driver on Windows, then run `wsl --update` and `wsl --shutdown` there.",
    )


def _blocked() -> Note:
    return note(
        "blocked",
        "The operating system blocks access to the GPU (NVML error 17).",
        _pair("on a host", "`ls -l /dev/nvidia*`; `dmesg | grep NVRM`"),
        _pair("in a container or virtual machine", "check that the GPU is assigned to it"),
    )


def _unsupported(seen: tuple[str, ...], devices: str) -> Note:
    if seen:
        return note(
            "no-supported-gpu",
            f"The NVIDIA driver supports none of the GPUs here (NVML error 28): {devices}.",
            _pair("see why the driver rejected it", "`dmesg | grep NVRM`"),
            _pair("GPU older than Turing", "install the proprietary kernel modules or an older driver branch"),
            _pair("GPU newer than the driver", "install a newer driver"),
            _pair("GPU bound to vfio-pci", "it is reserved for a virtual machine: `lspci -k`"),
        )
    return note(
        "no-supported-gpu",
        "The NVIDIA driver found no supported GPU (NVML error 28).",
        _pair("no GPU in /sys/bus/pci/devices", "check the slot and power cables; `dmesg | grep NVRM`"),
        _CONTAINER,
        _LOOKING,
    )


def _no_permission() -> Note:
    ask = "" if os.geteuid() == 0 else f"; ask for the group, or `{as_root()}`"
    return note(
        "no-permission",
        "This user may not access the NVIDIA driver.",
        _pair("on a host", f"`ls -l /dev/nvidia*`: who may use them{ask}"),
        _CONTAINER,
    )


def _no_library(seen: tuple[str, ...], found: UnloadedLibrary | None) -> Note:
    if found is not None:
        return note(
            "library-refused",
            f"{found.path} is outside the loader's path and was not loaded: {found.refused}.",
            "Only libraries that only root could have installed are loaded.",
        )
    help = (*seen, _CONTAINER, _LOOKING)
    return note("no-library", "No NVIDIA GPU found: libnvidia-ml.so.1 is not on this machine.", *help)


def closed(
    code: int, *, worked: bool, gate: DriverGate, sys_root: str, proc_root: str, found: UnloadedLibrary | None = None
) -> Note:
    """Why the driver could not be opened; `worked` says that it once could.

    `found` is a library where the loader does not look.
    """
    seen = _seen(sys_root)
    if code == LIBRARY_NOT_FOUND:
        return _no_library(seen, found)
    if code in (DRIVER_NOT_LOADED, BLOCKED) and in_wsl(proc_root):
        return _wsl(code, loaded(proc_root))
    if code == DRIVER_NOT_LOADED:
        help = seen or (_pair("no GPU in /sys/bus/pci/devices", _LOAD),)
        return note("not-loaded", "The NVIDIA driver is not loaded.", *help, _CONTAINER, _LOOKING)
    if code == MISMATCH:
        return _mismatch(kernel_version(sys_root, proc_root), library_version(gate))
    if code == BLOCKED:
        return _blocked()
    if code == NO_GPU:
        return _unsupported(seen, _devices(sys_root))
    if code == NO_PERMISSION:
        return _no_permission()
    if code == SHADOWED:
        return _SHADOWED
    if code in (UNKNOWN, UNINITIALIZED) and in_container(proc_root):
        return note(
            "lost-access",
            f"This container {'lost its access to' if worked else 'cannot reach'} the GPUs: restart the container.",
            "Often after systemctl daemon-reload on the host, which removes devices from running containers.",
            "The GPU values shown are the last known ones." if worked else "Start it with `--gpus all`.",
        )
    again = "no longer answers" if worked else "does not answer"
    return note(
        "unknown-error",
        f"The NVIDIA driver {again} ({'internal driver error 999' if code == UNKNOWN else f'NVML error {code}'}).",
        _pair("see what failed", "`dmesg | grep -E 'NVRM|Xid'`"),
        _pair("after suspend, or a GPU that fell off the bus", "reload the driver, or reboot"),
    )


def _mismatch(kernel: str | None, library: str | None) -> Note:
    return note(
        "mismatch",
        f"NVML: driver/library version mismatch (kernel {kernel or 'unknown'}, library {library or 'unknown'}).",
        "The driver was upgraded while loaded. Running jobs continue. New CUDA programs will fail until a reboot, or",
        "until the modules are reloaded with no process on the GPU.",
    )


def broken(what: str) -> Note:
    """Our own reading failed where it must not."""
    return note("broken", f"reading the GPUs failed: {clean(what, 200)}")


def waiting(seconds: float) -> Note:
    """The driver as a whole does not come back from a call."""
    return note("waiting", f"waiting for driver {ago_text(seconds)}")


def slow(interval_s: float, call_s: float, driver_percent: float | None) -> Note:
    """We ask less often because it costs too much: each call, or all of them together."""
    share = driver_percent or 0.0
    costs = (
        f"driver calls take {call_s * 1e3:.3g} ms" if call_s > CALL_S or not share else f"{share:.2g} % in driver calls"
    )
    return note(
        "slow",
        f"sampling every {interval_s:g} s: {costs}",
        "This keeps reading all GPUs below 2 % of the driver's time.",
    )


_SHADOWED = note(
    "shadowed-pynvml",
    "The Python module pynvml is missing, or not NVIDIA's: GPUs cannot be read.",
    "`pip uninstall pynvml; pip install --force-reinstall nvidia-ml-py`",
)
OFF = note("off", "The NVIDIA driver is not queried (--no-nvml).")
RELEASED = note("released", "The driver is released: gputop holds no GPU. The same key connects again.")
NO_GPUS = note("no-gpus", "0 GPUs: the driver is loaded and lists none.", _CONTAINER, _LOOKING)
ASLEEP = note("asleep", "Every GPU is in a low-power state; reading would wake it.")
OLD = note("old-driver", "old driver: process lists use the older format")
TWINS = note("twins", "Two GPUs have the same UUID: identified by index.")


def denied(count: int) -> Note:
    """GPUs that exist and may not be read."""
    given = "container with access to all of them"
    return note(
        "no-permission",
        f"{count} GPUs of this host are not accessible to this user or container.",
        f"A {given} shows them." if os.geteuid() == 0 else f"`{as_root()}`, or a {given}, shows them.",
    )
