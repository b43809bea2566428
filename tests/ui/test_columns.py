"""Columns: what they say, how they yield, and that keys and columns are declared without a clash."""

from __future__ import annotations

import itertools
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from gputop.columns import BY_ID, COLUMNS, PRESETS, SORTABLE, Column, Preset, beside, of
from gputop.model import Frame, Gpu, GpuShare, Host, Node, Process
from gputop.process_totals import Figures, one
from gputop.ui.commands.command import GROUPS
from gputop.ui.commands.table import COMMANDS, command
from gputop.ui.dialogs.choices import LETTERS
from gputop.ui.table.rows import places
from tests.scripted_jobs import frame, process

GIB = 1024**3


def ids(width: int, preset: Preset = "main") -> list[str]:
    return [place.column.id for place in places(width, preset)]


def test_columns_yield_the_least_important_first() -> None:
    assert ids(80) == ["pid", "user", "gpu", "gpu-busy", "vram", "cpu", "read", "command"]
    assert ids(120) == [column.id for column in of("main") if column.id not in ("time", "write")]
    assert ids(140) == [column.id for column in of("main")]


def test_the_column_that_sorts_is_shown_where_others_yield() -> None:
    for preset in PRESETS:
        for column, width in itertools.product(of(preset), (60, 80, 100, 120)):
            shown = [place.column.id for place in places(width, preset, column.id)]
            assert column.id in shown, (preset, width)
            assert sum(BY_ID[id].width for id in shown) < width
    assert [place.column.id for place in places(80, "main", "rss")] == [*ids(80)[:-2], "rss", "command"]


@pytest.mark.parametrize(
    ("preset", "titles"),
    [
        ("main", "PID USER GPU GPU% VRAM CPU% THR RSS CPU WAIT% READ/s WRITE/s IO% TIME COMMAND"),
        ("steps", "PID USER GPU GPU% CPU% STEP MAX STEP DATA WAIT% OPTIM% SAMPLES/s COMMAND"),
        ("io", "PID USER READ/s WRITE/s RCHAR/s SYSCR/s READ SIZE IO% STATE WCHAN FILES COMMAND"),
        ("memory", "PID USER VRAM RSS PSS SHM SWAP MAJFLT/s COMMAND"),
        ("scheduling", "PID THR CPU WAIT% VOL/s INVOL/s CPU AFFINITY NUMA NICE COMMAND"),
    ],
)
def test_presets(preset: Preset, titles: str) -> None:
    assert " ".join(column.title for column in of(preset)) == titles
    assert ids(140, preset) == [column.id for column in of(preset)]
    assert preset == "main" or ids(120, preset) == ids(140, preset)
    assert preset in PRESETS


@pytest.mark.parametrize("preset", PRESETS)
def test_columns_lie_side_by_side_and_fill_the_width(preset: Preset) -> None:
    for width in range(301):
        found = places(width, preset)
        assert (found[0].column.id, found[-1].column.id) == ("pid", "command")
        for place, after in itertools.pairwise(found):
            assert place.left + place.width == after.left
        assert width < 16 or found[-1].left + found[-1].width == width


@pytest.mark.parametrize("preset", PRESETS)
def test_a_wider_table_never_loses_a_column(preset: Preset) -> None:
    for width in range(40, 300):
        if width != 100:  # names get more room from here on
            assert set(ids(width - 1, preset)) <= set(ids(width, preset)), width


def test_neighbours_go_around() -> None:
    assert beside("pid", 1) == "user"
    assert beside("pid", -1) == "time"
    assert beside("numa", 1, "scheduling") == "nice"
    assert beside("cpu", 1, "memory") == "pid", "where it is not, from the left"


def figures(*indexes: str, nodes: int = 0, busy: float | None = None, vram: int | None = None, **read: Any) -> Figures:
    """Of one process of which no more is known, on GPUs of these indexes, on a host with a node for each CPU."""
    gpus = tuple(Gpu(uuid=f"GPU-{index}", index=index, name="H100") for index in indexes)
    shares = tuple(GpuShare(uuid=gpu.uuid, busy_percent=busy, vram_bytes=vram) for gpu in gpus)
    host = Host(nodes=tuple(Node(number=number, cpus=f"{number}") for number in range(nodes)))
    process = Process(pid=4_194_304, started_ticks=1, gpus=shares, **read)
    return one(process, Frame(wall_s=0, mono_s=0, hostname="n", host=host, gpus=gpus))


UNKNOWN, TWO = figures(), Figures((process(1), process(2, nice=5, affinity="0", last_cpu=1)), frame())
EXTREME = figures(
    *(str(index) for index in range(10, 26)),
    nodes=8,
    busy=100.0,
    vram=64 * GIB - 1,
    cpu_percent=102_400.0,
    threads=400_000,
    rss_bytes=int(99.94 * GIB),
    run_wait_percent=100.0,
    read_bytes_per_s=999.4 * 1024**2,
    write_bytes_per_s=99.9 * GIB,
    io_wait_percent=100.0,
    age_s=400 * 86_400.0,
    read_chars_per_s=99.9 * GIB,
    read_calls_per_s=12e6,
    mean_read_bytes=99.94 * 1024**2,
    state="D",
    waiting_in="rpc_wait_bit_killable",
    open_files=1_000_000,
    pss_bytes=int(99.94 * GIB),
    shared_bytes=int(99.94 * GIB),
    swap_bytes=int(99.94 * GIB),
    major_faults_per_s=999_000.0,
    voluntary_switches_per_s=999_000.0,
    involuntary_switches_per_s=999_000.0,
    last_cpu=1023,
    affinity="0,2,4,6,8,10,12,14",
    nice=-20,
    step_s=999.4,
    step_longest_s=9994.0,
    data_wait_percent=100.0,
    optimizer_percent=100.0,
    samples_per_s=999_000.0,
)


@pytest.mark.parametrize("column", [column for column in COLUMNS if column.align == "right"], ids=lambda c: c.id)
@pytest.mark.parametrize("seen", [EXTREME, UNKNOWN, figures("0"), TWO], ids=["extreme", "unknown", "gpu", "two"])
def test_a_number_fits_its_column_with_a_gap(column: Column, seen: Figures) -> None:
    assert len(column.text(seen)) < column.width


@pytest.mark.parametrize(
    ("column", "seen", "text"),
    [
        ("pid", UNKNOWN, "4194304"),
        ("pid", TWO, ""),
        ("gpu", figures("0", "1", "2", "3"), "0-3"),
        ("gpu", figures("0", "2", "4", "6"), "4x"),
        ("gpu", figures("0:1"), "0:1"),
        ("gpu", UNKNOWN, ""),
        ("gpu-busy", UNKNOWN, ""),
        ("gpu-busy", figures("0"), "·"),
        ("vram", figures("0", vram=0), "0"),
        ("vram", figures("0", "1", vram=GIB), "2.0G"),
        ("cpu", figures(cpu_percent=1920.4), "1920"),
        ("cpu", EXTREME, "102k"),
        ("cpu", UNKNOWN, "·"),
        ("time", figures(age_s=12 * 3600 + 31 * 60 + 2), "12:31:02"),
        ("time", figures(age_s=100 * 86_400.0), "100d"),
        ("user", UNKNOWN, "·"),
        ("affinity", EXTREME, "8 CPUs"),
        ("affinity", figures(affinity="0-127"), "0-127"),
        ("affinity", UNKNOWN, "·"),
        ("affinity", TWO, ""),
        ("numa", figures(affinity="0,2,4,6", nodes=8), "4x"),
        ("numa", figures(affinity="0-7"), "·"),
        ("numa", figures(affinity="0-1", nodes=2), "0-1"),
        ("numa", TWO, ""),
        ("nice", figures(nice=0), "0"),
        ("nice", TWO, ""),
        ("last-cpu", UNKNOWN, "·"),
        ("wchan", TWO, ""),
        ("wchan", UNKNOWN, "·"),
        ("state", figures(state="D"), "D"),
        ("faults", figures(major_faults_per_s=0.2), "0"),
        ("files", UNKNOWN, "·"),
        ("mean-read", figures(mean_read_bytes=31 * 1024.0), "31.0K"),
        ("command", EXTREME, ""),
    ],
)
def test_what_a_cell_says(column: str, seen: Figures, text: str) -> None:
    assert BY_ID[column].text(seen) == text


@pytest.mark.parametrize(
    ("column", "text"),
    [
        ("gpu", "10-25"),
        ("cpu", "102400"),
        ("time", "400d00:00"),
        ("affinity", "0,2,4,6,8,10,12,14"),
        ("numa", "0,2,4,6"),
        ("rss", "99.9G"),
    ],
)
def test_where_there_is_room_it_says_all(column: str, text: str) -> None:
    assert BY_ID[column].text(EXTREME, whole=True) == text


def test_what_does_not_add_up_over_processes() -> None:
    same = {"nice": 5, "affinity": "0-3", "last_cpu": 1, "waiting_in": "do_poll", "state": "S"}
    first = process(1, **same, read_chars_per_s=300.0, read_calls_per_s=3.0, swap_bytes=GIB)
    second = process(2, **same, read_chars_per_s=100.0, read_calls_per_s=1.0, swap_bytes=None)
    alike = Figures([first, second], frame())
    assert {metric: alike.same(metric) for metric in same} == same
    assert (alike.mean_read_bytes, alike.total("swap_bytes"), alike.state) == (100.0, GIB, "S")
    other = replace(second, nice=0, affinity=None, state="D", read_calls_per_s=0.0, read_chars_per_s=0.0)
    mixed = Figures([first, other], frame())
    assert (mixed.same("nice"), mixed.same("affinity"), mixed.state, mixed.mean_read_bytes) == (None, None, "D", 100.0)
    assert Figures([replace(first, state=state) for state in "SRZ"], frame()).state == "Z"


def test_one_metric_may_be_told_in_two_ways() -> None:
    ranks = Figures([process(1, step_s=0.4), process(2, step_s=1.2), process(3)], frame())
    assert (ranks.mean("step_s"), ranks.most("step_s"), ranks.total("step_s")) == (pytest.approx(0.8), 1.2, 2)


def test_nobody_is_no_number() -> None:
    nobody = Figures((), frame(), "alice", 7)
    said = {column.id: column.text(nobody) for column in COLUMNS}
    assert (said.pop("pid"), said.pop("user")) == ("7", "alice")
    assert set(said.values()) == {"", "·"}


@pytest.mark.parametrize("column", SORTABLE, ids=lambda c: c.id)
def test_values_of_one_column_can_be_compared(column: Column) -> None:
    values = [column.value(each) for each in (EXTREME, figures("0", user="a"), UNKNOWN, TWO)]
    assert sorted(value for value in values if value is not None) is not None


def test_a_column_is_one_declaration() -> None:
    said = subprocess.check_output([sys.executable, "-m", "tests.throwaway_column"], text=True, timeout=60)
    assert [" ".join(line.split()) for line in said.splitlines()] == [
        "screen: MAIN% 93 7",
        "settings: sort columns",
        "filter: 1 1 2",
        "manual: MAIN% (`main`) `mainthread`",
        "help: MAIN% CPU time of its main thread. Source: /proc.",
        "text: MAIN%",
    ]


def test_a_key_does_one_thing() -> None:
    for place in {place for row in COMMANDS for place in row.on}:
        pressed = [name for row in COMMANDS if place in row.on for name in row.keys]
        assert len(pressed) == len(set(pressed))
    assert len({row.id for row in COMMANDS}) == len(COMMANDS)
    assert {row.group for row in COMMANDS} == set(GROUPS)
    assert set(LETTERS.values()) <= {column.id for column in SORTABLE}
    assert all(row.help and row.title and callable(row.run) for row in COMMANDS)


def test_keys_are_shown_as_people_write_them() -> None:
    assert command("help").names == ("F1",)
    assert command("keys").names == ("h", "?")
    assert command("interrupt").names == ("Ctrl+C",)
    assert command("previous-pane").names == ("S-Tab",)
    assert command("page-up").names == ("PgUp",)
    with pytest.raises(KeyError):
        command("nothing")
