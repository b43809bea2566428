"""GPUs as a program knows them: which ones it was given, and what to call them in CUDA_VISIBLE_DEVICES."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from shlex import quote

from gputop.diagnose.view import View
from gputop.model import Gpu, Process

_SHORT = len("GPU-12345678")  # enough of a uuid for CUDA, where no other one begins like that


def counts_its_own(process: Process) -> bool:
    """Whether the GPUs it sees may have other numbers than here: a container or a Slurm job counts its own from 0."""
    return process.container is not None or process.slurm_job is not None


def given(view: View, process: Process) -> list[Gpu]:
    """What its CUDA_VISIBLE_DEVICES surely names."""
    listed = [name.strip() for name in (process.visible_gpus or "").split(",") if name.strip()]
    by_index = view.once("gpus by index", lambda: _by_index(view))
    if all(name.startswith("GPU-") for name in listed):
        return [gpu for gpu in view.frame.gpus if any(gpu.uuid.startswith(name) for name in listed)]
    everywhere = len(listed) == len(by_index) and set(listed) == set(by_index)
    held = (view.frame.by_uuid.get(share.uuid) for share in process.gpus if share.kind != "graphics")
    fits = {gpu.index for gpu in held if gpu is not None} <= set(listed)
    certain = fits and set(listed) <= set(by_index) and (everywhere or not counts_its_own(process))
    return [by_index[name] for name in listed] if certain else []


def names(view: View, gpus: Sequence[Gpu], users: Iterable[Process]) -> str:
    """These GPUs for CUDA_VISIBLE_DEVICES of such programs: their numbers where they hold there, else their uuids."""
    by_uuid = any(map(counts_its_own, users)) or any(gpu.parent_uuid for gpu in gpus)
    return ",".join(quote(_uuid(view, gpu) if by_uuid else gpu.index) for gpu in gpus)


def _uuid(view: View, gpu: Gpu) -> str:
    short = gpu.uuid[:_SHORT]
    alone = sum(one.uuid.startswith(short) for one in view.frame.gpus) == 1
    return short if alone and gpu.uuid.startswith("GPU-") else gpu.uuid


def _by_index(view: View) -> Mapping[str, Gpu]:
    return {gpu.index: gpu for gpu in view.frame.gpus if gpu.parent_uuid is None}
