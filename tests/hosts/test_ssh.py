"""The command line of ssh, and why it ended."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from gputop.hosts.ssh import command, remote_line, why


@pytest.mark.parametrize(
    ("code", "errors", "cause"),
    [
        (255, b"alice@n1: Permission denied (publickey,password).\r\n", "permission denied: no key was accepted"),
        (255, b"Host key verification failed.\r\n", "host key unknown or changed: connect once with `ssh n1`"),
        (
            255,
            b"@@@@\n@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\n@@@@\nHost key verification failed.\n",
            "host key changed: check it, then `ssh-keygen -R n1`",
        ),
        (255, b"ssh: Could not resolve hostname n1: Name or service not known\n", "unknown host name"),
        (255, b"ssh: connect to host n1 port 22: Connection refused\n", "connection refused"),
        (255, b"ssh: connect to host n1 port 22: Connection timed out\n", "no answer within 10 s"),
        (255, b"Timeout, server n1 not responding.\n", "connection lost: it stopped answering"),
        (255, b"kex_exchange_identification: Connection closed by remote host\n", "connection closed by the host"),
        (255, b"something new\n", "ssh: something new"),
        (255, b"", "ssh ended without a message"),
        (127, b"sh: 1: exec: gputop: not found\n", "gputop is not installed there"),
        (64, b"motd\ngputop: unknown option --x\n", "unknown option --x"),
        (0, b"", "its gputop ended"),
        (3, b"", "its gputop ended with exit code 3"),
        (-15, b"", "connection closed"),
    ],
)
def test_h01_why_it_ended_in_words(code: int, errors: bytes, cause: str) -> None:
    assert why("n1", code, errors).startswith(cause)


def test_a_hostile_message_is_one_clean_short_line() -> None:
    said = why("n1", 255, b"\x1b[2J\x1b]0;x\x07" + b"x" * 9000 + b"\x9b31m\n")
    assert said.isprintable()
    assert len(said) < 220


@pytest.mark.parametrize("shell", ["sh", "bash", "dash"])
def test_the_remote_line_runs_in_any_shell_with_the_words_as_given(shell: str, tmp_path: Path) -> None:
    words = ["printf", "%s\\n", "it's $HOME", '"; reboot', "*"]
    home = tmp_path / "no home"
    done = subprocess.run(
        [shell, "-c", remote_line(words)], check=True, capture_output=True, text=True,
        env={"PATH": os.environ["PATH"], "HOME": str(home)},
    )  # fmt: skip
    assert done.stdout.splitlines() == words[2:]


def test_the_destination_is_never_an_option_and_no_question_is_asked(tmp_path: Path) -> None:
    ssh = tmp_path / "ssh"
    ssh.write_text("#!/bin/sh\n")
    ssh.chmod(0o755)
    runtime = Path(tempfile.mkdtemp(prefix="g-"))  # short: a socket's path has a limit
    argv = command("n1", "true", {"PATH": str(tmp_path), "XDG_RUNTIME_DIR": str(runtime)})
    assert argv[0] == str(ssh)
    assert argv[-3:] == ["--", "n1", "true"]
    assert "-oBatchMode=yes" in argv
    (place,) = [word for word in argv if word.startswith("-oControlPath=")]
    assert place.startswith(f"-oControlPath={runtime}/gputop/ssh-")
    assert place.endswith("-%C")
    # an alias of the same address may have another key, host key or proxy
    assert place not in command("n2", "true", {"PATH": str(tmp_path), "XDG_RUNTIME_DIR": str(runtime)})
    assert (runtime / "gputop").stat().st_mode & 0o777 == 0o700
    shutil.rmtree(runtime)


def test_a_folder_too_deep_for_a_socket_means_no_sharing(tmp_path: Path) -> None:
    ssh = tmp_path / "ssh"
    ssh.write_text("#!/bin/sh\n")
    ssh.chmod(0o755)
    deep = tmp_path / ("x" * 100)
    deep.mkdir(mode=0o700)
    argv = command("n1", "true", {"PATH": str(tmp_path), "XDG_RUNTIME_DIR": str(deep)})
    assert not any("Control" in word for word in argv)
