"""Private folders and exclusive files against links, pipes, squatters and other users; real files, real other uids."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gputop.safe.files import SETTINGS_LIMIT, Folder, Refused, read_settings, runtime_folder, state_folder

ROOT = Path(__file__).parents[2]
OTHER_UID = 12345

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="not covered: needs root to act as another user")


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that other uids may enter, unlike pytest's own."""
    with tempfile.TemporaryDirectory(prefix="gputop-test-") as name:
        os.chmod(name, 0o755)
        yield Path(name)


@pytest.fixture
def folder(place: Path) -> Iterator[Folder]:
    folder = state_folder({"XDG_STATE_HOME": str(place)})
    yield folder
    folder.close()


def mode(path: str | Path) -> int:
    return stat.S_IMODE(os.lstat(path).st_mode)


def write(folder: Folder, name: str, data: bytes) -> None:
    with open(folder.create(name), "wb") as file:
        file.write(data)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_state_folder_and_file_are_private_whatever_the_umask(place: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        folder = state_folder({"HOME": str(place)})
        write(folder, "a", b"x")
    finally:
        os.umask(before)
    assert folder.path == f"{place}/.local/state/gputop"
    assert (mode(folder.path), mode(f"{folder.path}/a")) == (0o700, 0o600)
    folder.close()


def test_a_second_start_uses_the_same_folder(place: Path) -> None:
    for _ in range(2):
        folder = state_folder({"XDG_STATE_HOME": str(place)})
        assert folder.path == f"{place}/gputop"
        folder.close()


@pytest.mark.parametrize("environ", [{}, {"HOME": ""}, {"HOME": "relative"}, {"XDG_STATE_HOME": "relative"}])
def test_p23_without_home_nothing_is_saved_and_it_says_so(environ: dict[str, str]) -> None:
    with pytest.raises(Refused, match="HOME is not set"):
        state_folder(environ)


def test_p23_a_home_that_is_no_folder(place: Path) -> None:
    (place / "file").touch()
    for home in (f"{place}/file", "/proc/1", "/dev/null"):
        with pytest.raises(Refused, match=r"nothing is saved|is a link or no folder"):
            state_folder({"HOME": home}, system=f"{place}/file")


AS_OTHER = """
import os, sys
from gputop.safe.files import *
os.setgroups([]); os.setresgid({uid}, {uid}, {uid}); os.setresuid({uid}, {uid}, {uid})
try:
    print(eval(sys.argv[1]))
except Refused as refused:
    print("Refused:", refused)
"""


def as_other(expression: str) -> str:
    """What an expression over safe.files gives to another, real user."""
    code = AS_OTHER.format(uid=OTHER_UID)
    run = subprocess.run([sys.executable, "-c", code, expression], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return run.stdout


@needs_root
def test_p23_unwritable_home_is_refused_with_the_reason(place: Path) -> None:
    assert "Permission denied" in as_other(f"state_folder({{'HOME': {str(place)!r}}})")


@needs_root
def test_a_home_of_their_own_works_for_another_user(place: Path) -> None:
    os.chown(place, OTHER_UID, OTHER_UID)
    assert as_other(f"state_folder({{'HOME': {str(place)!r}}}).path").strip() == f"{place}/.local/state/gputop"


@needs_root
def test_a20_sudo_e_does_not_write_into_the_users_home(place: Path) -> None:
    home, system = place / "home", place / "system"
    home.mkdir()
    os.chown(home, OTHER_UID, OTHER_UID)
    for environ in ({"HOME": str(home)}, {"XDG_STATE_HOME": f"{home}/x/y", "HOME": "/root"}):
        folder = state_folder(environ, system=str(system))
        assert folder.path == f"{system}/gputop"
        folder.close()
    assert list(home.iterdir()) == []


def test_a11_a_link_in_place_of_the_folder_is_refused(place: Path) -> None:
    (place / "elsewhere").mkdir(mode=0o700)
    (place / "gputop").symlink_to("elsewhere")
    with pytest.raises(Refused, match="is a link"):
        state_folder({"XDG_STATE_HOME": str(place)})
    (place / "gputop").unlink()
    (place / "gputop").touch()
    with pytest.raises(Refused, match="is a link or not a folder"):
        state_folder({"XDG_STATE_HOME": str(place)})


@pytest.mark.parametrize("wrong", [0o777, 0o755, 0o770, 0o500])
def test_a11_a_folder_of_another_mode_is_refused(place: Path, wrong: int) -> None:
    (place / "gputop").mkdir()
    (place / "gputop").chmod(wrong)
    with pytest.raises(Refused, match=f"mode {wrong:04o}, not 0700"):
        state_folder({"XDG_STATE_HOME": str(place)})
    assert mode(place / "gputop") == wrong


def test_a_parent_that_everyone_may_write_is_refused_unless_sticky(place: Path) -> None:
    place.chmod(0o777)
    with pytest.raises(Refused, match="is world-writable"):
        state_folder({"XDG_STATE_HOME": str(place)})
    place.chmod(0o1777)
    runtime_folder({}, shared=str(place)).close()


def test_runtime_folder_is_the_sessions_own(place: Path) -> None:
    folder = runtime_folder({"XDG_RUNTIME_DIR": str(place)})
    assert folder.path == f"{place}/gputop"
    folder.close()


def test_a_home_that_is_not_there_is_not_made(place: Path) -> None:
    with pytest.raises(Refused, match="HOME does not exist"):
        state_folder({"HOME": str(place / "nobody")})
    assert not (place / "nobody").exists()


@pytest.mark.parametrize("runtime", [None, "nowhere/at/all", "x"])
def test_runtime_folder_in_tmp_bears_the_uid(place: Path, runtime: str | None) -> None:
    named = str(place / runtime) if runtime and "/" in runtime else runtime
    folder = runtime_folder({"XDG_RUNTIME_DIR": named} if named else {}, shared=str(place))
    assert folder.path == f"{place}/gputop-{os.geteuid()}"
    assert mode(folder.path) == 0o700
    folder.close()


@needs_root
def test_a20_sudo_e_does_not_use_the_users_runtime_folder(place: Path) -> None:
    theirs = place / "run"
    theirs.mkdir(mode=0o700)
    os.chown(theirs, OTHER_UID, OTHER_UID)
    folder = runtime_folder({"XDG_RUNTIME_DIR": str(theirs)}, shared=str(place))
    assert folder.path == f"{place}/gputop-0"
    folder.close()


@needs_root
@pytest.mark.parametrize("kind", ["folder", "link", "open"])
def test_a11_a_squatted_runtime_folder_is_refused(place: Path, kind: str) -> None:
    squatted = place / f"gputop-{OTHER_UID}"
    if kind == "link":
        squatted.symlink_to(place)
    else:
        squatted.mkdir(mode=0o700 if kind == "folder" else 0o777)
    answer = as_other(f"runtime_folder({{}}, shared={str(place)!r})")
    assert answer.startswith("Refused:")
    # a folder of root that nobody may enter is refused by the kernel already
    assert ("Permission denied" in answer) if kind == "folder" else ("another user" in answer or "is a link" in answer)


def test_f07_create_refuses_whatever_is_there(folder: Folder, place: Path) -> None:
    victim = place / "victim"
    victim.write_text("precious")
    there = Path(folder.path)
    (there / "link").symlink_to(victim)
    (there / "dangling").symlink_to(place / "nothing")
    (there / "file").write_text("old")
    os.mkfifo(there / "pipe")
    for name in ("link", "dangling", "file", "pipe"):
        with pytest.raises(Refused, match="File exists"):
            folder.create(name)
    assert victim.read_text() == "precious"
    assert not (place / "nothing").exists()


def test_a_lock_is_held_by_one_until_it_is_closed(folder: Folder, place: Path) -> None:
    with pytest.raises(FileNotFoundError):
        folder.lock("lock", create=False)
    held = folder.lock("lock")
    assert held is not None
    assert mode(Path(folder.path) / "lock") == 0o600
    assert folder.lock("lock") is None
    os.close(held)
    again = folder.lock("lock", create=False)
    assert again is not None
    os.close(again)
    (Path(folder.path) / "link").symlink_to(place / "victim")
    with pytest.raises(OSError, match="symbolic link"):
        folder.lock("link")
    assert not (place / "victim").exists()


@pytest.mark.parametrize(
    "name", ["../x", "/etc/x", ".hidden", "", "a/b", "a\x00b", "a\x1b[2Jb", "x" * 121, "..", "a\n"]
)
def test_a16_only_plain_names(folder: Folder, name: str) -> None:
    for use in (folder.create, folder.remove):
        with pytest.raises(Refused, match="not a file name that gputop uses") as refused:
            use(name)
        assert str(refused.value).isprintable()


def test_replace_writes_whole_and_keeps_private(folder: Folder) -> None:
    for data in (b"one", b"two" * 100_000, b""):
        folder.replace("settings", data)
        assert Path(folder.path, "settings").read_bytes() == data
        assert folder.sizes() == {"settings": len(data)}
    assert mode(f"{folder.path}/settings") == 0o600


def test_f07_replace_does_not_touch_what_is_not_ours(folder: Folder, place: Path) -> None:
    there = Path(folder.path)
    (place / "victim").write_text("precious")
    (there / "link").symlink_to(place / "victim")
    os.mkfifo(there / "pipe")
    (there / "folder").mkdir()
    names = ["link", "pipe", "folder"]
    if os.geteuid() == 0:
        (there / "theirs").write_text("theirs")
        os.chown(there / "theirs", OTHER_UID, OTHER_UID)
        names.append("theirs")
    for name in names:
        with pytest.raises(Refused, match="was not created by gputop"):
            folder.replace(name, b"new")
    assert (place / "victim").read_text() == "precious"
    assert sorted(os.listdir(there)) == sorted(names)


def test_f02_a_full_disk_leaves_the_old_file_and_no_litter(place: Path) -> None:
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(place)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("not covered: needs the right to mount a tmpfs")
    try:
        folder = state_folder({"XDG_STATE_HOME": str(place)})
        folder.replace("settings", b"old")
        with pytest.raises(Refused, match="No space left"):
            folder.replace("settings", b"x" * 100_000)
        assert folder.sizes() == {"settings": 3}
        folder.close()
    finally:
        subprocess.run(["umount", str(place)], check=True)


def test_the_open_folder_stays_the_same_when_its_path_is_swapped(folder: Folder, place: Path) -> None:
    os.rename(folder.path, place / "moved")
    os.symlink("/etc", folder.path)
    write(folder, "crash", b"x")
    assert (place / "moved/crash").read_bytes() == b"x"


def test_f12_settings_are_read(place: Path) -> None:
    path = place / "config.toml"
    assert read_settings(str(path)) is None
    path.write_bytes(b"\x00\xff" * 10)
    assert read_settings(str(path)) == b"\x00\xff" * 10
    (place / "dotfiles").symlink_to(path)
    assert read_settings(str(place / "dotfiles")) == b"\x00\xff" * 10


def test_f12_settings_too_big_or_no_file_are_refused(place: Path) -> None:
    (place / "big").write_bytes(b"#" * (SETTINGS_LIMIT + 1))
    (place / "open").touch()
    (place / "open").chmod(0o666)
    os.mkfifo(place / "pipe")
    (place / "loop").symlink_to("loop")
    for path in (place / "big", place / "open", place / "pipe", place, place / "loop", "/dev/zero", "/dev/tty"):
        with pytest.raises(Refused):
            read_settings(str(path))


@needs_root
def test_f12_settings_of_another_user_are_refused_for_root(place: Path) -> None:
    (path := place / "config.toml").touch()
    os.chown(path, OTHER_UID, OTHER_UID)
    with pytest.raises(Refused, match="belongs to another user"):
        read_settings(str(path))
    assert as_other(f"read_settings({str(path)!r})").strip() == "b''"


def test_a_reason_is_one_harmless_line(place: Path) -> None:
    with pytest.raises(Refused) as refused:
        state_folder({"HOME": f"{place}/\x1b[2J\nnew line" + "x" * 300})
    assert str(refused.value).isprintable()
