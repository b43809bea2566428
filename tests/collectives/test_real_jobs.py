"""Real ranks of PyTorch, one of which never enters an all_reduce: servers, dumps and stacks say which, and where."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from subprocess import DEVNULL
from typing import Any

import pytest

from gputop.collectives.report import conclude
from gputop.collectives.survey import ask
from gputop.collectives.watch import facts_of, survey_twice
from gputop.model import Process
from tests.process_watch import running
from tests.real_processes import row

pytestmark = [pytest.mark.jobs, pytest.mark.xdist_group("collectives")]

SCRIPT = Path(__file__).parents[1] / "workloads/collectives.py"
LINES = SCRIPT.read_text().splitlines()
CALL = f"collectives.py:{1 + LINES.index('    distributed.all_reduce(tensor)')}"
LOADS = f"load_shard (collectives.py:{1 + LINES.index('    time.sleep(600)')})"


def job(how: str, **environ: str) -> AbstractContextManager[list[Process]]:
    """The two ranks, which stand where they will stand."""
    return started(str(SCRIPT), how, **environ)


@contextmanager
def started(*command: str, **environ: str) -> Iterator[list[Process]]:
    """What torchrun starts as two ranks, once both are ready."""
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    environment = {**os.environ, "TORCH_FR_BUFFER_SIZE": "2000", "OMP_NUM_THREADS": "1", **environ}
    pids: dict[int, int] = {}
    with running(*torchrun, *command, env=environment, stderr=DEVNULL) as launcher:
        assert launcher.stdout is not None
        try:
            while len(pids) < 2:
                line = launcher.stdout.readline()
                assert line, "the job ended"
                if line.startswith("ready"):
                    rank, pid = map(int, line.split()[1:])
                    pids[rank] = pid
            yield [row(pids[rank], rank=rank, world_size=2) for rank in (0, 1)]
        finally:
            for pid in pids.values():  # each leads a session of its own, which outlives its launcher
                with suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def debug_server() -> str:
    """How a job starts torch's debug server; a skip where that cannot run."""
    for needed in ("tabulate", "jinja2"):
        if importlib.util.find_spec(needed) is None:
            pytest.skip(f"not covered: torch's debug server needs {needed}")
    return "server"


@pytest.fixture(scope="module")
def hangs(debug_server: str) -> Iterator[list[Process]]:
    """A job with torch's debug server in which rank 1 never enters an all_reduce."""
    with job(debug_server) as ranks:
        yield ranks


def stack(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "gputop", "stack", *arguments], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_stacks_of_a_job_end_with_the_rank_that_never_entered(hangs: list[Process]) -> None:
    said = stack("--job", str(hangs[0].pid))
    section = said[said.index("\nCollectives, from debug server\n") :]
    sentence = f"Rank 1 never entered all_reduce #5 ({CALL}); it is in {LOADS}. Rank 0 waits in it."
    findings = " ".join(said[said.index("\nFindings\n") : said.index("\nRanks")].split())
    assert findings == f"Findings {sentence} No rank moved within 1 s: the job probably hangs."
    assert said.count("\nFindings\n") == 1
    assert "> rank 1" in section
    assert section.count("rank 0") == 1


def test_the_same_as_json(hangs: list[Process]) -> None:
    found: dict[str, Any] = json.loads(stack("--json", "--job", str(hangs[1].pid)))["collectives"]
    (one,) = found["discrepancies"]
    assert (one["kind"], one["number"], one["operation"], one["place"]) == ("missing", 5, "all_reduce", CALL)
    assert (one["ranks"], one["waiting"]) == (["rank 1"], ["rank 0"])
    states = {(each["group"], each["rank"]): (each["entered"], each["completed"]) for each in found["ranks"]}
    assert states == {("default_pg", 0): (5, 4), ("default_pg", 1): (4, 4), ("tp", 0): (1, 1), ("tp", 1): (1, 1)}
    assert [each["source"] for each in found["sources"]] == ["debug server"] * 2


def test_one_process_alone_is_not_asked(hangs: list[Process]) -> None:
    assert "Collectives" not in stack(str(hangs[0].pid))


def test_the_monitor_learns_it_without_stacks(hangs: list[Process]) -> None:
    (facts,) = [facts for facts in facts_of(survey_twice(hangs), hangs).values() if facts]
    assert [(fact.process, fact.name, fact.text) for fact in facts] == [
        (hangs[1].identity, "missing-collective", "rank 1 never entered all_reduce #5; it last entered barrier #4")
    ]


def test_asking_changes_nothing_in_the_job(hangs: list[Process]) -> None:
    before = [json.dumps(one, default=str) for one in map(_groups, hangs)]
    for _ in range(20):
        assert all(one.record is not None for one in ask(hangs).answers)
    assert [json.dumps(one, default=str) for one in map(_groups, hangs)] == before
    assert all(Path(f"/proc/{one.pid}").is_dir() for one in hangs)


def _groups(rank: Process) -> Any:
    (answer,) = ask([rank]).answers
    assert answer.record is not None
    return [(key, group.entered, group.completed) for key, group in answer.record.groups.items()]


def test_ranks_that_advance_are_said_to(debug_server: str) -> None:
    with job(debug_server, ADVANCES="1") as ranks:
        before = ask(ranks)
        found = conclude(ask(ranks), before)
        assert found.text == "The ranks advance from collective to collective: none is stuck."


def test_a_worker_server_on_a_unix_socket_is_asked(tmp_path: Path) -> None:
    script = f"export TORCH_WORKER_SERVER_SOCKET={tmp_path}/$RANK.sock; exec {sys.executable} -u {SCRIPT} unix"
    with started("--no-python", "sh", "-c", script) as ranks:
        survey = ask(ranks)
        assert [one.source for one in survey.answers] == ["debug server"] * 2, survey.answers
        assert conclude(survey).text.startswith("Rank 1 never entered all_reduce #5")


def explain(*files: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gputop", "explain", *files], capture_output=True, text=True, timeout=120
    )


def test_dumps_that_torch_wrote_name_the_rank_and_the_lines(tmp_path: Path) -> None:
    with job("dump", TORCH_FR_DUMP_TEMP_FILE=f"{tmp_path}/trace_rank_") as ranks:
        survey = ask(ranks)
        assert [one.source for one in survey.answers] == [f"{tmp_path}/trace_rank_{rank}" for rank in (0, 1)]
        line = 1 + next(place for place, text in enumerate(LINES) if "left = distributed.all_reduce" in text)
        assert conclude(survey).text.startswith(f"Rank 1 never entered all_reduce #5 (collectives.py:{line})")
        files = [str(path) for path in sorted(tmp_path.iterdir())]
        done = explain(*files)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("2 ranks, collectives compared\nPyTorch flight recorder 2.10")
        assert f"Rank 1 never entered all_reduce #5 (collectives.py:{line})" in " ".join(done.stdout.split())


def test_dumps_of_ranks_that_call_different_collectives(tmp_path: Path) -> None:
    with job("mismatch", TORCH_FR_DUMP_TEMP_FILE=f"{tmp_path}/trace_rank_"):
        said = " ".join(explain(*(str(path) for path in sorted(tmp_path.iterdir()))).stdout.split())
    line = 1 + next(place for place, text in enumerate(LINES) if "left = call(" in text)
    assert f"Rank 1 called broadcast #6 (collectives.py:{line}), rank 0 all_reduce #6 (collectives.py:{line})." in said
