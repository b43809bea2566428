"""The GPU pane of each class of devices, drawn from what the reader reads of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from gputop.history import History
from gputop.ui.gpus.pane import DENSITIES, Density, gpus, lines
from gputop.ui.theme import ASCII, PLAIN, Look
from tests import device_profiles
from tests.device_profiles import each, later

SIZES = [(80, 24), (120, 40), (200, 60)]


def past(name: str, idle: bool) -> tuple[device_profiles.Frame, History]:
    """A machine of this class after a minute in which nothing changed."""
    kept = History()
    for second in range(61):
        now = device_profiles.frame(tuple(later(gpu, second) for gpu in device_profiles.gpus(name, idle)), second)
        kept.add(now)
    return now, kept


@each
def test_golden(golden: Callable[[str, str], None], name: str) -> None:
    drawn = []
    for idle in (False, True):
        now, kept = past(name, idle)
        for width, height in SIZES:
            strips = gpus(now, kept, width, int(height * 0.45), Look(PLAIN, ASCII if width == 80 else Look().glyphs))
            assert all(strip.cell_length == width for strip in strips)
            drawn += [f"--- {'at rest' if idle else 'at work'}, {width} x {height}", *(s.text.rstrip() for s in strips)]
    golden(f"gpus-profile-{name}.txt", "\n".join(drawn) + "\n")


@pytest.mark.parametrize("density", DENSITIES)
@each
def test_each_density_can_be_drawn(name: str, density: Density) -> None:
    now, kept = past(name, idle=False)
    for width, height in SIZES:
        strips = gpus(now, kept, width, height, Look(PLAIN), density=density)
        assert strips
        assert len(strips) <= max(height, lines(density, width, height, len(now.gpus)))
        text = "\n".join(strip.text for strip in strips)
        assert "None" not in text
        assert "nan" not in text
        assert "749" not in text


@each
def test_what_is_unknown_in_the_first_frame_is_no_zero(name: str) -> None:
    (first, *_) = device_profiles.gpus(name)
    bare = replace(first, missing=(), **dict.fromkeys(("busy_percent", "power_watts", "vram_used_bytes")))
    text = "\n".join(strip.text for strip in gpus(device_profiles.frame((bare,)), History(), 120, 18, Look(PLAIN)))
    assert " 0%" not in text.splitlines()[0]
