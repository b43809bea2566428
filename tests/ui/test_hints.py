"""What is said about keys names them as they are now, and says nothing of what has no key."""

from __future__ import annotations

import pytest

from gputop.model import Note
from gputop.ui.commands.command import hint, names
from gputop.ui.commands.remap import remap, remapped
from gputop.ui.commands.table import COMMANDS
from gputop.ui.panes.empty import note_line
from gputop.ui.theme import PLAIN, Look
from gputop.ui.widgets.key_bar import pressed
from tests.advice_scenes import fine, found, update
from tests.headless_screens import Stage, play
from tests.scripted_jobs import frame, process

IDLE = frame(gpus=2, loose=(process(7, user="root", name="bash", command=("bash",)),))
ADVICE = update(fine(), found())


def test_a_hint_has_the_keys_that_there_are() -> None:
    known = names(remapped({"zoom": (), "everything": ("X",)}.items()))
    assert hint(known, ": {} shows them", "pane-processes", "everything") == ": 3 or X shows them"
    assert hint(known, ": {} shows them", "pane-processes", "zoom") == ": 3 shows them"
    assert hint(known, ": {} shows them", "zoom") == ""
    assert [run.text for run in pressed(known, "everything", "show all")] == ["X", " show all"]
    assert pressed(known, "zoom", "alone") == []
    assert names(COMMANDS)["everything"] == "H"


@pytest.mark.parametrize(
    ("table", "pressed", "said"),
    [
        ({"everything": "X", "record": "J"}, (), ("    X show all 1 process\n", "    J record, to capture")),
        ({"back": "F12"}, ("backslash", "b", "z", "enter"), ("F12 clear the filter",)),
        ({"pane-processes": "6", "zoom": "J"}, ("6", "f9"), ("the processes are hidden; 6 shows them",)),
        ({"pane-processes": "6", "zoom": "J", "back": "F12"}, ("J",), ("alone; J or F12 goes back",)),
        ({"find": "J"}, ("n",), ("no search yet; J starts one",)),
        ({"find": "J F5"}, ("J",), ("words in a row; F5 next match, Enter stays",)),
        ({"find": "J"}, ("J",), ("words in a row; Enter stays",)),
        ({"next-pane": "J"}, ("J",) * 3, ("arrow keys select a GPU; Enter shows only its processes; J goes back",)),
    ],
)
def test_hints_follow_the_keys(table: dict[str, str], pressed: tuple[str, ...], said: tuple[str, ...]) -> None:
    changes, _, _ = remap(table)

    async def scene(stage: Stage) -> None:
        await stage.press(*pressed)
        for text in said:
            assert text in stage.text, stage.text

    play(scene, IDLE, keys=tuple(changes.items()))


def test_the_advice_names_its_key() -> None:
    changes, _, _ = remap({"advice": "J"})

    async def scene(stage: Stage) -> None:
        stage.app.main.show(ADVICE)
        await stage.press("x")
        assert "not now: select a finding first with J" in stage.lines[-1]
        stage.app.main.set_focus(stage.app.main.advice)
        await stage.press("x")
        assert "muted until it changes; J lists it" in stage.lines[-1]

    play(scene, ADVICE.frame, keys=tuple(changes.items()))


def test_where_the_rest_of_a_note_is() -> None:
    note = Note(subject="processes", key="hidden-pids", text="hidepid hides others", help=("mount it",))
    line = note_line(frame(notes=(note,)), 80, Look(PLAIN), {"help": "F12"})
    assert line
    assert line.text.rstrip().endswith("F12: more")
