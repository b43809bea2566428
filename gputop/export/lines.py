"""Frames as the lines of a stream. What is the same object as in the frame before keeps its text: most of it is."""

from __future__ import annotations

from dataclasses import is_dataclass
from typing import Any

from gputop.export import codec
from gputop.export.private import masked
from gputop.model import Frame, Gpu, Process

_ANEW = (Frame, Gpu)  # are never the same object, but the larger part of their fields is
_PLAIN = (str, int, float, bool, type(None))


class Lines:
    """Makes lines of one frame after the other, with secrets masked."""

    def __init__(self) -> None:
        self._texts: dict[int, tuple[object, str]] = {}  # by the id of a part of the last frame: that, and its text
        self._before = self._texts

    def frame(self, frame: Frame) -> str:
        """The line of a frame."""
        self._before, self._texts = self._texts, {}
        text = self._fields(frame)
        self._before = self._texts
        return codec.sealed(f'{{"type":"frame","frame":{text}}}')

    def _fields(self, part: Frame | Gpu) -> str:
        said = codec.said(part)
        assert isinstance(said, dict)
        plain = {name: value for name, value in said.items() if isinstance(value, _PLAIN)}
        parts = [f'"{name}":{self._text(value)}' for name, value in said.items() if name not in plain]
        return f"{{{','.join((codec.dumps(plain)[1:-1], *parts))}}}"

    def _text(self, part: Any) -> str:
        if isinstance(part, _ANEW):
            return self._fields(part)
        if isinstance(part, tuple) and part and is_dataclass(part[0]):
            return f"[{','.join(map(self._text, part))}]"
        known = self._before.get(id(part))
        if known is None:
            known = part, codec.dumps(masked(part) if isinstance(part, Process) else part)
        self._texts[id(part)] = known
        return known[1]
