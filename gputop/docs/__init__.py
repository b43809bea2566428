"""The manual: pages of prose, with tables made from the declarations where a line says so, and files for sites."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from gputop.docs.tables import TABLES

TOPICS = (
    "glossary",
    "keys",
    "columns",
    "metrics",
    "configuration",
    "diagnosis",
    "proven",
    "alerts",
    "doctor",
    "recording",
    "hosts",
    "fleet",
    "prometheus",
    "profilers",
    "collectives",
    "loader",
    "memory",
    "lab",
    "maxbatch",
    "scaffold",
    "mcp",
    "sites",
    "performance",
    "security",
    "faults",
    "contributing",
    "changelog",
)
# printed as they are, by their path: for Slurm, Kubernetes, containers and systemd
FILES = (
    "sites/slurm-epilog.sh",
    "sites/slurm-task-prolog.sh",
    "sites/kubernetes-daemonset.yaml",
    "sites/Containerfile",
    "sites/gputop-record.service",
    "sites/gputop-export.service",
    "sites/gputop-sysusers.conf",
    "sites/gputop-tmpfiles.conf",
    "sites/gputop.1",
)
_MARK = re.compile(r"^<!-- .* -->\n", re.MULTILINE)  # where a tool writes into a page
_TABLE = re.compile(r"^\{\{(\w+)\}\}$", re.MULTILINE)  # a line {{metrics}} is the table of that name


def topics() -> tuple[tuple[str, str], ...]:
    """Every page: its name and its title."""
    return tuple((topic, _text(topic).partition("\n")[0].removeprefix("# ")) for topic in TOPICS)


def read(topic: str, instead: Mapping[str, Callable[[], str]] = {}) -> str:
    """One page in Markdown, its tables as they are declared now, or these instead; a file of FILES as it is.

    KeyError where there is neither.
    """
    if topic in FILES:
        return (Path(__file__).parent / topic).read_text(encoding="utf-8")
    if topic not in TOPICS:
        raise KeyError(topic)
    return _TABLE.sub(lambda line: {**TABLES, "keys": _keys, **instead}[line[1]](), _MARK.sub("", _text(topic)))


def _keys() -> str:
    from gputop.docs.keys import key_tables  # late: it knows every command

    return key_tables()


def _text(topic: str) -> str:
    return (Path(__file__).parent / f"{topic}.md").read_text(encoding="utf-8")
