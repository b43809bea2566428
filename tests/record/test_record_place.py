"""Files that are no place for a recording: refused at once, in one line, untouched."""

from __future__ import annotations

import gzip
import os
import stat
from pathlib import Path

import pytest

from gputop.record.recorder import Recorder
from gputop.record.recording import Recording
from gputop.safe.files import Refused
from tests.record.test_record import record
from tests.record_child import frames

SOME = frames(1)


def place(kind: str, folder: Path) -> Path:
    path = folder / "run.jsonl"
    match kind:
        case "link":
            (folder / "victim").write_text("precious")
            path.symlink_to(folder / "victim")
        case "dangling link":
            path.symlink_to(folder / "nothing")
        case "pipe":
            os.mkfifo(path)
        case "device":
            return Path("/dev/null")
        case "folder":
            path.mkdir()
        case "text":
            path.write_text("precious\n")
        case "json":
            path.write_text('{"type":"config"}\n')
        case "gzip":
            path.write_bytes(gzip.compress(b"precious"))
        case "no folder":
            return folder / "none" / "run.jsonl"
    return path


@pytest.mark.parametrize(
    "kind", ["link", "dangling link", "pipe", "device", "folder", "text", "json", "gzip", "no folder"]
)
def test_f07_what_is_no_recording_of_ours_is_refused_and_untouched(tmp_path: Path, kind: str) -> None:
    path = place(kind, tmp_path)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir() if file.is_file()}
    with pytest.raises(Refused) as refused:
        Recorder(str(path))
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir() if file.is_file()} == before


@pytest.mark.parametrize("name", ["run.jsonl", "run.jsonl.gz"])
def test_an_older_recording_that_others_may_read_is_no_longer_for_them(tmp_path: Path, name: str) -> None:
    record(tmp_path / name, SOME)
    (tmp_path / name).chmod(0o644)
    record(tmp_path / name, SOME)
    assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600


@pytest.mark.parametrize("kind", ["text", "json", "gzip"])
def test_who_may_read_what_is_no_recording_stays(tmp_path: Path, kind: str) -> None:
    path = place(kind, tmp_path)
    path.chmod(0o644)
    with pytest.raises(Refused):
        Recorder(str(path))
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


@pytest.mark.skipif(os.geteuid() != 0, reason="not covered: only root can make a file of somebody else")
def test_f07_a_file_of_another_user_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    record(path, SOME[:1])
    os.chown(path, 65534, 65534)
    with pytest.raises(Refused, match="belongs to another user"):
        Recorder(str(path))


def test_f07_a_pipe_is_not_waited_for_when_it_is_replayed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Refused, match="use - to read a stream"):
        Recording(str(tmp_path / "pipe"))


def test_f08_a_second_recorder_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    first = Recorder(str(path))
    with pytest.raises(Refused, match="by another gputop"):
        Recorder(str(path))
    first.close()
    assert Recorder(str(path)).close()
