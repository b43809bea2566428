"""Every key of the main screen as a terminal sends it: pressed on a real pty, with what is to be seen then."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gputop.columns import BY_ID
from gputop.ui.commands.table import COMMANDS
from tests.oracle import oracle
from tests.pty_programs import Terminal

pytestmark = pytest.mark.waits

ARGV = (sys.executable, "-m", "gputop")
Seen = Callable[[list[str]], bool]

# what a terminal sends for what Textual has a name for; tests.pty_programs knows the rest
SENT = {
    "plus": "+", "minus": "-", "asterisk": "*", "slash": "/", "backslash": "\\", "comma": ",", "full_stop": ".",
    "question_mark": "?", "vertical_line": "|", "less_than_sign": "<", "greater_than_sign": ">", "ctrl+p": "\x10",
    "left_square_bracket": "[", "right_square_bracket": "]", "left_curly_bracket": "{", "right_curly_bracket": "}",
}  # fmt: skip
ACTING = {"ACT"}  # on real processes, in test_pty_signal and others
SHELL = {"ctrl+z"}  # in test_pty_monitor


def has(*words: str) -> Seen:
    return lambda lines: all(word in "\n".join(lines) for word in words)


def lacks(word: str) -> Seen:
    return lambda lines: word not in "\n".join(lines)


def at(word: str) -> Seen:
    """The cursor is on this line: the pane of the selected process says so."""
    return lambda lines: any(line.startswith("─ selected") and word in line for line in lines)


def sorted_by(column: str, arrow: str = "▼") -> Seen:
    title = f" {BY_ID[column].title}{arrow} "
    return lambda lines: any(line.startswith("─ jobs") and title in line for line in lines)


def bar(word: str) -> Seen:
    return lambda lines: word in lines[-1]


NOT_NOW = bar("not now: not a recording")
CALM = bar("F1 Help")
REPLAY = ("vertical_line", "less_than_sign", "greater_than_sign", "left_square_bracket", "right_square_bracket",
          "left_curly_bracket", "right_curly_bracket", "0")  # fmt: skip

WALK: list[tuple[str, Seen]] = [
    ("down", at("41390")), ("up", at("41207")), ("end", at("60877")), ("home", at("llama-7b")),
    ("pagedown", at("60877")), ("pageup", at("llama-7b")), ("down", at("41207")),
    ("left", lacks(" 41390 ")), ("right", has(" 41390 ")),
    ("minus", lacks(" 41390 ")), ("plus", has(" 41390 ")), ("asterisk", has(" 41397 ")), ("asterisk", lacks(" 41390 ")),
    ("plus", has(" 41390 ")), ("home", at("llama-7b")),
    ("tab", has("y copy")), ("shift+tab", lacks("y copy")),
    ("F", has("not following")), ("F", lacks("not following")),
    ("slash", has("words in a row")), ("rank1", has("1 of 2")), ("enter", at("41208")), ("n", at("52012")),
    ("f3", has("words in a row")), ("escape", CALM),
    ("f4", has("fields: ")), ("user=bob q", has("0 of 59 processes match")), ("backspace", has("user=bob")),
    ("backspace", lacks(" processes match")), ("enter", CALM), ("escape", has("41207")),
    ("backslash", has("fields: ")), ("escape", CALM),
    ("u", has("carol", " 4 GPUs ")), ("escape", lacks(" 4 GPUs ")),
    ("space", has("●▾ sd3-finetune", " tagged · ")), ("c", bar(" tagged")), ("U", lacks(" tagged · ")),
    ("M", sorted_by("rss")), ("T", sorted_by("time")), ("N", sorted_by("pid", "▲")), ("G", sorted_by("gpu-busy")),
    ("V", sorted_by("vram")), ("r", sorted_by("read")), ("w", sorted_by("write")),
    ("comma", sorted_by("read")), ("full_stop", sorted_by("write")), ("o", has("u  USER")), ("m", sorted_by("rss")),
    ("f6", has("sort by")), ("escape", lacks("sort by")), ("P", sorted_by("cpu")), ("I", sorted_by("cpu", "▲")),
    ("I", sorted_by("cpu")), ("f5", lacks(" tree ")), ("f5", has(" tree ")),
    ("g", bar("GPUs: card")), ("g", bar("GPUs: row")), ("g", bar("GPUs: cell")), ("g", bar("GPUs: automatic")),
    ("1", lambda lines: lines[1].startswith("─ jobs")), ("1", lambda lines: lines[1].lstrip().startswith("#")),
    ("2", bar("host: hidden")), ("2", bar("host: ")),
    ("3", lacks("41207")), ("3", has("41207")),
    ("4", lacks("─ advice ")), ("4", has("─ advice ")),
    ("z", lambda lines: lines[1].startswith("─ jobs")), ("z", lambda lines: lines[1].lstrip().startswith("#")),
    ("H", has(" all processes ")), ("H", lacks(" all processes ")),
    ("E", has("[experiments]")), ("E", lacks("[experiments]")),
    ("a", has("[findings]")), ("x", bar("muted until it changes")), ("escape", lacks("[findings]")),
    ("escape", lacks("x Mute")),
    ("f", bar("arrow keys select a GPU")), ("f", has(" only · Esc show all")), ("escape", lacks("Esc show all")),
    ("home", at("llama-7b")), ("down", at("41207")),
    ("enter", has("[1 Threads]")), ("escape", lacks("Threads]")),
    ("e", has("[4 Environment]")), ("escape", lacks("Environment]")),
    ("l", has("[6 Files]")), ("escape", lacks("Files]")),
    ("f2", has("every_process")), ("f2", lacks("every_process")),
    ("v", has("DATA WAIT%")), ("v", has("READ SIZE")), ("v", has("MAJFLT/s")), ("v", has("AFFINITY")),
    ("v", has("READ/s")),
    ("y", bar("copied 41207")), ("Y", lambda lines: lines[0] == "41207"), ("Y", has("gputop")),
    ("S", has("save the screen as")), ("escape", lacks("save the screen as")),
    ("ctrl+p", has("type to filter")), ("escape", lacks("type to filter")),
    ("D", bar("not now: not a live machine")), ("escape", CALM),
    ("Z", has(" frozen ")), ("Z", lacks(" frozen ")),
    ("d", has("refresh interval")), ("escape", lacks("refresh interval")),
    ("R", has("● rec")), ("R", lacks("● rec")), ("escape", CALM),
    *[(key, seen) for name in REPLAY for key, seen in ((name, NOT_NOW), ("escape", CALM))],
    ("f1", has("help: under the cursor")), ("escape", lacks("help: ")),
    *[(key, seen) for name in ("h", "question_mark") for key, seen in
      ((name, has("help: keys")), ("escape", lacks("help: keys")))],
    ("ctrl+c", bar("Ctrl+C again to quit")),
]  # fmt: skip


def test_every_key_is_pressed() -> None:
    names = {name for key in COMMANDS if "main" in key.on and key.group not in ACTING for name in key.keys}
    assert names - SHELL - {"q", "f10"} <= {key for key, _ in WALK}


def test_a_key_does_what_help_says(tmp_path: Path) -> None:
    env = {"XDG_STATE_HOME": str(tmp_path), "TZ": "UTC"}
    with Terminal((*ARGV, "--interval", "10", "demo", "showcase"), (120, 56), env) as terminal:
        terminal.wait_for(at("41207"), 20)
        for place, (key, seen) in enumerate(WALK):
            terminal.send(SENT.get(key, key))
            try:
                terminal.wait_for(seen)
            except AssertionError as error:
                raise AssertionError(f"{key}, step {place}: {error}") from None
        terminal.send("f10")
        assert terminal.wait_exit() == 0
        assert oracle(bytes(terminal.output), clipboard=True) == []
