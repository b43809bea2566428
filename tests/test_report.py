"""A page to paste into a ticket: nothing in a name is obeyed."""

from __future__ import annotations

import pytest

from gputop.report import Page, Point, markdown


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("shares with @torvalds", "shares with &#64;torvalds"),
        ("of http://evil.example/x", "of http&#58;//evil.example/x"),
        ("of www.evil.example", "of www&#46;evil.example"),
        ("![x](y) <b> #1 `ls`", "\\!\\[x\\](y) \\<b\\> \\#1 \\`ls\\`"),
        ("at 14:32, 1.5 GB/s", "at 14:32, 1.5 GB/s"),
    ],
)
def test_names_are_words_and_no_links(name: str, told: str) -> None:
    page = Page(title="dgx-07", about="", heading="Findings", points=(Point(severity="warn", text=name),))
    assert told in markdown(page)
