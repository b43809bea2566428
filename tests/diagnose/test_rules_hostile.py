"""Names from outside stay one word in the commands that are printed for copying: a recording may be made up."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, get_type_hints

import pytest

from gputop.demo import SCENARIOS, Demo
from gputop.diagnose.engine import Engine
from gputop.history import History
from gputop.model import Frame, Missing
from tests.rule_cases import LIMITS

ATTACK = "; touch PWNED #"
KEPT = frozenset({"process.state", "process.visible_gpus", "process.name", "fact.name"})  # rules look at these words


def hostile(part: Any) -> Any:
    """The same with that behind each text; what links parts of a frame goes on linking them."""
    if isinstance(part, tuple) and not hasattr(part, "_fields"):
        return tuple(part_of + ATTACK if type(part_of) is str else hostile(part_of) for part_of in part)
    if not is_dataclass(part) or isinstance(part, Missing):
        return part
    values = ((name, getattr(part, name), free) for name, free in _fields(type(part)))
    return type(part)(**{name: value + ATTACK if free and value else hostile(value) for name, value, free in values})


@cache
def _fields(kind: type) -> tuple[tuple[str, bool], ...]:
    """Each field, and whether anybody may write into it what he likes."""
    hints, of = get_type_hints(kind), kind.__name__.lower()
    texts = {name for name, hint in hints.items() if hint in (str, str | None) and f"{of}.{name}" not in KEPT}
    return tuple((field.name, field.name in texts) for field in fields(kind))


def commands(name: str) -> Iterator[str]:
    demo = Demo(SCENARIOS[name], pace=False, anchor_s=1_795_185_127.0)
    engine, history = Engine(lambda: LIMITS), History()
    for second in range(-200, 1, 2):
        frame: Frame = hostile(demo.frame(demo.at_s + second))
        history.add(frame)
        engine.remember(frame, history)
        said = engine.judge(frame, history)
        for found in said.findings:
            yield from (step.command for step in found.steps if step.command)


@pytest.mark.parametrize("name", SCENARIOS)
def test_no_command_has_a_word_that_a_name_brought(name: str) -> None:
    for command in dict.fromkeys(commands(name)):
        words = shlex.shlex(command, posix=True, punctuation_chars=True)
        words.whitespace_split = False
        assert "touch" not in list(words), command
