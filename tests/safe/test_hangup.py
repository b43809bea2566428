"""What `nohup` started goes on after a hangup; every other signal that ends us still does."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gputop.safe.terminal import ENDINGS, on_ending
from tests.pty_programs import wait_until
from tests.record.test_record import replayed

pytestmark = pytest.mark.waits


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in ENDINGS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("ignored", ENDINGS)
def test_only_a_hangup_that_is_ignored_stays_so(ignored: signal.Signals) -> None:
    def take(number: int, frame: object) -> None:
        raise AssertionError

    for number in ENDINGS:
        signal.signal(number, signal.SIG_IGN if number == ignored else signal.SIG_DFL)
    on_ending(take)
    taken = [number for number in ENDINGS if signal.getsignal(number) is take]
    assert taken == [number for number in ENDINGS if number != ignored or number != signal.SIGHUP]


@pytest.mark.parametrize("command", ["record", "log"])
def test_t01_what_nohup_started_is_not_ended_by_a_hangup(tmp_path: Path, command: str) -> None:
    path = tmp_path / "run"
    argv = [sys.executable, "-m", "gputop", command, str(path), "--source", "demo:healthy", "--interval", "0.25"]
    with subprocess.Popen(["nohup", *argv], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        wait_until(lambda: path.exists() and path.stat().st_size > 0, 60)
        process.send_signal(signal.SIGHUP)
        before = path.stat().st_size
        wait_until(lambda: path.stat().st_size > before, 60)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    if command == "record":
        assert len(replayed(path)) > 0
