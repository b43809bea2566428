"""The driver's library where the loader does not look: WSL, NixOS, Colab, GKE and Jetson keep it in folders of theirs.

Only what root alone could have put there is loaded: a library runs with our rights.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Sequence
from ctypes import CDLL
from typing import NamedTuple

from gputop.safe.programs import unfit
from gputop.safe.text import clean, decode

NAME = "libnvidia-ml.so.1"
OWNERS = frozenset({0})  # who may have put it there
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


class Found(NamedTuple):
    """A library that the loader does not find, and why it is not loaded, if it is not."""

    path: str
    refused: str | None = None

    @property
    def folder(self) -> str:
        """Where it is."""
        return os.path.dirname(self.path)


def elsewhere(root: str = "") -> Sequence[Found]:
    """The libraries of known places, those that may be loaded first."""
    paths = [f"{root}{folder}/{NAME}" for folder in FOLDERS]
    found = [Found(path, unfit(path, OWNERS) or _strange(path)) for path in paths if os.path.lexists(path)]
    return sorted(found, key=lambda one: one.refused is not None)


def _strange(path: str) -> str | None:
    """Why it is not loaded though it may be: to load holds the interpreter, for ever where it is a pipe.

    To open and to read wait as long, but hold nobody else.
    """
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return "it is no file"
        with open(path, "rb") as file:
            file.read(1)
    except OSError as error:
        return clean(str(error.strerror or error), 200)
    return None


class Opening:
    """Loads one if it may be; `result` says why not."""

    def __init__(self, found: Found) -> None:
        self.result = found

    def __call__(self) -> CDLL | None:
        """The library, loaded after what it needs of its own folder; None where it cannot or must not be."""
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
