"""Compare the ranks of a job: main thread positions, the one that hangs, and phases."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from gputop.frozen_dataclass import frozen_dataclass
from gputop.phrases import percent
from gputop.profile.code import Call
from gputop.profile.dump import ThreadStack
from gputop.profile.stacks import Profile
from gputop.profile.training_parts import PARTS, PHASES, main, phases
from gputop.report import Page, ReportTable
from gputop.units import UNKNOWN

_COLLECTIVE = re.compile(r"/(?:distributed_c10d|comm/comm|process_group)\.py$")
_SYNCHRONIZES = re.compile(r"(?:^|\.)(?:barrier|all_?reduce|all_?gather\w*|reduce_scatter\w*|broadcast\w*)$")
_IN_A_COLLECTIVE = next(part.frame for part in PARTS if part.name == "collectives")
_SETS_UP = "distributed_c10d.py"  # not all of it synchronizes
INSIDE = "may wait in a collective inside backward: --native shows it"  # where DDP waits, unseen in Python frames
_NAMED = 4  # ranks listed
_BACKWARD = "_engine_run_backward"
_WAKES = 2  # wakeups from which a main thread is active: a single one may be a timeout
_WORK_S = 200e-6  # of CPU per wakeup; polling takes less: it checks, and sleeps again
_SURE = 3  # samples; a rank that differs in each of these is odd even if all make progress
# calls in which a CPU spins until its GPU or other ranks are done
_SPINS = re.compile(r"^(?:cu|cuda)(?:Stream|Event|Ctx|Device)Synchronize|^cuMemcpy|^nccl[A-Z]|spin|libcuda\.so")


@frozen_dataclass(frozen=True, slots=True)
class ThreadCounters:
    """Kernel counters of a main thread between samples; sampling itself may wake it."""

    wakes: int  # voluntary context switches
    cpu_s: float | None  # CPU seconds; None if not counted

    @property
    def makes_progress(self) -> bool:
        """Whether it leaves its waits to do work: it makes progress wherever it is seen."""
        return self.wakes >= _WAKES and self.cpu_s is not None and self.cpu_s >= _WORK_S * self.wakes


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class RankPosition:
    """The position of one rank."""

    label: str
    inner: Call | None = None  # the innermost call; None if its stack could not be read
    own: Call | None = None  # the innermost call of the user's own code
    collective: Call | None = None  # the outermost call of a collective
    moves: bool | None = None  # it was elsewhere a moment before, or woke to work; None if unknown
    computes: bool = False  # running in every sample, outside collectives: one line may take longer than a second
    woke: int = 0  # wakeups outside collectives: it may be polling
    held: bool = False  # it waits in the backward pass; whether in a collective or for its GPU is not visible
    odd: bool = False  # it is not where the others are


@frozen_dataclass(frozen=True, slots=True)
class Ranks:
    """All positions, and their meaning: where the ranks are, then how they move."""

    places: tuple[RankPosition, ...]
    sentences: tuple[str, ...]

    @property
    def text(self) -> str:
        """Their meaning in one paragraph."""
        return " ".join(self.sentences)

    @property
    def progress(self) -> tuple[str, ...]:
        """The sentences after the one that says where the ranks are."""
        return self.sentences[1:]

    @property
    def odd(self) -> tuple[RankPosition, ...]:
        """The ranks that are not where the others are."""
        return tuple(place for place in self.places if place.odd)


def compare(
    labels: Sequence[str], *looks: Sequence[Sequence[ThreadStack]], ran: Sequence[ThreadCounters | None] | None = None
) -> Ranks:
    """Compare samples of each rank's threads within a second, newest last, and main-thread activity between them.

    In a hang no rank moves, and all but one are at the same position. Equal stacks alone are no hang: a step that
    mostly waits in one line is seen there each time.
    """
    seen = [[_main(threads) for threads in look] for look in looks]
    stacks, counted = seen[-1], ran or [None] * len(labels)
    held = {place for place in range(len(labels)) if all(_waits_in_backward(look[place]) for look in looks)}
    moved = [
        _has_moved([look[place] for look in seen[:-1]], calls, counted[place]) if calls else None
        for place, calls in enumerate(stacks)
    ]
    odd = _odd_ranks(stacks, held)
    for look in seen[:-1]:  # ranks in progress overtake each other: only one that differs in every sample is odd
        odd &= _odd_ranks(look, held) | {place for place, calls in enumerate(look) if not calls}
    if len(looks) < _SURE and all(moves for moves, calls in zip(moved, stacks, strict=True) if calls):
        odd = set()
    places = tuple(
        RankPosition(
            label=label,
            inner=calls[0] if calls else None,
            own=next((call for call in calls if call.own), None),
            collective=_collective(calls),
            moves=moved[place],
            computes=all(_runs(look[place]) for look in looks) and not _collective(calls) and not _spins(calls),
            woke=0 if _collective(calls) or counts is None else counts.wakes,
            held=waits_inside(looks[-1][place]),
            odd=place in odd,
        )
        for place, (label, calls, counts) in enumerate(zip(labels, stacks, counted, strict=True))
    )
    return Ranks(places, tuple(_descriptions(places)))


def _has_moved(befores: Sequence[tuple[Call, ...]], calls: tuple[Call, ...], ran: ThreadCounters | None) -> bool | None:
    """Whether a main thread moved, or left its wait to work; None without an earlier stack."""
    earlier = [before for before in befores if before]
    if ran is not None and ran.makes_progress:
        return True
    return any(before != calls for before in earlier) if earlier else None


def _spins(calls: Sequence[Call]) -> bool:
    """Whether native frames show that it only spins."""
    return any(_SPINS.search(call.name) or _SPINS.search(call.file) for call in calls if not call.file.endswith(".py"))


def _main(threads: Sequence[ThreadStack]) -> tuple[Call, ...]:
    return threads[0].calls if threads and threads[0].main else ()


def _waits_in_backward(threads: Sequence[ThreadStack]) -> bool:
    """Whether its main thread waits for the backward pass, where DDP's own threads wait for other ranks."""
    return not _runs(threads) and any(call.name == _BACKWARD for call in _main(threads))


def waits_inside(threads: Sequence[ThreadStack]) -> bool:
    """Whether its main thread waits in the backward pass without a frame that says for what: GPU or other ranks."""
    calls = _main(threads)
    seen = bool(calls) and (_collective(calls) is not None or _native(calls))
    return _waits_in_backward(threads) and not seen


def _native(calls: Sequence[Call]) -> bool:
    """Whether there are C or C++ frames."""
    return any(not call.file.endswith(".py") and "::" in call.name for call in calls)


def _runs(threads: Sequence[ThreadStack]) -> bool:
    return bool(threads) and threads[0].main and threads[0].active is True


def _collective(calls: Sequence[Call]) -> Call | None:
    return next((call for call in reversed(calls) if _synchronizes(call)), None)


def _synchronizes(call: Call) -> bool:
    if _COLLECTIVE.search(call.file):
        return _SYNCHRONIZES.search(call.name) is not None
    return not call.file.endswith(_SETS_UP) and _IN_A_COLLECTIVE.search(call.text) is not None


def _odd_ranks(stacks: Sequence[tuple[Call, ...]], held: set[int]) -> set[int]:
    """Indices of odd ranks.

    Those outside a collective that others are in; else those apart from a majority at one position; else those not
    waiting in the backward pass while others always are.
    """
    seen = [place for place, calls in enumerate(stacks) if calls]
    waiting = {place for place in seen if _collective(stacks[place])}
    if waiting and len(waiting) < len(seen):
        return set(seen) - waiting
    # lines vary in a loop; functions vary where ranks are apart
    kinds = {place: tuple((call.name, call.file) for call in stacks[place]) for place in seen}
    if not kinds:
        return set()
    most, count = Counter(kinds.values()).most_common(1)[0]
    if 2 * count > len(seen):
        return {place for place in seen if kinds[place] != most}
    return set(seen) - held if held else set()


def _descriptions(places: Sequence[RankPosition]) -> list[str]:
    seen = [place for place in places if place.inner]
    odd, said = [place for place in seen if place.odd], list[str]()
    if not seen:
        return []
    if odd:
        others = [place for place in seen if not place.odd]
        said.append(f"{_whereabouts(others)}; {_whereabouts(odd)}.")
    elif len({_position_text(place) for place in seen}) == 1 and len(seen) > 1:
        said.append(f"All {len(seen)} ranks are in {_position_text(seen[0])}.")
    else:
        said.append("The ranks are in different places, without a majority.")
    said.append(_movement(seen))
    if inside := [place for place in seen if place.held]:
        every = f"All {len(seen)} ranks" if 1 < len(seen) == len(inside) else _names(inside)
        said.append(f"{every} {INSIDE}.")
    return said


def _whereabouts(places: Sequence[RankPosition]) -> str:
    """Where ranks are: `ranks 0, 1, 2 wait in all_reduce`, `rank 3 is in write_samples (train.py:171)`."""
    one, collective = len(places) == 1, places[0].collective
    if collective:
        return f"{_names(places)} {'waits' if one else 'wait'} in {collective.name}"
    where = ", ".join(dict.fromkeys(_position_text(place) for place in places))
    return f"{_names(places)} {'is' if one else 'are'} in {where}"


def _movement(seen: Sequence[RankPosition]) -> str:
    """Which ranks moved, and whether that is a hang."""
    still = [place for place in seen if place.moves is False]
    busy = [place for place in still if place.computes]
    woke = [place for place in still if place.woke >= _WAKES and not place.computes]
    if busy and len(still) == len(seen):
        each = len(busy) == len(seen) > 1  # no other rank waits for a computing one then
        one, more = ("computes", "compute or spin in a wait" if each else "compute")
        all_the_time = f"{_names(busy)} {one if len(busy) == 1 else more} all the time"
        wait = ", and the others may wait for it" if len(busy) < len(seen) else ""
        return f"No rank moved within 1 s, but {all_the_time}{wait}."
    if woke and len(still) == len(seen):
        times = ", ".join(f"{place.label} ran {place.woke} times" for place in woke[:_NAMED])
        return f"No rank was elsewhere within 1 s, but {times}: the job makes progress, or polls."
    if len(still) == len(seen):
        longer = ", or its backward pass takes longer" if still and all(place.held for place in still) else ""
        return f"No rank moved within 1 s: the job probably hangs{longer}."
    if still := [place for place in still if place not in (*busy, *woke)]:
        return f"{_names(still)} did not move within 1 s, the others did."
    moved = [place for place in seen if place.moves]
    if not moved:
        return "Whether they moved is unknown: their stacks were read only once."
    if len(moved) == len(seen):
        return "All ranks moved within 1 s: the job makes progress."
    return f"{_names(moved)} moved within 1 s; whether the others did is unknown."


def _position_text(place: RankPosition) -> str:
    call = place.collective or place.own or place.inner
    return call.text if call else ""


def _names(places: Sequence[RankPosition]) -> str:
    if len(places) > _NAMED:
        return f"{len(places)} ranks"
    numbers = [found[1] for place in places if (found := re.fullmatch(r"rank (\d+)", place.label))]
    if len(numbers) == len(places) > 1:
        return f"ranks {', '.join(numbers)}"
    return ", ".join(place.label for place in places)


_APART = 0.20  # of the samples: the late rank spends this much less in collectives
_WAITS = 0.10  # of the samples, from which collective waits are reported
_TITLES = {"comms": "collectives"}

Ranked = tuple[str, int, Profile]  # label, PID, profile


def page(ranks: Sequence[Ranked]) -> Page:
    """The joint report on all ranks."""
    found = [phases(main(profile)) for _, _, profile in ranks]
    rows = []
    for (label, pid, profile), shares in zip(ranks, found, strict=True):
        own = main(profile).own_code().by_function().top()
        cells = (_cell(shares, phase) for phase in PHASES)
        rows.append((label, str(pid), *cells, own[0].name if own else ""))
    head = ("", "pid", *(_TITLES.get(phase, phase) for phase in PHASES), "own code")
    labels = [label for label, _, _ in ranks]
    return Page(
        title=f"{len(ranks)} ranks, profiled simultaneously",
        words=(_collective_text(labels, found),),
        tables=(ReportTable("Ranks", head, tuple(rows)),),
    )


def _cell(shares: Mapping[str, float], phase: str) -> str:
    """The share of a phase; unknown for collectives if none was seen, as backward may hide them."""
    if phase == "comms" and phase not in shares and shares.get("backward", 0.0) >= _WAITS:
        return UNKNOWN
    return percent(shares.get(phase, 0.0), 1)


def _collective_text(labels: Sequence[str], found: Sequence[Mapping[str, float]]) -> str:
    """The ranks that wait in collectives, and the one that does not; DDP waits inside backward."""
    waits = [shares.get("comms", 0.0) for shares in found]
    least, most = min(waits), max(waits)
    if most >= _WAITS:
        late = _late_ranks(labels, waits)
        if not late:
            return f"All ranks spend {percent(least)} to {percent(most)} of the time in collectives: no straggler."
        return f"{late} of the time in collectives, the others up to {percent(most)}: they wait for it."
    backward = [shares.get("backward", 0.0) for shares in found]
    if late := _late_ranks(labels, backward):
        return (
            f"{late} of the time in backward, the others up to {percent(max(backward))}:"
            " they may wait for it in an all-reduce there, which --native shows."
        )
    if max(backward) >= _WAITS:
        return f"collectives {UNKNOWN}: the ranks may wait inside backward: --native shows it."
    return f"No rank waits in collectives for {percent(_WAITS)} of the time."


def _late_ranks(labels: Sequence[str], shares: Sequence[float]) -> str:
    """`rank 1 spends 3 %`: ranks with a share far below the others; empty if there are none."""
    least = min(shares)
    late = [label for label, share in zip(labels, shares, strict=True) if share <= least + _APART / 2]
    if max(shares) - least < _APART or len(late) == len(labels):
        return ""
    return f"{', '.join(late[:4])} {'spends' if len(late) == 1 else 'spend'} {percent(least)}"
