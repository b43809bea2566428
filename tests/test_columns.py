"""Columns: what they say, how they yield, and that keys and columns are declared without a clash."""

from __future__ import annotations

import itertools

import pytest

from gputop.figures import Figures
from gputop.ui.columns import BY_ID, COLUMNS, PRESETS, SORTABLE, beside, of
from gputop.ui.keys import GROUPS, KEYS, ORDERS, key
from gputop.ui.places import fit

GIB = 1024**3


def ids(width: int) -> list[str]:
    return [place.column.id for place in fit(width)]


def test_columns_yield_the_least_important_first() -> None:
    assert ids(80) == ["pid", "user", "gpu", "gpu-busy", "vram", "cpu", "read", "command"]
    assert ids(120) == [column.id for column in COLUMNS if column.id != "time"]
    assert ids(140) == [column.id for column in COLUMNS]


def test_columns_lie_side_by_side_and_fill_the_width() -> None:
    for width in range(301):
        places = fit(width)
        assert (places[0].column.id, places[-1].column.id) == ("pid", "command")
        for place, after in itertools.pairwise(places):
            assert place.left + place.width == after.left
        assert width < 16 or places[-1].left + places[-1].width == width


def test_a_wider_table_never_loses_a_column() -> None:
    for width in range(40, 300):
        if width != 100:  # names get more room from here on
            assert set(ids(width - 1)) <= set(ids(width)), width


def test_neighbours_go_around() -> None:
    assert beside("pid", 1) == "user"
    assert beside("pid", -1) == "time"


EXTREME = Figures(
    pid=4_194_304,
    gpus=tuple(str(index) for index in range(10, 26)),
    gpu_percent=100.0,
    vram_bytes=1023 * GIB,
    cpu_percent=102_400.0,
    threads=400_000,
    rss_bytes=int(99.94 * GIB),
    wait_percent=100.0,
    read_bytes_per_s=999.4 * 1024**2,
    write_bytes_per_s=99.9 * GIB,
    io_percent=100.0,
    age_s=400 * 86_400.0,
)


@pytest.mark.parametrize("column", [column for column in COLUMNS if column.align == "right"], ids=lambda c: c.id)
@pytest.mark.parametrize("figures", [EXTREME, Figures(), Figures(gpus=("0",))], ids=["extreme", "unknown", "gpu"])
def test_a_number_fits_its_column_with_a_gap(column, figures: Figures) -> None:
    assert len(column.text(figures)) < column.width


@pytest.mark.parametrize(
    ("column", "figures", "text"),
    [
        ("gpu", Figures(gpus=("0", "1", "2", "3")), "0-3"),
        ("gpu", Figures(gpus=("0", "2", "4", "6")), "4x"),
        ("gpu", Figures(gpus=("0:1",)), "0:1"),
        ("gpu", Figures(), ""),
        ("gpu-busy", Figures(), ""),
        ("gpu-busy", Figures(gpus=("0",)), "·"),
        ("vram", Figures(gpus=("0",), vram_bytes=0), "0"),
        ("cpu", Figures(cpu_percent=1920.4), "1920"),
        ("cpu", Figures(), "·"),
        ("time", Figures(age_s=12 * 3600 + 31 * 60 + 2), "12:31:02"),
        ("time", Figures(age_s=100 * 86_400.0), "100d"),
        ("user", Figures(), "·"),
    ],
)
def test_what_a_cell_says(column: str, figures: Figures, text: str) -> None:
    assert BY_ID[column].text(figures) == text


@pytest.mark.parametrize("column", SORTABLE, ids=lambda c: c.id)
def test_values_of_one_column_can_be_compared(column) -> None:
    values = [column.value(f) for f in (EXTREME, Figures(gpus=("0",), user="a", pid=1), Figures())]
    assert sorted(value for value in values if value is not None) is not None


def test_a_key_does_one_thing() -> None:
    pressed = [name for row in KEYS for name in row.keys]
    assert len(pressed) == len(set(pressed))
    assert len({row.id for row in KEYS}) == len(KEYS)
    assert {row.group for row in KEYS} == set(GROUPS)
    assert set(ORDERS.values()) <= {column.id for column in SORTABLE}
    assert all(row.help and row.title and row.action for row in KEYS)


def test_keys_are_shown_as_people_write_them() -> None:
    assert key("help").names == ("F1", "h", "?")
    assert key("interrupt").names == ("Ctrl+C",)
    assert key("previous-pane").names == ("S-Tab",)
    assert key("page-up").names == ("PgUp",)
    with pytest.raises(KeyError):
        key("nothing")
