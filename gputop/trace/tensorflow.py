"""Traces of TensorFlow and JAX, converted to Kineto's events where both have equivalents.

Their events have no category: only process and thread names identify them. If these come after the events, the file is
read again.
"""

from __future__ import annotations

import re
from typing import Any

from gputop.trace.gpu import MOST_DEVICES

_GPU = re.compile(r"/device:GPU:(\d{1,4})\b")
_HOST = "/host:CPU"
_STREAM = re.compile(r"Stream #(\d{1,5})\b")
_STEPS = "Steps"
_COPY = re.compile(r"(Mem(?:cpy|set)) ?([HDP])?(?:to|2)?([HDP])?")
_BYTES = re.compile(r"\bsize:(\d{1,15})\b")
_NUMBER = re.compile(r"(\d{1,9})$")
_MOST_THREADS = 10_000
STEP = "TensorFlow step"


class Planes:
    """The GPU, stream or host of each process and thread of a trace; empty for a torch trace."""

    def __init__(self) -> None:
        self.gpus: dict[Any, int] = {}  # by pid
        self._hosts: set[Any] = set()
        self._threads: dict[tuple[Any, Any], int] = {}  # the stream by pid and tid; -1 is the row of steps
        self._names: dict[tuple[Any, Any], str] = {}  # of threads
        self._steps = 0

    def __bool__(self) -> bool:
        return bool(self.gpus)

    def name(self, event: dict[str, Any]) -> None:
        """Record the name of a process or thread."""
        text, pid = str(event["args"]["name"]), event.get("pid")
        if event["name"] == "process_name":
            if (found := _GPU.match(text)) and int(found[1]) < MOST_DEVICES and len(self.gpus) < MOST_DEVICES:
                self.gpus[pid] = int(found[1])
            elif text.startswith(_HOST):
                self._hosts.add(pid)
            for (of, tid), named in self._names.items():
                if of == pid:
                    self._thread(pid, tid, named)
        elif len(self._names) < _MOST_THREADS:
            self._names[pid, event.get("tid")] = text
            self._thread(pid, event.get("tid"), text)

    def restart(self) -> None:
        """Prepare for another pass: all names are known."""
        self._steps = 0

    def _thread(self, pid: Any, tid: Any, text: str) -> None:
        if pid not in self.gpus:
            return
        if found := _STREAM.match(text):
            self._threads[pid, tid] = int(found[1])
        elif text == _STEPS:
            self._threads[pid, tid] = -1

    def converted(self, event: dict[str, Any]) -> dict[str, Any] | None:
        """An event in Kineto's form; None for duplicates and unknown ones."""
        pid = event.get("pid")
        if pid in self._hosts:
            return self._call(event)
        stream = self._threads.get((pid, event.get("tid")))
        if stream is None:
            return None
        return self._step(event) if stream < 0 else self._activity(event, self.gpus[pid], stream)

    def _activity(self, event: dict[str, Any], gpu: int, stream: int) -> dict[str, Any]:
        """A kernel, copy or memset."""
        name, args = event["name"], event.get("args") or {}
        known: dict[str, Any] = {"device": gpu, "stream": stream, "correlation": _id(args)}
        cat = "kernel"
        if copy := _COPY.match(name):
            cat = "gpu_memset" if copy[1] == "Memset" else "gpu_memcpy"
            name = f"{copy[1]} {copy[2]}to{copy[3]}" if copy[2] and copy[3] else copy[1]
            if size := _BYTES.search(str(args.get("memcpy_details", ""))):
                known["bytes"] = int(size[1])
        return {**event, "cat": cat, "name": name, "args": known}

    def _call(self, event: dict[str, Any]) -> dict[str, Any]:
        """A CPU span; a launch has the name of what it launches."""
        args = event.get("args") or {}
        if "correlation_id" not in args:
            return {**event, "cat": "cpu_op", "args": {}}
        name = "cudaMemcpyAsync" if _COPY.match(event["name"]) else "cudaLaunchKernel"
        return {**event, "cat": "cuda_runtime", "name": name, "args": {"correlation": _id(args)}}

    def _step(self, event: dict[str, Any]) -> dict[str, Any]:
        """A step, as the GPU saw it."""
        found = _NUMBER.search(event["name"])
        self._steps += 1
        number = found[1] if found else self._steps
        return {**event, "cat": "user_annotation", "name": f"{STEP}#{number}", "args": {}}


def _id(args: dict[str, Any]) -> int:
    """The id shared by a launch and its kernel; 0 is none."""
    text = str(args.get("correlation_id", ""))
    return int(text) if text.isdecimal() and len(text) < 16 else 0
