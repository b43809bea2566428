"""The keys that leave the program, from wherever they are pressed."""

from __future__ import annotations

import pytest

from tests.headless_screens import Stage, play
from tests.ui.test_ui_keys import BOTH


@pytest.mark.parametrize("key", ["q", "f10"])
@pytest.mark.parametrize("before", [(), ("f1",), ("Z",)])
def test_quit(key: str, before: tuple[str, ...]) -> None:
    async def scene(stage: Stage) -> None:
        await stage.press(*before, key)
        assert not stage.app.is_running or stage.app._exit

    play(scene, BOTH)


@pytest.mark.parametrize("before", [(), ("f1",), ("d",), ("f6",), ("o",)])
def test_ctrl_c_asks_once(before: tuple[str, ...]) -> None:
    async def scene(stage: Stage) -> None:
        await stage.press(*before, "ctrl+c")
        assert not stage.app._exit
        assert "Ctrl+C again to quit" in stage.text
        await stage.press("ctrl+c")
        assert stage.app._exit

    play(scene, BOTH)
