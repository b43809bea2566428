"""Settings: who overrules whom, and files that cannot be used: defaults, one line, and the file as it was."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gputop import config, thresholds
from gputop.columns import COLUMNS, SORTABLE
from gputop.config import BY_KEY, SETTINGS, Settings, load
from gputop.safe.files import read_settings


def read(text: str) -> config.Read:
    return lambda path: text.encode()


def absent(path: str) -> None:
    return None


def chosen(text: str = "", environ: dict[str, str] | None = None, flags: dict[str, Any] | None = None) -> Settings:
    found, warnings = load("/x", environ or {}, flags or {}, read(text))
    assert warnings == ()
    return found


def test_defaults_file_environment_flags_in_this_order() -> None:
    assert load(None, {}, {}, absent) == (Settings(), ())
    assert chosen("interval = 2").interval_s == 2
    assert chosen("interval = 2", {"GPUTOP_INTERVAL": "3"}).interval_s == 3
    assert chosen("interval = 2", {"GPUTOP_INTERVAL": "3"}, {"interval": 4.0}).interval_s == 4
    mixed = chosen('theme = "light"\nmouse = false', {"GPUTOP_SORT": "vram"}, {"gpm": "off"})
    assert mixed == Settings(theme="light", mouse=False, sort="vram", gpm="off")


@pytest.mark.parametrize(
    ("line", "field", "value"),
    [
        ("interval = 0.25", "interval_s", 0.25),
        ("interval = 3600", "interval_s", 3600.0),
        ('interval = "500ms"', "interval_s", 0.5),
        ('interval = "2m"', "interval_s", 120.0),
        ("ascii = true", "ascii", "on"),
        ("gpm = false", "gpm", "off"),
        ('gpm = "auto"', "gpm", "auto"),
        ("nvml = false", "nvml", False),
        ('tree = "no"', "tree", False),
        ('sort = "gpu-busy"', "sort", "gpu-busy"),
        ("version = 1\nreverse = true", "reverse", True),
    ],
)
def test_what_may_be_written(line: str, field: str, value: object) -> None:
    assert getattr(chosen(line), field) == value


NOT_USED = {
    "unknown": ("colour = 1", "unknown setting 'colour' (did you mean columns?)"),
    "a table": ("[theme]\nname = 1", "theme must be auto, dark, light or terminal"),
    "wrong type": ('nvml = "maybe"', "nvml must be true or false"),
    "a number for a flag": ("mouse = 1", "mouse must be true or false"),
    "a flag for a number": ("interval = true", "interval must be 0.25 to 3600 seconds"),
    "too small": ("interval = 0.1", "interval must be 0.25 to 3600 seconds"),
    "too large": ("interval = 3601", "interval must be 0.25 to 3600 seconds"),
    "not a number": ("interval = nan", "interval must be 0.25 to 3600 seconds"),
    "endless": ("interval = inf", "interval must be 0.25 to 3600 seconds"),
    "huge": (f"interval = {'9' * 5000}", ""),
    "a list": ("sort = ['pid']", "sort must be"),
    "not a choice": ('density = "cards"', "density must be auto, card, row or cell"),
    "not TOML": ("interval == 2", ""),
    "later version": ("version = 2\nmouse = false", "its version is 2, but this gputop reads version 1"),
    "version of no kind": ('version = "new"', "its version is 'new'"),
    "too deep": ("a = " + "[" * 100_000, ""),
    "escape sequences": ('"\\u001b]0;x\\u0007" = 1', "unknown setting '\\x1b]0;x\\x07'"),
    "twice": ("mouse = false\nmouse = true", ""),
}


@pytest.mark.parametrize(("text", "why"), NOT_USED.values(), ids=NOT_USED)
def test_f12_what_cannot_be_is_a_default_and_one_line(text: str, why: str) -> None:
    found, (warning,) = load(None, {"HOME": "/home/a"}, {}, read(text))
    assert found == Settings()
    assert warning.isprintable()
    assert why in warning
    assert "(/home/a/.config/gputop/config.toml)" in warning
    assert warning.startswith("settings ignored: ")
    assert warning.endswith("; see `gputop docs configuration`")


def test_f12_the_rest_of_a_file_is_used_and_all_its_problems_are_one_line() -> None:
    text = 'a = 1\nb = 2\ninterval = 9999\ndensity = 3\nmouse = false\n"x y" = 4\n'
    found, (warning,) = load("/etc/x", {"GPUTOP_TREE": "oak", "GPUTOP_FOLLOW": "0"}, {}, read(text))
    assert found == Settings(mouse=False, follow=False)
    assert warning == (
        "settings ignored: unknown setting 'a'; unknown setting 'b'; interval must be 0.25 to 3600 seconds and 2 more "
        "(/etc/x); "
        "GPUTOP_TREE must be true or false; see `gputop docs configuration`"
    )


def test_a_flag_that_cannot_be_is_wrong_usage() -> None:
    with pytest.raises(ValueError, match=r"--interval must be 0\.25 to 3600 seconds"):
        load(None, {}, {"interval": 0.1}, absent)


def test_f12_a_file_that_was_named_must_be_there() -> None:
    assert load(None, {"HOME": "/dev/null"}, {}, absent) == (Settings(), ()), "no home, and nothing that says readonly"
    assert load(None, {"HOME": "/h"}, {}, absent) == (Settings(), ())
    assert load(None, {"HOME": f"/{5000 * 'h'}"}, {}, absent) == (Settings(), ())
    found, (warning,) = load("/no/such", {}, {}, absent)
    assert (found, "file not found (/no/such)" in warning) == (Settings(), True)


@pytest.mark.parametrize(
    ("environ", "path"),
    [
        ({"XDG_CONFIG_HOME": "/c", "HOME": "/h"}, "/c/gputop/config.toml"),
        ({"HOME": "/h"}, "/h/.config/gputop/config.toml"),
        ({"XDG_CONFIG_HOME": "relative", "HOME": "/h"}, "/h/.config/gputop/config.toml"),
        ({"XDG_CONFIG_HOME": "", "HOME": ""}, None),
        ({}, None),
    ],
)
def test_where_the_file_is(environ: dict[str, str], path: str | None) -> None:
    assert config.default_path(environ) == path


def as_found(root: Path) -> list[tuple[str, int, int, bytes | None]]:
    """What lies in a folder: a change of anything shows."""
    entries = sorted(root.rglob("*"))
    return [
        (
            str(p),
            p.lstat().st_mode,
            p.lstat().st_mtime_ns,
            p.read_bytes() if p.is_file() and not p.is_symlink() else None,
        )
        for p in entries
    ]


def test_f12_odd_files_are_refused_at_once_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(b"# x\n" * (10 << 18))
    (tmp_path / "binary").write_bytes(bytes(range(256)) * 40)
    (tmp_path / "world").write_text("mouse = false")
    (tmp_path / "world").chmod(0o666)
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "dangling").symlink_to("/dev/zero")
    (tmp_path / "loop").symlink_to("loop")
    before = as_found(tmp_path)
    for name in sorted(os.listdir(tmp_path)):
        found, warnings = load(str(tmp_path / name), {}, {}, read_settings)
        assert found == Settings(readonly=name != "binary"), name  # what was not read may say so
        assert len(warnings) == 1, name
        assert ("GPUTOP_READONLY=off" in warnings[0]) == found.readonly
        assert warnings[0].isprintable(), name
        assert warnings[0].count(str(tmp_path / name)) == 1
    assert as_found(tmp_path) == before


def test_f12_a_file_of_ours_behind_a_link_is_read(tmp_path: Path) -> None:
    (tmp_path / "dotfiles.toml").write_text("mouse = false")
    (tmp_path / "config.toml").symlink_to("dotfiles.toml")
    assert load(str(tmp_path / "config.toml"), {}, {}, read_settings) == (Settings(mouse=False), ())


@given(st.binary(max_size=4000) | st.text(max_size=2000).map(str.encode))
@settings(max_examples=300)
def test_f12_any_bytes(raw: bytes) -> None:
    found, warnings = load("/x", {}, {"readonly": True}, lambda path: raw)
    assert len(warnings) <= 1
    assert all(warning.isprintable() and len(warning) < 1000 for warning in warnings)
    assert all(setting.value(getattr(found, setting.field)) is not None for setting in SETTINGS)


KEYS = st.sampled_from(sorted(BY_KEY)) | st.text(min_size=1, max_size=20)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.booleans() | st.integers() | st.floats() | st.text() | st.none() | st.dates(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(KEYS, VALUES, max_size=8))
@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
def test_f12_any_keys_and_values(table: dict[str, Any]) -> None:
    used: dict[str, Any] = {}
    problems = config._take(table, "{0.key}", used)
    assert len(used) + len(problems) == len(table)
    assert all(problem.isascii() for problem in problems)
    found = Settings(**used)
    assert 0.25 <= found.interval_s <= 3600
    assert {type(getattr(found, setting.field)) for setting in SETTINGS} <= {float, bool, str, tuple}


@given(st.dictionaries(st.sampled_from([s.variable for s in SETTINGS]), st.text(), max_size=5))
def test_f12_any_environment(environ: dict[str, str]) -> None:
    found, warnings = load(None, environ, {"readonly": True}, absent)
    assert len(warnings) <= 1
    assert all(setting.value(getattr(found, setting.field)) is not None for setting in SETTINGS)


def test_every_sortable_column_can_be_chosen() -> None:
    assert set(BY_KEY["sort"].choices) == {column.id for column in SORTABLE}
    assert (COLUMNS[0].id, COLUMNS[-1].id) == (config.FIRST, config.LAST)


def test_f12_the_program_starts_with_a_bad_file_and_says_so_once(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("interval = -1\nno = 1\n")
    before = as_found(tmp_path)
    command = [sys.executable, "-m", "gputop", "completions", "bash", "--config", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith(
        "gputop: settings ignored: interval must be 0.25 to 3600 seconds; unknown setting 'no' ("
    )
    assert as_found(tmp_path) == before
    done = subprocess.run([*command[:-2], "--interval", "0.1"], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (64, "gputop: --interval must be 0.25 to 3600 seconds\n")


SITE = """
[thermal]
soft_percent = 10
on_s = 60
softest_percent = 1
hard_percent = "no"
usual_celsius = inf
window_s = -5
[no-such-rule]
x = 1
[starved]
duty = -0.5
"""


def test_a_site_has_its_own_numbers_for_the_rules(tmp_path: Path) -> None:
    file, numbers = tmp_path / "config.toml", tmp_path / "site.toml"
    file.write_text(f'interval = 2\nthresholds = "{numbers}"')
    numbers.write_text(SITE)
    adopt = partial(thresholds.site, read=read_settings)
    found, (warning,) = load(str(file), {}, {}, read_settings, adopt=adopt)
    assert found.interval_s == 2
    assert found.thresholds is not None
    assert found.thresholds["thermal"]["soft_percent"] == 10
    assert found.thresholds["thermal"]["on_s"] == 60
    assert found.thresholds["thermal"]["hard_percent"] == thresholds.shipped()["thermal"]["hard_percent"]
    assert found.thresholds["power"] == thresholds.shipped()["power"]
    unknown = "unknown threshold 'thermal.softest_percent' (did you mean thermal.soft_percent?)"
    assert warning.startswith(f"settings ignored: in {numbers}: {unknown}; ")
    _, problems = thresholds.site(str(numbers), read_settings)
    assert problems[1:] == [
        "thermal.hard_percent must be a number",
        "thermal.usual_celsius must be a number",
        "thermal.window_s must be 1 to 14400 seconds",
        "unknown rule 'no-such-rule'",
        "starved.duty must not be below 0",
    ]


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("site.toml", "[thermal", "site.toml: Expected"),
        ("absent.toml", "", "does not exist"),
        ("../site.toml", "", "must be an absolute path"),
    ],
)
def test_numbers_that_cannot_be_used_are_as_shipped(tmp_path: Path, name: str, text: str, why: str) -> None:
    numbers = tmp_path / "site.toml"
    numbers.write_text(text)
    path = name if name.startswith(".") else str(tmp_path / name)
    found, (warning,) = load(
        "/x", {}, {}, read(f'interval = 2\nthresholds = "{path}"'), adopt=partial(thresholds.site, read=read_settings)
    )
    assert found.thresholds is None
    assert found.interval_s == 2
    assert why in warning
