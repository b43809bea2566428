"""Shared by the rules on ranks: the ranks of a job, the activity of each, and their names."""

from __future__ import annotations

from collections.abc import Iterator

from gputop.diagnose.trainer import Trainer
from gputop.diagnose.view import View
from gputop.frozen_dataclass import frozen_dataclass
from gputop.model import Job

_BUSY, _MOVES_BYTES_PER_S = 0.5, 5e6  # cores, from which use is reported


@frozen_dataclass(frozen=True, slots=True)
class Team:
    """The ranks of one job on this machine."""

    job: Job
    ranks: tuple[Trainer, ...]
    world: int | None  # total ranks; None if no environment is readable

    @property
    def elsewhere(self) -> bool:
        """Whether some of its ranks are on other machines."""
        return self.world is not None and self.world > len(self.job.ranks)

    def name(self, one: Trainer) -> str:
        """Display name of a rank: its number and GPUs."""
        cards = ", ".join(gpu.index for gpu in one.gpus)
        return f"rank {self.number(one)} (GPU {cards})" if cards else f"rank {self.number(one)}"

    def number(self, one: Trainer) -> int:
        """Its rank; its position here if its environment is not readable."""
        return one.process.rank if one.process.rank is not None else self.ranks.index(one)


def teams(view: View) -> Iterator[Team]:
    """Jobs with communicating ranks, by their threads or by a launcher with no other purpose.

    Rank numbers alone prove nothing: Slurm and MPI give them to independent programs.
    """
    for job in view.jobs():
        # one never seen at work counts, too: it may have hung before the monitor started
        ranks = tuple(one for one in view.ranks(job) if one.settled and not one.peers)
        worlds = [one.process.world_size for one in ranks if one.process.world_size is not None]
        world = max(worlds, default=None)
        if (
            any(one.warm for one in ranks)
            and max(len(ranks), world or 0) > 1
            and (job.steps or all(one.process.talks for one in ranks))
        ):
            yield Team(job, ranks, world)


def does(one: Trainer) -> str:
    """What a rank does that the others wait for."""
    written, read = one.write_chars or 0.0, one.read_chars or 0.0
    if blocked(one):
        return "blocked in a system call (state D, usually storage)"
    if written >= _MOVES_BYTES_PER_S:
        return f"writes {written / 1e6:.0f} MB/s"
    if (one.duty or 0.0) >= 0.05:
        return f"GPU busy {100 * (one.duty or 0.0):.0f} %"
    if read >= _MOVES_BYTES_PER_S:
        return f"reads {read / 1e6:.0f} MB/s"
    return f"uses {one.cores:.1f} CPU cores" if (one.cores or 0.0) >= _BUSY else "idle"


def blocked(one: Trainer) -> bool:
    """Whether it is blocked in the kernel."""
    return one.process.state == "D" and (one.process.blocked_percent or 0.0) >= 90


def listed(team: Team, ranks: tuple[Trainer, ...]) -> str:
    """The first few by name."""
    names = [team.name(one) for one in ranks[:3]]
    more = len(ranks) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")
