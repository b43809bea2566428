"""Settings for an experiment from a running training: Python, folder, script, variables, DataLoader, model.

All of it is read from /proc and, if present, its agent. The function that creates what is measured is not visible in a
process: candidates in its script are named, or one is sketched.
"""

from __future__ import annotations

import argparse
import ast
import os
import shlex
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from gputop.cli.options import USAGE, Failure
from gputop.frozen_dataclass import frozen_dataclass
from gputop.safe.files import opened
from gputop.safe.text import clean

if TYPE_CHECKING:
    from gputop.actions import Rights
    from gputop.config import Settings
    from gputop.model import Process

VARIABLES = (
    "PYTHONPATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS",
    "MKL_NUM_THREADS", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "TORCH_HOME", "HF_HOME", "HF_DATASETS_CACHE",
    "HF_DATASETS_OFFLINE", "HF_HUB_OFFLINE", "TOKENIZERS_PARALLELISM",
)  # fmt: skip
MAKERS = ("make", "build", "model", "create", "setup")  # in names of functions that create a model with its data
SKETCH = """\
def make():
    model = {model}(...)  # as the training makes them
    dataset = ...
    loader = DataLoader(dataset, batch_size={batch_size}, shuffle=True, num_workers={workers})
    return model, loader
"""
_UNSEEN = "the function to measure is not visible in the process"
_INJECT = "/gputop/inject"
_SCRIPT_BYTES = 1 << 20
_NAMED = 4  # functions listed
_PLACES_S = 5.0  # for the folders that a process names


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class ProcessFacts:
    """What is known of a process; None for what is not."""

    pid: int
    python: str | None
    folder: str | None
    file: str | None  # its script as given on the command line
    module: str | None
    arguments: tuple[str, ...]
    variables: Mapping[str, str]
    workers: int | None = None
    batch_size: int | None = None
    model: str | None = None
    agent: str | None = None  # why there is none

    @property
    def place(self) -> str:
        """Where a function of it is: the part before the colon."""
        return self.file or self.module or "train.py"


def take_settings(
    args: argparse.Namespace, settings: Settings, kind: str, words: tuple[str, ...], sketch: str
) -> ProcessFacts | None:
    """Take over the settings of a named process; if no function was named, print a sketch and raise Failure.

    `words` appear in names of candidate functions; `sketch` is printed if there is none.
    """
    if args.from_pid is None:
        return None
    seen = _process_facts(args, settings)
    for line in _summary(seen):
        sys.stderr.write(f"gputop: from {seen.pid}: {line}\n")
    if args.factory is None:
        _fail_with_sketch(seen, kind, words, sketch)
    if args.python is None:
        args.python = seen.python
    if seen.folder is not None and args.factory is not None:
        os.chdir(seen.folder)
    os.environ.update(seen.variables)
    return seen


def _process_facts(args: argparse.Namespace, settings: Settings) -> ProcessFacts:
    from gputop.agent_client import environment, root
    from gputop.cli.process import rank_of, target_process
    from gputop.collect.jobs.launchers import program
    from gputop.safe.deadline import NoAnswer, within

    args.pid = args.from_pid
    frame, process, rights = target_process(args, settings)
    if rights.elsewhere is not None:
        raise Failure(f"--from {args.pid}: the process belongs to {rights.elsewhere}, not to this machine", USAGE)
    process = rank_of(frame, process)
    if process.uid != os.geteuid():  # its interpreter and files would run with our rights
        raise Failure(
            f"--from {process.pid}: the process belongs to {process.user or 'another user'}: run gputop as that user"
        )
    if root(process.pid):
        raise Failure(f"--from {process.pid}: the process runs in a container: run gputop in that container")
    found, said = program(process.command), environment(process.pid)
    try:
        python, folder = within(f"/proc/{process.pid}/cwd", partial(_places, process, said), seconds=_PLACES_S)
    except NoAnswer:
        raise Failure(f"--from {process.pid}: its working directory does not respond (dead mount?)") from None
    return replace(
        ProcessFacts(
            pid=process.pid,
            python=python,
            folder=folder,
            file=found.name if found.kind == "script" and found.python and found.name else None,
            module=found.name if found.kind == "module" else None,
            arguments=found.arguments,
            variables=dict(_variables(said)),
        ),
        **_agent_values(process, replace(rights, reads_only=True)),
    )


def _places(process: Process, said: Mapping[str, str]) -> tuple[str | None, str | None]:
    """Its interpreter as it was started (a virtual environment's is a link), and its folder."""
    from gputop.safe import programs

    folder: str | None = None
    try:
        exe = os.readlink(f"/proc/{process.pid}/exe")
        folder = os.readlink(f"/proc/{process.pid}/cwd")
    except OSError:
        return None, folder
    folder = folder if os.path.isdir(folder) else None
    first = process.command[0] if process.command else ""
    named = [os.path.join(folder or "/", first)] if "/" in first else []
    named += programs.candidates(first, said.get("PATH", "")) if first and not named else ()
    for candidate in (*named, exe):
        if os.path.isabs(candidate) and os.path.realpath(candidate) == os.path.realpath(exe):
            return candidate, folder
    return None, folder


def _variables(said: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Variables that determine imports and measurements; others may be secrets."""
    for name in VARIABLES:
        value = said.get(name)
        if value is not None and name == "PYTHONPATH":
            value = os.pathsep.join(entry for entry in value.split(os.pathsep) if not entry.endswith(_INJECT))
        if value:
            yield name, value


def _agent_values(process: Process, rights: Rights) -> dict[str, Any]:
    """Values known only to its agent."""
    from gputop.actions.target import Refusal, open_target
    from gputop.agent_client import AgentLost, NoAgent, connect

    target = open_target(process, rights, {})
    if isinstance(target, Refusal):
        return {"agent": target.text}
    try:
        agent = connect(target)
        try:
            facts = agent.answer("facts").get("facts")
        finally:
            agent.close()
    except NoAgent:
        return {"agent": "it has no agent; start the job with `gputop run`"}
    except AgentLost as lost:
        return {"agent": str(lost)}
    finally:
        target.close()
    facts = facts if isinstance(facts, dict) else {}
    loader, model = (_first(facts.get(name)) for name in ("loaders", "models"))
    name = model.get("name")
    numbers = {"workers": _whole(loader.get("num_workers")), "batch_size": _whole(loader.get("batch_size"))}
    return {**numbers, "model": clean(name, 60) if isinstance(name, str) and name else None}


def _summary(seen: ProcessFacts) -> Iterator[str]:
    """One line for the settings taken over, one for the agent's, one for each unknown."""
    what = seen.file or (f"module {seen.module}" if seen.module else None)
    known = (("Python", seen.python), ("folder", seen.folder), ("script", what))
    yield ", ".join(f"{name} {clean(value, 300)}" for name, value in known if value) or "nothing is known"
    for name, value in known:
        if value is None:
            yield f"its {name.lower() if name != 'Python' else name} is unknown" + (
                ": choose one with --python" if name == "Python" else ""
            )
    if seen.variables:
        yield f"variables {', '.join(seen.variables)}"
    if seen.agent is not None:
        yield f"its DataLoader and its model are unknown: {clean(seen.agent)}"
        return
    size = "" if seen.batch_size is None else f", batch_size={seen.batch_size}"
    loader = None if seen.workers is None else f"DataLoader(num_workers={seen.workers}{size})"
    inside = (loader, f"model {seen.model}" if seen.model else None)
    yield ", ".join(each for each in inside if each) or "its agent found no DataLoader and no model"


def _fail_with_sketch(seen: ProcessFacts, kind: str, words: tuple[str, ...], sketch: str) -> None:
    """Name candidate functions of its script, or print a sketch; then say that none was given."""
    tree = _parsed(seen)
    may = list(_functions(tree, words)) if tree is not None else []
    for name in may[:_NAMED]:
        print(clean(f"gputop {kind} --from {seen.pid} {shlex.quote(f'{seen.place}:{name}')}"))
    if may:
        many = "candidates are above" if len(may) > 1 else "a candidate is above"
        raise Failure(f"{_UNSEEN}: {many}", USAGE)
    size = 64 if seen.batch_size is None else seen.batch_size
    workers = 0 if seen.workers is None else seen.workers
    print(f"# in {clean(seen.place)}")
    print(sketch.format(batch_size=size, workers=workers, model=seen.model or "Model"), end="")
    if tree is not None and not _imports_safely(tree):
        print(
            '# and below: if __name__ == "__main__":  what starts the training; otherwise importing the file starts it'
        )
    name = sketch.partition("(")[0].removeprefix("def ")
    then = clean(f"gputop {kind} --from {seen.pid} {shlex.quote(f'{seen.place}:{name}')}")
    raise Failure(f"{_UNSEEN}: write one as sketched above, then run {then}", USAGE)


def _parsed(seen: ProcessFacts) -> ast.Module | None:
    """Its script, parsed but never run; None if unreadable."""
    from gputop.safe.deadline import NoAnswer, within

    if seen.file is None or seen.folder is None:
        return None
    path = os.path.join(seen.folder, seen.file)
    try:
        return ast.parse(within(path, _read, path))
    except (NoAnswer, OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return None


def _read(path: str) -> bytes:
    with open(opened(path), "rb") as file:
        return file.read(_SCRIPT_BYTES)


def _functions(tree: ast.Module, words: tuple[str, ...]) -> Iterator[str]:
    """Functions without required arguments, named like what is measured."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and any(word in node.name.lower() for word in words):
            given = node.args
            needed = len(given.posonlyargs) + len(given.args) - len(given.defaults)
            if needed == 0 and None not in given.kw_defaults:
                yield node.name


def _imports_safely(tree: ast.Module) -> bool:
    """Whether importing it appears to start nothing."""
    return any(isinstance(node, ast.If) and "__name__" in ast.unparse(node.test) for node in tree.body)


def _first(value: object) -> Mapping[str, Any]:
    return value[0] if isinstance(value, list) and value and isinstance(value[0], dict) else {}


def _whole(value: object) -> int | None:
    return value if type(value) is int and 0 <= value <= 1 << 20 else None


def process_id(text: str) -> int:
    """A PID."""
    if not text.isdecimal() or not 0 < int(text) <= 1 << 22:
        raise argparse.ArgumentTypeError(f"{text!r} is not a PID")
    return int(text)
