"""What leaves the screen: the clipboard, a plain screen, files; nothing that was not shown, no secret, not too long."""

from __future__ import annotations

import json
import re
import stat
import sys
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

import pytest

from gputop.diagnose import Subject
from gputop.history import History
from gputop.model import Frame, Process
from gputop.safe.text import clean
from gputop.source import OTHERS_ENVIRONMENT, UNRECORDED
from gputop.ui.details.export import numbers
from gputop.ui.details.process_view import ProcessView
from gputop.ui.dialogs.saving import save
from gputop.ui.theme import ASCII, LIGHT, PLAIN, TERMINAL, UNICODE, Look
from tests.advice_scenes import found
from tests.headless_screens import Stage, play
from tests.hostile import STRINGS
from tests.oracle import MODE, copied, oracle
from tests.process_details import asked, full
from tests.scripted_jobs import frame, process, training
from tests.terminal_endings import Program

ARGV = (sys.executable, "-m", "gputop")
SECRET = "hf_" + "x" * 30
REVEALED = "secret of HF_TOKEN"  # as its details tell it to who asks
LLAMA = training("llama", 41000, ranks=2, loaders=8)


def alone(*command: str) -> Frame:
    """A server with one process on a GPU."""
    share = LLAMA[1][1].gpus
    return frame(loose=(process(4242, command=command, gpus=share),))


def test_a_job_offers_its_pids_and_a_folded_line_those_it_speaks_for() -> None:
    async def scene(stage: Stage) -> None:
        await stage.press("home", "y")
        assert stage.app.clipboard.split() == [str(member.pid) for member in LLAMA[1]]
        await stage.press("down", "down", "down", "down", "y")
        assert stage.app.clipboard == "41103 41104 41105 41106 41107 41108"

    play(scene, frame(LLAMA))


def test_another_line_begins_with_its_pid() -> None:
    async def scene(stage: Stage) -> None:
        await stage.press("y", "down", "y")
        assert stage.app.clipboard == "41101"

    play(scene, frame(LLAMA))


def test_nothing_to_copy_is_said() -> None:
    async def scene(stage: Stage) -> None:
        await stage.press("y")
        assert "nothing to copy here" in stage.lines[-1]
        await stage.press("escape", "Y")
        assert "nothing to copy here" in stage.lines[-1]

    play(scene, frame())


def test_a_secret_is_not_copied_and_what_is_too_long_is_shown_instead() -> None:
    async def scene(stage: Stage) -> None:
        await stage.press("y", "y")
        assert stage.app.clipboard == "4242"
        assert "too long to copy" in stage.lines[-1]
        await stage.press("Y")
        shown = stage.text.replace("\n", "")
        assert "a-b" * 800 in shown
        assert SECRET not in shown
        await stage.press("escape")
        await stage.show(alone("python", "my file.py", f"--token={SECRET}"))
        await stage.press("y", "y")
        assert stage.app.clipboard == "python 'my file.py' '--token=***'"

    play(scene, alone("python", "--token", SECRET, "a-b" * 800), size=(120, 60))


def test_hostile_command_lines_are_copied_as_harmless_text() -> None:
    async def scene(stage: Stage) -> None:
        for text in texts:
            await stage.show(alone("python", text))
            await stage.press("y", "y")
            assert stage.app.clipboard.isprintable()
        await stage.press("Y", "escape")

    texts = [text for text in map(clean, STRINGS) if text.strip()]
    play(scene, alone("python"))


def test_p02_the_clipboard_gets_one_sequence_and_the_mouse_comes_and_goes(tmp_path: Path) -> None:
    with Program((*ARGV, "demo", "healthy"), "Quit", env={"XDG_STATE_HOME": str(tmp_path)}).start() as terminal:
        terminal.wait_for("COMMAND")
        terminal.send("y")
        terminal.wait_for("y again: command line")
        terminal.send("y")
        terminal.wait_for(lambda lines: "copied" in lines[-1] and "again" not in lines[-1])
        pid, command = copied(bytes(terminal.output))
        assert pid.isdecimal()
        assert "train" in command
        before = len(terminal.output)
        terminal.send("Y")
        terminal.wait_for("select with the mouse")
        assert terminal.screen()[:3] == [pid, "", command]
        terminal.send("escape")
        terminal.wait_for("COMMAND")
        switched = [
            match[0] for match in MODE.finditer(bytes(terminal.output[before:])) if match[1] in (b"1000", b"1006")
        ]
        assert switched == [b"\x1b[?1000l", b"\x1b[?1006l", b"\x1b[?1000h", b"\x1b[?1006h"]
        terminal.send("q")
        assert terminal.wait_exit() == 0
        assert oracle(bytes(terminal.output), clipboard=True) == []
        assert len(oracle(bytes(terminal.output))) == 4, "without leave each is a violation at its beginning and end"


def saved(state: Path) -> list[Path]:
    return sorted((state / "gputop").glob("screen-*"))


async def into_files(stage: Stage, state: Path, kinds: str) -> None:
    """Save what is on the screen, once as each, while the bar still says where the one before it is."""
    for count, kind in enumerate(kinds, 1):
        await stage.press("S", kind)
        # a file has its name before its content
        await stage.until(partial(lambda count: sum(bool(path.read_text()) for path in saved(state)) == count, count))
        await stage.until(lambda: "saved in" in stage.lines[-1], "saving")


@pytest.mark.parametrize("look", [Look(), Look(LIGHT, UNICODE), Look(TERMINAL, UNICODE), Look(PLAIN, ASCII)])
def test_the_screen_is_saved_as_it_is_without_secrets(
    look: Look, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    shown = frame(LLAMA, loose=(process(9, cpu_percent=500.0, command=("sh", "--token", SECRET, "[b]<&>")),), gpus=8)

    async def scene(stage: Stage) -> None:
        await stage.press("end")
        assert SECRET[:20] in stage.text
        await into_files(stage, tmp_path, "stj")
        await stage.press("escape")
        seen = stage.lines
        files = {path.suffix: path for path in saved(tmp_path)}
        assert {stat.S_IMODE(path.stat().st_mode) for path in files.values()} == {0o600}
        assert all(SECRET[:8] not in path.read_text() for path in files.values())
        text = files[".txt"].read_text().splitlines()
        assert "F1 Help" in text[-1], "not where the file before it is"
        assert text[:-1] == [line.replace(f"--token {SECRET} [b]", "--token *** [b]") for line in seen[:-1]]
        picture = files[".svg"].read_text()
        drawn = "".join(ElementTree.fromstring(picture).itertext()).replace("\xa0", " ")
        assert "--token *** [b]<&>" in drawn
        assert "llama" in drawn
        assert not re.search(r"https?://(?!www\.w3\.org|www\.textualize\.io)", picture), "nobody is asked for letters"
        assert json.loads(files[".json"].read_text())["frame"]["hostname"] == shown.hostname

    play(scene, shown, size=(159, 40), look=look)


def test_no_pane_of_a_large_screen_takes_a_secret_into_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    command = ("sh", "--token", "a pass phrase", "-v")

    async def scene(stage: Stage) -> None:
        await stage.press("end")
        assert stage.text.count("sh --token a pass phrase -v") == 2, "on its line, and below as selected"
        await into_files(stage, tmp_path, "ts")
        text = next(path.read_text() for path in saved(tmp_path) if path.suffix == ".txt")
        assert text.count("sh --token *** -v") == 2
        await stage.press("escape", "backslash", *SECRET, "enter")
        assert SECRET in stage.text, "what was typed"
        await stage.press("S", "t")
        await stage.until(lambda: sum(bool(path.read_text()) for path in saved(tmp_path)) == 3)
        texts = [path.read_text() for path in saved(tmp_path)]
        assert not [text for text in texts if "phrase" in text or SECRET in text]

    play(scene, frame(LLAMA, loose=(process(9, cpu_percent=500.0, command=command),), gpus=8), size=(200, 60))


def test_no_two_files_have_one_name_and_none_can_be_guessed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for _ in range(20):
        save("txt", "x")
    assert len(saved(tmp_path)) == 20
    assert len({path.stem.split("-")[-1] for path in saved(tmp_path)}) == 20


@pytest.mark.parametrize("tab", ["1", "4"])
def test_the_details_are_saved_without_the_secrets_that_are_shown(
    tab: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    mine = process(9, cpu_percent=500.0, command=("python", "train.py", "--token", SECRET))
    shown = frame(LLAMA, loose=(mine,), gpus=8)

    async def scene(stage: Stage) -> None:
        stage.feed.details[mine.identity] = asked(full(mine, shown))
        await stage.press("end", "enter", tab, "home", "enter")
        seen = stage.lines
        assert any(SECRET in line for line in seen)
        assert (REVEALED in stage.text) == (tab == "4")
        await into_files(stage, tmp_path, "stj")
        files = {path.suffix: path.read_text() for path in saved(tmp_path)}
        assert not any(SECRET[:8] in text or REVEALED in text for text in files.values())
        text = files[".txt"].splitlines()
        hidden = ("***", "••••", "2 masked")
        assert [line for line in text[:-1] if line not in seen and not any(each in line for each in hidden)] == []
        assert "python train.py --token ***" in files[".txt"]
        told = json.loads(files[".json"])
        assert told["process"]["command"] == ["python", "train.py", "--token", "***"]
        assert ("threads" in told["detail"]) == (tab == "1")
        assert "environment" not in told["detail"], "it is never exported"

    play(scene, shown)


def test_the_last_line_of_a_saved_screen_names_keys_and_not_the_file_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    mine = process(9, cpu_percent=500.0)
    shown = frame(LLAMA, loose=(mine,), gpus=8)

    async def scene(stage: Stage) -> None:
        stage.feed.details[mine.identity] = full(mine, shown, environment=None, missing=(OTHERS_ENVIRONMENT,))
        await stage.press("end", "enter", "4")
        await into_files(stage, tmp_path, "tt")
        for path in saved(tmp_path):
            text = path.read_text()
            assert "the last line names the key that shows it" in text
            assert "O Show it" in text.splitlines()[-1]

    play(scene, shown)


def test_the_numbers_of_a_process_have_what_its_head_says_of_it_of_its_job_or_of_its_gpus() -> None:
    shown = frame(LLAMA, gpus=8)
    rank = next(one for one in shown.processes if one.gpus)
    loader = next(one for one in shown.processes if one.parent_pid == rank.pid)
    subjects = {
        "its own": Subject(kind="process", processes=(rank.identity,)),
        "its job's": Subject(kind="job", job=rank.job),
        "its GPU's": Subject(kind="gpu", gpus=(rank.gpus[0].uuid,)),
        "another's": Subject(kind="gpu", gpus=("GPU-other",)),
    }
    findings = tuple(found(rule=rule, subject=subject) for rule, subject in subjects.items())

    def rules(process: Process) -> list[str]:
        opened = ProcessView(
            process=process, frame=shown, found=UNRECORDED, past=History(), look=Look(), findings=findings
        )
        return [one["rule"] for one in numbers(opened)["findings"]]

    assert rules(rank) == ["its own", "its job's", "its GPU's"]
    assert rules(loader) == ["its job's"]


def test_f02_a_file_that_cannot_be_saved_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    (tmp_path / "gputop").symlink_to("/tmp")

    async def scene(stage: Stage) -> None:
        await stage.press("S", "t")
        await stage.until(lambda: "not saved: " in stage.lines[-1], "the refusal")

    play(scene, frame(LLAMA))


def test_read_only_saves_no_screen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    async def scene(stage: Stage) -> None:
        await stage.press("S")
        assert "not now: gputop is read-only" in stage.lines[-1]
        await stage.press("ctrl+p", *"save")
        assert "not now: gputop is read-only" in stage.text

        await stage.press("escape", "escape", "enter", "S")
        assert "not now: gputop is read-only" in stage.lines[-1]
        assert "[1 Threads]" in stage.text

    play(scene, frame(LLAMA), readonly=True)
    assert list(tmp_path.iterdir()) == []
