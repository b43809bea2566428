"""What a metric is: one dataclass field that says its unit, its meaning and its natural maximum."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import field, fields
from enum import Enum
from functools import cache
from typing import Annotated, Any, Literal

from gputop.frozen_dataclass import frozen_dataclass

Reason = Literal["unsupported", "denied", "stale", "lost", "absent", "implausible"]
Tier = Literal["core", "extended"]  # extended: on no screen and in no rule, read while an export or recording asks


class Unit(str, Enum):
    """The unit of a metric; the field's suffix says the same to a reader of the code."""

    PERCENT = "%"
    BYTES = "B"
    BYTES_PER_S = "B/s"
    PER_S = "1/s"
    WATTS = "W"
    JOULES = "J"
    CELSIUS = "C"
    MHZ = "MHz"
    SECONDS = "s"
    COUNT = ""
    FLAG = "yes/no"
    WORD = "word"


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """Why a value is None: the metric's name, the reason, and what would unlock it."""

    metric: Annotated[str, "the field without a value"]
    reason: Annotated[Reason, "why"]
    unlock: Annotated[str | None, "how to make it available"] = None


@frozen_dataclass(frozen=True, slots=True)
class Metric:
    """The declaration of one metric, as help, JSON, CSV and history read it."""

    owner: str  # gpu, process, host, disk, ...
    name: str
    unit: Unit
    help: str
    top: float | None  # the natural maximum, for fixed chart axes
    history: bool  # looked back on: the history keeps it
    tier: Tier
    counter: bool  # only grows, until what counts it restarts: rates are made of two values


def metric(
    unit: Unit,
    help: str,
    *,
    top: float | None = None,
    history: bool = False,
    tier: Tier = "core",
    counter: bool = False,
) -> Any:
    """A dataclass field that holds one metric and defaults to unknown."""
    said = {"unit": unit, "help": help, "top": top, "history": history, "tier": tier, "counter": counter}
    return field(default=None, metadata=said)


def extended(default: tuple[()] | None) -> Any:
    """A field of the extended tier that is no metric: several numbers."""
    return field(default=default, metadata={"tier": "extended"})


@cache
def metrics(owner: type) -> tuple[Metric, ...]:
    """The metrics that a model class declares, in order."""
    name = owner.__name__.lower()
    return tuple(Metric(name, f.name, **f.metadata) for f in fields(owner) if "unit" in f.metadata)


@cache
def extended_names(owner: type) -> frozenset[str]:
    """The fields of a model class that are of the extended tier."""
    return frozenset(f.name for f in fields(owner) if f.metadata.get("tier") == "extended")


def check_filled(wanted: Iterable[str], filled: Iterable[str]) -> None:
    """TypeError unless the two hold the same names, each once."""
    declared, times = set(wanted), Counter(filled)
    if problems := [
        *(f"no probe fills {name}" for name in sorted(declared - times.keys())),
        *(f"{name} is not declared in the model" for name in sorted(times.keys() - declared)),
        *(f"{name} is filled {count} times" for name, count in sorted(times.items()) if count > 1),
    ]:
        raise TypeError("; ".join(problems))
