"""Field values: what their bytes mean, whatever type the driver says they have."""

from __future__ import annotations

import math
from struct import pack

import pytest

from gputop.collect.nvml.field_values import _value
from tests.fakenvml import Fake
from tests.nvml_child import Child


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


def test_errors_are_counted_though_the_driver_gives_them_no_type(fake: Fake) -> None:
    fake.update({"gpus": 1, "gpu.0.fields_untyped": "3 4 82"})
    with Child(fake, gpm="off") as child:
        gpu = child.sweep().gpu(0)
    assert (gpu["ecc_corrected"], gpu["ecc_uncorrected"], gpu["memory_temperature_celsius"]) == (3, 0, 73)


def test_an_entry_that_the_driver_leaves_alone_is_unknown(fake: Fake) -> None:
    fake.update({"gpus": 1, "gpu.0.fields_untouched": "3 186"})
    with Child(fake, gpm="off") as child:
        seen = child.sweep()
    assert (seen.gpu(0)["ecc_corrected"], seen.gpu(0)["power_instant_watts"]) == (None, None)
    assert seen.reasons(0)["ecc_corrected"] == "absent"
    assert seen.gpu(0)["ecc_uncorrected"] == 0
