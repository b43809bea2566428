"""Frames of which somebody has taken signals away: unknown in every frame, and denied is why."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import cache
from typing import Any, TypeVar

from gputop.diagnose.rule import Rule
from gputop.model import Frame, Gpu, Missing

_T = TypeVar("_T")


def declared(rule: Rule) -> set[str]:
    """All signals that a rule may say are missing."""
    return {name for need in (*rule.needs, *rule.partly) for name in need.split(" or ")}


def without(frame: Frame, *names: str) -> Frame:
    """The same frame in which nobody tells these metrics, whatever they are of."""
    host = frame.host
    parts = {name: _each(getattr(host, name), names) for name in ("disks", "mounts", "networks")}
    # who computes on a GPU is the driver's to tell: its list is what is denied
    of_gpus = (*names, "processes") if "gpus" in names else names
    return replace(
        frame,
        host=_robbed(replace(host, **parts), names),
        gpus=_each(frame.gpus, of_gpus),
        processes=tuple(_robbed(replace(one, gpus=_each(one.gpus, names)), names) for one in frame.processes),
        cgroups=_each(frame.cgroups, names),
    )


def _each(things: tuple[_T, ...], names: tuple[str, ...]) -> tuple[_T, ...]:
    return tuple(_robbed(thing, names) for thing in things)


def _robbed(thing: _T, names: tuple[str, ...]) -> _T:
    """One of its things; where it has a list of reasons, they stand in it."""
    changes = dict(_unknown(type(thing), names))
    told = (*changes, *({"processes"} & set(names) if isinstance(thing, Gpu) else ()))
    if told and hasattr(thing, "missing"):
        denied = tuple(Missing(metric=name, reason="denied") for name in told)
        changes["missing"] = (*thing.missing, *denied)
    return replace(thing, **changes) if changes else thing  # type: ignore[type-var]


@cache
def _unknown(kind: type, names: tuple[str, ...]) -> dict[str, Any]:
    """What fields of a kind hold once these are taken away, their finer steps too."""
    emptied = {}
    for field in fields(kind):  # type: ignore[arg-type]
        taken = field.name in names or (field.name.endswith("_series") and _coarse(kind, field.name) in names)
        if taken and field.default in (None, ()):
            emptied[field.name] = () if field.default == () else None
    return emptied


def _coarse(kind: type, series: str) -> str:
    """The metric of which these are the finer steps."""
    stem = series.removesuffix("series")
    return next((one.name for one in fields(kind) if one.name.startswith(stem) and one.name != series), series)  # type: ignore[arg-type]
