"""What a command line says about a program: training, data preparation, serving, or a part of a larger job."""

from __future__ import annotations

import math
import re
from functools import lru_cache

from gputop.diagnose.trainer import Trainer
from gputop.diagnose.view import View

_TRAINS = re.compile(
    r"(?:^|[/_\-.])(?:pre)?train(?:ing|er)?(?:[_\-.\d]|$)|fine[_\-]?tun|(?:^|[/_\-.])fit(?:[_\-.]|$)", re.I
)
_PREPARES = re.compile(
    r"pre[_\-]?(?:proc|par|comput|enc)|token|convert|extract|download|index|(?:^|[/_\-.])(?:make|build|clean|split)_",
    re.I,
)
# the same for names of data or models: in the script name only, and not after a word for training (train_cached)
_PASSES = re.compile(
    r"(?:^|\.)(?!(?:pre)?train|fine[_\-]?tun|fit)[^.]*?(?:^|(?<=[._\-]))"
    r"(?:stat(?:s|istics)?|bench(?:mark(?:s|ing)?)?|filter(?:s|ing)?|resiz(?:e|er|ing)|embed(?:s|dings?)?"
    r"|featur(?:es?|ize)|cach(?:e|ing)|shard(?:s|ing)?)(?=[._\-\d]|$)",
    re.I,
)
_SERVES = re.compile(
    r"vllm|sglang|triton|ollama|llama[_\-.]?(?:cpp|server)|text-generation|uvicorn|gunicorn|serv", re.I
)
_AUXILIARY = re.compile(r"actor|rollout|eval|valid|infer|generat|reward|play|demo", re.I)
_NOTEBOOK = re.compile("ipykernel|jupyter")
_SOME_CORES = 0.2  # a smaller share of a core is insignificant
_WORDS = 6  # words of a command line that count: the rest are arguments


def trains(trainer: Trainer) -> bool:
    """Whether it is a training run rather than data preparation: by loaders, by ranks, or by name."""
    command = trainer.process.command
    if _matches(command, _PREPARES) or _matches(_script(command), _PASSES):
        return False
    return trainer.loaders > 0 or clearly_trains(trainer)


def clearly_trains(trainer: Trainer) -> bool:
    """Whether more than its loaders suggests training: programs that only read data have loaders too."""
    command = trainer.process.command
    return (trainer.process.world_size or 0) > 1 or (_matches(command, _TRAINS) and not _is_server(command))


def serves(trainer: Trainer) -> bool:
    """Whether it serves requests, so that a waiting GPU has no work. Loaders or a training name rule that out."""
    command = trainer.process.command
    if trainer.loaders:
        return False
    return _is_server(command) or (_matches(command, _SERVES) and not _matches(command, _TRAINS))


def is_auxiliary(trainer: Trainer) -> bool:
    """Whether it may leave its GPU idle for long by design: evaluation, or a reinforcement learning actor."""
    return serves(trainer) or _matches(trainer.process.command, _AUXILIARY)


def may_use_torch(trainer: Trainer) -> bool:
    """Whether it may use PyTorch: torch is among its libraries, or those are unknown."""
    return not trainer.process.libraries or "torch" in trainer.process.libraries


def is_notebook(trainer: Trainer) -> bool:
    """Whether it is an interactive session."""
    known = trainer.job is not None and trainer.job.launcher == "notebook"
    return known or _matches(trainer.process.command, _NOTEBOOK)


def uses_cpu(view: View, trainer: Trainer) -> bool:
    """Whether it uses a CPU core, or nearly all of the fraction of one that it may use."""
    least = view.limit("no-cuda-context.full") * (trainer.allowed or math.inf)
    return view.above(trainer.cores, "no-cuda-context.cores") or (trainer.cores or 0.0) >= max(_SOME_CORES, least)


def _is_server(command: tuple[str, ...]) -> bool:
    """Whether the program or its subcommand is a server, whatever model it serves."""
    program = _program(command)
    return _matches(program, _SERVES) and not _matches(program, _TRAINS)


def _program(command: tuple[str, ...]) -> tuple[str, ...]:
    """What runs: the script or module for Python, else the program and its subcommand."""
    if command and command[0].rpartition("/")[2].startswith("python"):
        return _script(command)
    return command[:2] if command[1:] and command[1][:1] != "-" else command[:1]


def _script(command: tuple[str, ...]) -> tuple[str, ...]:
    """The program, and its script or module, without option values."""
    return command[:1] + tuple(word for word in command[1:_WORDS] if word[:1] != "-")[:1]


def _matches(command: tuple[str, ...], what: re.Pattern[str]) -> bool:
    """Whether a program, script or module name matches; the last component of a path counts."""
    return _matches_words(command[:_WORDS], what)


@lru_cache(maxsize=1024)  # many rules ask this at every evaluation; first words only: a command may be long
def _matches_words(command: tuple[str, ...], what: re.Pattern[str]) -> bool:
    words = (word.rpartition("/")[2] for word in command if word[:2] != "--")
    return any(what.search(word) for word in words)
