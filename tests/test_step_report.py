"""What step meters say in words, in the details and in the diagnosis: nothing where it is not measured."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gputop import step_report
from gputop.export.diagnosis import Diagnosis, page
from gputop.history import History
from gputop.model import Noted, Process, SlowStep
from gputop.monitor import Update
from gputop.report import text
from gputop.ui.details.activity import now
from gputop.ui.details.process_view import ProcessView
from gputop.ui.theme import ASCII, PLAIN, Look
from tests.process_details import RANK, RUNNING, full
from tests.rank_teams import of, team
from tests.rule_cases import after

NOW_S = RUNNING.wall_s


def ranks(*waits: float | None, steps: tuple[float, ...] = ()) -> list[Process]:
    """Ranks whose steps of 310 ms wait so many percent for data."""
    of_each = steps or (0.31,) * len(waits)
    return [
        Process(pid=100 + n, started_ticks=1, rank=n, step_s=step_s, data_wait_percent=wait)
        for n, (wait, step_s) in enumerate(zip(waits, of_each, strict=True))
    ]


def test_the_rank_that_waits_for_data_makes_the_others_wait() -> None:
    late = step_report.late_rank(ranks(1.6, 1.6, 1.6, 38.7))
    assert late is not None
    assert late.share == pytest.approx(0.371)
    said = "rank 3 waits 120 ms for data in each step, the others 5.0 ms: all 4 ranks take 310 ms per step"
    assert step_report.late_text(late, 3, 4) == said
    assert step_report.late_text(late, 3, 2).endswith("in each step, the other 5.0 ms: both ranks take 310 ms per step")


@pytest.mark.parametrize(
    "some",
    [
        ranks(38.7),  # alone
        ranks(30.0, 38.7, 1.6),  # several wait
        ranks(1.6, None),  # of one nobody knows
        ranks(1.6, 38.7, steps=(0.31, 0.5)),  # they are not in step
        [*ranks(1.6, 38.7), Process(pid=9, started_ticks=1)],  # one has no meter
    ],
)
def test_no_rank_is_named_where_the_meters_do_not_tell(some: list[Process]) -> None:
    assert step_report.late_rank(some) is None


def late(wait: float, **others: Any) -> Any:
    """A job of four ranks on busy GPUs, of which rank 2 waits for its data."""
    metered = {"step_s": 0.31, "data_wait_percent": 1.6}
    return team(trainer=of({2: {**metered, "data_wait_percent": wait, **others}}, metered))


def metered(**known: Any) -> Process:
    """A rank with a meter and notes."""
    slow = (
        SlowStep(wall_s=NOW_S - 14, took_s=0.42, phase="data"),
        SlowStep(wall_s=NOW_S - 3, took_s=0.5, phase="rest"),
    )
    noted = (
        Noted(name="epoch", wall_s=NOW_S - 30, value=3.0, moment=True),
        Noted(name="loss", wall_s=NOW_S - 1, value=0.53211234, step=1204),
    )
    given: dict[str, Any] = {
        "step_s": 0.2, "data_wait_percent": 40.0, "samples_per_s": 161.3, "step_window": 120, "slow_step_count": 2,
        "slow_steps": slow, "noted": noted,
    }  # fmt: skip
    return replace(RANK, **{**given, **known})


def test_slow_steps_are_counted_by_what_was_slow() -> None:
    counted = "of 120 steps took over 2 × the median"
    by = "1 waited for data, 1 slow in forward, backward or other code"
    assert step_report.slow(metered(), NOW_S) == f"2 {counted}: {by}"
    assert step_report.slow(metered(slow_step_count=40), NOW_S).startswith(f"40 {counted}; of the newest 2: ")
    assert step_report.slow(metered(slow_steps=()), NOW_S) == f"2 {counted}"
    assert step_report.slow(metered(slow_step_count=0), NOW_S) == ""


def test_notes_are_told_with_their_step_or_their_age() -> None:
    assert step_report.noted(metered(), NOW_S) == "loss 0.532112 at step 1204, epoch 3 (30 s ago)"
    both = tuple(Noted(name=name, wall_s=NOW_S - 1 + at, value=0.5, step=9) for name, at in (("loss", 0), ("lr", 1e-6)))
    assert step_report.noted(metered(noted=both), NOW_S) == "loss 0.5, lr 0.5 at step 9"
    lost = Noted(name="loss", wall_s=NOW_S, finite=False, step=7)
    assert step_report.noted(metered(noted=(lost,)), NOW_S) == "loss not finite at step 7"
    assert step_report.noted(metered(noted=()), NOW_S) == ""


@pytest.mark.parametrize("look", [Look(), Look(PLAIN, ASCII)], ids=["unicode", "ascii"])
def test_they_stand_on_the_axis_of_the_chart_of_steps(look: Look) -> None:
    process = metered()
    opened = ProcessView(process=process, frame=RUNNING, found=full(process, RUNNING), past=History(), look=look)
    strips = [strip.text for strip in now(opened, 160, 4)]
    axis = strips[2]
    epoch = axis.index("epoch 3")
    slow = [place - epoch for place, cell in enumerate(axis) if cell == look.glyphs.down]
    assert slow == [30 - 14 - 1, 30 - 3 - 1]  # a second a cell
    assert (
        strips[-1].strip().startswith("steps  loss 0.532112 at step 1204, epoch 3 (30 s ago); 2 of 120 steps took over")
    )
    assert all(len(strip) == 160 for strip in strips)


def test_marks_that_are_close_give_way_to_one_another() -> None:
    epochs = tuple(Noted(name="epoch", wall_s=NOW_S - 5 * n, value=13.0 - n, moment=True) for n in range(5))
    process = metered(noted=epochs, slow_steps=())
    opened = ProcessView(process=process, frame=RUNNING, found=full(process, RUNNING), past=History(), look=Look())
    axis = now(opened, 160, 4)[2].text
    assert "│9   │10  │11  │12  │" in axis


def test_a_hostile_name_moves_nothing_on_the_axis() -> None:
    process = metered(noted=(Noted(name="世界" * 20, wall_s=NOW_S - 9, value=1.0, moment=True),))
    opened = ProcessView(process=process, frame=RUNNING, found=full(process, RUNNING), past=History(), look=Look())
    assert all(strip.cell_length == 120 for strip in now(opened, 120, 4))


def test_the_diagnosis_has_a_line_of_the_steps_of_each_metered_job() -> None:
    frame = late(38.7, slow_step_count=3, step_window=90)(60.0)
    shown = text(page(Diagnosis(update=Update(frame=frame, jobs=after(late(38.7)).jobs), seconds=60.0)))
    assert "310 ms per step, 2 % waiting for data" in shown
    assert "3 of 90 steps took over 2 × the median" in shown
    assert "rank 2 waits 120 ms for data in each step, the others 5.0 ms: all 4 ranks take 310 ms per step" in shown
    plain = team()
    assert "Steps" not in text(page(Diagnosis(update=Update(frame=plain(60.0), jobs=after(plain).jobs), seconds=60.0)))
