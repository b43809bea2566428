"""gputop diagnose as a person runs it, on recordings of a machine made up by hand."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from tests.rule_cases import Machine

FEW = Machine(
    gpu={"busy_percent": 55.0},
    trainer={"cpu_percent": 20.0, "main_thread_percent": 20.0},
    loader={"cpu_percent": 97.0},
    loaders=2,
)
Recorded = Callable[..., str]


def diagnose(*args: str, **how: Any) -> subprocess.CompletedProcess[str]:
    return gputop("diagnose", *args, **how)


def gputop(*args: str, **how: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gputop", *args]
    env = {**os.environ, "TZ": "UTC", "PYTHONUTF8": "1"}
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=env, **how)
