"""Label matchers of the command line, and how they get into an expression of ours."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from gputop.frozen_dataclass import frozen_dataclass
from gputop.safe.text import clean

_LONGEST = 2000  # characters of a list of matchers
_MATCHER = re.compile(
    r"\s*(?P<label>[a-zA-Z_][a-zA-Z0-9_]*)\s*(?P<how>=~|!~|!=|=)\s*"
    r"""(?:"(?P<double>(?:[^"\\\n]|\\.)*)"|'(?P<single>(?:[^'\\\n]|\\.)*)')\s*""",
    re.ASCII,
)
_ESCAPES = {"\\": "\\", '"': '"', "'": "'", "n": "\n", "t": "\t"}
# a selector in an expression of ours, whose quoted values hold no brace: the name, and what is selected of it
_SELECTOR = re.compile(r"\b(?P<name>instance:gputop_\w+:\w+|gputop_\w+|up)\b(?:\{(?P<inner>[^{}]*)\})?")
_EXAMPLE = 'write LABEL="VALUE", as in --match \'cluster="a"\''


@frozen_dataclass(frozen=True, slots=True)
class Matcher:
    """One condition on a label."""

    label: str
    how: str  # =, !=, =~ or !~
    value: str

    def __str__(self) -> str:
        """As PromQL writes it."""
        return f"{self.label}{self.how}{quoted(self.value)}"


def quoted(value: str) -> str:
    """A text as a string of PromQL."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def parse(text: str) -> tuple[Matcher, ...]:
    """The matchers of a list such as `cluster="a",rack=~"r1|r2"`; ValueError in one line for anything else."""
    if len(text) > _LONGEST:
        raise ValueError(f"more than {_LONGEST} characters")
    given = text.strip()
    if given.startswith("{") and given.endswith("}"):
        given = given[1:-1]
    found, place = [], 0
    while place < len(given):
        match = _MATCHER.match(given, place)
        if match is None:
            raise ValueError(f"{clean(given[place:], 60)!r} is not a label matcher: {_EXAMPLE}")
        found.append(_matcher(match))
        place = match.end()
        if place < len(given):
            if given[place] != ",":
                raise ValueError(f"{clean(given[place:], 60)!r} follows a matcher: separate matchers with commas")
            place += 1
    if not found:
        raise ValueError(f"no label matcher: {_EXAMPLE}")
    return tuple(found)


def _matcher(match: re.Match[str]) -> Matcher:
    label = match["label"]
    if label == "__name__":
        raise ValueError("__name__ cannot be matched: match a label of the hosts, such as cluster or instance")
    value = match["double"] if match["double"] is not None else match["single"]
    return Matcher(label, match["how"], re.sub(r"\\(.)", _unescaped, value))


def _unescaped(match: re.Match[str]) -> str:
    letter = match[1]
    if letter not in _ESCAPES:
        raise ValueError(f"\\{clean(letter)} is not an escape of PromQL: write \\\\ for a backslash")
    return _ESCAPES[letter]


def of_labels(labels: Mapping[str, str]) -> tuple[Matcher, ...]:
    """What selects the series with these labels."""
    return tuple(Matcher(name, "=", value) for name, value in sorted(labels.items()))


def restricted(expr: str, matchers: Sequence[Matcher]) -> str:
    """An expression of ours with the matchers in each of its selectors."""
    if not matchers:
        return expr
    added = ",".join(map(str, matchers))

    def select(match: re.Match[str]) -> str:
        inner = match["inner"]
        return f"{match['name']}{{{f'{inner},' if inner else ''}{added}}}"

    return _SELECTOR.sub(select, expr)
