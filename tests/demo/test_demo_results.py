"""A demo has recorded results: the keys that look inside work there, and what is shown fits the scenario."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable
from threading import Event

import pytest

from gputop.actions import torch_trace
from gputop.actions.pyspy import ProfileResult, Sampling, StackResult
from gputop.config import Settings
from gputop.demo import SCENARIOS, Demo
from gputop.demo.results import result
from gputop.model import Process, Role
from gputop.monitor import Monitor
from gputop.profile import dump, parse
from gputop.profile.training_parts import main, shares
from gputop.ui.app import Gputop
from gputop.ui.latest_update import LatestUpdate
from gputop.ui.profiling import recorded as rehearsed
from gputop.ui.profiling import results
from gputop.ui.profiling.tools import ToolId
from gputop.ui.result.profile_tabs import says_of
from gputop.ui.theme import Look
from tests.headless_screens import Hand, Stage


def demo(name: str, scene: Callable[[Stage], Awaitable[None]]) -> None:
    """A scenario on a screen, from its opening on."""

    async def run() -> None:
        source = Demo(SCENARIOS[name], interval_s=3600.0, anchor_s=1_795_185_127.0)
        monitor, latest = Monitor(source), LatestUpdate()
        monitor.start(latest.put, latest.close)
        app = Gputop(monitor, latest, Settings(), Look())
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
        await stage.press(keys[0])
        if len(keys) > 1:
            assert "the result is a recording that comes with the demo" in stage.text, "said before it is started"
        await stage.press(*keys[1:])
        await stage.until(lambda: shown in stage.text, shown)
        await stage.until(lambda: "Recorded for this demo, not measured now." in stage.text, "where it comes from")
        assert "recorded" in stage.lines[0]

    demo(name, scene)


def test_enter_on_a_finding_opens_the_newest_profile_of_its_process() -> None:
    async def scene(stage: Stage) -> None:
        main = stage.app.main
        await stage.until(lambda: bool(main.advice.finding_list.listed), "a finding")
        await stage.press("a")
        assert "open its latest profile" not in stage.text
        assert "go to its process" in stage.text
        await stage.press("p", "enter")
        await stage.until(lambda: "py-spy 10 s" in stage.text, "the profile")
        await stage.press("escape")
        assert "open its latest profile" in stage.text
        await stage.press("enter")
        await stage.until(lambda: "py-spy 10 s" in stage.text, "the profile again")

    demo("starved-cpu-idle", scene)


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("starved-cpu-idle", "waits-for-data"), ("io-bound", "waits-for-data"), ("loader-in-main", "loads-in-main"),
        ("seen-inside", "logs"), ("collective-wait", None), ("collective-wait-hang", "collectives"),
        ("dataparallel", "data-parallel"), ("healthy", None), ("h2d-transfer-bound", None), ("threads-process", None),
        ("gpu-shared", None), ("gpu-idle-cpu-busy", None), ("checkpoint-stall", "saves"),
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


@pytest.mark.parametrize(
    ("name", "tool"),
    [
        ("starved-cpu-idle", "profile"), ("starved-cpu-idle", "torch"), ("starved-cpu-idle", "stack"),
        ("loader-in-main", "profile"), ("checkpoint-stall", "profile"), ("collective-wait-hang", "profile"),
        ("collective-wait-hang", "stack"), ("collective-wait", "stack"), ("dataparallel", "torch"),
        ("tensor-cores-idle", "torch"), ("mem-bw-bound", "torch"), ("busy-not-effective", "torch"),
        ("overhead-bound", "torch"), ("h2d-transfer-bound", "torch"), ("straggler", "torch"),
        ("network-bound", "torch"),
    ],
)  # fmt: skip
def test_a_recorded_result_adds_to_its_finding_and_says_that_it_is_recorded(name: str, tool: ToolId) -> None:
    source = Demo(SCENARIOS[name], pace=False, anchor_s=0.0)
    monitor = Monitor(source)
    updates = monitor.updates()
    before = next(updates)
    finding = next(one for one in before.findings if one.primary and not one.healthy)
    about = [one for one in map(before.frame.by_identity.get, finding.subject.processes) if one is not None]
    recorded = rehearsed.result(source, tool, tuple(about))
    assert recorded is not None
    results.testify(monitor, about[0], recorded)
    after = next(one for one in (next(updates), next(updates))[1].findings if one.rule == finding.rule)
    assert not any("(recorded)" in one.text for one in finding.evidence)
    assert "(recorded)" in after.evidence[1].text
    assert after.confidence > finding.confidence
    updates.close()


def test_a_trace_has_the_steps_and_a_profile_the_seconds_that_were_chosen() -> None:
    source, process = _trainer("healthy")
    traced = rehearsed.result(source, "torch", (process,), torch_trace.TraceOrder(steps=5))
    assert isinstance(traced, torch_trace.Traced)
    assert [view.steps for view in traced.views] == [5]
    usual = rehearsed.result(source, "torch", (process,))
    assert isinstance(usual, torch_trace.Traced)
    assert [view.steps for view in usual.views] == [torch_trace.TraceOrder().steps]
    profiled = rehearsed.result(source, "profile", (process,), Sampling(seconds=30, children=False))
    assert isinstance(profiled, ProfileResult)
    assert profiled.profile is not None
    assert profiled.kept is not None
    assert (profiled.profile.total, profiled.kept.meta["seconds"]) == (3000, 30)


@pytest.mark.parametrize("name", ["collective-wait-hang", "collective-wait", "slow-start", "zombie-memory"])
def test_where_no_step_ends_none_is_recorded(name: str) -> None:
    source, process = _trainer(name)
    traced = rehearsed.result(source, "torch", (process,))
    assert traced is not None
    assert not traced.good
    assert traced.text.startswith("no optimizer step within 30 s (recorded)")

    async def scene(stage: Stage) -> None:
        await to_a_trainer(stage)
        await stage.press("t", "enter")
        await stage.until(lambda: "no optimizer step within 30 s (recorded)" in stage.text, "why there is none")

    if name == "collective-wait-hang":
        demo(name, scene)


def test_stacks_of_a_hang_say_who_is_apart_and_that_nobody_moves() -> None:
    async def scene(stage: Stage) -> None:
        await stage.press("a", "s")
        apart = "ranks 0, 1, 2 wait in all_reduce; rank 3 is in write_samples (train.py:171)."
        await stage.until(lambda: apart in stage.text, "the odd one")
        assert "No rank moved within 1 s: the job probably hangs." in " ".join(stage.text.split())
        assert "state unknown" not in stage.text
        assert "write_samples" in stage.text

    demo("collective-wait-hang", scene)


def test_a_profile_of_all_ranks_is_one_of_each() -> None:
    async def scene(stage: Stage) -> None:
        await to_a_trainer(stage)
        await stage.press("p", "shift+tab", "down", "space")
        assert "[x] all 4 ranks" in stage.text
        await stage.press("tab", "enter")
        await stage.until(lambda: "py-spy 10 s" in stage.text, "the first")
        jobs, frame = stage.app.jobs, stage.newest
        assert frame is not None
        ranks = {one.identity for one in frame.processes if one.role is Role.TRAINER}
        await stage.until(lambda: jobs.looked_into == ranks, "all of them")
        assert len(stage.app.screen_stack) == 3, "one is opened, the others are at hand"

    demo("collective-wait-hang", scene)


def test_stacks_of_ranks_that_go_on_say_so() -> None:
    source, process = _trainer("network-bound")
    newest = source.frame(source.at_s)
    ranks = tuple(one for one in newest.processes if one.role is Role.TRAINER and one.job == process.job)
    found = rehearsed.result(source, "stack", ranks)
    assert isinstance(found, StackResult)
    assert found.ranks is not None
    assert "All ranks moved within 1 s" in found.ranks.text
    assert all(shown.threads[0].active is not None for shown in found.processes)


def test_a_loader_says_nothing_of_what_waits_for_it() -> None:
    source, trainer = _trainer("starved-cpu-idle")
    loader = next(one for one in source.frame(source.at_s).processes if one.parent_pid == trainer.pid)
    found = rehearsed.result(source, "profile", (loader,))
    assert isinstance(found, ProfileResult)
    assert found.profile is not None
    assert found.page is not None
    assert not says_of(found.profile, found.page).known
    assert any("waiting for work 1 %" in word or "waiting for work 2 %" in word for word in found.page.words)


def _trainer(name: str) -> tuple[Demo, Process]:
    """A demo that has shown its first frame, and the first process in it that trains."""
    source = Demo(SCENARIOS[name], pace=False, anchor_s=0.0)
    first = next(source.frames(Event()))
    return source, next(one for one in first.processes if one.role is Role.TRAINER)


def test_the_first_trace_of_a_demo_is_judged() -> None:
    """In a process of its own: nobody has imported the signatures before."""
    code = """
import gputop.ui.profiling.recorded
from gputop.trace.verdict import SIGNATURES
print(len(SIGNATURES))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 20
