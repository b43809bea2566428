"""What a command line says of a program: that it trains, prepares data, serves, or plays a part in a larger job."""

from __future__ import annotations

import re

from gputop.diagnose.trainer import Trainer

_TRAINS = re.compile(
    r"(?:^|[/_\-.])(?:pre)?train(?:ing|er)?(?:[_\-.\d]|$)|fine[_\-]?tun|(?:^|[/_\-.])fit(?:[_\-.]|$)", re.I
)
_PREPARES = re.compile(
    r"pre[_\-]?(?:proc|par|comput|enc)|token|convert|extract|download|index|(?:^|[/_\-.])(?:make|build|clean|split)_",
    re.I,
)
_SERVES = re.compile(
    r"vllm|sglang|triton|ollama|llama[_\-.]?(?:cpp|server)|text-generation|uvicorn|gunicorn|serv", re.I
)
_PLAYS_A_PART = re.compile(r"actor|rollout|eval|valid|infer|generat|reward|play|demo", re.I)
_WORDS = 6  # of a command line: what follows are its arguments


def trains(trainer: Trainer) -> bool:
    """Whether it is a training run and no preparation of data: by loaders, by ranks, or by its name."""
    words = _words(trainer)
    if any(_PREPARES.search(word) for word in words):
        return False
    ranks = (trainer.process.world_size or 0) > 1
    return trainer.loaders > 0 or ranks or any(_TRAINS.search(word) for word in words)


def serves(trainer: Trainer) -> bool:
    """Whether it answers requests: then a GPU that waits has nothing to do."""
    return any(_SERVES.search(word) for word in _words(trainer))


def plays_a_part(trainer: Trainer) -> bool:
    """Whether it may well leave its GPU alone for long: evaluation, an actor of reinforcement learning."""
    return serves(trainer) or any(_PLAYS_A_PART.search(word) for word in _words(trainer))


def notebook(trainer: Trainer) -> bool:
    """Whether somebody types what it does."""
    known = trainer.job is not None and trainer.job.launcher == "notebook"
    return known or any("ipykernel" in word or "jupyter" in word for word in _words(trainer))


def _words(trainer: Trainer) -> tuple[str, ...]:
    """Programs, scripts and modules; the last parts of their paths."""
    words = (word for word in trainer.process.command[:_WORDS] if word[:2] != "--")
    return tuple("/".join(word.rsplit("/", 1)[-1:]) for word in words)
