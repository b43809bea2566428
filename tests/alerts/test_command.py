"""Commands and mail: real programs, what they get, and what happens to those that fail or hang."""

from __future__ import annotations

import email
import email.policy
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from gputop.alerts.command import PLACEHOLDERS, Command, arguments, variables
from gputop.alerts.mail import Mail, mail_bytes
from gputop.alerts.message import as_json
from gputop.alerts.receiver import Undelivered
from tests.alert_updates import message
from tests.real_processes import until


@pytest.fixture
def script(tmp_path: Path) -> Any:
    """Writes a program that runs Python, and returns its path."""

    def write(text: str, name: str = "program") -> str:
        path = tmp_path / name
        path.write_text(f"#!{sys.executable} -I\nimport json, os, sys\nhere = {str(tmp_path)!r}\n{text}\n")
        path.chmod(0o700)
        return str(path)

    return write


def send(*argv: str, timeout_s: float = 20.0, **fields: Any) -> None:
    Command(name="page", argv=argv, timeout_s=timeout_s).send(message(**fields))


def test_a_command_gets_json_arguments_and_variables_and_nothing_else(script: Any, tmp_path: Path) -> None:
    program = script(
        "def tty():\n"
        "    try:\n        os.close(os.open('/dev/tty', os.O_RDWR))\n"
        "    except OSError:\n        return False\n"
        "    return True\n"
        "seen = {'given': json.load(sys.stdin), 'argv': sys.argv[1:], 'environ': dict(os.environ),\n"
        "        'files': [os.readlink(f'/proc/self/fd/{fd}') for fd in (0, 1, 2)], 'cwd': os.getcwd(),\n"
        "        'fds': os.listdir('/proc/self/fd'), 'tty': tty(), 'session': os.getsid(0) == os.getpid()}\n"
        "json.dump(seen, open(here + '/seen', 'w'))"
    )
    inherited = os.open("/", os.O_RDONLY)
    os.set_inheritable(inherited, True)
    try:
        send(program, "--title", "{title}", "{host}", "x {host}", "$(id)")
    finally:
        os.close(inherited)
    seen = json.loads((tmp_path / "seen").read_text())
    assert seen["given"] == as_json(message())
    assert seen["argv"] == ["--title", message().title, "dgx-07", "x {host}", "$(id)"]
    assert seen["environ"]["ALERT_TITLE"] == message().title
    assert set(seen["environ"]) - {"LC_CTYPE"} <= {
        "PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "DISPLAY", "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR",
        "DBUS_SESSION_BUS_ADDRESS", *(f"ALERT_{name}" for name in variables(message())),
    }  # fmt: skip
    assert seen["files"][1:] == ["/dev/null", "/dev/null"]
    assert sorted(map(int, seen["fds"]))[:3] == [0, 1, 2]
    assert len(seen["fds"]) == 4  # the fourth lists the folder itself
    assert (seen["cwd"], seen["tty"], seen["session"]) == ("/", False, True)


def test_every_placeholder_is_a_variable_in_small_letters() -> None:
    assert set(arguments(variables(message()))) == set(PLACEHOLDERS)


def test_text_of_others_is_never_an_option() -> None:
    assert arguments(variables(message(headline="--exec=/bin/sh")))["{headline}"] == " --exec=/bin/sh"


@pytest.mark.parametrize(
    ("text", "why", "again"),
    [
        ("sys.exit(3)", "exited with 3", False),
        ("sys.exit(75)", "exited with 75", True),
        ("os.kill(os.getpid(), 9)", "was ended by signal 9", False),
        ("os.close(0); sys.exit(0)", "", False),
    ],
)
def test_how_a_command_ends(script: Any, text: str, why: str, again: bool) -> None:
    program = script(text)
    if not why:
        send(program)
        return
    with pytest.raises(Undelivered) as failed:
        send(program)
    assert (str(failed.value), failed.value.again) == (f"{program} {why}", again)


def test_a_command_that_hangs_is_killed_with_its_children(tmp_path: Path) -> None:
    program = tmp_path / "hangs"
    program.write_text(  # what ignores a signal passes that on to its children
        f"#!/bin/sh\ntrap '' TERM\nsleep 600 &\necho $$ $! > {tmp_path}/new\nmv {tmp_path}/new {tmp_path}/pids\nwait\n"
    )
    program.chmod(0o700)
    with pytest.raises(Undelivered, match="did not exit within 3 s: killed"):
        send(str(program), timeout_s=3.0)
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    until(lambda: not any(_alive(pid) for pid in pids))


def _alive(pid: int) -> bool:
    """Whether it runs; a zombie that nobody waits for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_a_program_that_others_could_change_is_not_run(script: Any, tmp_path: Path) -> None:
    program = script("open(here + '/ran', 'w')")
    Path(program).chmod(0o722)
    with pytest.raises(Undelivered, match="is not run: it is world-writable") as refused:
        send(program)
    assert not refused.value.again
    with pytest.raises(Undelivered, match="No such file"):
        send(str(tmp_path / "missing"))
    assert not (tmp_path / "ran").exists()


def sendmail(script: Any) -> str:
    """A program that keeps what it gets."""
    return script(
        "open(here + '/mail', 'wb').write(sys.stdin.buffer.read())\nopen(here + '/argv', 'w').write(repr(sys.argv[1:]))"
    )


def test_mail_is_handed_to_sendmail(script: Any, tmp_path: Path) -> None:
    receiver = Mail(
        name="ops", to=("ops@example.com", "root"), sender="gputop@dgx-07.example.com", program=sendmail(script)
    )
    receiver.send(message())
    assert (tmp_path / "argv").read_text() == "['-t', '-oi']"
    raw = (tmp_path / "mail").read_bytes()
    assert raw.isascii()
    mail = email.message_from_bytes(raw, policy=email.policy.default)
    assert (mail["To"], mail["From"], mail["Subject"]) == (
        "ops@example.com, root", "gputop@dgx-07.example.com", message().title,
    )  # fmt: skip
    assert mail["Auto-Submitted"] == "auto-generated"
    assert mail.get_content() == f"{message().text}\n"


def test_without_a_sendmail_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("gputop.alerts.mail.FOLDERS", str(tmp_path))
    with pytest.raises(Undelivered, match="no sendmail program on this machine: install postfix, or msmtp"):
        Mail(name="ops", to=("root",)).send(message())


@pytest.mark.parametrize("text", ["a\nBcc: x@example.com", "a\r\n\r\nbody", "x\x00y", "é" * 500, "=?utf-8?q?x?="])
def test_nothing_becomes_a_header(text: str) -> None:
    raw = mail_bytes(message(headline=text, evidence=(text,)), ("ops@example.com",), "")
    mail = email.message_from_bytes(raw, policy=email.policy.default)
    assert sorted(mail.keys()) == sorted(
        ["To", "Subject", "Date", "Auto-Submitted", "X-Mailer", "X-Gputop-Alert", "Content-Type", "MIME-Version",
         "Content-Transfer-Encoding"]
    )  # fmt: skip
    assert mail["To"] == "ops@example.com"
    assert "\n" not in mail["Subject"]
