"""The keys of a result, on what is really kept: a profile of stacks with an earlier one, traces of two ranks."""

from __future__ import annotations

import ast
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from gputop.actions.pyspy import STACK, Asked, StackResult
from gputop.actions.torch_trace import Traced
from gputop.glossary import TERMS
from gputop.profile import flame, parse, store
from gputop.profile.store import COLLAPSED, FLAME, SPEEDSCOPE, StoredProfile
from gputop.trace.read import read
from gputop.trace.verdict import TraceView
from gputop.ui.commands.table import COMMANDS
from gputop.ui.result.builders import Result
from gputop.ui.result.screen import ResultScreen
from tests.headless_screens import Stage, play
from tests.profile.test_profile import py_spy_file
from tests.real_processes import finished, hold, moment, program, row
from tests.scripted_jobs import frame
from tests.traces import MAIN, NCCL, busy

NEXT = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


def shows(result: Result, scene: Callable[[Stage], Awaitable[None]], size: tuple[int, int] = (120, 40)) -> None:
    """Act on the screen of a result."""

    async def opened(stage: Stage) -> None:
        screen = ResultScreen(stage.app.session, result)
        assert isinstance(screen, ResultScreen)
        stage.app.push_screen(screen)
        await stage.until(lambda: screen.content is not None, "the result")
        await scene(stage)

    play(opened, frame(), size=size)


async def press(stage: Stage, *ids: str) -> None:
    """Press the keys of these actions."""
    for id in ids:
        await stage.press(next(key.keys[0] for key in COMMANDS if key.id == f"result-{id}"))


@pytest.fixture
def profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StoredProfile:
    """A profile that is kept, with an earlier one of the same command."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    text = py_spy_file()
    files = {SPEEDSCOPE: text.encode(), COLLAPSED: b"x 1\n", FLAME: flame(parse(text)).encode()}
    meta = {"pid": 7757, "started_ticks": 5, "command": "python train.py", "short": "python train.py", "seconds": 10.0}
    store.keep({**meta, "pid": 41, "at_s": 1_795_100_000.0}, files)
    return store.keep({**meta, "at_s": 1_795_185_127.0}, files)


def traces(tmp_path: Path) -> Traced:
    """Two ranks: the second comes late to the collective of every step."""
    paths = []
    for rank in range(2):
        made = busy(3, distributedInfo={"rank": rank, "world_size": 2, "backend": "nccl"})
        for step in range(3):
            start = step * 100_000
            made.note(
                "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", start + 10, 30_000 + 20_000 * rank
            )
            made.host("aten::linear", start + 60_000, 20_000)
            made.host("train.py(3): step", start + 5, 99_000, "python_function", MAIN)
            late = 30_000 * rank
            made.kernel(NCCL, start + 20_000 + late, 70_000 - late, stream=20, launch=start + 15_000)
            made.memory(start + 10, 10**9 * (step + 1), 10**10)
        paths.append(made.write(tmp_path / f"rank{rank}.json.gz"))
    views = tuple(TraceView(read(path)) for path in paths)
    for view in views:
        view.ranks = views
    return Traced(text="", good=True, files=tuple(paths), views=views)


def test_keys_of_a_profile(profile: StoredProfile) -> None:
    async def scene(stage: Stage) -> None:
        assert "py-spy 10 s" in stage.lines[0]
        await press(stage, "view-2", "total")
        assert "by total time" in stage.text
        await press(stage, "self", "find")
        await stage.press(*"next", "enter")
        assert ", with next" in stage.text
        await press(stage, "tab")
        assert "[3 Threads]" in stage.text
        await press(stage, "take")
        assert "[1 Flame]" in stage.text
        await stage.press("down", "down")
        await press(stage, "take")
        assert "zoomed" in stage.text
        await press(stage, "out", "right", "left", "turn")
        assert "zoomed" not in stage.text
        await press(stage, "path")
        assert stage.app.clipboard == f"{profile.path}/{SPEEDSCOPE}"
        await press(stage, "scp")
        assert f"scp dgx-07:{profile.path}/{SPEEDSCOPE} ." in stage.text.replace("\n", "")
        await stage.press("escape")
        await press(stage, "diff")
        await stage.until(lambda: "No function changed its share" in stage.text, "the comparison")
        await press(stage, "close")
        assert "[1 Flame]" in stage.text
        await press(stage, "tab-back", "view-5")
        await stage.press("end")
        await press(stage, "take")
        await stage.until(lambda: len(stage.app.screen_stack) == 4, "the earlier one")
        await press(stage, "close", "close")
        assert stage.app.screen is stage.app.main

    shows(profile, scene)


def test_keys_of_traces(tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        assert "rank 0 of 2" in stage.lines[0]
        assert "GPU compute" in stage.text
        timeline = stage.app.screen.tab  # type: ignore[attr-defined]
        whole, start = timeline.at.span, timeline.at.cursor
        await press(stage, "right", "in", "in", "less")
        assert timeline.at.span == whole / 2
        assert timeline.at.cursor > start
        await press(stage, "gap")
        assert "no visible GPU gap" in stage.text
        await press(stage, "view-2", "take")
        assert "[1 Timeline]" in stage.text
        await press(stage, "view-3", "view-4", "view-5", "view-6")
        assert "main thread, Python" in stage.text
        assert "train.py(3): step" in stage.text
        await press(stage, "turn")
        await stage.until(lambda: "rank 1 of 2" in stage.lines[0], "the other rank")
        await press(stage, "view-8")
        assert "rank 1, rank1.json.gz" in stage.text
        await press(stage, "view-7", "view-9", "view-10")
        assert "[0 Report]" in stage.text
        await press(stage, "view-1")
        assert "[1 Timeline]" in stage.text

    shows(traces(tmp_path), scene)


TERM_NAMES = sorted((term.name for group in TERMS.values() for term in group), key=len, reverse=True)


async def explained(stage: Stage) -> dict[str, list[str]]:
    """The terms that F1 explains on each tab of the result that is open."""
    screen, found = stage.app.screen, {}
    assert isinstance(screen, ResultScreen)
    assert screen.content is not None
    for place, tab in enumerate(screen.content.tabs):
        screen.open_view(place)
        await stage.press("f1")
        assert "help: under the cursor" in stage.lines[0], tab.id
        defined = (line[2:] for line in stage.lines[1:-1] if line[2:3].strip())
        found[tab.id] = [next((name for name in TERM_NAMES if line.startswith(f"{name} ")), line) for line in defined]
        await stage.press("escape")
    return found


def test_f1_explains_the_open_tab_of_a_profile(profile: StoredProfile) -> None:
    async def scene(stage: Stage) -> None:
        terms = await explained(stage)
        assert terms["flame"][:3] == ["flame graph", "own code", "waits"]
        assert {"SELF%", "TOTAL%", "FUNCTION", "SAMPLES"} <= set(terms["functions"])
        assert terms["threads"][:3] == ["THREAD", "WAITS%", "TOP FRAME"]
        assert terms["phases"][:2] == ["data", "forward"]
        assert "speedscope" in terms["files"]
        assert "dataloader-bound" in terms["report"], "what its page says"
        assert "SELF%" not in terms["flame"]

    shows(profile, scene, (160, 60))


def test_f1_explains_the_open_tab_of_a_trace(tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        terms = await explained(stage)
        assert {"data", "backward", "GPU compute", "gap"} <= set(terms["timeline"])
        assert {"STEP", "TO MEDIAN", "GPU BUSY", "forward"} <= set(terms["steps"])
        assert {"MS/STEP", "SHARE", "OPERATOR"} <= set(terms["operators"])
        assert {"KERNEL", "EACH", "idle, next kernel not launched"} <= set(terms["kernels"])
        assert terms["memory"][:2] == ["in tensors", "reserved"]
        assert "collective" in terms["ranks"]
        await stage.press("f1")
        await stage.press("tab")
        assert "help: keys" in stage.lines[0], "the pages of the help follow"

    shows(traces(tmp_path), scene, (160, 60))


def test_what_cannot_be_read_says_why(tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        screen = ResultScreen(stage.app.session, StoredProfile(str(tmp_path), "gone", {}))
        stage.app.push_screen(screen)
        await stage.until(lambda: "no longer exists" in stage.text or "No such" in stage.text, "the reason")
        await stage.press("escape")
        assert stage.app.screen is stage.app.main

    play(scene, frame())


def test_stacks_are_taken_again() -> None:
    with program("print(flush=True)\ntime.sleep(60)") as (pid, _):
        process = row(pid)
        seen = moment(process)
        result = finished(STACK, hold(process, seen), Asked())
        assert isinstance(result, StackResult)

        async def scene(stage: Stage) -> None:
            screen = ResultScreen(stage.app.session, result)
            assert isinstance(screen, ResultScreen)
            stage.app.push_screen(screen)
            await stage.until(lambda: "main thread waits in <module>" in stage.text, "the stacks")
            await press(stage, "again")
            await stage.until(lambda: screen.result is not result, "new ones")

        play(scene, seen)


def test_every_key_of_a_result_is_pressed_above() -> None:
    calls = [node for node in ast.walk(ast.parse(Path(__file__).read_text())) if isinstance(node, ast.Call)]
    pressed = {
        f"result-{argument.value}"
        for call in calls
        if isinstance(call.func, ast.Name) and call.func.id == "press"
        for argument in call.args
        if isinstance(argument, ast.Constant)
    }
    assert {key.id for key in COMMANDS if key.group == "RESULT"} == pressed
