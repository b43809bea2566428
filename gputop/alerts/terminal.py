"""Messages on a terminal: the bell, or a notification that the terminal passes on to the desktop."""

from __future__ import annotations

from collections import deque
from dataclasses import field

from gputop.alerts.message import AlertMessage
from gputop.frozen_dataclass import frozen_dataclass
from gputop.safe.text import clean, to_ascii

NO_TERMINAL = "standard error is not a terminal"
WAYS = ("bell", "osc9", "osc777")
_LONGEST = 160  # characters of a notification
_MOST = 20  # messages that wait for the terminal


def notification(how: str, text: str) -> str:
    """The bytes that ring the bell or notify the desktop; `how`: bell, osc9 or osc777, nothing for other words.

    OSC 9 is understood by iTerm2, kitty, WezTerm and Windows Terminal, OSC 777 by foot, urxvt and VTE.
    """
    said = to_ascii(clean(text)[:_LONGEST]).replace(";", ",")
    ways = {"bell": "\a", "osc9": f"\x1b]9;gputop: {said}\a", "osc777": f"\x1b]777;notify;gputop;{said}\a"}
    return ways.get(how, "")


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class TerminalReceiver:
    """The terminal that gputop runs in."""

    name: str
    how: str = "bell"
    _waiting: deque[AlertMessage] = field(default_factory=lambda: deque(maxlen=_MOST), compare=False, repr=False)

    @property
    def acts(self) -> bool:
        """It changes nothing on this machine."""
        return False

    @property
    def place(self) -> str:
        """How it notifies."""
        return f"terminal {self.how}"

    def send(self, message: AlertMessage) -> None:
        """Leave it for what draws on the terminal, which alone may write there."""
        self._waiting.append(message)

    def sequences(self) -> list[str]:
        """What is to be written for the messages since the last call."""
        found = []
        while self._waiting:
            found.append(notification(self.how, self._waiting.popleft().title))
        return found
