"""What a command line runs: the script behind an interpreter, and which programs start the ranks of a job. Pure."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal, NamedTuple

from gputop.collect.jobs.ancestry import AGENT
from gputop.model import Process

_PYTHON = re.compile(r"(?:python|pypy)[\d.]*t?(?:-dbg)?")
_WITH_VALUE = {"-W", "-X", "--check-hash-based-pycs"}

# by the name of the program or script
_PROGRAMS = {
    "torchrun": "torchrun",
    "accelerate": "accelerate",
    "accelerate-launch": "accelerate",
    "deepspeed": "deepspeed",
    "ds": "deepspeed",
    "composer": "composer",
    "horovodrun": "horovod",
    "mpirun": "mpirun",
    "mpiexec": "mpirun",
    "mpiexec.hydra": "mpirun",
    "orterun": "mpirun",
    "prterun": "mpirun",
    "orted": "mpirun",
    "prted": "mpirun",
    "hydra_pmi_proxy": "mpirun",
    "raylet": "ray",
    "slurmstepd": "slurm",
}
# by the module that python -m runs
_MODULES = {
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torchrun",
    "torch.distributed.launcher": "torchrun",
    "accelerate.commands.launch": "accelerate",
    "accelerate.commands.accelerate_cli": "accelerate",
    "deepspeed.launcher.launch": "deepspeed",
    "deepspeed.launcher.runner": "deepspeed",
    "horovod.runner.launch": "horovod",
    "composer.cli.launcher": "composer",
}
# by the name of the main thread
_NAMES = {AGENT: "torchrun", "slurmstepd": "slurm", "raylet": "ray"}
_NOTEBOOKS = {"ipykernel_launcher", "ipykernel", "colab_kernel_launcher"}
_SERVICES = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")


_LONG = 64  # words of a command line that is not remembered: a cache of such ones would hold megabytes


class LaunchedProgram(NamedTuple):
    """What a command line runs."""

    kind: Literal["script", "module", "code", "program"]
    name: str  # a path, a module, code, or a path again
    python: bool
    arguments: tuple[str, ...]


def program(command: tuple[str, ...]) -> LaunchedProgram:
    """The program of a command line, looked for behind the interpreter and its options."""
    return _program(command) if len(command) <= _LONG else _program.__wrapped__(command)


@lru_cache(maxsize=4096)
def _program(command: tuple[str, ...]) -> LaunchedProgram:
    words = command
    if len(words) == 1 and " " in words[0]:  # a title that was written over the arguments
        words = tuple(words[0].split())
    if not words:
        return LaunchedProgram("program", "", False, ())
    if not _PYTHON.fullmatch(words[0].rpartition("/")[2]):
        return LaunchedProgram("program", words[0], False, words[1:])
    index = 1
    while index < len(words) and words[index].startswith("-"):
        option = words[index]
        if option in ("-m", "-c") or (len(option) > 2 and option[:2] in ("-m", "-c")):
            index += len(option) == 2
            name = option[2:] or "".join(words[index : index + 1])
            return LaunchedProgram("module" if option[1] == "m" else "code", name, True, words[index + 1 :])
        index += 2 if option in _WITH_VALUE else 1
    script = "".join(words[index : index + 1])
    return LaunchedProgram("script", script, True, words[index + 1 :])


def is_python(process: Process) -> bool:
    """Whether a process is a Python interpreter, by its command line or, if that is not known, by its name."""
    return program(process.command).python or process.name.startswith("python") or is_ray(process)


def is_ray(process: Process) -> bool:
    """Whether it is a worker that Ray started."""
    return bool(process.command) and process.command[0].startswith("ray::")


def is_notebook(process: Process) -> bool:
    """Whether it is the kernel of a notebook."""
    return _name(program(process.command)) in _NOTEBOOKS


def is_spawned(process: Process) -> bool:
    """Whether Python's multiprocessing started it again to run a function of its parent."""
    return "--multiprocessing-fork" in process.command


def is_service(process: Process) -> bool:
    """Whether it is one of multiprocessing's own: it tracks resources, or forks for its parent."""
    run = program(process.command)
    if run.kind == "program":  # a frozen program stands in for the interpreter: ./train -B -c "from multiprocessing..."
        code = "".join(run.arguments[run.arguments.index("-c") + 1 :][:1]) if "-c" in run.arguments else ""
    else:
        code = run.name if run.kind == "code" else ""
    return any(service in code for service in _SERVICES)


def launcher(process: Process) -> str | None:
    """Which launcher a process is: torchrun, accelerate, deepspeed, mpirun, slurm, ray, ...; None if it is none."""
    run = program(process.command)
    if run.kind == "module":
        known = _MODULES.get(run.name.removesuffix(".__main__"))
    elif run.kind == "code":
        known = None
    else:
        known = _PROGRAMS.get(run.name.rpartition("/")[2].removesuffix(".py").removesuffix(":"))
    if run.name.endswith("accelerate") and "launch" not in run.arguments[:1]:
        known = None
    return known or _NAMES.get(process.name)


def stem(process: Process) -> str:
    """What a person calls the program: train for train.py, finetune for -m pkg.finetune."""
    return _name(program(process.command)) or process.name


def _name(run: LaunchedProgram) -> str:
    if run.kind == "code":
        return "python"
    parts = run.name.split("." if run.kind == "module" else "/")
    last = parts[-1].removesuffix(".py")
    return parts[-2] if last == "__main__" and len(parts) > 1 else last
