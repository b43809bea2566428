"""gputop explain as a person runs it: words first, one line for what is wrong, a real trace of torch."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.hostile import STRINGS
from tests.traces import FP32, Made, busy, of_tensorflow, starved

pytestmark = pytest.mark.waits

LOOP = """
import sys, torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, schedule
from torch.utils.data import DataLoader, TensorDataset


def recorded(path, workers):
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.AdamW(model.parameters())
    data = TensorDataset(torch.randn(512, 64), torch.randint(0, 10, (512,)))
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=1, warmup=1, active=4, repeat=1),
        record_shapes=True,
        profile_memory=True,
        on_trace_ready=lambda done: done.export_chrome_trace(path),
    ) as recorded:
        for number, (inputs, labels) in enumerate(DataLoader(data, batch_size=32, num_workers=workers)):
            loss = nn.functional.cross_entropy(model(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            recorded.step()
            if number == 8:
                break


for workers in (0, 2):
    recorded(f"{sys.argv[1]}/{workers}.json.gz", workers)
"""


def explain(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gputop", "explain", *args], capture_output=True, text=True, timeout=120
    )


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what torch wrote of a loop, by its number of loaders."""
    folder = tmp_path_factory.mktemp("real")
    (folder / "loop.py").write_text(LOOP)
    subprocess.run([sys.executable, str(folder / "loop.py"), str(folder)], check=True, capture_output=True, timeout=120)
    return folder


@pytest.mark.parametrize(("workers", "iterator"), [(0, "_SingleProcess"), (2, "_MultiProcessing")])
def test_a_real_trace_of_torch(real: Path, workers: int, iterator: str) -> None:
    path = real / f"{workers}.json.gz"
    told = json.loads(explain("--json", str(path)).stdout)["files"][0]
    # the first step of a program is longer
    assert not [note for note in told["notes"] if not note.startswith("The first step takes")]
    assert told["window"]["by"] == "ProfilerStep"
    assert told["window"]["steps"] >= 3  # on a machine that stutters the last may look cut
    assert told["gpu_time"] is None
    phases = {phase["name"]: phase["cpu_ms"] for phase in told["phases"]}
    assert {"waiting for data", "backward", "optimizer", "zero_grad", "forward and other"} <= set(phases)
    assert all(ms > 0 for ms in phases.values())
    assert sum(phases.values()) == pytest.approx(told["window"]["ms"], rel=0.02)
    operators = {each["name"]: each for each in told["operators"]}
    assert operators["aten::addmm"]["count"] in (8, 2 * told["window"]["steps"])  # of a step left out, not
    assert any(name.startswith(f"enumerate(DataLoader)#{iterator}") for name in operators)
    assert "No GPU was traced" in explain(str(path)).stdout


def test_words_come_before_numbers(tmp_path: Path) -> None:
    done = explain(starved().write(tmp_path / "a.json"))
    assert done.returncode == 0
    assert done.stderr == ""
    said, numbers = done.stdout.index("Findings"), done.stdout.index("GPU time")
    assert said < done.stdout.index("GPU busy 8 % of the time.") < done.stdout.index("T02") < numbers
    assert max(map(len, done.stdout.splitlines())) <= 100


def test_several_traces_are_the_ranks_of_one_job(tmp_path: Path) -> None:
    files = [busy(steps=2, distributedInfo={"rank": rank}).write(tmp_path / f"{rank}.json") for rank in (0, 1)]
    told = explain(*files).stdout
    assert told.startswith("2 ranks\n")
    assert told.index("rank 1, 1.json") < told.index("Findings")
    assert len(json.loads(explain("--json", *files).stdout)["files"]) == 2


def test_traces_that_are_not_of_one_job_are_told_apart(tmp_path: Path) -> None:
    def told(*heads: dict[str, object]) -> str:
        files = [busy(steps=2, **head).write(tmp_path / f"{n}.json") for n, head in enumerate(heads)]
        return " ".join(explain(*files).stdout.split())

    ranks = [{"distributedInfo": {"rank": rank, "world_size": size}} for rank, size in ((0, 2), (0, 2), (1, 4))]
    assert "Not the ranks of one job: rank 0 occurs more than once." in told(*ranks[:2])
    assert "one job: their world sizes differ: 2 and 4." in told(*ranks[1:])
    assert told({}, {}).startswith("2 traces Findings Not the ranks of one job: 0.json names no rank")
    assert json.loads(explain("--json", *map(str, tmp_path.glob("[01].json"))).stdout)["apart"]


def test_old_traces_are_ranks_where_one_of_them_talks(tmp_path: Path) -> None:
    """PyTorch did not always write ranks, and not every rank talks in every step; gloo talks through the CPU."""
    talks = busy(steps=2)
    talks.note("gloo:all_reduce", 10, 5000)
    files = talks.write(tmp_path / "talks.json"), busy(steps=2).write(tmp_path / "quiet.json")
    assert explain(*files).stdout.startswith("2 ranks\n")


def test_a_file_of_another_program_says_so(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(
        '{"traceEvents": [{"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 2}]}'
    )
    assert "Not a torch.profiler trace" in explain(str(tmp_path / "x.json")).stdout


def test_two_traces_are_compared(tmp_path: Path) -> None:
    before = starved().write(tmp_path / "before.json")
    after = starved(kernels=50, each_us=40).write(tmp_path / "after.json.gz")
    done = explain("--diff", before, after)
    assert "Steps are 5.00× faster: 25 ms before, 5 ms after." in done.stdout
    assert "Resolved: T02 launch-bound." in done.stdout
    told = json.loads(explain("--diff", "--json", before, after).stdout)["files"][0]
    assert [told["before"], told["after"], told["gone"]] == ["before.json", "after.json.gz", ["T02 launch-bound"]]
    numbers = {each["name"]: (each["before"], each["after"]) for each in told["numbers"]}
    assert numbers["kernels per step"] == (250, 50)
    same = explain("--diff", before, before)
    assert "Step time is unchanged: 25 ms." in same.stdout


def test_two_traces_without_a_gpu_are_compared_by_the_parts_of_a_step(tmp_path: Path) -> None:
    paths = []
    for name, waits_us in (("old", 8_000), ("new", 2_000)):
        made = Made()
        for step in range(3):
            made.step(step, step * 10_000, 10_000)
            made.note("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", step * 10_000 + 100, waits_us)
        (tmp_path / name).mkdir()
        paths.append(made.write(tmp_path / name / "trace.json"))
    told = explain("--diff", *paths).stdout
    assert told.startswith("old/trace.json → new/trace.json\n")
    assert re.search(r"waiting for data +8 ms +2 ms\n", told)
    assert "Resolved: T03 input-bound." not in told  # it still waits
    assert "idle" not in told
    assert "GPU busy" not in told
    assert "GPU busy" not in explain(paths[0]).stdout, "unknown, not 0"


def test_a_profile_is_explained_and_compared_too(tmp_path: Path) -> None:
    for name, count in (("a.txt", 45), ("b.txt", 2)):
        (tmp_path / name).write_text(
            f"main (t.py:1);__next__ (torch/utils/data/dataloader.py:7) {count}\nmain (t.py:1) 50\n"
        )
    a, b = str(tmp_path / "a.txt"), str(tmp_path / "b.txt")
    assert "dataloader-bound, 47 % of samples wait for the DataLoader" in explain(a).stdout
    assert "from 47 % to 4 %" in explain("--diff", a, b).stdout
    assert json.loads(explain("--json", a).stdout)["files"][0]["samples"] == 95
    assert json.loads(explain("--diff", "--json", a, b).stdout)["files"][0]["functions"]


@pytest.mark.parametrize("name", ["{closure}", "[unknown]", "[io] x (21351 of 21346)"])
def test_stacks_that_begin_with_a_bracket_are_no_trace(name: str, tmp_path: Path) -> None:
    path = tmp_path / "stacks.txt"
    path.write_text(f"{name};a;b 10\n{name};c 5\n")
    assert json.loads(explain("--json", str(path)).stdout)["files"][0]["samples"] == 15


def test_markdown_has_nothing_that_it_would_obey(tmp_path: Path) -> None:
    made = busy(steps=2, kernels=3)
    for place, name in enumerate(STRINGS):
        made.kernel(f"|{name}|", place, 10_000)
    text = explain("--format", "md", made.write(tmp_path / "a.json")).stdout
    assert text.startswith("# a.json\n")
    assert not re.search(r"(?<!\\)[<`]", text)
    rows = [line for line in text.splitlines() if line.startswith("|") and "---" not in line]
    assert all(len(re.split(r"(?<!\\)\|", row)) in (4, 5, 6, 7) for row in rows)
    assert all(line.isprintable() for line in text.splitlines())


@pytest.mark.parametrize(
    ("args", "code", "why"),
    [
        (("none.json",), 1, "No such file"),
        (("--diff", "a.json"), 64, "--diff takes two files"),
        (("empty.json",), 1, "is empty"),
        (("words.json",), 1, "neither a torch trace"),
        (("other.json",), 1, "no traceEvents"),
        (("--diff", "a.json", "a.txt"), 64, "not a mix"),
        ((), 64, "required"),
    ],
)
def test_bad_input_is_one_clear_line(args: tuple[str, ...], code: int, why: str, tmp_path: Path) -> None:
    busy(steps=1, kernels=2).write(tmp_path / "a.json")
    for name, text in (("empty.json", ""), ("words.json", "hello"), ("other.json", "{}"), ("a.txt", "a;b 3\n")):
        (tmp_path / name).write_text(text)
    done = explain(*(arg if arg.startswith("-") else str(tmp_path / arg) for arg in args))
    assert (done.returncode, done.stdout) == (code, "")
    assert len(done.stderr.splitlines()) == 1
    assert why in done.stderr


def test_a_trace_of_tensorflow_is_read_for_what_it_shares(tmp_path: Path) -> None:
    path = tmp_path / "host.trace.json.gz"
    path.write_bytes(gzip.compress(of_tensorflow(4, 6_000).encode()))
    told = json.loads(explain("--json", str(path)).stdout)["files"][0]
    assert (told["gpus"], told["window"]) == (1, {"ms": 40, "steps": 4, "by": "TensorFlow step"})
    assert [row["number"] for row in told["steps"]] == [5, 6, 7, 8]
    assert {row["name"]: (row["kind"], row["count"], row["ms"]) for row in told["kernels"]} == {
        "Memcpy HtoD": ("to_device", 4, 3.6),
        FP32: ("compute", 4, 3.6),
    }
    assert told["gpu_time"]["busy"] == pytest.approx(0.18)
    assert told["gpu_time"]["launch_delay_p50_ms"] == pytest.approx(0.095)
    assert {finding["rule"][:3] for finding in told["findings"]} >= {"T03", "T04"}
    assert told["notes"] == ["written by TensorFlow or JAX: verdicts and advice use PyTorch's terms"]


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"main (t.py:1);f (t.py:2) 45\nmain (t.py:1) 50\nmain (t.p", "1 line left out: not a stack with a count."),
        (
            gzip.compress(b"".join(b"main (t.py:1);f%d (t.py:2) 45\n" % n for n in range(20_000)), mtime=0)[:-2000],
            "The compressed file is truncated: read up to there.",
        ),
    ],
)
def test_a_cut_profile_says_so_first(tmp_path: Path, data: bytes, problem: str) -> None:
    path = tmp_path / "stacks.txt"
    path.write_bytes(data)
    done = explain(str(path))
    assert (done.returncode, done.stderr) == (1, "")
    assert problem in done.stdout.split("Findings")[1][:100]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_profile_in_an_encoding_of_windows(tmp_path: Path, encoding: str) -> None:
    text = "main (t.py:1);f (t.py:2) 45\nmain (t.py:1) 50\n"
    (tmp_path / "stacks.txt").write_bytes(text.encode(encoding))
    told = json.loads(explain("--json", str(tmp_path / "stacks.txt")).stdout)["files"][0]
    assert (told["samples"], told["problems"]) == (95, [])
    assert {each["name"] for each in told["functions"]} == {"main (t.py)", "f (t.py)"}


def _ranks(folder: Path, *made: Made) -> str:
    folder.mkdir()
    for rank, one in enumerate(made):
        one.head["distributedInfo"] = {"rank": rank, "world_size": len(made)}
        one.write(folder / f"{folder.name}-{rank}.json")
    return str(folder)


def test_two_folders_of_ranks_are_compared_rank_by_rank(tmp_path: Path) -> None:
    """Rank 0 goes from steps of 25 ms to 5 ms; rank 1 stays at 100 ms."""
    before = _ranks(tmp_path / "before", starved(), busy())
    after = _ranks(tmp_path / "after", starved(kernels=50, each_us=40), busy())
    done = explain("--diff", before, after)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("2 ranks compared\n")
    assert re.search(r"rank 0 +25 ms +5 ms", done.stdout)
    assert re.search(r"rank 1 +100 ms +100 ms +100.0 % +100.0 %", done.stdout)
    assert "before-0.json → after-0.json\n" in done.stdout
    files = json.loads(explain("--diff", "--json", before, after).stdout)["files"]
    assert [(one["before"], one["after"]) for one in files] == [
        ("before-0.json", "after-0.json"), ("before-1.json", "after-1.json"),
    ]  # fmt: skip
    one = explain("--diff", f"{before}/before-1.json", after).stdout
    assert one.startswith("before-1.json → after-1.json\n")


def test_folders_that_do_not_match_are_refused_in_one_line(tmp_path: Path) -> None:
    two = _ranks(tmp_path / "two", busy(steps=2), busy(steps=2))
    three = _ranks(tmp_path / "three", *(busy(steps=2) for _ in range(3)))
    lone = busy(steps=2).write(tmp_path / "lone.json")
    (tmp_path / "jobs").mkdir()
    jobs = [busy(steps=2).write(tmp_path / "jobs" / f"{n}.json") for n in range(2)]
    for sides, why in (
        ((two, three), "2 of"),
        ((lone, two), "a trace without a rank"),
        ((str(Path(jobs[0]).parent), two), "not the ranks of one job"),
    ):
        done = explain("--diff", *sides)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (64, "", 1)
        assert why in done.stderr


def test_files_alike_in_folders_alike_are_told_apart(tmp_path: Path) -> None:
    files = []
    for run in ("run1", "run2"):
        (tmp_path / run / "traces").mkdir(parents=True)
        files.append(busy(steps=2).write(tmp_path / run / "traces" / "x.json"))
    assert explain("--diff", *files).stdout.startswith("run1/traces/x.json → run2/traces/x.json\n")
