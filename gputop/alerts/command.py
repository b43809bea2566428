"""Messages to a program: the alert as JSON on standard input, its fields as variables and whole arguments."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from gputop.alerts.message import AlertMessage, as_json
from gputop.alerts.receiver import TIMEOUT_S, Undelivered
from gputop.frozen_dataclass import frozen_dataclass
from gputop.safe import programs

_GRACE_S, _LOOK_S = 1.0, 0.02  # between SIGTERM and SIGKILL; between two looks in that time
_TRY_AGAIN = 75  # EX_TEMPFAIL of sysexits.h
# what a program needs to reach a desktop or a mail queue; nothing else of our environment is passed on
_PASSED = ("HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "DISPLAY", "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR",
           "DBUS_SESSION_BUS_ADDRESS")  # fmt: skip


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A program with arguments. Never a shell."""

    name: str
    argv: tuple[str, ...]
    timeout_s: float = TIMEOUT_S

    @property
    def acts(self) -> bool:
        """It may change anything."""
        return True

    @property
    def place(self) -> str:
        """The program; arguments may be secrets."""
        return f"command {self.argv[0]}"

    def send(self, message: AlertMessage) -> None:
        """Run it to its end, or to its deadline, when it is killed with what it started."""
        values = variables(message)
        argv = [arguments(values).get(word, word) for word in self.argv]
        run(argv, json.dumps(as_json(message)).encode(), self.timeout_s, {f"ALERT_{k}": v for k, v in values.items()})


PLACEHOLDERS = (
    "{status}", "{name}", "{id}", "{severity}", "{host}", "{subject}", "{title}", "{headline}", "{text}", "{step}",
    "{rule}", "{metric}", "{value}",
)  # fmt: skip


def variables(message: AlertMessage) -> dict[str, str]:
    """The fields that a program gets, by the end of their variables."""
    return {
        "STATUS": message.status,
        "NAME": message.alert,
        "ID": message.id,
        "SEVERITY": message.severity,
        "HOST": message.host,
        "SUBJECT": message.about.name,
        "TITLE": message.title,
        "HEADLINE": message.headline,
        "TEXT": message.text,
        "STEP": message.step,
        "RULE": message.rule or "",
        "METRIC": message.metric or "",
        "VALUE": "" if message.value is None else f"{message.value:g}",
    }


def arguments(values: Mapping[str, str]) -> dict[str, str]:
    """What stands for a whole argument: `{title}`. Text of others never begins with a dash: it would be an option."""
    return {f"{{{name.lower()}}}": f" {value}" if value.startswith("-") else value for name, value in values.items()}


def run(argv: Sequence[str], given: bytes, seconds: float, more: Mapping[str, str]) -> None:
    """Run a program in its own session, without our terminal or files; Undelivered unless it exits with 0."""
    environ = {"PATH": programs.PATH, **{name: os.environ[name] for name in _PASSED if name in os.environ}, **more}
    # a file in memory: a pipe that nobody reads would end us by SIGPIPE
    with os.fdopen(os.memfd_create("alert", os.MFD_CLOEXEC), "w+b") as stdin:
        stdin.write(given)
        stdin.seek(0)
        try:
            running = programs.start(
                argv,
                stdin=stdin,
                stdout=programs.DEVNULL,
                stderr=programs.DEVNULL,
                cwd="/",
                env=environ,
                start_new_session=True,
            )
        except programs.NotRun as why:
            raise Undelivered(str(why), again=False) from None
        except (OSError, ValueError) as error:
            raise Undelivered(f"{argv[0]}: {getattr(error, 'strerror', None) or error}", again=False) from None
    try:
        code = running.wait(seconds)
    except programs.Timeout:
        _kill(running)
        raise Undelivered(f"{argv[0]} did not exit within {seconds:g} s: killed", again=False) from None
    if code < 0:
        raise Undelivered(f"{argv[0]} was ended by signal {-code}", again=False)
    if code:
        raise Undelivered(f"{argv[0]} exited with {code}", again=code == _TRY_AGAIN)


def _kill(running: programs.Running[bytes]) -> None:
    """End a program and its process group. It is waited for last: until then no other group can get its number."""
    _signal(running.pid, signal.SIGTERM)
    until_s = time.monotonic() + _GRACE_S
    while time.monotonic() < until_s and not os.waitid(os.P_PID, running.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
        time.sleep(_LOOK_S)
    _signal(running.pid, signal.SIGKILL)
    with suppress(programs.Timeout):  # it may hang in the kernel
        running.wait(_GRACE_S)


def _signal(group: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
