"""A value of every field: what the golden frame is made of, so that a field without a golden value is noticed."""

from __future__ import annotations

import types
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


def filled(kind: type[T]) -> T:
    """An instance in which every field, at every depth, has a value that is not its default."""
    found: T = _value(kind, kind.__name__.lower())
    return found


def _value(hint: Any, name: str) -> Any:
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _value(next(part for part in parts if part is not type(None)), name)
    if origin is Literal:
        return parts[-1]
    if origin is frozenset:
        return frozenset(get_args(parts[0]))
    if origin is tuple and parts[-1] is Ellipsis:
        return (_value(parts[0], name),)
    if origin is tuple:
        return tuple(_value(part, f"{name}{place}") for place, part in enumerate(parts))
    if is_dataclass(hint) and isinstance(hint, type):
        hints = get_type_hints(hint)
        return hint(**{field.name: _changed(hints[field.name], field) for field in fields(hint)})
    if isinstance(hint, type) and issubclass(hint, Enum):
        return list(hint)[1]
    if isinstance(hint, type) and issubclass(hint, tuple):
        return hint(*(_value(part, key) for key, part in get_type_hints(hint).items()))
    return {str: f"the {name}", int: 1000 + len(name), float: len(name) + 0.25, bool: True}[hint]


def _changed(hint: Any, field: Any) -> Any:
    value = _value(hint, field.name)
    return not field.default if hint is bool else value


def gaps(value: Any, where: str = "frame") -> list[str]:
    """Fields of a value, at any depth, that still have their default."""
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return [gap for item in value for gap in gaps(item, f"{where}[]")]
    if not is_dataclass(value):
        return []
    found = [f"{where}.{field.name}" for field in fields(value) if getattr(value, field.name) == field.default]
    return found + [gap for field in fields(value) for gap in gaps(getattr(value, field.name), f"{where}.{field.name}")]
