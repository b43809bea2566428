"""A loss that is NaN: told at once with its step and row 68's advice in its order, and only where it was watched."""

from __future__ import annotations

from typing import Any

import pytest

from gputop.model import Noted
from tests.rank_teams import lines, of, team
from tests.rule_cases import Machine, after, found

LOST = Noted(name="loss", wall_s=1.0, finite=False, step=412)
NOW = Noted(name="loss", wall_s=9.0, finite=False, step=500)
NORM = Noted(name="grad_norm", wall_s=9.0, value=3.5, step=500)


def noting(**known: Any) -> Machine:
    return Machine(trainer={"metered": True, "noted": (NOW, NORM), **known})


def test_a_loss_that_is_no_number_is_critical_with_its_step_and_the_advice_in_order() -> None:
    finding = found(noting(non_finite=LOST).verdict(30), "non-finite")
    assert finding is not None
    assert (finding.severity, finding.primary, finding.headline) == (
        "crit",
        True,
        "loss NaN or infinite at step 412",
    )
    assert lines(finding) == [
        "reported by the program: loss not finite at step 412",
        "88 optimizer steps since then",
        "also reported: grad_norm 3.5",
    ]
    order = ("Clip gradients", "anomaly detection", "forward pass", "learning rate", "initialization")
    assert len(finding.steps) == len(order)
    assert all(part in step.text for part, step in zip(order, finding.steps, strict=True))


def test_nothing_is_judged_where_nobody_watches() -> None:
    assert found(noting().verdict(30), "non-finite") is None


@pytest.mark.parametrize("first", [0, 3])
def test_of_all_ranks_the_first_is_told_of(first: int) -> None:
    lost = {rank: {"non_finite": Noted(name="loss", wall_s=2.0, finite=False, step=413)} for rank in range(4)}
    frame = team(trainer=of({**lost, first: {"non_finite": LOST}}))
    told = [one for one in after(frame, 30).findings if one.rule == "non-finite"]
    assert [lines(one)[0] for one in told] == [f"reported by rank {first} first: loss not finite at step 412"]
