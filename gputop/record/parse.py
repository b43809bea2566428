"""Parse and validate lines of a recording, which may be forged."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, cast

from gputop.export import codec
from gputop.frozen_dataclass import frozen_dataclass
from gputop.model import Frame
from gputop.model.ranges import held
from gputop.safe.text import clean

MOST_GPUS = 1024
MOST_PROCESSES = 65_536
_SEVERITIES = ("info", "warn", "crit")
_CRC = re.compile(rb',"crc":"([0-9a-f]{8})"\}\s*\Z')
_NUMBER = rb"(-?[0-9]{1,18}(?:\.[0-9]{1,18})?)"
_OURS = re.compile(rb'\{"type":"(frame|change)","frame":\{"wall_s":' + _NUMBER + rb',"mono_s":' + _NUMBER + rb",")


class Newer(ValueError):
    """A recording of a later version than this program reads."""


class Header(NamedTuple):
    """Start of a recording, or of its continuation."""

    version: int
    host: str


class Times(NamedTuple):
    """Time of a frame on both clocks."""

    wall_s: float
    mono_s: float
    whole: bool  # otherwise a change of the previous frame


@frozen_dataclass(frozen=True, slots=True)
class Event:
    """An event at the preceding frame."""

    kind: str
    text: str
    severity: Literal["info", "warn", "crit"]


def parse(line: bytes) -> Header | Frame | Event | None:
    """The content of a line by itself, None if it depends on others; ValueError in one line if damaged."""
    data = loaded(line)
    kind = data.get("type")
    return frame_of(data.get("frame")) if kind == "frame" else _small(kind, data)


def frame_of(data: Any, *, coarse: bool = False) -> Frame:
    """A frame from its JSON; ValueError in one line if invalid.

    A `coarse` one has what the history keeps: processes in a job or on a GPU, no sub-second samples.
    """
    frame = codec.decode(Frame, _coarse(data) if coarse else data)
    if len(frame.gpus) > MOST_GPUS or len(frame.processes) > MOST_PROCESSES:
        raise ValueError(f"{len(frame.gpus)} GPUs and {len(frame.processes)} processes exceed the maximum")
    return held(frame)


def _coarse(frame: Any) -> Any:
    if type(frame) is not dict:
        return frame
    processes, gpus = frame.get("processes"), frame.get("gpus")
    if type(processes) is list:
        processes = [one for one in processes if type(one) is not dict or one.get("job") or one.get("gpus")]
    if type(gpus) is list:
        gpus = [{**gpu, "busy_samples": None} if type(gpu) is dict else gpu for gpu in gpus]
    return {**frame, "processes": processes, "gpus": gpus}


def glance(line: bytes) -> Header | Times | Event | None:
    """As `parse`, but only the times of a frame, without parsing the rest of a line that we wrote."""
    if times := _OURS.match(line):
        _check(line)
        return Times(float(times[2]), float(times[3]), times[1] == b"frame")
    data = loaded(line)
    if data.get("type") in ("frame", "change"):
        frame = data.get("frame")
        wall_s, mono_s = (frame.get("wall_s"), frame.get("mono_s")) if isinstance(frame, dict) else (None, None)
        whole = data.get("type") == "frame"
        return Times(codec.decode(float, wall_s), codec.decode(float, mono_s), whole)
    return _small(data.get("type"), data)


def _small(kind: Any, data: Mapping[str, Any]) -> Header | Event | None:
    if kind == "header":
        version, host = data.get("version"), data.get("host", "")
        if type(version) is not int or version < 1 or type(host) is not str:
            raise ValueError("a header without a version")
        if version > codec.VERSION:
            said = min(version, 10**6)
            raise Newer(f"its format is version {said}, this gputop reads {codec.VERSION}: update gputop")
        return Header(version, clean(host))
    if kind == "event":
        texts = [data.get(name, "") for name in ("kind", "text")]
        if not all(type(text) is str for text in texts):
            raise ValueError("an event without text")
        severity = data.get("severity")
        known = severity if severity in _SEVERITIES else "info"
        return Event(clean(texts[0], 40), clean(texts[1], 200), cast(Literal["info", "warn", "crit"], known))
    return None


def _check(line: bytes) -> bool:
    """Whether the line has a checksum; ValueError if it is wrong."""
    crc = _CRC.search(line, max(0, len(line) - 40))
    if crc and zlib.crc32(line[: crc.start()]) != int(crc[1], 16):
        raise ValueError("its checksum does not match its text")
    return crc is not None


def loaded(line: bytes) -> Mapping[str, Any]:
    """The object of a line; ValueError in one line if it is none, or if its checksum is wrong."""
    checked = _check(line)
    try:
        data = codec.loads(line.decode())
    except UnicodeDecodeError:
        raise ValueError("not UTF-8") from None
    if type(data) is not dict:
        raise ValueError("not an object")
    if "crc" in data and not checked:
        raise ValueError("its checksum is not its last key")
    return cast(Mapping[str, Any], data)
