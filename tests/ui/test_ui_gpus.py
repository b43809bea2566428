"""The GPU pane on the screen: it scrolls as far as there are GPUs, and never claims room it has not."""

from __future__ import annotations

import pytest
from textual.events import MouseScrollDown, MouseScrollUp

from tests.headless_screens import Stage, play
from tests.scripted_jobs import frame


@pytest.mark.parametrize("density", ["card", "row", "cell"])
def test_sixty_four_gpus_scroll_to_the_last_and_no_further(density: str) -> None:
    async def scene(stage: Stage) -> None:
        before = stage.lines
        await stage.press("shift+tab", "end")
        assert any(" 63 " in f" {line}".replace(">", " ") for line in stage.lines)
        last = stage.text
        await stage.press("down")
        assert stage.text == last
        await stage.press("up")
        assert stage.text != last
        await stage.press("home")
        top = stage.text
        await stage.pilot._post_mouse_events([MouseScrollDown], "#gpus", offset=(5, 5))
        assert stage.text != top
        await stage.pilot._post_mouse_events([MouseScrollUp], "#gpus", offset=(5, 5))
        await stage.press("escape")
        assert stage.lines[:-1] == before[:-1]

    play(scene, frame(gpus=64), size=(80, 24), density=density)


def test_a_small_screen_scrolls_its_gpus() -> None:
    async def scene(stage: Stage) -> None:
        assert " 63 " not in stage.text
        await stage.press("end")
        assert " 63 " in stage.text

    play(scene, frame(gpus=64), size=(40, 12))


def test_cells_are_read_down_a_column_and_on_in_the_next_wherever_they_are_scrolled() -> None:
    async def scene(stage: Stage) -> None:
        for key in ("shift+tab", "down", "down", "pagedown", "end", "up"):
            await stage.press(key)
            tall = stage.app.main.gpus.size.height
            cells = [line.split("│") for line in stage.lines[2 : tall + 1]]
            numbers = [int(line[column].strip("> ").split()[0]) for column in range(len(cells[0])) for line in cells]
            assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))

    play(scene, frame(gpus=64), size=(80, 24), density="cell")


@pytest.mark.parametrize("size", [(40, 12), (80, 24)])
def test_a_page_of_gpus_is_a_page(size: tuple[int, int]) -> None:
    async def scene(stage: Stage) -> None:
        line = stage.lines[stage.app.main.gpus.size.height]
        last = int(line.rpartition("│")[2].split()[0])
        pages = 1 if size == (40, 12) else 2  # the first goes to the last one in sight, where one is chosen
        await stage.press("shift+tab", *["pagedown"] * pages)
        assert int(stage.lines[2].strip("> ").split()[0]) == last
        await stage.press(*["pageup"] * pages)
        assert int(stage.lines[2].strip("> ").split()[0]) == 0

    play(scene, frame(gpus=64), size=size)


def test_a_density_without_room_is_not_claimed() -> None:
    async def scene(stage: Stage) -> None:
        await stage.press("g")
        assert "GPUs: no room for a card" in stage.lines[-1]

    play(scene, frame(), size=(60, 19))
