"""What the rules say, on the screen: as much of it as there is room for, and the words at GPUs and jobs."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from gputop.demo import SCENARIOS, Demo
from gputop.diagnose import Evidence, Step, Subject
from gputop.diagnose.engine import Engine
from gputop.history import History
from gputop.model import Identity, Role
from gputop.monitor import Monitor, Update
from gputop.safe.text import clean
from gputop.ui.advice.alarm import Alarm, sequence
from gputop.ui.advice.finding_list import CALM_S, host_leads
from gputop.ui.advice.pages import PAGES, expanded
from gputop.ui.advice.pane import advice
from gputop.ui.advice.resolved import SHOWN_S, ResolvedFindings
from gputop.ui.advice.scene import AdviceScene
from gputop.ui.advice.states import about, states
from gputop.ui.theme import ASCII, PLAIN, Look
from tests.advice_scenes import NAMES, drawn, finding_list, fine, found, hot, server, update
from tests.headless_screens import Stage, play
from tests.hostile import STRINGS
from tests.rule_cases import LIMITS
from tests.scripted_jobs import minute

pytestmark = pytest.mark.usefixtures("universal_time")
ALL = update(fine(), found(), hot())


@pytest.mark.parametrize(
    ("size", "keys", "name"),
    [
        ((40, 12), (), "40x12"),
        ((80, 24), (), "80x24"),
        ((120, 40), ("a", "escape", "down"), "120x40-chosen"),
        ((200, 60), (), "200x60"),
        ((80, 24), ("a",), "80x24-all"),
        ((120, 40), ("a", "right", "right"), "120x40-classes"),
        ((120, 40), ("a", "left"), "120x40-not-judged"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_screen_with_findings(
    size: tuple[int, int], keys: tuple[str, ...], name: str, golden: Callable[[str, str], None]
) -> None:
    async def scene(stage: Stage) -> None:
        stage.app.main.show(ALL)
        await stage.press(*keys)
        golden(f"advice-{name}.txt", stage.text)

    play(scene, ALL.frame, size=size, past=minute(ALL.frame))


def test_the_worst_comes_first_and_the_number_it_rests_on_has_its_limit() -> None:
    lines = drawn(replace(ALL, jobs=()), (120, 40))
    assert [line[1:9].strip() for line in lines if line[1:9].strip() in ("▲ CRIT", "! WARN", "- OK")] == [
        "▲ CRIT", "! WARN", "- OK",
    ]  # fmt: skip
    assert "GPU busy 58 % of the last 60 s (threshold 80 %)" in "\n".join(lines)
    assert "88 °C (slowdown at 90 °C)" in "\n".join(lines)
    assert "threshold 90" not in "\n".join(lines), "the text has it already"
    assert "try      start it with 8 compute threads  export OMP_NUM_THREADS=8" in "\n".join(lines)


def test_without_unicode_and_colour_the_weights_live() -> None:
    lines = drawn(ALL, (120, 40), Look(PLAIN, ASCII))
    assert all(line.isascii() for line in lines)
    assert sum("!! CRIT" in line for line in lines) == 1
    assert sum(" ! WARN" in line for line in lines) == 1


def test_a_suspicion_is_told_only_to_who_asks() -> None:
    doubtful = update(found(confidence=0.4))
    assert "waits for its workers" not in "\n".join(drawn(replace(doubtful, jobs=()), (120, 40)))
    assert finding_list(doubtful).listed == doubtful.findings


def test_muted_it_is_silent_until_it_changes() -> None:
    made = finding_list(ALL)
    made.move(1)
    assert made.chosen is ALL.findings[1]
    assert made.mute()
    assert [finding.rule for finding in made.shown] == ["thermal", "gpu-bound-healthy"]
    assert made.listed[-1].rule == "starved-cpu-idle"
    made.feed(ALL)
    assert made.muted
    made.feed(update(found(severity="crit"), hot()))
    assert not made.muted, "it is worse than it was"
    made.feed(update(hot()))
    made.feed(ALL)
    made.choose(0)
    made.mute()
    made.feed(update(found()))
    made.feed(ALL)
    assert not made.muted, "it was gone"


def test_numbers_stand_for_a_while_and_what_it_is_does_not() -> None:
    made = finding_list(ALL)
    later = replace(ALL.frame, mono_s=ALL.frame.mono_s + 1)
    other = replace(found(), evidence=(Evidence(text="GPU busy 59 %", value=59.0),))
    made.feed(update(other, hot(), fine(), shown=later))
    assert made.shown[1].evidence == found().evidence
    made.feed(update(other, hot(), fine(), shown=replace(later, mono_s=later.mono_s + CALM_S)))
    assert made.shown[1].evidence == other.evidence
    made.feed(update(replace(found(), severity="crit"), hot(), fine(), shown=later))
    assert [finding.severity for finding in made.shown] == ["crit", "crit", "info"]


def test_gpus_jobs_and_processes_have_the_same_word() -> None:
    shown = server()
    words = states(ALL.findings, shown)
    assert {shown.by_uuid[uuid].index: state.word for uuid, state in words.gpus.items()} == {
        **dict.fromkeys("0123", "dataloader"), **dict.fromkeys("45", "healthy"), "6": "thermal",
    }  # fmt: skip
    assert words.jobs[shown.jobs[0].key].sign == "warn"
    rank = shown.by_identity[shown.jobs[0].ranks[0]]
    assert about(rank, ALL.findings) is ALL.findings[1]
    assert about(shown.by_identity[shown.jobs[2].ranks[0]], ALL.findings) is None
    machine = update(found(subject=Subject(kind="host"), state="threads", severity="crit"))
    assert {state.word for state in states(machine.findings, shown).gpus.values()} == {"threads"}


@pytest.mark.parametrize("look", [Look(), Look(PLAIN, ASCII)], ids=["unicode", "ascii"])
def test_p02_whatever_things_are_called_the_advice_holds(look: Look) -> None:
    shown = server()
    for text in STRINGS:
        job = replace(shown.jobs[0], name=clean(text), user=clean(text))
        named = replace(shown, jobs=(job, *shown.jobs[1:]), hostname=clean(text))
        bad = found(
            headline=f"shares the CPUs with {text} of {text}", evidence=(Evidence(text=text, value=1.0, limit=2.0),),
            steps=(Step(text=text, command=text, needs_root=True),),
        )  # fmt: skip
        told = update(bad, replace(bad, rule=text, subject=Subject(kind="host")), shown=named)
        pictures = [drawn(told, size, look) for size in ((40, 12), (80, 24), (120, 40), (200, 60))]
        made = AdviceScene(update=told, finding_list=finding_list(told), look=look, keys=NAMES, focused=True)
        for page in PAGES:
            strips = expanded(made, page, 0, 80, 22).strips
            assert {strip.cell_length for strip in strips} == {80}, repr(text)
            pictures.append([strip.text for strip in strips])
        for line in (line for picture in pictures for line in picture):
            assert clean(line, 1000) == line, repr(text)
            assert look.glyphs is not ASCII or line.isascii(), repr(text)


def test_a_page_that_is_longer_than_the_screen_says_so_and_with_which_key_there_is_more() -> None:
    long = found(steps=tuple(Step(text=f"step {number}") for number in range(30)))
    made = AdviceScene(
        update=update(long), finding_list=finding_list(update(long)), look=Look(), keys=NAMES, focused=True
    )
    least, narrow, wide = (expanded(made, PAGES[0], 0, width, 22).strips[0].text for width in (40, 80, 120))
    assert re.fullmatch(r"─ advice  \[findings\] ─+ PgDn 1-21 of \d\d ", least)
    assert re.search(r"─ PgDn 1-21 of \d\d $", narrow)
    assert re.search(r"─ PgDn 1-21 of \d\d  Right next page $", wide)


def test_a_new_warning_rings_once_and_none_at_the_start_or_after_a_jump() -> None:
    alarm, shown = Alarm(), server()

    def news(at_s: float, *findings: object) -> str:
        now = replace(shown, mono_s=1000.0 + at_s)
        told = finding_list(update(*findings, shown=now))  # type: ignore[arg-type]
        heard = alarm.news(told, now)
        return heard.rule if heard else ""

    heard = [news(0, hot()), news(1, hot(), found()), news(2, hot(), found()), news(3, hot()), news(4, hot(), found())]
    assert heard == ["", "starved-cpu-idle", "", "", "starved-cpu-idle"]
    assert news(5, hot(), found(severity="crit")) == "starved-cpu-idle", "it got worse"
    assert news(600, hot(), found(severity="crit"), hot(rule="power")) == "", "who was away hears nothing"


def test_a_notification_is_one_sequence_whatever_is_in_it() -> None:
    bad = found(headline="waits\x1b]52;c;AAAA\a for\nit; now 訓練")
    for how, begins in (("osc9", "\x1b]9;gputop: WARN"), ("osc777", "\x1b]777;notify;gputop;WARN")):
        raw = sequence(how, bad, server())
        assert raw.startswith(begins)
        assert raw.endswith("\a")
        assert raw[2:-1].isascii()
        assert raw[2:-1].isprintable()
        assert raw.count(";") == begins.count(";")
    assert sequence("bell", bad, server()) == "\a"


def cured() -> list[tuple[Update, ResolvedFindings]]:
    """Four experiments with too many threads, which are started anew with fewer: every tenth second of it."""
    whole = SCENARIOS["threads-host"]
    jobs = tuple(replace(job, work=(*job.work, (300.0, job.work[0][1]))) for job in whole.server.jobs)
    demo = Demo(replace(whole, server=replace(whole.server, jobs=jobs)), pace=False, anchor_s=0.0, at_s=0.0)
    engine, history, clearing, seen = Engine(lambda: LIMITS), History(), ResolvedFindings(), []
    for t in range(100, 480):
        frame = demo.frame(float(t))
        history.add(frame)
        engine.remember(frame, history)
        said = engine.judge(frame, history)
        seen.append((Update(frame=frame, findings=said.findings), clearing))
        clearing.feed(seen[-1][0], history)
    return seen


def test_what_is_over_is_told_with_what_got_better() -> None:
    last, clearing = cured()[-1]
    (one,) = clearing.cleared
    assert one.rules == "threads-host"
    wait, busy = (next(change for change in one.changes if name in change.name) for name in ("run queue wait", "busy"))
    assert wait.before > 50 > 10 > wait.after
    assert busy.before < 40 < 80 < busy.after
    assert busy.name == "GPU 0-3 busy"
    lines = drawn(last, (120, 40), cleared=clearing.cleared)
    assert lines[2].startswith("  cleared dgx-07: threads-host   run queue wait ")
    assert " % , GPU 0-3 busy" not in lines[2]
    assert drawn(last, (80, 24), cleared=clearing.cleared)[-1].startswith("  cleared dgx-07: threads-host")
    later = replace(last.frame, mono_s=last.frame.mono_s + 50)
    for _ in range(int(SHOWN_S / 50) + 1):
        later = replace(later, mono_s=later.mono_s + 50)
        clearing.feed(Update(frame=later), History())
    assert clearing.cleared == ()


def test_who_has_ended_is_not_called_better() -> None:
    shown, clearing = server(), ResolvedFindings()
    clearing.feed(update(found()), History())
    gone = replace(shown, mono_s=shown.mono_s + 1, jobs=shown.jobs[1:], processes=())
    clearing.feed(Update(frame=gone), History())
    assert [one.said for one in clearing.cleared] == ["its processes exited"]
    # and whoever starts anew on its GPUs is waited for
    for later_s, age_s, said in ((1, 5.0, "restarted, no verdict yet"), (50, 70.0, "")):
        again = tuple(
            replace(process, pid=process.pid + 7, age_s=age_s) if process.role is Role.TRAINER else process
            for process in shown.processes
        )
        clearing.feed(Update(frame=replace(gone, mono_s=gone.mono_s + later_s, processes=again)), History())
        assert [one.said for one in clearing.cleared] == [said]
    clearing.feed(update(found(), shown=replace(shown, mono_s=shown.mono_s - 99)), History())
    assert clearing.cleared == (), "back in time nothing is over yet"
    folded = found(rule="starved-cpu-saturated", causes=("starved-cpu-idle",))
    clearing.feed(update(folded, shown=replace(shown, mono_s=shown.mono_s - 98)), History())
    assert clearing.cleared == (), "it is told as a cause"


def test_keys_choose_mute_copy_and_go(monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[str] = []

    async def scene(stage: Stage) -> None:
        main = stage.app.main
        monkeypatch.setattr(stage.app, "copy_to_clipboard", copied.append)
        main.show(ALL)
        await stage.press("x")
        assert "not now: select a finding first with a" in stage.lines[-1]
        await stage.press("a", "down", "y")
        assert copied == ["export OMP_NUM_THREADS=8"]
        assert "y again: step 3" in stage.lines[-1]
        await stage.press("enter")
        assert stage.selected == str(ALL.frame.jobs[0].ranks[0].pid)
        assert stage.app.main.focused is main.table
        await stage.press("a", "x")
        assert "muted until it changes" in stage.lines[-1]
        assert "[findings]" in stage.lines[1]
        assert any(line.rstrip().endswith("muted") for line in stage.lines)
        await stage.press("a")
        assert "1 muted" in stage.text
        assert "41100" in stage.pids
        assert main.focused is main.table
        await stage.press("E")
        assert "[experiments]" in stage.lines[1]
        await stage.press("E")
        assert "41100" in stage.pids
        await stage.press("4")
        assert "─ advice" not in stage.text
        await stage.press("a")
        assert "[findings]" in stage.text
        assert main.advised
        await stage.press("a")
        assert "─ advice" in stage.text, "it is no longer hidden"

    play(scene, ALL.frame, past=minute(ALL.frame))


def test_whom_the_chosen_finding_is_about_is_marked() -> None:
    async def scene(stage: Stage) -> None:
        stage.app.main.show(ALL)
        assert not [line for line in stage.lines if line.startswith("▸")]
        await stage.press("a", "escape", "down")
        marked = [line for line in stage.lines if line.startswith("▸")]
        assert [line[1:16].strip(" │├└─▾▸") for line in marked] == ["llama-7b", *(f"{pid}" for pid in ranks)]

    ranks = [identity.pid for identity in ALL.frame.jobs[0].ranks if isinstance(identity, Identity)]
    play(scene, ALL.frame, past=minute(ALL.frame))


LONG = "stands still: 3 of 4 ranks wait in a collective for rank 3 (GPU 3), which waits for its storage"
STEP = Step(text="compare the stacks of all ranks, where the odd one out is marked with a sign", command="x" * 60)


@pytest.mark.parametrize("height", [8, 10, 13])
def test_no_sentence_of_a_finding_is_cut_while_lines_are_free(height: int) -> None:
    told = replace(update(found(headline=LONG, steps=(STEP,))), jobs=())
    rows = [
        strip.text.rstrip()
        for strip in advice(AdviceScene(update=told, finding_list=finding_list(told), look=Look()), 80, height)
    ]
    text = " ".join(" ".join(rows).split())
    assert LONG in text
    assert STEP.text in text
    assert str(STEP.command) in text
    assert "…" not in text
    assert len(rows) <= height


def test_where_lines_are_short_a_sentence_ends_in_dots() -> None:
    told = replace(update(found(headline=LONG, steps=(STEP,))), jobs=())
    rows = [
        strip.text.rstrip()
        for strip in advice(AdviceScene(update=told, finding_list=finding_list(told), look=Look()), 80, 4)
    ]
    assert len(rows) == 4
    assert rows[1].endswith("…")
    assert rows[3].startswith("  try      compare the stacks")


def test_what_the_machine_is_short_of_is_not_told_twice() -> None:
    scenario = SCENARIOS["memory-pressure"]
    told = next(Monitor(Demo(scenario, pace=False, anchor_s=0.0)).updates())
    rows = [
        strip.text.rstrip()
        for strip in advice(AdviceScene(update=told, finding_list=finding_list(told), look=Look()), 80, 7)
    ]
    assert sum("host memory low" in row for row in rows) == 1, rows


@pytest.mark.parametrize(
    ("name", "leads"),
    [
        ("starved-cpu-saturated", True), ("threads-host", True), ("io-bound", True), ("network-bound", True),
        ("memory-pressure", True), ("neighbour", True), ("loader-in-main", False), ("h2d-transfer-bound", False),
        ("thermal", False), ("healthy", False),
    ],
)  # fmt: skip
def test_the_host_leads_where_the_first_finding_is_about_it(name: str, leads: bool) -> None:
    told = next(Monitor(Demo(SCENARIOS[name], pace=False, anchor_s=0.0)).updates())
    assert host_leads(finding_list(told).shown) == leads
