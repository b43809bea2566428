"""What a process does with its GPUs: its own share where it is known, and what it held in the last minutes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gputop import units
from gputop.history import History
from gputop.model import Frame, GpuShare
from gputop.ui.details.picture import picture
from gputop.ui.details.process_view import ProcessView
from gputop.ui.details.tabs import process_tabs
from gputop.ui.panes.header import Status
from gputop.ui.theme import Look
from tests.process_details import RANK, RUNNING, full
from tests.scripted_jobs import GIB


def at(second: int, *shares: GpuShare) -> Frame:
    """A second later: its GPU is 97 % busy, whoever it is."""
    gpus = tuple(replace(gpu, busy_percent=97.0) for gpu in RUNNING.gpus)
    one = replace(RANK, gpus=shares)
    processes = tuple(one if each.pid == one.pid else each for each in RUNNING.processes)
    return replace(RUNNING, mono_s=RUNNING.mono_s + second, gpus=gpus, processes=processes)


def shown(frames: list[Frame], width: int) -> list[str]:
    past = History()
    for frame in frames:
        past.add(frame)
    newest = frames[-1]
    one = newest.by_identity[RANK.identity]
    opened = ProcessView(process=one, frame=newest, found=full(one, newest), past=past, look=Look())
    tabs = process_tabs()
    drawn = picture(opened, newest, tabs["gpu"], [*tabs.values()], (width, 40), Status())
    return [strip.text.rstrip() for strip in drawn.strips]


def share(busy: float | None, held: float | None = 20.0, place: int = 0) -> GpuShare:
    held_bytes = None if held is None else int(held * GIB)
    return GpuShare(uuid=RUNNING.gpus[place].uuid, busy_percent=busy, vram_bytes=held_bytes)


@pytest.mark.parametrize(
    ("width", "said"),
    [
        (200, "gpu 0  5%  this pid, the whole GPU 97%"),
        (120, "gpu 0  5%  this pid, whole GPU 97%"),
        (80, "gpu 0  5%  of all 97%"),
    ],
)
def test_the_chart_on_a_shared_gpu_is_its_own(width: int, said: str) -> None:
    lines = shown([at(second, share(5.0)) for second in range(70)], width)
    place = next(place for place, line in enumerate(lines) if said in line)
    own = [line[1 : width // 3 - 3] for line in lines[place + 1 : place + 5]]
    assert "█" not in "".join(own), "that would be the work of others"
    assert own[-1].rstrip().endswith("▂▂▂")


@pytest.mark.parametrize(
    ("width", "said"),
    [
        (120, "gpu 0  97%  the whole GPU"),
        (200, "gpu 0  97%  the whole GPU, this pid unknown"),
        (80, "gpu 0  97%  whole GPU"),
    ],
)
def test_where_its_own_is_unknown_the_chart_is_called_that_of_the_whole_gpu(width: int, said: str) -> None:
    lines = shown([at(second, share(None)) for second in range(70)], width)
    place = next(place for place, line in enumerate(lines) if said in line)
    assert "███" in lines[place + 4][1 : width // 3 - 3]


def test_what_was_known_of_it_before_stays_on_the_chart() -> None:
    lines = shown([*(at(second, share(5.0)) for second in range(20)), at(20, share(None))], 200)
    assert any(f"gpu 0  {units.UNKNOWN}  this pid, the whole GPU 97%" in line for line in lines)


@pytest.mark.parametrize("width", [80, 120, 200])
def test_what_it_held_of_the_memory_in_the_last_minutes(width: int) -> None:
    grown = [at(second, share(5.0, 20 + second / 30 if second < 600 else 25)) for second in range(700)]
    (line,) = [line for line in shown(grown, width) if "peak" in line]
    assert line.split("now")[0].split()[:3] == ["vram,", "9" if width == 80 else "15", "min"]
    assert line.endswith("now 25.0G  peak 40.0G")
    drawn = line[16 : line.index("now")].strip()
    assert list(drawn) != sorted(drawn), "it fell"
    assert sorted(set(drawn))[-1] == "▄", "of the 80 GiB that there are"


def test_of_several_gpus_it_is_their_sum() -> None:
    lines = shown([at(second, share(5.0), share(7.0, place=1)) for second in range(60)], 120)
    assert any(line.endswith("now 40.0G  peak 40.0G, its 2 GPUs together") for line in lines)
    assert any("gpus 0,1  6%  this pid" in line or "gpus 0,1  6%  of all" in line for line in lines)


@pytest.mark.parametrize("width", [16, 40, 50])
def test_where_there_is_no_room_or_nothing_is_known_there_is_no_such_line(width: int) -> None:
    known, unknown = ([at(second, share(5.0, held)) for second in range(60)] for held in (20.0, None))
    assert not any("peak" in line for line in shown(known, width))
    assert not any("peak" in line for line in shown(unknown, 120))
