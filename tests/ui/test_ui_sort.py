"""Sorting by keys, from a list, by the mouse; the tree and the flat list."""

from __future__ import annotations

import pytest
from textual.events import MouseScrollDown

from gputop.ui.commands.table import COMMANDS
from tests.headless_screens import Stage, play
from tests.scripted_jobs import frame, training

LLAMA = training("llama", 41000, ranks=4, loaders=8)
SD3 = training("sd3", 52000, ranks=3, loaders=2, first_gpu=4, user="bob")
BOTH = frame(LLAMA, SD3, gpus=8)

SORTS = [
    (("M", "P"), "CPU%▼"),
    (("M",), "RSS▼"),
    (("T",), "TIME▼"),
    (("N",), "PID▲"),
    (("G",), "GPU%▼"),
    (("V",), "VRAM▼"),
    (("r",), "READ/s▼"),
    (("w",), "WRITE/s▼"),
    (("o", "c"), "CPU%▼"),
    (("o", "m"), "RSS▼"),
    (("o", "t"), "TIME▼"),
    (("o", "p"), "PID▲"),
    (("o", "s"), "GPU%▼"),
    (("o", "g"), "VRAM▼"),
    (("o", "u"), "USER▲"),
    (("P", "o", "down", "enter"), "RSS▼"),
    (("V", "o", "enter"), "VRAM▼"),
    (("w", "o", "x"), "WRITE/s▼"),
    (("w", "o", "escape"), "WRITE/s▼"),
    (("comma",), "VRAM▼"),
    (("full_stop",), "THR▼"),
    (("I",), "CPU%▲"),
    (("N", "I"), "PID▼"),
    (("f6", "down", "enter"), "THR▼"),
    (("f6", "home", "enter"), "PID▲"),
    (("w", "f6", "end", "escape"), "WRITE/s▼"),
    (("f5", "w"), "WRITE/s▼"),
]


def test_every_sort_key_is_tried() -> None:
    pressed = {key for keys, _ in SORTS for key in keys}
    assert {key.id for key in COMMANDS if key.group == "SORT" and not pressed & set(key.keys)} == set()


def test_a_sort_key_sorts_as_help_says() -> None:
    async def scene(stage: Stage) -> None:
        for keys, title in SORTS:
            await stage.press("P", *keys)  # first as it is at the start
            assert f" · {title} · " in stage.text, keys

    play(scene, BOTH)


def test_a_column_that_a_narrow_screen_dropped_comes_back_to_sort_by_it() -> None:
    async def scene(stage: Stage) -> None:
        for key, title in (("M", "RSS▼"), ("T", "TIME▼"), ("w", "WRITE/s▼"), ("comma", "READ/s▼"), ("P", "CPU%▼")):
            await stage.press(key)
            assert f" · {title} · " in stage.text
            assert title in next(line for line in stage.lines if line.startswith(" PID"))

    play(scene, BOTH, size=(80, 24))


def test_that_ranks_stay_in_order_is_said_where_there_are_any() -> None:
    async def scene(stage: Stage) -> None:
        before = stage.pids
        for keys, title in ((("M",), "RSS"), (("I",), "RSS"), (("f6", "home", "enter"), "PID"), (("comma",), "TIME")):
            await stage.press(*keys)
            assert stage.lines[-1] == f" jobs sorted by {title}; ranks stay in rank order (F5: flat)"
            assert stage.pids == before
        await stage.press("f5", "M")
        assert "ranks stay" not in stage.text
        await stage.press("f5", "escape")
        await stage.show(frame(training("one", 41000, ranks=1, loaders=8)))
        await stage.press("M")
        assert "ranks stay" not in stage.text

    play(scene, frame(LLAMA))


@pytest.mark.parametrize(("width", "key"), [(80, "r"), (100, "r"), (120, "o")])
def test_the_arrow_keeps_its_distance_from_the_next_title(width: int, key: str) -> None:
    async def scene(stage: Stage) -> None:
        await stage.press(key, "c")
        titles = next(line for line in stage.lines if line.startswith(" PID"))
        assert "▼ " in titles

    play(scene, BOTH, size=(width, 40))


def test_jobs_change_places() -> None:
    async def scene(stage: Stage) -> None:
        assert [pid for pid in stage.pids if not pid.isdecimal()] == ["llama", "+6 more", "sd3"]
        await stage.press("I")
        assert stage.pids[0] == "sd3"
        await stage.press("M", "o", "u", "I")
        assert stage.pids[0] == "sd3", "bob before alice"

    play(scene, BOTH)


def test_the_flat_list_has_no_jobs() -> None:
    async def scene(stage: Stage) -> None:
        await stage.press("f5")
        assert " flat · " in stage.text
        assert "llama" not in stage.pids
        await stage.press("f5")
        assert "llama" in stage.pids

    play(scene, BOTH)


def test_a_click_on_a_title_sorts_and_again_reverses() -> None:
    async def scene(stage: Stage) -> None:
        table = stage.app.main.table
        x = stage.lines[table.region.y + 1].index("RSS")
        await stage.pilot.click(table, offset=(x, 1))
        assert " · RSS▼ · " in stage.text
        await stage.pilot.click(table, offset=(x, 1))
        assert " · RSS▲ · " in stage.text

    play(scene, BOTH)


def test_a_click_selects_a_line_and_its_mark_folds_it() -> None:
    async def scene(stage: Stage) -> None:
        table = stage.app.main.table
        row = stage.pids.index("41300")
        await stage.pilot.click(table, offset=(40, 2 + row))
        assert stage.selected == "41300"
        assert "41301" not in stage.pids
        await stage.pilot.click(table, offset=(3, 2 + row))
        assert "41301" in stage.pids
        await stage.pilot.click(table, offset=(3, 2 + row))
        assert "41301" not in stage.pids
        await stage.pilot.click(table, offset=(30, 2 + stage.pids.index("+6 more")))
        assert "41108" in stage.pids

    play(scene, BOTH)


def test_the_wheel_scrolls_and_leaves_the_cursor() -> None:
    async def scene(stage: Stage) -> None:
        await stage.press("asterisk")
        table = stage.app.main.table
        await stage.pilot._post_mouse_events([MouseScrollDown], table, offset=(10, 5))
        assert stage.selected == "41100"
        assert stage.pids[0] != "llama"

    play(scene, BOTH, size=(120, 24))
