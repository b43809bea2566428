"""Who gets a signal of the dialog, and who does not: reused pids, changing lists, processes that are refused."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gputop.model import Process, Role
from gputop.ui.signal import SignalDialog
from tests.headless_screens import Stage, play
from tests.real_processes import born_as, kill, moment, row, unharmed
from tests.seccomp import filtered
from tests.signal_dialogs import says, sleeping, trainer


def test_a01_it_ended_before_the_yes() -> None:
    with sleeping() as child:

        async def scene(stage: Stage) -> None:
            await stage.press("k", "right")
            kill(child)
            await stage.press("enter")
            await says(stage, f"nothing sent to {child.pid}: it exited")

        play(scene, moment(trainer(child.pid), launcher=None))


def test_a01_its_pid_is_used_again_before_the_yes() -> None:
    others: list[subprocess.Popen[bytes]] = []
    with sleeping() as child:

        async def scene(stage: Stage) -> None:
            await stage.press("k", "right")
            kill(child)
            others.append(born_as(child.pid))
            await stage.show(moment(trainer(child.pid), launcher=None))
            await stage.press("enter")
            await says(stage, f"nothing sent to {child.pid}: it exited")

        try:
            play(scene, moment(trainer(child.pid), launcher=None))
            assert all(unharmed(other.pid) for other in others)
        finally:
            for other in others:
                kill(other)


def test_a01_its_pid_was_used_again_before_the_key() -> None:
    with sleeping() as child:
        seen = trainer(child.pid)
        kill(child)
        time.sleep(2 / os.sysconf("SC_CLK_TCK"))
        other = born_as(child.pid)

        async def scene(stage: Stage) -> None:
            await stage.press("k")
            assert "nothing can be sent: it exited; another process has its PID now" in stage.text
            await stage.press("right", "enter", "enter")
            assert isinstance(stage.app.screen, SignalDialog)

        try:
            play(scene, moment(seen, launcher=None))
            assert unharmed(other.pid)
        finally:
            kill(other)


def test_a02_the_list_changes_under_the_dialog() -> None:
    with sleeping() as child, sleeping() as other:
        before = moment(trainer(child.pid, cpu_percent=90.0), launcher=None)
        rows = (trainer(other.pid, cpu_percent=900.0), trainer(child.pid, rank=1))
        after = moment(*rows, launcher=None)

        async def scene(stage: Stage) -> None:
            await stage.press("f5", "k", "right")
            listing = stage.app.main.table.listing
            listing.follow = False
            listing.touch(-1000)
            listing.look(listing.view, -1000)
            await stage.show(replace(after, mono_s=before.mono_s + 1))
            cursor = listing.cursor
            assert cursor is not None
            assert cursor.process is not None
            assert cursor.process.pid == other.pid, "the line under the dialog is another's now"
            await stage.press("enter")
            await says(stage, f"{child.pid} exited after ")

        play(scene, before)
        assert child.wait(5) == -signal.SIGTERM
        assert unharmed(other.pid)


REFUSED: dict[str, tuple[Callable[[int], Process], str]] = {
    "pid-1": (lambda _: row(1), "PID 1 keeps the machine or container running"),
    "unverified": (lambda pid: row(pid, verified=False), "the driver reports a host PID"),
    "hidden": (lambda pid: row(pid, unseen="hidden"), "it belongs to another user, and /proc hides it"),
    "other-user": (lambda pid: row(pid, uid=12345), "it now runs as another user"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a03_refused_with_the_reason(name: str) -> None:
    make, why = REFUSED[name]
    with sleeping() as child:
        await_refusal(replace(make(child.pid), role=Role.TRAINER), why)
        assert unharmed(child.pid)


def test_a03_a_thread_of_the_kernel_is_refused() -> None:
    if not Path("/proc/2/comm").exists() or Path("/proc/2/cmdline").read_bytes() or os.getpid() == 2:
        pytest.skip("not covered: pid 2 is no kernel thread here")
    await_refusal(row(2, role=Role.TRAINER), "it is a kernel thread")


def test_a03_read_only_and_elsewhere_nothing_is_sent() -> None:
    with sleeping() as child:
        await_refusal(trainer(child.pid), "gputop was started with --readonly", readonly=True)
        await_refusal(trainer(child.pid), "these processes belong to a demo, not to this machine", elsewhere="a demo")
        assert unharmed(child.pid)


def await_refusal(process: Process, why: str, elsewhere: str | None = None, **settings: Any) -> None:
    """Nothing is sent by any way through the dialog, the reason is there, and F8 gives it too."""

    async def scene(stage: Stage) -> None:
        stage.feed.elsewhere = elsewhere
        for keys in (("right",), ("up", "up", "up", "up", "enter")):
            await stage.press("k", *keys, "enter", "enter", "enter")
            assert f"nothing can be sent: {why}" in " ".join(stage.text.split())
            assert isinstance(stage.app.screen, SignalDialog)
            await stage.press("escape")
        await stage.press("f8")
        await says(stage, why)

    play(scene, moment(process, launcher=None), size=(130, 40), **settings)


def test_a03_gputop_itself_only_after_its_pid_is_typed() -> None:
    got: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, _: got.append(number))
    pid = os.getpid()

    async def scene(stage: Stage) -> None:
        await stage.press("k", "up", "up", "up", "enter")
        assert f"type {pid} if you mean it: _" in stage.text
        assert f"! {pid}: this is gputop itself" in stage.text
        await stage.press("enter")
        assert f"type {pid} first" in stage.text
        await stage.press(*str(pid), "0", "enter")
        assert f"type {pid} first" in stage.text
        assert not got
        await stage.press("backspace", "enter")
        await says(stage, f"USR1 sent to {pid}")

    try:
        play(scene, moment(trainer(pid), launcher=None))
        assert got == [signal.SIGUSR1]
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a04_without_pidfds_only_after_the_pid_is_typed_and_the_result_says_so() -> None:
    code = """
import signal
from tests.seccomp import SECCOMP
from tests.real_processes import *
from tests.signal_dialogs import *
from tests.headless_screens import play
exec(SECCOMP)
child = subprocess.Popen(["sleep", "60"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
without(38, 434)
async def scene(stage):
    await stage.press("k", "right", "enter")
    assert "no pidfd (old kernel or seccomp filter)" in stage.text, stage.text
    assert f"type {child.pid} first" in stage.text, stage.text
    assert unharmed(child.pid)
    await stage.press(*str(child.pid), "enter")
    await says(stage, f"{child.pid} exited after ")
    assert "no pidfd (old kernel or seccomp filter)" in stage.lines[-1], stage.lines[-1]
play(scene, moment(trainer(child.pid), launcher=None))
assert child.wait(5) == -signal.SIGTERM
"""
    filtered(code)
