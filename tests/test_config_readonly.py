"""Who may only look: `readonly` is not lost where the file that may say it cannot be used."""

from __future__ import annotations

from pathlib import Path

import pytest

from gputop.config import load
from gputop.safe.files import read_settings


def test_f12_a_file_that_was_not_read_leaves_readonly_to_flags_and_variables(tmp_path: Path) -> None:
    path = tmp_path / "world"
    path.write_text("readonly = true")
    path.chmod(0o666)
    for environ, flags, readonly in (
        ({}, {}, True),
        ({"GPUTOP_READONLY": "0"}, {}, False),
        ({}, {"readonly": False}, False),
        ({"GPUTOP_READONLY": "0"}, {"readonly": True}, True),
    ):
        found, _ = load(str(path), environ, flags, read_settings)
        assert found.readonly == readonly, (environ, flags)


@pytest.mark.parametrize(
    "raw", [b"\xef\xbb\xbfreadonly = true", "readonly = true".encode("utf-16"), b"mouse = false\rreadonly = true\r"]
)
def test_f12_readonly_is_seen_in_odd_encodings(raw: bytes) -> None:
    with pytest.raises(ValueError, match="readonly may be set"):
        load("/x", {}, {}, lambda path: raw)
