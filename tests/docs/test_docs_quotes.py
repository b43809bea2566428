"""What the manual quotes as output is what the program prints."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from gputop import docs
from gputop.cli import main

PAGES = Path(docs.__file__).parent
GOLDEN = Path(__file__).parents[1] / "golden"
# `<!-- printed: diagnose --source demo:thermal -->` or `<!-- golden: loader.txt -->` stands before the quoted block
QUOTE = re.compile(r"<!-- (printed|golden): (.*) -->\n```\n(.*?)```\n", re.DOTALL)


def quotes() -> Iterator[tuple[str, str, str, str]]:
    """Page, kind, source and text of every quoted output."""
    for topic in docs.TOPICS:
        for kind, source, text in QUOTE.findall((PAGES / f"{topic}.md").read_text(encoding="utf-8")):
            yield topic, kind, source, text


@pytest.mark.parametrize(
    ("topic", "kind", "source", "text"), [pytest.param(*quote, id=f"{quote[0]}-{quote[2]}") for quote in quotes()]
)
def test_a_quoted_output_is_printed(
    topic: str, kind: str, source: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its lines in their order; `…` stands for lines that are left out."""
    if kind == "golden":
        printed = (GOLDEN / source).read_text(encoding="utf-8")
    else:
        main(shlex.split(source))
        printed = capsys.readouterr().out
    rest = iter(printed.splitlines())
    quoted = [line for line in text.splitlines() if line != "…"]
    assert [line for line in quoted if line not in rest] == [], f"{topic}: {source} prints\n{printed}"


def test_pages_quote_what_they_print() -> None:
    assert {topic for topic, *_ in quotes()} >= {"columns", "diagnosis", "doctor", "lab", "loader", "maxbatch"}
