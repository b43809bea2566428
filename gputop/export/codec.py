"""Encode frames as plain JSON and decode them, driven by the model's types: a new field needs no line here."""

from __future__ import annotations

import json
import types
import zlib
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from itertools import compress
from operator import attrgetter, is_not
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from gputop import __version__
from gputop.model import Frame
from gputop.safe.text import clean

VERSION = 1
MOST_CHARS = 64 * 1024 * 1024  # of one object; the largest real frame has a thousandth of it
MOST_ITEMS = 200_000  # of one list
MOST = 1e15  # of a fractional number; integers such as bytes and counters may be larger
_MOST_INT = 2**63
# words that recordings of older versions have for a value
_FORMER = {"heat": "thermal", "hard heat": "hw thermal", "hardware": "hw slowdown", "settings": "clock settings"}

T = TypeVar("T")
Read = Callable[[Any], Any]


class InvalidValue(ValueError):
    """An invalid value; its location is prepended on the way out, at no cost for valid ones."""

    def inside(self, place: str) -> InvalidValue:
        """The same error seen from one level further out."""
        return InvalidValue(f"{place}{self}")


def encode(value: Any) -> Any:
    """A value of the model as JSON: unknown fields are omitted, a set becomes a sorted list."""
    kind: Any = type(value)
    if kind in _PLAIN:
        return value
    if kind is tuple:
        return [item if type(item) in _PLAIN else encode(item) for item in value]
    names = _names(kind)
    if names:
        found = ((name, getattr(value, name)) for name in names)
        return {name: item if type(item) in _PLAIN else encode(item) for name, item in found if item is not None}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, tuple):
        return [encode(item) for item in value]
    raise TypeError(f"{kind.__name__} has no place in a frame")


def decode(kind: type[T], data: Any) -> T:
    """The inverse of `encode`; ValueError says in one line what is wrong and where.

    Unknown keys are ignored and missing ones take their default: older and newer versions are readable.
    """
    try:
        return cast(T, _reader(cast(Any, kind))(data))
    except InvalidValue as wrong:
        raise wrong.inside(kind.__name__.lower()) from None


def dumps(data: Any) -> str:
    """One line of ASCII, with parts of the model as in `said`; ValueError for a number JSON cannot express."""
    return _TO_TEXT(data)


def non_default_fields(part: Any) -> dict[str, Any]:
    """The fields of a part of the model that differ from their defaults."""
    kind: Any = type(part)
    names, values, defaults = shape(kind)
    found = values(part)
    return dict(compress(zip(names, found, strict=True), map(is_not, found, defaults)))


def _to_plain(part: Any) -> Any:
    """A value unknown to JSON as one that it knows."""
    return sorted(part) if isinstance(part, frozenset) else non_default_fields(part)


def line(data: Mapping[str, Any]) -> str:
    """An object as a line of a stream."""
    return with_checksum(dumps(data))


def with_checksum(text: str) -> str:
    """The text of an object as a line. Its last key is the CRC-32 of everything before it, to detect damage."""
    text = text[:-1]
    return f'{text},"crc":"{zlib.crc32(text.encode()):08x}"}}\n'


def loads(text: str) -> Any:
    """The inverse of `dumps`; ValueError in one line for anything else."""
    if len(text) > MOST_CHARS:
        raise ValueError(f"{len(text)} characters exceed the maximum of one object")
    try:
        return json.loads(text, parse_constant=_constant)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} at character {error.pos}") from None
    except RecursionError:
        raise ValueError("not a frame: nested too deeply") from None


def header(hostname: str) -> dict[str, Any]:
    """The first line of a stream of frames."""
    return {"type": "header", "version": VERSION, "gputop": __version__, "host": hostname}


def event(wall_s: float, mono_s: float, kind: str, text: str, severity: str = "info") -> dict[str, Any]:
    """An event at the preceding frame as a line of a stream: a gap, a finding."""
    return {"type": "event", "wall_s": wall_s, "mono_s": mono_s, "kind": kind, "severity": severity, "text": text}


def frame_line(frame: Frame) -> dict[str, Any]:
    """A frame as a line of a stream, without default values."""
    return {"type": "frame", "frame": frame}


_PLAIN = frozenset({str, int, float, bool, type(None)})
_TO_TEXT = json.JSONEncoder(
    ensure_ascii=True, allow_nan=False, check_circular=False, separators=(",", ":"), default=_to_plain
).encode


@cache
def _names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind)) if is_dataclass(kind) else ()


@cache
def shape(kind: Any) -> tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]], tuple[Any, ...]]:
    """Field names of a model type, its constructor, and its defaults."""
    names = _names(kind)
    if not names:
        raise TypeError(f"{kind.__name__} has no place in a frame")
    values: Any = attrgetter(*names)
    return names, values if len(names) > 1 else lambda part: (values(part),), tuple(f.default for f in fields(kind))


def _constant(word: str) -> Any:
    raise ValueError(f"{word} is not a number")


@cache
def _reader(kind: Any) -> Read:
    """The decoder of JSON for this type; built once per type."""
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        read = _reader(_known(kind))
        return lambda value: None if value is None else read(value)
    if origin is Literal:
        return _word(get_args(kind))
    if origin is tuple:
        return _tuple(get_args(kind))
    if origin is frozenset:
        items = _list(_reader(get_args(kind)[0]))
        return lambda value: frozenset(items(value))
    if kind in _SCALARS:
        return _SCALARS[kind]
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _enum(kind)
    if isinstance(kind, type) and issubclass(kind, tuple):
        parts = _fixed(tuple(_reader(hint) for hint in get_type_hints(kind).values()))
        return lambda value: kind(*parts(value))
    if is_dataclass(kind):
        return _object(kind)
    raise TypeError(f"{kind!r} has no place in a frame")


def _object(kind: Any) -> Read:
    hints = get_type_hints(kind)
    reader = {field.name: _reader(_known(hints[field.name])) for field in fields(kind)}.get
    needed = [field.name for field in fields(kind) if field.default is field.default_factory is MISSING]

    def read(value: Any) -> Any:
        if type(value) is not dict:
            raise _wrong(value, "an object")
        for name in needed:
            if value.get(name) is None:
                raise InvalidValue(f" has no {name}")
        found = {}
        name = ""
        try:
            for name, item in value.items():
                if item is not None and (one := reader(name)):
                    found[name] = one(item)
        except InvalidValue as wrong:
            raise wrong.inside(f".{name}") from None
        return kind(**found)

    return read


def _known(kind: Any) -> Any:
    """The type of an optional value when it is not None."""
    if get_origin(kind) not in (Union, types.UnionType):
        return kind
    inner = [part for part in get_args(kind) if part is not type(None)]
    if len(inner) != 1:
        raise TypeError(f"{kind!r} has no place in a frame")
    return inner[0]


def _tuple(parts: tuple[Any, ...]) -> Read:
    if parts[-1] is Ellipsis:
        return _list(_reader(parts[0]))
    return _fixed(tuple(_reader(part) for part in parts))


def _list(read: Read) -> Read:
    def all_of(value: Any) -> tuple[Any, ...]:
        if type(value) is not list or len(value) > MOST_ITEMS:
            raise _wrong(value, "a list")
        try:
            return tuple(map(read, value))
        except InvalidValue as wrong:
            raise wrong.inside("[]") from None

    return all_of


def _fixed(readers: tuple[Read, ...]) -> Read:
    size = len(readers)

    def each(value: Any) -> tuple[Any, ...]:
        if type(value) is not list or len(value) != size:
            raise _wrong(value, f"a list of {size}")
        try:
            return tuple([read(item) for read, item in zip(readers, value, strict=True)])
        except InvalidValue as wrong:
            raise wrong.inside("[]") from None

    return each


def _word(words: tuple[Any, ...]) -> Read:
    known: Mapping[Any, Any] = {word: word for word in words}

    def read(value: Any) -> Any:
        word = _FORMER.get(value, value) if type(value) is str and value not in known else value
        if type(word) is not str or word not in known:
            raise _wrong(value, "a word that this version knows")
        return known[word]

    return read


def _enum(kind: type[Enum]) -> Read:
    word = _word(tuple(member.value for member in kind))
    return lambda value: kind(word(value))


def _float(value: Any) -> float:
    if type(value) is float and -MOST <= value <= MOST:
        return value
    if type(value) is not int or abs(value) > MOST:
        raise _wrong(value, "a number")
    return float(value)


def _int(value: Any) -> int:
    if type(value) is float and value.is_integer():
        value = int(value)
    if type(value) is not int or abs(value) >= _MOST_INT:
        raise _wrong(value, "a whole number")
    return value


def _bool(value: Any) -> bool:
    if type(value) is not bool:
        raise _wrong(value, "true or false")
    return value


def _str(value: Any) -> str:
    if type(value) is not str:
        raise _wrong(value, "a text")
    return clean(value)


_SCALARS: Mapping[Any, Read] = {float: _float, int: _int, bool: _bool, str: _str}


def _wrong(value: Any, wanted: str) -> InvalidValue:
    shown = "an object" if type(value) is dict else clean(repr(value), 40)
    if type(value) is list:
        shown = f"a list of {len(value)}"
    return InvalidValue(f" is {shown}, not {wanted}")
