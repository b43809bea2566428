"""Guides that others wrote: named under a finding where they cover it, and nowhere else."""

from __future__ import annotations

from gputop.diagnose.further_reading import AUTODL, PYTORCH, guides
from gputop.ui.advice.pages import PAGES, expanded
from gputop.ui.advice.scene import AdviceScene
from gputop.ui.theme import Look
from tests.advice_scenes import NAMES, finding_list, fine, found, hot, update


def test_who_wrote_about_it_is_named_where_it_fits() -> None:
    starved = found(causes=("io-bound",))
    assert guides(starved) == [AUTODL, PYTORCH], "the causes' first"
    assert guides(found(rule="mem-bw-bound", causes=())) == [PYTORCH]
    assert [guides(one) for one in (hot(), fine(), found(healthy=True))] == [[], [], []]
    told = update(starved)
    made = AdviceScene(update=told, finding_list=finding_list(told), look=Look(), keys=NAMES, focused=True)
    for width in (40, 80, 120):
        said = "".join(strip.text.strip() for strip in expanded(made, PAGES[0], 0, width, 60).strips)
        assert PYTORCH.address in said
        assert AUTODL.address in said
