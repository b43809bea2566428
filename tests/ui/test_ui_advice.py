"""Keys while they are about the advice: to whom it is about, and what looks inside."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gputop.diagnose import Subject
from gputop.ui.advice.states import states
from tests.advice_scenes import drawn, fine, found, hot, server, update
from tests.headless_screens import Stage, play
from tests.scripted_jobs import minute

ALL = update(fine(), found(), hot())


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        (("f4", *"user=bob", "enter"), "is hidden by the filter; Esc leaves the advice, twice shows all"),
        (
            ("u", "down", "down", "enter"),
            "is hidden while only bob is shown; Esc leaves the advice, twice shows all",
        ),
    ],
)
def test_who_is_hidden_is_not_gone_to_and_the_keys_stay_with_the_advice(keys: tuple[str, ...], why: str) -> None:
    async def scene(stage: Stage) -> None:
        main = stage.app.main
        main.show(ALL)
        await stage.press(*keys, "a", "down")
        assert main.advice.finding_list.chosen
        assert main.advice.finding_list.chosen.subject.processes == ALL.frame.jobs[0].ranks
        before = stage.selected
        await stage.press("enter")
        assert f" {ALL.frame.by_identity[ALL.frame.jobs[0].ranks[0]].pid} {why}" == stage.lines[-1]
        assert (stage.selected, main.advised) == (before, True)
        await stage.press("escape", "escape", "escape", "a", "enter")
        assert stage.selected == str(ALL.frame.by_identity[ALL.frame.jobs[0].ranks[0]].pid)

    play(scene, ALL.frame, past=minute(ALL.frame))


@pytest.mark.parametrize(("key", "picked"), [("p", "(•) py-spy record"), ("t", "(•) torch.profiler")])
def test_what_it_names_is_done_also_where_it_has_the_screen_for_itself(key: str, picked: str) -> None:
    async def scene(stage: Stage) -> None:
        stage.app.main.show(ALL)
        await stage.press("a", "down")
        assert "jobs and processes" not in stage.text
        await stage.press(key)
        assert picked in stage.text
        assert f"{ALL.frame.by_identity[ALL.frame.jobs[0].ranks[0]].pid}  " in stage.text

    play(scene, ALL.frame, past=minute(ALL.frame))


def test_stacks_of_the_chosen_finding_are_asked_for_there_and_of_none_it_is_said() -> None:
    nobody = update(hot(subject=Subject(kind="gpu", gpus=("GPU-gone",))))

    async def scene(stage: Stage) -> None:
        stage.app.main.show(ALL)
        await stage.press("a", "down", "s")
        assert "py-spy dump" in stage.text, "who is not there any more is asked about, with the reason"
        await stage.press("escape")
        stage.app.main.show(nobody)
        await stage.press("s")
        assert stage.lines[-1].endswith("no process on this host to profile")

    play(scene, ALL.frame, past=minute(ALL.frame))


def test_beside_the_advice_alone_a_hint_names_keys_that_show_the_processes() -> None:
    async def scene(stage: Stage) -> None:
        main = stage.app.main
        main.show(ALL)
        for key in ("3", "z"):
            await stage.press("a", "k")
            assert stage.lines[-1] == " not now: the processes are hidden; 3 or z shows them"
            await stage.press(key)
            assert "jobs and processes" in stage.text
            await stage.press("escape", "escape")
        await stage.press("3", "a", "k")
        assert stage.lines[-1] == " not now: the processes are hidden; 3 shows them"
        await stage.press("3")
        assert "jobs and processes" in stage.text
        assert main.focused is main.table

    play(scene, ALL.frame, past=minute(ALL.frame))


def test_what_is_only_worth_knowing_is_the_word_of_a_gpu_that_has_no_other() -> None:
    remark = found(rule="cold-cache", severity="info", primary=False, state="cold cache")
    assert {state.word for state in states([remark], server()).gpus.values()} == {"cold cache"}
    assert {state.word for state in states([remark, fine(subject=remark.subject)], server()).gpus.values()} == {
        "healthy"
    }


def test_that_something_is_worth_knowing_is_not_called_nothing() -> None:
    remark = found(rule="cold-cache", severity="info", primary=False)
    assert drawn(update(remark), (120, 40))[1].startswith(" 3 jobs: 1 found, 2 judging   ")


def test_where_there_is_one_line_it_is_of_the_finding_that_keys_act_on() -> None:
    async def scene(stage: Stage) -> None:
        stage.app.main.show(ALL)
        await stage.press("a", "escape")
        first = [line for line in stage.lines if line.startswith(">")]
        await stage.press("down")
        second = [line for line in stage.lines if line.startswith(">")]
        assert (len(first), len(second)) == (1, 1)
        assert first != second

    play(scene, ALL.frame, size=(40, 12), past=minute(ALL.frame))


def test_nothing_is_called_well_before_a_rule_could_have_spoken() -> None:
    shown = update().frame

    async def scene(stage: Stage) -> None:
        stage.app.main.show(replace(update(), jobs=(), host=None))
        assert "judging   the first verdict takes about a minute" in stage.text
        stage.app.main.show(update())
        assert "3 jobs (judging)" in stage.text
        assert stage.text.count("judging") > 3, "at GPUs and jobs, too"

    play(scene, shown, past=minute(shown))
