"""The screen as a picture: whatever a pane gives away, a file does not."""

from __future__ import annotations

import pytest
from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region
from textual.strip import Strip

from gputop.ui.panes.picture import composed
from gputop.ui.theme import Look

SECRET = "hf_" + "x" * 30


def whole(strip: Strip) -> Strip:
    """It, as the only line of a screen."""
    return composed(60, 1, [(Region(0, 0, 60, 1), [strip])], Look())[0]


def test_what_a_pane_forgot_to_mask_is_masked_and_the_rest_looks_as_it_did() -> None:
    bold, dim = Style(bold=True), Style(dim=True)
    line = whole(Strip([Segment("名 a --token ", bold), Segment(SECRET, dim), Segment(" b", bold)]))
    assert line.text == "名 a --token *** b".ljust(59)
    looks = {segment.text: segment.style for segment in line}
    assert looks["名 a --token "] == bold == looks[" b"]
    assert looks["***"] == dim


@pytest.mark.parametrize("text", ["", "x", "--token ***", "tokenizer: 5", "名" * 30])
def test_what_is_no_secret_stays(text: str) -> None:
    assert whole(Strip([Segment(text)])).text.rstrip() == text


@pytest.mark.parametrize(
    "text", [SECRET, f"{SECRET} and {SECRET}", f"--token=a HF_TOKEN=bb x {SECRET}", "--token ****x"]
)
def test_several_in_a_line_and_at_its_ends(text: str) -> None:
    shown = whole(Strip([Segment(text[:9]), Segment(text[9:])])).text
    assert (
        shown.rstrip()
        == {
            SECRET: "***",
            f"{SECRET} and {SECRET}": "*** and ***",
            f"--token=a HF_TOKEN=bb x {SECRET}": "--token=*** HF_TOKEN=*** x ***",
            "--token ****x": "--token ***",
        }[text]
    )
