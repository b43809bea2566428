"""The tools without the protocol: bounds of answers, deadlines of commands, rest of the observation."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputop.collectives import watch
from gputop.demo import open_demo
from gputop.mcp import command_tools
from gputop.mcp.live_tools import live_tools
from gputop.mcp.metric_places import PLACES, named
from gputop.mcp.observation import Observation
from gputop.mcp.tool import LEFT_OUT, MOST_CHARS, ToolFailure, bounded, dumped
from gputop.model import Process
from gputop.source import Source
from tests.hostile import STRINGS

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=60) | st.dictionaries(st.sampled_from("abcdef"), inner),
    max_leaves=60,
)


@given(st.dictionaries(st.sampled_from(["findings", "jobs", "report", "why"]), JSON))
def test_an_answer_is_bounded_and_clean_whatever_is_in_it(answer: dict[str, object]) -> None:
    found = bounded(answer)
    assert set(answer) <= set(found) <= {*answer, LEFT_OUT}
    assert len(dumped(found)) <= MOST_CHARS
    assert json.loads(dumped(found)) == json.loads(json.dumps(found))


def test_what_is_left_out_is_counted() -> None:
    rows = [{"text": "x" * 400, "number": number} for number in range(1000)]
    found = bounded({"rows": rows, "few": [1, 2], "report": "a line of a page\n" * 9000})
    kept = len(found["rows"])
    assert 5 < kept <= 40
    assert found[LEFT_OUT] == {"rows": 1000 - kept}
    assert found["rows"] == rows[:kept]
    assert found["report"].endswith("\n…")
    assert len(dumped(found)) <= MOST_CHARS


@pytest.mark.parametrize("name", STRINGS)
def test_a_hostile_name_is_harmless_in_an_answer(name: str) -> None:
    found = bounded({"name": name, "report": f"{name}\nnext"})
    assert found["name"].isprintable()
    assert all(line.isprintable() for line in found["report"].split("\n"))


def test_a_command_that_hangs_is_ended_with_all_that_it_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(command_tools, "PATIENCE_S", 3.0)
    place = tmp_path / "pid"
    code = (
        "import pathlib, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"pathlib.Path({str(place)!r}).write_text(str(child.pid))\n"
        "time.sleep(600)"
    )
    with pytest.raises(ToolFailure, match="gputop explain took longer than 3 s: run it in a terminal"):
        command_tools._output((sys.executable, "-c", code), "explain")
    grandchild = Path(f"/proc/{place.read_text()}/stat")
    assert _until(lambda: not grandchild.exists() or " Z " in grandchild.read_text())


def _until(true: Callable[[], bool], seconds: float = 30.0) -> bool:
    end_s = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end_s:
            return False
        time.sleep(0.02)
    return True


def test_nobody_asks_and_nothing_is_sampled_until_somebody_does() -> None:
    opened: list[Source] = []
    now_s = [0.0]

    def demo() -> Source:
        opened.append(open_demo("healthy", pace=True, interval_s=0.25))
        return opened[-1]

    watched = Observation(demo, live=True, rest_s=60.0, clock=lambda: now_s[0])
    first = watched.sample()
    assert first.frame.hostname
    assert not watched.resting
    now_s[0] = 61.0
    assert _until(lambda: watched.resting)
    again = watched.sample()
    assert len(opened) == 2
    assert again.update is not first.update
    assert not watched.resting
    now_s[0] = 200.0
    assert _until(lambda: watched.resting)


def test_a_job_that_hangs_is_asked_for_its_collective(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Sequence[Process]] = []
    monkeypatch.setattr(watch, "survey_twice", asked.append)
    source = open_demo("collective-wait-hang", pace=True, interval_s=0.25)
    source.elsewhere = None  # as if it ran here
    sample = Observation(lambda: source, live=True).sample(wait_s=60.0)
    assert any(finding.rule == watch.RULE for finding in sample.update.findings)
    assert _until(lambda: bool(asked))
    assert {process.pid for process in asked[0]} == {41207, 41208, 41209, 41210}


def test_a_source_that_fails_is_one_line_and_opened_again() -> None:
    class Broken:
        label, elsewhere, interval_s = "live", None, 1.0

        def past(self) -> list[object]:
            raise OSError(5, "Input/output error")

    sources: list[Source] = [Broken(), open_demo("healthy", pace=True, interval_s=0.25)]  # type: ignore[list-item]
    watched = Observation(lambda: sources.pop(0), live=True)
    with pytest.raises(ToolFailure, match=r"collection failed: OSError: \[Errno 5\] Input/output error"):
        watched.sample()
    assert watched.sample().frame.gpus


def test_every_metric_of_a_place_can_be_asked_for_in_a_demo() -> None:
    watched = Observation(lambda: open_demo("showcase", pace=False), live=False)
    ask = next(tool for tool in live_tools(watched) if tool.name == "get_metrics")
    frame = watched.sample().frame
    for place in PLACES.values():
        names = [f"{place.name}.{name}" for name in place.metrics]
        assert all(named(name)[0] is place for name in names)
        if any(place.subjects(frame)):
            for start in range(0, len(names), 16):
                rows = ask.run(names=names[start : start + 16])["values"]
                assert all(row["value"] is not None or row["missing"] for row in rows)
