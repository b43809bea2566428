"""How a full-screen program must end, whatever ends it: the terminal rows of the fault matrix, for any command line."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.oracle import modes_ever_on, modes_left_on, oracle
from tests.pty_programs import Terminal, wait_until

FULL_SCREEN = 1049
PATIENCE_S = 60.0  # where nothing is promised of how soon it comes
LEFT_BY_ANOTHER = "\\033[?1003h\\033[?1015h\\033[?1016h\\033[?2048h\\033[?25l"

WRITE = {"aarch64": 64}.get(os.uname().machine, 1)  # the system call


@dataclass(frozen=True)
class Program:
    """A command line, a text that is on its screen once it is up, and its key to quit."""

    argv: Sequence[str]
    ready: str
    quit_key: str = "q"
    env: Mapping[str, str | None] = field(default_factory=dict)

    def start(self, shell: str = "", before_exec: Callable[[], None] | None = None) -> Terminal:
        """The program on a terminal, its first frame shown; `shell` runs it as "$@"."""
        argv = ["sh", "-c", shell, "sh", *self.argv] if shell else self.argv
        terminal = Terminal(argv, env=self.env, before_exec=before_exec)
        try:
            terminal.wait_for(self.ready)
        except BaseException:
            terminal.__exit__()
            raise
        return terminal


def assert_well(terminal: Terminal) -> None:
    """Neither a mode nor a setting of the line is left."""

    def left() -> str:
        return f"modes left on: {modes_left_on(terminal.output)}; last bytes: {bytes(terminal.output[-300:])!r}"

    wait_until(lambda: not modes_left_on(terminal.output), PATIENCE_S, left)
    assert terminal.termios_now() == terminal.termios_before


def assert_given_back(terminal: Terminal) -> None:
    """Nothing is left of us, and nothing that we wrote was out of order."""
    assert_well(terminal)
    violations = oracle(bytes(terminal.output))
    assert violations == [], violations[:5]


def ends_by_key(program: Program, within: float = 1.0, first: str = "") -> None:
    """The key to quit, after the key `first`, which may have brought a fault."""
    with program.start() as terminal:
        assert FULL_SCREEN in modes_left_on(terminal.output)
        if first:
            terminal.send(first)
            time.sleep(0.2)
        terminal.send(program.quit_key)
        assert terminal.wait_exit(within) == 0
        assert_given_back(terminal)
        assert not modes_ever_on(terminal.output) & {1002, 1003, 1015, 1016, 2048}


def ends_by_signal(program: Program, number: int, within: float = 3.0) -> None:
    """One signal from outside: 128+n, everything given back."""
    with program.start() as terminal:
        terminal.signal(number)
        assert terminal.wait_exit(within) == 128 + number
        assert_given_back(terminal)


def ends_by_second_signal(program: Program, first: int, second: int, block: str = "") -> None:
    """The second signal is not made to wait; `block` is a key that stops the event loop for ever."""
    with program.start() as terminal:
        if block:
            terminal.send(block)
            terminal.wait_quiet()
        terminal.signal(first)
        # two at once would be delivered in any order
        time.sleep(0.3 if block else 0.02)
        terminal.signal(second)
        # one signal alone takes a blocked loop the whole two seconds
        code = terminal.wait_exit(1.2 if block else 3.0)
        assert code in ({128 + second} if block else {128 + first, 128 + second})
        assert_given_back(terminal)


def heals_at_the_next_start(program: Program) -> None:
    """SIGKILL of it and its child leaves everything on, as another program may; the next start and end heals it."""
    with program.start(shell=f'"$@"; printf "{LEFT_BY_ANOTHER}"; "$@"') as terminal:
        kills_with_its_child(child_of(terminal))
        wait_until(lambda: terminal.output.count(b"\x1b[?1049h") == 2, PATIENCE_S, "no second start")
        terminal.wait_for(program.ready)
        assert {1003, 1015, 1016, 2048} & modes_left_on(terminal.output) == set()
        terminal.send(program.quit_key)
        assert terminal.wait_exit() == 0
        assert_well(terminal)


def gives_back_after_sigkill(program: Program) -> None:
    """Its child does, at once: the shell can be used, whatever was on."""
    with program.start(shell='"$@"; read -r go') as terminal:
        assert FULL_SCREEN in modes_left_on(terminal.output)
        os.kill(child_of(terminal), signal.SIGKILL)
        assert_well(terminal)
        terminal.send("\n")
        terminal.wait_exit()


def kills_with_its_child(pid: int) -> None:
    """As `pkill -9` does, which finds both under one command line."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    for one in (*map(int, children), pid):
        os.kill(one, signal.SIGKILL)


def heals_by_command(program: Program, reset: Sequence[str]) -> None:
    """SIGKILL of it and of its child leaves everything on; the command alone puts it right."""
    with program.start(shell=f'"$@"; printf "{LEFT_BY_ANOTHER}"; read -r go; {" ".join(reset)}') as terminal:
        kills_with_its_child(child_of(terminal))
        wait_until(lambda: {FULL_SCREEN, 1003} <= modes_left_on(terminal.output), PATIENCE_S)
        assert terminal.termios_now() != terminal.termios_before
        terminal.send("\n")
        assert terminal.wait_exit() == 0
        assert_well(terminal)


def child_of(terminal: Terminal) -> int:
    """The program that the shell of the terminal runs."""
    return int(Path(f"/proc/{terminal.pid}/task/{terminal.pid}/children").read_text().split()[0])


def ends_with_its_line(program: Program, ignore_hup: bool, suspended: bool = False, within: float = 2.0) -> None:
    """The line is dead: gone soon, whether or not SIGHUP may tell it, and no CPU burnt meanwhile."""

    def before_exec() -> None:
        if ignore_hup:
            signal.signal(signal.SIGHUP, signal.SIG_IGN)

    with program.start(before_exec=before_exec) as terminal:
        if suspended:
            terminal.send("ctrl+z")
            terminal.wait_state("T")
        before = terminal.cpu_s()
        terminal.close_master()
        peak = before
        deadline = time.monotonic() + within
        while terminal.process.poll() is None:
            assert time.monotonic() < deadline, f"still there after {within} s, {peak - before} s of CPU"
            try:
                peak = terminal.cpu_s()
            except (OSError, IndexError):
                pass
            time.sleep(0.01)
        assert terminal.wait_exit() == 128 + signal.SIGHUP
        assert peak - before < 1.0


def refuses_without_a_terminal(program: Program) -> None:
    """Standard input from nowhere, a pipe, or closed; standard output to a pipe, a file, or closed."""
    for redirection in ("< /dev/null", "0<&-", "> /dev/null", "1>&-", "| cat", "< /etc/hostname"):
        script = f'("$@" 2>&3; echo "rc=$?" >&3) 3>&2 {redirection}'
        terminal = Terminal(["sh", "-c", script, "sh", *program.argv], env=program.env)
        with terminal:
            terminal.wait_exit()
            terminal.wait_for("rc=64")
            assert "is not a terminal" in terminal.text(), redirection
            assert terminal.output.count(b"\x1b") == 0
            assert terminal.termios_now() == terminal.termios_before


def refuses_a_dumb_terminal(program: Program) -> None:
    """TERM=dumb has no full screen."""
    with Terminal(program.argv, env={**program.env, "TERM": "dumb"}) as terminal:
        assert terminal.wait_exit() == 64
        terminal.wait_for("TERM=dumb")
        assert terminal.output.count(b"\x1b") == 0


def ends_while_stalled(program: Program, end: Callable[[Terminal, int], None], code: int, within: float = 3.0) -> None:
    """The terminal reads nothing: `end` ends the program still, and once the link is back the terminal is well."""
    with program.start(shell='"$@"; echo "rc=$?"; read -r go') as terminal:
        pid = child_of(terminal)
        stall(terminal, pid)
        end(terminal, pid)
        wait_until(lambda: not Path(f"/proc/{pid}").exists(), within, "still there")
        assert terminal.termios_now() == terminal.termios_before
        flags = Path(f"/proc/{terminal.pid}/fdinfo/0").read_text().partition("flags:")[2].split()[0]
        assert not int(flags, 8) & os.O_NONBLOCK, "the shell's own input was left non-blocking"
        terminal.reading.set()
        wait_until(
            lambda: f"rc={code}".encode() in terminal.output, PATIENCE_S, lambda: str(bytes(terminal.output[-200:]))
        )
        assert modes_left_on(terminal.output) == set(), bytes(terminal.output[-400:])


def stall(terminal: Terminal, pid: int) -> None:
    """Stops reading, as a stalled link does, until the kernel's buffer is full and the program's writer hangs."""
    terminal.reading.clear()
    wait_until(lambda: in_terminal_write(pid), PATIENCE_S, "the line never filled up")


def in_terminal_write(pid: int) -> bool:
    """Whether a thread of the process sleeps in a write to standard output."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            # a thread that runs has "running" there
            if task.joinpath("syscall").read_text().startswith(f"{WRITE} 0x1 "):
                return True
        except OSError:
            continue
    return False


def goes_on_after_a_stall(program: Program, seconds: float, shown: str = "") -> None:
    """The terminal reads nothing for a while, then again: a whole picture, with what was drawn meanwhile."""
    with program.start() as terminal:
        stall(terminal, terminal.pid)
        time.sleep(seconds)
        terminal.reading.set()
        terminal.wait_for(shown or program.ready)
        seen = terminal.text()
        terminal.wait_for(lambda lines: "\n".join(lines) != seen)
        terminal.send(program.quit_key)
        assert terminal.wait_exit() == 0
        assert_given_back(terminal)


def suspends_and_resumes(program: Program, times: int) -> None:
    """Ctrl+Z gives the terminal back each time, fg takes it again."""
    with program.start() as terminal:
        for _ in range(times):
            terminal.send("ctrl+z")
            terminal.wait_state("T")
            assert_given_back(terminal)
            terminal.signal(signal.SIGCONT)
            wait_until(lambda: FULL_SCREEN in modes_left_on(terminal.output), PATIENCE_S)
            terminal.wait_for(program.ready)
            assert terminal.termios_now() != terminal.termios_before
        terminal.send(program.quit_key)
        assert terminal.wait_exit() == 0
        assert_given_back(terminal)


def leaves_the_shell_its_terminal(program: Program) -> None:
    """In a shell with job control: waits in the background, is suspended, killed while suspended; the shell goes on."""
    command = subprocess.list2cmdline(program.argv)
    env = {**program.env, "PS1": "prompt$ ", "ENV": None, "HISTFILE": None}
    with Terminal(["bash", "--norc", "--noprofile", "-i"], env=env) as terminal:
        terminal.wait_for("prompt$")
        terminal.send(f"{command} &\n")
        wait_until(lambda: state_of_child(terminal) == "T", PATIENCE_S, "not stopped in the background")
        assert FULL_SCREEN not in modes_ever_on(terminal.output)
        for _ in range(2):
            terminal.send("fg\n")
            terminal.wait_for(program.ready)
            terminal.send("ctrl+z")
            wait_until(lambda: state_of_child(terminal) == "T", PATIENCE_S, "not suspended")
        terminal.send("kill %1; wait; echo back-$((40 + 2))\n")
        terminal.wait_for("back-42")
        assert modes_left_on(terminal.output) <= {2004}, "bash itself has bracketed paste on"
        terminal.send("exit\n")
        terminal.wait_exit()


def state_of_child(terminal: Terminal) -> str:
    """R, S, T: what the kernel says of the program that the shell of the terminal runs; empty if there is none."""
    try:
        return Path(f"/proc/{child_of(terminal)}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


def wait_crash_file(state: Path) -> str:
    """The text of the one crash report; its folder and itself are private."""
    wait_until(lambda: bool(list(state.glob("gputop/crash-*"))), PATIENCE_S, "no crash file")
    (report,) = state.glob("gputop/crash-*")
    assert stat.S_IMODE(report.stat().st_mode) == 0o600
    assert stat.S_IMODE(report.parent.stat().st_mode) == 0o700
    return report.read_text()
