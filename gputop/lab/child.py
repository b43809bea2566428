"""A child process in the user's Python: own session, messages on a pipe, ended with all its children.

The protocol is in child_request.py, which each of them imports.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from gputop.safe import programs
from gputop.safe.text import clean
from gputop.units import decimal

MOST_LINE = 64 << 20
_SLICE_MS = 100
_LEAVES_S, _TERMINATES_S = 5.0, 2.0  # time to end by itself, and after SIGTERM
_LONGEST = 400  # characters of an error message

Hear = Callable[[Mapping[str, Any]], None]


class NotMeasured(Exception):
    """Why nothing was measured: one line, the traceback if any, and the cause.

    An experiment continues after the causes "memory" (out of memory), "killed", "aborted" and "hung".
    """

    def __init__(self, text: str, trace: str = "", cause: str = "") -> None:
        super().__init__(clean(text, _LONGEST))
        self.trace = trace
        self.cause = cause


def ask(
    command: list[str], request: Mapping[str, Any], timeout_s: float, hear: Hear, *, quiet: bool = False
) -> dict[str, Any]:
    """The child's final message, after `hear` was called with each earlier one; NotMeasured if it fails or is silent.

    Its standard output goes to our standard error, so that ours stays clean; `quiet` drops both.
    """
    reader, writer = os.pipe()
    try:
        try:
            process = programs.start_chosen(
                [*command, str(writer), json.dumps(request)],
                stdin=programs.DEVNULL,
                stdout=programs.DEVNULL if quiet else 2,
                stderr=programs.DEVNULL if quiet else None,
                pass_fds=(writer,),
                start_new_session=True,
            )
        except OSError as error:
            raise NotMeasured(f"{command[0]}: {error.strerror}") from None
        finally:
            os.close(writer)
        done = False
        try:
            for line in _lines(reader, process, timeout_s):
                kind = line.get("kind")
                if kind == "error":
                    raise _exception(line)
                if kind == "done":
                    done = True
                    return line
                hear(line)
            raise _ended(_exit(process))
        finally:
            _end(process, _LEAVES_S if done else 0.0)
    finally:
        os.close(reader)


def _lines(reader: int, process: programs.Running[bytes], timeout_s: float) -> Iterator[dict[str, Any]]:
    """Each object that the child writes, until it has ended; NotMeasured if it is silent for too long."""
    poll = select.poll()
    poll.register(reader, select.POLLIN)
    pending, heard_s, patience_s = b"", time.monotonic(), timeout_s
    while True:
        ended = _exited(process)
        if poll.poll(0 if ended else _SLICE_MS):
            data = os.read(reader, 1 << 16)
            heard_s = time.monotonic()
            *lines, pending = (pending + data).split(b"\n")
            for line in lines:
                said = _object(line)
                asked_s = said.get("patience_s")
                patience_s = max(timeout_s, asked_s) if isinstance(asked_s, (int, float)) else timeout_s
                yield said
            if not data or len(pending) > MOST_LINE:
                return
        elif ended:  # its children may hold the pipe open
            return
        elif time.monotonic() - heard_s > patience_s:
            text = f"hung: no answer for {patience_s:g} s; terminated with its workers; --timeout waits longer"
            raise NotMeasured(text, cause="hung")


def _object(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise NotMeasured("the pipe carried no JSON object: the measured code writes to it")
    return found


def _exited(process: programs.Running[bytes]) -> bool:
    """Whether it has ended; it is not reaped, so that its process group id stays reserved."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None


def _exit(process: programs.Running[bytes]) -> int:
    """Its exit code, negative for a signal; it ends soon, as its pipe is closed."""
    found = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    if found is None:
        return 0
    return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status


def _end(process: programs.Running[bytes], leaves_s: float) -> None:
    """End it and all its children through its process group."""
    for number, patience_s in ((None, leaves_s), (signal.SIGTERM, _TERMINATES_S), (signal.SIGKILL, 0.0)):
        if number is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
        deadline = time.monotonic() + patience_s
        while not _exited(process) and time.monotonic() < deadline:
            time.sleep(0.01)
    process.wait()


def _exception(line: Mapping[str, Any]) -> NotMeasured:
    """The child's exception in one line; for torch's message on a killed worker, with advice."""
    text, where = str(line.get("text", "")), str(line.get("where", ""))
    trace = str(line.get("trace", ""))
    if "shared memory" in text or "Bus error" in text or "No space left on device" in text:
        return NotMeasured(f"a worker is out of shared memory: {_shm()}; raise it or use fewer workers", trace)
    if "killed by signal" in text or "exited unexpectedly" in text:
        return NotMeasured(f"a DataLoader worker was killed{_signal(text)}: {_memory(text)}", trace)
    cause = str(line.get("cause") or "")
    if cause == "memory":
        text, where = _out_of_memory(text), "" if "/torch/" in where else where
    return NotMeasured(f"{text} ({where})" if where else text, trace, cause)


def _out_of_memory(text: str) -> str:
    """A shorter form of torch's message, which lists its own pools."""
    words = "CUDA out of memory" if "CUDA" in text else "out of memory"
    wanted = re.search(r"tried to allocate ([\d.]+ \w+)", text, re.IGNORECASE)
    if wanted is None:
        return words
    count, _, unit = wanted[1].partition(" ")
    size = decimal(float(count)) if unit == "bytes" else wanted[1]
    return f"{words}: an allocation of {size} failed"


def _signal(text: str) -> str:
    _, found, rest = text.partition("killed by signal: ")
    return f" by signal {rest.split('.')[0].strip()}" if found else ""


def _memory(text: str) -> str:
    if "Killed" in text or "exited unexpectedly" in text:
        return "out of memory, most likely; use fewer workers or a smaller batch, and see dmesg"
    return "its code or a library crashed; run it with num_workers=0 to see where"


def _ended(code: int) -> NotMeasured:
    if code == -signal.SIGKILL:
        text = "the measuring process was killed by SIGKILL: out of memory, most likely; see dmesg"
        return NotMeasured(text, cause="killed")
    if code < 0:
        name, cause = signal.Signals(-code).name, "aborted" if code == -signal.SIGABRT else ""
        return NotMeasured(f"the measuring process was killed by {name}: its code or a library crashed", cause=cause)
    return NotMeasured(
        f"the measuring process exited with code {code} without a result; --verbose shows what it prints"
    )


def _shm() -> str:
    """Free space of /dev/shm."""
    try:
        found = os.statvfs(Path("/dev/shm"))
    except OSError:
        return "/dev/shm does not exist"
    size, free = found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize
    return f"/dev/shm has {decimal(free)} free of {decimal(size)} (docker run --shm-size, or ipc: host)"
