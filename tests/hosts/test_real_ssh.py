"""Several hosts by way of a real sshd: values arrive, one host dies and comes back, bad hosts say why."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gputop.hosts.remote_action import Outcome, RemoteActions
from gputop.model import Process
from gputop.safe.identity import read_stat
from tests.fakenvml import Fake
from tests.hosts.test_agentless import NVIDIA_SMI
from tests.pty_programs import Terminal, wait_until
from tests.ssh_server import MISSING, SshServer, client, free_port, remote_environ

pytestmark = [pytest.mark.skipif(bool(MISSING), reason=MISSING), pytest.mark.waits]
GPUTOP = str(Path(sys.executable).with_name("gputop"))
PATIENCE_S = 90.0


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, SshServer]]:
    """Two hosts with two GPUs each."""
    folder = tmp_path_factory.mktemp("hosts")
    fake = Fake(folder / "driver", gpus=2)
    made = {name: SshServer(folder / name, remote_environ(fake.env())) for name in ("node01", "node02")}
    yield made
    for server in made.values():
        server.stop()


@pytest.fixture
def environ(servers: dict[str, SshServer], tmp_path: Path) -> dict[str, str]:
    """Variables of a local gputop that knows both, and some that cannot be reached."""
    found = client(tmp_path / "client", servers)
    config = tmp_path / "client" / "config"
    text = config.read_text()
    nobody = f"Host nobody\n HostName 127.0.0.1\n Port {free_port()}\n"
    stranger = text.replace("Host node01", "Host stranger").replace("HostKeyAlias node01", "HostKeyAlias stranger")
    keyless = text.replace("Host node01", "Host keyless").replace("IdentityFile ", "IdentityFile /nonexistent")
    ends = [place.partition("\nHost node02")[0] + "\n" for place in (stranger, keyless)]
    config.write_text(text + nobody + "".join(ends))
    return {**os.environ, **found, "COLUMNS": "200"}


def once(environ: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [GPUTOP, *arguments], env=environ, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )


def test_a_line_for_each_host_with_what_its_driver_says(environ: dict[str, str]) -> None:
    done = once(environ, "--host", "node[01-02]", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    hosts = json.loads(done.stdout)["hosts"]
    assert [(host["name"], host["state"], host["gpus"]) for host in hosts] == [
        ("node01", "live", 2), ("node02", "live", 2),
    ]  # fmt: skip
    assert all(host["vram_percent"] is not None and host["cpu_percent"] is not None for host in hosts)


def test_h01_each_host_that_cannot_be_reached_says_why_and_the_rest_goes_on(environ: dict[str, str]) -> None:
    done = once(
        environ, "--once", *(word for name in ("nobody", "stranger", "keyless", "node01") for word in ("--host", name))
    )
    assert done.returncode == 0
    lines = {line.split()[0]: line for line in done.stdout.splitlines()}
    assert "connection refused" in lines["nobody"]
    assert "host key unknown or changed" in lines["stranger"]
    assert "permission denied" in lines["keyless"]
    assert "2/2" in lines["node01"] or "0/2" in lines["node01"]


def test_h01_without_any_host_the_exit_code_says_so(environ: dict[str, str]) -> None:
    done = once(environ, "--once", "--host", "nobody")
    assert done.returncode == 1
    assert "connection refused" in done.stdout


def test_h02_a_host_dies_and_comes_back_while_watched(servers: dict[str, SshServer], environ: dict[str, str]) -> None:
    with Terminal([GPUTOP, "--host", "node01", "--host", "node02"], env=environ) as terminal:
        terminal.wait_for(lambda screen: sum("/2 " in line for line in screen) >= 2, PATIENCE_S)
        terminal.wait_for("2 live", PATIENCE_S)
        servers["node02"].stop()
        terminal.wait_for(lambda screen: "1 no data" in screen[0] and any("no data:" in line for line in screen))
        assert "node01" in terminal.text()
        servers["node02"].start()
        terminal.send("R")
        terminal.wait_for("2 live", PATIENCE_S)
        terminal.send("q")
        assert terminal.wait_exit() == 0


def test_the_whole_screen_of_a_host_opens_and_closes(environ: dict[str, str]) -> None:
    with Terminal([GPUTOP, "--host", "node01", "--host", "node02"], env=environ) as terminal:
        terminal.wait_for("2 live", PATIENCE_S)
        terminal.send("enter")
        terminal.wait_for(
            lambda screen: "H100" in screen[0] and any("Backspace Hosts" in line for line in screen), PATIENCE_S
        )
        terminal.send("backspace")
        terminal.wait_for("WORST FINDING", PATIENCE_S)
        terminal.send("q")
        assert terminal.wait_exit() == 0
    wait_until(lambda: not _children_of_ssh(environ), 20, "the connections end with it")


def test_h04_a_signal_goes_through_ssh_to_the_process_that_is_meant(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PATH", "XDG_RUNTIME_DIR"):
        monkeypatch.setenv(name, environ[name])
    outcomes: list[Outcome] = []
    with subprocess.Popen(["sleep", "600"]) as sleeper:
        stat = read_stat(sleeper.pid)
        assert stat is not None
        assert stat.started_ticks is not None
        there = Process(pid=sleeper.pid, started_ticks=stat.started_ticks)
        other = Process(pid=sleeper.pid, started_ticks=stat.started_ticks - 1)
        RemoteActions("node01").send_signal("TERM", [other], outcomes.append)
        wait_until(lambda: len(outcomes) == 1, PATIENCE_S, "the answer")
        assert not outcomes[0].good
        assert outcomes[0].text.startswith(f"node01: nothing sent to {sleeper.pid}: it exited")
        assert sleeper.poll() is None
        RemoteActions("node01").send_signal("TERM", [there], outcomes.append)
        wait_until(lambda: len(outcomes) == 2, PATIENCE_S, "the answer")
        assert outcomes[1] == Outcome(f"node01: TERM sent to {sleeper.pid} (sleep)", True)
        assert sleeper.wait(20) == -15
    RemoteActions("nobody").send_signal("TERM", [there], outcomes.append)
    wait_until(lambda: len(outcomes) == 3, PATIENCE_S, "the answer")
    assert outcomes[2].text.startswith("nobody: connection refused")


def _children_of_ssh(environ: dict[str, str]) -> list[str]:
    """Connections that this client has open: by the path of its configuration."""
    config = str(Path(environ["PATH"].split(":")[0]).parent / "config").encode()
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if config in place.read_bytes():
                found.append(place.parts[2])
        except OSError:
            continue
    return found


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    """A host with nvidia-smi and without gputop."""
    folder = tmp_path_factory.mktemp("bare")
    tool = folder / "nvidia-smi"
    tool.write_text(NVIDIA_SMI)
    tool.chmod(0o755)
    home = folder / "home"
    home.mkdir()
    server = SshServer(folder / "bare", {"PATH": f"{folder}:/usr/bin:/bin", "HOME": str(home)})
    yield server
    server.stop()


def test_h01_a_host_without_gputop_says_so_and_is_read_without_it(bare: SshServer, tmp_path: Path) -> None:
    environ = {**os.environ, **client(tmp_path / "client", {"bare": bare}), "COLUMNS": "200"}
    done = once(environ, "--once", "--host", "bare")
    assert done.returncode == 1
    assert "gputop is not installed there: install it, or use --agentless" in done.stdout
    done = once(environ, "--json", "--agentless", "--host", "bare")
    assert done.returncode == 0, done.stdout + done.stderr
    (host,) = json.loads(done.stdout)["hosts"]
    assert (host["state"], host["gpus"], host["gpus_busy"]) == ("live", 2, 1)
    assert host["cpu_percent"] is not None


def test_agentless_needs_hosts(environ: dict[str, str]) -> None:
    done = once(environ, "--once", "--agentless")
    assert done.returncode == 64
    assert "--agentless needs hosts" in done.stderr
