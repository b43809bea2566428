"""Draws screenshots/ anew: the real program on simulated servers at a fixed time. `make screenshots`."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gputop.config import Settings
from gputop.demo import SCENARIOS
from gputop.demo.source import Demo
from gputop.monitor import Monitor
from gputop.ui.app import Gputop
from gputop.ui.look import DARK, LIGHT, UNICODE, Look, Palette
from gputop.ui.mailbox import Mailbox

FOLDER = Path(__file__).parent.parent / "screenshots"
MOMENT_S = 1_795_185_127  # 2026-11-20 14:32:07 UTC


@dataclass(frozen=True, slots=True)
class Shot:
    """One picture: which server, how large, what is pressed first."""

    name: str
    demo: str
    size: tuple[int, int]
    keys: Sequence[str] = ()
    palette: Palette = DARK


SHOTS = (
    Shot("main-80x24", "showcase", (80, 24)),
    Shot("main-120x40", "showcase", (120, 40)),
    Shot("main-200x60", "showcase", (200, 60)),
    Shot("healthy-120x40", "healthy", (120, 40)),
    Shot("16gpu-80x24", "16gpu", (80, 24)),
    Shot("64gpu-200x60", "64gpu", (200, 60)),
    Shot("idle-120x40", "idle", (120, 40)),
    Shot("help-120x40", "showcase", (120, 40), ("f1",)),
    Shot("light-120x40", "showcase", (120, 40), palette=LIGHT),
)


async def draw(shot: Shot) -> str:
    """One picture as SVG."""
    monitor, mailbox = Monitor(Demo(SCENARIOS[shot.demo], anchor_s=MOMENT_S)), Mailbox()
    app = Gputop(monitor, mailbox, Settings(), Look(shot.palette, UNICODE))
    app.title = "gputop"
    async with app.run_test(size=shot.size) as pilot:
        monitor.start(mailbox.put, mailbox.close)
        while app.main.shown is None:
            await pilot.pause(0.05)
        await pilot.press(*shot.keys)
        await pilot.pause()
        svg = app.export_screenshot()
    monitor.stop()
    # without this a renderer drops the blanks at the beginning of a run
    return svg.replace("<svg ", '<svg xml:space="preserve" ', 1)


def main() -> None:
    """Draw every picture; without rsvg-convert they stay SVG, and it is said."""
    os.environ["TZ"] = "UTC"
    time.tzset()
    convert = shutil.which("rsvg-convert")
    if not convert:
        raise SystemExit("screenshots need rsvg-convert: apt-get install librsvg2-bin fonts-firacode fonts-dejavu-core")
    with tempfile.TemporaryDirectory() as folder:
        for shot in SHOTS:
            svg, png = Path(folder) / f"{shot.name}.svg", FOLDER / f"{shot.name}.png"
            svg.write_text(asyncio.run(draw(shot)))
            subprocess.run([convert, "--output", png, svg], check=True)
            print(png.relative_to(FOLDER.parent))


if __name__ == "__main__":
    main()
