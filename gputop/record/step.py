"""A frame that has not been decoded, and the time it stands at: what is passed over is never decoded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

from gputop.model import Frame, Note
from gputop.record.chain import Chain
from gputop.record.lines import Damage
from gputop.record.parse import Header, Times, frame_of, glance
from gputop.record.timeline import Timeline

_KEY = "recording-damaged"


class Step(NamedTuple):
    """One frame of a recording: the number it has among those since the last whole one."""

    time: Timeline
    chain: Chain
    number: int


def steps(lines: Iterable[bytes], time: Timeline, damage: Damage) -> Iterator[Step]:
    """The frames of lines. After damage those up to the next whole frame are lost: nobody knows what they changed."""
    chain: Chain | None = None
    for line in lines:
        try:
            found = glance(line)
            if isinstance(found, Header):
                time.header()
                chain = None
            elif isinstance(found, Times):
                time.step(found.wall_s, found.mono_s)
                number = 0
                if found.whole:
                    chain = Chain(line)
                elif chain:
                    number = chain.add(line)
                if chain:
                    yield Step(time.copy(), chain, number)
        except ValueError as error:
            damage.add(str(error))
            chain = None


def shown(step: Step, damage: Damage, *, coarse: bool = False) -> Frame | None:
    """The frame, in time that grows and with a note if something was damaged; None if it is damaged itself."""
    try:
        data = step.chain.frame(step.number)
        frame = None if data is None else frame_of(data, coarse=coarse)
    except ValueError as error:
        damage.add(str(error))
        step.chain.lose(step.number)
        return None
    if frame is None:
        return None
    time = step.time
    if (frame.wall_s, frame.mono_s) != (time.wall_s, time.mono_s):
        frame = replace(frame, wall_s=time.wall_s, mono_s=time.mono_s)
    return noted(frame, damage) if damage.count else frame


def noted(frame: Frame, damage: Damage) -> Frame:
    """The frame with what is said of damage as it is known now."""
    said = Note(subject="monitor", key=_KEY, text=str(damage))
    return replace(frame, notes=(*(note for note in frame.notes if note.key != _KEY), said))
