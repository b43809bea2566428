"""What gputop says is said as the field says it: no banned phrase, no bare unit, one spelling of each term."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import gputop
from tests.visible_strings import Visible, pages, visible

# what fresh readers had to decode, and why it went; grows when a review finds another
BANNED = {
    r"times as fast": "up to 1.8× faster",
    r"for want of": "missing",
    r"\bso many\b": "a number",
    r"\banew\b": "again",
    r"in each other's way": "contention",
    r"no rule can name": "cause unknown",
    r"slowed (?:hard )?by heat": "thermal slowdown",
    r"told by": "reported by",
    r"seen from outside": "inferred",
    r"\bgive it air\b": "improve airflow",
    r"less heat\b": "lower the power limit",
    r"at its full power": "power-capped",
    r"held back": "power-capped",
    r"is held to\b": "power limit",
    r"before they are sent\b": "before transmission",
    r"\bheld for nothing\b": "leaked",
    r"alone may end it": "only X or root can signal it",
    r"ends or deletes something": "destructive",
    r"in which it does not hold": "clears after",
    r"what would make it surer": "to confirm",
    r"time between two looks": "refresh interval",
    r"\bnone of its own making\b": "anonymous",
    r"what its end would free": "freed on exit",
    r"keeps? (?:its|their) GPUs? busy with little": "high utilization, low SM activity",
    r"held up by its main thread": "launch-bound",
    r"little to win": "underuses its GPU",
    r"MS A STEP|DOES MOST|THREADS ASKED|WANT TO RUN": "MS/STEP, TOP FRAME, THREADS, RUNNABLE",
    r"killed out of memory": "OOM score",
    r"extra rights": "capabilities",
    r"\bsurer\b": "more certain",
    r"\bsees? nothing of\b": "cannot see",
    r"\b(?:whom|whose processes)\b(?! the Software)": "which",
    r"\(limit ": "healthy ≥, flagged above",
    r"taken hold of": "",
    r"\bof its own\b": "the fact itself",
    r"\bmeanwhile\b": "while ...",
    r"\blooks lost\b": "samples lost",
    r"\bthe house\b": "the code base",
    r"\binput wait\b": "data wait, dataloader-bound, I/O-bound",
    r"\b(?:launch|copy) wait\b": "launch-bound, copy-bound",
}
# units: a degree has its sign, a factor is ×
UNITS = {
    r"(?<![-\w])\d+ ?C\b|:\.0f\} ?C\b": "°C",
    r"\btimes (?:faster|slower)\b": "×",
}


# the glossary's spellings
SPELLINGS = {
    r"(?i)\bdata loaders?\b": "DataLoader, dataloader",
    r"(?i)\bnum workers\b": "num_workers",
    r"\bPytorch\b": "PyTorch",
    r"\b[kKMGT]i?B/sec\b": "MB/s",
    r"\btorch\.profile\b": "torch.profiler",
    r"\bNvidia\b": "NVIDIA",
    r"\bNvlink\b|\bNVlink\b": "NVLink",
}
# sentences; the cells of tables write 12%
SENTENCES = frozenset({"evidence", "step", "headline", "question", "trace verdict", "report", "error", "missing"})
PROGRAM = Path(gputop.__file__).parent
CELLS = (
    {"columns.py", "export/text.py", "hosts/columns.py", "labels.py"}
    | {f"ui/{name}.py" for name in ("gpus/state", "panes/header", "panes/host", "panes/preview")}
    | {"alerts/plan.py"}
)  # a setting as it is typed: 5m
LONG_HEADLINES: dict[str, str] = {}  # text of one over 60 cells before numbers: why


@pytest.mark.parametrize(("phrase", "better"), {**BANNED, **UNITS, **SPELLINGS}.items())
def test_nothing_is_said_in_a_phrase_that_readers_had_to_decode(phrase: str, better: str) -> None:
    found = re.compile(phrase)
    said = [one for one in (*visible(), *pages()) if found.search(one.text)]
    assert not said, "\n".join([f"rather {better!r}:", *(f"{one.place}: {one.text}" for one in said)])


@pytest.mark.parametrize("kind", sorted(SENTENCES))
def test_a_percentage_in_a_sentence_has_a_space(kind: str) -> None:
    said = [one for one in visible() if one.kind == kind and re.search(r"(?:\d|\})%(?![\w}])", one.text)]
    assert not said, said


def test_only_cells_have_durations_without_spaces() -> None:
    """`6m 12s` and `953ms` are for tables and states; sentences write `6 min 12 s` and `953 ms`."""
    compact = re.compile(r"\bunits\.(?:ago|took)\b|from gputop\.units import .*\b(?:ago|took)\b")
    modules = {str(path.relative_to(PROGRAM)): path.read_text() for path in PROGRAM.rglob("*.py")}
    assert {name for name, text in modules.items() if compact.search(text)} == CELLS


def test_a_headline_has_at_most_60_cells_before_numbers() -> None:
    long = {one.text for one in _of("headline") if len(re.split(r"\d|\{\}", one.text)[0]) > 60}
    long |= {one.text for one in _of("headline") if len(one.text.replace("{}", "")) > 60}
    assert long == set(LONG_HEADLINES), "say it shorter, or why it cannot be; and list no other"


def _of(*kinds: str) -> list[Visible]:
    return [one for one in visible() if one.kind in kinds]


@pytest.mark.parametrize("one", _of("headline"), ids=lambda one: one.place)
def test_a_headline_follows_its_subject(one: Visible) -> None:
    """`llama-7b: dataloader-bound, 2 workers are too few`: lower case but for names, and no second colon."""
    assert not re.match(r"(?:is|are|has|have|waits?|keeps?|runs?|does|gets|takes|works?|holds?) ", one.text), one.text
    assert ": " not in one.text, one.text


@pytest.mark.parametrize("one", _of("step"), ids=lambda one: one.place)
def test_a_step_is_an_imperative(one: Visible) -> None:
    assert not one.text[:1].islower() or "/" in one.text.split()[0], one.text
