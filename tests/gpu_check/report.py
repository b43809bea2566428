"""The report: calm lines on standard output, the same in report.txt, every record in records.jsonl."""

from __future__ import annotations

from typing import Any

from gputop.safe.text import clean
from tests.gpu_check.folder import Folder
from tests.gpu_check.records import Measurement, Record, Verdict

WIDTH = 600


class Report:
    """Prints as it comes, and counts what it printed."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._item = ""
        self._verdicts: list[tuple[str, Verdict]] = []
        self._skipped: list[str] = []
        self._failed: list[str] = []

    def say(self, line: str = "") -> None:
        """One line."""
        line = clean(line.rstrip(), WIDTH)
        print(line, flush=True)
        self._folder.text("report.txt", line + "\n")

    def begin(self, one: Measurement) -> None:
        """A new question."""
        self._item = one.number
        self._write({"kind": "question", "text": one.question})
        self.say()
        self.say(f"{one.number:>3}  {one.question}")

    def add(self, record: Record) -> None:
        """One record of the question at hand."""
        self._write(record.data())
        if isinstance(record, Verdict):
            self._verdicts.append((self._item, record))
        self.say(f"{'>>>' if isinstance(record, Verdict) and record.holds is False else '   '}  {record.line()}")

    def skip(self, why: str) -> None:
        """The rest of the question cannot be answered here."""
        self._write({"kind": "skipped", "why": why})
        self._skipped.append(f"{self._item:>3}  {why}")
        self.say(f"     skipped: {why}")

    def fail(self, why: str) -> None:
        """The measurement broke."""
        self._write({"kind": "failed", "why": why})
        self._failed.append(f"{self._item:>3}  {why}")
        self.say(f">>>  FAILED      {why}")

    def close(self) -> None:
        """The sums, and once more whatever differs."""
        words = [verdict.word for _, verdict in self._verdicts]
        counts = ", ".join(f"{words.count(word)} {word}" for word in ("as assumed", "DIFFERS", "unknown"))
        self.say()
        self.say(f"{len(words)} verdicts: {counts}; {len(self._skipped)} skipped, {len(self._failed)} failed")
        for title, lines in (
            ("What differs:", [f"{item:>3}  {one.text}" for item, one in self._verdicts if one.holds is False]),
            ("What failed:", self._failed),
            ("What was skipped:", self._skipped),
        ):
            if lines:
                self.say(title)
                for line in lines:
                    self.say(f"  {line}")
        self.say(f"Everything raw: {self._folder.path}")

    def _write(self, data: dict[str, Any]) -> None:
        self._folder.line("records.jsonl", {"item": self._item, **data})
