"""The columns of the presets on the screen, at two sizes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from gputop.model import Node, Process, Role
from gputop.ui.commands.settings import show_preset
from tests.headless_screens import Stage, play
from tests.scripted_jobs import JUPYTER, LLAMA, SD3, frame, minute

pytestmark = pytest.mark.usefixtures("universal_time")


@pytest.mark.parametrize("preset", ["steps", "io", "memory", "scheduling"])
@pytest.mark.parametrize("size", [(80, 24), (120, 40)], ids=lambda size: f"{size[0]}x{size[1]}")
def test_presets(size: tuple[int, int], preset: str, golden: Callable[[str, str], None]) -> None:
    async def scene(stage: Stage) -> None:
        show_preset(stage.app.main, preset)
        await stage.press("escape")
        golden(f"preset-{preset}-{size[0]}x{size[1]}.txt", stage.text)

    shown = frame(LLAMA, SD3, JUPYTER, gpus=8)
    full = tuple(closely(process) for process in shown.processes)
    nodes = (Node(number=0, cpus="0-63"), Node(number=1, cpus="64-127"))
    play(scene, replace(shown, processes=full, host=replace(shown.host, nodes=nodes)), size=size, past=minute(shown))


def closely(process: Process) -> Process:
    """A process of which everything is known; of a notebook's owner we may not know all."""
    if process.user == "carol":
        return process
    loads = process.role is Role.LOADER
    return replace(
        process,
        state="D" if loads else "R",
        waiting_in="rpc_wait_bit_killable" if loads else "do_epoll_wait",
        read_chars_per_s=61e6 if loads else 0.0,
        read_calls_per_s=2000.0 if loads else 1.0,
        mean_read_bytes=31_000.0 if loads else None,
        open_files=41 if loads else 133,
        pss_bytes=(process.rss_bytes or 0) // 3,
        shared_bytes=(process.rss_bytes or 0) // 2,
        swap_bytes=0,
        major_faults_per_s=0.0,
        voluntary_switches_per_s=900.0,
        involuntary_switches_per_s=12.0,
        last_cpu=process.pid % 128,
        affinity="0-127" if loads else "0-15,64-79",
        nice=0,
    )
