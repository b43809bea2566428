"""The one door to other programs: planted ones are not run, and nothing but the door runs any."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gputop.actions.pyspy import runner
from gputop.safe import programs
from gputop.safe.programs import NotFound, NotRun, find, why_distrusted
from gputop.safe.ptrace_access import Barred
from tests.process_watch import root_only
from tests.test_layers import FILES, dotted, imports, nodes

DOOR = "safe.programs"
_RUNS = ("exec", "spawn", "posix_spawn", "system", "popen", "startfile")
STRANGER = 12345


def planted(folder: Path, name: str, says: str = "planted") -> Path:
    """A program that leaves a mark where it ran."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    path = folder / name
    path.write_text(f"#!/bin/sh\necho {says}; touch {folder}/ran\n")
    path.chmod(0o755)
    return path


def theirs(path: Path) -> None:
    os.chown(path, STRANGER, STRANGER)


PLANTS: dict[str, tuple[Callable[[Path], None], str]] = {
    "the file is another user's": (theirs, "it belongs to uid 12345"),
    "its folder is another user's": (lambda path: theirs(path.parent), "/bin belongs to uid 12345"),
    "the folder above is another user's": (lambda path: theirs(path.parent.parent), "/up belongs to uid 12345"),
    "everybody may write it": (lambda path: path.chmod(0o757), "it is world-writable"),
    "everybody may write its folder": (lambda path: path.parent.chmod(0o757), "/bin is world-writable"),
    "its folder is as /tmp": (lambda path: path.parent.chmod(0o1777), "/bin is world-writable"),
    "a group may write it": (lambda path: path.chmod(0o775), "it can be written by group root"),
    "a group may write its folder": (lambda path: path.parent.chmod(0o775), "/bin can be written by group root"),
}


@root_only
@pytest.mark.parametrize("plant", PLANTS)
def test_a_planted_program_is_not_run(tmp_path: Path, plant: str) -> None:
    path = planted(tmp_path / "up/bin", "tmux")
    assert why_distrusted(str(path)) is None
    make, says = PLANTS[plant]
    make(path)
    why = why_distrusted(str(path))
    assert why is not None
    assert why.startswith(f"{path} is not run: ")
    assert says in why
    with pytest.raises(NotRun, match="is not run"):
        find("tmux", str(path.parent))
    for run in (
        lambda: programs.start([str(path)]),
        lambda: programs.output([str(path)], 5.0, {}),
    ):
        with pytest.raises(NotRun, match="is not run"):
            run()
    stub = runner.start(str(path), os.getpid(), ["dump"], seconds=5.0, to_file=False)
    assert isinstance(stub, Barred)
    assert stub.text == why
    assert not (path.parent / "ran").exists()


@root_only
def test_a_link_that_another_user_may_change_is_not_followed(tmp_path: Path) -> None:
    good = planted(tmp_path / "good", "tmux")
    (tmp_path / "links").mkdir()
    link = tmp_path / "links/tmux"
    link.symlink_to(good)
    assert find("tmux", str(link.parent)) == str(good)
    os.chown(link, STRANGER, STRANGER, follow_symlinks=False)
    assert "belongs to uid 12345" in (why_distrusted(str(link)) or "")


@root_only
def test_a_link_on_the_way_that_leads_through_a_folder_of_another_user_is_not_followed(tmp_path: Path) -> None:
    good = planted(tmp_path / "good", "tmux")
    for name, target in (("theirs", "../good"), ("ours", "../theirs/on")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "on").symlink_to(target)
    path = tmp_path / "ours/on/tmux"
    assert path.samefile(good)
    assert why_distrusted(str(path)) is None
    theirs(tmp_path / "theirs")
    assert f"{tmp_path}/theirs belongs to uid 12345" in (why_distrusted(str(path)) or "")
    (tmp_path / "ours/round").symlink_to("round")
    assert "Too many levels" in (why_distrusted(str(tmp_path / "ours/round")) or "")


def test_a_relative_entry_of_path_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planted(tmp_path / "here", "tmux")
    good = planted(tmp_path / "good", "tmux", "good")
    monkeypatch.chdir(tmp_path / "here")
    for path in (".", "", "../here", "./", f"{os.pathsep}/nowhere"):
        with pytest.raises(NotRun, match="PATH entry is relative"):
            find("tmux", path)
        assert find("tmux", os.pathsep.join((path, str(good.parent)))) == str(good)
    with pytest.raises(NotRun, match="PATH entry is relative"):
        programs.output(["tmux"], 5.0, {})
    assert not (tmp_path / "here/ran").exists()
    with pytest.raises(NotFound, match="tmux is not installed"):
        find("tmux", "/nowhere")


@root_only
def test_a_trusted_one_further_on_is_taken(tmp_path: Path) -> None:
    bad, good = planted(tmp_path / "bad", "tmux"), planted(tmp_path / "good", "tmux", "good")
    theirs(bad)
    path = find("tmux", f"{bad.parent}{os.pathsep}{good.parent}")
    assert programs.output([path], 5.0, {"PATH": programs.PATH}) == (0, b"good\n")


@root_only
def test_a_user_runs_what_root_and_they_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = planted(tmp_path / "bin", "py-spy")
    monkeypatch.setattr(os, "geteuid", lambda: STRANGER)
    assert why_distrusted(str(path)) is None
    theirs(path)
    assert why_distrusted(str(path)) is None
    os.chown(path, STRANGER + 1, STRANGER)
    assert why_distrusted(str(path)) == f"{path} is not run: it belongs to uid {STRANGER + 1}"


@root_only
def test_doctor_and_the_actions_run_no_planted_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spy, tmux = planted(tmp_path / "bin", "py-spy", "py-spy 9.9"), planted(tmp_path / "here", "tmux", "on")
    theirs(spy)
    # a Python without py-spy beside it
    python = tmp_path / "python/bin/python"
    python.parent.mkdir(parents=True)
    python.symlink_to(os.path.realpath(sys.executable))
    environ = {**os.environ, "PATH": f".:{spy.parent}:/nowhere", "TMUX": "/tmp/x,1,0"}
    environ["PYTHONPATH"] = os.pathsep.join([os.getcwd(), *filter(None, sys.path)])
    done = subprocess.run(
        [python, "-m", "gputop", "doctor", "--json"],
        cwd=tmux.parent,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    told = {line["check"]: line["what"] for line in json.loads(done.stdout)["lines"]}
    assert told["py-spy"] == f"{spy} is not run: it belongs to uid 12345; root runs only programs that root owns"
    assert told["clipboard"] == "./tmux was not run: its PATH entry is relative"
    assert not (spy.parent / "ran").exists()
    assert not (tmux.parent / "ran").exists()
    monkeypatch.setenv("PATH", f".:{spy.parent}")
    monkeypatch.setattr(sys, "executable", str(python))
    found = runner.find()
    assert isinstance(found, Barred)
    assert "belongs to uid 12345" in found.text


@root_only
def test_the_interpreter_of_a_process_is_judged_by_its_file(tmp_path: Path) -> None:
    assert why_distrusted(f"/proc/{os.getpid()}/exe") is None
    copy = tmp_path / "sleep"
    shutil.copy("/bin/sleep", copy)
    theirs(copy)
    with subprocess.Popen([copy, "60"]) as sleeping:
        assert "belongs to uid 12345" in (why_distrusted(f"/proc/{sleeping.pid}/exe") or "")
        sleeping.kill()


def test_nothing_but_the_door_runs_programs() -> None:
    assert DOOR in {dotted(path) for path in FILES}
    for path in FILES:
        if dotted(path) == DOOR:
            continue
        used = {
            f"{node.value.id}.{node.attr}"
            for node in nodes(path)
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
        } | set(imports(path))
        bad = {
            name
            for name in used
            if name.split(".")[0] in ("subprocess", "multiprocessing", "pty")
            or name in ("shutil.which", "asyncio.create_subprocess_exec", "asyncio.create_subprocess_shell")
            or (name.startswith("os.") and name[3:].startswith(_RUNS))
        }
        assert not bad, f"{path}: programs are run by gputop/safe/programs.py: {bad}"
