"""What is new enough to ring for, and what a desktop notification says of it."""

from __future__ import annotations

import math

from gputop import finding_text
from gputop.alerts.terminal import notification
from gputop.diagnose import Finding
from gputop.diagnose.steadying import RANKS
from gputop.model import Frame
from gputop.ui.advice.finding_list import FindingList, Key, key, troubles

_LONGEST_S = 60.0  # between two frames: what appeared in a longer gap is not new


class Alarm:
    """Remembers what has been heard of."""

    def __init__(self) -> None:
        self._known: dict[Key, int] = {}
        self._at_s = -math.inf

    def news(self, finding_list: FindingList, frame: Frame) -> Finding | None:
        """The worst warning that is new, or worse than it was; none in the first update, or after a jump in time."""
        bad = troubles(finding_list.shown)
        fresh = [finding for finding in bad if RANKS[finding.severity] > self._known.get(key(finding), 0)]
        away = not 0 <= frame.mono_s - self._at_s <= _LONGEST_S
        self._known, self._at_s = {key(finding): RANKS[finding.severity] for finding in bad}, frame.mono_s
        return None if away or not fresh else fresh[0]


def sequence(how: str, finding: Finding, frame: Frame) -> str:
    """The bytes that make a terminal ring, or hand a notification to the desktop; `how` is the setting."""
    return notification(how, f"{finding_text.severity(finding)} {finding_text.sentence(finding, frame)}")
