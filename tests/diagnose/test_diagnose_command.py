"""gputop diagnose as a person runs it: on recordings, and live where much cannot be seen."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gputop.cli import COMMANDS
from gputop.cli.diagnose import ACTIONS, DiagnosisSink
from gputop.demo.bystanders import hide
from gputop.diagnose.rules import RULES
from gputop.model import Frame, Note
from gputop.monitor import Update
from tests.diagnose_runs import FEW, Recorded, diagnose, gputop
from tests.fakenvml import Fake, NoCompiler
from tests.process_watch import running
from tests.rule_cases import Machine, refused
from tests.score.disturbed import STRANGER, no_units

pytestmark = pytest.mark.waits

FINDING = [
    "rule", "severity", "healthy", "primary", "causes", "confidence", "grade", "subject", "headline", "evidence",
    "steps", "verify", "since_s", "lost_share", "state",
]  # fmt: skip


@pytest.mark.parametrize(("busy", "code"), [(97.0, 0), (55.0, 1), (40.0, 2)])
def test_the_exit_code_says_how_bad_it_is(recorded: Recorded, busy: float, code: int) -> None:
    machine = replace(FEW, gpu={"busy_percent": busy})
    done = diagnose("--json", "--source", recorded(machine.frame))
    assert (done.returncode, done.stderr) == (code, "")
    told = json.loads(done.stdout)
    assert list(told) == [
        "version",
        "gputop",
        "host",
        "seconds",
        "findings",
        "abstained",
        "classes",
        "jobs",
        "host_state",
        "proven",
    ]
    assert told["proven"] == []
    assert (told["version"], told["host"], told["seconds"]) == (1, "h", 120)
    first = told["findings"][0]
    assert list(first) == FINDING
    assert (first["primary"], first["rule"]) == (True, "starved-cpu-idle" if code else "gpu-bound-healthy")
    assert first["subject"] == {"kind": "process", "gpus": ["0"], "pids": [100], "job": "j", "host": "h"}
    (of,) = told["classes"]
    assert list(of) == ["pid", "class", "margin", "path"]
    assert of["path"][0] == {"question": "does it use a GPU?", "answer": f"yes, {busy:.0f} % busy"}


def test_text_and_markdown_are_as_they_were(recorded: Recorded, golden: Callable[[str, str], None]) -> None:
    path = recorded(replace(FEW, host=refused("io_pressure")).frame)
    golden("diagnose.txt", diagnose("--source", path).stdout)
    golden("diagnose-explain.txt", diagnose("--source", path, "--explain").stdout)
    golden("diagnose.md", diagnose("--source", path, "--format", "md").stdout)
    plain = diagnose("--source", path, "--ascii").stdout
    assert plain.isascii()
    assert "! WARN" in plain
    assert "?" not in plain


def test_what_was_and_is_no_more_is_told(recorded: Recorded) -> None:
    machine = Machine(gpu={"throttled_heat_percent": lambda t: 9.0 if t < 100 else 0.0})
    done = diagnose("--source", recorded(machine.frame, 240))
    assert done.returncode == 0
    assert "Note: cleared: warn 0:" in done.stdout
    assert ", GPU 0" in done.stdout.partition("Note: cleared: ")[2].partition("\n")[0]


def test_one_process_and_what_is_about_it(recorded: Recorded) -> None:
    path = recorded(FEW.frame)
    assert "starved-cpu-idle" in diagnose("--source", path, "--pid", "100").stdout
    loader = diagnose("--source", path, "--pid", "200")
    assert (loader.returncode, "starved-cpu-idle" in loader.stdout) == (1, True)
    nobody = diagnose("--source", path, "--pid", "77")
    assert (nobody.returncode, nobody.stdout) == (3, "")
    assert nobody.stderr == "gputop: no process with PID 77 in run.jsonl\n"


def test_a_slurm_job_is_reported_as_it_was_before_it_ended(recorded: Recorded) -> None:
    """Its shell remains for a moment, then all of it is gone; the GPU is idle."""

    def frame(t: float) -> Frame:
        seen = FEW.frame(t)
        placed = tuple(replace(process, slurm_job="812") for process in seen.processes)
        if t < 120:
            return replace(seen, processes=placed, jobs=tuple(replace(job, slurm_job="812") for job in seen.jobs))
        shell = tuple(replace(process, job=None, gpus=()) for process in placed[:1]) if t < 125 else ()
        idle = tuple(replace(gpu, busy_percent=0.0) for gpu in seen.gpus)
        return replace(seen, processes=shell, jobs=(), gpus=idle)

    path = recorded(frame, 240)
    done = diagnose("--source", path, "--slurm-job", "812", "--slurm-job", "sEKNKTV3WPV500")
    assert (done.returncode, done.stderr) == (1, "")
    assert ", watched for 2 min until" in done.stdout
    assert ", about Slurm job 812" in done.stdout
    assert "starved-cpu-idle" in done.stdout
    assert "starved-cpu-idle" not in diagnose("--source", path).stdout.partition("Note: cleared")[0]
    other = diagnose("--source", path, "--slurm-job", "77")
    assert (other.returncode, other.stdout) == (3, "")
    assert other.stderr == "gputop: no process of Slurm job 77 in run.jsonl\n"


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["--pid", "1", "--slurm-job", "7"], 64, "exclude each other"),
        (["--for", "5s"], 64, "use 40s or more"),
        (["--for", "soon"], 64, "duration"),
        (["--pid", "me"], 64, "me"),
        (["--json", "--format", "md"], 64, "use one"),
        (["--source", "demo:helthy"], 64, "healthy"),
        (["--pid", "4194304000"], 3, "no process with PID 4194304000"),
        (["--source", "/dev/null"], 3, "/dev/null"),
        (["--source", "-"], 3, "standard input"),
    ],
)
def test_what_cannot_be_is_one_line(args: list[str], code: int, says: str) -> None:
    done = diagnose(*args, stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (code, "", 1)
    assert done.stderr.startswith("gputop: ")
    assert says in done.stderr


def test_too_little_is_not_called_healthy_and_a_stream_is_read_to_its_end(recorded: Recorded) -> None:
    with Path(recorded(Machine().frame, 20)).open() as stream:
        short = diagnose("--source", "-", stdin=stream)
    assert short.returncode == 3
    assert short.stderr == (
        "gputop: 20 s are too short to judge: rules need 30 s of samples\n"
        "gputop: j (GPU 0): judging: GPU busy 97 % so far, 18 of 60 s\n"
    )
    assert "healthy" not in short.stdout
    assert short.stdout.count("20 s are too short to judge") == 2
    assert "j (GPU 0)  judging: GPU busy 97 % so far, 18 of 60 s" in short.stdout
    with Path(recorded(FEW.frame)).open() as stream:
        assert diagnose("--source", "-", stdin=stream).returncode == 1


@pytest.mark.parametrize(("cpu", "may_be_said"), [(97.0, {"starved-cpu-idle"}), (5.0, {"starved-cause-unknown"})])
def test_another_user_of_an_older_card_gets_reasons_and_no_guess(
    recorded: Recorded, cpu: float, may_be_said: set[str]
) -> None:
    machine = replace(FEW, gpu={"busy_percent": 60.0}, loader={"cpu_percent": cpu, "main_thread_percent": cpu})

    def frame(t: float) -> Frame:
        made = no_units(machine.frame(t))
        return replace(made, processes=tuple(hide(process, STRANGER) for process in made.processes))

    told = json.loads(diagnose("--json", "--source", recorded(frame)).stdout)
    alarms = [one for one in told["findings"] if one["severity"] != "info" and one["confidence"] >= 0.5]
    assert {rule for one in alarms for rule in (one["rule"], *one["causes"])} <= may_be_said
    assert all(one["confidence"] < 0.75 for one in alarms)
    assert "blind-spots" in {one["rule"] for one in told["findings"]}
    assert "denied" in {missing["reason"] for one in told["abstained"] for missing in one["missing"]}
    assert "sudo gputop" in {one["unlock"] for one in told["abstained"]}


def test_names_that_others_chose_are_not_obeyed(recorded: Recorded) -> None:
    name = "x`| **y** <b> \x1b[31m"

    def frame(t: float) -> Frame:
        made = FEW.frame(t)
        return replace(made, jobs=(replace(made.jobs[0], name=name, user="--token=hunter2"),))

    path = recorded(frame)
    for form in ("text", "md"):
        said = diagnose("--source", path, "--format", form).stdout
        assert "\x1b" not in said
        assert "hunter2" not in said
    assert "x\\`\\| \\*\\*y\\*\\* \\<b\\>" in said


TRAIN = "import time\nwhile True: time.sleep(0.01)\n"


@pytest.fixture(scope="module")
def live() -> Iterator[dict[str, subprocess.CompletedProcess[str]]]:
    """What is said live, at the same time: in a namespace, without a driver, of a job that has only begun."""
    if os.geteuid():
        pytest.skip("not covered: needs root")
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "train.py").write_text(TRAIN)
        try:
            fake = Fake(folder / "driver", gpus=2)
        except NoCompiler as why:
            pytest.skip(f"not covered: {why}")
        trainer = stack.enter_context(running(sys.executable, str(folder / "train.py")))
        fake.add_process(gpu=0, pid=trainer.pid, vram_bytes=20 << 30, sm=95)
        for path in (folder / "driver").rglob("*"):
            path.chmod(0o777)
        (folder / "driver").chmod(0o777)
        ask = [sys.executable, "-m", "gputop", "diagnose", "--json", "--for", "40s"]
        wrappers = {
            "namespace": (["unshare", "-p", "-f", "--mount-proc"], ()),
            "no driver": ([], ("--no-nvml",)),
            "young": ([], ()),
        }
        how: dict[str, Any] = {"env": fake.env(), "stderr": subprocess.PIPE}
        started = {
            which: stack.enter_context(running(*before, *ask, *after, **how))
            for which, (before, after) in wrappers.items()
        }
        done = {}
        for which, child in started.items():
            out, errors = child.communicate(timeout=240)
            done[which] = subprocess.CompletedProcess(child.args, child.returncode, out, errors)
        yield done


def test_n26_in_a_private_pid_namespace_no_process_is_accused(
    live: dict[str, subprocess.CompletedProcess[str]],
) -> None:
    told = json.loads(live["namespace"].stdout)
    assert [one["rule"] for one in told["findings"] if one["subject"]["pids"]] == []
    assert {one["rule"] for one in told["findings"] if one["severity"] != "info"} == set()
    assert told["classes"] == []
    assert live["namespace"].returncode == 3, "nothing is wrong can only be said of what was seen"
    by_gpu = {tuple(one["subject"]["gpus"]): one for one in told["abstained"] if one["rule"] == "blind-spots"}
    assert by_gpu.keys() == {("0",), ("1",)}, "both are at work, and on one the driver names nobody"
    one = by_gpu["0",]
    assert one["missing"] == [{"metric": "gpus", "reason": "denied"}]
    assert one["unlock"].endswith(
        "outside this container: run gputop on the host, or start the container with --pid=host"
    )
    assert "(GPU 0): unknown: its process is outside this container" in live["namespace"].stderr
    assert {job["state"] for job in told["jobs"]} == {"unknown"}


def test_a_job_that_is_a_second_old_is_waited_for_and_never_called_healthy(
    live: dict[str, subprocess.CompletedProcess[str]],
) -> None:
    done = live["young"]
    assert "gputop: continues for up to 90 s: " in done.stderr
    own = r"GPU busy \d+ % so far, \d+ of 90 s"
    others = r"no GPU in use, .* of \d+ s, and \d+ more"  # trainings of other tests may be named before it
    assert re.search(f"judging: ({own}|{others})", done.stderr)
    told = json.loads(done.stdout)
    assert 80 <= told["seconds"] <= 40 + 91, "until there was a verdict, or time enough for one"
    (job,) = [one for one in told["jobs"] if one["user"] and one["gpus"]]  # other tests train without
    assert job["state"] != "healthy"
    assert done.returncode in ((0, 1, 2) if job["state"] == "found" else (3,))


def test_n01_without_a_driver_nothing_is_called_healthy(live: dict[str, subprocess.CompletedProcess[str]]) -> None:
    done = live["no driver"]
    assert done.returncode == 3
    assert "gputop: no GPU found: only host rules are checked for 40 s\n" in done.stderr
    assert done.stderr.endswith("gputop: no GPU could be measured; run `gputop doctor` for the reason\n")
    assert json.loads(done.stdout)["seconds"] >= 40, "what needs half a minute to show is looked for as long as asked"


def test_what_a_machine_without_a_gpu_suffers_from_is_its_exit_code(recorded: Recorded) -> None:
    machine = replace(FEW, host={"shm_total_bytes": 64 << 20, "shm_used_bytes": 64 << 20})

    def frame(t: float) -> Frame:
        made = machine.frame(t)
        return replace(made, gpus=(), processes=tuple(replace(process, gpus=()) for process in made.processes))

    done = diagnose("--source", recorded(frame))
    assert (done.returncode, done.stderr) == (2, "")
    assert "h: 1 crit" in done.stdout
    assert "no GPU could be measured; run `gputop doctor` for the reason." in done.stdout


def test_what_a_step_asks_for_is_a_command() -> None:
    assert set(ACTIONS) <= set(COMMANDS)


def test_rules_are_listed_and_told_in_full(tmp_path: Path) -> None:
    listed = gputop("rules").stdout
    assert all(f"`{name}`" in listed for name in RULES)
    (tmp_path / "site.toml").write_text("[thermal]\nusual_celsius = 70\n")
    (tmp_path / "config.toml").write_text(f'thresholds = "{tmp_path / "site.toml"}"\n')
    one = gputop("rules", "thermal").stdout
    assert RULES["thermal"].question in one
    assert "usual_celsius" not in one, "names of thresholds are for sites"
    for asked in (["thermal"], []):
        numbers = gputop("rules", *asked, "--thresholds", "--config", str(tmp_path / "config.toml")).stdout
        assert "70 (shipped: 83)" in numbers
        assert "67 (shipped: 80)" in numbers, "the limit for clearing stays as far from it"
    assert "Needs: `temperature_celsius`, either `throttled_heat_percent` or " in one
    assert "specification" not in one
    wrong = gputop("rules", "thermel")
    assert (wrong.returncode, wrong.stdout) == (64, "")
    assert wrong.stderr == "gputop: unknown rule 'thermel': did you mean thermal?\n"


def test_that_there_is_no_gpu_is_said_once_and_not_while_a_driver_opens() -> None:
    said: list[str] = []
    frame = Machine().frame(0.0)
    for key in ("waiting", "off"):
        note, look = Note(subject="driver", key=key, text=key), DiagnosisSink(without_gpus=partial(said.append, key))
        for t in range(8):
            shown = replace(frame, gpus=(), notes=(note,), mono_s=frame.mono_s + t)
            look.take(Update(frame=shown))
    assert said == ["off"]
