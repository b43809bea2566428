"""What a command really loads: the static graph cannot see a deferral."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("textual", "rich", "prometheus_client", "torch", "mcp", "pydantic")


@pytest.mark.parametrize(
    "args",
    [
        ["--version"],
        ["--once", "--no-nvml"],
        ["--json", "--no-nvml"],
        ["snapshot", "--source", "demo:healthy", "--format", "csv"],
        ["demo", "--list"],
        ["docs", "metrics"],
        ["keys"],
        ["columns"],
        ["doctor"],
        ["docs", "doctor"],
        ["docs", "profilers"],
        ["explain", "pyproject.toml"],
    ],
)
def test_headless_commands_load_no_screen(args: list[str]) -> None:
    code = (
        "import sys\nfrom gputop.cli import main\n"
        f"try:\n    main({args!r})\nexcept SystemExit: pass\n"
        f"print(sorted({HEAVY!r} & sys.modules.keys()), file=sys.stderr)"
    ).replace(f"{HEAVY!r} &", f"set({HEAVY!r}) &")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr.splitlines()[-1] == "[]"


def test_the_first_frame_is_drawn_before_what_it_does_not_need_is_loaded() -> None:
    late = ["actions.pyspy", "actions.torch_trace", "collect.details", "diagnose.rules", "export", "profile", "record"]
    late += ["trace", "ui.details", "ui.dialogs", "ui.signal"]
    code = (
        "import sys\nimport gputop.cli.screen, gputop.collect.live, gputop.ui.start, gputop.ui.app\n"
        f"print([name for name in {late!r} if f'gputop.{{name}}' in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"


def test_the_screen_runs_without_tls_and_who_needs_it_gets_it() -> None:
    code = (
        "import sys\nfrom gputop.ui import start\nstart._load_asyncio()\nimport gputop.ui.app\n"
        "print('ssl' in sys.modules, 'asyncio' in sys.modules)\nimport ssl\nprint(ssl.OPENSSL_VERSION != '')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "False True\nTrue\n"
