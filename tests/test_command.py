"""How a process was started, as it stands in the steps of a finding."""

from __future__ import annotations

import shlex

import pytest

from gputop.diagnose.command import started
from gputop.model import Process


@pytest.mark.parametrize(
    ("command", "typed"),
    [
        (("python", "train.py"), "python train.py"),
        (("python", "my run.py", "--name", "a;b"), "python 'my run.py' --name 'a;b'"),
        ((), "python train.py"),
    ],
)
def test_it_is_what_a_shell_takes(command: tuple[str, ...], typed: str) -> None:
    assert started(Process(pid=1, started_ticks=1, command=command)) == typed


def test_the_end_of_a_long_one_is_left_out_between_words() -> None:
    words = ("python", "train.py", *(f"--option-{number}=value" for number in range(40)))
    typed = shlex.split(started(Process(pid=1, started_ticks=1, command=words)))
    assert typed[-1] == "..."
    assert tuple(typed[:-1]) == words[: len(typed) - 1]
    assert len(typed) > 4
