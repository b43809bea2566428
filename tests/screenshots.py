"""Draws screenshots/ anew: the real program on simulated servers at a fixed time. `make screenshots`."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gputop.config import Origin, Settings
from gputop.demo import SCENARIOS
from gputop.demo.source import Demo
from gputop.monitor import Monitor, Update
from gputop.record.recorder import Recorder
from gputop.record.recording import Recording
from gputop.source import Source
from gputop.ui.app import Gputop
from gputop.ui.look import DARK, LIGHT, UNICODE, Look, Palette
from gputop.ui.mailbox import Mailbox

FOLDER = Path(__file__).parent.parent / "screenshots"
MOMENT_S = 1_795_185_127  # 2026-11-20 14:32:07 UTC
NIGHT_S = 600  # of the recording
FILE = "/home/alice/.config/gputop/config.toml"  # named in setup; nothing is changed


@dataclass(frozen=True, slots=True)
class Shot:
    """One picture: which server, how large, what is pressed first."""

    name: str
    demo: str
    size: tuple[int, int]
    keys: Sequence[str] = ()
    palette: Palette = DARK
    replay: bool = False  # of a recording of that server


SHOTS = (
    Shot("main-80x24", "showcase", (80, 24)),
    Shot("main-120x40", "showcase", (120, 40)),
    Shot("main-200x60", "showcase", (200, 60)),
    Shot("threads-host-120x40", "threads-host", (120, 40)),
    Shot("threads-host-80x24", "threads-host", (80, 24)),
    Shot("experiments-120x40", "threads-host", (120, 40), ("a", "a", "right")),
    Shot("starved-cpu-idle-120x40", "starved-cpu-idle", (120, 40), ("a", "a")),
    Shot("thermal-120x40", "thermal", (120, 40)),
    Shot("healthy-120x40", "healthy", (120, 40)),
    Shot("16gpu-80x24", "16gpu", (80, 24)),
    Shot("64gpu-200x60", "64gpu", (200, 60)),
    Shot("idle-120x40", "idle", (120, 40)),
    Shot("help-120x40", "showcase", (120, 40), ("f1",)),
    Shot("light-120x40", "showcase", (120, 40), palette=LIGHT),
    Shot("details-120x40", "showcase", (120, 40), ("home", "down", "enter")),
    Shot("files-120x40", "showcase", (120, 40), ("home", "down", "down", "l")),
    Shot("filter-120x40", "showcase", (120, 40), ("f4", *"user=alice read>50M loader")),
    Shot("signal-120x40", "showcase", (120, 40), ("home", "down", "f9")),
    Shot("replay-120x40", "showcase", (120, 40), ("0", "left_curly_bracket", "left_curly_bracket"), replay=True),
    Shot("setup-80x24", "showcase", (80, 24), ("f2", *["down"] * 4)),
    Shot("palette-80x24", "showcase", (80, 24), ("ctrl+p", *"sort")),
)


def source(shot: Shot, folder: Path) -> Source:
    """The server, or a recording of it."""
    demo = Demo(SCENARIOS[shot.demo], anchor_s=MOMENT_S)
    if not shot.replay:
        return demo
    path = folder / "night.jsonl.gz"
    recorder = Recorder(str(path), wait=True)
    for second in range(-NIGHT_S, 1):
        recorder.take(Update(frame=demo.frame(demo.at_s + second)))
    if not recorder.close(60):
        raise SystemExit("the recording could not be written")
    return Recording(str(path))


async def draw(shot: Shot, folder: Path) -> str:
    """One picture as SVG."""
    monitor, mailbox = Monitor(source(shot, folder)), Mailbox()
    app = Gputop(monitor, mailbox, Settings(origin=Origin(path=FILE)), Look(shot.palette, UNICODE))
    app.title = "gputop"
    async with app.run_test(size=shot.size) as pilot:
        monitor.start(mailbox.put, mailbox.close)
        while app.main.shown is None:
            await pilot.pause(0.05)
        for key in shot.keys:
            await pilot.press(key)
        while app.main.player and app.main.player.seeking:
            await pilot.pause(0.05)
        await pilot.pause(1.2)  # what is asked for details is there then
        svg = app.export_screenshot()
    monitor.stop()
    # without this a renderer drops the blanks at the beginning of a run
    return svg.replace("<svg ", '<svg xml:space="preserve" ', 1)


def main(names: Sequence[str] = ()) -> None:
    """Draw every picture, or those of these names; without rsvg-convert they stay SVG, and it is said."""
    os.environ["TZ"] = "UTC"
    time.tzset()
    convert = shutil.which("rsvg-convert")
    if not convert:
        raise SystemExit("screenshots need rsvg-convert: apt-get install librsvg2-bin fonts-firacode fonts-dejavu-core")
    with tempfile.TemporaryDirectory() as folder:
        for shot in [shot for shot in SHOTS if not names or shot.name in names]:
            svg, png = Path(folder) / f"{shot.name}.svg", FOLDER / f"{shot.name}.png"
            svg.write_text(asyncio.run(draw(shot, Path(folder))))
            subprocess.run([convert, "--output", png, svg], check=True)
            print(png.relative_to(FOLDER.parent))


if __name__ == "__main__":
    main(sys.argv[1:])
