"""The asking side of a load: a process of ours that works on the GPU while the driver is asked."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, TextIO

from gputop.cli import run
from gputop.safe.text import clean
from tests.gpu_check.records import Skip

START_S = 180.0  # importing torch from a cold network disk takes this long


class Load:
    """One process with torch; `run` changes what it does. Leaving the block ends it."""

    def __init__(self, python: str, uuid: str, errors: TextIO, environ: dict[str, str]) -> None:
        environ = {**os.environ, **run.agent_settings(os.environ), "CUDA_VISIBLE_DEVICES": uuid, **environ}
        path = Path(__file__).with_name("torchload.py")
        self._child = subprocess.Popen(
            [python, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=environ, text=True
        )
        self.pid = self._child.pid
        self._said: SimpleQueue[dict[str, Any]] = SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()
        self.hello = self._wait("hello")
        self.why_not: str | None = self.hello.get("why_not")

    def run(self, name: str) -> dict[str, Any]:
        """Do this from now on; returns when it is warm. Skip if it cannot."""
        self.steps()
        self._child.stdin.write(name + "\n")
        self._child.stdin.flush()
        return self._wait("ready", name)

    def steps(self) -> list[dict[str, Any]]:
        """What it reported since the last time: when, how long each step took, bytes a second it moved."""
        found = []
        while True:
            try:
                said = self._said.get_nowait()
            except Empty:
                return found
            if said["event"] == "steps":
                found.append(said)

    def close(self) -> None:
        """Ends it; it dies with its input, and at the latest when it is killed."""
        self._child.stdin.close()
        try:
            self._child.wait(10)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        self._child.stdout.close()

    def __enter__(self) -> Load:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _wait(self, event: str, name: str | None = None) -> dict[str, Any]:
        deadline = time.monotonic() + START_S
        while True:
            try:
                said = self._said.get(timeout=max(0.0, deadline - time.monotonic()))
            except Empty:
                raise Skip(f"the load {name or 'process'} did not start within {START_S:g} s") from None
            if said["event"] in ("failed", "ended") and said.get("load") in (name, None):
                raise Skip(f"the load {name or 'process'} failed: {clean(str(said['why']), 300)}")
            if said["event"] == event and said.get("load") == name:
                return said

    def _listen(self) -> None:
        try:
            for line in self._child.stdout:
                self._said.put(json.loads(line))
        except ValueError:
            pass  # closed, or not one of ours
        self._said.put({"event": "ended", "why": "it ended"})
