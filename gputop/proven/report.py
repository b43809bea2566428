"""Fixes as text: the change, speed before and after, and the prediction."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from statistics import median
from typing import Any, NamedTuple

from gputop.labels import amount
from gputop.proven.fixes import Fix, encode
from gputop.proven.measured import LEAST_GAIN, Gain, Measured
from gputop.proven.runs import UNSHOWN, differences
from gputop.report import Page, ReportTable

NOT_SEEN = "finding gone; the change that fixed it is not visible"
_SHOWN_BY = {"num_workers": "loader", "OMP_NUM_THREADS": "threads"}  # arguments with the same meaning
_LEAST_THREADS = 0.2  # least change in the number of busy threads worth mentioning


class Score(NamedTuple):
    """Accuracy of predictions over measured fixes."""

    predictions: int
    ratio: float | None  # median ratio of outcome to prediction
    within: int  # faster, and no more than predicted
    gained: int  # faster at all


def line(fix: Fix) -> str:
    """The full sentence with the script's name."""
    return f"{fix.run.name}: {sentence(fix)}"


def brief(fix: Fix) -> str:
    """The same with the gain first, without the prediction: for a line that may be truncated."""
    if fix.outcome is None or fix.gain is None:
        return line(fix)
    return (
        f"{fix.run.name}: {_change(fix)}: {', '.join((_gain_text(fix.gain), *_numbers(fix.before, fix.outcome.after)))}"
    )


def is_faster(fix: Fix) -> bool:
    """Whether there is a gain beyond the noise."""
    return fix.gain is not None and fix.gain.certain and fix.gain.times > 1


def sentence(fix: Fix) -> str:
    """`num_workers 2 → 5: GPU busy 55 → 88 %, step 310 → 190 ms, 1.6× (up to 1.8× was predicted)`."""
    if fix.outcome is None:
        return pending_text(fix)
    if fix.outcome.differs:
        return ": ".join(filter(None, (", ".join(changes(fix)), f"not comparable: {fix.outcome.differs}")))
    gained = "step time not measured" if fix.gain is None else _gain_text(fix.gain)
    bound = f" (up to {fix.most:.1f}× was predicted)" if fix.most else ""
    return f"{_change(fix)}: {', '.join((*_numbers(fix.before, fix.outcome.after), gained))}{bound}"


def _change(fix: Fix) -> str:
    return ", ".join(changes(fix)) or NOT_SEEN


def _gain_text(found: Gain) -> str:
    """The speedup, if beyond the noise."""
    said = "" if found.times > 1 else ", slower"
    if not found.certain:
        said = ", no gain measured" if abs(found.times - 1) < LEAST_GAIN else ", within the noise"
    return f"{found.times:.1f}×{said}"


def pending_text(fix: Fix) -> str:
    """The finding, and the value to set."""
    values = ", ".join(f"{name}={value}" for name, value in fix.advised.items())
    bound = f", up to {fix.most:.1f}× predicted" if fix.most else ""
    return f"{fix.headline}{f'; advised: {values}' if values else ''}{bound}"


def changes(fix: Fix) -> list[str]:
    """Changed settings, with the advised value if it is different."""
    if fix.outcome is None:
        return []
    old, new = fix.settings, fix.outcome.settings
    found, named = list[str](), set[str]()
    for name in ("num_workers", "OMP_NUM_THREADS", "pin_memory"):
        before, after = old.get(name), new.get(name)
        if before is None or after is None or before == after:
            continue
        named.add(_SHOWN_BY.get(name, ""))
        wanted = fix.advised.get(name, "")
        aside = f" ({wanted} advised)" if wanted.isdecimal() and wanted != _value(after) else ""
        found.append(f"{name} {_value(before)} → {_value(after)}{aside}")
    arguments = [each for each in differences(fix.run, fix.outcome.run) if each.kind not in ("", UNSHOWN, *named)]
    found += [each.text for each in arguments]
    before, after = old.get("busy threads"), new.get("busy threads")
    threads = fix.rule.startswith("threads") and not any(each.kind == "threads" for each in arguments)
    if threads and "threads" not in named and isinstance(before, float) and isinstance(after, float):
        enough = before > 0 and abs(after / before - 1) >= _LEAST_THREADS
        found += [f"busy threads {before:.0f} → {after:.0f}"] if enough else []
    return found


def _value(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.0f}"


def _numbers(before: Measured, after: Measured) -> Iterator[str]:
    if before.busy_percent and after.busy_percent:
        yield f"GPU busy {before.busy_percent.median:.0f} → {after.busy_percent.median:.0f} %"
    if before.step_s and after.step_s:
        yield f"step {_times(before.step_s.median, after.step_s.median)}"
    elif before.samples_per_s and after.samples_per_s:
        yield f"samples/s {before.samples_per_s.median:.4g} → {after.samples_per_s.median:.4g}"


def _times(before: float, after: float) -> str:
    """Two times in the unit of the longer: 310 → 190 ms."""
    longest = max(before, after)
    if longest >= 1:
        places = 2 if longest < 10 else 1
        return f"{before:.{places}f} → {after:.{places}f} s"
    places = 1 if longest < 0.01 else 0
    return f"{1000 * before:.{places}f} → {1000 * after:.{places}f} ms"


def score(fixes: Iterable[Fix]) -> Score:
    """Accuracy of the predictions for these."""
    pairs = [(found, fix.most) for fix in fixes if (found := fix.gain) is not None and fix.most]
    gained = [(found, most) for found, most in pairs if found.certain and found.times > 1]
    return Score(
        predictions=len(pairs),
        ratio=median(found.times / most for found, most in pairs) if pairs else None,
        within=sum(found.times <= most * (1 + LEAST_GAIN) for found, most in gained),
        gained=len(gained),
    )


def score_text(found: Score) -> str:
    """The same as a sentence."""
    if found.ratio is None:
        return "No prediction has a measured outcome yet: that takes two runs started with gputop run."
    return (
        f"{amount(found.predictions, 'prediction')} compared with an outcome: {amount(found.gained, 'run')} faster, "
        f"{found.within} of them by no more than predicted. Measured / predicted speed-up, median: {found.ratio:.2f}."
    )


def page(fixes: Sequence[Fix], *, stats: bool = False) -> Page:
    """All records, newest first; with `stats` only the accuracy of predictions."""
    if stats:
        said = score_text(score(fixes))
        return Page(title="Fixes: predicted and measured speed-up", heading="Accuracy of predictions", words=(said,))
    newest = sorted(fixes, key=_newest_s, reverse=True)
    done, open_ = [fix for fix in newest if fix.outcome], [fix for fix in newest if not fix.outcome]
    tables = [
        ReportTable(title, ("when", "what"), tuple((_when(fix), line(fix)) for fix in some), spoken=True)
        for title, some in (("Compared with a later run", done), ("Waiting for the next run of the script", open_))
        if some
    ]
    words = () if newest else ("Nothing yet: findings are stored while gputop or gputop diagnose runs.",)
    return Page(title=f"Fixes: {len(done)} compared, {len(open_)} waiting", words=words, tables=tuple(tables))


def _newest_s(fix: Fix) -> float:
    return fix.outcome.at_s if fix.outcome else fix.at_s


def _when(fix: Fix) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(_newest_s(fix)))


def as_json(fixes: Iterable[Fix]) -> list[dict[str, Any]]:
    """Each with its sentence and measurements, newest first."""
    return [as_object(fix) for fix in sorted(fixes, key=_newest_s, reverse=True)]


def as_object(fix: Fix) -> dict[str, Any]:
    """One fix as JSON."""
    said = encode(fix)
    del said["version"]
    found = fix.gain
    gained = None if found is None else {"times": found.times, "beyond_noise": found.certain}
    return {"text": line(fix), "gain": gained, "predicted": fix.most and [1.0, fix.most], **said}
