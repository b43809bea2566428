"""A wall clock that jumps moves no rate: the real reader under a shifted clock."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <sys/time.h>
static long shift(void) {
    long seconds = 0;
    FILE *file = fopen(getenv("SHIFT_FILE"), "r");
    if (file) { if (fscanf(file, "%ld", &seconds) != 1) seconds = 0; fclose(file); }
    return seconds;
}
int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int rc = real(clock, now);
    if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) now->tv_sec += shift();
    return rc;
}
"""
PROGRAM = """
import dataclasses, json, os, time
from gputop.collect.host.reader import HostReader
reader, looks = HostReader(), []
for seconds in (0, 0, 3600, -3600, -int(time.time())):
    with open(os.environ["SHIFT_FILE"], "w") as file:
        file.write(str(seconds))
    host = reader.read()
    pressure = dataclasses.asdict(host.cpu_pressure) if host.cpu_pressure else {}
    looks.append((time.time(), host.uptime_s, host.cpu_percent, host.receive_bytes_per_s, pressure.get("some_percent")))
    time.sleep(0.2)
print(json.dumps(looks))
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="not covered: needs a C compiler (cc) for the clock")
def test_p14_a_wall_clock_that_jumps_moves_no_rate(tmp_path: Path) -> None:
    (tmp_path / "shim.c").write_text(SHIM)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", "shim.so", "shim.c", "-ldl"], cwd=tmp_path, check=True)
    environment = {**os.environ, "LD_PRELOAD": f"{tmp_path}/shim.so", "SHIFT_FILE": f"{tmp_path}/shift"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    looks = json.loads(done.stdout)
    walls = [look[0] for look in looks]
    assert walls[2] - walls[1] == pytest.approx(3600, abs=60)  # the shim works
    assert walls[4] < 86400  # 1970
    for (_, before, *_), (_, uptime, cpu, received, stalled) in pairwise(looks):
        assert 0 < uptime - before < 60
        assert cpu is None or 0 <= cpu <= 100
        assert received is None or received >= 0
        assert stalled is None or 0 <= stalled <= 100
    assert sum(cpu is not None for _, _, cpu, *_ in looks) >= 2  # and rates there are
