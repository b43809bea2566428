"""The host across the screen, where it has no column."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gputop.history import History
from gputop.model import Pressure
from gputop.ui.panes.host import USAGE_LEAST, USAGE_MOST, usage
from gputop.ui.theme import ASCII, PLAIN, Look
from tests.servers import GIB, HOST, frame, server


def drawn(width: int, height: int, **host: object) -> list[str]:
    now = frame((), host=replace(HOST, **host))  # type: ignore[arg-type]
    return [strip.text for strip in usage(now, History(), width, height, Look(PLAIN))]


def test_four_charts_have_their_values() -> None:
    lines = drawn(
        120, 8, cpu_percent=12.0, cpus_total=64, memory_used_bytes=33 * GIB, memory_total_bytes=256 * GIB,
        read_bytes_per_s=6e6, write_bytes_per_s=12e6, receive_bytes_per_s=3e6, send_bytes_per_s=1e6,
    )  # fmt: skip
    assert len(lines) == 8
    assert lines[0].startswith("─ host ─")
    for said in ("cpu  12%  64 cores", "mem  33.0/256G  13%", "storage  r6M w11M", "net  in 3M out 977K"):
        assert said in lines[1], said


@pytest.mark.parametrize("glyphs", [Look(PLAIN), Look(PLAIN, ASCII)])
@pytest.mark.parametrize("width", [4, 27, 60, 80, 119, 159])
@pytest.mark.parametrize("height", [1, 2, USAGE_LEAST, USAGE_MOST])
def test_it_fills_its_place(width: int, height: int, glyphs: Look) -> None:
    now, past = server(4)
    strips = usage(now, past, width, height, glyphs)
    assert len(strips) == height
    assert {strip.cell_length for strip in strips} == {width}


def test_what_the_machine_is_short_of_has_a_sign() -> None:
    waits = {"iowait_percent": 31.0, "io_pressure": Pressure(some_percent=70.0)}
    lines = drawn(120, 8, cpu_percent=99.0, memory_used_bytes=250 * GIB, memory_total_bytes=256 * GIB, **waits)
    assert "cpu  !99%" in lines[1]
    assert "mem  ▲250.0/256G" in lines[1]
    assert "io !70" in lines[0]
    assert "iowait !31%" in lines[0]


def test_what_is_unknown_is_not_zero() -> None:
    nothing = dict.fromkeys(
        ("cpu_percent", "cpus_total", "memory_used_bytes", "memory_total_bytes", "read_bytes_per_s",
         "write_bytes_per_s", "receive_bytes_per_s", "send_bytes_per_s", "load", "iowait_percent", "cpu_pressure",
         "io_pressure", "memory_pressure"),
    )  # fmt: skip
    lines = drawn(120, 6, **{**nothing, "load": ()})
    assert "0" not in lines[1].replace("axis 95M/s", "").replace("axis 10M/s", "").replace("axis 9M/s", "")


def test_an_axis_is_named_whole_or_not_at_all() -> None:
    busy = {"receive_bytes_per_s": 8.1 * GIB, "send_bytes_per_s": 205e6, "write_bytes_per_s": 1e9}
    assert "…" not in drawn(120, 6, **busy)[1]


def test_of_few_charts_those_are_there_that_the_machine_is_short_of() -> None:
    calm = {"io_pressure": Pressure(some_percent=0.0, full_percent=0.0), "iowait_percent": 1.0}
    titles = " ".join(drawn(80, 7, **calm)[1].split())
    assert titles.startswith("cpu")
    assert "mem" in titles
    waits = drawn(80, 7, io_pressure=Pressure(some_percent=70.0, full_percent=60.0), cpu_percent=9.0)[1]
    assert "storage" in waits
    assert "mem" not in waits


def test_in_the_first_minute_it_says_since_when() -> None:
    now, past = frame((), host=replace(HOST, cpu_percent=50.0)), History()
    for second in range(9):
        past.add(replace(now, mono_s=now.mono_s + second, wall_s=now.wall_s + second), 1.0, frozenset())
    top, _, *rows = [strip.text for strip in usage(now, past, 120, 7, Look(PLAIN))]
    assert "since 9 s" in top
    assert rows[-1].startswith(" " + "·" * 17 + "█" * 9), rows
    assert "since" not in usage(now, past, 60, 7, Look(PLAIN))[0].text, "no room for it"


def test_a_full_port_has_a_sign_and_its_chart_wherever_there_are_few() -> None:
    (port, *_) = HOST.networks
    full = replace(port, speed_bytes_per_s=10e9 / 8, receive_bytes_per_s=0.95 * 10e9 / 8, send_bytes_per_s=0.0)
    calm = {"io_pressure": Pressure(some_percent=0.0, full_percent=0.0), "iowait_percent": 1.0}
    titles = drawn(80, 7, networks=(full,), cpu_percent=11.0, **calm)[1]
    assert "net  !in" in titles
    shown = frame((), host=replace(HOST, cpu_percent=98.0))
    past = History()
    past.add(shown, 1.0, frozenset())
    look = Look()
    inks = {look.ink("█", token).style for token in ("warn area", "busy area")}
    drawn_in = {part.style for part in usage(shown, past, 120, 7, look)[-1] if "█" in part.text}
    assert look.ink("█", "warn area").style in drawn_in & inks, "a saturated CPU is not drawn as one that is well"
    assert "mem" not in titles
