"""record, replay and log as a user runs them."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
import signal
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gputop import docs
from gputop.export.log import COLUMNS, row
from gputop.model import Noted
from gputop.record.recording import Recording
from tests.fakenvml import Fake
from tests.pty_programs import Terminal, wait_until
from tests.record.test_record import NAMES, record, replayed
from tests.record_child import frames
from tests.rule_cases import Machine

pytestmark = pytest.mark.waits

GPUTOP = (sys.executable, "-m", "gputop")
DEMO = ("--source", "demo:healthy", "--interval", "0.25")
FIRST = "timestamp,gpu_idx,util_pct,mem_used_mb,mem_total_mb,temp_c,power_w"


def run(*args: str, **more: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*GPUTOP, *args], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False, **more
    )  # type: ignore[call-overload, no-any-return]


def shell(command: str) -> subprocess.CompletedProcess[str]:
    script = command.replace("gputop ", f"{shlex.join(GPUTOP)} ")
    return subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("name", NAMES)
def test_record_ends_by_itself_and_can_be_asked(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    done = run("record", str(path), *DEMO, "--for", "1s")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{path}: 4 frames, ")
    assert len(replayed(path)) == 4
    lines = run("snapshot", "--source", str(path), "--format", "jsonl", "--count", "99").stdout.splitlines()
    assert [json.loads(line)["type"] for line in lines] == ["header", *["frame"] * 4]
    assert json.loads(run("--json", "--source", str(path)).stdout)["frame"]["hostname"] == "dgx-07"
    itself = run("record", str(path), "--source", str(path))
    assert (itself.returncode, itself.stderr.count("\n")) == (64, 1)
    other = tmp_path / f"other-{name}"
    assert run("record", str(other), "--source", str(path)).returncode == 0
    assert replayed(other) == replayed(path)


def test_one_frame_is_one_frame(tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl"
    record(path, frames(1))
    done = run("record", str(tmp_path / "again.jsonl"), "--source", str(path))
    assert ": 1 frame, " in done.stdout


def test_a_pipe_holds_a_recording() -> None:
    flags = shlex.join(DEMO)
    done = shell(f"gputop record - {flags} --for 2s | gputop snapshot --source - --count 99 --format csv")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 1 + 8


def test_a_packed_pipe_holds_a_recording(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl.gz"
    record(path, frames(70))
    done = shell(f"cat {path} {path} | gputop snapshot --source - --count 999 --format csv")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 1 + 140


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("name", NAMES)
def test_t01_a_signal_ends_a_recording_whole(tmp_path: Path, name: str, number: signal.Signals) -> None:
    path = tmp_path / name
    argv = [*GPUTOP, "record", str(path), *DEMO]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        wait_until(lambda: path.exists() and path.stat().st_size > 0, 30)
        process.send_signal(number)
        out, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (128 + number, "")
    assert int(re.findall(r": (\d+) frames?, ", out)[0]) == len(replayed(path)) > 0
    if name.endswith(".gz"):
        subprocess.run(["gzip", "-t", str(path)], check=True)


def test_t05_a_pipe_that_nobody_reads_stops_nothing_and_the_gap_is_said() -> None:
    argv = [*GPUTOP, "record", "-", "--source", "demo:showcase", "--interval", "0.25"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stderr
        assert b"too slow" in process.stderr.readline()
        lines = (json.loads(process.stdout.readline()) for _ in range(200))
        gap = next(line for line in lines if line.get("kind") == "gap")
        process.kill()
    assert gap["type"] == "event"
    assert re.fullmatch(r"\d+ frames could not be written", gap["text"])


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("replay", "/nonexistent/run.jsonl"), "No such file or directory"),
        (("replay", "/dev/null"), "not a regular file"),
        (("--once", "--source", "/etc/passwd"), "not a recording"),
        (("record", "/nonexistent/run.jsonl", "--source", "demo:idle"), "No such file or directory"),
        (("record", "/dev/null", "--source", "demo:idle"), "not a regular file"),
        (("record", "/etc/passwd", "--source", "demo:idle"), "not a recording"),
        (("record", "", "--source", "demo:idle"), "the file name is missing"),
        (("log", "", "--source", "demo:idle"), "the file name is missing"),
        (("log", "/etc/passwd", "--source", "demo:idle"), "other columns"),
        (("replay", "-"), "standard input ended"),
        (("--once", "--source", "-"), "standard input ended"),
    ],
)
def test_f07_what_cannot_be_used_is_one_line_and_1(args: tuple[str, ...], says: str) -> None:
    done = run(*args)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("gputop: ")
    assert says in done.stderr


def test_a_recording_holds_how_busy_the_units_are(tmp_path: Path, fake: Fake) -> None:
    fake.set("gpus", 2)
    path = tmp_path / "run.jsonl"
    done = run("record", str(path), "--for", "4s", env=fake.env())
    assert (done.returncode, done.stderr) == (0, "")
    assert replayed(path)[-1].gpus[0].sm_active_percent == 83.25


def test_read_only_writes_no_file(tmp_path: Path) -> None:
    for command in ("record", "log"):
        done = run(command, str(tmp_path / "x"), "--readonly", *DEMO)
        assert (done.returncode, done.stderr.count("\n")) == (64, 1)
    assert not any(tmp_path.iterdir())


def test_t04_replay_without_a_terminal_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    record(path, frames(2))
    done = run("replay", str(path))
    assert (done.returncode, done.stderr.count("\n")) == (64, 1)
    assert "--once" in done.stderr


def test_log_has_the_agreed_columns_first_and_is_gone_on_with(tmp_path: Path) -> None:
    path, recorded = tmp_path / "gpu_metrics.csv", tmp_path / "run.jsonl"
    record(recorded, frames(21))
    done = run("log", str(path), "--source", str(recorded), "--interval", "5")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    text = path.read_text()
    assert text.startswith(f"{FIRST},")
    assert FIRST in docs.read("recording").replace("`", "")
    rows = list(csv.DictReader(text.splitlines()))
    gpus = frames(1)[0].gpus
    assert len(rows) == 5 * len(gpus)
    assert (rows[0]["gpu_idx"], rows[0]["gpu_uuid"]) == (gpus[0].index, gpus[0].uuid)
    assert float(rows[0]["mem_total_mb"]) == pytest.approx((gpus[0].vram_total_bytes or 0) / 2**20, abs=0.01)
    assert float(rows[0]["power_w"]) == pytest.approx(gpus[0].power_watts, abs=0.01)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d", rows[0]["timestamp"])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_text(text + "2026-11-19T22:0")  # as a crash leaves it
    path.chmod(0o644)
    assert run("log", str(path), "--source", str(recorded), "--interval", "20", "--for", "5").returncode == 0
    assert path.read_text().startswith(text)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600, "an older log that others may read is no longer for them"
    assert len(list(csv.DictReader(path.read_text().splitlines()))) == 6 * len(gpus)


def _note(name: str, wall_s: float, value: float | None) -> Noted:
    return Noted(name=name, wall_s=wall_s, value=value, finite=value is not None)


def test_a_log_has_the_steps_and_notes_of_the_training_on_each_gpu() -> None:
    notes = (_note("loss", 2.0, 0.5), _note("loss", 1.0, 0.9), _note("=cmd", 1.0, None))
    trains = {"step_count": 41, "step_s": 0.25, "samples_per_s": 64.0, "noted": notes}
    frame = Machine(trainer=trains).frame(0.0)
    told = {name: column(row(frame, frame.gpus[0])) for name, column in COLUMNS.items()}
    assert (told["step_count"], told["step_s"], told["samples_per_s"]) == (41, 0.25, 64)
    assert told["data_wait_percent"] is None
    assert told["noted"] == "loss=0.5 =cmd=nan"
    nobody = replace(frame, processes=())
    nothing = row(nobody, frame.gpus[0])
    assert (COLUMNS["noted"](nothing), COLUMNS["step_s"](nothing)) == ("", None)


def test_a_log_takes_the_interval_of_file_and_environment(tmp_path: Path) -> None:
    recorded, settings = tmp_path / "run.jsonl", tmp_path / "config.toml"
    record(recorded, frames(21))
    settings.write_text('interval = "10s"\n')
    source = ("log", "-", "--source", str(recorded))
    shell_env = f"GPUTOP_INTERVAL=2 {shlex.join([*GPUTOP, *source])}"
    said = {
        5: run(*source).stdout,
        10: run(*source, "--config", str(settings)).stdout,
        2: subprocess.run(["sh", "-c", shell_env], capture_output=True, text=True, timeout=60, check=True).stdout,
    }
    for seconds, looks in ((5, 5), (10, 3), (2, 11)):
        assert len({row["timestamp"] for row in csv.DictReader(io.StringIO(said[seconds]))}) == looks


def test_a_log_is_printed_for_a_dash(tmp_path: Path) -> None:
    recorded = tmp_path / "run.jsonl"
    record(recorded, frames(11))
    source = ("--source", str(recorded))
    assert run("log", str(tmp_path / "log.csv"), *source).returncode == 0
    for flags in ((), ("--readonly",)):
        done = run("log", "-", *source, *flags, cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == (tmp_path / "log.csv").read_text()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["log.csv", "run.jsonl"]
    flags = shlex.join(source)
    full = shell(f"gputop log - {flags} > /dev/full")
    assert (full.returncode, full.stderr.count("\n")) == (1, 1)
    assert "standard output cannot be written: No space left on device" in full.stderr
    cut = shell(f"gputop log - {flags} | head -1")
    assert (cut.stdout.count("\n"), cut.stderr) == (1, "")


def test_a_recording_written_by_hand_is_replayed(tmp_path: Path) -> None:
    page = docs.read("recording")
    (block,) = [part for part in re.findall(r"```\n(.*?)```", page, re.DOTALL) if part.startswith('{"type":"header"')]
    path = tmp_path / "by-hand.jsonl"
    path.write_text(block)
    found = replayed(path)
    assert [(frame.hostname, frame.gpus[0].busy_percent) for frame in found] == [
        ("node07", 97.0), ("node07", 3.0), ("node07", 55.0),
    ]  # fmt: skip
    assert (found[2].processes, found[2].jobs, found[2].gpus[0].name) == ((), (), "H100")
    (process,), (job,) = found[1].processes, found[1].jobs
    assert (process.pid, process.user, process.gpus[0].vram_bytes) == (4711, "ada", 8e9)
    assert (job.name, job.members, job.ranks) == ("llama", (process.identity,), (process.identity,))
    subprocess.run(["gzip", "-k", str(path)], check=True)
    assert replayed(path.with_name("by-hand.jsonl.gz")) == found
    (checked,) = re.findall(r'`(\{"type":"header","version":1,"crc":"\w{8}"\})`', page)
    path.write_text(checked + "\n" + block.split("\n", 1)[1])
    assert replayed(path) == found
    path.write_text(checked.replace('version":1', 'version":01') + "\n" + block.split("\n", 1)[1])
    said = replayed(path)[0].note("recording-damaged")
    assert said
    assert said.text == "the recording is damaged in 1 place: its checksum does not match its text"
    source = Recording(str(tmp_path / "by-hand.jsonl.gz"))
    next(iter(source.past()), None)
    wait_until(lambda: source.complete, 30)
    assert [(mark.at_s, mark.text, mark.severity) for mark in source.marks] == [(1.0, "the loader stopped", "warn")]


def test_every_field_of_a_frame_is_documented_with_its_meaning() -> None:
    page = docs.read("recording")
    documented = set(re.findall(r"^\| `(\w+)`", page, re.MULTILINE))
    meanings = re.findall(r"^\| `(\w+)` +\|[^|]+\| (.*) \|$", page, re.MULTILINE)
    assert {name for name, _ in meanings} == documented
    assert [name for name, meaning in meanings if not meaning or meaning.startswith("(")] == []

    def names(data: object) -> set[str]:
        if isinstance(data, dict):
            return set(data).union(*map(names, data.values()))
        return set().union(*map(names, data)) if isinstance(data, list) else set()

    golden = json.loads((Path(__file__).parents[1] / "golden" / "frame-v1.json").read_text())
    assert names(golden) <= documented


def test_replay_shows_the_monitor_and_waits_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl.gz"
    record(path, frames(3))
    with Terminal((*GPUTOP, "replay", str(path)), env={"XDG_STATE_HOME": str(tmp_path)}) as terminal:
        terminal.wait_for("run.jsonl.gz", 30)
        terminal.wait_for("dgx-07")
        terminal.send("q")
        assert terminal.wait_exit() == 0


def test_replay_of_a_pipe_takes_keys_from_the_terminal(tmp_path: Path) -> None:
    pipe = f"{shlex.join(GPUTOP)} record - {shlex.join(DEMO)} | {shlex.join(GPUTOP)} replay -"
    with Terminal(("bash", "-c", pipe), env={"XDG_STATE_HOME": str(tmp_path)}) as terminal:
        terminal.wait_for("dgx-07", 30)
        terminal.wait_for("stream")
        terminal.send("q")
        assert terminal.wait_exit(10) == 0


def test_a_stream_that_ends_leaves_its_last_frame(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    record(path, frames(3))
    pipe = f"cat {path} | {shlex.join(GPUTOP)} replay -"
    with Terminal(("bash", "-c", pipe), env={"XDG_STATE_HOME": str(tmp_path)}) as terminal:
        terminal.wait_for("dgx-07", 30)
        terminal.wait_for("ended")
        terminal.send("q")
        assert terminal.wait_exit(10) == 0
