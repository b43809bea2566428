"""Recorders that are killed: forked, so that two hundred of them take seconds. Each line says how far one came.

python -m tests.record_child PATH KILLS SEED [again]: PATH may hold {} for the number of the kill; a file is gone on
with otherwise. A line is the number of frames that were in the file when the recorder said so last.
"""

from __future__ import annotations

import mmap
import os
import random
import signal
import struct
import sys
import time

from gputop.demo import SCENARIOS, Demo
from gputop.model import Frame
from gputop.monitor import Update
from gputop.record.recorder import Recorder

ANCHOR_S = 1_795_185_127.0
FRAMES = 400


def frames(count: int = FRAMES, name: str = "healthy") -> list[Frame]:
    """What every child records, from the first on."""
    demo = Demo(SCENARIOS[name], pace=False, anchor_s=ANCHOR_S)
    some = [demo.frame(demo.at_s + second) for second in range(8)]
    return [_later(some[number % 8], number - number % 8) for number in range(count)]


def _later(frame: Frame, seconds: int) -> Frame:
    from dataclasses import replace

    return replace(frame, wall_s=frame.wall_s + seconds, mono_s=frame.mono_s + seconds)


def _record(path: str, taken: list[Frame], shared: mmap.mmap) -> None:
    recorder = Recorder(path)
    for number, frame in enumerate(taken, 1):
        recorder.take(Update(frame=frame))
        while recorder.frames < number:
            time.sleep(0)
        shared[:8] = struct.pack("q", number)
    os._exit(0)


def _written(shared: mmap.mmap) -> int:
    return int(struct.unpack("q", shared[:8])[0])


def main() -> None:
    """Fork, wait a moment, kill, report; again."""
    path, kills, chance = sys.argv[1], int(sys.argv[2]), random.Random(int(sys.argv[3]))
    taken = frames()
    for number in range(kills):
        shared = mmap.mmap(-1, 8)
        pid = os.fork()
        if pid == 0:
            try:
                _record(path.format(number), taken, shared)
            finally:
                os._exit(1)
        # so many frames on, then anywhere within the next: a busy machine kills at the same places
        far = chance.randrange(16)
        while _written(shared) < far:
            time.sleep(0.0005)
        time.sleep(chance.uniform(0, 0.005))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        print(_written(shared), flush=True)


if __name__ == "__main__":
    main()
