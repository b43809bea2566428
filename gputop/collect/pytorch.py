"""What PyTorch says of its build in `torch/version.py`, read as text, never run or imported; and what follows."""

from __future__ import annotations

import re

_VERSION = re.compile(r"^__version__ = '([\w.+-]{1,40})'", re.MULTILINE | re.ASCII)
_NUMBER = re.compile(r"(\d{1,3})\.(\d{1,3})", re.ASCII)
_NAMES_LOADERS = 2, 5
_CUDA = re.compile(r"^cuda(?:: Optional\[str\])? = '(\d{1,3}\.\d{1,3})'", re.MULTILINE | re.ASCII)


def build(source: str) -> tuple[str | None, str | None]:
    """Its version, as in 2.7.0+cu126, and the CUDA it was built with; None for a build without."""
    version, cuda = _VERSION.search(source), _CUDA.search(source)
    return version[1] if version else None, cuda[1] if cuda else None


def names_loaders(version: str | None) -> bool:
    """Whether its DataLoader names its workers, so that other children are none [pytorch/pytorch#128448]."""
    number = _NUMBER.match(version or "")
    return number is not None and (int(number[1]), int(number[2])) >= _NAMES_LOADERS
