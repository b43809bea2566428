"""gputop explain on flight recorder dumps: of all ranks, of one, of several jobs, and of hostile ones."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.flight_dumps import as_json, dump, entry, pickled, until
from tests.traces import busy

pytestmark = pytest.mark.waits

WAITS, LATE = (*until(4), entry(5, state="started")), until(4)


def explain(*args: str, given: bytes | None = None) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "gputop", "explain", *args], input=given, capture_output=True, timeout=120
    )
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def written(folder: Path, *dumps: bytes, name: str = "nccl_trace_rank_{}") -> list[str]:
    for rank, data in enumerate(dumps):
        (folder / name.format(rank)).write_bytes(data)
    return [str(folder / name.format(rank)) for rank in range(len(dumps))]


def test_dumps_of_all_ranks_are_one_page(tmp_path: Path) -> None:
    files = written(tmp_path, *[pickled(*WAITS)] * 3, pickled(*LATE))
    done = explain(*files)
    assert (done.returncode, done.stderr) == (0, "")
    assert (
        done.stdout
        == """\
4 ranks, collectives compared
PyTorch flight recorder 2.10, NCCL 2.27.5: 4 to 5 collectives per rank

Findings
  ▲ CRIT  Rank 3 never entered all_reduce #5 (train.py:88); it last entered all_reduce #4
          (train.py:88). Ranks 0, 1, 2 wait in it.
          → Find out why rank 3 did not reach train.py:88: its log, its stack, its host.
          → Check collectives inside `if rank == 0`, uneven batches per rank, slow checkpoints and
            evaluation.
          → At the next hang, compare the stacks of all ranks. PID is that of any rank.
            gputop stack --job PID

Ranks        last entered  completed       waits in           at
  rank 0    all_reduce #5         #4  all_reduce #5  train.py:88
  rank 1    all_reduce #5         #4  all_reduce #5  train.py:88
  rank 2    all_reduce #5         #4  all_reduce #5  train.py:88
  > rank 3  all_reduce #4         #4                 train.py:88

  Note: read without unpickling: no code in it was run
"""
    )


def test_json_has_the_comparison_and_each_file(tmp_path: Path) -> None:
    found: dict[str, Any] = json.loads(explain("--json", *written(tmp_path, pickled(*WAITS), pickled(*LATE))).stdout)
    assert [(one["kind"], one["rank"], one["operations"]) for one in found["files"]] == [
        ("flight-recorder", 0, 5), ("flight-recorder", 1, 4),
    ]  # fmt: skip
    assert [one["ranks"] for one in found["collectives"]["discrepancies"]] == [["rank 1"]]
    assert found["collectives"]["unrecorded"] == [2, 3]


def test_a_single_dump_says_what_it_waits_in_and_what_to_do(tmp_path: Path) -> None:
    said = " ".join(explain(*written(tmp_path, pickled(*WAITS))).stdout.split())
    assert "Rank 0 waits in all_reduce #5 (train.py:88)." in said
    assert "There is no record of ranks 1, 2, 3" in said
    assert "Compare the dumps of all ranks to find the one that is missing: gputop explain PREFIX*." in said


def test_what_the_debug_server_answers_is_read_from_a_file(tmp_path: Path) -> None:
    files = written(tmp_path, as_json(*WAITS), as_json(*LATE), name="rank{}.json")
    assert "Rank 1 never entered all_reduce #5; it last entered all_reduce #4." in explain(*files).stdout


@pytest.mark.parametrize(
    ("names", "ranks", "why"),
    [
        (("a/rank_0", "b/rank_0"), range(4), "rank 0 has 2 files"),
        (("one", "two"), range(4), "one does not end with a rank, as nccl_trace_rank_3 does"),
        (("rank_0", "rank_7"), range(4), "rank 7 is in none of its groups"),
    ],
)
def test_dumps_that_are_not_of_one_job_are_read_alone(
    tmp_path: Path, names: tuple[str, str], ranks: range, why: str
) -> None:
    for name, entries in zip(names, (WAITS, LATE), strict=True):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(pickled(*entries, ranks=ranks))
    said = explain(*(str(tmp_path / name) for name in names)).stdout
    assert f"Not the ranks of one job: {why}. Each is read alone." in " ".join(said.split())
    assert said.count("PyTorch flight recorder 2.10") == 2


def test_dumps_of_jobs_of_other_sizes_are_not_compared(tmp_path: Path) -> None:
    files = written(tmp_path, pickled(*WAITS, ranks=range(4)), pickled(*LATE, ranks=range(8)))
    assert "they are of jobs of 4 and 8 ranks" in explain(*files).stdout


def test_a_trace_beside_dumps_has_its_own_page(tmp_path: Path) -> None:
    path = busy().write(tmp_path / "trace.json")
    said = explain(*written(tmp_path, pickled(*WAITS), pickled(*LATE)), path).stdout
    assert said.startswith("2 ranks, collectives compared")
    assert "trace.json" in said


class Evil:
    def __reduce__(self) -> Any:
        return os.mkdir, ("/tmp/gputop-evil",)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (pickle.dumps({**dump(*WAITS), "x": Evil()}), "contains Python objects"),
        (pickled(*WAITS)[:-20], "truncated or damaged: dump it again"),
        (as_json(*WAITS)[:-20], "not JSON, or truncated"),
        (pickle.dumps({"version": "2.10", "pg_config": {}, "entries": "x" * 1000, "pg_status": 7}), ""),
    ],
)
def test_a_hostile_dump_is_one_line(tmp_path: Path, data: bytes, why: str) -> None:
    done = explain(*written(tmp_path, data))
    assert done.returncode == (1 if why else 0)
    assert why in done.stderr
    assert done.stderr.count("\n") == (1 if why else 0)
    assert not Path("/tmp/gputop-evil").exists()


def test_of_several_files_the_readable_ones_are_compared(tmp_path: Path) -> None:
    files = written(tmp_path, pickled(*WAITS), pickled(*LATE), pickled(*WAITS)[:-20])
    done = explain(*files)
    assert done.returncode == 1
    said = " ".join(done.stdout.split())
    assert "nccl_trace_rank_2 is skipped: truncated or damaged: dump it again." in said
    assert "Rank 1 never entered all_reduce #5" in said
    assert "There is no record of ranks 2, 3" in said


def test_dumps_are_not_compared_over_time(tmp_path: Path) -> None:
    done = explain("--diff", *written(tmp_path, pickled(*WAITS), pickled(*LATE)))
    assert (done.returncode, done.stderr) == (64, "gputop: --diff compares two traces or two profiles, not a mix\n")


def test_a_status_of_ras_from_a_pipe_is_explained() -> None:
    status = Path(__file__).parents[1] / "collectives/ras/mismatch-2.27.txt"
    done = explain("-", given=status.read_bytes())
    assert done.returncode == 0
    assert "Rank 3 (process 41210 on 10.0.0.7) launched 4,710 AllReduce operations" in " ".join(done.stdout.split())
