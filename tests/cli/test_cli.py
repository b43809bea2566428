"""The command line as a user runs it: subprocesses, exit codes, one line of error."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import gputop
from gputop import docs
from gputop.cli import COMMANDS, TASKS, parser
from gputop.cli.manual import SHELLS
from gputop.demo import SCENARIOS
from tests.traces import starved

GPUTOP = [sys.executable, "-m", "gputop"]
# examples that need a training, a terminal, an earlier result, more than a second, no end, a server, or nvidia-smi
LATER = re.compile(
    "pgrep|train.py:|--last|gputop (demo|replay|reset-terminal|export prometheus|fleet)|--for|--count|nvidia-smi"
    "|demo:straggler|--run"
)


def run(*args: str, stdin: int = subprocess.DEVNULL, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*GPUTOP, *args],
        stdin=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **env},
        check=False,
    )


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--nonsense"], "--nonsense"),
        (["nonsense"], "nonsense"),
        (["--interval", "soon"], "duration"),
        (["--source", "moon", "--once"], "moon"),
        (["--source", "", "--once"], "unknown source"),
        (["--source", "run.jsonl.gz", "--once"], "unknown source"),
        (["demo", "helthy"], "healthy"),
        (["demo", "nonsense"], "gputop demo --list"),
        (["--source", "demo:helthy", "--json"], "healthy"),
        (["snapshot", "--count", "0"], "--count must be 1 or more"),
        (["profile", "1", "--rate", "0"], "the rate is 1 to 1000"),
        (["profile", "1", "--for", "0"], "is too short"),
        (["memory", "1", "--for", "0s"], "is too short"),
        (["record", "-", "--for", "0"], "is too short"),
        (["loader", "train.py:make", "--timeout", "0"], "is too short"),
        (["snapshot", "--format", "yaml"], "yaml"),
        (["--once", "metrics"], "metrics"),
        (["docs", "nonsense"], "nonsense"),
        (["metrics", "busy_persent"], "unknown metric 'busy_persent': did you mean busy_percent?"),
        (["metrics", "nonsense"], "`gputop metrics` lists them"),
        (["completions", "fish"], "fish"),
        (["--once", "--int=5"], "--int"),
        (["snapshot", "--form", "csv"], "--form"),
    ],
)
def test_wrong_usage_is_one_line_and_64(args: list[str], says: str) -> None:
    done = run(*args)
    assert done.returncode == 64
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("gputop: ")
    assert says in done.stderr


def test_version() -> None:
    assert run("--version").stdout == f"gputop {gputop.__version__}\n"


def test_demos_are_listed_with_a_line_each() -> None:
    lines = run("demo", "--list").stdout.splitlines()
    assert [line.split()[0] for line in lines] == list(SCENARIOS)
    assert all(len(line.split()) > 3 for line in lines)


@pytest.mark.parametrize("source", ["live", "demo:showcase"])
def test_json_is_one_object(source: str) -> None:
    done = run("--json", "--no-nvml", "--source", source)
    assert done.returncode == 0, done.stderr
    assert list(json.loads(done.stdout)) == ["version", "frame", "findings", "abstained", "jobs", "host_state"]


def test_jsonl_is_a_line_each() -> None:
    done = run("snapshot", "--source", "demo:healthy", "--format", "jsonl", "--count", "3", "--interval", "0.25")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(lines) >= 3


def test_csv_has_the_eight_fields_of_nvidia_smi() -> None:
    done = run("snapshot", "--source", "demo:healthy", "--format", "csv", "--count", "2", "--interval", "0.25")
    rows = list(csv.reader(io.StringIO(done.stdout), skipinitialspace=True))
    assert rows[0] == [
        "index", "name", "utilization.gpu", "utilization.memory", "memory.used", "memory.total", "temperature.gpu",
        "power.draw",
    ]  # fmt: skip
    assert len(rows) == 3
    assert all(float(cell) >= 0 for row in rows[1:] for cell in row[2:])


def test_once_without_a_driver_shows_processes_and_a_note() -> None:
    done = run("--once")
    assert done.returncode == 0
    assert "cpu" in done.stdout.lower()
    if "No NVIDIA" in done.stderr:
        assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "args", ["snapshot --source demo:healthy --format jsonl --count 100000 --interval 0.25", "demo --list"]
)
def test_t04_a_closed_pipe_ends_it_quietly(args: str) -> None:
    reader = "head -n 1" if args.startswith("snapshot") else "exec <&-; sleep 5"
    done = subprocess.run(
        ["bash", "-c", f"{' '.join(GPUTOP)} {args} | ({reader}); exit ${{PIPESTATUS[0]}}"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.stderr == ""
    assert done.returncode == 128 + 13


def test_who_calls_it_keeps_the_signals_it_had() -> None:
    """A server in the same process would end at its first client that hangs up."""
    code = (
        "import signal\nfrom gputop.cli import main\nassert main(['keys']) == 0\n"
        "assert signal.getsignal(signal.SIGPIPE) == signal.SIG_IGN"
    )
    subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL, timeout=60, check=True)


@pytest.mark.parametrize("args", [[], ["demo"], ["demo", "healthy"]])
def test_t04_without_a_terminal_it_says_what_to_do(args: list[str]) -> None:
    done = run(*args)
    assert done.returncode == 64
    assert "--once" in done.stderr
    assert done.stderr.count("\n") == 1


def test_every_page_can_be_read() -> None:
    listed = run("docs").stdout.splitlines()
    assert [line.split()[0] for line in listed] == [name for name, _ in docs.topics()]
    for name, _ in docs.topics():
        assert docs.read(name).count("\n") >= 3, name


@pytest.mark.parametrize("topic", ["metrics", "columns", "keys"])
def test_the_declarations_print_themselves(topic: str) -> None:
    assert run(topic).stdout == docs.read(topic)


def test_one_metric_is_shown_in_each_place_that_has_it() -> None:
    shown = run("metrics", "busy_percent").stdout
    assert shown.startswith("## busy_percent\n\n* gpus, %: GPU busy: share of time in which at least one kernel")
    assert "* host: disks, %: time with at least one request in flight" in shown


def test_help_lists_every_command_once_under_a_task() -> None:
    named = [name for names in TASKS.values() for name in names]
    assert sorted(named) == sorted(COMMANDS)
    lines = run("--help", COLUMNS="80").stdout.splitlines()
    assert {f"{task}:" for task in TASKS} <= set(lines)
    for name, command in COMMANDS.items():
        assert lines.count(f"  {name:21} {command.help}") == 1, name


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_ends_with_two_examples_that_it_accepts(name: str) -> None:
    examples = COMMANDS[name].examples
    assert run(name, "--help").stdout.endswith(f"examples:\n  {examples[0]}\n  {examples[1]}\n")
    for example in examples:
        assert len(example) <= 76
        (*_, line) = re.findall(r"(?:^|[(|;] ?)gputop ([^|>;)]*)", example.replace("$(pgrep -nf train.py)", "7"))
        assert parser().parse_args(shlex.split(line, comments=True)).command == name, example


@pytest.mark.parametrize(
    "example", [one for each in COMMANDS.values() for one in each.examples if not LATER.search(one)]
)
def test_an_example_runs_as_it_is(example: str, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "gputop").write_text(f'#!/bin/sh\nexec {shlex.join(GPUTOP)} "$@"\n')
    (tmp_path / "bin" / "gputop").chmod(0o755)
    if "scaffold" not in example:
        (tmp_path / "train.py").write_text("print('trains')\n")
    starved().write(tmp_path / "trace.json.gz")
    path = f"{tmp_path / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "PYTHONPATH": str(Path(gputop.__file__).parents[1])}
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", example], cwd=tmp_path, env={**env, "HOME": str(tmp_path)}, text=True,
        stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_help_says_how_often_a_command_looks_if_nobody_says_so() -> None:
    assert "seconds between samples (1)" in run("record", "--help").stdout
    assert "seconds between samples (1)" in run("--help").stdout
    assert "seconds between samples (5)" in run("log", "--help").stdout


@pytest.mark.parametrize("shell", SHELLS)
def test_completions_are_those_of_the_command_line(shell: str) -> None:
    import shtab

    shipped = (Path(gputop.__file__).parent / "completions" / f"gputop.{shell}").read_text()
    assert shipped.strip() == shtab.complete(parser(), shell).strip(), "run make completions"
    assert run("completions", shell).stdout == shipped


@pytest.mark.parametrize("shell", SHELLS)
def test_the_names_of_demos_and_pages_are_completed(shell: str) -> None:
    script = run("completions", shell).stdout
    assert " ".join(SCENARIOS) in script
    assert " ".join(name for name, _ in docs.topics()) in script


def test_every_file_on_the_command_line_is_completed() -> None:
    script = run("completions", "bash").stdout
    for name in ("record_pos_0", "replay_pos_0", "log_pos_0", "__config", "__source"):
        assert f"_shtab_gputop_{name}_COMPGEN=_shtab_compgen_files" in script


@pytest.mark.parametrize(
    ("env", "ascii"),
    [
        ({"LANG": "C"}, True),
        ({"LC_ALL": "POSIX", "LANG": "C.UTF-8"}, True),
        ({"LANG": "C", "LC_CTYPE": "C.UTF-8"}, False),
        ({"LC_ALL": "en_XX.utf8@latin"}, False),  # not installed, but the terminal's
        ({"LC_ALL": "C", "PYTHONUTF8": "1"}, False),
        ({}, False),
    ],
)
def test_t12_the_locale_says_what_is_read(tmp_path: Path, env: dict[str, str], ascii: bool) -> None:
    said = ("LC_ALL", "LC_CTYPE", "LANG", "PYTHONUTF8", "PYTHONIOENCODING")
    env = {**{name: value for name, value in os.environ.items() if name not in said}, **env}
    trace = starved().write(tmp_path / "trace.json")
    for args in (["--once", "--source", "demo:healthy"], ["explain", str(trace)]):
        done = subprocess.run([*GPUTOP, *args], capture_output=True, timeout=60, env=env, check=True)
        assert done.stdout.isascii() == ascii, args


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
@pytest.mark.parametrize("args", [["--once", "--source", "demo:showcase"], ["docs", "metrics"], ["--json"]])
def test_t12_without_utf8_everything_prints(args: list[str], encoding: str) -> None:
    env = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run([*GPUTOP, *args, "--no-nvml"], capture_output=True, timeout=60, env=env, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii() or args[0] == "docs"


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["docs"], 1),
        (["metrics"], 1),
        (["--json", "--source", "demo:healthy"], 1),
        (["diagnose", "--source", "demo:healthy"], 3),  # where 1 is a warning
    ],
)
def test_a_full_disk_is_one_line(args: list[str], code: int) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([*GPUTOP, *args], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert done.returncode == code
    assert done.stderr == "gputop: not everything could be written: No space left on device\n"


def test_a_closed_output_is_one_line() -> None:
    done = subprocess.run(
        ["sh", "-c", '"$@" >&-', "sh", *GPUTOP, "--json"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (1, "gputop: standard output is closed\n")


def test_a_closed_standard_error_costs_only_what_is_said_there() -> None:
    done = subprocess.run(
        ["sh", "-c", '"$@" 2>&-', "sh", *GPUTOP, "--json", "--no-nvml"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    assert json.loads(done.stdout)["frame"]


@pytest.mark.parametrize("args", [["--once", "--x\x1b]0;owned\x07"], ["loader", "x\x1b]0;owned\x07.py:make"]])
def test_p01_a_hostile_file_name_on_the_command_line_is_harmless(args: list[str]) -> None:
    done = run(*args)
    assert done.returncode == 64
    assert done.stderr.strip().isprintable()


def test_reset_terminal_without_a_terminal_says_so() -> None:
    done = subprocess.run(
        [*GPUTOP, "reset-terminal"], capture_output=True, text=True, start_new_session=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith("gputop: no terminal to reset")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--intervall", "2"], "unknown option --intervall: did you mean --interval?"),
        (["--intervall=2"], "unknown option --intervall: did you mean --interval?"),
        (["--jsno"], "unknown option --jsno: did you mean --json?"),
        (["demo", "--readolny"], "unknown option --readolny: did you mean --readonly?"),
        (["diagnos"], "unknown command 'diagnos': did you mean diagnose?"),
        (["help"], "unknown command 'help': did you mean gputop --help?"),
        (["version"], "unknown command 'version': did you mean gputop --version?"),
        (["once"], "unknown command 'once': did you mean gputop --once?"),
        (["jsno"], "unknown command 'jsno': did you mean gputop --json?"),
        (["--interval", "2", "demoo"], "unknown command 'demoo': did you mean demo?"),
        (["foo"], "unknown command 'foo'; see gputop --help"),
        (["snapshot", "--format", "jsno"], "unknown value for --format: 'jsno': did you mean json?"),
        (["completions", "bahs"], "unknown value for shell: 'bahs': did you mean bash?"),
        (["completions", "fish"], "unknown value for shell: 'fish': choose from bash, zsh, tcsh; see gputop"),
        (["export", "grafana", "x"], "unexpected argument x; see gputop export grafana --help"),
        (["docs", "alerts", "x"], "unexpected argument x; see gputop docs --help"),
        (["snapshot", "x", "y"], "unexpected argument x y; see gputop snapshot --help"),
    ],
)
def test_what_is_misspelled_gets_a_suggestion(argv: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parser().parse_args(argv)
    assert ended.value.code == 64
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["rules", "thermel"], "unknown rule 'thermel': did you mean thermal?"),
        (["rules", "x"], "unknown rule 'x': `gputop rules` lists them"),
        (["docs", "diagnosys"], "unknown page 'diagnosys': did you mean diagnosis?"),
        (["recipe", "apm"], "unknown recipe 'apm': did you mean amp?"),
        (["demo", "helthy"], "unknown demo 'helthy': did you mean healthy?"),
    ],
)
def test_a_misspelled_name_gets_the_nearest_one(argv: list[str], said: str) -> None:
    done = run(*argv) if argv[0] != "demo" else run("--once", "--source", f"demo:{argv[1]}")
    assert (done.returncode, done.stdout, done.stderr) == (64, "", f"gputop: {said}\n")


def test_options_of_a_program_that_is_started_are_its_own() -> None:
    assert parser().parse_args(["run", "python", "train.py", "--intervall", "3"]).argv[-2:] == ["--intervall", "3"]
