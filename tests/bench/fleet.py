"""What the overview of a fleet costs: a scripted Prometheus with any number of hosts, eight GPUs each, on loopback."""

from __future__ import annotations

import argparse
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler
from statistics import median, quantiles

from tests.bench.measure import rss_mb
from tests.fleet.scripted import ScriptedPrometheus, names, send
from tests.pty_programs import Terminal

_STARTED_S = 4.0  # until the screen waits for its first answer


class LateAnswers:
    """The first findings, which complete the first answer, are held until they are let go."""

    def __init__(self, server: ScriptedPrometheus) -> None:
        self._server, self.go, self.sent_s = server, threading.Event(), 0.0

    def act(self, handler: BaseHTTPRequestHandler) -> None:
        """Answer as the server would; of the first findings, late."""
        asked = self._server.asked[-1]
        made = self._server._answer(asked.path, asked.form)
        if asked.form["query"].startswith("{__name__") and not self.sent_s:
            self.go.wait(60)
            self._server.act = None
            send(handler, 200, made)
            self.sent_s = time.monotonic()
        else:
            send(handler, 200, made)


def first_paint_s(server: ScriptedPrometheus, command: list[str]) -> tuple[float, float]:
    """Seconds to the first lines: from the start, with answers at once; and from an answer that came late."""
    began = time.monotonic()
    with Terminal(command, size=(120, 40)) as terminal:
        terminal.wait_for(" dgx-0", 60)
        start_s = time.monotonic() - began
    late = LateAnswers(server)
    server.act = late.act
    with Terminal(command, size=(120, 40)) as terminal:
        terminal.wait_for("asking Prometheus", 60)
        time.sleep(_STARTED_S)
        late.go.set()
        terminal.wait_for(" dgx-0", 60)
        return start_s, time.monotonic() - late.sent_s


def main() -> None:
    """Print the first paint, CPU, memory, and how soon a key is answered."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--hosts", type=int, default=125)
    options.add_argument("--settle", type=float, default=30)
    options.add_argument("--seconds", type=float, default=60)
    options.add_argument("--rounds", type=int, default=3)
    args = options.parse_args()
    with ScriptedPrometheus(names(args.hosts), at_s=time.time()) as server:
        command = [sys.executable, "-m", "gputop", "fleet", "--prometheus", server.url]
        paints = [first_paint_s(server, command) for _ in range(args.rounds)]
        with Terminal(command, size=(120, 40)) as terminal:
            terminal.wait_for(" dgx-0", 60)
            time.sleep(args.settle)
            own, began = terminal.cpu_s(), time.monotonic()
            time.sleep(args.seconds)
            percent = 100 * (terminal.cpu_s() - own) / (time.monotonic() - began)
            memory_mb = rss_mb(terminal.pid)
            delays = [_key_s(terminal, number) for number in range(20)]
            terminal.send("q")
            terminal.wait_exit()
        size_kb = sum(map(len, server._made.values())) / 1024
    print(
        f"{args.hosts} hosts, {8 * args.hosts} GPUs, polled every 10 s: {percent:.2f} % of a core, {memory_mb:.0f} MB"
    )
    print(f"first lines {median(start for start, _ in paints):.2f} s after the start with answers at once,", end=" ")
    print(f"{median(late for _, late in paints):.3f} s after an answer that came late (medians of {args.rounds})")
    print(f"key p95 {1000 * quantiles(delays, n=20)[-1]:.0f} ms; all distinct answers together {size_kb:.0f} kB")


def _key_s(terminal: Terminal, number: int) -> float:
    """Seconds until a move of the cursor is on the screen: the title of the details says which host it is on."""
    before, began = terminal.screen(), time.monotonic()
    terminal.send("down" if number % 2 == 0 else "up")
    rule = next(line for line in before if line.startswith("─ dgx"))
    while any(line == rule for line in terminal.screen()):
        time.sleep(0.002)
        if time.monotonic() - began > 10:
            raise AssertionError("the key has no effect")
    return time.monotonic() - began


if __name__ == "__main__":
    main()
