"""The real program on a real pty: frame by frame its terminal shows what Textual wrote, of which most was not sent."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest

from tests.ptys import Terminal
from tests.twins import Twins, state


@pytest.mark.parametrize("colours", ["truecolor", None])
def test_with_and_without_the_diff_the_screen_is_the_same(tmp_path: Path, colours: str | None) -> None:
    record = tmp_path / "record"
    argv = [sys.executable, "-m", "tests.teed", str(record), "demo", "showcase"]
    env = {"XDG_STATE_HOME": str(tmp_path), "COLORTERM": colours}
    with Terminal(argv, env=env) as terminal:
        terminal.wait_for("llama-7b", 20)
        for key in ("down", "down", "f1", "escape", "g", "t"):
            terminal.send(key)
            terminal.wait_quiet(0.2)
        for size in ((200, 60), (80, 24), (120, 40)):
            terminal.resize(*size)
            terminal.wait_quiet(0.3)
        terminal.send("ctrl+z")
        terminal.wait_state("T")
        terminal.signal(signal.SIGCONT)
        terminal.wait_for("llama-7b")
        terminal.wait_quiet(0.3)
        terminal.send("q")
        assert terminal.wait_exit() == 0
        output = bytes(terminal.output).replace(b"\r\n", b"\n")
    calls = [json.loads(line) for line in record.read_text().splitlines()]
    sent = "".join(call[2] for call in calls if call[0] != "resize")
    assert sent.encode() in output
    frames = replayed(calls)
    assert frames > 10


def replayed(calls: list[list]) -> int:
    """How many writes there were; each must have left the two terminals with the same picture."""
    twins = Twins(1, 1)
    frames = 0
    for what, *arguments in calls:
        if what == "resize":
            twins.resize(*arguments)
            continue
        twins.feed(*arguments)
        if what == "reduce":
            frames += 1
            assert state(twins.reduced) == state(twins.raw), arguments
    return frames
