"""Item 11: what gputop leaves unknown on this machine, and the reason it gives."""

from __future__ import annotations

import json
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from gputop.model import Gpu, metrics
from tests.gpu_check.check import Check, last
from tests.gpu_check.records import Fact, Record, Verdict, measurement


@measurement("11", "What does `gputop --json` leave unknown here, and why?")
def unknown(check: Check) -> Iterator[Record]:
    """One frame of a fresh start, in which everything was read."""
    start_s = time.monotonic()
    done = check.program(sys.executable, "-m", "gputop", "--json", "--gpm", "on")
    spent_s = time.monotonic() - start_s
    check.folder.text("gputop.json", done.stdout)
    if done.returncode:
        raise RuntimeError(f"gputop --json ended with {done.returncode}: {last(done.stderr)}")
    frame = json.loads(done.stdout)["frame"]
    gpus, processes = frame.get("gpus", []), frame.get("processes", [])
    yield Fact(f"gputop --json took {spent_s:.2f} s; {len(gpus)} GPUs, {len(processes)} processes")
    for line in done.stderr.splitlines():
        yield Fact(f"it says: {line}")
    for note in frame.get("notes", ()):
        yield Fact(f"note {note['key']}: {note['text']}")
    yield Verdict(len(gpus) >= len(check.gpus), f"{len(gpus)} of {len(check.gpus)} GPUs are listed")
    yield from _reasons("GPU", gpus)
    yield from _reasons("host", [frame["host"]])
    yield from _reasons("process", processes)
    for gpu in gpus:
        reasons = {one["metric"] for one in gpu.get("missing", ())}
        silent = [one.name for one in metrics(Gpu) if gpu.get(one.name) is None and one.name not in reasons]
        names = f": {' '.join(silent)}" if silent else ""
        yield Verdict(not silent, f"GPU {gpu['index']}: {len(silent)} metrics are unknown without a reason{names}")


def _reasons(kind: str, owners: list[dict[str, Any]]) -> Iterator[Record]:
    """Each metric and reason once, with how many have it."""
    found: dict[tuple[str, str, str], int] = defaultdict(int)
    for owner in owners:
        for one in owner.get("missing", ()):
            found[one["metric"], one["reason"], one.get("unlock") or ""] += 1
    for (metric, reason, unlock), count in sorted(found.items()):
        of = f" for {count} of {len(owners)}" if len(owners) > 1 else ""
        hint = f"; {unlock}" if unlock else ""
        yield Fact(f"{kind} {metric}: {reason}{of}{hint}", {"metric": metric, "reason": reason, "count": count})
