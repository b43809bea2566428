"""The phases tab of a profile: what a step is made of, and what else the main thread is in."""

from __future__ import annotations

from collections.abc import Sequence

from textual.strip import Strip

from gputop.profile.stacks import Profile
from gputop.profile.training_parts import PHASES, main, phases, shares
from gputop.ui.result import bars
from gputop.ui.result.bars import BarPart
from gputop.ui.theme import Look, Token
from gputop.ui.widgets.tabs import Tab

_TEXTS = {
    "data": "data: waiting or loading",
    "forward": "forward",
    "backward": "backward",
    "optimizer": "optimizer",
    "comms": "communication",
}
_TOKENS: dict[str, Token] = {"data": "warn", "optimizer": "memory", "comms": "owner"}
_LEAST = 0.001
PHASE_TERMS = ("data", "forward", "backward", "optimizer", "communication")


def parts(profile: Profile) -> list[BarPart]:
    """Shares of the main thread's samples."""
    first = main(profile)
    known, every = phases(first), shares(first)
    total = first.total
    rest = max(0.0, 1 - sum(every.values()))

    def part(name: str, share: float, token: Token = "busy") -> BarPart:
        return BarPart(name, share, f"{share * total:.0f} of {total:.0f}", token)

    found = [BarPart("step breakdown", None)]
    found += [part(_TEXTS[phase], known.get(phase, 0.0), _TOKENS.get(phase, "busy")) for phase in PHASES]
    others = [(each.text, share) for each, share in every.items() if not each.phase and share >= _LEAST]
    found += [BarPart("outside these phases", None)] if others or rest >= _LEAST else []
    found += [part(text, share, "memory") for text, share in others]
    return found + ([part("other Python", rest, "dim")] if rest >= _LEAST else [])


class PhasesTab(Tab):
    """The bars; they are short, and nothing on them moves."""

    id, title, short = "phases", "Phases", "Phase"
    terms = PHASE_TERMS

    def __init__(self, found: list[BarPart]) -> None:
        self._parts = found

    def facts(self, look: Look) -> Sequence[str]:  # noqa: ARG002
        """What the shares are of."""
        return ("shares of the main thread's samples",)

    def draw(self, width: int, height: int, look: Look) -> list[Strip]:
        """All of them."""
        return bars.strips(self._parts, width, look)[: max(0, height)]

    def natural(self, width: int, look: Look) -> int:  # noqa: ARG002
        """A line each."""
        return len(self._parts)
