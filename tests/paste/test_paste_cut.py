"""Pasted texts in the encodings of Windows, and those that were cut: it is said first, and nothing is called well."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from gputop.paste import recognise
from gputop.trace.text import Text
from tests import pasted_texts
from tests.paste.test_paste import told
from tests.paste.test_paste_command import explain


class TestEncodings:
    @pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
    @pytest.mark.parametrize(
        ("text", "kind"),
        [
            (pasted_texts.csv([97] * 9), "gpu-csv"),
            (pasted_texts.smi(), "nvidia-smi"),
            (pasted_texts.BOX, "nvidia-smi"),
            (pasted_texts.s1(), "operator-table"),
            (pasted_texts.oom(), "log"),
        ],
    )
    def test_any_encoding_of_windows(self, tmp_path: Path, encoding: str, text: str, kind: str) -> None:
        plain = text.strip("\n") + "\n"
        found = []
        for data in (plain.encode(), plain.encode(encoding), gzip.compress(plain.encode(encoding))):
            (tmp_path / "x.txt").write_bytes(data)
            opened = Text(str(tmp_path / "x.txt"))
            found.append(recognise(opened))
            opened.close()
        assert found[0] is not None
        assert found[0].problems == ()
        assert found[0] == found[1] == found[2]

    def test_the_end_of_a_long_text_in_utf_16(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("gputop.paste.MOST_TEXT", 9001)
        text = "step 1 loss 2.5 \u00e9\n" * 9000 + pasted_texts.oom()
        for encoding in ("utf-8-sig", "utf-16", "utf-16-be"):
            (tmp_path / "x.log").write_bytes(text.encode(encoding))
            opened = Text(str(tmp_path / "x.log"))
            found = recognise(opened)
            opened.close()
            assert found is not None
            assert found.points[0].text == "GPU 0: CUDA out of memory in backward."
            assert found.problems[0].startswith("Only the last")


class TestCut:
    """What is missing is said first, and nothing is said to be well."""

    @pytest.mark.parametrize("last", ["2024/01/02 00:0", "2024/01/02 00:00:45.123, 0, 9", None, ""])
    def test_csv(self, last: str | None) -> None:
        whole = pasted_texts.csv([97] * 9)
        text = whole[:-4] if last is None else whole + last  # None: within the watts of the last line
        found = told(text)
        if last == "":
            assert found.problems == ()
            return
        assert found.problems == ("The last line is truncated and left out.",)
        assert found.page("x").words[0] == found.problems[0]
        assert f"{8 if last is None else 9} samples" in found.about

    def test_a_csv_without_a_last_end_of_line_is_whole(self) -> None:
        for text in (pasted_texts.csv([97] * 9), pasted_texts.csv([97] * 9, nounits=True)):
            assert told(text.rstrip("\n")).problems == ()

    @pytest.mark.parametrize(
        "at", ["    FB Memory Usage", "Power Draw          ", "    Max Clocks", "MiB\n        Reserved"]
    )
    def test_nvidia_smi(self, at: str) -> None:
        whole = pasted_texts.smi(thermal="Not Active")
        assert told(whole).problems == ()
        assert [point.severity for point in told(whole).points] == ["fine"]
        found = told(whole[: whole.index(at)])
        assert found.problems == (
            "The text is truncated: the end of a GPU's values is missing, and of other GPUs perhaps all.",
        )
        assert all(point.severity != "fine" for point in found.points)

    def test_what_was_not_read_of_nvidia_smi_is_said(self) -> None:
        whole = pasted_texts.smi(thermal="Not Active")
        assert not any("Not in it" in word for word in told(whole).words)
        found = told(whole[: whole.index("    Clocks Event Reasons")])
        missing = "clock event reasons, ECC errors, temperature, power, utilization, memory"
        assert found.words[0] == f"Not in it: {missing}. Paste nvidia-smi -q whole."
        (point,) = found.points
        assert point.text == "No problem found in the values present. Missing values may say otherwise."
        old = told(whole.replace("Clocks Event Reasons", "Clocks Throttle Reasons"))
        assert [point.severity for point in old.points] == ["fine"]

    @pytest.mark.parametrize(
        ("limits", "said"),
        [
            (("GPU Slowdown Temp                 : 90 C",) * 2, "above"),
            (("GPU Slowdown Temp                 : 90 C", "GPU Slowdown Temp : 91 C"), "at"),
            (("GPU Slowdown Temp                 : 90 C", "GPU Slowdown Temp : 93 C"), "close to"),
            (("GPU T.Limit Temp                  : N/A", "GPU T.Limit Temp : -1 C"), "above"),
            (("GPU T.Limit Temp                  : N/A", "GPU T.Limit Temp : 2 C"), "close to"),
        ],
    )
    def test_a_temperature_is_said_as_it_lies_to_its_limit(self, limits: tuple[str, str], said: str) -> None:
        found = told(pasted_texts.smi(thermal="Not Active", celsius="91").replace(*limits))
        assert found.points[0].text == f"GPU 3: {said} its temperature limit."

    def test_a_number_that_was_cut_is_no_number(self) -> None:
        whole = pasted_texts.smi()
        cut = whole[: whole.index("640.00 W") + 1]
        assert told(cut).numbers["gpus"][0]["power_w"] is None

    def test_a_part_that_was_asked_for_is_whole(self) -> None:
        part = "==============NVSMI LOG==============\n\nAttached GPUs : 1\nGPU 00000000:41:00.0\n"
        part += "    Utilization\n        Gpu                               : 97 %\n"
        assert told(part).problems == ()

    def test_the_box(self) -> None:
        assert told(pasted_texts.BOX).problems == ()
        for at in (" N/A   86C", "|   1  NVIDIA", "| Processes"):
            place = pasted_texts.BOX.find(at)
            place = place if place >= 0 else pasted_texts.BOX.index(at[1:])
            found = told(pasted_texts.BOX[:place] + "|")
            assert "The text is truncated" in found.problems[0], at

    def test_a_log_that_ends_within_a_traceback(self) -> None:
        log = (
            pasted_texts.oom()
            + 'Traceback (most recent call last):\n  File "/home/me/train.py", line 1, in f\n    x()\n'
        )
        assert told(log).problems == ("It ends within a traceback: the error itself is missing.",)
        assert told(pasted_texts.oom()).problems == ()

    @pytest.mark.waits
    def test_it_is_in_the_exit_code(self) -> None:
        for text in (pasted_texts.csv([97] * 9) + "2024/0", pasted_texts.smi()[:1500]):
            done = explain("-", given=text)
            assert done.returncode == 1
            assert "truncated" in done.stdout.split("Findings")[1][:60]
