"""`gputop diagnose` as a user gives it, and the object that it prints."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

from gputop.diagnose.finding import POSSIBLE
from gputop.finding_text import LEAST_S

ROOT = Path(__file__).parents[2]
PRIORITY = -10
LATE_S = 60.0  # that it may need beyond what it looks
JUDGING = 3  # where nothing worse was found
CODES = {"info": 0, "warn": 1, "crit": 2}


@dataclass(frozen=True)
class Diagnosed:
    """What it said, and how it ended."""

    code: int
    findings: Sequence[Mapping[str, Any]]  # those that are at least possible
    errors: str = ""
    judging: bool = False  # something that it saw, for too short a time

    @property
    def due_code(self) -> int:
        """The exit code that fits what it said of those."""
        worst = max((CODES[one["severity"]] for one in self.findings), default=0)
        return worst or (JUDGING if self.judging else 0)

    @property
    def primary(self) -> set[str]:
        """Rules that lead, with the causes folded into them."""
        return {rule for one in self.findings if one["primary"] for rule in (one["rule"], *one["causes"])}

    @property
    def named(self) -> set[str]:
        """All rules that say something."""
        return {rule for one in self.findings for rule in (one["rule"], *one["causes"])}

    @property
    def alarms(self) -> set[str]:
        """Those at warn or above."""
        return {one["rule"] for one in self.findings if one["severity"] != "info"}

    def about(self, gpus: Sequence[str]) -> Diagnosed:
        """What it said of these GPUs and who uses them."""
        mine = [one for one in self.findings if set(gpus) & set(one["subject"]["gpus"])]
        return Diagnosed(self.code, mine, self.errors, self.judging)


def put_first(pid: int) -> None:
    """Whoever else works on this machine shall not change what is measured, where that is permitted."""
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, pid, PRIORITY)
        Path(f"/proc/{pid}/autogroup").write_text(str(PRIORITY))


class Diagnosis:
    """A command that runs."""

    def __init__(self, environment: Mapping[str, str], *options: str) -> None:
        command = (sys.executable, "-m", "gputop", "diagnose", "--json", *options)
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=pipe, stderr=pipe, text=True, start_new_session=True
        )
        put_first(self._process.pid)

    def end(self, timeout_s: float) -> Diagnosed:
        """Waits for it; RuntimeError where it did not print what it promises."""
        printed, errors = self._process.communicate(timeout=timeout_s)
        try:
            said = json.loads(printed)
            findings = said["findings"]
        except ValueError:
            raise RuntimeError(f"gputop diagnose ended with {self._process.returncode}: {errors}") from None
        sure = [one for one in findings if one["confidence"] >= POSSIBLE]
        judging = any(one["state"] == "judging" for one in said["jobs"])
        return Diagnosed(self._process.returncode, sure, errors, judging)

    def kill(self) -> None:
        """Ends it, whatever it has still to do."""
        self._process.kill()
        self._process.communicate()


class Watch:
    """A live one beside what is played: it begins with the programs, as it has to look for longer than they need."""

    def __init__(self, least_s: float, configured: Path) -> None:
        """It looks for at least so many seconds while all of them train, with the settings of a user in that folder."""
        self._least_s, self._configured = least_s, configured
        self._running: Diagnosis | None = None
        self._began_s = 0.0
        self.said: Diagnosed | None = None

    @contextmanager
    def over(self, environment: Mapping[str, str]) -> Iterator[None]:
        """From before they get ready."""
        self._environment = {**environment, **_own(self._configured)}
        self._start()
        try:
            yield
        finally:
            self._running.kill()

    def ready(self) -> None:
        """All of them train. Where that took too long, it begins anew."""
        if monotonic() - self._began_s > LEAST_S - self._least_s:
            self._running.kill()
            self._start()

    def end(self) -> None:
        """Waits for what it says."""
        self.said = self._running.end(LEAST_S + LATE_S)

    def _start(self) -> None:
        self._began_s = monotonic()
        self._running = Diagnosis(self._environment, "--for", f"{LEAST_S:.0f}s")


def configured(folder: Path, limits: Mapping[str, Mapping[str, float]]) -> Path:
    """A folder for XDG_CONFIG_HOME in which a site's own numbers are set."""
    numbers = folder / "thresholds.toml"
    tables = (
        "\n".join((f"[{table}]", *(f"{name} = {value}" for name, value in of.items()))) for table, of in limits.items()
    )
    numbers.write_text("\n\n".join(tables) + "\n")
    settings = folder / "gputop" / "config.toml"
    settings.parent.mkdir(exist_ok=True)
    settings.write_text(f'thresholds = "{numbers}"\n')
    return folder


def of_recording(file: Path, home: Path) -> Diagnosed:
    """What it says of a recording, with no settings but its own."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("GPUTOP_")}
    return Diagnosis({**ours, **_own(home)}, "--source", str(file)).end(600)


def _own(folder: Path) -> dict[str, str]:
    """Where its settings are, and what it remembers of the jobs: nothing goes to whoever runs the tests."""
    return {"XDG_CONFIG_HOME": str(folder), "XDG_STATE_HOME": str(folder / "state")}
