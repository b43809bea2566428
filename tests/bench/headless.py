"""What a recording without a screen costs: CPU, memory, room on the disk."""

from __future__ import annotations

import os
import subprocess
import time
from typing import NamedTuple

from tests.bench.measure import GPUTOP, cpu_s, environment, rss_mb
from tests.fakenvml import Fake


class Recorded(NamedTuple):
    """CPU in percent of one core, memory in MB, what the packed file grows by in MB an hour."""

    cpu_percent: float
    rss_mb: float
    mb_per_hour: float


def recording(fake: Fake, seconds: float, settle_s: float = 16.0) -> Recorded:
    """`gputop record` to a packed file, once a second."""
    path = fake.folder / "bench.jsonl.gz"
    env = {name: value for name, value in {**os.environ, **environment(fake)}.items() if value is not None}
    with subprocess.Popen([*GPUTOP.argv, "record", str(path)], env=env, stdout=subprocess.DEVNULL) as process:
        try:
            time.sleep(settle_s)
            cpu, size, began = cpu_s(process.pid), path.stat().st_size, time.monotonic()
            time.sleep(seconds)
            took_s = time.monotonic() - began
            grown = path.stat().st_size - size
            return Recorded(100 * (cpu_s(process.pid) - cpu) / took_s, rss_mb(process.pid), grown / took_s * 3.6e-3)
        finally:
            process.terminate()
