"""Recording from the screen: a new file of the state folder each time it is started."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gputop import units
from gputop.labels import amount
from gputop.monitor import Monitor, Update
from gputop.safe.files import Refused, homely, state_folder
from gputop.safe.text import clean
from gputop.ui.file_worker import FileWorker, Tell
from gputop.ui.panes.header import RecordingStatus

if TYPE_CHECKING:
    from gputop.record.recorder import Recorder

_LAST_S = 1.0  # what a disk gets when the program ends; what it has not written then is one frame


class ScreenRecorder:
    """A recorder beside the screen. Nothing here waits for the disk but `close`."""

    def __init__(self, monitor: Monitor, files: FileWorker) -> None:
        self._monitor = monitor
        self._files = files
        self._recorder: Recorder | None = None
        self._opening = False
        self._over = False
        self._problem: str | None = None

    @property
    def running(self) -> bool:
        """Whether there is a recorder, or will be one in a moment."""
        return self._opening or self._recorder is not None

    @property
    def taped(self) -> RecordingStatus | None:
        """How it goes, for the header."""
        recorder = self._recorder
        return (
            RecordingStatus(recorder.seconds, recorder.size_bytes, recorder.problem is not None) if recorder else None
        )

    def news(self) -> str:
        """What has gone wrong, or well again, since this was last asked; mostly nothing."""
        problem = self._recorder.problem if self._recorder else None
        before, self._problem = self._problem, problem
        if problem and not before:
            return problem
        return "recording again" if before and not problem and self._recorder else ""

    def start(self, newest: Callable[[], Update | None], tell: Tell) -> None:
        """Record from the newest update on, and report the path."""
        self._opening = True
        self._ask_for_all(True)
        self._files.do(lambda: self._open(newest), tell)

    def stop(self, tell: Tell) -> None:
        """End the recording, and report the path."""
        recorder, self._recorder = self._recorder, None
        if recorder:
            take = recorder.take
            self._monitor.sinks = tuple(sink for sink in self._monitor.sinks if sink != take)
            self._ask_for_all(False)
            self._files.do(lambda: _ended(recorder), tell)
        else:
            tell("waiting for the disk")

    def leave(self) -> None:
        """Have the end written while the screen is taken down."""
        self._over = True
        if self._recorder:
            self._recorder.close(0.0)

    def close(self) -> str:
        """The recording ends with the program: what there is to say of it, nothing if there is none."""
        recorder = self._recorder
        if not recorder:
            return ""
        if not recorder.close(_LAST_S) or not recorder.frames:
            return _ended(recorder)
        return f"{recorder.path}: {_extent(recorder)}; play it with `gputop replay`"

    def _ask_for_all(self, wanted: bool) -> None:
        """Have metrics read that are on no screen: a recording has them all."""
        self._monitor.source.interest = replace(self._monitor.source.interest, extended=wanted)

    def _open(self, newest: Callable[[], Update | None]) -> str:
        try:
            recorder = _new()
        except (Refused, OSError) as error:
            self._opening = False
            self._ask_for_all(False)
            return f"not recorded: {clean(str(error))}"
        if update := newest():
            recorder.take(update)
        self._recorder, self._opening = recorder, False
        self._monitor.sinks = (*self._monitor.sinks, recorder.take)
        if self._over:
            recorder.close(0.0)
        return f"recording to {homely(recorder.path)}"


def _new() -> Recorder:
    """In the state folder, by a name that was never used; Refused where that cannot be."""
    from gputop.record.recorder import Recorder  # late: most do not record

    folder = state_folder()
    folder.close()
    name = f"recording-{time.strftime('%Y%m%d-%H%M%S')}-{os.urandom(4).hex()}.jsonl.gz"
    return Recorder(f"{folder.path}/{name}")


def _ended(recorder: Recorder) -> str:
    """The last word on a recording; a file without a frame is no recording and does not stay."""
    if not recorder.close():
        return f"the disk does not respond: the end of {homely(recorder.path)} was not written"
    if not recorder.frames:
        with contextlib.suppress(OSError):
            Path(recorder.path).unlink()
        return f"nothing was recorded{f': {recorder.problem}' if recorder.problem else ''}"
    if recorder.problem:
        return f"{recorder.problem}; {_extent(recorder)} saved in {homely(recorder.path)}"
    return f"recorded in {homely(recorder.path)}"


def _extent(recorder: Recorder) -> str:
    lost = f", {recorder.missed} missing" if recorder.missed else ""
    return f"{amount(recorder.frames, 'frame')}{lost}, {units.size(recorder.size_bytes)}B"
