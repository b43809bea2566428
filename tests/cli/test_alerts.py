"""gputop alerts, and alerts beside a recording: real processes, a real receiver, and what is printed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.http_receiver import HttpReceiver, answer, close, nobody
from tests.real_processes import until

GPUTOP = (sys.executable, "-m", "gputop")
ALWAYS = '[alerts.cpus]\nmetric = "host.cpus_total"\nabove = 0\nfor = 0\nsend = "team"\n'
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def server() -> Iterator[HttpReceiver]:
    with HttpReceiver() as server:
        yield server


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """An environment with private folders."""
    (tmp_path / "run").mkdir(mode=0o700)
    return {**os.environ, "HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path / "run"), "XDG_CONFIG_HOME": "",
            "TZ": "UTC", "LC_ALL": "C.UTF-8"}  # fmt: skip


@pytest.fixture
def run(home: dict[str, str], tmp_path: Path) -> Run:
    def command(*args: str, settings: str | None = None) -> subprocess.CompletedProcess[str]:
        if settings is not None:
            write(tmp_path, settings)
        return subprocess.run(
            [*GPUTOP, "--no-nvml", *args], capture_output=True, text=True, env=home, timeout=120, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip

    return command


def write(home: Path, settings: str, mode: int = 0o600) -> Path:
    """The default settings file of this home."""
    path = home / ".config" / "gputop" / "config.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(settings)
    path.chmod(mode)
    return path


def slack(url: str, name: str = "team") -> str:
    return f'[receivers.{name}]\ntype = "slack"\nurl = "{url}"\ntimeout = 5\n'


def test_without_alerts_it_says_where_to_read(run: Run) -> None:
    done = run("alerts")
    assert (done.returncode, done.stdout, done.stderr) == (
        0, "No alerts are configured. `gputop docs alerts` shows how.\n", "",
    )  # fmt: skip
    done = run("alerts", "--run")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (64, "", 1)
    assert "add [alerts.NAME] to " in done.stderr


SETTINGS = f"""{slack("https://hooks.slack.com/services/T0/B0/pathsecret")}
[receivers.page]
type = "command"
command = ["/usr/local/bin/page", "--key=argsecret", "{{title}}"]
[receivers.ops]
type = "mail"
to = ["ops@example.com"]
[alerts.trouble]
rules = ["thermal", "power"]
severity = "crit"
send = ["team", "ops"]
recovery = false
[alerts.hot]
metric = "gpu.temperature_celsius"
above = 88
for = "2m"
user = "alice"
send = "page"
"""


def test_the_list_shows_everything_but_secrets(run: Run) -> None:
    done = run("alerts", settings=SETTINGS)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "Alerts\n~/.config/gputop/config.toml\n\nAlerts\n"
        "  trouble  power or thermal, crit only; to team, ops; cool-down 15 min; no recovery message\n"
        "  hot      GPU core temperature above 88 °C, of user alice for 2 min; to page; cool-down 15 min\n"
        "\nReceivers\n"
        "  team  slack https://hooks.slack.com/***\n"
        "  page  command /usr/local/bin/page\n"
        "  ops   mail to ops@example.com\n"
    )
    listed = json.loads(run("alerts", "--json").stdout)
    assert [one["name"] for one in listed["alerts"]] == ["trouble", "hot"]
    assert listed["receivers"][1] == {"name": "page", "address": "command /usr/local/bin/page", "off": None}
    assert "secret" not in json.dumps(listed)


def test_what_is_off_and_who_may_read_the_file_is_said(run: Run, tmp_path: Path) -> None:
    write(tmp_path, SETTINGS, 0o644)
    done = run("alerts", "--readonly")
    assert "page  command /usr/local/bin/page (off: --readonly starts no program)" in done.stdout
    assert "ops   mail to ops@example.com (off: --readonly starts no program)" in done.stdout
    assert "Note: other users can read this file" in done.stdout
    done = run("alerts", "--readonly", "--test", "page")
    assert (done.returncode, done.stderr) == (64, "gputop: page is off: --readonly starts no program\n")


@pytest.mark.skipif(os.geteuid() != 0, reason="not covered: needs root to own a file as another user")
def test_f12_root_takes_no_alerts_from_a_file_of_another_user(run: Run, tmp_path: Path) -> None:
    os.chown(write(tmp_path, SETTINGS), 12345, -1)
    done = run("alerts")
    assert (done.returncode, done.stdout) == (1, "")
    assert "belongs to another user (uid 12345): not read" in done.stderr


BROKEN = """[receivers.team]
type = "slak"
[receivers.hub]
type = "webhook"
url = "ftp://x"
timeout = 0
[alerts.hot]
metric = "gpu.temprature"
above = 88
for = "soon"
send = "team"
[alerts.trouble]
rules = ["thermel", "powr"]
send = "nobody"
"""


def test_every_error_is_listed_at_once_and_the_exit_code_says_so(run: Run) -> None:
    done = run("alerts", settings=BROKEN)
    assert done.returncode == 1
    assert " ".join(done.stdout.split()) == (
        "Alerts ~/.config/gputop/config.toml Errors"
        " ! WARN receivers.team is not used: type must be one of slack, teams, ntfy, webhook, command, mail, terminal"
        " (did you mean slack?)"
        " ! WARN receivers.hub is not used: url must be an address that begins with https:// or http://;"
        " timeout must be a duration up to 2m, such as 60s or 5m"
        " ! WARN alerts.hot is not used: unknown metric 'gpu.temprature' (did you mean gpu.temperature_celsius?);"
        " its receiver team is not used; for must be a duration up to 7d, such as 60s or 5m"
        " ! WARN alerts.trouble is not used: unknown rule 'thermel' (did you mean thermal?);"
        " unknown rule 'powr' (did you mean power?); unknown receiver 'nobody'"
    )
    done = run("alerts", "--json")
    assert (done.returncode, len(json.loads(done.stdout)["errors"])) == (1, 4)
    done = run("alerts", "--run")
    assert (done.returncode, done.stdout) == (64, "")
    assert done.stderr.endswith("gputop: no alert can be used: `gputop alerts` lists all errors\n")
    done = run("alerts", "--test", "team")
    assert (done.returncode, done.stdout) == (64, "")
    assert done.stderr.endswith(
        "gputop: receivers.team is not used: type must be one of slack, teams, ntfy, webhook, command, mail, terminal"
        " (did you mean slack?)\n"
    )


@pytest.mark.parametrize("mode", [(), ("--json",), ("--run",), ("--test", "team")])
def test_a_file_that_cannot_be_read_is_not_a_file_without_alerts(run: Run, mode: tuple[str, ...]) -> None:
    done = run("alerts", *mode, "--config", "/nonexistent")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.endswith("gputop: alerts unknown: /nonexistent could not be used\n")
    assert "file not found" in done.stderr


def test_a_misspelt_table_is_not_a_file_without_alerts(run: Run) -> None:
    done = run("alerts", settings='[alertz.x]\nsend = "team"\n')
    assert (done.returncode, done.stdout) == (1, "")
    assert "unknown setting 'alertz' (did you mean alert?)" in done.stderr


def test_a_test_message(run: Run, server: HttpReceiver) -> None:
    done = run("alerts", "--test", "team", settings=slack(server.url()))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"Test message sent to team (slack {server.url('/***')}).\n"
    (got,) = server.got
    assert got.json["text"].startswith("TEST ")
    assert "nothing is wrong" in got.json["text"]


BELL = '[receivers.here]\ntype = "terminal"\n'


def test_without_a_terminal_the_bell_is_no_receiver(run: Run) -> None:
    done = run("alerts", "--test", "here", settings=BELL)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "gputop: here (terminal bell) was not reached: standard error is not a terminal\n"
    done = run("alerts", "--run", "--source", "demo:thermal", settings=f'{BELL}[alerts.trouble]\nsend = "here"\n')
    assert (done.returncode, done.stdout.count("WARN")) == (0, 1)
    assert done.stderr == "gputop: no alerts to here: standard error is not a terminal\n"


def test_a_test_message_rings_the_bell_of_a_terminal(home: dict[str, str], tmp_path: Path) -> None:
    write(tmp_path, BELL)
    ours, theirs = os.openpty()
    try:
        done = subprocess.run(
            [*GPUTOP, "alerts", "--test", "here"], stdout=subprocess.PIPE, stderr=theirs, text=True, env=home,
            timeout=120, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stdout) == (0, "Test message sent to here (terminal bell).\n")
        assert os.read(ours, 100) == b"\a"
    finally:
        os.close(ours)
        os.close(theirs)


@pytest.mark.parametrize(
    ("name", "why", "code"),
    [
        ("team", "team (slack http://127.0.0.1:PORT/***) was not reached: HTTP 404 Not Found (no_service)", 1),
        ("dead", "dead (slack http://127.0.0.1:PORT/***) was not reached: Connection refused", 1),
        ("tem", "unknown receiver 'tem': did you mean team?", 64),
    ],
)
def test_a_test_message_that_fails(run: Run, server: HttpReceiver, name: str, why: str, code: int) -> None:
    server.then(answer(404, b"no_service"))
    done = run("alerts", "--test", name, settings=slack(server.url()) + slack(nobody(), "dead"))
    assert (done.returncode, done.stdout) == (code, "")
    shown = done.stderr.removeprefix("gputop: ").strip()
    parts = why.split("PORT")
    assert shown.startswith(parts[0])
    assert shown.endswith(parts[-1])
    assert "pathsecret" not in done.stderr


def test_a_simulated_server_shows_how_alerts_look(run: Run, server: HttpReceiver) -> None:
    settings = slack(server.url()) + '[alerts.trouble]\nrules = ["thermal"]\nsend = "team"\n'
    done = run("alerts", "--run", "--source", "demo:thermal", settings=settings)
    assert (done.returncode, done.stderr) == (0, "")
    (line,) = done.stdout.splitlines()
    title = "[demo] WARN dgx-07: GPU 0 (llama-7b): software thermal slowdown"
    assert line.endswith(f" UTC  {title}")
    (got,) = server.got
    assert got.json["text"].startswith(f"{title}\n")


def test_a_message_that_was_not_delivered_is_a_failure(run: Run) -> None:
    settings = slack(nobody()) + '[alerts.trouble]\nsend = "team"\n'
    done = run("alerts", "--run", "--source", "demo:thermal", settings=settings)
    assert done.returncode == 1
    assert done.stderr == (
        "gputop: alerts to team are not delivered: Connection refused\ngputop: 1 message not delivered\n"
    )


def test_f13_a_receiver_that_closes_the_connection_does_not_end_a_recording(
    run: Run, server: HttpReceiver, tmp_path: Path
) -> None:
    """Standard output ends by SIGPIPE where its reader has gone: a socket must not."""
    server.then(close)
    path = tmp_path / "run.jsonl"
    done = run("record", "--for", "2s", "--interval", "0.25", str(path), settings=slack(server.url()) + ALWAYS)
    assert done.returncode == 0, done.stderr
    assert "alerts to team are not delivered: the server closed the connection without an answer" in done.stderr
    assert server.got
    recorded = path.read_text()
    assert sum(json.loads(line)["type"] in ("frame", "change") for line in recorded.splitlines()) >= 5
    assert "pathsecret" not in recorded


def test_a_recording_sends_alerts_and_holds_no_findings(run: Run, server: HttpReceiver, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    done = run("record", "--for", "1s", "--interval", "0.25", str(path), settings=slack(server.url()) + ALWAYS)
    assert (done.returncode, done.stderr.count("not delivered")) == (0, 0)
    (got,) = server.got
    assert "CPUs of the machine above 0" in got.json["text"]
    assert '"event"' not in path.read_text()
    done = run("record", "--source", "demo:thermal", "--for", "2s", str(tmp_path / "demo.jsonl"))
    assert done.returncode == 0, done.stderr
    assert len(server.got) == 1


def test_a_recording_without_alerts_leaves_them_to_another_gputop(
    run: Run, server: HttpReceiver, tmp_path: Path
) -> None:
    settings = slack(server.url()) + ALWAYS
    path = str(tmp_path / "run.jsonl")
    done = run("record", "--no-alerts", "--for", "1s", "--interval", "0.25", path, settings=settings)
    assert (done.returncode, server.got) == (0, [])
    assert not list((tmp_path / "run").rglob("*.lock"))


def test_an_exporter_sends_alerts(server: HttpReceiver, home: dict[str, str], tmp_path: Path) -> None:
    pytest.importorskip("prometheus_client")
    write(tmp_path, slack(server.url()) + ALWAYS)
    command = [*GPUTOP, "export", "prometheus", "--textfile", str(tmp_path), "--no-nvml", "--interval", "0.25"]
    with subprocess.Popen(command, env=home, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as exporter:
        until(lambda: server.got, 60)
        exporter.send_signal(signal.SIGTERM)
        assert exporter.wait(60) == 128 + signal.SIGTERM
    assert "CPUs of the machine above 0" in server.got[0].json["text"]


def test_it_runs_until_a_signal_and_the_next_one_takes_over(
    server: HttpReceiver, home: dict[str, str], tmp_path: Path
) -> None:
    write(tmp_path, slack(server.url()) + ALWAYS)
    command = [*GPUTOP, "alerts", "--run", "--no-nvml", "--interval", "0.25"]
    with (tmp_path / "said").open("w") as said:
        first = subprocess.Popen(command, env=home, stdout=subprocess.DEVNULL, stderr=said)
        try:
            until(lambda: server.got, 60)
            second = subprocess.Popen(command, env=home, stdout=subprocess.DEVNULL, stderr=said)
            try:
                until(lambda: "another gputop sends these alerts" in (tmp_path / "said").read_text(), 60)
                first.send_signal(signal.SIGTERM)
                assert first.wait(60) == 128 + signal.SIGTERM
                lock = next((tmp_path / "run" / "gputop").glob("alerts-*.lock"))
                until(lambda: lock.stat().st_ino in held_by(second.pid), 60)
                assert len(server.got) == 1  # what was sent is not sent again
            finally:
                second.kill()
                second.wait()
        finally:
            first.kill()
            first.wait()


def held_by(pid: int) -> set[int]:
    """Inodes of the files that a process has locked."""
    found = set()
    for line in Path("/proc/locks").read_text().splitlines():
        words = line.split()
        if "->" not in words and words[4] == str(pid):
            found.add(int(words[5].rpartition(":")[2]))
    return found


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (("--for", "5s"), "--for is the time of --run: add --run, or omit --for"),
        (("--run", "--json"), "--json lists the alerts: omit --run and --test"),
        (("--run", "--test", "x"), "not allowed with"),
    ],
)
def test_options_that_do_not_go_together(run: Run, args: tuple[str, ...], why: str) -> None:
    done = run("alerts", *args)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (64, "", 1)
    assert why in done.stderr
