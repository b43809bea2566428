"""The three trips through the code are as short as they are said to be, and each step is one that the code shows."""

from __future__ import annotations

import pytest

from tests.house import TRIPS, lost_on, modules


@pytest.mark.parametrize("trip", TRIPS)
def test_a_trip_is_short_and_each_file_leads_to_the_next(trip: str) -> None:
    most, names = TRIPS[trip]
    assert len(names.split()) <= most
    assert lost_on(trip, modules()) == []
