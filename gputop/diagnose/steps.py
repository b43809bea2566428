"""Steps shared by several rules: profiling a process, loader settings, container limits."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from shlex import quote
from typing import Literal

from gputop import num_workers
from gputop.diagnose.cpu_budget import equal_share, idle_cpus
from gputop.diagnose.finding import Step
from gputop.diagnose.program_kind import may_use_torch
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.view import View
from gputop.invocation import as_root
from gputop.model import Gpu, Process


def stack(view: View, process: Process, text: str) -> Step:
    """Dump the stacks of its threads."""
    return _inspection(view, process, text, "stack")


def stacks_of_job(view: View, process: Process, text: str) -> Step:
    """Compare the stacks of all ranks of its job."""
    return _inspection(view, process, text, "stack", "--job")


def profile(view: View, process: Process, text: str) -> Step:
    """Profile it over some seconds."""
    return _inspection(view, process, text, "profile")


def only_root_may_inspect(view: View, process: Process) -> bool:
    """Whether only root may inspect it: another user owns it, or the kernel denied part of it.

    Further restrictions (ptrace_scope) are not in a frame: the commands report these, and what lifts them.
    """
    viewer = view.frame.viewer_uid
    if viewer == 0:
        return False
    foreign = None not in (viewer, process.uid) and process.uid != viewer
    return foreign or any(missing.reason == "denied" for missing in process.missing)


def _inspection(view: View, process: Process, text: str, how: Literal["stack", "profile"], *flags: str) -> Step:
    words, root = (how, *flags, str(process.pid)), only_root_may_inspect(view, process)
    command = as_root(*words) if root else f"gputop {' '.join(words)}"
    return Step(text=text, command=command, action=how, needs_root=root)


# group names of container runtimes with and without systemd
_DOCKER = re.compile(r"/docker[-/][0-9a-f]{12}")
_PODMAN = re.compile(r"/libpod[-/](?:\w+-)?[0-9a-f]{12}")
_OF_A_USER = re.compile(r"/user@\d+\.service/")


def raise_container_limit(view: View, process: Process, text: str, setting: str, in_kubernetes: str) -> Step:
    """Raise a container limit: `setting` is an option of Docker and Podman; in Kubernetes it is the pod's manifest."""
    group, container = process.cgroup or "", quote(process.container or "")
    if "kubepods" in group:
        return Step(text=f"{text}; in Kubernetes, {in_kubernetes}")
    made_by = "docker" if _DOCKER.search(group) else "podman" if _PODMAN.search(group) else ""
    if not made_by:
        return Step(text=text)
    command = f"{made_by} update {setting} {container}"
    if not _OF_A_USER.search(group):
        return Step(text=text, command=f"sudo {command}", needs_root=True)
    # root and other users have a separate instance that does not know it
    if view.frame.viewer_uid == 0 or only_root_may_inspect(view, process):
        return Step(text=f"{text}, as the user of the container")
    return Step(text=text, command=command)


# how other frameworks load data in the background, {} for the number of processes; the first library loaded counts
_OTHERS = {
    "tensorflow": "dataset.map(..., num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)",
    "jax": "grain.DataLoader(..., worker_count={})",
}


def pins_memory(trainer: Trainer) -> bool:
    """Whether it is seen to pin memory; such a thread may be invisible, or have another name."""
    return any(name == "pt_data_pin" for name, _ in trainer.process.thread_names)


def loader_settings(trainer: Trainer) -> str:
    """Loader settings that help besides the number of workers."""
    return "persistent_workers=True" if pins_memory(trainer) else "pin_memory=True, persistent_workers=True"


def use_workers(view: View, trainer: Trainer, text: str, *, more: str = "") -> Step:
    """Load data in worker processes, if CPUs are available; `more`: further DataLoader options."""
    loaders = first_loaders(view, trainer)
    if not loaders:
        return Step(text="Give the job more CPUs, or reduce work per sample: no CPU is idle for workers")
    if may_use_torch(trainer):
        return Step(text=text, command=f"DataLoader(..., num_workers={loaders}{more})")
    command = next((_OTHERS[name] for name in _OTHERS if name in trainer.process.libraries), None)
    return Step(text=text, command=command and command.format(loaders))


def first_loaders(view: View, trainer: Trainer) -> int:
    """Workers to start with if there are none: at most the idle CPUs, 0 below half a CPU."""
    return num_workers.initial(equal_share(view, trainer), idle_cpus(view, trainer))


_SHORT = len("GPU-12345678")  # enough of a uuid for CUDA if no other GPU starts with it


def renumbers_gpus(process: Process) -> bool:
    """Whether the process may number its GPUs differently: containers and Slurm jobs count from 0."""
    return process.container is not None or process.slurm_job is not None


def visible_gpus(view: View, process: Process) -> list[Gpu]:
    """GPUs that its CUDA_VISIBLE_DEVICES certainly names."""
    listed = [name.strip() for name in (process.visible_gpus or "").split(",") if name.strip()]
    by_index = view.cached("gpus by index", lambda: _by_index(view))
    if all(name.startswith("GPU-") for name in listed):
        return [gpu for gpu in view.frame.gpus if any(gpu.uuid.startswith(name) for name in listed)]
    everywhere = len(listed) == len(by_index) and set(listed) == set(by_index)
    held = (view.frame.by_uuid.get(share.uuid) for share in process.gpus if share.kind != "graphics")
    fits = {gpu.index for gpu in held if gpu is not None} <= set(listed)
    certain = fits and set(listed) <= set(by_index) and (everywhere or not renumbers_gpus(process))
    return [by_index[name] for name in listed] if certain else []


def cuda_visible_devices(view: View, gpus: Sequence[Gpu], users: Iterable[Process]) -> str:
    """Value of CUDA_VISIBLE_DEVICES for these GPUs: indices if they are valid in the program, else uuids."""
    by_uuid = any(map(renumbers_gpus, users)) or any(gpu.parent_uuid for gpu in gpus)
    return ",".join(quote(_uuid(view, gpu) if by_uuid else gpu.index) for gpu in gpus)


def _uuid(view: View, gpu: Gpu) -> str:
    short = gpu.uuid[:_SHORT]
    alone = sum(one.uuid.startswith(short) for one in view.frame.gpus) == 1
    return short if alone and gpu.uuid.startswith("GPU-") else gpu.uuid


def _by_index(view: View) -> Mapping[str, Gpu]:
    return {gpu.index: gpu for gpu in view.frame.gpus if gpu.parent_uuid is None}
