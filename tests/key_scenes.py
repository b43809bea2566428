"""Scenes that show what a key does, by the key's id; each test file declares those of its keys."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from gputop.ui.commands.table import COMMANDS
from tests.headless_screens import Stage
from tests.scripted_jobs import frame, training

LLAMA = training("llama", 41000, ranks=4, loaders=8)
SD3 = training("sd3", 52000, ranks=3, loaders=2, first_gpu=4, user="bob")
BOTH = frame(LLAMA, SD3, gpus=8)
FOLDED = ["llama", "41100", "41101", "41102", "+6 more", "41200", "41300", "41400", "sd3", "52100", "52200", "52300"]
Scene = Callable[[Stage], Awaitable[None]]


class Scenes(dict[str, Scene]):
    """The scenes of one test file."""

    def does(self, id: str) -> Callable[[Scene], Scene]:
        """The scene that shows what a key does."""

        def keep(scene: Scene) -> Scene:
            self[id] = scene
            return scene

        return keep


def elsewhere(*groups: str, also: frozenset[str] = frozenset()) -> set[str]:
    """Ids of the keys in these groups, and some others."""
    return {key.id for key in COMMANDS if key.group in groups} | also


PANES = frozenset({"pane-gpus", "pane-host", "pane-processes", "zoom", "everything"})  # tried with those that pick
ADVISING = frozenset({"advice", "experiments", "advice-mute", "pane-advice"})  # tried with the advice
# from the details too
ASKED_OF_MAIN = frozenset({"signal", "profile", "torch", "stack", "copy", "show", "save", "setup", "palette"})
OPENING = frozenset({"details", "environment", "files"})  # tried with those of the details
