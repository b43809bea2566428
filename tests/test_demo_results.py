"""A demo has recorded results: the keys that look inside work there, and what is shown fits the scenario."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable

import pytest

from gputop.config import Settings
from gputop.demo import SCENARIOS, Demo
from gputop.demo.results import result
from gputop.model import Role
from gputop.monitor import Monitor
from gputop.profile import dump, parse
from gputop.profile.parts import main, shares
from gputop.ui.app import Gputop
from gputop.ui.look import Look
from gputop.ui.mailbox import Mailbox
from tests.screens import Hand, Stage


def demo(name: str, scene: Callable[[Stage], Awaitable[None]]) -> None:
    """A scenario on a screen, from its opening on."""

    async def run() -> None:
        source = Demo(SCENARIOS[name], interval_s=3600.0, anchor_s=1_795_185_127.0)
        monitor, mailbox = Monitor(source), Mailbox()
        monitor.start(mailbox.put, mailbox.close)
        app = Gputop(monitor, mailbox, Settings(), Look())
        try:
            hand = Hand(app)
            async with app.run_test(size=(120, 40)):
                stage = Stage(app, hand, source)  # type: ignore[arg-type]
                await stage.until(lambda: app.main.shown is not None and bool(app.main.table.listing.rows), "a frame")
                await scene(stage)
        finally:
            monitor.stop()

    asyncio.run(run())


async def to_a_trainer(stage: Stage) -> None:
    """The cursor on the first process that trains."""
    listing = stage.app.main.table.listing
    for _ in range(40):
        row = listing.cursor
        if row and row.process and row.process.role is Role.TRAINER:
            return
        await stage.press("down")


@pytest.mark.parametrize("name", ["starved-cpu-idle", "showcase", "healthy", "seen-inside"])
@pytest.mark.parametrize(
    ("keys", "shown"), [(("p", "enter"), "py-spy 10 s"), (("t", "enter"), "torch trace"), (("s",), "stacks")]
)
def test_keys_that_look_inside_show_a_recorded_result(name: str, keys: tuple[str, ...], shown: str) -> None:
    async def scene(stage: Stage) -> None:
        await to_a_trainer(stage)
        await stage.press(*keys)
        await stage.until(lambda: shown in stage.text, shown)
        await stage.until(lambda: "Recorded for this demo, not measured now." in stage.text, "where it comes from")
        assert "recorded" in stage.lines[0]

    demo(name, scene)


def test_enter_on_a_finding_opens_the_newest_profile_of_its_process() -> None:
    async def scene(stage: Stage) -> None:
        main = stage.app.main
        await stage.until(lambda: bool(main.sheet.listed), "a finding")
        await stage.press("a")
        assert "open its newest profile" not in stage.text
        assert "go to its process" in stage.text
        await stage.press("p", "enter")
        await stage.until(lambda: "py-spy 10 s" in stage.text, "the profile")
        await stage.press("escape")
        assert "open its newest profile" in stage.text
        await stage.press("enter")
        await stage.until(lambda: "py-spy 10 s" in stage.text, "the profile again")

    demo("starved-cpu-idle", scene)


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("starved-cpu-idle", "waits-for-data"), ("io-bound", "waits-for-data"), ("loader-in-main", "loads-in-main"),
        ("seen-inside", "logs"), ("collective-wait", "collectives"), ("collective-wait-hang", "collectives"),
        ("dataparallel", "data-parallel"), ("healthy", None),
    ],
)  # fmt: skip
def test_what_is_recorded_fits_the_scenario(name: str, part: str | None) -> None:
    scenario = SCENARIOS[name]
    source = Demo(scenario, pace=False, anchor_s=0.0)
    frame = source.frame(scenario.open_at_s)
    process = next(one for one in frame.processes if one.role is Role.TRAINER)
    text = result(scenario, frame, process, "profile")
    assert text is not None
    seen = {each.name: share for each, share in shares(main(parse(text))).items()}
    troubles = ("waits-for-data", "loads-in-main", "logs", "collectives", "data-parallel", "saves", "sync")
    told = {name for name in troubles if seen.get(name, 0.0) >= 0.2}
    assert told == ({part} if part else set())


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_every_scenario_has_results_that_can_be_read(name: str) -> None:
    scenario = SCENARIOS[name]
    frame = Demo(scenario, pace=False, anchor_s=0.0).frame(scenario.open_at_s)
    for process in frame.processes[:40]:
        for tool in ("profile", "stack"):
            text = result(scenario, frame, process, tool)
            if text is not None:
                assert parse(text).stacks if tool == "profile" else dump.parse(text, process.pid)[0].main


def test_a_step_that_is_about_all_ranks_shows_all_of_them() -> None:
    """`gputop stack --job` is what it says, and the key beside it does that: not the stacks of one rank."""

    async def scene(stage: Stage) -> None:
        await stage.press("a")
        await stage.until(lambda: "gputop stack --job" in stage.text, "the step")
        await stage.press("s")
        await stage.until(lambda: all(f"rank {one}" in stage.text for one in range(4)), "every rank")

    demo("collective-wait-hang", scene)


def test_the_first_trace_of_a_demo_is_judged() -> None:
    """In a process of its own: nobody has imported the signatures before."""
    code = """
import gputop.ui.profiling.rehearsed
from gputop.trace.verdict import SIGNATURES
print(len(SIGNATURES))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 20
