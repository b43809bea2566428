"""Field values: what their bytes mean, whatever type the driver says they have."""

from __future__ import annotations

import math
from struct import pack

import pytest

from gputop.collect.nvml.fields import _value


@pytest.mark.parametrize(
    ("kind", "raw", "value"),
    [
        (0, pack("=Q", 7), 7),  # ECC counters of older drivers: a whole number, its type left at that of a double
        (0, pack("=Q", 0), 0),
        (0, pack("=II", 61, 0), 61),
        (0, pack("=d", 61.5), 61.5),
        (0, pack("=d", 0.0), 0),
        (0, pack("=d", -8.0), -8),
        (1, pack("=II", 61, 0xDEAD), 61),
        (3, pack("=Q", 1 << 40), 1 << 40),
        (4, pack("=q", -8), -8),
        (5, pack("=i4x", -8), -8),
        (6, pack("=H6x", 9), 9),
        (99, pack("=Q", 7), None),
    ],
)
def test_a_value_is_what_its_bytes_say(kind: int, raw: bytes, value: float | None) -> None:
    assert _value(kind, raw) == value


def test_no_number_is_none() -> None:
    assert math.isnan(_value(0, pack("=d", math.nan)) or 0)
