"""A frame that has not been decoded, and the time it stands at: what is passed over is never decoded."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from gputop.model import Frame, Note
from gputop.record.lines import Damage
from gputop.record.parse import Header, Times, glance, parse
from gputop.record.timeline import Timeline


class Step(NamedTuple):
    """One frame of a recording."""

    time: Timeline
    line: bytes


def stepped(time: Timeline, line: bytes) -> bool:
    """Go on in time by a line; whether it is a frame. ValueError where it is damaged."""
    found = glance(line)
    if isinstance(found, Header):
        time.header()
    elif isinstance(found, Times):
        time.step(*found)
        return True
    return False


def shown(step: Step, damage: Damage, *, coarse: bool = False) -> Frame | None:
    """The frame, in time that grows and with a note if something was damaged; None if it is damaged itself."""
    try:
        frame = parse(step.line, coarse=coarse)
    except ValueError as error:
        damage.add(str(error))
        return None
    if not isinstance(frame, Frame):
        return None
    time = step.time
    if (frame.wall_s, frame.mono_s) != (time.wall_s, time.mono_s):
        frame = replace(frame, wall_s=time.wall_s, mono_s=time.mono_s)
    return replace(frame, notes=(*frame.notes, _note(damage))) if damage.count else frame


def _note(damage: Damage) -> Note:
    places = "1 place" if damage.count == 1 else f"{damage.count} places"
    text = f"the recording is damaged in {places}: {damage.first}"
    return Note(subject="monitor", key="recording-damaged", text=text)
