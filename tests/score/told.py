"""The score as Markdown: what was right, under which disturbance, and what was not, for the manual."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import gputop
from gputop.docs.markdown import table
from tests.score.gains import counted
from tests.score.marks import MARKS, Result, Total, total

PAGE = Path(gputop.__file__).parent / "docs" / "diagnosis.md"
HEAD = ("", "runs", *MARKS, "must not", "healthy min", "false alarms/h", "detected after", "cleared after", "flaps")
Runs = Mapping[tuple[str, str, str], Result]  # by scenario, variant, tool


def page(runs: Runs, plain: str, how: str) -> str:
    """Both tables, what was not right, and how to make them again."""
    parts = [
        how,
        "Without disturbance, by gputop and by simpler rules implemented from what their authors publish:",
        _table(runs, {tool: [key for key in runs if key[1:] == (plain, tool)] for tool in _each(runs, 2)}),
        _well("these {} runs", [runs[key] for key in runs if key[1:] == (plain, "gputop")]),
    ]
    if len(variants := _each(runs, 1)) > 1:
        rows = {name: [key for key in runs if key[1:] == (name, "gputop")] for name in variants}
        parts += [f"gputop on the same runs, disturbed{_pooled(runs, plain)}:", _table(runs, rows)]
        parts.append(
            _well("the {} disturbed runs", [runs[key] for name in variants if name != plain for key in rows[name]])
        )
    parts += [*_commands(runs), *counted(runs, plain), _LEGEND]
    if rest := list(_rest(runs)):
        parts += [
            "Runs in which the planted cause was not primary, or more was reported:",
            table(("run", "mark", "reported instead"), rest),
        ]
    return "\n\n".join(parts) + "\n"


def land(tier: str, text: str) -> None:
    """Put the score of a tier into the manual, between its marks."""
    begin, end = f"<!-- {tier} -->\n", f"<!-- /{tier} -->\n"
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(begin)
    _, _, after = rest.partition(end)
    PAGE.write_text(f"{before}{begin}{text}{end}{after}", encoding="utf-8")


_LEGEND = """| mark | meaning |
| --- | --- |
| right | the planted cause is primary, or is reported where it is never primary; a healthy server is called healthy |
| secondary | it is reported, but something else is primary |
| symptom | only that the GPU waits, or a weaker finding planted with it: slow input without its cause, for example |
| wrong | something else is reported at warn or above, and the planted cause is not |
| abstained | nothing is reported at warn or above, and the rule says which metric it lacks |
| silent | nothing is reported at warn or above, and the rule does not say why |
| must not | runs with a misleading finding |
| healthy min | minutes watched without a fault; false alarms are findings at warn or above in them |

With abstained and silent, the GPU may also be called healthy; that is counted below each table. The last half minute
of a fault counts. Times are seconds, median and 95th percentile. A fault is removed where possible, to see when its
finding clears."""

_COMMAND = """These are the answers of the rules when a test asks them. The command was asked too: at the end of a
recording, `gputop diagnose --source FILE --json` had the same primary finding, findings and warnings, and the exit code
of the worst of them, in"""


def _each(runs: Runs, place: int) -> list[str]:
    return list(dict.fromkeys(key[place] for key in runs))


def _table(runs: Runs, rows: Mapping[str, Sequence[tuple[str, str, str]]]) -> str:
    return table(HEAD, (_row(name, total([runs[key] for key in keys])) for name, keys in rows.items() if keys))


def _well(which: str, results: Sequence[Result]) -> str:
    """In how many the primary finding was healthy, though there was something to find."""
    count, of = sum(one.well for one in results), sum(one.mark is not None for one in results)
    runs = which.format(of)
    return f"In {count} of {runs} the primary finding was healthy, though a fault was planted."


def _commands(runs: Runs) -> Iterator[str]:
    """Whether the command says what the rules do, where it was asked; then each run in which it does not."""
    asked = {name: one.command for (name, _, _), one in runs.items() if one.command is not None}
    if asked:
        same = sum(not said for said in asked.values())
        yield f"{_COMMAND} {same} of {len(asked)} runs, healthy twins included."
    if otherwise := [(name, said) for name, said in asked.items() if said]:
        yield table(("run", "the command and the rules differ in"), otherwise)


def _pooled(runs: Runs, plain: str) -> str:
    """How many of all disturbed runs are right; nothing where none needed to be."""
    disturbed = (result for (_, variant, tool), result in runs.items() if variant != plain and tool == "gputop")
    marks = [result.mark for result in disturbed if result.mark]
    right = marks.count("right")
    return f", {right} of {len(marks)} right ({100 * right / len(marks):.0f} %)" if marks else ""


def _row(name: str, of: Total) -> list[str]:
    return [
        name,
        str(of.runs),
        *(str(of.counts[mark]) if of.counts else "" for mark in MARKS),
        str(of.misled),
        f"{of.healthy_min:.0f}" if of.healthy_min else "",
        "" if of.alarms_per_hour is None else f"{of.alarms_per_hour:.2g}",
        _times(of.detect_s),
        _times(of.clear_s),
        str(of.flaps),
    ]


def _times(usual: tuple[float, float] | None) -> str:
    return f"{usual[0]:.0f} ({usual[1]:.0f})" if usual else ""


def _rest(runs: Runs) -> Iterator[tuple[str, str, str]]:
    for (name, variant, tool), result in runs.items():
        if tool == "gputop" and (result.mark not in (None, "right") or result.misled or result.false_alarms):
            wrong = [result.said] if result.said else []
            wrong += [f"must not: {', '.join(result.misled)}"] if result.misled else []
            wrong += [f"{result.false_alarms} false alarms"] if result.false_alarms else []
            yield f"{name}, {variant}", result.mark or "healthy", "; ".join(wrong)
