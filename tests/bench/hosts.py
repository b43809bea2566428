"""What it costs to watch many hosts: each is simulated by a pipe in place of ssh, fed with one frame a second."""

from __future__ import annotations

import argparse
import os
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import quantiles

from tests.bench.measure import cpu_s, rss_mb
from tests.pty_programs import Terminal

_FEEDER = """
import os, sys, time
folder, count = sys.argv[1], int(sys.argv[2])
lines = open(f"{folder}/frames", "rb").read().splitlines(keepends=True)
pipes = []
for n in range(1, count + 1):  # a reader opens each when its turn comes
    pipes.append(os.open(f"{folder}/sim{n:02}", os.O_WRONLY))
    os.write(pipes[-1], lines[0])
due = time.monotonic()
for line in lines[1:]:
    for pipe in pipes:
        view = memoryview(line)
        while view:
            view = view[os.write(pipe, view):]
    due += 1
    time.sleep(max(0, due - time.monotonic()))
"""


def simulate(folder: Path, count: int, scenario: str, seconds: int) -> subprocess.Popen[bytes]:
    """Pipes for so many hosts, and what feeds them: the frames of a demo from its onset on."""
    record = [sys.executable, "-m", "gputop", "record", "-", "--source", f"demo:{scenario}", "--for", f"{seconds}s"]
    (folder / "frames").write_bytes(subprocess.run(record, check=True, capture_output=True).stdout)
    for number in range(1, count + 1):
        os.mkfifo(folder / f"sim{number:02}")
    ssh = folder / "ssh"
    # the name stands between `--` and the command
    ssh.write_text(f'#!/bin/sh\nwhile [ "$1" != "--" ]; do shift; done\nexec cat {folder}/"$2"\n')
    ssh.chmod(stat.S_IRWXU)
    return subprocess.Popen([sys.executable, "-c", _FEEDER, str(folder), str(count)])


def main() -> None:
    """Print CPU, memory, and how soon a key is answered."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--hosts", type=int, default=64)
    options.add_argument("--scenario", default="showcase")
    options.add_argument("--settle", type=float, default=60)
    options.add_argument("--seconds", type=float, default=30)
    args = options.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        feeder = simulate(folder, args.hosts, args.scenario, int(args.settle + args.seconds) + 60)
        env = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
        command = [sys.executable, "-m", "gputop", "--host", f"sim[01-{args.hosts:02}]"]
        try:
            with Terminal(command, size=(120, 40), env=env) as terminal:
                terminal.wait_for(f"{args.hosts} live", 60)
                time.sleep(args.settle)
                before, own, began = cpu_s(terminal.pid), terminal.cpu_s(), time.monotonic()
                time.sleep(args.seconds)
                passed_s = time.monotonic() - began
                percent = 100 * (cpu_s(terminal.pid) - before) / passed_s
                own_percent = 100 * (terminal.cpu_s() - own) / passed_s
                delays = [_key_s(terminal, number) for number in range(20)]
                print(f"{args.hosts} hosts at 1 Hz, {args.scenario}: {own_percent:.1f} % of a core", end=" ")
                print(f"({percent:.1f} % with what stands for ssh), {rss_mb(terminal.pid):.0f} MB,", end=" ")
                print(f"key p95 {1000 * quantiles(delays, n=20)[-1]:.0f} ms")
                terminal.send("q")
                terminal.wait_exit()
        finally:
            feeder.kill()
            feeder.wait()


def _key_s(terminal: Terminal, number: int) -> float:
    """Seconds until a move of the cursor is on the screen: the title of the details says which host it is on."""
    before, began = terminal.screen(), time.monotonic()
    terminal.send("down" if number % 2 == 0 else "up")
    rule = next(line for line in before if line.startswith("─ sim"))
    while any(line == rule for line in terminal.screen()):
        time.sleep(0.002)
        assert time.monotonic() - began < 10, "the key has no effect"
    return time.monotonic() - began


if __name__ == "__main__":
    main()
