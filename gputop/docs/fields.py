"""Every field of a frame, as a recording holds it: made from the types of the model."""

from __future__ import annotations

import types
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from gputop.docs.markdown import table
from gputop.model import Frame, Unit

_WORDS: dict[Any, str] = {str: "text", int: "whole number", float: "number", bool: "true or false"}


def field_tables() -> str:
    """A table for each kind of object in a frame: field, type, meaning."""
    parts = []
    for kind in _kinds(Frame):
        hints, told = get_type_hints(kind), get_type_hints(kind, include_extras=True)
        rows = (
            (f"`{field.name}`", _type(hints[field.name], field), _help(told[field.name], field))
            for field in fields(kind)
        )
        parts.append(f"### {kind.__name__.lower()}\n\n{table(('field', 'type', 'meaning'), rows)}")
    return "\n\n".join(parts)


def _kinds(kind: Any) -> list[Any]:
    """The kinds of objects that stand in one, itself first."""
    found = [kind]
    for at in found:
        for hint in get_type_hints(at).values():
            found.extend(inner for inner in _inside(hint) if inner not in found)
    return found


def _inside(hint: Any) -> Iterator[Any]:
    if is_dataclass(hint):
        yield hint
    for part in get_args(hint):
        yield from _inside(part)


def _type(hint: Any, field: Any) -> str:
    if field.default is field.default_factory is MISSING:
        return f"{_word(hint)}, needed"
    default = getattr(field.default, "value", field.default)  # of an enum
    if default in (None, (), ""):
        return _word(hint)
    return f"{_word(hint)}, else {str(default).lower().removesuffix('.0')}"


def _word(hint: Any) -> str:
    origin, parts = get_origin(hint), get_args(hint)
    if hint in _WORDS:
        return _WORDS[hint]
    if origin in (Union, types.UnionType):
        return _word(next(part for part in parts if part is not type(None)))
    if origin is Literal:
        return "word"
    if origin is frozenset:
        return f"list of {_word(parts[0])}"
    if origin is tuple:
        return f"list of {_word(parts[0])}" if parts[-1] is Ellipsis else f"[{', '.join(map(_word, parts))}]"
    if isinstance(hint, type) and issubclass(hint, Enum):
        return "word"
    if isinstance(hint, type) and is_dataclass(hint):
        return hint.__name__.lower()
    return f"[{', '.join(get_type_hints(hint))}]"


def _help(hint: Any, field: Any) -> str:
    """What it means: of a metric as it is declared, of all others as its type is annotated."""
    unit, said = field.metadata.get("unit", Unit.WORD), field.metadata.get("help")
    for note in getattr(hint, "__metadata__", ()):
        said = note
    more = [unit.value] if unit not in (Unit.WORD, Unit.FLAG, Unit.COUNT) else []
    words = ", ".join(_words(hint))
    return " ".join([said or "", *(f"({one})" for one in (*more, words) if one)])


def _words(hint: Any) -> Iterator[str]:
    """The words that a field may hold, where there are only some."""
    if get_origin(hint) is Literal:
        yield from map(str, get_args(hint))
    elif isinstance(hint, type) and issubclass(hint, Enum):
        yield from (str(member.value) for member in hint)
    elif not is_dataclass(hint):
        for part in get_args(hint):
            yield from _words(part)
