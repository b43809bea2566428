"""The filter's language: words and comparisons of fields become one question to every process. Pure."""

from __future__ import annotations

import difflib
import re

from gputop.frozen_dataclass import frozen_dataclass
from gputop.model import Frame, Identity
from gputop.ui.table import compare
from gputop.ui.table.compare import FIELDS, Term, Wrong, short
from gputop.ui.table.subject import subjects

HINT = "fields: user job rank gpu gpu% vram cpu% thr rss wait read write io state cmd"
_NEAR = 0.7  # a name that is less alike is another word, not a slip
EXAMPLE = "user=alice gpu=0-3 read>50M"

_TOKEN = re.compile(r'(?:"[^"]*"|[^\s"])+|"')
_SIGN = re.compile(r">=|<=|!=|=|>|<")
_TERM = re.compile(r"(!?)([A-Za-z][A-Za-z0-9_%/.-]*)(>=|<=|!=|=|>|<)(.*)", re.DOTALL)


@frozen_dataclass(frozen=True, slots=True)
class Filter:
    """What was typed, as questions that all must be answered by yes."""

    text: str
    terms: tuple[Term, ...]

    def found(self, frame: Frame) -> frozenset[Identity]:
        """The processes of a frame that match."""
        return frozenset(
            subject.process.identity for subject in subjects(frame) if all(term.ask(subject) for term in self.terms)
        )

    def nearest(self, frame: Frame) -> tuple[str, str, int] | None:
        """What a name that nobody has may have been meant to be: user or job, its name, how many processes it has."""
        counts: dict[tuple[str, str], int] = {}
        for subject in subjects(frame):
            for kind, name in (("user", subject.process.user), ("job", subject.job)):
                if name:
                    counts[kind, name] = counts.get((kind, name), 0) + 1
        known = {name.casefold(): (kind, name) for kind, name in counts}
        for wanted in (name for term in self.terms for name in term.names if name not in known):
            if close := difflib.get_close_matches(wanted, known, 1, 0.5):
                kind, name = known[close[0]]
                return kind, name, counts[kind, name]
        return None


def parse(text: str) -> Filter | None:
    """What was typed as a filter; None when it asks for nothing. Wrong says what is not understood, and where."""
    terms = [_term(match.group(), match.start()) for match in _TOKEN.finditer(text)]
    return Filter(text.strip(), tuple(terms)) if terms else None


def until(text: str, wrong: Wrong) -> Filter | None:
    """The parts before the one that is wrong: of that nothing is asked, nor of what it was while it was typed."""
    ends = [match.end() for match in _TOKEN.finditer(text) if match.end() <= wrong.start]
    return parse(text[: ends[-1]]) if ends else None


def _term(token: str, start: int) -> Term:
    if token == '"':
        raise Wrong("a quote that does not end", start, start + 1)
    match = None if token.startswith('"') else _TERM.fullmatch(token)
    if match is None:
        return _word(token, start)
    no, name, sign, given = match.groups()
    at = start + match.start(4)
    field = compare.field(name)
    if field is None:
        close = difflib.get_close_matches(name.casefold(), FIELDS, 1, _NEAR)
        meant = f": did you mean {close[0]}?" if close else f'; as text it is "{short(token)}" in quotes; {HINT}'
        raise Wrong(f"no field {short(name)}{meant}", start + len(no), start + len(no) + len(name))
    if not given:
        raise Wrong(f"{name}{sign} what? For example {field.example}", start, start + len(token))
    term = field.term(sign, given.replace('"', ""), at)
    return Term(lambda subject: not term.ask(subject)) if no else term


def _word(token: str, start: int) -> Term:
    no, text = token.startswith("!"), token.removeprefix("!").replace('"', "").casefold()
    if not text:
        raise Wrong("a word is missing", start, start + len(token))
    if sign := _SIGN.match(token):
        raise Wrong(f"no blanks around {sign[0]}, as in {EXAMPLE.split()[-1]}", start, start + len(sign[0]))
    if no:
        return Term(lambda subject: text not in subject.text)
    return Term(lambda subject: text in subject.text, (text,))
