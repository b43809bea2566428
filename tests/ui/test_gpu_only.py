"""One GPU is chosen by keys or mouse, and the table has its processes only, until Esc or the GPU goes."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from textual.events import Click, MouseDown, MouseScrollDown, MouseUp

from gputop.history import History
from gputop.model import GpuShare
from gputop.ui.frozen_history import FrozenHistory
from gputop.ui.gpus.pane import Density, gpus, grid
from gputop.ui.table.filter import using
from gputop.ui.theme import ASCII, PLAIN, Look
from tests.headless_screens import Stage, box, play
from tests.key_scenes import BOTH, LLAMA, SD3
from tests.scripted_jobs import frame, process, uuid
from tests.servers import gpu

THIRD = ["llama", "41300"]
ON_THIRD = "GPU 2 only · Esc show all"


def cursors(stage: Stage) -> list[str]:
    """The lines of the GPU pane on which something is chosen."""
    tall = stage.app.main.gpus.size.height
    return [line[line.index(">") :] for line in stage.lines[1 : tall + 1] if ">" in line]


def names(stage: Stage) -> list[str]:
    """What stands under PID, without rails in whatever glyphs."""
    return [name.lstrip("v>|+`- ") for name in stage.pids]


async def click(stage: Stage, x: int, y: int) -> None:
    """Click in the GPU pane."""
    await stage.pilot._post_mouse_events([MouseDown, MouseUp, Click], "#gpus", offset=(x, y), button=1)
    await stage.pilot.pause()


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
@pytest.mark.parametrize("density", ["auto", "card", "row", "cell"])
@pytest.mark.parametrize("look", [Look(), Look(PLAIN, ASCII)])
def test_enter_shows_the_processes_of_the_chosen_gpu_and_esc_all(
    size: tuple[int, int], density: str, look: Look
) -> None:
    async def scene(stage: Stage) -> None:
        everybody = names(stage)
        await stage.press("shift+tab", "home")
        assert [line.split()[0].strip(">") or line.split()[1] for line in cursors(stage)] == ["0"]
        while stage.app.main.gpus.uuid != uuid(2):
            await stage.press("down")
            if stage.app.main.gpus.uuid not in (uuid(1), uuid(2)):  # a grid that is read across
                await stage.press("home", "right", "right")
        await stage.press("enter")
        assert names(stage) == THIRD
        assert ON_THIRD.replace("·", look.glyphs.dot) in stage.text
        assert stage.selected == "41300", "keys are about its process"
        assert not cursors(stage) or look.glyphs is ASCII
        await stage.show(replace(BOTH, mono_s=BOTH.mono_s + 1))
        assert names(stage) == THIRD, "it stays when a frame comes"
        await stage.press("escape")
        assert sorted(names(stage)) == sorted(everybody)
        assert "GPU 2 only" not in stage.text

    play(scene, BOTH, size=size, density=density, look=look)


@pytest.mark.parametrize("density", ["row", "cell", "card"])
@pytest.mark.parametrize(("width", "height"), [(80, 10), (120, 17), (200, 26), (64, 40)])
@pytest.mark.parametrize("first", [3, 60])
def test_a_click_is_on_the_gpu_that_is_drawn_there(density: Density, width: int, height: int, first: int) -> None:
    look = Look()
    shown, past = frame(gpus=64), FrozenHistory(History())
    places, found = grid(density, width, height, 64, first), 0
    plain = gpus(shown, past, width, height, look, density=density, first=first)
    for place in range(64):
        lines = gpus(
            shown, past, width, height, look, density=density, first=first, chosen=shown.gpus[place].uuid
        )  # fmt: skip
        spots = [
            (x, y)
            for y, (line, other) in enumerate(zip(lines, plain, strict=True))
            for x, (one, same) in enumerate(zip(line.text, other.text, strict=True))
            if one != same
        ]
        assert [places.at(x, y) for x, y in spots] == [place] * len(spots)
        assert bool(spots) == (places.first <= place < places.first + places.fitting)
        found += len(spots)
    assert found == min(64, places.fitting)


@pytest.mark.parametrize("density", ["card", "row", "cell"])
def test_a_click_chooses_and_a_second_one_filters(density: str) -> None:
    async def scene(stage: Stage) -> None:
        places = stage.app.main.gpus.grid
        assert places is not None
        x, y = next((x, y) for x in range(120) for y in range(20) if places.at(x, y) == 2)
        await click(stage, x, y)
        assert stage.app.main.gpus.uuid == uuid(2)
        assert "GPU 2: Enter or a second click shows only its processes" in stage.lines[-1]
        assert len(cursors(stage)) == 1
        assert len(stage.pids) > 2
        await click(stage, x, y)
        assert stage.pids == THIRD
        await click(stage, x, y)
        assert len(stage.pids) > 2, "and a third one shows all again"

    play(scene, BOTH, density=density)


def test_the_arrows_go_through_the_cards_as_they_stand() -> None:
    async def scene(stage: Stage) -> None:
        await stage.press("shift+tab")
        seen = []
        for key in ("right", "right", "down", "left", "up", "left", "left", "down", "end", "home"):
            await stage.press(key)
            seen.append(stage.app.main.gpus.uuid)
        # 0 1
        # 2 3
        assert seen == [uuid(n) for n in (1, 2, 2, 1, 1, 0, 0, 2, 3, 0)]

    play(scene, frame(LLAMA), density="card")


def test_enter_on_the_one_that_is_shown_shows_all_and_the_bar_says_so() -> None:
    async def scene(stage: Stage) -> None:
        await stage.press("shift+tab", "down", "f1", "escape")
        stage.app.main.bar.hush()
        await stage.pilot.pause()
        assert "Enter This GPU only" in stage.lines[-1]
        await stage.press("enter", "shift+tab")
        stage.app.main.bar.hush()
        await stage.pilot.pause()
        assert "Enter All GPUs" in stage.lines[-1]
        await stage.press("up")
        stage.app.main.bar.hush()
        await stage.pilot.pause()
        assert "Enter This GPU only" in stage.lines[-1]
        await stage.press("down", "enter")
        assert len(stage.pids) > 2
        assert stage.app.focused is stage.app.main.gpus
        await stage.press("escape")
        assert stage.app.focused is stage.app.main.table
        stage.app.main.bar.hush()
        await stage.pilot.pause()
        assert "Enter Details" in stage.lines[-1]

    play(scene, BOTH, density="row")


def test_its_key_begins_at_the_gpu_of_the_selected_process() -> None:
    async def scene(stage: Stage) -> None:
        await stage.press("slash", *"52200", "enter", "f")
        assert stage.app.main.gpus.uuid == uuid(5)
        await stage.press("f")
        assert stage.pids == ["sd3", "52200"]
        await stage.press("f", "f")
        assert "GPU 5 only" not in stage.text

    play(scene, BOTH)


def test_filter_user_and_gpu_hold_together_and_go_together() -> None:
    async def scene(stage: Stage) -> None:
        await stage.press("shift+tab", "home", "enter")
        await stage.press("f4", *"worker", "enter")
        assert "GPU 0 only  worker  8 of 47 · Esc show all" in stage.text
        assert stage.pids == ["llama", "41100", "41101", "41102", "+6 more"]
        await stage.press("f4", *" user=bob", "enter")
        assert "0 of 47 processes on GPU 0 match" in stage.text
        await stage.press("escape")
        assert "52100" in stage.pids

    play(scene, BOTH, density="row")


def test_a_gpu_without_a_process_says_so_and_not_more_than_it_knows() -> None:
    idle = tuple(
        replace(gpu, busy_percent={3: 0.0, 4: 99.0}.get(place, gpu.busy_percent)) for place, gpu in enumerate(BOTH.gpus)
    )
    shown = frame(SD3, loose=(process(9),), gpus=8)
    shown = replace(shown, gpus=idle)

    async def scene(stage: Stage) -> None:
        await stage.press("shift+tab", "home", "down", "down", "down", "enter")
        assert "No process on GPU 3, which is idle." in stage.text
        assert "Esc show all" in stage.text
        await stage.press("shift+tab", "up", "enter")
        assert "GPU 2 is busy, but the driver lists no process on it." in stage.text

    play(scene, shown, density="row")


def test_it_goes_with_its_gpu_and_that_is_said() -> None:
    async def scene(stage: Stage) -> None:
        await stage.press("shift+tab", "down", "down", "enter")
        left = replace(BOTH, mono_s=BOTH.mono_s + 1, gpus=tuple(gpu for gpu in BOTH.gpus if gpu.uuid != uuid(2)))
        await stage.show(left)
        assert stage.lines[-1].startswith(" GPU 2 is gone: showing the processes of all GPUs")
        assert "only" not in stage.text.replace("processes only", "")
        assert "52100" in stage.pids
        await stage.press("shift+tab", "enter")
        assert "GPU 0 only" in stage.text, "a chosen one that is gone is the first"

    play(scene, BOTH, density="row")


def test_an_instance_is_one_of_its_card() -> None:
    cards = [gpu(0, mig_mode=True), gpu(1), gpu(10)]
    instances = [replace(gpu(2 + n), index=f"0:{n}", parent_uuid=cards[0].uuid) for n in range(2)]
    everything = (cards[0], *instances, *cards[1:])
    shares = [(GpuShare(uuid=each.uuid, vram_bytes=1),) for each in everything]
    shown = replace(
        frame(),
        gpus=everything,
        processes=tuple(process(100 + n, gpus=share) for n, share in enumerate(shares)),
        jobs=(),
    )
    of = {gpu.index: {pid for pid, _ in using(shown, gpu.uuid)} for gpu in shown.gpus}
    numbers = {gpu.index: 100 + number for number, gpu in enumerate(shown.gpus)}
    for index, pids in of.items():
        assert pids == {pid for each, pid in numbers.items() if each == index or each.startswith(f"{index}:")}
    assert using(shown, "GPU-gone") == frozenset()


@pytest.mark.parametrize(("keys", "said"), [(["3"], "the processes are hidden; 3 shows them"), (["4"], "")])
def test_without_processes_it_says_how_to_have_them(keys: list[str], said: str) -> None:
    async def scene(stage: Stage) -> None:
        await stage.press("shift+tab", *keys, "enter")
        assert ("GPU 0 only" in stage.text) == (not said)
        assert said in stage.lines[-1]

    play(scene, BOTH)


def test_a_pane_of_gpus_that_is_alone_makes_room_for_their_processes() -> None:
    async def scene(stage: Stage) -> None:
        await stage.press("shift+tab", "z", "down", "enter")
        assert stage.app.main.alone is None
        assert "GPU 1 only" in stage.text

    play(scene, BOTH, density="row")


def test_a_screen_without_room_for_processes_scrolls_its_gpus() -> None:
    async def scene(stage: Stage) -> None:
        await stage.press("shift+tab", "down", "enter", "f")
        assert "not now: needs 60×20 to show processes" in stage.lines[-1]
        assert not cursors(stage)

    play(scene, frame(LLAMA, gpus=64), size=(40, 12))


def test_without_a_gpu_its_key_says_so() -> None:
    async def scene(stage: Stage) -> None:
        await stage.press("f")
        assert "not now: no GPU is shown" in stage.lines[-1]
        before = stage.text
        await stage.pilot._post_mouse_events([MouseScrollDown], "#gpus", offset=(5, 1))
        await click(stage, 5, 1)
        await stage.press("pagedown", "end", "left", "enter", "tab", "escape")
        assert stage.app.main.gpus.strips, before

    for density in ("auto", "card", "cell"):
        play(scene, replace(frame(LLAMA), gpus=()), density=density)


def test_the_palette_finds_it() -> None:
    async def scene(stage: Stage) -> None:
        await stage.press("ctrl+p", *"only", "space", *"gpu")
        assert "gpu " in box(stage)
        await stage.press("ctrl+u", *"gpu", "enter")
        assert stage.app.focused is stage.app.main.gpus

    play(scene, BOTH)


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (40, 12)])
def test_any_keys_while_gpus_come_and_go(size: tuple[int, int]) -> None:
    chance = random.Random(22)
    keys = ["up", "down", "left", "right", "home", "end", "pageup", "pagedown", "enter", "f", "tab", "shift+tab"]
    keys += ["escape", "g", "1", "3", "z", "a", "f5", "H"]

    async def scene(stage: Stage) -> None:
        for step in range(20):
            count = chance.choice((0, 1, 2, 5, 8, 33))
            await stage.show(replace(frame(LLAMA, SD3, gpus=count), mono_s=BOTH.mono_s + step + 1))
            await stage.press(*chance.choices(keys, k=6))
            await stage.press("escape", "escape") if stage.app.screen is not stage.app.main else None
            await click(stage, chance.randrange(size[0]), 1) if stage.app.main.gpus.display else None
            only = stage.app.main.table.listing.view.gpu
            assert only is None or only in {gpu.uuid for gpu in stage.app.main.gpus.cards}
            assert "report" not in stage.lines[-1]

    play(scene, BOTH, size=size)
