"""A real sshd on loopback, with keys of its own, and an `ssh` on PATH that knows it under any names."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.pty_programs import wait_until

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/usr/bin")
SSH, KEYGEN = shutil.which("ssh"), shutil.which("ssh-keygen")
MISSING = "" if SSHD and SSH and KEYGEN else "openssh-server is not installed: hosts over a real ssh are not covered"


def free_port() -> int:
    """A port of loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class SshServer:
    """One sshd. `environ` is what remote commands get; it can be stopped and started again on the same port."""

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.port = folder, free_port()
        self.key = folder / "user_key"
        for name in ("host_key", "user_key"):
            command = [str(KEYGEN), "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
            subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
        settings = " ".join(f'"{name}={value}"' for name, value in environ.items())
        (folder / "sshd_config").write_text(
            f"""Port {self.port}
ListenAddress 127.0.0.1
HostKey {folder}/host_key
PidFile none
AuthorizedKeysFile {folder}/user_key.pub
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin yes
MaxStartups 200
MaxSessions 50
SetEnv {settings}
"""
        )
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # its privilege separation needs the folder
        log = (self.folder / "log").open("ab")
        self._process = subprocess.Popen(
            [str(SSHD), "-D", "-e", "-f", str(self.folder / "sshd_config")],
            stdin=subprocess.DEVNULL, stderr=log, start_new_session=True,
        )  # fmt: skip
        log.close()
        wait_until(self._answers, 20, lambda: (self.folder / "log").read_text())

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def stop(self) -> None:
        """End it with every connection."""
        process, self._process = self._process, None
        if process is None:
            return
        for pid in (*_descendants(process.pid), process.pid):
            try:
                os.kill(pid, 9)
            except ProcessLookupError:
                pass
        process.wait()


def _descendants(pid: int) -> list[int]:
    """The children of a process, and theirs."""
    try:
        own = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [one for child in own for one in (*_descendants(int(child)), int(child))]


def client(folder: Path, servers: Mapping[str, SshServer], options: Sequence[str] = ()) -> dict[str, str]:
    """Variables for a program whose ssh knows each server under a name, as aliases of a user's configuration."""
    folder.mkdir(parents=True, exist_ok=True)
    known = folder / "known_hosts"
    lines = []
    config = []
    for name, server in servers.items():
        public = (server.folder / "host_key.pub").read_text().split()
        lines.append(f"{name} {public[0]} {public[1]}\n")
        config.append(
            f"Host {name}\n HostName 127.0.0.1\n Port {server.port}\n User root\n HostKeyAlias {name}\n"
            f" IdentityFile {server.key}\n IdentitiesOnly yes\n UserKnownHostsFile {known}\n"
            + "".join(f" {option}\n" for option in options)
        )
    known.write_text("".join(lines))
    (folder / "config").write_text("".join(config))
    places = folder / "bin"
    places.mkdir(exist_ok=True)
    wrapper = places / "ssh"
    wrapper.write_text(f'#!/bin/sh\nexec {SSH} -F {folder}/config "$@"\n')
    wrapper.chmod(0o755)
    runtime = Path(tempfile.mkdtemp(prefix="gputop-test-"))  # short: the path of a socket has a limit
    return {"PATH": f"{places}:{os.environ['PATH']}", "XDG_RUNTIME_DIR": str(runtime)}


def remote_environ(driver: Mapping[str, str]) -> dict[str, str]:
    """Variables of a remote command: this Python's programs, and the fake driver."""
    ours = {name: value for name, value in driver.items() if name.startswith("FAKE_") or name == "LD_LIBRARY_PATH"}
    return {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", **ours}
