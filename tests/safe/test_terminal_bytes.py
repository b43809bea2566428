"""The byte oracle and the mode count see what they are for; an oracle that passes everything proves nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputop.safe.text import clean, decode
from tests import hostile
from tests.oracle import KEYBOARD, modes_ever_on, modes_left_on, oracle

FRAME = b"\x1b[?1049h\x1b[1;1H\x1b[38;2;1;2;3m%s\x1b[0m\r\n\x1b[2;1Hx\x1b[?1049l"
# these two are sequences that we write ourselves, and these have nothing in them that a terminal obeys
LOOK_LIKE_OURS = {"\x1b[31mred", "\x1b[?1049l"}
HARMLESS = {s for s in hostile.STRINGS if clean(s, 20_000) == s}
MARKS = {s for s in hostile.STRINGS if "\u0301" in s or "\u0336" in s}
UNASSIGNED = {"\ue000\U000f0000", "\u0378\uffff"}


@pytest.mark.parametrize("raw", hostile.STRINGS, ids=lambda s: ascii(s[:12]))
def test_raw_hostile_text_is_seen(raw: str) -> None:
    seen = oracle(FRAME % raw.encode("utf-8", "surrogatepass"))
    assert bool(seen) == (raw not in LOOK_LIKE_OURS | HARMLESS | MARKS | UNASSIGNED), seen


@pytest.mark.parametrize("raw", hostile.BYTES, ids=lambda s: ascii(s[:12]))
def test_clean_hostile_text_passes(raw: bytes) -> None:
    assert oracle(FRAME % decode(raw).encode()) == []


@given(st.text())
def test_clean_text_passes(raw: str) -> None:
    assert oracle(FRAME % clean(raw).encode()) == []


@pytest.mark.parametrize(
    "raw", [b"a\r\nb", b"a\nb", b"\x07", b"\xff", b"\xc2\x9b2J", b"\x1b[2J", b"\x1b[6n", b"\x1b]8;;x\x07"]
)
def test_single_faults_are_seen(raw: bytes) -> None:
    assert oracle(FRAME % raw)


def test_line_ends_are_fine_outside_the_full_screen() -> None:
    assert oracle(b"before\r\n" + FRAME % b"x" + b"after\r\n") == []
    assert oracle(b"\x1b[?1049h" + b"before\r\n") != []


@pytest.mark.parametrize("cut", range(1, 40))
def test_a_frame_may_be_cut_anywhere(cut: int) -> None:
    frame = b"\x1b[?1049h\x1b[1;1H\x1b[38;2;1;2;3m" + "─✓".encode() + b"\x1b[0m\x1b[?2026$p"
    assert oracle(frame[:cut]) == []


def test_the_clipboard_only_where_it_was_asked_for() -> None:
    copied = FRAME % b"\x1b]52;c;YWJj\x07"
    assert oracle(copied, clipboard=True) == []
    assert oracle(copied) != []


def test_modes_are_counted() -> None:
    on = b"\x1b[?1049h\x1b[?1000;1006h\x1b[?25l\x1b[>25u\x1b[?7l"
    assert modes_left_on(on) == {1049, 1000, 1006, -25, -7, KEYBOARD}
    assert modes_ever_on(on) == {1049, 1000, 1006}
    assert modes_left_on(on + b"\x1b[?1006;1000l\x1b[<u\x1b[?1049l\x1b[?25h\x1b[?7h") == set()
