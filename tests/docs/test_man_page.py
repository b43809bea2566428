"""The man page: that of the command line, and clean for mandoc and groff."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from gputop.cli import COMMANDS
from tests import man_page


def tool(name: str) -> str:
    """A program that checks a file; the test is skipped where it is missing."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"not covered: {name} is missing, which checks these files")
    return found


def run(*command: str) -> str:
    """What a tool says about a file that it takes."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_man_page_is_that_of_the_command_line() -> None:
    assert man_page.current() == man_page.SHIPPED.read_text(encoding="ascii"), "run make man"
    text = man_page.SHIPPED.read_text()
    assert all(f".SH GPUTOP {name.upper()}".replace("-", "\\-") in text for name in COMMANDS)


def test_the_man_page_is_clean() -> None:
    assert run(tool("mandoc"), "-Tlint", str(man_page.SHIPPED)) == ""


def test_groff_formats_the_man_page_without_a_warning() -> None:
    assert run(tool("groff"), "-man", "-Tutf8", "-ww", "-z", str(man_page.SHIPPED)) == ""
