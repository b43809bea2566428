"""Keys of keyboards that write other letters."""

from __future__ import annotations

import pytest
from textual.events import Key

from gputop.ui.terminal.driver import KeyParser, by_place


@pytest.mark.parametrize(
    ("typed", "key"),
    [
        ("й", "q"), ("Й", "Q"), ("з", "p"), ("ы", "s"), ("Я", "Z"), ("ж", "semicolon"), ("і", "s"), ("ю", "full_stop"),
        ("ς", "w"), ("Α", "A"), ("ש", "a"), ("ض", "q"), ("ㅂ", "q"), ("ö", "ö"), ("é", "é"), ("本", "本"),
    ],
)  # fmt: skip
def test_a_letter_stands_for_the_key_in_its_place(typed: str, key: str) -> None:
    found = by_place(Key(typed, typed))
    assert (found.key, found.character) == (key, typed), "what is typed into a prompt stays what it is"


@pytest.mark.parametrize("name", ["q", "Q", "enter", "f9", "ctrl+c", "+", "shift+tab", "escape", "1"])
def test_other_keys_are_as_they_are(name: str) -> None:
    assert by_place(Key(name, None)).key == name


@pytest.mark.parametrize(
    ("sequence", "key", "character"),
    [
        ("\x1b[1081::113;;1081u", "q", "й"),  # unshifted
        ("\x1b[1081:1049:113;2;1049u", "Q", "Й"),  # shifted
        ("\x1b[1089::99;5u", "ctrl+c", None),  # without text
        ("\x1b[113;;113u", "q", "q"),
        ("\x1b[113::97;;113u", "q", "q"),  # a French keyboard writes Latin letters: its own are meant
        ("\x1b[246::59;;246u", "semicolon", "ö"),
        ("\x1b[233::50;;233u", "2", "é"),  # the row of digits of a French keyboard
        ("\x1b[27u", "escape", None),
        ("\x1b[1;2A", "shift+up", None),
    ],
)
def test_a_terminal_reports_the_place_of_a_key(sequence: str, key: str, character: str | None) -> None:
    found = [event for event in KeyParser().feed(sequence) if isinstance(event, Key)]
    assert [(event.key, event.character) for event in found] == [(key, character)]


def test_a_sequence_that_comes_in_pieces_is_one_key() -> None:
    parser = KeyParser()
    found = [event for piece in ("\x1b[108", "1::11", "3;;1081u") for event in parser.feed(piece)]
    assert [event.key for event in found if isinstance(event, Key)] == ["q"]
