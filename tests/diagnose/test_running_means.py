"""Running sums: means with gaps, at any pace, of whoever comes and goes."""

from __future__ import annotations

import pytest

from gputop.diagnose.running_means import RunningSums


def test_sums_are_means_with_gaps_and_at_any_pace() -> None:
    names, sums = {"x": 0, "y": 1}, RunningSums()
    for second in range(1, 301):
        sums.add(float(second), 1.0, [("a", names, (float(second), None if second % 2 else 4.0))])
    assert (sums.means("a", 10, 0).get("x"), sums.means("a", 10, 0).get("y")) == (295.5, 4.0)
    assert (sums.means("a", 10, 6).get("x"), sums.means("a", 10, 6).get("y")) == (295.5, None)
    sums.add(305.0, 5.0, [("a", names, (0.0, None))])
    assert sums.means("a", 10, 0).get("x") == pytest.approx((296 + 297 + 298 + 299 + 300) / 10)
    young = RunningSums()
    young.add(1.0, 1.0, [("a", {"x": 0}, (7.0,))])
    known = young.means("a", 30, 0).get
    assert (known("x"), young.means("a", 30, 15).get("x"), known("z")) == (7.0, None, None)
    assert young.means("b", 30, 0).get("x") is None


def test_sums_of_who_comes_are_not_those_of_who_stood_there_before() -> None:
    names, sums = {"x": 0}, RunningSums()
    for second in range(1, 61):
        others = [("a", names, (8.0,))] if second <= 30 else []
        late = [("b", names, (float(second),))] if second > 40 else []
        sums.add(float(second), 1.0, [("host", names, (1.0,)), *others, *late])
        if second == 30:
            sums.drop("a")
    assert [sums.means(key, 50, 0).get("x") for key in ("host", "a", "b")] == [1.0, None, 50.5]
    assert sums.means("b", 10, 0).get("x") == 55.5
