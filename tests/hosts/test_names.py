"""Which hosts are watched: names, groups, ranges, Slurm's nodes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gputop.hosts.names import MOST_HOSTS, NoHosts, chosen, expanded, of_slurm, split

GROUPS = {"lab": ("gpu01", "alice@gpu02"), "row": ("node[1-2]",)}


@pytest.mark.parametrize(
    ("given", "hosts"),
    [
        (["node07"], ["node07"]),
        (["alice@node07"], ["alice@node07"]),
        (["a,b"], ["a", "b"]),
        (["a", "a"], ["a"]),
        (["node[01-03]"], ["node01", "node02", "node03"]),
        (["node[9-11]"], ["node9", "node10", "node11"]),
        (["n[1,4-5]-ib,m"], ["n1-ib", "n4-ib", "n5-ib", "m"]),
        (["r[1-2]n[1-2]"], ["r1n1", "r1n2", "r2n1", "r2n2"]),
        (["lab", "x"], ["gpu01", "alice@gpu02", "x"]),
        (["row"], ["node1", "node2"]),
        (["10.0.0.7"], ["10.0.0.7"]),
        (["fe80::1"], ["fe80::1"]),
    ],
)
def test_names_on_the_command_line(given: list[str], hosts: list[str]) -> None:
    assert chosen(given, GROUPS) == hosts


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("-oProxyCommand=touch x", "is not a host name"),
        ("a b", "is not a host name"),
        ("a;reboot", "is not a host name"),
        ("$(reboot)", "is not a host name"),
        ("\x1b[2J", "is not a host name"),
        ("x" * 300, "is not a host name"),
        ("", "no host is named"),
        ("node[1-x]", "is not a host name"),
        ("node[5-9999]", "is not a range of at most 256 hosts"),
        ("node[02-01]", "is not a range of at most 256 hosts"),
        (f"node[1-{MOST_HOSTS}],other", f"more than {MOST_HOSTS} hosts"),
    ],
)
def test_what_is_no_host_is_refused(given: str, why: str) -> None:
    with pytest.raises(NoHosts, match=why.replace("[", r"\[")) as refused:
        chosen([given], {})
    assert str(refused.value).isprintable()


def test_lists_are_split_outside_brackets() -> None:
    assert split("a,node[1,3-5], b") == ["a", "node[1,3-5]", "b"]
    assert [*expanded("plain")] == ["plain"]


def slurm(folder: Path, script: str) -> dict[str, str]:
    """A squeue on PATH that does this."""
    program = folder / "squeue"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


def test_nodes_of_my_slurm_jobs(tmp_path: Path) -> None:
    script = """[ "$*" = "--me --noheader --states=RUNNING --format=%N" ] || exit 9
    printf 'dgx[01-02,07]\\ndgx02\\nlogin1,gpu[3-4]\\n\\n'"""
    assert of_slurm(slurm(tmp_path, script)) == ["dgx01", "dgx02", "dgx07", "login1", "gpu3", "gpu4"]


@pytest.mark.parametrize(
    ("script", "why"),
    [("exit 0", "no Slurm job of yours is running"), ("exit 1", "failed with exit code 1")],
)
def test_no_slurm_jobs_is_one_line(tmp_path: Path, script: str, why: str) -> None:
    with pytest.raises(NoHosts, match=why):
        of_slurm(slurm(tmp_path, script))


def test_without_slurm_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(NoHosts, match="needs squeue: squeue is not installed"):
        of_slurm({"PATH": str(tmp_path)})
