"""The cell-level diff before the terminal: the screen is the same with it as without, at a fraction of the bytes."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputop.ui.delta import BEGIN, END
from gputop.ui.pens import UNKNOWN, Pens
from tests.twins import Twins

WIDTH, HEIGHT = 12, 4


def run(look: str, text: str) -> str:
    """As Textual writes a segment."""
    return f"\x1b[{look}m{text}\x1b[0m" if look else text


def to(y: int, x: int) -> str:
    return f"\x1b[{y};{x}H"


def frame(lines: list[tuple[int, int, str]]) -> str:
    """As Textual's compositor writes lines, the cursor's place at the end."""
    return "\n".join(f"{to(y, x)}{runs}" for y, x, runs in sorted(lines)) + to(1, 1)


def fits(line: tuple[int, int, str]) -> bool:
    return line[1] + len(re.sub(r"\x1b\[[\d;]*m", "", line[2])) <= WIDTH + 1


LOOKS = ["", "1", "7", "4;31", "38;2;9;9;9;48;2;1;1;1", "1;38;2;9;9;9;48;2;1;1;1", "38;5;7;48;2;1;1;1", "9;44", "90;40"]
TEXTS = ["a", "ab", "abc", " ", "   ", "a b", "12 %", "━━╸", "▁▂▃▄▅", "0123456789", "aaaaaaaaaaaa"]
WIDE = ["日本", "e\u0301", "\u0301x", "👩\u200d🚀", "a\u200bb", "ｦ", "日"]
OTHERS = [
    "\x1b[2J", "\x1b[K", "\x1b[1J", "\x1b[H", "\x1b7", "\x1b8", "\x1b[2A", "\x1b[3D", "\r", "\n", "\x08", "\x07", "\t",
    "\x1b[?25l", "\x1b]0;title\x07", "\x1b[L", "\x1b[P", "\x1b[53m", "\x1b[1m", "\x1b[22;39m", "\x1b[0m",
]  # fmt: skip

RUNS = st.lists(st.builds(run, st.sampled_from(LOOKS), st.sampled_from(TEXTS)), max_size=4).map("".join)
LINES = st.tuples(st.integers(1, HEIGHT), st.integers(1, WIDTH), RUNS).filter(fits)
FRAMES = st.lists(LINES, min_size=1, max_size=4, unique_by=lambda line: line[0]).map(frame)
ODD = st.one_of(
    st.builds(run, st.sampled_from(LOOKS), st.sampled_from(WIDE)),
    st.sampled_from(OTHERS),
    st.builds(to, st.integers(0, HEIGHT + 2), st.integers(0, WIDTH + 2)),
    RUNS,
)
DATA = st.one_of(FRAMES, st.lists(st.one_of(FRAMES, ODD), min_size=1, max_size=5).map("".join))
EVENTS = st.one_of(
    st.tuples(st.just("write"), DATA),
    st.tuples(st.just("late"), DATA),
    st.tuples(st.just("write"), st.sampled_from([BEGIN, END])),
    st.tuples(st.just("forget")),
    st.tuples(st.just("resize"), st.integers(1, 16), st.integers(1, 6)),
)


@settings(max_examples=400, deadline=None)
@given(st.lists(EVENTS, max_size=8))
def test_the_terminal_shows_the_same(events: list[tuple[Any, ...]]) -> None:
    twins = Twins(WIDTH, HEIGHT)
    for what, *arguments in events:
        if what == "write":
            twins.write("")
            (data,) = arguments
            assert len(twins.write(data)) <= len(data) + len(BEGIN) + len(END) + 16
        elif what == "late":
            twins.late(*arguments)
        elif what == "resize":
            twins.write("")
            twins.resize(*arguments)
        else:
            twins.delta.forget()
    twins.write("")


@settings(max_examples=100, deadline=None)
@given(st.lists(FRAMES, min_size=1, max_size=5))
def test_what_is_shown_is_not_sent_again(frames: list[str]) -> None:
    twins = Twins(WIDTH, HEIGHT)
    twins.write("\x1b[0m")
    for data in frames:
        twins.write(data)
        assert twins.delta.reduce(data) == ""


DIM, BRIGHT = "38;2;135;145;159;48;2;16;20;26", "1;38;2;240;244;248;48;2;16;20;26"
CHANGES = {
    "nothing": (run(DIM, "busy 78%"), run(DIM, "busy 78%"), ""),
    "one character": (run(DIM, "busy 78%"), run(DIM, "busy 79%"), f"{to(1, 7)}\x1b[{DIM}m9\x1b[m"),
    "a short gap is written": ("0123", "9129", f"{to(1, 1)}9129"),
    "a long one is not": ("0 1234 5", "9 1234 9", f"{to(1, 1)}9\x1b[6C9"),
    "nor one of many bytes": ("0━━3", "9━━9", f"{to(1, 1)}9\x1b[2C9"),
    "nor one of another look": ("0" + run("1", "1") + "2", "9" + run("1", "1") + "9", f"{to(1, 1)}9\x1b[C9"),
    "a blank has no ink": (run("31", "a    b"), run("32", "a    ") + run("31", "b"), f"{to(1, 1)}\x1b[32ma\x1b[m"),
    "so any will do": (run("31", "1 2"), run("31", "3") + " " + run("31", "4"), f"{to(1, 1)}\x1b[31m3 4\x1b[m"),
    "but it has a ground": ("a  b", "a" + run("41", " ") + " b", f"{to(1, 2)}\x1b[41m \x1b[m"),
    "and what underlines it": ("a  b", "a" + run("4", " ") + " b", f"{to(1, 2)}\x1b[4m \x1b[m"),
    "only what differs of a look": (
        "abcd",
        run("31;44", "wx") + run("32;44", "y") + run("1;32;44", "z"),
        f"{to(1, 1)}\x1b[31;44mwx\x1b[32my\x1b[1mz\x1b[m",
    ),
    "bold ends": ("ab", run("1;31", "x") + run("31", "y"), f"{to(1, 1)}\x1b[1;31mx\x1b[22my\x1b[m"),
    "a long look is not put on twice": (
        "abcd",
        run(DIM, "1") + run(BRIGHT, "2") + run(DIM, "3") + run(BRIGHT, "4"),
        f"{to(1, 1)}\x1b[{DIM}m1\x1b[C3{to(1, 2)}\x1b[1;38;2;240;244;248m2\x1b[C4\x1b[m",
    ),
}  # fmt: skip
REST = to(4, 1)


@pytest.mark.parametrize(("before", "after", "sent"), CHANGES.values(), ids=CHANGES)
def test_what_is_sent_of_a_change(before: str, after: str, sent: str) -> None:
    twins = Twins(40, 4)
    twins.write(f"\x1b[0m{to(1, 1)}{before}{REST}")
    assert twins.write(f"{to(1, 1)}{after}{REST}") == (sent and sent + REST)


def test_the_cursor_is_moved_where_it_is_wanted() -> None:
    twins = Twins(40, 4)
    twins.write(f"\x1b[0m{to(1, 1)}a{to(1, 1)}")
    assert twins.write(f"{to(1, 1)}a{to(2, 2)}") == to(2, 2)


def test_a_frame_is_shown_at_once_if_there_is_one() -> None:
    twins = Twins(40, 4)
    writes = [BEGIN, f"{to(1, 1)}a{to(1, 1)}", END]
    twins.write(f"\x1b[0m{REST}")
    assert [twins.write(data) for data in writes] == ["", f"{BEGIN}{to(1, 1)}a{to(1, 1)}{END}", ""]
    assert [twins.write(data) for data in writes] == [""] * 3


@pytest.mark.parametrize("sequence", ["\x1b[2J", "\x1b[?1049h", "\x1b]52;c;YQ==\x07", "\x1b[?2026$p"])
def test_what_is_not_understood_goes_through_and_all_is_sent_after_it(sequence: str) -> None:
    twins = Twins(40, 4)
    lines = f"{to(1, 1)}{run('31', 'busy')}\n{to(2, 1)}{run('32', 'idle')}{REST}"
    twins.write(f"\x1b[0m{lines}")
    assert twins.delta.reduce(lines) == ""
    assert twins.delta.reduce(sequence) == sequence
    assert twins.delta.reduce(f"\x1b[0m{lines}") == f"\x1b[0m{to(1, 1)}\x1b[31mbusy{to(2, 1)}\x1b[32midle\x1b[m{REST}"


def test_a_look_that_is_not_understood_goes_through() -> None:
    twins = Twins(40, 4)
    twins.write(f"\x1b[0m{REST}")
    assert "\x1b[53m" in twins.write(f"{to(1, 1)}\x1b[53m{to(2, 1)}\x1b[0ma{REST}")
    assert "\x1b[1;53m" in twins.write(f"{to(1, 1)}{run('1;53', 'a')}{REST}")


@pytest.mark.parametrize("look", ["", "31;42", "90", "100"])
def test_after_forgetting_all_is_sent_with_a_fresh_pen(look: str) -> None:
    twins = Twins(40, 4)
    data = f"{to(1, 1)}{run(look, 'busy')}{REST}"
    twins.write(f"\x1b[0m{data}")
    twins.delta.forget()
    pen, end = (f"\x1b[0;{look}m", "\x1b[m") if look else ("\x1b[m", "")
    assert twins.write(data) == f"{to(1, 1)}{pen}busy{end}{REST}"


SEQUENCES = {
    "a line end on the last line scrolls": [f"{to(1, 1)}a{to(4, 1)}b\n{to(2, 2)}c{REST}"],
    "or may be there": ["\x1b[99B", f"\n{to(2, 2)}c{REST}"],
    "text goes on behind the margin": [f"{to(1, 1)}{'a' * 12}", "b", f"{to(1, 1)}{'a' * 12}{REST}"],
    "or what is wide": [f"{to(1, 1)}{'a' * 12}{REST}", f"{to(1, 1)}{'a' * 12}", "日", f"{to(1, 1)}{'a' * 12}{REST}"],
    "text beyond the margin": [f"{to(1, 11)}abcd{REST}", f"{to(1, 11)}ab{REST}"],
    "a mark sits on the cell before": [f"{to(1, 1)}ab{REST}", f"{to(1, 3)}\u0301x{REST}", f"{to(1, 1)}abx{REST}"],
    "half of a wide character": [f"{to(1, 1)}日本日{REST}", f"{to(1, 2)}abc{REST}", f"{to(1, 1)}日本日{REST}"],
    "two wide ones at one place": [f"{to(1, 1)}日本{to(1, 1)}e\u0301{REST}", f"{to(1, 1)}日{to(1, 1)}日本{REST}"],
    "one over another and back": [f"{to(1, 1)}日本{to(1, 3)}日{to(1, 1)}日本{REST}"],
    "a pen left on": ["\x1b[1;31m", f"{to(1, 1)}a", "b\x1b[0m", f"{to(1, 1)}ab{REST}"],
    "what is left of a frame": [f"{to(1, 1)}a", "b", f"{to(1, 2)}c", "d"],
}


@pytest.mark.parametrize("writes", SEQUENCES.values(), ids=SEQUENCES)
def test_what_a_terminal_makes_of_odd_places(writes: list[str]) -> None:
    twins = Twins(12, 4)
    twins.write(f"\x1b[0m{to(1, 1)}xxxxxxxxxxxx{REST}")
    for data in writes:
        twins.write(data)


def test_a_line_with_wide_characters_comes_as_it_is_and_costs_the_others_nothing() -> None:
    twins = Twins(40, 4)
    plain, wide = f"{to(1, 1)}{run('31', 'rank0 1%')}", f"{to(2, 1)}{run('31', '训练.py')}{run('32', ' 2%')}"
    twins.write(f"\x1b[0m{plain}\n{wide}{REST}")
    assert twins.write(f"{plain}\n{wide}{REST}") == f"{wide}{REST}"


def test_what_follows_wide_characters_is_sent_again_when_it_is_drawn_next() -> None:
    """The terminal may think otherwise of their width, and have overwritten it."""
    twins = Twins(40, 4)
    left, wide, right = f"{to(1, 1)}1", f"{to(1, 3)}训练", f"{to(1, 9)}right"
    twins.write(f"\x1b[0m{left}{wide}{right}{REST}")
    assert twins.write(f"{right}{REST}") == ""
    assert twins.write(f"{to(1, 1)}2{wide}{REST}") == f"{wide}{to(1, 1)}2\x1b[7Cright{REST}"
    assert twins.write(f"{wide}{REST}") == f"{wide}{REST}"
    assert twins.write(f"{right}{REST}") == f"{right}{REST}"


def test_while_the_terminal_is_behind_only_the_newest_picture_is_kept() -> None:
    twins = Twins(40, 4)
    twins.write(f"\x1b[0m{to(1, 1)}frame 000{REST}")
    for number in range(1, 500):
        twins.late(f"{to(1, 1)}frame {number:03}{to(2, 9)}{number:03}{to(2, 1)}训练{REST}")
    twins.late(f"{to(2, 1)}训练{REST}")
    assert twins.write("") == f"{to(2, 1)}训练{to(1, 7)}499{to(2, 9)}499{REST}"
    twins.late(f"{to(1, 1)}frame 500{REST}")
    assert twins.write("\x07") == f"{to(1, 7)}500{REST}\x07"


def test_a_pen_keeps_what_two_attributes_share() -> None:
    pens = Pens()
    both, dim = (pens.turn(UNKNOWN, f"\x1b[0;{look}m") for look in ("1;2;31;44", "2;31;44"))
    assert pens.step(both, dim) == ("\x1b[22;2m", dim)
    assert pens.step(dim, both) == ("\x1b[1m", both)
    assert pens.turn(both, "\x1b[22;49m") == pens.turn(UNKNOWN, "\x1b[m\x1b[31m")
    assert pens.step(dim, pens.blank(both)) == ("", dim)
