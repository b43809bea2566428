"""What a state is: healthy, judging, found or unknown, of a job, of another user of GPUs, or of the machine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from gputop.diagnose.finding import POSSIBLE, Finding
from gputop.diagnose.steadying import RANKS
from gputop.frozen_dataclass import frozen_dataclass
from gputop.model import Identity

Word = Literal["healthy", "judging", "found", "unknown"]
JUDGING = "judging"  # also the state of a finding that only says what it looks like so far
_LOST = 0.1  # of the GPU's time: an info that says so is found


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class JobState:
    """The state of a job, of another user of GPUs, of a GPU, or of the machine, and why."""

    key: str
    name: str
    user: str | None = None
    gpus: tuple[str, ...] = ()  # uuids
    processes: tuple[Identity, ...] = ()
    state: Word
    judged_in_s: float | None = None  # while it is judging, where that is known
    why: str
    due: bool = True  # a verdict is owed: not of what is idle, nor of what does not train

    @property
    def open(self) -> bool:
        """Whether a verdict is owed, and there is none."""
        return self.due and self.state in ("judging", "unknown")


class RankState(NamedTuple):
    """One rank, or a job: its state, for how long it is still judged, and why."""

    state: Word
    why: str
    left_s: float | None = None
    due: bool = True


def trouble(finding: Finding) -> bool:
    """Whether somebody should act on it."""
    return finding.severity != "info" and not finding.healthy and finding.confidence >= POSSIBLE


def worst(findings: Iterable[Finding]) -> Finding | None:
    """The most urgent finding, which gives the state its reason."""

    def weight(one: Finding) -> tuple[int, bool, float]:
        return RANKS[one.severity], one.primary, one.lost_share or 0.0

    return max(findings, key=weight, default=None)


def found(about: Sequence[Finding]) -> RankState | None:
    """What is found of a job: a warning, or what is lost, or what leads without saying that all is as it should be."""
    one = worst(each for each in about if trouble(each))
    if one is None:
        remarks = [each for each in about if not each.healthy and each.state != JUDGING and each.confidence >= POSSIBLE]
        one = worst(each for each in remarks if each.primary or (each.lost_share or 0.0) >= _LOST)
    if one is None:
        return None
    subject = {"host": "the machine ", "gpu": "its GPU "}.get(one.subject.kind, "")
    return RankState("found", f"{subject}{one.headline}")
