"""gputop scaffold and gputop recipe: the script trains, its trace is read, its NaN hunt finds; its parts run alone."""

from __future__ import annotations

import ast
import gzip
import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from gputop import cli, num_workers
from gputop.doctor import DoctorContext
from gputop.doctor.share import share
from gputop.lab.recipes import recipes, script, with_workers

RECIPES = recipes()
REGIONS = ("data_transfer", "forward", "backward", "optimizer")
FORWARD = "compute(inputs), labels)"  # where a test plants what makes a NaN


def trained(script: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """The script as a person runs it, on two threads."""
    command = [sys.executable, "-W", "error::DeprecationWarning", str(script), *args]
    environ = {**os.environ, "OMP_NUM_THREADS": "2"}
    return subprocess.run(
        command, cwd=script.parent, env=environ, capture_output=True, text=True, timeout=300, check=False
    )


def losses(done: subprocess.CompletedProcess[str]) -> dict[int, float]:
    """The losses that it printed, by step."""
    assert done.returncode == 0, done.stderr
    found = re.findall(r"^step (\d+)  loss (\S+)  \S+ ms/step  [\d,]+ samples/s$", done.stdout, re.MULTILINE)
    return {int(step): float(loss) for step, loss in found}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The script, as the command writes it."""
    path = tmp_path_factory.mktemp("lab") / "train.py"
    assert cli.main(["scaffold", "--no-nvml", str(path)]) == 0
    return path


@pytest.mark.jobs
def test_the_script_trains_to_a_falling_loss_and_continues(written: Path) -> None:
    kept = written.with_name("run.pt")
    first = losses(trained(written, "--steps", "150", "--checkpoint", kept.name, "--save-every", "100"))
    assert list(first) == [50, 100, 150]
    assert first[150] < first[50] / 2
    assert kept.is_file()
    assert not kept.with_name("run.pt.tmp").exists()
    then = losses(trained(written, "--steps", "201", "--checkpoint", kept.name, "--workers", "2"))
    assert list(then) == [200, 201]
    assert then[200] < first[150]


@pytest.mark.jobs
def test_its_trace_is_one_that_explain_reads(written: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path, copies = written.with_name("trace.json.gz"), written.with_name("copies.py")
    # on a CPU nothing is moved: a copy that takes time stands for it
    moved = "torch.stack([tensor] * 400)[0].to(device, non_blocking=True)"
    copies.write_text(written.read_text().replace("tensor.to(device, non_blocking=True)", moved))
    done = trained(copies, "--steps", "9", "--batch-size", "512", "--trace", path.name)
    assert list(losses(done)) == [9]
    assert "aten::addmm" in done.stdout  # the table of operators
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    for name in REGIONS:
        spans = [event for event in events if event.get("cat") == "user_annotation" and event["name"] == name]
        assert len(spans) == 5, name
    assert cli.main(["explain", "--json", str(path)]) == 0
    told = json.loads(capfd.readouterr().out)["files"][0]
    assert told["window"]["by"] == "ProfilerStep"
    assert [one["name"] for one in told["regions"] if one["name"] in REGIONS] == list(REGIONS)
    phases = {phase["name"].removesuffix(" and other") for phase in told["phases"]}
    assert {*REGIONS, "waiting for data"} <= phases


@pytest.mark.jobs
@pytest.mark.parametrize(
    ("planted", "ended", "told"),
    [
        ("compute(inputs).sub(1e3).log(), labels)", "FloatingPointError: log returned NaN; ", ".sub(1e3).log()"),
        ("compute(inputs).mul(0).sqrt().mul(0), labels)", "RuntimeError: Function 'SqrtBackward0' ", ".mul(0).sqrt()"),
    ],
    ids=["forward", "backward"],
)
def test_the_nan_hunt_finds_the_operation(written: Path, planted: str, ended: str, told: str) -> None:
    path = written.with_name("nan.py")
    path.write_text(written.read_text().replace(FORWARD, planted))
    args = ("--steps", "12", "--log-every", "2", "--workers", "0")
    without = trained(path, *args)
    assert without.returncode == 1
    assert "--nan-hunt" in without.stderr
    hunted = trained(path, *args, "--nan-hunt")
    assert hunted.returncode == 1
    assert hunted.stderr.splitlines()[-1].startswith(ended)
    assert told in hunted.stderr  # the line


@pytest.mark.jobs
@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--batch-size", "70000"), "--batch-size 70000 is more than the 65536 samples"),
        (("--trace", "t.json", "--steps", "7"), "--trace records steps 4 to 8 of a run: raise --steps"),
    ],
)
def test_what_cannot_be_done_is_one_line(written: Path, args: tuple[str, ...], said: str) -> None:
    done = trained(written, *args)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"{said}\n")


@pytest.mark.jobs
def test_a_nan_hunt_leaves_a_healthy_run_alone(written: Path) -> None:
    assert list(losses(trained(written, "--steps", "6", "--log-every", "3", "--nan-hunt"))) == [3, 6]


def test_the_number_of_workers_is_that_of_the_doctor(written: Path) -> None:
    assert f"WORKERS = {share(DoctorContext(nvml=False)).workers} " in written.read_text()
    assert script().count("WORKERS = ") == 1
    assert "WORKERS = 7 " in with_workers(script(), lambda: 7)
    assert f"prefetch_factor={num_workers.PREFETCH} if workers else None" in RECIPES["loader"].code
    assert f"at most {num_workers.MOST_FIRST}" in RECIPES["loader"].code


def test_a_file_is_written_as_a_user_writes_one_and_never_over_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "train.py"
    mask = os.umask(0o022)
    try:
        assert cli.main(["scaffold", "--no-nvml", str(path)]) == 0
    finally:
        os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert capsys.readouterr().out == f"wrote {path}; run it with python {path} --steps 200\n"
    path.write_text("mine")
    link = tmp_path / "link.py"
    link.symlink_to(tmp_path / "nowhere.py")
    for name in (path, link):
        assert cli.main(["scaffold", "--no-nvml", str(name)]) == 1
        assert capsys.readouterr().err == f"gputop: {name} exists and is not overwritten; choose another name\n"
    assert path.read_text() == "mine"
    assert not (tmp_path / "nowhere.py").exists()
    assert cli.main(["scaffold", "--readonly", str(tmp_path / "new.py")]) == 64
    assert not (tmp_path / "new.py").exists()
    assert cli.main(["scaffold", "--no-nvml", str(tmp_path / "no" / "x.py")]) == 1
    assert capsys.readouterr().err.splitlines()[-1].endswith("No such file or directory")


def test_a_file_that_cannot_be_written_whole_is_not_left(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    command = f'ulimit -f 4; exec "{sys.executable}" -m gputop scaffold --no-nvml "{path}"'
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"gputop: {path}: File too large\n")
    assert not path.exists()


def test_printed_and_written_are_the_same(written: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for args in ([], ["-"]):
        assert cli.main(["scaffold", "--no-nvml", *args]) == 0
        assert capsys.readouterr().out == written.read_text()


def test_every_recipe_is_listed_and_printed_and_part_of_the_script(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["recipe"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in listed] == list(RECIPES)
    assert all(len(line) <= 100 for line in listed)
    whole = {line.strip() for line in with_workers(script(), lambda: 3).splitlines()}
    for name, found in RECIPES.items():
        assert cli.main(["recipe", name]) == 0
        printed = capsys.readouterr().out
        ast.parse(printed)
        assert f"# [{name}] {found.text}\n" in printed
        body = [line.strip() for line in printed.splitlines() if not line.startswith(("import ", "from ", "WORKERS"))]
        assert set(body) <= whole


def test_the_wanted_recipes_are_there() -> None:
    wanted = {"profiler", "regions", "nan", "amp", "loader", "clip", "compile", "checkpoint", "optimizer", "log"}
    assert wanted <= set(RECIPES)


@pytest.mark.parametrize(
    ("name", "hint"),
    [("dataloader", "did you mean loader?"), ("NaN", "did you mean nan?"), ("\x1b[2J", "`gputop recipe` lists them")],
)
def test_a_wrong_name_is_one_line_with_the_nearest(name: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["recipe", name]) == 64
    said = capsys.readouterr().err
    assert said.endswith(f": {hint}\n")
    assert said.strip().isprintable()


def test_the_recipes_are_clean_code() -> None:
    """By the rules that hold without a project, but for the names that are the reader's own."""
    ruff = Path(sys.executable).with_name("ruff")
    if not ruff.exists():
        pytest.skip("no ruff here")
    for found in RECIPES.values():
        for command in (["check", "--select", "E,F,I,UP,B", "--ignore", "F821"], ["format", "--check"]):
            told = subprocess.run(
                [ruff, *command, "--isolated", "--line-length", "120", "-"],
                input=f"{found.code}\n", capture_output=True, text=True, check=False, timeout=60,
            )  # fmt: skip
            assert told.returncode == 0, (found.name, told.stdout, told.stderr)


ALONE = """
import argparse, pathlib, sys, torch
from gputop.lab.recipes import recipes
device = torch.device("cpu")
model = torch.nn.Linear(8, 4)
own = {
    "device": device, "model": model, "compute": model, "batch": (torch.randn(16, 8), torch.randint(0, 4, (16,))),
    "optimizer": torch.optim.SGD(model.parameters()), "args": argparse.Namespace(no_compile=False, nan_hunt=False),
}
own["inputs"], own["labels"] = own["batch"]
for name, found in recipes().items():
    exec(compile(found.code, name, "exec"), spaces := {**own})
    own[f"of {name}"] = spaces
loader = own["of loader"]["make_loader"](torch.utils.data.TensorDataset(*own["batch"]), 4, 0, device)
assert len(loader) == 4
with own["of profiler"]["make_profiler"](f"{sys.argv[1]}/t.json") as profiler:
    for _ in range(8):
        model(own["inputs"])
        profiler.step()
assert pathlib.Path(sys.argv[1], "t.json").stat().st_size
kept = pathlib.Path(sys.argv[1], "c.pt")
checkpoint = own["of checkpoint"]
assert checkpoint["resume"](kept, model, own["optimizer"], device) == 0
checkpoint["save"](kept, 7, model, own["optimizer"])
assert checkpoint["resume"](kept, model, own["optimizer"], device) == 7
log = own["of log"]["Log"](2, 16)
log.add(1, torch.tensor(1.0), False)
log.add(2, torch.tensor(3.0), False)
with own["of nan"]["nan_hunt"]():
    torch.empty(64).fill_(1).log()
    try:
        torch.tensor(-1.0).log()
    except FloatingPointError as error:
        print(error)
"""


@pytest.mark.jobs
def test_every_recipe_runs_where_its_names_are_known(tmp_path: Path) -> None:
    command = [sys.executable, "-c", ALONE, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^step 2  loss 2\.0000 ", done.stdout, re.MULTILINE)
    assert "log returned NaN" in done.stdout
