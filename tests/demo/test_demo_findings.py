"""Who opens a demo sees what it is there to show."""

from __future__ import annotations

import itertools

import pytest

from gputop.demo import open_demo
from gputop.monitor import Monitor
from tests.score.truths import BESIDE, EXPECTED

SHOWCASE = {"network-fs-bound": (0, 1, 2, 3), "power": (4, 5), "thermal": (6,), "zombie-memory": (7,)}
PLANTED = {name: truth.primary for name, truth in {**EXPECTED, **BESIDE}.items()}


@pytest.mark.parametrize("name", PLANTED)
def test_a_demo_shows_its_finding_as_it_opens(name: str) -> None:
    update = next(Monitor(open_demo(name, pace=False)).updates())
    assert PLANTED[name] in {rule for finding in update.findings for rule in (finding.rule, *finding.causes)}


@pytest.mark.parametrize("after_s", [0, 300])
def test_the_showcase_tells_all_of_its_four_troubles_at_once_and_to_its_end(after_s: int) -> None:
    update = next(itertools.islice(Monitor(open_demo("showcase", pace=False)).updates(), after_s, None))
    places = {gpu.uuid: place for place, gpu in enumerate(update.frame.gpus)}
    told = {one.rule: tuple(places[uuid] for uuid in one.subject.gpus) for one in update.findings}
    assert told == SHOWCASE


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("h2d-transfer-bound", "steps are too short to be seen one by one"),
        ("starved-cpu-idle", "rising and falling every 0.8 s"),
        ("io-bound", "rising and falling every 1.3 s"),
    ],
)
def test_the_length_of_steps_is_told_only_where_samples_can_show_it(name: str, steps: str) -> None:
    assert told_of(name, steps)


def test_who_does_not_pin_its_memory_is_told_to() -> None:
    assert told_of("h2d-transfer-bound", "pin_memory=True")


def told_of(name: str, words: str) -> bool:
    """Whether what leads in a demo, as it opens, is told with these words."""
    update = next(Monitor(open_demo(name, pace=False)).updates())
    lead = next(one for one in update.findings if one.primary)
    said = (*(item.text for item in lead.evidence), *(step.command or "" for step in lead.steps))
    return any(words in text for text in said)
