"""What the process lane has to say when it could not read everything."""

from __future__ import annotations

from gputop.model import Note
from gputop.safe import attach


def denied_io(count: int) -> Note:
    """The I/O of so many followed processes is not for us to read."""
    return Note(
        subject="processes",
        key="denied-io",
        text=f"I/O of {count} {'process' if count == 1 else 'processes'} of other users is hidden "
        "(/proc/PID/io is readable by the owner only).",
        help=(
            "Their READ/s, WRITE/s, PSS and files show '·', not 0; their environment is closed too.",
            f"{_shown()}.",
        ),
    )


def unlisted() -> Note:
    """Whole processes are not for us to see."""
    return Note(
        subject="processes",
        key="hidden-pids",
        text="Processes of other users are not listed: /proc is mounted with hidepid.",
        help=(f"{_shown()}; membership of the group that the mount option gid= names shows them, too.",),
    )


def _shown() -> str:
    """What shows them, or why nothing does."""
    why = attach.hidden()
    return f"`{why.unlock}` shows them" if why.unlock else f"They {why.text}"


def lost(problem: str) -> Note:
    """Something kept us from reading, other than the processes themselves."""
    return Note(
        subject="processes",
        key="processes-lost",
        text=f"Some processes could not be read: {problem}. They show what was known of them before.",
        help=("With too many open files: `ulimit -n 1024`",),
    )
