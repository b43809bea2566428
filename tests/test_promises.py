"""What a label says of a key is what the key does there: each promise is read off the screen and its key pressed."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from gputop.diagnose import Abstained, Finding, Step
from gputop.model import Missing
from gputop.ui.dialogs.box import Dialog
from gputop.ui.dialogs.choices import ListDialog
from gputop.ui.main.screen import MainScreen
from gputop.ui.profiling.dialog import CANCEL, OLDER, START, ProfileDialog
from tests.advice_scenes import found, hot, update
from tests.headless_screens import Stage, box, play
from tests.real_processes import moment
from tests.scripted_jobs import minute
from tests.signal_dialogs import sleeping, trainer

HOT = hot(
    steps=(
        Step(text="check the airflow"),
        Step(text="lower its power limit", command="nvidia-smi -i 6 -pl 500", needs_root=True),
        Step(text="read its temperatures", command="nvidia-smi -q -d TEMPERATURE -i 6"),
    )
)
SLOW = found(
    steps=(
        Step(text="trace a few steps", action="torch"),
        Step(text="fewer threads", command="export OMP_NUM_THREADS=8"),
    )
)
BOTH = update(HOT, SLOW)
SIZES = [(80, 24), (120, 40), (120, 60), (200, 60)]
KEYS = {
    "arrows": ["down", "right", "up", "left"], "Left": ["left"], "Right": ["right"], "Space": ["space"],
    "Enter": ["enter"], "Esc": ["escape"], "Tab": ["tab"], "type": ["z"], "Down": ["down"], "PgDn": ["pagedown"],
    "PgUp": ["pageup"],
}  # fmt: skip


async def to_the_advice(stage: Stage) -> None:
    """The keys are about the advice, which stands among the other panes."""
    main = stage.app.main
    main.set_focus(main.advice)
    main.refocused()
    await stage.pilot.pause()


@pytest.mark.parametrize("size", SIZES)
def test_y_copies_the_command_that_is_labelled_so(size: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[str] = []

    async def scene(stage: Stage) -> None:
        monkeypatch.setattr(stage.app, "copy_to_clipboard", copied.append)
        stage.app.main.show(BOTH)
        await to_the_advice(stage)
        labelled = 0
        for finding in BOTH.findings:
            assert stage.app.main.advice.finding_list.chosen is finding
            commands = [step.command for step in finding.steps if step.command]
            for command in (*commands, commands[0]):
                shown = stage.text
                await stage.press("y")
                assert copied[-1] == command
                if "y copy" in shown:
                    labelled += 1
                    assert shown.count("y copy") == 1, "one of them is copied"
                    beside = " ".join(shown.split("y copy")[0].splitlines()[-2:])
                    assert command in beside, (command, shown)
            await stage.press("down")
        # where rows are few the charts of the host come before a second step
        assert labelled >= 2 or size in ((80, 24), (120, 40)), "there are labels to hold it to"

    play(scene, BOTH.frame, size=size, past=minute(BOTH.frame))


def test_the_key_of_a_step_is_shown_where_pressing_it_is_about_that_finding() -> None:
    async def scene(stage: Stage) -> None:
        stage.app.main.show(BOTH)
        assert "t run" not in stage.text, "t is about the line under the cursor there"
        await to_the_advice(stage)
        assert "t run" not in stage.text, "it is about the GPU that is hot"
        await stage.press("down")
        assert "t run" in stage.text
        await stage.press("t")
        assert "(•) torch.profiler" in stage.text
        assert f"{BOTH.frame.by_identity[SLOW.subject.processes[0]].pid}  " in stage.text

    play(scene, BOTH.frame, past=minute(BOTH.frame))


def clears(text: str) -> bool:
    """Whether the table says that Esc shows what is hidden."""
    return "Esc show all" in text or "Esc clear the filter" in text


@pytest.mark.parametrize("wanted", ["user=alice", "nobody-is-called-so", "gpu=0"])
@pytest.mark.parametrize("first", [[], ["shift+tab"], ["tab"], ["tab", "tab"], ["a"], ["z"], ["slash"], ["H"], ["Z"]])
def test_esc_is_said_to_show_all_where_it_does_so_at_once(first: list[str], wanted: str) -> None:
    async def scene(stage: Stage) -> None:
        await stage.press("f4", *wanted, "enter", *first)
        promised = clears(stage.text)
        await stage.press("escape")
        assert (stage.app.main.table.listing.view.filter is None) == promised
        if not promised:
            await stage.press(*["escape"] * (first == ["a"]))  # from all of the advice to its pane, and from there
            assert clears(stage.text), "the next one does"
            await stage.press("escape")
            assert stage.app.main.table.listing.view.filter is None

    play(scene, BOTH.frame, past=minute(BOTH.frame))


@pytest.mark.parametrize("key", ["d", "f6", "u", "o", "f2", "ctrl+p", "f1", "S", "Y", "f9"])
def test_every_key_at_the_foot_of_a_dialog_does_something(
    key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))

    async def scene(stage: Stage) -> None:
        await stage.press(key)
        over = stage.app.screen
        assert not isinstance(over, MainScreen)
        foot = box(stage).rstrip().splitlines()[-1] if isinstance(over, Dialog) else stage.lines[-1]
        promised = re.findall(r"\b(?:arrows|Left|Right|Space|Enter|Esc|Tab|type|Down|PgDn|PgUp)\b", foot)
        assert "Esc" in promised, foot
        assert "Enter" in promised or not isinstance(over, ListDialog), foot
        for word in promised:
            if not isinstance(stage.app.screen, MainScreen):
                stage.app.screen.dismiss(None)
                await stage.pilot.pause()
            await stage.press(key)
            before, screen, changed = stage.text, stage.app.screen, False
            for each in KEYS[word]:
                await stage.press(each)
                changed |= stage.text != before or stage.app.screen is not screen
            assert changed, f"{word} does nothing: {foot}"

    with sleeping() as child:
        play(scene, moment(trainer(child.pid), launcher=None))


@pytest.mark.parametrize(("key", "tool"), [("p", "py-spy record"), ("s", "py-spy dump"), ("t", "torch.profiler")])
@pytest.mark.parametrize("opened", ["p", "t"])
def test_the_keys_that_open_the_profile_dialog_choose_their_tool_in_it(
    opened: str, key: str, tool: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    async def scene(stage: Stage) -> None:
        await stage.press(opened, key)
        assert f"(•) {tool}" in stage.text
        assert stage.text.count("(•) py-spy") + stage.text.count("(•) torch") == 1

    with sleeping() as child:
        play(scene, moment(trainer(child.pid), launcher=None))


def test_the_profile_dialog_says_at_each_stop_what_enter_does_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    async def scene(stage: Stage) -> None:
        await stage.press("p")
        dialog = stage.app.screen
        assert isinstance(dialog, ProfileDialog)
        stops = [stop for row in reversed(dialog.items) for stop in row.stops]  # other tools have other options
        for stop in stops:
            if not isinstance(stage.app.screen, ProfileDialog):
                await stage.press("p")
            dialog = stage.app.screen
            assert isinstance(dialog, ProfileDialog)
            dialog.go(stop)
            dialog.redraw()
            await stage.pilot.pause()
            says = re.search(r"Space, Enter ([a-z ]+?)   ", stage.text)
            assert says, stage.text
            started = len(stage.app.jobs.under_way)
            await stage.press("enter")
            closed = stage.app.screen is not dialog
            did = {START: "start", CANCEL: "cancel", OLDER: "list earlier profiles"}.get(stop, "choose")
            assert says[1] == did
            assert closed == (did != "choose")
            assert (len(stage.app.jobs.under_way) > started or stage.app.jobs.news is not None) == (did == "start")
            await stage.until(lambda: not stage.app.jobs.under_way, "its end, before the next key")
        stage.app.jobs.leave()
        await stage.until(lambda: not stage.app.jobs.under_way, "their end")

    with sleeping() as child:
        play(scene, moment(trainer(child.pid), launcher=None))


def test_a_command_that_unlocks_a_tool_is_copied_by_the_key_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[str] = []

    async def scene(stage: Stage) -> None:
        monkeypatch.setattr(stage.app, "copy_to_clipboard", copied.append)
        await stage.press("p")
        dialog = stage.app.screen
        assert isinstance(dialog, ProfileDialog)
        await stage.press("t")
        if dialog.question.unlock:
            assert "y copies the command" in stage.text
            await stage.press("y")
            assert copied == [dialog.question.unlock]

    with sleeping() as child:
        play(scene, moment(trainer(child.pid), launcher=None))


REMARK = replace(SLOW, severity="info", primary=False, healthy=True)
SILENT = Abstained(
    rule="nvlink-down", subject=HOT.subject, missing=(Missing(metric="nvlinks_active", reason="permission"),)
)


@pytest.mark.parametrize("findings", [(), (REMARK,)])
@pytest.mark.parametrize("size", SIZES)
def test_a_says_why_a_rule_could_not_judge_where_it_is_said_to(
    size: tuple[int, int], findings: tuple[Finding, ...]
) -> None:
    calm = replace(update(*findings), abstained=(SILENT,))

    async def scene(stage: Stage) -> None:
        stage.app.main.show(calm)
        await stage.pilot.pause()
        promised = "skipped, a why" in stage.text
        assert promised == (not findings) or size not in ((120, 40), (120, 60)), "there is room to say so"
        await stage.press("a")
        assert "a why" not in stage.text, "here it closes"
        assert ("nvlink-down" in stage.text and "missing" in stage.text) == (not findings)
        assert ("Enter Process" in stage.lines[-1]) == bool(findings)
        await stage.press("enter")
        assert ("no finding" in stage.lines[-1]) == (not findings)

    play(scene, calm.frame, size=size, past=minute(calm.frame))


@pytest.mark.parametrize("before", [[], ["a"]])
def test_what_is_muted_is_listed_where_it_is_said_to_be(before: list[str]) -> None:
    async def scene(stage: Stage) -> None:
        stage.app.main.show(BOTH)
        await to_the_advice(stage)
        await stage.press(*before, "x")
        assert ("a lists it" in stage.lines[-1]) == (not before)
        await stage.press(*([] if before else ["a"]))
        assert any(line.endswith("muted") and "GPU 6" in line for line in stage.lines), stage.text

    play(scene, BOTH.frame, past=minute(BOTH.frame))


def test_a_user_without_processes_has_none_to_show() -> None:
    async def scene(stage: Stage) -> None:
        main = stage.app.main
        main.show_only(user="nobody")
        await stage.pilot.pause()
        assert "nobody has no process on a GPU" in stage.text
        assert "show all 0" not in stage.text
        main.show_only(user="alice", every_process=True)

    play(scene, BOTH.frame)


def test_esc_is_said_to_ask_about_what_is_under_way_where_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    async def scene(stage: Stage) -> None:
        await stage.press("p", "enter")
        assert "Esc: keep or discard?" in stage.text
        for key in ("slash", "f4"):
            await stage.press(key)
            assert "keep or discard?" not in stage.text, "Esc ends what is typed"
            await stage.press("escape")
            assert "Esc: keep or discard?" in stage.text
        await stage.press("escape")
        assert "stop it?" in stage.text
        stage.app.jobs.leave()
        await stage.until(lambda: not stage.app.jobs.under_way, "their end")

    with sleeping() as child:
        play(scene, moment(trainer(child.pid), launcher=None))
