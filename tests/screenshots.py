"""Draws screenshots/ anew: the real program on simulated servers at a fixed time. `make screenshots`."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from threading import Event

from rich.console import Console
from rich.text import Text
from textual.pilot import Pilot

from gputop.columns import PRESETS
from gputop.config import Settings, SettingsOrigin
from gputop.demo import SCENARIOS
from gputop.demo.source import Demo
from gputop.model import Frame, Identity
from gputop.monitor import Monitor
from gputop.profile.store import StoredProfile
from gputop.record.recorder import Recorder
from gputop.record.recording import Recording
from gputop.source import Source
from gputop.ui.app import Gputop
from gputop.ui.latest_update import LatestUpdate
from gputop.ui.result.screen import ResultScreen
from gputop.ui.theme import DARK, LIGHT, UNICODE, Look, Palette
from tests import host_scenes, profile_results
from tests.real_processes import kill, row

FOLDER = Path(__file__).parent.parent / "screenshots"
GOLDEN = Path(__file__).parent / "golden"
MOMENT_S = 1_795_185_127  # 2026-11-20 14:32:07 UTC
NIGHT_S = 600  # of the recording
STEPS = list(PRESETS).index("steps")  # presses of the key that shows the next preset
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
    alive: bool = False  # the first job is really there: a signal could be sent
    after_s: float = 1.2  # what is asked for details is there then
    result: Callable[[Frame, float], StoredProfile] | None = None  # opened over it


SHOTS = (
    Shot("main-80x24", "showcase", (80, 24)),
    Shot("main-120x40", "showcase", (120, 40)),
    Shot("main-200x60", "showcase", (200, 60)),
    Shot("threads-host-120x40", "threads-host", (120, 40)),
    Shot("threads-host-80x24", "threads-host", (80, 24)),
    Shot("experiments-120x40", "threads-host", (120, 40), ("E",)),
    Shot("starved-cpu-idle-120x40", "starved-cpu-idle", (120, 40), ("a",)),
    Shot("thermal-120x40", "thermal", (120, 40)),
    Shot("healthy-120x40", "healthy", (120, 40)),
    Shot("16gpu-80x24", "16gpu", (80, 24)),
    Shot("64gpu-200x60", "64gpu", (200, 60)),
    Shot("idle-120x40", "idle", (120, 40)),
    Shot("help-120x40", "showcase", (120, 40), ("f1",)),
    Shot("light-120x40", "showcase", (120, 40), palette=LIGHT),
    Shot("steps-120x40", "showcase", (120, 40), ("v",) * STEPS, after_s=2.0),
    Shot("details-120x40", "showcase", (120, 40), ("home", "down", "enter")),
    Shot("files-120x40", "showcase", (120, 40), ("home", "down", "down", "l")),
    Shot("filter-120x40", "showcase", (120, 40), ("f4", *"user=alice read>50M worker")),
    Shot("signal-120x40", "showcase", (120, 40), ("home", "down", "f9"), alive=True),
    Shot("profile-120x40", "showcase", (120, 40), ("home", "down", "p"), alive=True),
    Shot("progress-120x40", "showcase", (120, 40), ("home", "down", "p", "enter"), alive=True, after_s=5.0),
    Shot("replay-120x40", "showcase", (120, 40), ("0", "left_curly_bracket", "left_curly_bracket"), replay=True),
    Shot("result-pyspy-120x40", "showcase", (120, 40), result=profile_results.profiled),
    Shot("result-torch-124x36", "showcase", (124, 36), result=profile_results.traced),
    Shot("setup-80x24", "showcase", (80, 24), ("f2", *["down"] * 4)),
    Shot("palette-80x24", "showcase", (80, 24), ("ctrl+p", *"sort")),
)


@dataclass(frozen=True, slots=True)
class Overview:
    """A picture of several hosts."""

    name: str
    size: tuple[int, int]
    fleet: bool = False  # of a Prometheus


OVERVIEWS = (
    Overview("hosts-120x40", (120, 40)),
    Overview("hosts-80x24", (80, 24)),
    Overview("fleet-120x40", (120, 40), fleet=True),
)
FLEET = 125  # hosts with eight GPUs each


@dataclass(frozen=True, slots=True)
class Printed:
    """A picture of what a command prints, as a test holds it to."""

    name: str
    command: str
    golden: str


PRINTED = (
    Printed("loader", "gputop loader train.py:make", "loader.txt"),
    Printed("lab", "gputop lab train.py:make --tf32", "precision.txt"),
    Printed("maxbatch", "gputop maxbatch train.py:make", "batch_size.txt"),
)


class Alive(Demo):
    """A server whose first job is made of real processes, of this machine."""

    def __init__(self, name: str) -> None:
        super().__init__(SCENARIOS[name], anchor_s=MOMENT_S)
        self.elsewhere = None
        self.bodies: dict[Identity, Identity] = {}

    @contextmanager
    def living(self) -> Iterator[None]:
        """While they live."""
        with ExitStack() as stack:
            for member in super().frame(self.at_s).jobs[0].members:
                child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"])
                stack.callback(kill, child)
                self.bodies[member] = row(child.pid).identity
            yield

    def frame(self, t: float) -> Frame:
        """With other numbers."""
        frame, bodies = super().frame(t), self.bodies
        pids = {one.pid: other.pid for one, other in bodies.items()}
        processes = [
            replace(process, **bodies[process.identity]._asdict(), uid=None, parent_pid=pids.get(process.parent_pid, 1))
            if process.identity in bodies
            else process
            for process in frame.processes
        ]
        first, *others = frame.jobs
        members, ranks = (tuple(bodies.get(one, one) for one in some) for some in (first.members, first.ranks))
        return replace(frame, processes=tuple(processes), jobs=(replace(first, members=members, ranks=ranks), *others))


class Night(Demo):
    """The time until a server opens, second by second: what is found meanwhile is in a recording of it."""

    def past(self) -> Iterator[Frame]:
        """Nothing: it is all told."""
        return iter(())

    def frames(self, stop: Event) -> Iterator[Frame]:
        """As fast as it goes."""
        return (self.frame(self.at_s + second) for second in range(-NIGHT_S, 1))


def source(shot: Shot, folder: Path, stack: ExitStack) -> Source:
    """The server, or a recording of it."""
    if shot.alive:
        alive = Alive(shot.demo)
        stack.enter_context(alive.living())
        return alive
    demo = Demo(SCENARIOS[shot.demo], anchor_s=MOMENT_S)
    if not shot.replay:
        return demo
    path = folder / "night.jsonl.gz"
    recorder = Recorder(str(path), wait=True)
    for update in Monitor(Night(SCENARIOS[shot.demo], anchor_s=MOMENT_S)).updates():
        recorder.take(update)
    if not recorder.close(60):
        raise SystemExit("the recording could not be written")
    return Recording(str(path))


async def draw(shot: Shot, folder: Path) -> str:
    """One picture as SVG."""
    with ExitStack() as stack:
        return await drawn(shot, source(shot, folder, stack))


async def drawn(shot: Shot, of: Source) -> str:
    """A picture of a source."""
    monitor, latest = Monitor(of), LatestUpdate()
    app = Gputop(monitor, latest, Settings(origin=SettingsOrigin(path=FILE)), Look(shot.palette, UNICODE))
    app.title = "gputop"
    async with app.run_test(size=shot.size) as pilot:
        monitor.start(latest.put, latest.close)
        while app.main.shown is None:
            await pilot.pause(0.05)
        if shot.result:
            await opened(shot.result(app.main.shown.frame, MOMENT_S), app, pilot)
        for key in shot.keys:
            await pilot.press(key)
        while app.session.player and app.session.player.seeking:
            await pilot.pause(0.05)
        await pilot.pause(shot.after_s)
        svg = app.export_screenshot()
        app.jobs.leave()
        app.jobs.close()
    monitor.stop()
    return _whole(svg)


async def overview(shot: Overview) -> str:
    """A picture of several hosts."""
    look = Look(DARK, UNICODE)
    with ExitStack() as stack:
        if shot.fleet:
            app, _ = stack.enter_context(host_scenes.fleet_screen(MOMENT_S, look, FLEET))
        else:
            app = host_scenes.overview(MOMENT_S, look)
        app.title = "gputop"
        async with app.run_test(size=shot.size) as pilot:
            await pilot.pause(1.2)
            if shot.fleet:
                await pilot.press("down")
                await pilot.pause(0.2)
            svg = app.export_screenshot()
    return _whole(svg)


async def opened(result: StoredProfile, app: Gputop, pilot: Pilot[None]) -> None:
    """What was kept, on its screen."""
    screen = ResultScreen(app.session, result)
    app.push_screen(screen)
    while getattr(screen, "content", None) is None:
        await pilot.pause(0.05)


def printed(shot: Printed) -> str:
    """What stands in a terminal then, as SVG."""
    text = (GOLDEN / shot.golden).read_text()
    console = Console(record=True, width=max(map(len, text.splitlines())) + 1, file=StringIO())
    console.print(Text.assemble(("$ ", "dim"), (shot.command, "bold")))
    console.print(Text(text), end="")
    return _whole(console.export_svg(title="gputop"))


def picture(shot: Shot | Overview | Printed, folder: Path) -> str:
    """One picture of any kind as SVG."""
    if isinstance(shot, Printed):
        return printed(shot)
    return asyncio.run(overview(shot) if isinstance(shot, Overview) else draw(shot, folder))


def _whole(svg: str) -> str:
    """Without this a renderer drops the blanks at the beginning of a run."""
    return svg.replace("<svg ", '<svg xml:space="preserve" ', 1)


def main(names: Sequence[str] = ()) -> None:
    """Draw every picture, or those of these names; without rsvg-convert it says what to install."""
    os.environ["TZ"] = "UTC"
    time.tzset()
    convert = shutil.which("rsvg-convert")
    if not convert:
        raise SystemExit("screenshots need rsvg-convert: apt-get install librsvg2-bin fonts-firacode fonts-dejavu-core")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HOME"] = folder
        os.environ.pop("XDG_STATE_HOME", None)
        for shot in [shot for shot in (*SHOTS, *OVERVIEWS, *PRINTED) if not names or shot.name in names]:
            svg, png = Path(folder) / f"{shot.name}.svg", FOLDER / f"{shot.name}.png"
            svg.write_text(picture(shot, Path(folder)))
            subprocess.run([convert, "--output", png, svg], check=True)
            print(png.relative_to(FOLDER.parent))


if __name__ == "__main__":
    main(sys.argv[1:])
