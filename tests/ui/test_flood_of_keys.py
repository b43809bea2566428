"""A flood of keys: moves that wait count as one by as much; nothing that acts is lost or doubled."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from textual.events import Key

from gputop.demo import SCENARIOS, Demo
from gputop.ui.terminal import guarded
from gputop.ui.terminal.keyboard import MOVING, STALE_S, HeldKey
from tests.headless_screens import Stage, play


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def two(first: str, second: str, waited_s: float) -> tuple[HeldKey, HeldKey]:
    """Two keys, and how long the first has waited when the second is there."""
    clock = Clock()
    keys = HeldKey(first, None, clock), HeldKey(second, None, clock)
    clock.now_s = waited_s
    return keys


@pytest.mark.parametrize("key", sorted(MOVING))
def test_a_move_that_waited_is_counted_by_the_next_of_its_kind(key: str) -> None:
    first, second = two(key, key, 2 * STALE_S)
    assert first.can_replace(second)
    assert second.times == 2
    third = HeldKey(key, None, Clock())
    assert second.can_replace(third)
    assert third.times == 3


@pytest.mark.parametrize("key", ["q", "enter", "ctrl+c", "K", "y", "space", "escape", "delete", "x", "f9", "r"])
def test_what_acts_is_never_counted_together(key: str) -> None:
    first, second = two(key, key, 100.0)
    assert not first.can_replace(second)


def test_nothing_is_passed_over_and_what_is_fresh_stays_alone() -> None:
    first, second = two("down", "up", 100.0)
    assert not first.can_replace(second), "of another direction: at the edge they are not the same"
    first, second = two("down", "down", STALE_S / 2)
    assert not first.can_replace(second)
    assert not first.can_replace(Key("down", None))


def pressed(stage: Stage, key: str, times: int) -> HeldKey:
    one = HeldKey(key, key if len(key) == 1 else None)
    one.times = times
    stage.app.post_message(one)
    return one


FRAME = Demo(SCENARIOS["showcase"], pace=False, anchor_s=1_795_185_127, at_s=0.0).frame(60.0)


@pytest.mark.parametrize(("key", "times"), [("down", 3), ("down", 10_000), ("pagedown", 2), ("tab", 3), ("tab", 9_999)])
def test_together_they_come_where_single_ones_do(key: str, times: int) -> None:
    seen: list[Any] = []

    async def at(stage: Stage, held: bool) -> None:
        calls = 0
        redraw = stage.app.main.table.redraw

        def counted() -> None:
            nonlocal calls
            calls += 1
            redraw()

        stage.app.main.table.redraw = counted  # type: ignore[method-assign]
        if held:
            pressed(stage, key, times)
        else:
            for _ in range(times if times < 100 else times % 3 + 3 if key == "tab" else 200):
                pressed(stage, key, 1)
        await stage.pilot.pause()
        listing = stage.app.main.table.listing
        seen.append((listing.at, listing.top, stage.app.focused and stage.app.focused.id))
        assert calls < 10 or not held

    play(lambda stage: at(stage, False), FRAME)
    play(lambda stage: at(stage, True), FRAME)
    assert seen[0] == seen[1] or (key == "tab" and times > 100)


def test_a_letter_that_is_typed_is_typed_as_often() -> None:
    async def scene(stage: Stage) -> None:
        await stage.press("slash")
        pressed(stage, "j", 5)
        await stage.pilot.pause()
        assert "jjjjj" in stage.text

    play(scene, FRAME)


def counted(calls: Counter[str], of: object, name: str) -> None:
    """Count the calls of a method of this one."""
    do = getattr(of, name)

    def counting(*given: Any) -> Any:
        calls[name] += 1
        return do(*given)

    setattr(of, name, counting)


@pytest.mark.parametrize("keys", ["g", "v", "I", "gvz", "H3"])
def test_what_is_overtaken_by_the_next_key_is_drawn_once(keys: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarded, "_UNDRAWN_S", 1e9)  # however slow the machine is
    seen: list[str] = []

    async def flooded(stage: Stage) -> None:
        main, drawn = stage.app.main, Counter[str]()
        counted(drawn, main.table, "show")
        counted(drawn, main, "parts")
        for key in keys * 100:
            pressed(stage, key, 1)
        await stage.pilot.pause()
        assert 0 < drawn["show"] < 10
        assert 0 < drawn["parts"] < 10
        main.bar.hush()
        await stage.pilot.pause()
        seen.append(stage.text)

    async def one_by_one(stage: Stage) -> None:
        for key in keys * 100:
            await stage.press(key)
        stage.app.main.bar.hush()
        await stage.pilot.pause()
        seen.append(stage.text)

    play(flooded, FRAME)
    play(one_by_one, FRAME)
    assert seen[0] == seen[1]


def test_a_flood_is_drawn_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarded, "_UNDRAWN_S", 0.0)

    async def scene(stage: Stage) -> None:
        drawn = Counter[str]()
        counted(drawn, stage.app.main, "parts")
        for _ in range(20):
            pressed(stage, "g", 1)
        await stage.pilot.pause()
        assert drawn["parts"] >= 20

    play(scene, FRAME)
