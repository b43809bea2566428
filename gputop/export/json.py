"""An update as JSON: one object for programs, or the lines of a stream that can be recorded and replayed."""

from __future__ import annotations

from typing import Any, TextIO

from gputop.export import codec, verdicts
from gputop.export.format import Write
from gputop.export.private import redacted
from gputop.monitor import Update


def snapshot(update: Update) -> dict[str, Any]:
    """The object that `gputop --json` prints."""
    return {
        "version": codec.VERSION,
        "frame": codec.encode(redacted(update.frame)),
        "findings": [verdicts.finding(found, update.frame) for found in update.findings],
        "abstained": [verdicts.abstained(silent, update.frame) for silent in update.abstained],
        "jobs": [verdicts.job(one, update.frame) for one in update.jobs],
        "host_state": verdicts.host(update.host),
    }


def objects(out: TextIO, *, ascii: bool = False) -> Write:  # noqa: ARG001
    """Each update as one object on one line; always ASCII."""

    def write(update: Update) -> None:
        out.write(codec.dumps(snapshot(update)) + "\n")

    return write


def lines(out: TextIO, *, ascii: bool = False) -> Write:  # noqa: ARG001
    """A header, then one line for each frame: the format of recordings and streams."""
    begun = False

    def write(update: Update) -> None:
        nonlocal begun
        if not begun:
            out.write(codec.line(codec.header(update.frame.hostname)))
            begun = True
        out.write(codec.line(codec.frame_line(redacted(update.frame))))

    return write
