"""The screen of a result, drawn: what it says first, flames, tables, stacks side by side; at any size, of any name."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gputop.actions.pyspy import Shown, StackResult
from gputop.actions.torch_trace import Traced
from gputop.diagnose import Finding, Step, Subject
from gputop.model import Process
from gputop.profile import dump, parse, report
from gputop.profile.dump import ThreadStack
from gputop.profile.ranks import compare
from gputop.profile.store import StoredProfile
from gputop.trace.read import read
from gputop.trace.verdict import TraceView
from gputop.ui.panes.picture import text
from gputop.ui.result.content import Content
from gputop.ui.result.flame import Flames
from gputop.ui.result.picture import picture
from gputop.ui.result.profile_tabs import of_profile_kept
from gputop.ui.result.stacks import of_stacks
from gputop.ui.result.trace_tabs import of_traced
from gputop.ui.result.verdicts import Saying, Says
from gputop.ui.result.verdicts import strips as says_strips
from gputop.ui.theme import ASCII, PLAIN, Look
from tests.hostile import STRINGS
from tests.llama_trace import STEP_US, llama
from tests.traces import Made

STACKS = """\
MainThread (41207);main (train.py:212);step (train.py:148);_call_impl (module.py:9);forward (model.py:88) 48
MainThread (41207);main (train.py:212);step (train.py:148);_engine_run_backward (graph.py:825) 44
MainThread (41207);main (train.py:212);step (train.py:148);step (adamw.py:233) 18
MainThread (41207);main (train.py:212);__next__ (dataloader.py:701);get (queue.py:180) 78
MainThread (41207);main (train.py:212);log (train.py:90) 12
pin_memory (41258 of 41207);run (threading.py:9);wait (threading.py:3) 200
MainThread (41390);_worker_loop (worker.py:1);fetch (fetch.py:52);augment (data.py:31) 150
"""


def profiled(stacks: str = STACKS, **meta: object) -> Content:
    """What the screen has of a profile of process 41207."""
    profile = parse(stacks)
    profile.pid = 41207
    known = {"pid": 41207, "started_ticks": 7, "at_s": 1_795_185_127.0, "seconds": 10, "command": "python train.py"}
    kept = StoredProfile("/state/profiles/one", "one", {**known, **meta})
    return of_profile_kept(profile, report.page(profile, "41207 python train.py"), kept)


def drawn(content: Content, tab: int, size: tuple[int, int], look: Look | None = None) -> str:
    """The screen with one of its tabs open."""
    found = picture(content, content.tabs[tab], None, [], size, look or Look())
    assert len(found.strips) == size[1]
    assert {strip.cell_length for strip in found.strips} == {size[0]}
    return text(found.strips)


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
def test_a_profile_at_first_sight(
    size: tuple[int, int], golden: Callable[[str, str], None], universal_time: None
) -> None:
    golden(f"result-profile-{size[0]}x{size[1]}.txt", drawn(profiled(), 0, size))


def test_a_flame_is_walked_zoomed_and_searched() -> None:
    content = profiled()
    flames = content.tabs[0]
    assert isinstance(flames, Flames)

    def under() -> str:
        return drawn(content, 0, (120, 40)).partition("% of all")[0].rpartition("\n")[2].split("  ")[0].strip()

    assert under() == "main (train.py)"
    flames.move(1)
    assert under() == "step (train.py)"
    flames.press("sideways", 1)
    assert under() == "__next__ (dataloader.py)"
    flames.press("take")
    assert drawn(content, 0, (120, 40)).count("__next__ (dataloader.py) 39%") == 1
    assert "zoomed" in drawn(content, 0, (120, 40))
    flames.move(1)
    flames.press("out")
    assert under() == "get (queue.py)"
    assert flames.find("STEP") == "2 functions, 55.0 % of the time"
    flames.press("next")
    assert under() == "step (train.py)"
    assert flames.press("turn") == "its workers"
    assert "augment (data.py) 100%" in drawn(content, 0, (120, 40))


def test_a_profile_beside_what_is_seen_live() -> None:
    content = profiled()
    subject = Subject(kind="process", processes=content.about.processes)
    live = [
        Finding(
            rule=rule,
            severity="warn",
            subject=subject,
            headline="it is so",
            since_s=372,
        )
        for rule in ("io-bound", "gmem-leak")
    ]
    found = picture(content, content.tabs[0], None, live[:1], (120, 40), Look())
    assert "agrees with  it is so  seen live for 6 min" in text(found.strips)
    step = Step(text="Copy the data to /scratch", command="rsync -a /data/ /scratch/")
    live[0] = replace(live[0], steps=(step,))
    found = picture(content, content.tabs[0], None, live[:1], (120, 40), Look())
    assert "Next: Copy the data to /scratch: rsync -a /data/ /scratch/" in text(found.strips), "as the advice says"
    found = picture(content, content.tabs[0], None, live[1:], (120, 40), Look())
    assert "seen live  it is so for 6 min" in text(found.strips)
    long = [replace(live[1], headline="it is so " * 30)]
    assert "it is so it… for 6 min" in text(picture(content, content.tabs[0], None, long, (80, 24), Look()).strips)
    calm = profiled("MainThread (41207);main (train.py:1);forward (model.py:2) 50\n")
    found = picture(calm, calm.tabs[0], None, live[:1], (120, 40), Look())
    assert "not seen here  it is so  reported live for 6 min" in text(found.strips)


def threads(*calls: str) -> tuple[ThreadStack, ...]:
    """A process with one thread, as py-spy prints it; the innermost call first."""
    frames = [{"name": call, "filename": f"/home/a/{call}.py", "line": 3} for call in calls]
    known = {"os_thread_id": 1, "thread_name": "MainThread", "active": False, "owns_gil": False, "frames": frames}
    return dump.parse(json.dumps([known]), 1)


def job(*ranks: tuple[ThreadStack, ...]) -> StackResult:
    """Ranks of a job, looked at twice without any of them moving."""
    shown = tuple(
        Shown(process=Process(pid=100 + place, started_ticks=1, name="python", rank=place), threads=found)
        for place, found in enumerate(ranks)
    )
    labels = [f"rank {place}" for place in range(len(ranks))]
    return StackResult(text="", good=True, processes=shown, ranks=compare(labels, ranks, ranks))


def test_ranks_stand_side_by_side_with_the_odd_one_marked() -> None:
    others = threads("all_reduce", "step", "main")
    content = of_stacks(job(others, others, threads("load", "main")))
    table = drawn(content, 0, (120, 24))
    assert "CRIT" in table
    assert "; rank 2 is in load (load.py:3)" in table
    beside = drawn(content, 1, (120, 24)).splitlines()
    heads = next(line for line in beside if "rank 1" in line and "rank 2" in line and "not" not in line)
    assert "▲ rank 2" in heads, "as bad as the headline says"
    assert "▲ rank 1" not in heads
    assert "> load (load.py:3)" in drawn(content, 2, (120, 40))


def traced(made: Made, tmp_path: Path) -> Content:
    """What the screen has of a trace."""
    path = made.write(tmp_path / "trace.json.gz")
    about = of_traced(Traced(text="", good=True, files=(path,), views=(TraceView(read(path)),)), 0)
    file = replace(about.about.files[0], path="/state/trace.json.gz", size_bytes=188 << 10)  # not of this machine
    return replace(about, about=replace(about.about, at_s=1_795_185_127.0, files=(file,)))


@pytest.mark.parametrize("size", [(80, 24), (124, 28)])
def test_a_trace_at_first_sight(
    size: tuple[int, int], golden: Callable[[str, str], None], universal_time: None, tmp_path: Path
) -> None:
    golden(f"result-trace-{size[0]}x{size[1]}.txt", drawn(traced(llama(), tmp_path), 0, size))


def test_gaps_are_visited_one_after_the_other(tmp_path: Path) -> None:
    content = traced(llama(), tmp_path)
    timeline = content.tabs[0]
    said = [found for _ in range(3) for found in [timeline.press("next") or drawn(content, 0, (120, 40))]]
    lines = [next(line for line in text.splitlines() if "GPU idle " in line) for text in said]
    assert [line.split("GPU idle ")[1].split(" ·")[0] for line in lines] == ["4.91 ms", "99.5 ms", "4.91 ms"]
    assert "main: DataLoader.__next__ 91.9 ms" in lines[1]


@pytest.mark.parametrize("look", [Look(), Look(PLAIN, ASCII)], ids=["colour", "plain"])
def test_any_size_and_any_name_is_drawn(look: Look, tmp_path: Path) -> None:
    hostile = "".join(f"MainThread (41207);{name};x 3\n" for name in STRINGS if ";" not in name and "\n" not in name)
    made = llama(2)
    for place, name in enumerate(STRINGS):
        made.note(name, 2 * STEP_US + place * 10, 9)
        made.kernel(name, 95_000 + place * 10, 9, stream=9, **{"External id": made.host(name, 94_000 + place * 10, 9)})
    stacks = of_stacks(job(*(threads(name, name) for name in STRINGS)))
    for content in (profiled(hostile + STACKS), stacks, traced(made, tmp_path)):
        for size in ((40, 12), (80, 24), (300, 80), (1, 1), (7, 3)):
            for tab in range(len(content.tabs)):
                content.tabs[tab].move(3)
                content.tabs[tab].press("zoom", 1)
                shown = drawn(content, tab, size, look)
                assert not [ch for ch in shown if ch != "\n" and not ch.isprintable()]
                assert look.glyphs is not ASCII or shown.isascii()


def test_a_headline_is_told_in_whole_where_there_are_lines() -> None:
    text = "ranks 0, 1, 2 wait in all_reduce; rank 3 is in write_samples (train.py:171). " * 2
    said = Says(sayings=(Saying(severity="crit", text=text.strip()),), words=("more",))
    rows = [strip.text.strip() for strip in says_strips(said, (), 80, 4, Look())]
    assert text.strip() in " ".join(" ".join(rows).split())
