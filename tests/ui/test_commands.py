"""Each command is run, explained and titled by functions that take every screen it stands on."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from gputop.ui.commands.command import Command, Place
from gputop.ui.commands.table import COMMANDS

ANY = {"AnyScreen", "CommandScreen", "Screen[object]"}
TAKES: dict[Place, set[str]] = {
    "main": ANY | {"JobScreen", "MainScreen"},
    "details": ANY | {"JobScreen", "ProcessScreen"},
    "result": ANY | {"ResultScreen"},
    "hosts": ANY | {"HostsScreen"},
}


def functions(command: Command) -> Iterator[Callable[..., object]]:
    """All that is called with its screen."""
    for one in (command.run, command.unavailable, command.title_now):
        if one is not None:
            yield one.func if isinstance(one, partial) else one


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.id)
def test_a_command_takes_every_screen_it_stands_on(command: Command) -> None:
    for function in functions(command):
        screen = next(iter(inspect.signature(function).parameters.values())).annotation
        for place in command.on:
            assert screen in TAKES[place], f"{function.__name__} takes {screen}, and stands on {place}"


def test_no_key_and_no_id_is_given_twice_on_a_screen() -> None:
    assert len({command.id for command in COMMANDS}) == len(COMMANDS)
    for place in TAKES:
        keys = [key for command in COMMANDS if place in command.on for key in command.keys]
        assert sorted(set(keys)) == sorted(keys)
