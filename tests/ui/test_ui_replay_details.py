"""A recording behind the details of a process: the same keys of time, the same bar, and who says that it stands."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.headless_screens import Stage
from tests.ui.test_ui_replay import at, recorded, watch

pytestmark = pytest.mark.usefixtures("universal_time")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(tmp_path_factory.mktemp("recorded"), "healthy")


def test_the_keys_of_time_work_in_details_and_the_bar_stands_there(path: Path) -> None:
    async def scene(stage: Stage) -> None:
        await stage.press("down", "enter")
        assert "[1 Threads]" in stage.text
        assert " paused 1× " in stage.lines[-2]
        await at(stage, 1, "right_square_bracket")
        await at(stage, 61, "right_curly_bracket")
        await at(stage, 60, "left_square_bracket")
        await at(stage, 129, "0")
        assert " the end 1× " in stage.lines[-2]
        await stage.press("right_square_bracket")
        assert "end of the recording" in stage.lines[-1]
        await at(stage, 69, "left_curly_bracket")
        await stage.press("greater_than_sign")
        assert " paused 2× " in stage.lines[-2]
        await stage.pilot.click("#replay", offset=(stage.lines[-2].index("["), 0))
        await at(stage, 68)
        assert "[1 Threads]" in stage.text
        await stage.press("f1", "tab", "tab")
        assert "replay: pause, slower, faster" in stage.text
        assert "UNAVAILABLE NOW" not in stage.text

    watch(path, scene, size=(120, 40))


@pytest.mark.parametrize("keys", [(), ("down", "enter")])
def test_the_header_says_that_time_stands_where_the_bar_has_no_room(path: Path, keys: tuple[str, ...]) -> None:
    async def scene(stage: Stage) -> None:
        await stage.press(*keys)
        assert " REPLAY  paused " not in stage.lines[0]
        await stage.pilot.resize_terminal(80, 5)
        await stage.pilot.pause()
        assert " REPLAY  paused " in stage.lines[0]
        await stage.press("0")
        await stage.until(lambda: " REPLAY  the end " in stage.lines[0], "the end")

    watch(path, scene)
