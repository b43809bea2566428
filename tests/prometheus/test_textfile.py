"""gputop.prom for node_exporter: readable by others, replaced as a whole, gone when gputop has ended."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from threading import Event

import pytest

from gputop.prometheus.textfile import NAME, MetricsFile
from gputop.safe.files import Refused, remove_shared, replace_shared
from tests.process_watch import root_only
from tests.scrapes import PATIENCE_S, until


def test_others_may_read_it_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        replace_shared(str(tmp_path), NAME, b"x 1\n")
    finally:
        os.umask(before)
    written = tmp_path / NAME
    assert (stat.S_IMODE(written.stat().st_mode), written.read_bytes()) == (0o644, b"x 1\n")
    assert os.listdir(tmp_path) == [NAME]


def test_it_is_replaced_as_a_whole(tmp_path: Path) -> None:
    """Who has it open reads what it was: it is another file then."""
    replace_shared(str(tmp_path), NAME, b"x 1\n" * 100_000)
    with open(tmp_path / NAME, "rb") as reader:
        replace_shared(str(tmp_path), NAME, b"y 2\n")
        assert reader.read() == b"x 1\n" * 100_000
    assert (tmp_path / NAME).read_bytes() == b"y 2\n"


@pytest.mark.parametrize("kind", ["link", "folder", "fifo"])
def test_f07_what_is_not_ours_is_not_replaced(tmp_path: Path, kind: str) -> None:
    other = tmp_path / "other"
    other.write_text("untouched")
    place = tmp_path / NAME
    {
        "link": lambda: place.symlink_to(other),
        "folder": lambda: place.mkdir(),
        "fifo": lambda: os.mkfifo(place),
    }[kind]()
    with pytest.raises(Refused, match=r"gputop\.prom was not created by gputop: not written; remove it"):
        replace_shared(str(tmp_path), NAME, b"x 1\n")
    assert other.read_text() == "untouched"
    assert sorted(os.listdir(tmp_path)) == [NAME, "other"]


@root_only
def test_f07_root_writes_into_the_folder_of_another_user_and_over_no_file_of_theirs(tmp_path: Path) -> None:
    os.chown(tmp_path, 12345, 12345)
    replace_shared(str(tmp_path), NAME, b"x 1\n")
    os.chown(tmp_path / NAME, 12345, 12345)
    with pytest.raises(Refused, match="was not created by gputop"):
        replace_shared(str(tmp_path), NAME, b"x 2\n")


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="No such file or directory"):
        MetricsFile(str(tmp_path / "no"), lambda: b"")
    remove_shared(str(tmp_path / "no"), NAME)


def test_it_is_written_when_there_is_something_new_and_removed_at_the_end(tmp_path: Path) -> None:
    texts = iter((b"a 1\n", b"a 2\n", b"a 3\n"))
    written = MetricsFile(str(tmp_path), lambda: next(texts), every_s=0.01)
    place = tmp_path / NAME
    assert place.read_bytes() == b"a 1\n"
    written.start()
    written.wake()
    until(lambda: place.read_bytes() == b"a 2\n")
    written.wake()
    until(lambda: place.read_bytes() == b"a 3\n")
    written.end()
    assert os.listdir(tmp_path) == []
    assert written.problem is None


def test_f02_a_folder_that_goes_is_a_problem_until_it_is_back(tmp_path: Path) -> None:
    folder = tmp_path / "textfile"
    folder.mkdir()
    written = MetricsFile(str(folder), lambda: b"a 1\n", every_s=0.01)
    written.start()
    (folder / NAME).unlink()
    folder.rmdir()
    written.wake()
    until(lambda: written.problem)
    assert written.problem == f"metrics not written: {folder}: No such file or directory: nothing is saved there"
    assert written.missed == 1
    folder.mkdir()
    written.wake()
    until(lambda: written.problem is None)
    assert (folder / NAME).exists()
    written.end()


def test_a_write_that_hangs_delays_neither_updates_nor_the_end(tmp_path: Path) -> None:
    answers, asked, first = Event(), Event(), [b"a 1\n"]

    def text() -> bytes:
        if first:
            return first.pop()
        asked.set()
        answers.wait(PATIENCE_S)
        return b"a 2\n"

    written = MetricsFile(str(tmp_path), text, every_s=0.0)
    written.start()
    written.wake()
    assert asked.wait(PATIENCE_S)
    for _ in range(1000):
        written.wake()
    written.end(patience_s=0.1)
    assert (tmp_path / NAME).read_bytes() == b"a 1\n"
    answers.set()
    until(lambda: not (tmp_path / NAME).exists())
