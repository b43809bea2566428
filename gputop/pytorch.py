"""PyTorch's names of settings, and wheels that fit a driver and its GPUs: both depend on its release."""

from __future__ import annotations

import re
from collections.abc import Iterable

Release = tuple[int, int]

INDEX = "https://download.pytorch.org/whl"
CLIP = "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"
DETECT_ANOMALY = "with torch.autograd.detect_anomaly(): loss = model(x); loss.backward()"
# 2.9 and 2.10 accept PYTORCH_ALLOC_CONF and ignore expandable_segments in it; the older name works in every release
# [pytorch#183387: false in 2.9.1, true in 2.11]
_ALLOCATOR_SINCE = (2, 11)
# the flight recorder supports every backend from this release [torchtitan#1748; torch 2.9 FlightRecorder.hpp]
_RECORDER_SINCE = (2, 9)
# Wheels of CUDA 13 and of 12.8 have no kernels before Turing, those of CUDA 12.6 none for Blackwell.
# pytorch RELEASE.md; pytorch#145792, pytorch#157968
_TURING, _BLACKWELL = (7, 5), (10, 0)


def release(version: str | None) -> Release | None:
    """Major and minor of a version such as 2.7.0+cu126; None if invalid."""
    found = re.match(r"(\d{1,3})\.(\d{1,3})", version or "", re.ASCII)
    return (int(found[1]), int(found[2])) if found else None


def allocator(setting: str, version: str | None = None) -> str:
    """The shell line that sets an option of the caching allocator, under the name for this release."""
    known = release(version)
    name = "PYTORCH_ALLOC_CONF" if known and known >= _ALLOCATOR_SINCE else "PYTORCH_CUDA_ALLOC_CONF"
    return f"export {name}={setting}"


def flight_recorder(version: str | None = None) -> str:
    """The shell line that lets each rank record its collectives, and write them on a timeout.

    Without a version the older names, which later releases accept, too.
    """
    known = release(version)
    new = known is not None and known >= _RECORDER_SINCE
    size = "TORCH_FR_BUFFER_SIZE" if new else "TORCH_NCCL_TRACE_BUFFER_SIZE"
    file = "TORCH_FR_DUMP_TEMP_FILE" if new else "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"
    return f"export TORCH_NCCL_DUMP_ON_TIMEOUT=1 {size}=2000 {file}=$PWD/nccl_trace_rank_"


def wheels(driver_cuda: str | None, capabilities: Iterable[Release] = ()) -> str | None:
    """The index of wheels for a driver with this CUDA, and for GPUs of these compute capabilities.

    None if the driver's CUDA is unknown. A driver runs every build for its own major version of CUDA.
    """
    cuda = release(driver_cuda)
    if cuda is None:
        return None
    all_of = sorted(capabilities)
    if cuda[0] <= 11:
        built_for = "cu118"
    elif all_of and all_of[0] < _TURING:
        built_for = "cu126"
    elif cuda[0] >= 13:
        built_for = "cu130"
    else:
        built_for = "cu128" if all_of and all_of[-1] >= _BLACKWELL else "cu126"
    return f"{INDEX}/{built_for}"


def reinstall(driver_cuda: str | None, capabilities: Iterable[Release] = ()) -> str | None:
    """The commands that replace PyTorch by a fitting build; None if unknown.

    pip keeps an installed torch of the same release, whatever its build: it is removed first.
    """
    index = wheels(driver_cuda, capabilities)
    return index and f"pip uninstall -y torch && pip install torch --index-url {index}"


_VERSION = re.compile(r"^__version__ = '([\w.+-]{1,40})'", re.MULTILINE | re.ASCII)
_NUMBER = re.compile(r"(\d{1,3})\.(\d{1,3})", re.ASCII)
_NAMES_LOADERS = 2, 5
_CUDA = re.compile(r"^cuda(?:: Optional\[str\])? = '(\d{1,3}\.\d{1,3})'", re.MULTILINE | re.ASCII)


def build(source: str) -> tuple[str | None, str | None]:
    """Its version, as in 2.7.0+cu126, and the CUDA it was built with; None for a build without."""
    version, cuda = _VERSION.search(source), _CUDA.search(source)
    return version[1] if version else None, cuda[1] if cuda else None


def names_loaders(version: str | None) -> bool:
    """Whether its DataLoader names its workers, so that unnamed children are none [pytorch/pytorch#128448]."""
    number = _NUMBER.match(version or "")
    return number is not None and (int(number[1]), int(number[2])) >= _NAMES_LOADERS
