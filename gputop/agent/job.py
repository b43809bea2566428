"""A capture for a client: waits for torch, for a step, for the end; reports its progress, and saves the trace."""

from __future__ import annotations

import os
import re
import sys
import time
from typing import Any, Callable

from . import place, profilers
from .capture import Capture, Problem, Wish
from .connection import Connection, Gone

_IMPORT_S = 10.0
_STOP_S = 30.0  # after the cap: for a step that must end first


class Job:
    """`look` moves it on; `over` when nothing is left to do. `wake` has it called soon, from any thread."""

    def __init__(self, connection: Connection, ident: str | None, wish: Wish, wake: Callable[[], None]) -> None:
        self.connection, self.over = connection, False
        self.capture: Capture | None = None
        self._ident, self._wish, self._wake = ident, wish, wake
        self._said = ""
        self._path = place.trace_file()
        self._deadline_s = time.monotonic() + _IMPORT_S
        self._unwanted = False

    def look(self) -> None:
        """See what has changed."""
        try:
            self._look()
        except Problem as problem:
            self._end({"error": problem.code, "detail": problem.detail})
        except (OSError, place.Unusable) as error:
            self._end({"error": "output", "detail": str(error)})
        except Exception as error:
            self._end({"error": "internal", "detail": f"{type(error).__name__}: {error}"[:300]})

    def cancel(self) -> None:
        """End it, keep nothing."""
        capture = self.capture
        if capture is None or capture.give_up():
            self._end({"error": "cancelled", "detail": ""})
        else:
            self._unwanted = True
            capture.ask("cut")

    def clear(self) -> None:
        """Leave no half file."""
        for half in place.halves(self._path):
            try:
                os.unlink(half)
            except OSError:
                pass

    def _look(self) -> None:
        capture = self.capture
        if self.over:
            return
        if capture is None:
            self._import()
        elif capture.state == "waiting":
            self._say("waiting", **{"for": "step"})
            if time.monotonic() > self._deadline_s and capture.give_up():
                raise Problem("no-step", f"no optimizer step within {self._wish.wait:g} s")
        elif capture.state in ("warming", "recording"):
            self._record(capture)
        elif self._unwanted:
            self._end({"error": "cancelled", "detail": ""})
        else:
            if capture.problem is not None:
                raise capture.problem
            self._end(capture.saved(self._path))

    def _import(self) -> None:
        """Torch must be whole before any of it is touched."""
        busy = profilers.importing()
        if "torch" in sys.modules and not busy and profilers.guard():
            self._arm()
        elif time.monotonic() > self._deadline_s:
            raise Problem("still-importing" if busy else "no-torch", ", ".join(busy[:3]))
        else:
            self._say("waiting", **{"for": "import"})

    def _arm(self) -> None:
        lacking = profilers.lacking()
        if lacking:
            raise Problem("unsupported", lacking)
        if profilers.may_be_active():
            raise Problem("profiler-active")
        if not self._wish.graphs and _may_break_graphs():
            raise Problem("cuda-graphs")
        self._deadline_s = time.monotonic() + self._wish.wait
        self.capture = Capture(self._wish, self._wake)
        self.capture.arm()
        self._say("waiting", **{"for": "step"})

    def _record(self, capture: Capture) -> None:
        since_s = capture.began_s or capture.warmed_s
        if not since_s:
            return
        cap_s = round(capture.cap_s, 3)
        if capture.began_s:
            self._say("recording", step_s=round(capture.step_s, 6), cap_s=cap_s)
        else:
            self._say("waiting", **{"for": "step", "warming": True, "cap_s": cap_s})
        over_s = time.monotonic() - since_s - capture.cap_s
        if over_s > 0:
            capture.ask("cut")
        if over_s > _STOP_S and not self._unwanted:
            self._unwanted = True  # it ends when its step does; no client waits for it
            self._tell({"error": "no-step", "detail": "the step did not end"})

    def _say(self, state: str, **more: Any) -> None:
        said = f"{state} {more.get('for')} {more.pop('warming', None)}"
        if self._said != said:
            self._said = said
            self._tell({"state": state, **more})

    def _tell(self, message: dict[str, Any]) -> None:
        try:
            self.connection.say({**message, "id": self._ident} if self._ident is not None else message)
        except Gone:
            pass  # the server notices

    def _end(self, message: dict[str, Any]) -> None:
        capture = self.capture
        if capture is not None:
            capture.ask("cut")  # if something went wrong here while it records
            capture.disarm()
        self.over = True
        self.clear()
        self._tell(message)


def _may_break_graphs() -> bool:
    """Whether starting a profiler beside CUDA graphs has ended jobs on such a build, or has never been tried.

    CUDA 11 and torch before 2.3 did (pytorch#101879, #112507). `make gpu-check` has traced a job with CUDA graphs twice
    on CUDA 13 and torch 2.11, and the job went on. ROCm has not been tried.
    """
    torch = profilers.whole("torch")
    if not torch.cuda.is_initialized():
        return False
    cuda, release = _numbers(torch.version.cuda or ""), _numbers(torch.__version__)
    return not cuda or cuda < (12,) or release < (2, 3)


def _numbers(version: str) -> tuple[int, ...]:
    """(2, 11) of 2.11.0a0+git; () where it begins otherwise."""
    found = re.match(r"(\d+)\.(\d+)", str(version))
    return tuple(map(int, found.groups())) if found else ()
