"""Ranks are asked through their own sockets and files only, within a deadline; nothing in an answer is trusted."""

from __future__ import annotations

import os
import pickle
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import DEVNULL
from typing import TextIO

import pytest

from gputop.collectives.local_server import Listener, listeners
from gputop.collectives.report import conclude
from gputop.collectives.survey import SECONDS, RankAnswer, Survey, ask
from gputop.model import Process
from gputop.report import text
from tests.collectives.test_flight_record import Evil
from tests.flight_dumps import as_json, entry, pickled, until
from tests.process_watch import need_namespaces, root_only, running
from tests.real_processes import program, row

SERVER = Path(__file__).parent / "worker_server.py"
WAITS, LATE = (*until(4), entry(5, state="started")), until(4)


@contextmanager
def server(
    how: str, folder: Path | None = None, rank: int = 0, errors: TextIO | None = None, **environ: str
) -> Iterator[Process]:
    """A process with a worker server that behaves so."""
    command = [sys.executable, str(SERVER), how, *([str(folder)] if folder else [])]
    with running(*command, env={**os.environ, **environ}, stderr=errors or DEVNULL) as child:
        assert child.stdout is not None
        assert child.stdout.readline().startswith("ready")
        yield row(child.pid, rank=rank, world_size=2)


def dumps(folder: Path, *entries: dict[str, object]) -> Path:
    """A folder with the answers of a worker server."""
    folder.mkdir()
    (folder / "fr_trace_json").write_bytes(as_json())
    (folder / "dump_nccl_trace_json").write_bytes(as_json(*entries))
    return folder


def one(survey: Survey) -> RankAnswer:
    (answer,) = survey.answers
    return answer


def test_two_ranks_say_who_is_missing_and_where(tmp_path: Path) -> None:
    with (
        server("record", dumps(tmp_path / "0", *WAITS)) as waits,
        server("record", dumps(tmp_path / "1", *LATE), 1) as late,
    ):
        survey = ask([waits, late])
        assert [one.source for one in survey.answers] == ["debug server", "debug server"]
        found = conclude(ask([waits, late]), survey)
        assert found.text == "Rank 1 never entered all_reduce #5; it last entered all_reduce #4. Rank 0 waits in it."
        assert "> rank 1" in text(found.page())


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("silent", "no complete answer within 2 s"),
        ("silent-post", "no complete answer within 3 s"),
        ("endless", "its answer is larger than"),
        ("slow", "no complete answer within 2 s"),
        ("binary", "its answer is not HTTP"),
        ("no-length", "its answer is truncated"),
        ("long-length", "its answer is truncated"),
        ("redirect", "HTTP status 302"),
        ("other-server", "not a worker server of PyTorch"),
        ("other-json", "its answer: "),
        ("error", "HTTP status 500"),
    ],
)
def test_a_hostile_answer_is_refused_in_bounded_time(how: str, why: str) -> None:
    with server(how) as rank:
        answer = one(ask([rank]))
        assert answer.record is None
        assert answer.why.startswith(f"debug server: {why}"), answer.why
        (said,) = conclude(ask([rank], seconds=0.0)).words
        assert said == "Collectives of rank 0 are unknown: did not answer in time."


def test_only_handlers_that_change_nothing_are_asked(tmp_path: Path) -> None:
    """For the lines of the code torch would import hundreds of modules in the job; a profiler would run there."""
    log = tmp_path / "log"
    with log.open("w") as errors, server("record", dumps(tmp_path / "0", *WAITS), errors=errors) as rank:
        assert one(ask([rank])).record is not None
    assert {line.split(" HTTP")[0] for line in log.read_text().splitlines()} == {
        "GET /handler/", "POST /handler/fr_trace_json", "POST /handler/dump_nccl_trace_json",
    }  # fmt: skip


def test_a_silent_rank_delays_no_other(tmp_path: Path) -> None:
    with server("record", dumps(tmp_path / "0", *WAITS)) as good, server("silent", rank=1) as silent:
        survey = ask([good, silent])
        assert [one.record is not None for one in survey.answers] == [True, False]
        said = conclude(survey).words
        assert said[-1] == "Collectives of rank 1 are unknown: debug server: no complete answer within 2 s."


def test_a_stopped_rank_is_waited_for_within_the_deadline(tmp_path: Path) -> None:
    with server("record", dumps(tmp_path / "0", *WAITS)) as rank:
        os.kill(rank.pid, 19)
        began_s = time.monotonic()
        assert one(ask([rank])).record is None
        assert time.monotonic() - began_s < SECONDS


def test_the_master_port_is_never_asked(tmp_path: Path) -> None:
    """The store of the job is on it."""
    with server("record", dumps(tmp_path / "0", *WAITS)) as rank:
        (own,) = listeners(rank.pid)
        environ = {"MASTER_PORT": str(own.port)}
    with socket.socket(socket.AF_INET6) as held:
        held.bind(("::", own.port))
        held.listen()
        with server("record", tmp_path / "0", **environ) as rank:
            assert one(ask([rank])).record is not None  # its own port is another one


def test_a_process_without_a_worker_server_is_not_asked() -> None:
    """It may listen for what it likes."""
    with program(
        "import socket\nserver = socket.create_server(('', 0))\nprint(os.getpid(), flush=True)\nserver.accept()\n"
        "print('asked', flush=True)\ntime.sleep(60)"
    ) as (pid, _):
        survey = ask([row(pid, rank=0)])
        assert (one(survey).record, one(survey).why, survey.answered) == (None, "", False)


def test_only_our_own_sockets_are_those_of_a_process() -> None:
    with socket.create_server(("127.0.0.1", 0)) as ours, program("print(flush=True); time.sleep(60)") as (pid, _):
        port = ours.getsockname()[1]
        assert port in {each.port for each in listeners(os.getpid())}
        assert port not in {each.port for each in listeners(pid)}
    assert Listener("::", 80, 1).loopback == ("::1", "127.0.0.1")
    assert Listener("10.0.0.7", 80, 1).loopback == ()


@root_only
def test_the_port_of_another_network_is_not_connected(tmp_path: Path) -> None:
    need_namespaces("--net")
    command = ("unshare", "--net", sys.executable, str(SERVER), "record", str(dumps(tmp_path / "0", *WAITS)))
    with running(*command) as child:
        assert child.stdout is not None
        child.stdout.readline()
        answer = one(ask([row(child.pid, rank=0)]))
        assert answer.why == "debug server: its port is not visible from here (another network namespace?)"


def test_a_unix_socket_of_another_process_is_not_used(tmp_path: Path) -> None:
    path = str(tmp_path / "worker.sock")
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(path)
        other.listen()
        with server("record", TORCH_WORKER_SERVER_SOCKET=path) as rank:
            assert one(ask([rank])).why.startswith(f"debug server: its socket belongs to process {os.getpid()}")


class TestDumpFile:
    def survey(self, rank: int | None = 0, **environ: str) -> RankAnswer:
        code = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
        with running(sys.executable, "-S", "-c", code, env={**os.environ, **environ}) as child:
            assert child.stdout is not None
            child.stdout.readline()
            self.write(child.pid)
            return one(ask([row(child.pid, rank=rank)]))

    def write(self, pid: int) -> None:
        """Write the dump once the process is there."""

    def test_a_dump_written_since_its_start_is_read(self, tmp_path: Path) -> None:
        self.write = lambda pid: (tmp_path / "trace_0").write_bytes(pickled(*WAITS))  # type: ignore[method-assign, assignment]
        for name in ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"):
            answer = self.survey(**{name: f"{tmp_path}/trace_"})
            assert (answer.source, answer.why) == (f"{tmp_path}/trace_0", "")
            assert answer.record is not None
        folder = tmp_path / "cache/torch"
        folder.mkdir(parents=True)
        self.write = lambda pid: (folder / "comm_lib_trace_rank_0").write_bytes(pickled(*WAITS))  # type: ignore[method-assign, assignment]
        assert self.survey(XDG_CACHE_HOME=str(tmp_path / "cache")).record is not None

    def test_one_of_an_earlier_job_is_not(self, tmp_path: Path) -> None:
        path = tmp_path / "trace_0"
        path.write_bytes(pickled(*WAITS))
        os.utime(path, (1, 1))
        answer = self.survey(TORCH_FR_DUMP_TEMP_FILE=f"{tmp_path}/trace_")
        assert (answer.record, answer.why) == (None, "")

    def test_what_is_no_regular_file_of_its_owner_is_not_opened(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "fifo_0")
        (tmp_path / "real").write_bytes(pickled(*WAITS))
        os.symlink(tmp_path / "real", tmp_path / "link_0")
        for name, why in (("fifo", "not a regular file"), ("link", "Too many levels of symbolic links")):
            answer = self.survey(TORCH_FR_DUMP_TEMP_FILE=f"{tmp_path}/{name}_")
            assert (answer.record, answer.why) == (None, f"{tmp_path}/{name}_0: {why}")

    @root_only
    def test_a_file_of_another_user_is_not_used(self, tmp_path: Path) -> None:
        def write(pid: int) -> None:
            (tmp_path / "trace_0").write_bytes(pickled(*WAITS))
            os.chown(tmp_path / "trace_0", 12345, 12345)

        self.write = write  # type: ignore[method-assign]
        answer = self.survey(TORCH_FR_DUMP_TEMP_FILE=f"{tmp_path}/trace_")
        assert (answer.record, answer.why) == (None, f"{tmp_path}/trace_0: belongs to another user: not used")

    def test_a_dump_that_would_run_code_is_refused(self, tmp_path: Path) -> None:
        self.write = lambda pid: (tmp_path / "trace_0").write_bytes(pickle.dumps(Evil()))  # type: ignore[method-assign, assignment]
        answer = self.survey(TORCH_FR_DUMP_TEMP_FILE=f"{tmp_path}/trace_")
        assert answer.record is None
        assert "no code was run" in answer.why


def test_no_thread_is_left_of_a_survey(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    with server("record", dumps(tmp_path / "0", *WAITS)) as rank:
        ask([rank])
    left = {thread for thread in threading.enumerate() if "collectives" in thread.name} - before
    for thread in left:
        thread.join(20)
    assert not [thread for thread in left if thread.is_alive()]
