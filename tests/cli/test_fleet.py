"""gputop fleet as a user runs it: printed, refused in one line, and on a terminal with a host opened by a real ssh."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gputop.cli import COMMANDS
from tests.fakenvml import Fake
from tests.fleet.scripted import ScriptedPrometheus, names, saying
from tests.http_receiver import nobody
from tests.pty_programs import Terminal
from tests.servers import NOON
from tests.ssh_server import MISSING, SshServer, client, remote_environ

GPUTOP = [sys.executable, "-m", "gputop"]
PATIENCE_S = 90.0


def run(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    own = {**os.environ, "COLUMNS": "120", **env}
    return subprocess.run([*GPUTOP, *args], capture_output=True, text=True, timeout=60, env=own, check=False)


def test_a_table_and_json_have_the_shape_of_those_of_ssh_hosts(golden) -> None:  # type: ignore[no-untyped-def]
    with ScriptedPrometheus(names(9), at_s=NOON) as server:
        done = run("fleet", "--prometheus", server.url, "--once", PYTHONUTF8="1")
        assert (done.returncode, done.stderr) == (0, "")
        golden("fleet-once-120.txt", re.sub(r"\b1\ds\b", "12s", re.sub(r"21m\d\ds", "21m40s", done.stdout)))
        done = run("fleet", "--prometheus", server.url, "--json")
    found = json.loads(done.stdout)
    assert sorted(found) == ["hosts", "version", "wall_s"]
    assert len(found["hosts"]) == 9
    assert list(found["hosts"][0]) == [
        "name", "state", "why", "age_s", "gpus", "gpus_busy", "busy_percent", "vram_percent", "power_watts",
        "cpu_percent", "memory_percent", "jobs", "users", "gpus_lost", "badge", "finding", "findings",
    ]  # fmt: skip


def test_both_examples_run_against_a_server() -> None:
    with ScriptedPrometheus(names(2)) as server:
        for example in COMMANDS["fleet"].examples:
            words = example.replace("http://prometheus:9090", server.url).split()
            done = run(*words[1:])
            if "--once" in words:
                assert done.returncode == 0
            else:
                assert (done.returncode, done.stderr.count("\n")) == (64, 1)
                assert "gputop fleet --prometheus URL --once" in done.stderr or "gputop --once" in done.stderr


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        ((), 64, "required: --prometheus"),
        (("--prometheus", "prometheus:9090"), 64, "begins with http:// or https://"),
        (("--prometheus", "http://x", "--match", "cluster=a"), 64, "--match: 'cluster=a' is not a label matcher"),
        (("--prometheus", "http://x", "--token-file", "/nonexistent"), 1, "has no token"),
        (("--prometheus", "http://x", "--password-file", "/dev/null"), 64, "--password-file needs a user"),
        (("--prometheus", "http://u:p@x", "--token-file", "/dev/null"), 64, "exclude each other"),
        (("--prometheus", "http://x", "--source", "demo:healthy"), 64, "exclude each other"),
        (("--prometheus", "http://x", "--ssh-name", "nodename"), 64, "hostname"),
        (("--prometheus", "http://x", "--interval", "soon"), 64, "not a duration"),
    ],
)
def test_what_cannot_be_asked_is_one_line(args: tuple[str, ...], code: int, says: str) -> None:
    done = run("fleet", *args, "--once")
    assert (done.returncode, done.stdout) == (code, "")
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


def test_once_before_the_command_says_where_it_belongs() -> None:
    done = run("--once", "fleet", "--prometheus", "http://x")
    assert done.returncode == 64
    assert "write them after fleet" in done.stderr


def test_h05_without_an_answer_the_exit_code_says_so() -> None:
    done = run("fleet", "--prometheus", nobody().rpartition("/services")[0], "--once")
    assert (done.returncode, done.stdout) == (1, "")
    assert "connection refused" in done.stderr
    with ScriptedPrometheus(names(1)) as server:
        server.act = saying(200, b"<html>")
        done = run("fleet", "--prometheus", server.url, "--json")
        assert (done.returncode, done.stderr.count("\n")) == (1, 1)
        assert "is this the address of a Prometheus?" in done.stderr
        server.act, server.instances = None, []
        done = run("fleet", "--prometheus", server.url, "--once")
        assert (done.returncode, done.stdout) == (1, "")
        assert "no host has gputop metrics; `gputop docs fleet`" in done.stderr


def test_a_token_and_a_password_come_from_files_and_are_never_printed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("tk-secret\n")
    secret.chmod(0o600)
    with ScriptedPrometheus(names(1)) as server:
        done = run("fleet", "--prometheus", server.url, "--token-file", str(secret), "--json")
        assert (done.returncode, done.stderr) == (0, "")
        assert {asked.headers["Authorization"] for asked in server.asked} == {"Bearer tk-secret"}
        secret.chmod(0o644)
        done = run("fleet", "--prometheus", server.url, "--token-file", str(secret), "--json")
        assert (done.returncode, done.stderr) == (
            0, f"gputop: warning: other users can read the token in {secret}: run chmod 600 on it\n",
        )  # fmt: skip
        with_user = server.url.replace("http://", "http://alice@")
        server.asked.clear()
        done = run("fleet", "--prometheus", with_user, "--password-file", str(secret), "--json")
        assert (done.returncode, done.stderr) == (
            0, f"gputop: warning: other users can read the password in {secret}: run chmod 600 on it\n",
        )  # fmt: skip
        assert {asked.headers["Authorization"] for asked in server.asked} == {"Basic YWxpY2U6dGstc2VjcmV0"}
        server.act = saying(401, b"")
        done = run("fleet", "--prometheus", server.url.replace("//", "//alice:pw-secret@"), "--once")
    assert done.returncode == 1
    assert "HTTP 401" in done.stderr
    assert "secret" not in done.stdout + done.stderr


@pytest.mark.waits
@pytest.mark.skipif(bool(MISSING), reason=MISSING)
def test_enter_opens_a_host_over_a_real_ssh_and_one_that_refuses_says_why(tmp_path: Path, fake: Fake) -> None:
    fake.update({"gpus": 4})
    server = SshServer(tmp_path / "node01", remote_environ(fake.env()))
    env = {**os.environ, **client(tmp_path / "client", {"node01": server})}
    try:
        with (
            ScriptedPrometheus(["node01:9400", "nobody.invalid:9400"]) as prometheus,
            Terminal([*GPUTOP, "fleet", "--prometheus", prometheus.url], size=(120, 40), env=env) as terminal,
        ):
            terminal.wait_for("2 live", PATIENCE_S)
            terminal.send("/", "nobody", "enter")
            terminal.wait_for("1 of 2 hosts")
            terminal.send("enter")
            terminal.wait_for("ssh: unknown host name", PATIENCE_S)
            terminal.send("escape")
            terminal.wait_for(lambda screen: not any("1 of 2 hosts" in line for line in screen))
            terminal.send("/", "node01", "enter")
            terminal.wait_for(lambda screen: any(line.startswith("─ node01") for line in screen))
            terminal.send("enter")
            terminal.wait_for(lambda screen: "H100" in screen[0] and "Backspace Hosts" in screen[-1], PATIENCE_S)
            terminal.send("backspace")
            terminal.wait_for("WORST FINDING", PATIENCE_S)
            terminal.send("q")
            assert terminal.wait_exit() == 0
    finally:
        server.stop()
