"""Asking aside by which tools a process can be looked into: every question gets its answer."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from gputop.actions import Handles, Rights
from gputop.safe.ptrace_access import Barred
from gputop.ui.profiling import tools
from gputop.ui.profiling.tools import ASKING, TOOLS, Asking, ToolId
from tests.real_processes import hold
from tests.signal_dialogs import trainer

BARRED = Barred("no")


@pytest.fixture
def held() -> Iterator[Handles]:
    made = hold(trainer(os.getpid()))
    yield made
    made.close()


def test_who_is_gone_keeps_no_other_tool_from_its_answer(held: Handles, monkeypatch: pytest.MonkeyPatch) -> None:
    free, told, all_told = threading.Event(), set[ToolId](), threading.Event()

    def slow(*_: object) -> Barred:
        free.wait(60)
        return BARRED

    monkeypatch.setattr(tools, "_barred", slow)
    ask = Asking()

    def gone(id: ToolId, barred: Barred | None) -> None:
        raise RuntimeError("there is no screen any more")

    def tell(id: ToolId, barred: Barred | None) -> None:
        told.add(id)
        if len(told) == len(TOOLS):
            all_told.set()

    assert set(ask.ask(held, Rights(), gone).values()) == {ASKING}
    ask.ask(held, Rights(), tell)
    free.set()
    assert all_told.wait(60), told
    assert set(ask.ask(held, Rights(), gone).values()) == {BARRED}


def test_without_a_thread_it_says_so_and_asks_again_the_next_time(
    held: Handles, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    ask = Asking()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", none_left)
        answers = ask.ask(held, Rights(), lambda id, barred: None)
    assert {barred and barred.text for barred in answers.values()} == {"cannot be checked: can't start new thread"}
    monkeypatch.setattr(tools, "_barred", lambda *_: BARRED)
    assert set(ask.ask(held, Rights(), lambda id, barred: None).values()) == {BARRED}
