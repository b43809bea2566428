"""Training that stops to write: the rule fires, just does not, and abstains."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gputop.model import Frame, Role
from tests.rule_cases import Machine, after, found, refused, silent


def writing(trainer: dict[str, Any], busy: Any = 80.0, loaders: int = 1, loader: float = 10.0) -> Machine:
    """A GPU with gaps in which the main thread writes."""
    return Machine(gpu={"busy_percent": busy}, trainer=trainer, loader={"cpu_percent": loader}, loaders=loaders)


@pytest.mark.parametrize(
    ("machine", "fires"),
    [
        (writing({"write_chars_per_s": 101e3}), True),
        (writing({"write_chars_per_s": 99e3}), False),
        (writing({"write_chars_per_s": 51e6}), False),  # a checkpoint, written beside the training
        (writing({"write_chars_per_s": 101e3}, busy=91.0), False),
        (writing({"write_chars_per_s": 101e3, "thread_names": (("python", 60), ("pt_gloo_runloop", 1))}), False),
        (writing({"write_chars_per_s": 101e3}, loader=51.0), False),
        (writing({"write_chars_per_s": 101e3, "main_thread_percent": 9.0}), False),
        (writing({"write_chars_per_s": lambda t: 9e6 if t % 3 == 0 else 900.0}), False),  # now and then
        (writing({"write_chars_per_s": 101e3}, busy=lambda t: 0.0 if t % 8 == 0 else 90.0), False),  # pauses
        (writing({"write_calls_per_s": 21.0, "write_chars_per_s": 2e3}, loaders=0), True),
        (writing({"write_calls_per_s": 19.0, "write_chars_per_s": 2e3}, loaders=0), False),
        (writing({"write_calls_per_s": 60.0, "write_chars_per_s": 480.0}, loaders=0), False),  # an eventfd: asyncio
        (writing({"write_calls_per_s": 60.0, "write_chars_per_s": 65 * 60.0}, loaders=0), True),
        (writing({"write_calls_per_s": 60.0, "write_chars_per_s": 63 * 60.0}, loaders=0), False),
        (writing({"write_calls_per_s": 99.0}), False),  # that is how loaders are told what to load
    ],
)
def test_sync_log_stall(machine: Machine, fires: bool) -> None:
    finding = found(machine.verdict(130), "sync-log-stall")
    assert (finding is not None) == fires
    assert finding is None or (finding.severity, finding.confidence) == ("warn", 0.5)


@pytest.mark.parametrize(("stored", "fires"), [(0.0, False), (101e3, True)])
def test_who_steps_environments_through_pipes_writes_no_logs(stored: float, fires: bool) -> None:
    machine = writing({"write_chars_per_s": 150e3, "write_calls_per_s": 800.0, "write_bytes_per_s": stored}, loaders=0)

    def frame(t: float) -> Frame:
        one = machine.frame(t)
        steps = (replace(one.processes[0], pid=200 + n, parent_pid=100, role=Role.OTHER, gpus=()) for n in range(4))
        return replace(one, processes=(*one.processes, *steps))

    assert (found(after(frame, 130), "sync-log-stall") is not None) == fires


def test_sync_log_stall_abstains_where_writes_are_hidden() -> None:
    assert silent(writing(refused("write_chars_per_s")).verdict(60), "sync-log-stall")


def test_sync_log_stall_abstains_where_seconds_do_not_show() -> None:
    told = silent(writing({"write_chars_per_s": 101e3}).verdict(150, 5), "sync-log-stall")
    assert told is not None
    assert told.unlock is not None
    assert told.unlock.endswith("gputop --interval 1")
