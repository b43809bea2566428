"""Act on processes of another host: gputop there does it, by the same ssh."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Thread
from typing import NamedTuple

from gputop.hosts.ssh import NoSsh, answer, interactive
from gputop.model import Process
from gputop.safe.text import clean

_PATIENCE_S = 30.0


class Outcome(NamedTuple):
    """What came of it, in one line with the name of the host."""

    text: str
    good: bool


class RemoteActions:
    """What can be done on one host."""

    def __init__(self, host: str) -> None:
        self.host = host

    def send_signal(self, name: str, processes: Sequence[Process], tell: Callable[[Outcome], object]) -> None:
        """Send a signal; `tell` gets the outcome, in another thread."""
        words = ["gputop", "signal", name, *(f"{one.pid}:{one.started_ticks}" for one in processes)]
        Thread(target=lambda: tell(self._run(words)), name=f"signal on {self.host}", daemon=True).start()

    def terminal_command(self, arguments: Sequence[str]) -> list[str]:
        """The command line that runs gputop there, on this terminal; NoSsh if there is none."""
        return interactive(self.host, ["gputop", *arguments])

    def _run(self, words: Sequence[str]) -> Outcome:
        try:
            code, text = answer(self.host, words, _PATIENCE_S)
        except NoSsh as error:
            return Outcome(f"{self.host}: {error}", False)
        lines = [clean(line, 200) for line in text.splitlines() if line.strip()]
        said = lines[0] if lines else "no answer"
        more = f" (+{len(lines) - 1} lines)" if len(lines) > 1 else ""
        return Outcome(f"{self.host}: {said}{more}", code == 0)
