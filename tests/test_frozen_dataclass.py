"""Values are compared, hashed and shown by their fields."""

from __future__ import annotations

import copy
import pickle
from dataclasses import field, fields, replace

import pytest

from gputop.frozen_dataclass import frozen_dataclass


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Two numbers, and where they come from, which does not count."""

    x: int
    y: int = 0
    origin: str = field(default="", compare=False, repr=False)


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Solid(Point):
    """One more."""

    z: int = 0


@frozen_dataclass(frozen=True)
class Named:
    """One field, and its own words."""

    name: str

    def __repr__(self) -> str:
        return f"<{self.name}>"


@frozen_dataclass(frozen=True, slots=True)
class Nothing:
    """No field at all."""


def test_values_are_told_apart_by_their_fields() -> None:
    one, same = Point(x=1, y=2, origin="here"), Point(x=1, y=2, origin="there")
    assert one == same
    assert hash(one) == hash(same)
    assert one != Point(x=1, y=3)
    assert Point(x=1) != Solid(x=1)
    assert Solid(x=1, z=1) != Solid(x=1, z=2)
    assert one != (1, 2)
    assert Nothing() == Nothing()
    assert {Nothing(), Nothing(), Named("a"), Named("a")} == {Nothing(), Named("a")}


def test_they_show_what_they_hold() -> None:
    assert repr(Solid(x=1, y=2, origin="here", z=3)) == "Solid(x=1, y=2, z=3)"
    assert repr(Named("a")) == "<a>"


def test_they_are_dataclasses() -> None:
    one = Solid(x=1, z=3)
    assert [field.name for field in fields(one)] == ["x", "y", "origin", "z"]
    assert replace(one, y=7) == Solid(x=1, y=7, z=3)
    assert copy.copy(one) == pickle.loads(pickle.dumps(one)) == one
    with pytest.raises(AttributeError):
        one.w = 1  # type: ignore[attr-defined]  # it has slots
