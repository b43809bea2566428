"""The real monitor on a real pty under a driver that is absent, late, lost, hung or lying."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests import hostile
from tests.fakenvml import Fake
from tests.oracle import oracle
from tests.pty_programs import Terminal

pytestmark = pytest.mark.waits

ARGV = (sys.executable, "-m", "gputop", "--interval", "0.5")


@contextmanager
def monitor(fake: Fake, *, size: tuple[int, int] = (120, 40), ready: str = "Quit") -> Iterator[Terminal]:
    """The monitor under a fake driver; it must still quit within a second when the test is done with it."""
    with Terminal(ARGV, size=size, env=fake.env()) as terminal:
        terminal.wait_for(ready, 20)
        yield terminal
        assert terminal.process.poll() is None
        terminal.send("q")
        assert terminal.wait_exit(1.5) == 0
        assert oracle(bytes(terminal.output)) == []


def row(terminal: Terminal, index: int) -> str:
    """The line of one GPU."""
    return next((line for line in terminal.screen()[1:14] if line.split()[:1] == [str(index)]), "")


def test_n01_no_library_shows_processes_and_what_to_do(tmp_path: Path, fake: Fake) -> None:
    (tmp_path / "libnvidia-ml.so.1").write_bytes(b"")
    with Terminal(ARGV, env={"LD_LIBRARY_PATH": str(tmp_path)}) as terminal:
        terminal.wait_for("No NVIDIA GPU found", 20)
        terminal.wait_for("gputop demo")
        terminal.wait_for("Processes and host are shown below")
        terminal.send("q")
        assert terminal.wait_exit(1.5) == 0


@pytest.mark.parametrize(("code", "says"), [(9, "modprobe nvidia"), (999, "restart the container")], ids=str)
def test_n02_n03_a_driver_that_does_not_start_is_tried_again(fake: Fake, code: int, says: str) -> None:
    fake.fail("nvmlInit*", code)
    with monitor(fake) as terminal:
        terminal.wait_for(says)
        fake.release("fail", "nvmlInit*")
        terminal.wait_for(lambda _: "busy" in row(terminal, 7), 15)


def test_n04_a_container_that_loses_access_keeps_its_last_values(fake: Fake) -> None:
    with monitor(fake) as terminal:
        terminal.wait_for(lambda _: "busy" in row(terminal, 0))
        fake.fail("*", 999)
        terminal.wait_for(lambda _: "lost" in row(terminal, 0) or "old" in row(terminal, 0), 15)
        assert "58%" in row(terminal, 0)


def test_n05_no_gpu_is_said(fake: Fake) -> None:
    fake.set("gpus", 0)
    with monitor(fake) as terminal:
        terminal.wait_for("0 GPUs")
        terminal.wait_for("jobs and processes")


def test_n06_n07_n08_a_gpu_that_is_lost_costs_its_row_only_and_comes_back(fake: Fake) -> None:
    fake.fail("*", 15, gpu=0)
    with monitor(fake) as terminal:
        terminal.wait_for(lambda _: "lost" in row(terminal, 0) and "busy" in row(terminal, 1))
        fake.fail("*", 15, gpu=5)
        terminal.wait_for(lambda _: "lost" in row(terminal, 5) and "busy" in row(terminal, 6))
        fake.release("fail", "*", gpu=0)
        fake.release("fail", "*", gpu=5)
        terminal.wait_for(lambda _: "busy" in row(terminal, 0) and "busy" in row(terminal, 5), 15)


def test_n09_t15_a_call_that_hangs_leaves_the_rest_alive(fake: Fake) -> None:
    with monitor(fake) as terminal:
        terminal.wait_for(lambda _: "busy" in row(terminal, 3))
        fake.wait_for("nvmlEventSetWait_v2")  # the thread for Xids has told the driver of every GPU
        fake.hang("*", gpu=3)
        terminal.wait_for(lambda _: "hung" in row(terminal, 3), 15)
        fake.set("gpu.7.util", 11)
        terminal.wait_for(lambda _: "11%" in row(terminal, 7), 10)
        assert fake.counts()["hanging"] == 1
        pressed = time.monotonic()
        terminal.send("h")
        terminal.wait_for("MOVE", 2)
        assert time.monotonic() - pressed < 1
        terminal.send("escape")
        terminal.wait_for(lambda _: "hung" in row(terminal, 3))


def test_n10_init_that_hangs_shows_everything_else(fake: Fake) -> None:
    fake.hang("nvmlInit*")
    with monitor(fake) as terminal:
        terminal.wait_for("waiting for", 10)
        terminal.wait_for("jobs and processes")


def test_n12_a_slow_driver_is_asked_less_often(fake: Fake) -> None:
    fake.fault("delay_us", "*", 10_000)
    with monitor(fake) as terminal:
        terminal.wait_for("sampling", 60)


def test_n13_n14_n15_n16_what_is_not_known_is_a_dot(fake: Fake) -> None:
    fake.update({"gpu.0.power_mw": None, "gpu.0.temperature": None, "gpu.1.util": 4294967295})
    with monitor(fake) as terminal:
        terminal.wait_for(lambda _: "·" in row(terminal, 0) and "busy" in row(terminal, 2))
        assert "4294967295" not in terminal.text()


def test_n22_a_hostile_gpu_name_is_drawn_harmless(fake: Fake) -> None:
    names = (b"\xff\xfe evil \x1b[2J", b"", b"[/foo] [@click=app.quit]x[/]", b"N" * 90)
    fake.update({"gpus": len(names), **{f"gpu.{index}.name": name for index, name in enumerate(names)}})
    with monitor(fake) as terminal:
        four = "│ +0 .*│ +1 .*│ +2 .*│ +3 "
        # each has its card, with its values in their places
        terminal.wait_for(
            lambda lines: re.search(four, "".join(f"│{line}" for line in lines if "MHz" in line)) is not None
        )
        assert terminal.text().count("busy ") >= len(names)


def test_n24_gpus_come_and_go(fake: Fake) -> None:
    with monitor(fake) as terminal:
        terminal.wait_for(lambda _: "busy" in row(terminal, 7))
        fake.set("gpus", 7)
        terminal.wait_for(lambda _: "busy" not in row(terminal, 7), 20)
        fake.set("gpus", 8)
        terminal.wait_for(lambda _: "busy" in row(terminal, 7), 20)


def test_n26_n28_p02_hostile_and_dead_processes_on_a_gpu(fake: Fake) -> None:
    dead = subprocess.Popen(["true"])
    dead.wait()
    fake.add_process(gpu=0, pid=dead.pid, vram_bytes=1 << 30)
    fake.add_process(gpu=0, pid=0, vram_bytes=1 << 30)
    living = []
    for number, text in enumerate(text for text in hostile.STRINGS if "\0" not in text and len(text) < 5000):
        raw = text.encode("utf-8", "surrogatepass")
        living.append(subprocess.Popen([raw or b" ", "60"], executable="/bin/sleep"))
        fake.add_process(gpu=number % 8, pid=living[-1].pid, vram_bytes=number << 20)
    try:
        with monitor(fake, size=(200, 90)) as terminal:
            terminal.send("V", "home")  # these two hold most
            terminal.wait_for("host PID 0")
            terminal.wait_for("exited (driver still lists)")
            for key in ("f5", "end", "home", "f5", "*", "g", "g"):
                terminal.send(key)
                terminal.wait_quiet(0.2)
    finally:
        for process in living:
            process.kill()
            process.wait()
