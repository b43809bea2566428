"""NaN and infinity in a log: the first non-finite loss or gradient norm, and the values before it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from gputop.frozen_dataclass import frozen_dataclass
from gputop.paste.pasted import LimitTable, median
from gputop.pytorch import CLIP, DETECT_ANOMALY
from gputop.report import Do, Point
from gputop.safe.text import clean

_LIMIT = LimitTable("paste-log")

_VALUE = r"(-?(?:nan|inf(?:inity)?)(?:\.0)?|[-+]?\d{1,12}(?:\.\d{1,12})?(?:e[-+]?\d{1,3})?)(?![\w.])"
_METRIC = re.compile(
    r"\b((?:[A-Za-z][A-Za-z_]{0,40}[_/ -])?(?:loss|grad(?:ient)?[_ ]?norm|perplexity|ppl))(?:\b|_)['\"]?"
    rf"[ \t]{{0,8}}(?:is|[:=|])?[ \t]{{0,8}}(?:tensor\()?['\"]?{_VALUE}",
    re.IGNORECASE,
)
_SAID = re.compile(
    r"(?:loss|grad\w*)[^.;\n]{0,30}\b(?:is|are|became|returned|contains?|has)\b[^.;\n]{0,16}\b(?:nan|inf|infinite|non-?finite)\b"
    r"|non-?finite (?:loss|grad)|nan (?:loss|detected|or inf found)|nan/inf",
    re.IGNORECASE,
)
_ANOMALY = re.compile(r"Function '(\w{1,80})' returned nan values in its (\d{1,3})\w\w output")
_OVERFLOW = re.compile(
    r"gradient overflow|overflow! attempted loss scale|reducing loss scale to|found inf.*scal", re.IGNORECASE
)
_MINIMUM = re.compile(r"loss scale already at minimum|minimum loss scale reached", re.IGNORECASE)
_FINE = re.compile(r"\b(?:no nan|not nan|without nan|improved from|check(?:s|ing)?)\b", re.IGNORECASE)
_SETTINGS = ("best", "min", "max", "clip")  # prefixes of names that are no measurements
_STEP = re.compile(r"\b(?:step|iter(?:ation)?|global_step)\b['\"]?[\s:=#\[]{0,4}(\d{1,9})", re.IGNORECASE)
_IN_WORDS = "in words"  # a loss that is only reported in words
_KEPT = 32  # values remembered per number

_CLIP = Do("Clip gradients before optimizer.step().", CLIP)
_ANOMALY_STEP = Do(
    "Find the operation: run a few steps with anomaly detection, which about doubles backward. Turn it off then.",
    DETECT_ANOMALY,
)


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class FirstNonFinite:
    """The first non-finite number, its line and step, and the finite values before it.

    `after`: later finite values; empty if there are none.
    """

    line: int
    name: str
    value: str
    step: int | None
    before: tuple[float, ...]
    after: tuple[float, ...] = ()

    @property
    def grew(self) -> bool:
        """Whether it was far above its usual value just before."""
        usual = median(abs(value) for value in self.before[:-1])
        return bool(usual and len(self.before) >= _LIMIT["values"] and abs(self.before[-1]) >= _LIMIT["grew"] * usual)


def find(text: Sequence[str]) -> Iterator[tuple[int, str, Point, dict[str, Any]]]:
    """One item for all; loss scale overflows only if they do not end."""
    lost, named = first_lost(text), _named(text)
    overflows = [at for at, line in enumerate(text) if _OVERFLOW.search(line)]
    stuck = [at for at, line in enumerate(text) if _MINIMUM.search(line)]
    if lost or named:
        start = min(at for at in (lost.line if lost else None, named[0] if named else None) if at is not None)
        function = named[1] if named else None
        back = lost is not None and bool(lost.after) and not named
        point = Point(
            severity="warn" if back else "crit",
            text=_headline(lost, function),
            facts=tuple(_facts(lost, function, len(overflows))),
            steps=tuple(_back() if back else _steps(lost, function, bool(overflows))),
        )
        yield start, "NaN", point, _numbers(lost, function, len(overflows))
    elif stuck or len(overflows) >= _LIMIT["overflows"]:
        at = (stuck or overflows)[0]
        yield at, "loss scale overflow", _scaled(len(overflows), bool(stuck)), {"overflows": len(overflows)}


class _Numbers:
    """The values of each number of a log in order, and which are non-finite."""

    def __init__(self) -> None:
        self.before: dict[str, list[float]] = {}
        self.lost: dict[str, FirstNonFinite] = {}  # now
        self.back: list[FirstNonFinite] = []  # formerly, and finite again
        self._after: dict[str, list[float]] = {}
        self._at: dict[str, int | None] = {}  # step in which each last became non-finite

    def lose(self, name: str, line: int, value: str, step: int | None) -> None:
        """Record a non-finite number."""
        before = self.before.get(name, [])
        if name == _IN_WORDS:
            before = next((values for metric, values in self.before.items() if metric.endswith("loss")), [])
        metric = "loss" if name == _IN_WORDS else name
        self.lost.setdefault(name, FirstNonFinite(line=line, name=metric, value=value, step=step, before=tuple(before)))
        self._after[name], self._at[name] = [], step

    def add(self, name: str, value: float, step: int | None) -> None:
        """Record a finite number; several, or one of a later step, end a non-finite phase: ranks may interleave."""
        for one in [each for each in self.lost if each == name or (each == _IN_WORDS and name.endswith("loss"))]:
            after, at = self._after[one], self._at[one]
            after.append(value)
            if len(after) >= _LIMIT["values"] or (step is not None and at is not None and step > at):
                self.back.append(replace(self.lost.pop(one), after=tuple(after)))
        values = self.before.setdefault(name, [])
        values.append(value)
        del values[:-_KEPT]


def first_lost(text: Sequence[str]) -> FirstNonFinite | None:
    """The first non-finite loss or gradient norm; without logged values, a line that reports one in words.

    A lasting one has priority over one that recovers.
    """
    followed, step = _Numbers(), None
    for at, line in enumerate(text):
        if found := _STEP.search(line):
            step = int(found[1])
        harmless = _harmless(line)
        for metric in _METRIC.finditer(line):
            name, value = metric[1].lower(), metric[2].lower()
            if value.lstrip("+-")[:1] not in "ni":
                followed.add(name, float(value), step)
            elif not harmless and not name.startswith(_SETTINGS):
                followed.lose(name, at, value, step)
        if _SAID.search(line) and not harmless and not any(one.line == at for one in followed.lost.values()):
            followed.lose(_IN_WORDS, at, "not finite", step)
    first = min(followed.lost.values(), key=lambda one: one.line, default=None)
    return first or min(followed.back, key=lambda one: one.line, default=None)


def _harmless(line: str) -> bool:
    """Whether it only mentions a check, or the first value better than infinity."""
    return _FINE.search(line) is not None


def _named(text: Sequence[str]) -> tuple[int, str] | None:
    return next(((at, clean(found[1], 80)) for at, line in enumerate(text) if (found := _ANOMALY.search(line))), None)


def _headline(lost: FirstNonFinite | None, function: str | None) -> str:
    if function:
        return f"NaN gradient: {function} returned NaN in backward."
    assert lost is not None
    what = {"nan": "NaN", "inf": "infinite"}.get(lost.value.lstrip("+-")[:3], "not finite")
    at = f" at step {lost.step}" if lost.step is not None else ""
    how = "" if len(lost.before) < _LIMIT["values"] else ", after it grew" if lost.grew else ", all at once"
    if lost.after:
        return f"The {clean(lost.name, 40)} was {what}{at}{how}; it recovered."
    return f"The {clean(lost.name, 40)} is {what}{at}{how}."


def _facts(lost: FirstNonFinite | None, function: str | None, overflows: int) -> Iterator[str]:
    if lost is not None:
        yield f"first in line {lost.line + 1}"
        if lost.before:
            yield "before it: " + ", ".join(f"{value:.4g}" for value in lost.before[-5:])
        if lost.after:
            yield "after it: " + ", ".join(f"{value:.4g}" for value in lost.after)
    if function:
        yield "named by anomaly detection"
    if overflows:
        yield f"{overflows} overflows of the loss scale"


def _steps(lost: FirstNonFinite | None, function: str | None, scaled: bool) -> Iterator[str | Do]:
    grew = lost is not None and lost.grew
    if function:
        yield f"Look at the forward call that anomaly detection printed above it: {_suspects(function)}."
    elif grew:
        yield _CLIP
        yield "Lower the learning rate, or warm it up longer."
    yield from () if function else (_ANOMALY_STEP,)
    if not grew:
        yield "Check the batch of that step: torch.isfinite(x).all(), empty samples, labels out of range."
        yield _CLIP
    if scaled:
        yield "Use bf16 instead of fp16: it has the range of fp32 and needs no loss scale."
    else:
        yield "With fp16, use torch.amp.GradScaler and unscale_() before clipping, or train in bf16."
    if not grew:
        yield "Lower the learning rate, or warm it up longer."
    yield "Then check initialization, and unbounded operations: log, sqrt, exp, division; add an epsilon or clamp."
    yield "Log the gradient norm: it shows an explosion some steps before the loss does."


def _back() -> Iterator[str | Do]:
    """Steps for a number that has recovered."""
    yield "Check that this step was skipped: a GradScaler does, and with fp16 it is normal occasionally."
    yield "Without one, skip it: if not torch.isfinite(norm): optimizer.zero_grad(); continue."
    yield "Check the batch of that step: torch.isfinite(x).all(), empty samples, labels out of range."
    yield _CLIP


def _suspects(function: str) -> str:
    known = {
        "Sqrt": "sqrt has an infinite gradient at 0",
        "Log": "log of 0 or less",
        "Div": "division by 0",
        "Pow": "pow with a base of 0 or less",
        "Norm": "norm of a zero vector",
        "Exp": "exp overflows",
        "Softmax": "a fully masked row",
    }
    return next((why for start, why in known.items() if function.startswith(start)), "its input is suspect")


def _scaled(overflows: int, stuck: bool) -> Point:
    return Point(
        severity="crit" if stuck else "warn",
        text="fp16 gradients overflow repeatedly: steps are skipped.",
        facts=(f"{overflows} overflows of the loss scale (one per 2000 steps is normal)",),
        steps=("Use bf16 instead of fp16.", _CLIP, "Lower the learning rate, or warm it up longer.", _ANOMALY_STEP),
    )


def _numbers(lost: FirstNonFinite | None, function: str | None, overflows: int) -> dict[str, Any]:
    return {
        "metric": clean(lost.name, 40) if lost else None,
        "step": lost.step if lost else None,
        "before": list(lost.before) if lost else [],
        "grew": lost.grew if lost else None,
        "recovered": bool(lost.after) if lost else None,
        "function": function,
        "overflows": overflows,
    }
