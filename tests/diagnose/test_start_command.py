"""How a process was started, as it stands in the steps of a finding."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from gputop.diagnose.start_command import is_whole_command, start_command, torchrun_command
from gputop.model import Identity, Job, Process


@pytest.mark.parametrize(
    ("command", "typed"),
    [
        (("python", "train.py"), "python train.py"),
        (("python", "my run.py", "--name", "a;b"), "python 'my run.py' --name 'a;b'"),
        (("python train.py --lr 1",), "python train.py --lr 1"),  # written over its arguments
        ((), "python train.py"),
    ],
)
def test_it_is_what_a_shell_takes(command: tuple[str, ...], typed: str) -> None:
    assert start_command(Process(pid=1, started_ticks=1, command=command)) == typed


def test_the_end_of_a_long_one_is_left_out_between_words() -> None:
    words = ("python", "train.py", *(f"--option-{number}=value" for number in range(40)))
    typed = shlex.split(start_command(Process(pid=1, started_ticks=1, command=words)))
    assert typed[-1] == "..."
    assert tuple(typed[:-1]) == words[: len(typed) - 1]
    assert len(typed) > 4


@pytest.mark.parametrize(
    ("command", "typed"),
    [
        (("python", "train.py"), "train.py"),
        (("/usr/bin/python3.12", "-u", "train.py", "--name", "a b"), "train.py --name 'a b'"),
        (("python", "-X", "faulthandler", "-Wignore", "-OO", "train.py", "-u"), "train.py -u"),
        (("python", "--check-hash-based-pycs", "never", "train.py"), "train.py"),
        (("python", "-m", "pkg.train", "--lr", "1"), "-m pkg.train --lr 1"),
        (("python", "-um", "pkg.train", "-c", "1"), "-m pkg.train -c 1"),
        (("python", "-mpkg.train"), "-m pkg.train"),
        (("python", "-c", "import train", "1"), "train.py"),
        (("python", "-", "1"), "train.py"),
        (("python",), "train.py"),
        (("./train", "--lr", "1"), "--no-python ./train --lr 1"),
        ((), "train.py"),
    ],
)
def test_ranks_are_started_without_the_interpreter_and_its_options(command: tuple[str, ...], typed: str) -> None:
    process = Process(pid=1, started_ticks=1, command=command)
    assert torchrun_command(process, 4) == f"torchrun --nproc_per_node=4 {typed}"


def test_ranks_of_a_long_command_are_cut_between_words() -> None:
    words = ("python", "-u", "train.py", *(f"--option-{number}=value" for number in range(40)))
    typed = shlex.split(torchrun_command(Process(pid=1, started_ticks=1, command=words), 2))
    assert typed[-1] == "..."
    assert tuple(typed[2:-1]) == words[2 : len(typed) - 1]
    assert len(typed) > 5


SECRET = "sk-" + 20 * "a7"


@pytest.mark.parametrize(
    "secret", [("--api-key", SECRET), (f"--api-key={SECRET}",), (SECRET,), ("--db", f"https://me:{SECRET}@host/")]
)
def test_a_secret_is_masked(secret: tuple[str, ...]) -> None:
    for words in (("python", "train.py", *secret), (" ".join(("python", "train.py", *secret)),)):
        process = Process(pid=1, started_ticks=1, command=words)
        for typed in (start_command(process), torchrun_command(process, 2)):
            assert "train.py" in typed
            assert "***" in typed
            assert SECRET not in typed


ME, OTHER = Identity(1, 1), Identity(2, 1)


@pytest.mark.parametrize(
    ("job", "dials", "alone"),
    [
        ({"launcher": "python", "ranks": (ME,)}, {}, True),
        ({"ranks": (ME,), "members": (ME, OTHER)}, {}, True),
        (None, {}, True),
        ({"launcher": "torchrun", "ranks": (ME,)}, {}, False),
        ({"launcher": "slurm", "ranks": (ME,)}, {}, False),
        ({"launcher": "notebook", "ranks": (ME,)}, {}, False),
        ({"ranks": (ME, OTHER)}, {}, False),
        ({"ranks": (ME,), "members": (OTHER, ME)}, {}, False),  # its parent started it to run a function
        (None, {"world_size": 8}, False),
        (None, {"command": ()}, False),  # nobody knows it
    ],
)
def test_a_rank_or_a_kernel_of_a_notebook_is_not_started_by_its_own_command(
    job: dict[str, Any] | None, dials: dict[str, Any], alone: bool
) -> None:
    process = Process(**{"pid": 1, "started_ticks": 1, "command": ("python", "train.py"), **dials})
    assert is_whole_command(process, job and Job(key="j", name="j", **job)) == alone
