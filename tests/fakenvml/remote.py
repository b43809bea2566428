"""A process with the real nvidia-ml-py under a fake driver; it evaluates what a test sends, each in its own thread."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from concurrent.futures import Future
from typing import Any, NamedTuple

from tests.fakenvml import Fake

CHILD = r"""
import ctypes, functools, json, os, sys, threading, time
import pynvml as N

def plain(value):
    if isinstance(value, ctypes.Structure):
        return {name: plain(getattr(value, name)) for name, *_ in value._fields_ if not name.startswith("metric")}
    if isinstance(value, (list, tuple, ctypes.Array)):
        return [plain(item) for item in value]
    if isinstance(value, N.nvmlFriendlyObject):
        return vars(value)
    if isinstance(value, bytes):
        return value.decode("latin-1")
    return getattr(value, "value", value) if isinstance(value, ctypes._SimpleCData) else value

gpu = functools.cache(N.nvmlDeviceGetHandleByIndex)

def fields(i, *ids):
    return [[f.nvmlReturn, f.valueType, f.value.siVal if f.valueType == 5 else f.value.dVal if f.valueType == 0
             else f.value.uiVal if f.valueType == 1 else f.value.ullVal]
            for f in N.nvmlDeviceGetFieldValues(gpu(i), list(ids))]

def raw(name, *arguments):
    return N._nvmlGetFunctionPointer(name)(*arguments)

def answer(number, question):
    try:
        said = {"value": plain(eval(question, globals()))}
    except N.NVMLError as error:
        said = {"error": error.value}
    except Exception as error:
        said = {"failed": repr(error)}
    print(json.dumps([number, said]), flush=True)

for line in sys.stdin:
    threading.Thread(target=answer, args=json.loads(line), daemon=True).start()
os._exit(0)
"""


PATIENCE_S = 120.0  # nothing is promised of how soon it answers: a machine that is busy elsewhere has taken over 20 s


class Refused(NamedTuple):
    """The NVML error a call returned."""

    code: int


class Remote:
    """The asking side: `remote(expression)` gives its value, or `Refused`; N is pynvml, gpu(i) a handle."""

    def __init__(self, fake: Fake, *, init: bool = True) -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-c", CHILD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=fake.env(),
            text=True,
        )
        self.pid = self._child.pid
        self._asked: dict[int, Future[Any]] = {}
        threading.Thread(target=self._listen, daemon=True).start()
        if init:
            self("N.nvmlInit()")

    def __call__(self, question: str, seconds: float = PATIENCE_S) -> Any:
        return self.start(question).result(seconds)

    def start(self, question: str) -> Future[Any]:
        """Asks and goes on; for calls that hang."""
        number, future = len(self._asked), Future()
        self._asked[number] = future
        self._child.stdin.write(json.dumps([number, question]) + "\n")
        self._child.stdin.flush()
        return future

    def wait(self) -> int:
        """Its exit status, for a child that ends by itself."""
        return self._child.wait(PATIENCE_S)

    def close(self) -> None:
        """Ends it, whatever hangs in it."""
        self._child.kill()
        self._child.wait()
        self._child.stdin.close()
        self._child.stdout.close()

    def __enter__(self) -> Remote:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _listen(self) -> None:
        for line in self._child.stdout:
            number, said = json.loads(line)
            if "error" in said:
                self._asked[number].set_result(Refused(said["error"]))
            elif "failed" in said:
                self._asked[number].set_exception(RuntimeError(said["failed"]))
            else:
                self._asked[number].set_result(said["value"])
