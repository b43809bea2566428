"""What PyTorch says of its build in `torch/version.py`: read as text, never run or imported."""

from __future__ import annotations

import re

_VERSION = re.compile(r"^__version__ = '([\w.+-]{1,40})'", re.MULTILINE | re.ASCII)
_CUDA = re.compile(r"^cuda(?:: Optional\[str\])? = '(\d{1,3}\.\d{1,3})'", re.MULTILINE | re.ASCII)


def build(source: str) -> tuple[str | None, str | None]:
    """Its version, as in 2.7.0+cu126, and the CUDA it was built with; None for a build without."""
    version, cuda = _VERSION.search(source), _CUDA.search(source)
    return version[1] if version else None, cuda[1] if cuda else None
