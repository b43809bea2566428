"""The command that starts gputop as root finds it wherever it is installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gputop.invocation import as_root

PYTHON = "/opt/venv/bin/python"


@pytest.mark.parametrize(
    ("started", "said"),
    [
        ("/usr/bin/gputop", "sudo gputop doctor"),
        ("/home/a/.local/bin/gputop", "sudo /home/a/.local/bin/gputop doctor"),
        ("/usr/local/bin/gputop", "sudo /usr/local/bin/gputop doctor"),
        ("/home/a b/bin/gputop", "sudo '/home/a b/bin/gputop' doctor"),
        ("/opt/venv/lib/python3.11/site-packages/gputop/__main__.py", f"sudo {PYTHON} -m gputop doctor"),
        ("/usr/bin/pytest", "sudo gputop doctor"),
        ("gputop", "sudo gputop doctor"),
        ("", "sudo gputop doctor"),
    ],
)
def test_the_path_stands_there_where_sudo_would_not_find_the_name(started: str, said: str) -> None:
    assert as_root("doctor", started=started, python=PYTHON) == said


def test_a_program_that_was_started_by_a_relative_path_is_told_whole(tmp_path: Path) -> None:
    script = tmp_path / "bin" / "gputop"
    script.parent.mkdir()
    script.write_text(
        f"#!{sys.executable}\nimport os\nfrom gputop.invocation import as_root\n"
        "os.chdir('/')\nprint(as_root('doctor'))\n"
    )
    script.chmod(0o755)
    done = subprocess.run(["bin/gputop"], cwd=tmp_path, env={"PYTHONPATH": str(Path(__file__).parent.parent)},
                          capture_output=True, text=True, check=True, timeout=60)  # fmt: skip
    assert done.stdout == f"sudo {script} doctor\n"


def test_it_is_this_very_program(tmp_path: Path) -> None:
    script = tmp_path / "gputop"
    script.write_text(f"#!{sys.executable}\nfrom gputop.invocation import as_root\nprint(as_root('stack', '7'))\n")
    script.chmod(0o755)
    done = subprocess.run(["gputop"], env={"PATH": str(tmp_path), "PYTHONPATH": str(Path(__file__).parent.parent)},
                          capture_output=True, text=True, check=True, timeout=60)  # fmt: skip
    assert done.stdout == f"sudo {script} stack 7\n"
