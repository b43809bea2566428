"""The settings file as it is written: one value in it, the rest as it was, by nobody else and to nowhere else."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputop import config, toml
from gputop.config import SETTINGS
from gputop.safe.files import Refused, write_settings
from gputop.ui.dialogs.setup import LADDER_S
from tests.safe.test_files import OTHER_UID, needs_root

FILE = """\
# mine
interval = 2   # seconds
theme = 'dark'

# where the keys are
[keys]
freeze = "x"
"""


@pytest.mark.parametrize(
    ("text", "key", "value", "after"),
    [
        ("", "tree", False, "tree = false\n"),
        (FILE, "interval", 0.5, FILE.replace("= 2 ", "= 0.5 ")),
        (FILE, "theme", "light", FILE.replace("'dark'", '"light"')),
        (FILE, "sort", "gpu-busy", FILE.replace("'dark'\n", "'dark'\nsort = \"gpu-busy\"\n")),
        ("[keys]\nfreeze = 'x'", "tree", True, "tree = true\n[keys]\nfreeze = 'x'"),
        ("tree=true", "tree", False, "tree=false"),
        ("tree = true", "sort", "pid", 'tree = true\nsort = "pid"\n'),
        ("tree = true\r\n", "sort", "pid", 'tree = true\r\nsort = "pid"\r\n'),
        ("# end", "tree", False, "# end\ntree = false\n"),
        ('sort = "#pid" # here', "sort", "cpu", 'sort = "cpu" # here'),
    ],
)
def test_one_value_changes_and_nothing_else(text: str, key: str, value: object, after: str) -> None:
    assert toml.set_value(text.encode(), key, value) == after.encode()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text", ['"tree" = true', "tree = [\n1]", "tree.of = 1", 'a = """\ntree = true\n"""\ntree = ""']
)
def test_f12_what_one_line_cannot_change_is_left_to_a_person(text: str) -> None:
    with pytest.raises(ValueError, match="only a person can change"):
        toml.set_value(text.encode(), "tree", False)


LINES = st.sampled_from(
    ["", "# tree = 1", "interval = 2 # x", "mouse = false", "sort='pid'", "[keys]", "freeze = 'x'", "[[a]]"]
)


@given(st.lists(LINES, max_size=8), st.sampled_from(SETTINGS), st.data())
def test_f12_whatever_was_in_the_file_is_still_there(
    lines: list[str], setting: config.Setting, data: st.DataObject
) -> None:
    raw = "\n".join(lines).encode()
    try:
        before = toml.parse(raw)
    except ValueError:
        return
    value = data.draw(
        st.sampled_from(LADDER_S if isinstance(setting.default, float) else setting.choices or (True, False))
    )
    after = toml.set_value(raw, setting.key, value)
    assert toml.parse(after) == {**before, setting.key: value}
    comments = re.compile(rb"#.*")
    assert comments.findall(after) == comments.findall(raw)


def test_a_settings_file_is_private_whole_and_never_a_link(tmp_path: Path) -> None:
    path = tmp_path / "new" / "gputop" / "config.toml"
    write_settings(str(path), b"tree = false")
    assert path.read_bytes() == b"tree = false"
    assert (stat.S_IMODE(path.stat().st_mode), stat.S_IMODE(path.parent.stat().st_mode)) == (0o600, 0o700)
    path.chmod(0o644)
    write_settings(str(path), b"tree = true")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(path.parent) == ["config.toml"]
    link, pipe, target = (tmp_path / name for name in ("link", "pipe", "target"))
    target.write_text("x")
    link.symlink_to(target)
    os.mkfifo(pipe)
    for refused in (link, pipe):
        with pytest.raises(Refused, match="not written"):
            write_settings(str(refused), b"y")
    assert target.read_text() == "x"
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    with pytest.raises(Refused, match="is world-writable"):
        write_settings(str(open_to_all / "config.toml"), b"y")


@needs_root
def test_f07_somebody_elses_settings_are_not_written(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("tree = true")
    os.chown(path, OTHER_UID, -1)
    with pytest.raises(Refused, match="was not created by gputop"):
        write_settings(str(path), b"y")
    os.chown(path, 0, -1)
    os.chown(tmp_path, OTHER_UID, -1)
    with pytest.raises(Refused, match="belongs to another user"):
        write_settings(str(path), b"y")
    assert path.read_text() == "tree = true"
