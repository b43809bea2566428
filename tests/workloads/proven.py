"""Real scripts with a planted fault, run twice: as they are, and with the value that the finding says.

`python -m tests.workloads.proven [NAME ...]` plays all of them, or those whose names have one of these parts, in three
to five minutes each, and prints what `gputop diagnose` says at the second run.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gputop.cli import run
from tests.fakenvml import Fake
from tests.workloads.cases import CASES, Case
from tests.workloads.command import ROOT
from tests.workloads.stage import Play, ready, start

FOUND_S, PROVEN_S, RUN_S = 75, 90, 600.0
THREADS = 4  # that each of four experiments has at first


@dataclass(frozen=True)
class Script:
    """One of them: where its finding names the value, and how that is set."""

    case: str
    value: str  # pattern in a command of a step; its group is what is set
    options: str = ""
    variable: str = ""
    changed: str = ""  # as the line says it
    found_s: int = FOUND_S


SCRIPTS = (
    Script("loader in the training process", r"num_workers=(\d+)", "--num-workers {}", changed="num_workers 0 →"),
    Script("too few workers", r"num_workers=(\d+)", "--num-workers {}", changed="num_workers 1 →"),
    Script(
        "workers start anew each epoch", r"(persistent_workers)=True", "--persistent-workers",
        changed="persistent-workers off → on", found_s=120,
    ),
    Script("slow samples hold up the rest", r"(in_order)=False", "--any-order", changed="any-order off → on"),
    Script(
        "a picture and .item() each step", r"if step % (\d+) == 0", "--image-every {}",
        changed="image-every 1 → 50", found_s=120,
    ),
    Script(
        "training waits for its checkpoints", r"(async_save)\(", "--checkpoint-aside",
        changed="checkpoint-aside off → on", found_s=170,
    ),
    Script(
        "threads of four experiments", r"OMP_NUM_THREADS=(\d+)", variable="OMP_NUM_THREADS",
        changed=f"OMP_NUM_THREADS {THREADS} →",
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Seen:
    """What was said of both runs."""

    value: str
    before: dict[str, Any]
    after: dict[str, Any]
    proven: dict[str, Any]  # as `gputop proven --json` has it

    @property
    def line(self) -> str:
        """The line of the fix; what there was instead where there is none."""
        said = [one["text"] for one in self.after["proven"]]
        waiting = [one["text"] for one in self.proven["fixes"]]
        return said[0] if said else f"not proven: {[one['why'] for one in self.after['jobs']]}, kept: {waiting}"


def play(script: Script) -> Seen:
    """Both runs, one after the other, on the same GPUs of a fake driver."""
    (case,) = [case for case in CASES if case.name == script.case]
    with tempfile.TemporaryDirectory(prefix="proven-") as name:
        folder = Path(name)
        fake = Fake(folder / "driver", gpus=case.gpus)
        accounts = {gpu: fake.lend(gpu) for gpu in range(case.gpus)}
        first = {script.variable: str(THREADS)} if script.variable else {}
        before = _diagnosed(replace(case, faulty_environment=first), script.found_s, folder, fake, accounts)
        value = _value(script, before)
        options = script.options.format(value) if script.options else case.faulty
        then = {script.variable: value} if script.variable else {}
        fixed = replace(case, faulty=options, faulty_environment=then)
        after = _diagnosed(fixed, PROVEN_S, folder, fake, accounts)
        told = _gputop(fake, folder, "proven", "--json")
    return Seen(value, before, after, told)


def _value(script: Script, said: dict[str, Any]) -> str:
    commands = [step["command"] or "" for one in said["findings"] for step in one["steps"]]
    found = [match[1] for command in commands if (match := re.search(script.value, command))]
    states = [one["headline"] for one in said["findings"]] + [one["why"] for one in said["jobs"]]
    assert found, f"no step says {script.value}: {states}"
    return found[0]


def _diagnosed(case: Case, seconds: int, folder: Path, fake: Fake, accounts: dict[int, Path]) -> dict[str, Any]:
    """What `gputop diagnose` says of a run that is started as `gputop run` does it."""
    shutil.rmtree(folder / f"data-{min(accounts)}", ignore_errors=True)
    with ExitStack() as stack:
        metered = replace(case, environment={**case.environment, **run.agent_settings(os.environ)})
        ready(start(Play(metered), RUN_S, folder, accounts, stack))
        return _gputop(fake, folder, "diagnose", "--for", f"{seconds}s", "--json")


def _gputop(fake: Fake, folder: Path, *args: str) -> dict[str, Any]:
    env = fake.env(XDG_STATE_HOME=str(folder / "state"))
    command = [sys.executable, "-m", "gputop", *args]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout, done.stderr
    return dict(json.loads(done.stdout))


def main() -> int:
    wanted = [one for one in SCRIPTS if not sys.argv[1:] or any(part in one.case for part in sys.argv[1:])]
    missing = 0
    for script in wanted:
        seen = play(script)
        missing += not seen.after["proven"]
        print(f"{script.case}: {script.value} gives {seen.value}\n  {seen.line}", flush=True)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
