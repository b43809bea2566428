"""The man page, made from the command line's declaration: `python -m tests.man_page` prints it, `make man` writes it.

In the man(7) macros, which every man understands.
"""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Iterable, Iterator
from datetime import datetime, timezone
from pathlib import Path

import gputop
from gputop import __version__
from gputop.cli import COMMANDS, TASKS, parser
from gputop.cli.options import OneLineParser
from gputop.safe.text import to_ascii

SHIPPED = Path(gputop.__file__).parent / "docs" / "sites" / "gputop.1"
_DATED = re.compile(r'^\.TH GPUTOP 1 "(\S+)"', re.MULTILINE)
DESCRIPTION = """\
.B gputop
shows the GPUs of a training server beside the jobs that use them, and why
training is slow, with the evidence.
Without a command it opens the full-screen monitor; the other commands print.
It needs no root, changes nothing unless asked, and opens no network connection
unless told to.
"""
TAIL = """\
.SH EXIT STATUS
.TP
.B 0
Done; for
.BR "gputop diagnose" :
every visible job is healthy.
.TP
.B 1
A failure, in one line on standard error; for
.BR "gputop diagnose" :
a warning.
.TP
.BR 2 ", " 3
Only
.BR "gputop diagnose" :
a critical finding; not judged.
.TP
.B 64
Wrong usage, or no terminal for the monitor.
.TP
.RI 128+ N
Ended by signal
.IR N .
.SH FILES
.TP
.I ~/.config/gputop/config.toml
Settings, or the file named by
.BR \\-\\-config ;
.B gputop docs configuration
lists them.
.TP
.I ~/.local/state/gputop
Recordings, results, and reports of crashes.
.SH SEE ALSO
.BR nvidia\\-smi (1),
.BR py\\-spy (1)
.PP
.B gputop docs
lists the pages of the manual;
.B gputop docs sites
explains Slurm, Kubernetes, containers and systemd.
"""


def man_page(date: str) -> str:
    """The page as of a date, YYYY-MM-DD."""
    top = parser()
    commands = next(each for each in top._actions if isinstance(each, argparse._SubParsersAction))
    everywhere = [each for each in top._actions if getattr(each, "everywhere", False)]
    own = [each for each in top._actions if each.option_strings and each not in everywhere]
    lines = [
        f'.TH GPUTOP 1 "{date}" "gputop {__version__}" "User Commands"',
        ".SH NAME",
        f"gputop \\- {_text('monitor for GPU training servers that says why training is slow')}",
        ".SH SYNOPSIS",
        ".B gputop",
        "[\\fIOPTIONS\\fR] [\\fICOMMAND\\fR ...]",
        ".SH DESCRIPTION",
        DESCRIPTION.rstrip("\n"),
        ".SH OPTIONS",
        *_options(own),
        ".SS Global options",
        "Of every command, before or after its name.",
        *_options(everywhere),
        ".SH COMMANDS",
    ]
    for task, names in TASKS.items():
        lines.append(f".SS {_text(task)}")
        for name in names:
            lines += [".TP", f".B {_text(name)}", _prose(_sentence(COMMANDS[name].help))]
    for names in TASKS.values():
        for name in names:
            lines += _command(name, commands.choices[name])
    return "\n".join((*lines, TAIL))


def _command(name: str, of: argparse.ArgumentParser) -> Iterator[str]:
    """The section of a command: its arguments, options, targets and examples."""
    yield f".SH GPUTOP {_text(name.upper())}"
    yield _prose(_sentence(COMMANDS[name].help))
    yield from _arguments(of)
    for inner in of._actions:
        if isinstance(inner, argparse._SubParsersAction):
            for target, each in inner.choices.items():
                yield f".SS gputop {_text(name)} {_text(target)}"
                yield _prose(str(each.description))
                yield from _arguments(each)
    yield from (".PP", "Examples:", ".PP", ".nf", ".RS 4")
    yield from (_text(example) for example in COMMANDS[name].examples)
    yield from (".RE", ".fi")


def _arguments(of: argparse.ArgumentParser) -> Iterator[str]:
    own = [each for each in of._actions if not getattr(each, "everywhere", False)]
    yield from _options(
        each for each in own if not isinstance(each, (argparse._SubParsersAction, argparse._HelpAction))
    )
    assert isinstance(of, OneLineParser)


def _options(actions: Iterable[argparse.Action]) -> Iterator[str]:
    for action in actions:
        if action.help == argparse.SUPPRESS:
            continue
        yield ".TP"
        names = ", ".join(f"\\fB{_text(name)}\\fR" for name in action.option_strings)
        value = "" if action.nargs == 0 else f"\\fI{_text(_value(action))}\\fR"
        yield " ".join(filter(None, (names, value)))
        yield _prose(_sentence(action.help or ""))


def _value(action: argparse.Action) -> str:
    if action.metavar is not None:
        return str(action.metavar)
    return "|".join(map(str, action.choices)) if action.choices else action.dest.upper()


def _sentence(text: str) -> str:
    """A help text as a sentence; a name such as torch.profiler is not capitalized."""
    word = text.partition(" ")[0].rstrip(",;:")
    first = text[:1].upper() if word.isalpha() else text[:1]
    return f"{first}{text[1:].rstrip('.')}."


def _prose(words: str) -> str:
    """A text in lines of at most 80 bytes."""
    lines = textwrap.wrap(_text(words), 78, break_on_hyphens=False, break_long_words=False)
    return "\n".join(f"\\&{line}" if line[:1] in (".", "'") else line for line in lines)


def _text(words: str) -> str:
    """Words as roff takes them: a hyphen may be copied, no line begins with a request."""
    escaped = to_ascii(words).replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped[:1] in (".", "'") else escaped


def undated(page: str) -> str:
    """A page without its date: it changes with the rest only."""
    return _DATED.sub('.TH GPUTOP 1 "DATE"', page)


def current() -> str:
    """The page as it should be shipped: with the date of the shipped one if nothing else has changed."""
    before = SHIPPED.read_text(encoding="ascii") if SHIPPED.exists() else ""
    dated = _DATED.search(before)
    now = man_page(datetime.now(timezone.utc).strftime("%Y-%m-%d"))
    return before if dated and undated(before) == undated(now) else now


if __name__ == "__main__":
    print(current(), end="")
