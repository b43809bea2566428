"""OpenSSH as a child: the user's own configuration and keys, one connection a host, and in one line why it ended."""

from __future__ import annotations

import os
import re
import shlex
import socket
import struct
from collections.abc import Mapping, Sequence
from hashlib import sha256
from threading import Thread

from gputop.safe import programs
from gputop.safe.files import Refused, runtime_folder
from gputop.safe.text import clean

CONNECT_S = 10  # until a host that does not answer counts as unreachable
_ALIVE_S = 5  # between two probes of a silent connection; three unanswered ones end it
_LAST_WORDS_S = 0.5
_MOST_ERRORS = 4096  # bytes of standard error that are kept
_SSH_FAILED = 255  # ssh's own exit code; others are those of the remote command
_NOT_FOUND = 127  # of a shell
# of the shared connection. %C hashes address, port and user; two aliases of one address may differ in their key, host
# key or proxy, and lead to different machines
_CONTROL = "ssh-{alias}-%C"
_CONTROL_GROWS = 38 + 17  # %C is 40 characters, and ssh adds 17 while it creates the socket
_LONGEST_SOCKET = 107  # bytes of a socket's path (sun_path of unix(7))
_PLACES = "$HOME/.local/bin:/usr/local/bin:/opt/gputop/bin"  # where pip and pipx put gputop, beside PATH
# what ssh takes for a destination, and no option of it
_DESTINATION = re.compile(r"(?:[A-Za-z0-9_][\w.-]*@)?[A-Za-z0-9_:][\w.:-]*", re.ASCII)
_LONGEST_NAME = 255
# the last words of ssh, as what the user would look for
_CAUSES = (
    ("remote host identification has changed", "host key changed: check it, then `ssh-keygen -R {host}`"),
    ("host key verification failed", "host key unknown or changed: connect once with `ssh {host}`"),
    ("permission denied", "permission denied: no key was accepted; check `ssh -o BatchMode=yes {host}`"),
    ("could not resolve hostname", "unknown host name"),
    ("connection refused", "connection refused: no SSH server on its port"),
    ("no route to host", "no route to it"),
    ("network is unreachable", "network unreachable"),
    ("timed out", "no answer within {seconds} s"),
    ("timeout", "connection lost: it stopped answering"),
    ("connection reset", "connection reset"),
    ("closed by", "connection closed by the host"),
    ("broken pipe", "connection lost"),
)


class NoSsh(Exception):
    """OpenSSH cannot be used here; the message says why in one line."""


def check_destination(host: str) -> None:
    """ValueError with one line unless a name is a destination for ssh: HOST, USER@HOST or an alias."""
    if len(host) > _LONGEST_NAME or not _DESTINATION.fullmatch(host):
        raise ValueError(f"{clean(host, 80)!r} is not a host name: use HOST, USER@HOST or an alias of ~/.ssh/config")


def remote_line(words: Sequence[str]) -> str:
    """One line for the login shell of the other host, whichever shell that is; it runs the words by way of sh."""
    script = f'PATH="$PATH:{_PLACES}"; export PATH; exec {shlex.join(words)}'
    return f"exec sh -c {shlex.quote(script)}"


class Child:
    """A remote command. Its output is read from `output`, a descriptor whose reads time out."""

    def __init__(self, host: str, words: Sequence[str], *, silence_s: float) -> None:
        """Starts it. `silence_s`: without output for so long a read fails. NoSsh if there is no OpenSSH."""
        self.host = host
        here, there = socket.socketpair()
        here.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@ll", int(silence_s), 0))  # a timeval
        try:
            self._process = programs.start(
                command(host, remote_line(words), os.environ),
                stdin=programs.DEVNULL,
                stdout=there.fileno(),
                stderr=programs.PIPE,
                start_new_session=True,  # Ctrl+C is for us
            )
        except (programs.NotRun, OSError) as error:
            here.close()
            raise NoSsh(f"ssh cannot be run: {error}") from None
        finally:
            there.close()
        self._here = here
        self._errors = b""
        self._reader = Thread(target=self._keep_errors, name=f"ssh errors: {host}", daemon=True)
        self._reader.start()

    @property
    def output(self) -> int:
        """The descriptor to read; belongs to this child."""
        return self._here.fileno()

    def end(self) -> None:
        """End it; a read of its output returns."""
        if self._process.poll() is None:
            self._process.terminate()
        try:
            self._here.shutdown(socket.SHUT_RDWR)
        except OSError:  # it is closed
            pass

    def reason(self, patience_s: float = 2.0) -> str:
        """Why it ended, in one line; empty if it had not, and was ended by this call."""
        ended = True
        try:
            self._process.wait(_LAST_WORDS_S)  # its output has ended: its exit code says why
        except programs.Timeout:
            ended = False
        self.end()
        try:
            code = self._process.wait(patience_s)
        except programs.Timeout:
            self._process.kill()
            code = self._process.wait()
        self._reader.join(patience_s)
        self._here.close()
        return why(self.host, code, self._errors) if ended or self._errors else ""

    def _keep_errors(self) -> None:
        stream = self._process.stderr
        assert stream is not None
        while data := stream.read1(_MOST_ERRORS):  # type: ignore[attr-defined]  # a BufferedReader
            self._errors = (self._errors + data)[-_MOST_ERRORS:]
        stream.close()


def answer(host: str, words: Sequence[str], seconds: float) -> tuple[int, str]:
    """Exit code and output of a remote command, or why it could not run; NoSsh without OpenSSH."""
    try:
        argv = command(host, remote_line(words), os.environ)
        process = programs.start(
            argv, stdin=programs.DEVNULL, stdout=programs.PIPE, stderr=programs.PIPE, start_new_session=True
        )
    except (programs.NotRun, OSError) as error:
        raise NoSsh(f"ssh cannot be run: {error}") from None
    try:
        out, errors = process.communicate(timeout=seconds)
    except programs.Timeout:
        process.kill()
        process.communicate()
        raise NoSsh(f"no answer within {seconds:.0f} s; it may still be done") from None
    text = out[:_MOST_ERRORS].decode(errors="replace")
    return process.returncode, text if text.strip() else why(host, process.returncode, errors[-_MOST_ERRORS:])


def interactive(host: str, words: Sequence[str]) -> list[str]:
    """The command line of a remote command on this terminal; NoSsh without OpenSSH."""
    try:
        argv = command(host, remote_line(words), os.environ)
    except programs.NotRun as error:
        raise NoSsh(f"ssh cannot be run: {error}") from None
    return [argv[0], "-t", *argv[2:]]


def command(host: str, line: str, environ: Mapping[str, str]) -> list[str]:
    """The command line of ssh for a remote line; programs.NotRun if there is no ssh.

    It never asks a question, and shares one connection a host where the runtime folder is ours.
    """
    options = {
        "BatchMode": "yes",
        "ConnectTimeout": str(CONNECT_S),
        "ServerAliveInterval": str(_ALIVE_S),
        "ClearAllForwardings": "yes",
        **_sharing(host, environ),
    }
    ssh = programs.find("ssh", environ.get("PATH", programs.PATH))
    return [ssh, "-T", "-x", *(f"-o{name}={value}" for name, value in options.items()), "--", host, line]


def _sharing(host: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Options for one connection a host, however many commands run over it."""
    try:
        folder = runtime_folder(environ)
    except Refused:
        return {}
    alias = sha256(host.encode()).hexdigest()[:8]
    place = f"{folder.path}/{_CONTROL.format(alias=alias)}"
    folder.close()
    if len(os.fsencode(place)) + _CONTROL_GROWS > _LONGEST_SOCKET:
        return {}
    return {"ControlMaster": "auto", "ControlPath": place}


def why(host: str, code: int, errors: bytes) -> str:
    """Why a remote command ended, from its exit code and the end of its standard error."""
    lines = [clean(line.strip()) for line in errors.decode(errors="replace").splitlines() if line.strip()]
    last = lines[-1] if lines else ""
    if code == _NOT_FOUND:
        return "gputop is not installed there: install it, or use --agentless"
    if code == _SSH_FAILED:
        said = " ".join(lines).casefold()
        for words, cause in _CAUSES:
            if words in said:
                return cause.format(host=host, seconds=CONNECT_S)
        return f"ssh: {last[:200]}" if last else "ssh ended without a message"
    if code < 0:
        return "connection closed"
    said = last.removeprefix("gputop: ")
    return said[:200] or (f"its gputop ended with exit code {code}" if code else "its gputop ended")
