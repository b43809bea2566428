"""What a measurement yields, and the list of measurements."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from tests.gpu_check.check import Check


class Skip(Exception):
    """A measurement that cannot be made here; the text says why."""


def quantile(values: Iterable[float], share: float) -> float:
    """The value below which this share of the values lies, by nearest rank."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def middle(values: Iterable[float]) -> float:
    """The median, by nearest rank."""
    return quantile(values, 0.5)


@dataclass(frozen=True)
class Figures:
    """Many values of one thing."""

    name: str
    unit: str
    values: tuple[float, ...]

    def line(self) -> str:
        """n, p50, p95, least and most."""
        if not self.values:
            return f"{self.name:46} no values"
        p50, p95 = middle(self.values), quantile(self.values, 0.95)
        ends = f"p50 {p50:<9.4g} p95 {p95:<9.4g} min {min(self.values):<9.4g} max {max(self.values):<9.4g}"
        return f"{self.name:46} n {len(self.values):<5} {ends} {self.unit}"

    def data(self) -> dict[str, Any]:
        """Every value, for the file."""
        return {"kind": "figures", **asdict(self)}


@dataclass(frozen=True)
class Fact:
    """Something seen, in words; `data` goes to the file only."""

    text: str
    more: dict[str, Any] | None = None

    def line(self) -> str:
        """The words."""
        return self.text

    def data(self) -> dict[str, Any]:
        """The words and what they were made of."""
        return {"kind": "fact", "text": self.text, **(self.more or {})}


@dataclass(frozen=True)
class Verdict:
    """Whether something is as gputop's code assumes; None: it cannot be said here."""

    holds: bool | None
    text: str

    def line(self) -> str:
        """The word and the words."""
        return f"{self.word:10}  {self.text}"

    @property
    def word(self) -> str:
        """The verdict in one word or two."""
        return "unknown" if self.holds is None else "as assumed" if self.holds else "DIFFERS"

    def data(self) -> dict[str, Any]:
        """The verdict, for the file."""
        return {"kind": "verdict", "holds": self.holds, "text": self.text}


Record = Figures | Fact | Verdict


def within(name: str, value: float | None, low: float, high: float, unit: str, source: str) -> Verdict:
    """Whether a figure lies in the range that the code assumes."""
    if value is None:
        return Verdict(None, f"{name}: no value; assumed {low:g} to {high:g} {unit} ({source})")
    said = f"{value:.4g} {unit}".strip()
    return Verdict(low <= value <= high, f"{name} {said}; assumed {low:g} to {high:g} ({source})")


class Measurement(NamedTuple):
    """One question to the machine, and what answers it."""

    number: str
    question: str
    run: Callable[[Check], Iterator[Record]]


_DECLARED: list[Measurement] = []


def measurements() -> list[Measurement]:
    """All of them, by number."""
    return sorted(_DECLARED, key=lambda one: (int(one.number.rstrip("abc")), one.number))


def measurement(
    number: str, question: str
) -> Callable[[Callable[[Check], Iterator[Record]]], Callable[[Check], Iterator[Record]]]:
    """Declare the function that answers a question."""

    def declare(run: Callable[[Check], Iterator[Record]]) -> Callable[[Check], Iterator[Record]]:
        _DECLARED.append(Measurement(number, question, run))
        return run

    return declare
