"""The keys as the user wants them: `[keys]` of the settings file, over what is declared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from gputop.suggest import unknown_entry
from gputop.ui.commands.command import Command, Place
from gputop.ui.commands.key_names import read_key
from gputop.ui.commands.table import COMMANDS

FIXED = frozenset({"interrupt", "suspend"})  # a way out must stay
_ROWS = {row.id: row for row in COMMANDS}
_KEPT = frozenset(key for row in COMMANDS if row.id in FIXED for key in row.keys)

Remap = Mapping[str, tuple[str, ...]]  # the keys, as Textual names them, by the id of what they do; none is none


def remap(table: object) -> tuple[Remap, list[str], list[str]]:
    """What differs from the declared keys when `[keys]` is this table; what of it cannot be used; what loses a key.

    A value is one key or several, in a list or with blanks between: `"x"`, `"F3 /"`, `["F3", "/"]`; `""` is none.
    What the table gives to one action is taken from any other on the same screen.
    """
    if not isinstance(table, dict):
        return {}, ["keys must be a table: [keys]"], []
    problems: list[str] = []
    given: dict[str, tuple[str, ...]] = {}
    taken: dict[tuple[str, Place], str] = {}
    for id, value in table.items():
        try:
            wanted = _read(id, value)
        except ValueError as error:
            problems.append(str(error))
            continue
        row = _ROWS[id]
        twice = {key: owner for key in wanted if (owner := _owner(row, key, taken))}
        problems += [f"keys.{id}: {key} is already used by {owner}" for key, owner in twice.items()]
        given[id] = tuple(key for key in wanted if key not in twice)
        taken.update(((key, place), id) for key in given[id] for place in row.on)
    clashes: list[str] = []
    for row in COMMANDS:
        lost = {key: owner for key in row.keys if row.id not in given and (owner := _owner(row, key, taken))}
        if lost:
            clashes += [f"{key} is now {owner}, not {row.id}" for key, owner in lost.items()]
            given[row.id] = tuple(key for key in row.keys if key not in lost)
    return given, problems, clashes


def remapped(changes: Iterable[tuple[str, tuple[str, ...]]]) -> tuple[Command, ...]:
    """Every command with the keys it has then."""
    found = dict(changes)
    return tuple(replace(row, keys=found[row.id]) if row.id in found else row for row in COMMANDS)


def _owner(row: Command, key: str, taken: Mapping[tuple[str, Place], str]) -> str:
    """What has this key on a screen of that action; nothing if none has."""
    return next((taken[key, place] for place in row.on if (key, place) in taken), "")


def _read(id: str, value: object) -> tuple[str, ...]:
    if id not in _ROWS:
        raise ValueError(unknown_entry("setting", id, _ROWS, "keys."))
    if id in FIXED:
        raise ValueError(f"keys.{id} cannot be changed")
    listed: list[object] = value if isinstance(value, list) else [value]
    words = [word for word in listed if isinstance(word, str)]
    if len(words) < len(listed):
        raise ValueError(f"keys.{id} must be a string or a list of strings")
    try:
        keys = tuple(dict.fromkeys(read_key(key) for word in words for key in word.split()))
    except ValueError as error:
        raise ValueError(f"keys.{id}: {error}") from None
    if kept := _KEPT.intersection(keys):
        raise ValueError(f"keys.{id}: {min(kept)} is reserved")
    return keys
