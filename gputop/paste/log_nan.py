"""NaN and infinity in a log: where a loss or a gradient norm stopped being a number, and what came before."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from gputop.declare import record
from gputop.page import Do, Point
from gputop.paste.limits import Limits
from gputop.paste.pasted import median
from gputop.safe.text import clean

_LIMIT = Limits("paste-log")

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
_SETTINGS = ("best", "min", "max", "clip")  # names that begin so are no measurement: the best loss begins at infinity
_STEP = re.compile(r"\b(?:step|iter(?:ation)?|global_step)\b['\"]?[\s:=#\[]{0,4}(\d{1,9})", re.IGNORECASE)
_KEPT = 32  # values of each number that are remembered

_CLIP = Do("Clip gradients before optimizer.step().", "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)")
_ANOMALY_STEP = Do(
    "Find the operation: run a few steps with anomaly detection, which about doubles backward. Turn it off then.",
    "with torch.autograd.detect_anomaly(): loss = model(x); loss.backward()",
)


@record(frozen=True, slots=True, kw_only=True)
class Lost:
    """The first number that was none, in which line and step, and the finite values before it."""

    line: int
    name: str
    value: str
    step: int | None
    before: tuple[float, ...]

    @property
    def grew(self) -> bool:
        """Whether it was far above its usual value when it was lost."""
        usual = median(abs(value) for value in self.before[:-1])
        return bool(usual and len(self.before) >= _LIMIT["values"] and abs(self.before[-1]) >= _LIMIT["grew"] * usual)


def find(text: Sequence[str]) -> Iterator[tuple[int, str, Point, dict[str, Any]]]:
    """One trouble for all of it; overflows of a loss scale only where they do not end."""
    lost, named = first_lost(text), _named(text)
    overflows = [at for at, line in enumerate(text) if _OVERFLOW.search(line)]
    stuck = [at for at, line in enumerate(text) if _MINIMUM.search(line)]
    if lost or named:
        start = min(at for at in (lost.line if lost else None, named[0] if named else None) if at is not None)
        function = named[1] if named else None
        point = Point(
            severity="crit",
            text=_headline(lost, function),
            facts=tuple(_facts(lost, function, len(overflows))),
            steps=tuple(_steps(lost, function, bool(overflows))),
        )
        yield start, "NaN", point, _numbers(lost, function, len(overflows))
    elif stuck or len(overflows) >= _LIMIT["overflows"]:
        at = (stuck or overflows)[0]
        yield at, "loss scale overflow", _scaled(len(overflows), bool(stuck)), {"overflows": len(overflows)}


def first_lost(text: Sequence[str]) -> Lost | None:
    """The first loss or gradient norm that is NaN or infinite; a line that says so in words where none is logged."""
    before: dict[str, list[float]] = {}
    step: int | None = None
    for at, line in enumerate(text):
        if found := _STEP.search(line):
            step = int(found[1])
        for metric in _METRIC.finditer(line):
            name, value = metric[1].lower(), metric[2].lower()
            if value.lstrip("+-")[:1] not in "ni":
                before.setdefault(name, []).append(float(value))
                del before[name][:-_KEPT]
            elif not _harmless(line) and not name.startswith(_SETTINGS):
                return Lost(line=at, name=name, value=value, step=step, before=tuple(before.get(name, ())))
        if _SAID.search(line) and not _harmless(line):
            losses = next((values for name, values in before.items() if name.endswith("loss")), [])
            return Lost(line=at, name="loss", value="not finite", step=step, before=tuple(losses))
    return None


def _harmless(line: str) -> bool:
    """Whether it only tells of a check, or of the first value that was better than infinity."""
    return _FINE.search(line) is not None


def _named(text: Sequence[str]) -> tuple[int, str] | None:
    return next(((at, clean(found[1], 80)) for at, line in enumerate(text) if (found := _ANOMALY.search(line))), None)


def _headline(lost: Lost | None, function: str | None) -> str:
    if function:
        return f"NaN gradient: {function} returned NaN in backward."
    assert lost is not None
    what = {"nan": "NaN", "inf": "infinite"}.get(lost.value.lstrip("+-")[:3], "not finite")
    at = f" at step {lost.step}" if lost.step is not None else ""
    how = "" if len(lost.before) < _LIMIT["values"] else ", after it grew" if lost.grew else ", all at once"
    return f"The {clean(lost.name, 40)} is {what}{at}{how}."


def _facts(lost: Lost | None, function: str | None, overflows: int) -> Iterator[str]:
    if lost is not None:
        yield f"first in line {lost.line + 1}"
        if lost.before:
            yield "before it: " + ", ".join(f"{value:.4g}" for value in lost.before[-5:])
    if function:
        yield "named by anomaly detection"
    if overflows:
        yield f"{overflows} overflows of the loss scale"


def _steps(lost: Lost | None, function: str | None, scaled: bool) -> Iterator[str | Do]:
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


def _suspects(function: str) -> str:
    known = {
        "Sqrt": "sqrt has an infinite gradient at 0",
        "Log": "log of 0 or less",
        "Div": "division by 0",
        "Pow": "pow with a base of 0 or less",
        "Norm": "norm of a zero vector",
        "Exp": "exp overflows",
        "Softmax": "a row that is masked whole",
    }
    return next((why for start, why in known.items() if function.startswith(start)), "what it was given is suspect")


def _scaled(overflows: int, stuck: bool) -> Point:
    return Point(
        severity="crit" if stuck else "warn",
        text="fp16 gradients overflow again and again: steps are skipped.",
        facts=(f"{overflows} overflows of the loss scale (one each 2000 steps is normal)",),
        steps=("Use bf16 instead of fp16.", _CLIP, "Lower the learning rate, or warm it up longer.", _ANOMALY_STEP),
    )


def _numbers(lost: Lost | None, function: str | None, overflows: int) -> dict[str, Any]:
    return {
        "metric": clean(lost.name, 40) if lost else None,
        "step": lost.step if lost else None,
        "before": list(lost.before) if lost else [],
        "grew": lost.grew if lost else None,
        "function": function,
        "overflows": overflows,
    }
