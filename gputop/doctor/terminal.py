"""The terminal: size, characters, colours, and access to the clipboard."""

from __future__ import annotations

from collections.abc import Iterator

from gputop.doctor.check import CheckLine, check
from gputop.doctor.machine import DoctorContext
from gputop.safe import programs
from gputop.safe.terminal import ROOM_FOR_PROCESSES, without_screen


@check("size", "Is the terminal large enough?")
def size(machine: DoctorContext) -> Iterator[CheckLine]:
    """Whether the process table fits."""
    if machine.terminal is None:
        yield CheckLine("unknown", "standard output is not a terminal", value={"columns": None, "lines": None})
        return
    (columns, lines), least = machine.terminal, ROOM_FOR_PROCESSES
    value = {"columns": columns, "lines": lines}
    if columns >= least[0] and lines >= least[1]:
        yield CheckLine("ok", f"{columns} x {lines}", value=value)
    else:
        what = f"{columns} x {lines}: parts are hidden below {least[0]} x {least[1]}; enlarge the window"
        yield CheckLine("limited", what, value=value)


@check("characters", "Does it support UTF-8?")
def characters(machine: DoctorContext) -> Iterator[CheckLine]:
    """By the encoding of standard output."""
    value = {"encoding": machine.encoding}
    if machine.encoding.lower().replace("-", "").replace("_", "") == "utf8":
        yield CheckLine("ok", "UTF-8", value=value)
    else:
        what = f"{machine.encoding}: drawn with ASCII only"
        yield CheckLine("limited", what, "export LC_ALL=C.UTF-8", value)


@check("colours", "How many colors does it support?")
def colours(machine: DoctorContext) -> Iterator[CheckLine]:
    """By TERM, COLORTERM and NO_COLOR, as in other programs."""
    term = machine.environ.get("TERM", "")
    value = {"term": term}
    if machine.environ.get("NO_COLOR"):
        yield CheckLine("limited", "none, because NO_COLOR is set", "unset NO_COLOR", {**value, "colours": 0})
    elif why := without_screen(term):
        yield CheckLine("missing", why, "export TERM=xterm-256color", {**value, "colours": 0})
    elif machine.environ.get("COLORTERM", "").lower() in ("truecolor", "24bit"):
        yield CheckLine("ok", "16 million", value={**value, "colours": 1 << 24})
    elif "256" in term or term.endswith("-direct"):
        what = "256; if the terminal supports 16 million, set"
        yield CheckLine("ok", what, "export COLORTERM=truecolor", {**value, "colours": 256})
    else:
        what = f"16 (TERM={term})" if term else "16 (TERM is not set)"
        yield CheckLine("limited", what, "export TERM=xterm-256color", {**value, "colours": 16})


@check("clipboard", "Does copied text reach your clipboard?")
def clipboard(machine: DoctorContext) -> Iterator[CheckLine]:
    """OSC 52, which multiplexers block by default."""
    if "TMUX" in machine.environ:
        try:
            tmux = programs.find("tmux", machine.path)
            chosen = machine.first_line(tmux, "show-options", "-sv", "set-clipboard")
        except programs.NotRun as why:
            yield CheckLine("unknown", str(why), value={"through": "tmux", "set_clipboard": None})
            return
        value = {"through": "tmux", "set_clipboard": chosen}
        if chosen == "on":
            yield CheckLine("ok", "tmux forwards it (OSC 52)", value=value)
        elif chosen is None:
            yield CheckLine("unknown", "tmux does not respond", "tmux show-options -sv set-clipboard", value)
        else:
            what = f"tmux does not forward it (set-clipboard {chosen})"
            yield CheckLine("limited", what, "tmux set-option -s set-clipboard on", value)
    elif "STY" in machine.environ:
        yield CheckLine("missing", "GNU screen does not forward it", "tmux", {"through": "screen"})
    else:
        what = "depends on the terminal; most accept OSC 52"
        yield CheckLine("unknown", what, value={"through": None})
