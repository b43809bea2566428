"""What a person reads in place of a metric's name, wherever a check that lacks it is reported."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gputop.diagnose.rules import RULES
from gputop.model.metric_title import metric_title

PROGRAM = Path(__file__).parents[2] / "gputop"


def judged_metrics() -> set[str]:
    """Every name with which a check may be skipped: what rules need, and what they abstain for."""
    found = {name for rule in RULES.values() for need in (*rule.needs, *rule.partly) for name in need.split(" or ")}
    for path in (PROGRAM / "diagnose").rglob("*.py"):
        found |= set(re.findall(r'Missing\(metric="([a-z_]+)"', path.read_text()))
    return found


def test_every_metric_of_a_skipped_check_has_a_title() -> None:
    assert len(judged_metrics()) > 50
    raw = {name: title for name in judged_metrics() if "_" in (title := metric_title(name)) and not title.isupper()}
    assert raw == {}
    assert {name for name in judged_metrics() if not metric_title(name) or len(metric_title(name)) > 50} == set()


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("busy_percent", "GPU busy"),
        ("read_chars_per_s", "bytes read by system calls"),
        ("power_watts or memory_busy_percent", "board power or memory utilization"),
        ("run_wait_percent", "run queue wait"),
        ("not_a_metric", "not_a_metric"),
    ],
)
def test_titles(name: str, title: str) -> None:
    assert metric_title(name) == title
