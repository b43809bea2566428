"""Which hosts to watch: names, groups of the settings, ranges as Slurm writes them, nodes of one's Slurm jobs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from gputop.hosts.ssh import check_destination
from gputop.safe import programs
from gputop.safe.text import clean

MOST_HOSTS = 256
_SLURM_S = 10.0  # for an answer of Slurm's controller
_RANGE = re.compile(r"([^\[\]]*)\[([0-9,-]+)\](.*)", re.DOTALL)


class NoHosts(Exception):
    """No host can be watched; the message says why in one line."""


def chosen(given: Sequence[str], groups: Mapping[str, Sequence[str]]) -> list[str]:
    """The hosts of the command line, each once: groups and ranges are expanded. NoHosts for what is no host name."""
    found: dict[str, None] = {}
    for word in given:
        for part in split(word):
            for name in groups.get(part, (part,)):
                for host in expanded(name):
                    try:
                        check_destination(host)
                    except ValueError as error:
                        raise NoHosts(str(error)) from None
                    found[host] = None
                    if len(found) > MOST_HOSTS:
                        raise NoHosts(f"more than {MOST_HOSTS} hosts: name fewer of them")
    if not found:
        raise NoHosts("no host is named: use --host NAME")
    return list(found)


def split(text: str) -> list[str]:
    """A list of names at its commas, except those in brackets: `a,node[1,3-5]`."""
    parts, depth, start = [], 0, 0
    for place, letter in enumerate(text):
        depth += (letter == "[") - (letter == "]")
        if letter == "," and depth <= 0:
            parts.append(text[start:place])
            start = place + 1
    return [part.strip() for part in (*parts, text[start:]) if part.strip()]


def expanded(name: str) -> Iterator[str]:
    """A name with ranges as Slurm writes them: `node[01-03,7]` is node01, node02, node03 and node7."""
    match = _RANGE.fullmatch(name)
    if match is None:
        yield name
        return
    before, numbers, after = match.groups()
    for number in _numbers(numbers):
        for rest in expanded(after):
            yield f"{before}{number}{rest}"


def _numbers(text: str) -> Iterator[str]:
    for piece in filter(None, text.split(",")):
        first, _, last = piece.partition("-")
        last = last or first
        known = first.isdecimal() and last.isdecimal()
        if not known or not 0 <= int(last) - int(first) < MOST_HOSTS:
            raise NoHosts(f"{clean(piece, 40)!r} is not a range of at most {MOST_HOSTS} hosts: use NAME[01-16]")
        for number in range(int(first), int(last) + 1):
            yield f"{number:0{len(first)}}"


def of_slurm(environ: Mapping[str, str] = os.environ) -> list[str]:
    """The nodes of one's running Slurm jobs; NoHosts says why there are none."""
    try:
        squeue = programs.find("squeue", environ.get("PATH", programs.PATH))
        arguments = ["--me", "--noheader", "--states=RUNNING", "--format=%N"]
        code, answer = programs.output([squeue, *arguments], _SLURM_S, environ)
    except programs.NotRun as error:
        raise NoHosts(f"--hosts-from slurm needs squeue: {error}") from None
    except programs.Timeout:
        raise NoHosts(f"squeue did not answer within {_SLURM_S:.0f} s") from None
    except OSError as error:
        raise NoHosts(f"squeue cannot be run: {error.strerror}") from None
    if code:
        raise NoHosts(f"squeue failed with exit code {code}: see `squeue --me`")
    lines = (clean(line) for line in answer.decode(errors="replace").split())
    names = _each_once(host for line in lines for part in split(line) for host in expanded(part))
    if not names:
        raise NoHosts("no Slurm job of yours is running: see `squeue --me`")
    return names


def _each_once(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))
