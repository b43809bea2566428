"""States of a job, of another GPU user, or of the machine: healthy, judging, found or unknown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from gputop.diagnose.finding import POSSIBLE, Finding
from gputop.diagnose.steadying import RANKS
from gputop.frozen_dataclass import frozen_dataclass
from gputop.model import Identity

Word = Literal["healthy", "judging", "found", "unknown"]
JUDGING = "judging"  # also the state of a finding that only describes what is seen so far
_LOST = 0.1  # of the GPU's time: an info with that loss counts as found


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class JobState:
    """The state of a job, of another GPU user, of a GPU, or of the machine, and the reason."""

    key: str
    name: str
    user: str | None = None
    gpus: tuple[str, ...] = ()  # uuids
    processes: tuple[Identity, ...] = ()
    state: Word
    judged_in_s: float | None = None  # while it is judging, if known
    why: str
    due: bool = True  # a verdict is due: not for idle processes, nor for those that do not train

    @property
    def open(self) -> bool:
        """Whether a verdict is due but missing."""
        return self.due and self.state in ("judging", "unknown")


class RankState(NamedTuple):
    """State of one rank or job, the reason, and the seconds until it is judged."""

    state: Word
    why: str
    left_s: float | None = None
    due: bool = True


def needs_action(finding: Finding) -> bool:
    """Whether the finding calls for action."""
    return finding.severity != "info" and not finding.healthy and finding.confidence >= POSSIBLE


def worst(findings: Iterable[Finding]) -> Finding | None:
    """The most urgent finding, which gives the state its reason."""

    def weight(one: Finding) -> tuple[int, bool, float]:
        return RANKS[one.severity], one.primary, one.lost_share or 0.0

    return max(findings, key=weight, default=None)


def found_state(about: Sequence[Finding]) -> RankState | None:
    """The found state of a job: a warning, a loss, or a leading finding that does not say it is healthy."""
    one = worst(each for each in about if needs_action(each))
    if one is None:
        remarks = [each for each in about if not each.healthy and each.state != JUDGING and each.confidence >= POSSIBLE]
        one = worst(each for each in remarks if each.primary or (each.lost_share or 0.0) >= _LOST)
    if one is None:
        return None
    where = " on its GPU" if one.subject.kind == "gpu" and "GPU" not in one.headline else ""
    return RankState("found", f"{one.headline}{where}")
