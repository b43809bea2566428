"""Looking inside real jobs by keys, on a real terminal: stacks, a profile, a trace, and what the advice says then."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gputop.safe import ptrace_access
from tests import planted_jobs
from tests.fakenvml import Fake
from tests.pty_programs import Terminal
from tests.real_processes import program, unharmed, until
from tests.traced_jobs import environment, scratch

ARGV = (sys.executable, "-m", "gputop", "--interval", "0.5")
VRAM = 70 << 30  # more than anything else on this machine: sorted by it, it is the first line
WAITS = "print(flush=True); signal.pause()"


@contextmanager
def monitor(fake: Fake, pid: int, folder: str, *flags: str, size: tuple[int, int] = (120, 40)) -> Iterator[Terminal]:
    """gputop, with the cursor on this process and on no other."""
    fake.add_process(gpu=2, pid=pid, vram_bytes=VRAM, sm=57)
    places = {"XDG_STATE_HOME": f"{folder}/state", "XDG_CONFIG_HOME": folder, "GPUTOP_RUNTIME_DIR": f"{folder}/run"}
    with Terminal([*ARGV, *flags], size=size, env=fake.env(**places)) as terminal:
        terminal.wait_for("live")
        terminal.send("V", "f5", "home")
        terminal.wait_for(" flat · VRAM")
        terminal.wait_for("70.0G", 20)
        yield terminal


def asks(terminal: Terminal, pid: int, key: str, picked: str) -> None:
    """The dialog is about our process; if not, nothing more is pressed."""
    terminal.send(key)
    terminal.wait_for(f"of    {pid}  ")
    terminal.wait_for(f"(•) {picked}")


def back(terminal: Terminal) -> None:
    """To the main screen."""
    terminal.send("escape")
    terminal.wait_for(" flat · VRAM")


def waits_for_a_loader(terminal: Terminal) -> bool:
    """Whether the stacks on the screen show it; else they are taken again, as a step may just be computed."""
    terminal.wait_for("The main thread ")
    terminal.wait_quiet()
    if "_try_get_data" in terminal.text():
        return True
    terminal.send("R")
    return False


def profiles(folder: str) -> list[str]:
    where = Path(folder, "state/gputop/profiles")
    return sorted(os.listdir(where)) if where.exists() else []


def spies() -> list[int]:
    """Every py-spy that runs below this process."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if Path(f"/proc/{name}/comm").read_text().strip() == "py-spy":
                found.append(int(name))
        except OSError:
            continue
    return found


@pytest.mark.jobs
@planted_jobs.by_turns
def test_a_plain_job_is_looked_into_and_goes_on(fake: Fake, tmp_path: Path) -> None:
    with (
        scratch() as folder,
        planted_jobs.job(tmp_path, 4, sleeps=True) as job,
        program(WAITS) as (other, _),
        monitor(fake, job.pid, folder) as terminal,
    ):
        terminal.send("s")
        until(lambda: waits_for_a_loader(terminal), 60)
        back(terminal)

        asks(terminal, job.pid, "t", "torch.profiler")
        terminal.wait_for("it has no agent")
        terminal.wait_for(f"gputop run -- {sys.executable}")
        terminal.send("y")
        terminal.wait_for("copied: gputop run -- ")

        terminal.send("p")
        terminal.wait_for("(•) py-spy record")
        terminal.wait_for("[x] its 4 workers")
        # whatever becomes of its row: it was meant when the dialog opened
        fake.remove_process(job.pid)
        fake.add_process(gpu=3, pid=other, vram_bytes=VRAM, sm=57)
        terminal.wait_for(lambda lines: any(f" {other} " in line for line in lines))
        terminal.send("enter")
        terminal.wait_for(lambda lines: re.search(r" [3-9]\.\d of 10 s", "\n".join(lines)) is not None, 30)
        terminal.send("escape")
        terminal.wait_for("Keep partial result")
        terminal.send("enter")
        # what the loaders do is told by its name
        terminal.wait_for("top function burn (train_planted.py)", 20)
        assert unharmed(other)
        assert len(profiles(folder)) == 1
        assert profiles(folder)[0].endswith(f"-{job.pid}")
        back(terminal)

        fake.remove_process(other)
        fake.add_process(gpu=2, pid=job.pid, vram_bytes=VRAM, sm=57)
        terminal.wait_for(lambda lines: [line.split()[0] for line in lines if "70.0G" in line] == [str(job.pid)])
        terminal.send("home")
        asks(terminal, job.pid, "p", "py-spy record")
        terminal.wait_for("Older: 1")
        terminal.wait_for("measured on this process before:")
        terminal.send("h")
        terminal.wait_for("Enter opens   Esc goes back")
        terminal.send("enter")
        terminal.wait_for("top function burn (train_planted.py)")
        back(terminal)

        asks(terminal, job.pid, "p", "py-spy record")
        terminal.send("enter")
        terminal.wait_for("of 10 s")
        until(spies)
        terminal.send("q")
        assert terminal.wait_exit() == 0
        until(lambda: not spies(), 3)
        assert len(profiles(folder)) == 1, "nothing is left behind"
        assert ptrace_access.tracer(job.pid) is None
        before = job.steps
        until(lambda: job.steps > before + 3)


SITE = """
[engine]
warm_s = 5

[starved-cpu-idle]
window_s = 4
on_s = 1
loader_cpu = 0
saturation = 100
blocked = 1
io_percent = 100
"""


@pytest.mark.jobs
@planted_jobs.by_turns
def test_a_prepared_job_is_traced_and_the_advice_names_the_trace(fake: Fake, tmp_path: Path) -> None:
    with scratch() as folder, planted_jobs.job(tmp_path, 4, sleeps=True, env=environment(folder)) as job:
        site, settings = Path(folder, "site.toml"), Path(folder, "settings.toml")
        site.write_text(SITE)
        settings.write_text(f'thresholds = "{site}"\n')
        for path in (site, settings):
            path.chmod(0o600)
        with monitor(fake, job.pid, folder, "--config", str(settings)) as terminal:
            asks(terminal, job.pid, "t", "torch.profiler")
            terminal.send("enter")
            terminal.wait_for("dataloader-bound", 20)
            back(terminal)
            terminal.send("a")
            terminal.wait_for("trace: ", 60)
            job_ended_meanwhile(terminal, job, folder)


def job_ended_meanwhile(terminal: Terminal, job: planted_jobs.Job, folder: str) -> None:
    """Its end in the middle is told in one line, which stays until a key; what there was is kept."""
    back(terminal)  # the keys are about the finding still, and so about the job
    asks(terminal, job.pid, "p", "py-spy record")
    terminal.send("enter")
    terminal.wait_for(lambda lines: re.search(r" [3-9]\.\d of 10 s", "\n".join(lines)) is not None, 30)
    os.kill(job.pid, signal.SIGKILL)
    terminal.wait_for("Report", 20)
    terminal.send("6", "end")
    terminal.wait_for("the process exited during the profile")


def test_a03_read_only_takes_stacks_and_nothing_else(fake: Fake) -> None:
    with scratch() as folder, program(WAITS) as (pid, _), monitor(fake, pid, folder, "--readonly") as terminal:
        asks(terminal, pid, "p", "py-spy record")
        terminal.wait_for("gputop was started with --readonly")
        terminal.send("enter", "s")
        terminal.wait_for("(•) py-spy dump")
        terminal.send("enter")
        terminal.wait_for("<module>")
        assert not Path(folder, "state").exists()
        assert unharmed(pid)
