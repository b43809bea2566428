"""A key that arrives while a dialog closes does not close what is below it."""

from __future__ import annotations

import pytest

from tests.headless_screens import Stage, play
from tests.scripted_jobs import frame, training


@pytest.mark.parametrize("opens", ["d", "f1", "f6", "u", "o", "f2", "ctrl+p"])
def test_closing_it_again_leaves_the_main_screen(opens: str) -> None:
    async def scene(stage: Stage) -> None:
        await stage.press(opens)
        over = stage.app.screen
        assert over is not stage.app.main
        for _ in range(3):
            over.dismiss(None)
        await stage.pilot.pause()
        assert stage.app.screen is stage.app.main
        assert "41100" in stage.pids

    play(scene, frame(training("llama", 41000, ranks=1, loaders=2)))
