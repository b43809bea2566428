"""The profile dialog and what comes of it, on the screen: options, sizes, clicks, questions, several at once."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from gputop import agent_client as agent
from gputop.actions import Scope
from gputop.actions.handles import led
from gputop.actions.torch_trace import TraceOrder
from gputop.actions.torch_trace.trace import meant
from gputop.model import Job, Process, Role
from gputop.safe.ptrace_access import Barred
from gputop.ui.commands.profiling import ask_profile
from gputop.ui.dialogs.questions import Confirm
from gputop.ui.main.screen import MainScreen
from gputop.ui.profiling.dialog import CANCEL, ProfileDialog, Stop
from gputop.ui.targets import CommandTarget
from tests.headless_screens import Stage, play
from tests.process_watch import running
from tests.real_processes import hold, job, moment, row
from tests.scripted_jobs import frame as scripted
from tests.signal_dialogs import named, sleeping, trainer
from tests.traced_jobs import scratch

# a process with an agent in it that says what one says in a job with CUDA graphs
CAUTIOUS = """
import json, os, socket, sys
ticks = open("/proc/self/stat").read().rpartition(")")[2].split()[19]
path = f"{sys.argv[1]}/agent-{os.getpid()}-{ticks}.sock"
server = socket.socket(socket.AF_UNIX)
server.bind(path)
server.listen()
print(flush=True)
def say(to, **what): to.sendall(json.dumps(what).encode() + b"\\n")
while True:
    client, _ = server.accept()
    say(client, hello="gputop-agent", v=1, pid=os.getpid())
    asked = json.loads(client.makefile().readline() or "{}")
    if asked.get("op") == "capture":
        say(client, error="no-step" if asked["graphs"] else "cuda-graphs", detail="no step within 30 s")
"""
PICTURES = "import time\ndef look(): time.sleep(60)\nprint(flush=True)\nlook()"


def test_what_may_harm_the_job_is_asked_and_the_cursor_is_on_cancel(monkeypatch: pytest.MonkeyPatch) -> None:
    with scratch() as folder:
        monkeypatch.setenv("GPUTOP_RUNTIME_DIR", folder)
        monkeypatch.setenv("XDG_STATE_HOME", f"{folder}/state")
        with running(sys.executable, "-S", "-c", CAUTIOUS, folder) as child:
            assert child.stdout is not None
            child.stdout.readline()

            async def scene(stage: Stage) -> None:
                for keys, answer in ((["enter"], "cancel"), (["right", "enter"], "on")):
                    await stage.press("t", "enter")
                    await stage.until(lambda: "may use CUDA graphs" in stage.text, "the question")
                    await stage.press(*keys[:-1])
                    over = stage.app.screen
                    assert isinstance(over, Confirm)
                    assert over.items[over.at][0] == answer
                    await stage.press(keys[-1])
                    assert isinstance(stage.app.screen, MainScreen)
                await stage.until(lambda: "no step within 30 s: stuck or evaluating?" in stage.text, "the end")
                await stage.press("g")  # any key takes it away, and does what it does
                assert "stuck or evaluating?" not in stage.text
                assert "GPUs: card" in stage.text

            play(scene, moment(trainer(child.pid, uid=os.geteuid()), launcher=None))


def test_p08_who_does_not_answer_holds_up_neither_the_screen_nor_the_other_tools(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    answers, asked = threading.Event(), []

    def environment(pid: int) -> dict[str, str]:
        """As the kernel does it while the process waits for a file server, with its memory locked."""
        asked.append(pid)
        answers.wait(60)
        return {}

    monkeypatch.setattr(agent, "environment", environment)
    with running(sys.executable, "-S", "-c", PICTURES) as child:
        assert child.stdout is not None
        child.stdout.readline()

        async def scene(stage: Stage) -> None:
            for _ in range(2):
                began_s = time.monotonic()
                await stage.press("t", "enter")
                assert time.monotonic() - began_s < 10
                assert re.search(r"\(•\) torch.profiler .* asking\b", stage.text)
                assert "no answer yet" in stage.text
                assert len(re.findall(r" ready\b", stage.text)) == 2
                await stage.press("escape")
            assert asked == [child.pid], "not again while it is asked"
            answers.set()
            await stage.press("t")
            await stage.until(lambda: "asking" not in stage.text, "the answer")
            assert "cannot be traced from outside" in stage.text

        play(scene, moment(trainer(child.pid), launcher=None))


def test_several_at_once_are_counted_and_the_end_of_one_waits_for_a_free_screen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with running(sys.executable, "-S", "-c", PICTURES) as child:
        assert child.stdout is not None
        child.stdout.readline()

        async def scene(stage: Stage) -> None:
            for _ in range(2):
                await stage.press("p", "enter")
            await stage.until(lambda: "and 1 more" in stage.lines[-2], "two at once")
            await stage.press("f1")
            first, second = stage.app.jobs.under_way
            await stage.until(
                lambda: all(re.match(r"[1-9].* of 10 s", one.run.line) for one in (first, second)), "samples"
            )
            first.run.cancel(keep=False)
            second.run.cancel(keep=True)
            await stage.until(lambda: not stage.app.jobs.under_way, "their end")
            await stage.press("escape")
            assert f"py-spy record {child.pid} is ready: Enter opens it" in stage.lines[-2]
            await stage.press("enter")
            await stage.until(lambda: "look (" in stage.text, "the result on its screen")

        play(scene, moment(trainer(child.pid), launcher=None))
    assert len(list(tmp_path.glob("gputop/profiles/*"))) == 1, "the other was dropped"


def test_the_ranks_of_a_job_and_a_launcher_mean_all_of_them() -> None:
    with job() as frame:

        async def scene(stage: Stage) -> None:
            await stage.press("home", "s")
            await stage.until(lambda: "rank 1" in stage.text, "both ranks")
            await stage.press("escape", "home", "t")
            first = next(process for process in frame.processes if process.role is Role.TRAINER)
            assert f"of    {first.pid}  " in stage.text
            await stage.press("s")
            assert "[x] all 2 ranks" in stage.text
            await stage.press("shift+tab", "space")
            assert "[x] its 2 workers" in stage.text
            assert "[ ] all 2 ranks" in stage.text, "one or the other"

        play(scene, named(frame))


def test_a_launcher_stands_for_its_ranks_and_can_be_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with job() as frame:
        launcher = next(process for process in frame.processes if process.role is Role.LAUNCHER)
        first, second = (process for process in frame.processes if process.role is Role.TRAINER)

        async def scene(stage: Stage) -> None:
            main = stage.app.main
            ask_profile(main, CommandTarget(frame, launcher), "profile")  # as the screen of its details does
            await stage.until(lambda: f"of    {first.pid}  " in stage.text, "the first rank")
            assert f"the first rank that {launcher.pid} " in stage.text
            assert "[ ] all 2 ranks" in stage.text
            assert f"[ ] only {launcher.pid}, the launcher" in stage.text
            question = stage.app.screen.question  # type: ignore[attr-defined]
            for box, pids in (
                (None, [first.pid]),
                ("ranks", [first.pid, second.pid]),
                ("leader", [launcher.pid]),
                ("leader", [first.pid]),
            ):
                if box:
                    question.take(Stop("box", box))
                assert [each.pid for each in question.each] == pids
                assert question.picked(Stop("box", "children")), "of each"
            await stage.press("escape")
            ask_profile(main, CommandTarget(frame, second), "profile")
            await stage.until(lambda: f"of    {second.pid}  " in stage.text, "a rank is itself")
            assert "the launcher" not in stage.text

        play(scene, named(frame))


def test_what_leads_ranks() -> None:
    shell = Process(pid=5, started_ticks=1, parent_pid=1, name="bash")
    uv = Process(pid=6, started_ticks=1, parent_pid=5, name="uv")
    torchrun = Process(pid=7, started_ticks=1, parent_pid=6, name="torchrun", role=Role.LAUNCHER, job="j")
    wrapper = Process(pid=8, started_ticks=1, parent_pid=7, name="sh", role=Role.OTHER, job="j")
    ranks = [
        Process(pid=9, started_ticks=1, parent_pid=8, role=Role.TRAINER, job="j", rank=0),
        Process(pid=10, started_ticks=1, parent_pid=7, role=Role.TRAINER, job="j", rank=1),
    ]
    helper = Process(pid=11, started_ticks=1, parent_pid=9, name="python", role=Role.OTHER, job="j", rank=0)
    members = [torchrun, wrapper, *ranks, helper]
    one = Job(key="j", name="j", ranks=tuple(r.identity for r in ranks), members=tuple(m.identity for m in members))
    frame = scripted((one, members), loose=(shell, uv))
    leads = {each.pid: [rank.pid for rank in led(frame, each)] for each in frame.processes}
    assert leads == {5: [9, 10], 6: [9, 10], 7: [9, 10], 8: [9], 9: [], 10: [], 11: []}
    other = Process(pid=12, started_ticks=1, parent_pid=5, role=Role.TRAINER, job="k")
    second = Job(key="k", name="k", ranks=(other.identity,), members=(other.identity,))
    assert led(scripted((one, members), (second, [other]), loose=(shell, uv)), shell) == (), "of two jobs"


def test_who_is_tagged_is_looked_into_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with job() as frame:
        first, second = (process.pid for process in frame.processes if process.role is Role.TRAINER)

        async def scene(stage: Stage) -> None:
            await stage.press("home", "c")  # all of the job is tagged: its ranks are meant
            await stage.press("s")
            await stage.until(lambda: "rank 1" in stage.text, "both ranks")
            await stage.press("R")
            await stage.until(lambda: "sampling again" not in stage.text, "both again")
            assert "2 processes" in stage.text
            await stage.press("escape", "end", "t")
            assert f"of    {first}  " in stage.text, "not who is under the cursor"
            for tool in ("s", "p"):
                await stage.press(tool)
                assert "[x] the 2 tagged" in stage.text
            assert "[x] all 2 ranks" not in stage.text
            await stage.press("enter")
            assert [errand.pid for errand in stage.app.jobs.under_way] == [first, second]
            stage.app.jobs.leave()
            await stage.until(lambda: not stage.app.jobs.under_way, "their end")

        play(scene, named(frame))
        _, _, loader, _, other, *_ = frame.processes
        held = hold(loader, frame, tagged=(loader, other))
        assert meant(held, TraceOrder(scope=Scope.TAGGED)) == (other,), "who trains"
        held.close()


@pytest.mark.parametrize("size", [(1, 1), (10, 20), (20, 3), (40, 12), (80, 24), (300, 90)])
def test_any_size_and_a_click(size: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with sleeping() as child:

        async def scene(stage: Stage) -> None:
            await stage.press("p")
            await stage.pilot.resize_terminal(*size)
            for key in ("up", "tab", "down", "right") * 3:
                await stage.press(key)
            if size[0] >= 40 and size[1] >= 12:
                assert "(•) py-spy record" in stage.text
                y = next(y for y, line in enumerate(stage.lines) if "Cancel" in line)
                await stage.pilot.click(offset=(stage.lines[y].index("Cancel") + 1, y))
                assert isinstance(stage.app.screen, MainScreen)

        play(scene, moment(trainer(child.pid), launcher=None))


def test_the_cursor_goes_to_cancel_where_its_option_goes_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with sleeping() as child:

        async def scene(stage: Stage) -> None:
            await stage.press("p", "tab", "tab")
            over = stage.app.screen
            assert isinstance(over, ProfileDialog)
            assert over.cursor == Stop("seconds", 10)
            over.answer("profile", Barred("it sleeps"))
            await stage.pilot.pause()
            assert over.cursor == CANCEL
            assert "Space, Enter cancel" in stage.text
            over.answer("profile", None)
            await stage.press("right", "enter")
            assert len(stage.app.jobs.under_way) + (stage.app.jobs.news is not None) == 1, "Start is beside it"
            stage.app.jobs.leave()
            await stage.until(lambda: not stage.app.jobs.under_way, "its end")

        play(scene, moment(trainer(child.pid), launcher=None))


def test_the_options_say_what_they_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    threads = "import threading, time\nfor _ in range(60): threading.Thread(target=time.sleep, args=(60,)).start()\n"
    with running(sys.executable, "-S", "-c", f"{threads}print(flush=True)", stdin=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()

        async def scene(stage: Stage) -> None:
            await stage.press("p")
            assert "rate  32 samples/s, not 100: it has 61 threads" in stage.text
            await stage.press("tab", "tab", "down", "right", "space")
            assert "[x] GIL only" in stage.text
            assert "idle threads are not sampled then" in stage.text
            await stage.press("right", "space")
            assert "[x] native" in stage.text
            assert "pauses the process for each sample" in stage.text
            assert "each sample pauses it" in stage.text

        play(scene, moment(row(child.pid, role=Role.TRAINER), launcher=None))
