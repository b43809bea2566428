"""The GPU pane: three densities at three sizes, one to sixty-four GPUs, well and unwell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputop.history import History
from gputop.model import Gpu, Missing
from gputop.safe.text import clean
from gputop.ui.gpus.pane import DENSITIES, Density, columns, gpus, grid, lines, pick
from gputop.ui.gpus.scene import inventory, short_name, with_instances
from gputop.ui.theme import ASCII, PLAIN, TERMINAL, Look
from tests.hostile import STRINGS
from tests.servers import GIB, HOST, capped, frame, gpu, idle, server

SIZES = [(80, 24), (120, 40), (200, 60)]
READABLE = Look(PLAIN)  # without colour a bar differs from its track in text too


def pane(width: int, height: int, *cards: Gpu, look: Look = READABLE, density: Density | None = None) -> list[str]:
    """The pane's lines as text, for GPUs without a past."""
    strips = gpus(frame(cards), History(), width, height, look, density=density)
    return [strip.text for strip in strips]


@pytest.mark.parametrize(("width", "height"), SIZES)
@pytest.mark.parametrize("count", [1, 8, 16, 64])
@pytest.mark.parametrize("glyphs", ["unicode", "ascii"])
def test_golden(golden: Callable[[str, str], None], width: int, height: int, count: int, glyphs: str) -> None:
    look = READABLE if glyphs == "unicode" else Look(PLAIN, ASCII)
    now, past = server(count)
    strips = gpus(now, past, width, int(height * 0.45), look)
    assert all(strip.cell_length == width for strip in strips)
    golden(f"gpus-{width}x{height}-{count}-{glyphs}.txt", "\n".join(strip.text.rstrip() for strip in strips) + "\n")


@pytest.mark.parametrize(
    ("width", "height", "count", "density"),
    [
        (80, 10, 1, "card"), (80, 10, 2, "row"), (80, 10, 8, "row"), (80, 10, 16, "cell"), (80, 10, 64, "tiny"),
        (120, 18, 2, "card"), (120, 18, 4, "card"),
         (120, 18, 8, "row"), (120, 18, 16, "row"), (120, 18, 32, "cell"), (120, 18, 64, "tiny"),
        (200, 27, 3, "card"), (200, 27, 16, "row"), (200, 27, 64, "cell"), (40, 9, 8, "cell"), (30, 9, 8, "tiny"),
        (1, 1, 8, "tiny"),
    ],
)  # fmt: skip
def test_the_richest_density_that_fits(width: int, height: int, count: int, density: str) -> None:
    assert pick(width, height, count) == density


@pytest.mark.parametrize("density", DENSITIES)
@pytest.mark.parametrize("count", [1, 2, 7, 8, 16, 64])
def test_lines_are_as_many_as_said(density: Density, count: int) -> None:
    now, past = server(count)
    for width, height in ((80, 10), (120, 18), (200, 27)):
        drawn = gpus(now, past, width, height, Look(), density=density)
        assert len(drawn) == min(height, lines(density, width, height, count)) or density == "card"
        assert len(drawn) <= height


def test_colour_is_only_on_what_the_trouble_rests_on() -> None:
    now, past = server(8)
    tokens = {Look().style(token).color: token for token in ("crit", "warn")}
    coloured = [
        (y, segment.text.strip())
        for y, strip in enumerate(gpus(now, past, 124, 16, Look()))
        for segment in strip
        if segment.style and segment.style.color in tokens
    ]
    assert coloured == [(7, "88°C"), (7, "1410"), (7, "▲ thermal")]


@pytest.mark.parametrize(("width", "density"), [(124, "row"), (120, "card")])
def test_what_is_unwell_has_the_colour_of_its_state(width: int, density: Density) -> None:
    """Utilisation alone: memory and power are no part of it."""
    now, past = server(8)
    strips = gpus(now, past, width, 40, Look(), density=density)
    red = {Look().style(token).color for token in ("crit area", "warn area")}
    shaded = [segment.text for strip in strips for segment in strip if segment.style and segment.style.color in red]
    assert shaded
    hot = next(place for place, strip in enumerate(strips) if "thermal" in strip.text)
    rows = (hot,) if density == "row" else range(hot, hot + 8)
    others = [strip for place, strip in enumerate(strips) if place not in rows]
    assert not [s.text for strip in others for s in strip if s.style and s.style.color in red and s.text.strip()]


def test_zeros_and_unknowns_never_compete_with_values() -> None:
    dim = Look().style("dim")
    now, past = server(8)
    row = gpus(now, past, 124, 16, Look())[8]
    assert {"7", "0%", "0", "1m", "1s"} <= set(" ".join(s.text for s in row if s.style == dim).split())
    unknown = gpus(frame((Gpu(uuid="a", index="0", name="NVIDIA H100"),)), History(), 124, 2, Look(), density="row")[1]
    assert {s.style for s in unknown if "·" in s.text} == {dim}


def test_n14_columns_stay_aligned_without_power_fan_and_temperature() -> None:
    bare = gpu(1, power_watts=None, power_limit_watts=None, temperature_celsius=None, sm_clock_mhz=None)
    title, whole, without = pane(124, 16, gpu(0), bare, density="row")
    for word in ("temp", "power", "SM MHz", "PCIe rx/s"):
        end = title.index(word) + len(word)
        assert whole[end - 1] != " ", word
        assert without[end - 1] in "·G", word
    assert without.index("busy") == whole.index("busy")


def test_a_column_that_no_gpu_can_fill_is_not_there() -> None:
    denied = tuple(
        Missing(metric=name, reason="unsupported")
        for name in ("pcie_rx_bytes_per_s", "pcie_tx_bytes_per_s", "tensor_percent")
    )
    cards = [gpu(n, pcie_rx_bytes_per_s=None, tensor_percent=None, missing=denied) for n in range(2)]
    title = pane(200, 16, *cards, density="row")[0]
    assert [name for name in ("PCIe rx/s", "tensor", "SM act") if name in title] == ["SM act"]
    cards[0] = replace(cards[0], missing=())
    assert "PCIe rx/s" in pane(200, 16, *cards, density="row")[0], "unknown in the first frame is not unsupported"


def test_n13_unified_memory_is_the_hosts() -> None:
    shared = gpu(0, unified_memory=True, vram_total_bytes=None, vram_used_bytes=None, name="NVIDIA GB10")
    host = replace(HOST, memory_total_bytes=119 * GIB, memory_used_bytes=34 * GIB)
    now = frame((shared, shared), host=host)
    row = gpus(now, History(), 90, 10, READABLE, density="row")[1].text
    assert "unified" in row
    assert "34.0/119G" in row
    card = gpus(now, History(), 120, 18, READABLE, density="card")
    assert "unified 34.0/119G" in "".join(strip.text for strip in card)
    assert "vram" not in "".join(strip.text for strip in card)


@pytest.mark.parametrize(
    ("change", "word", "short"),
    [
        ({"condition": "lost", "condition_s": 47.0}, "▲ lost 47s", "LOST"),
        ({"condition": "hung", "condition_s": 5.0, "age_s": 5.0}, "▲ hung 5s", "HUNG"),
        ({"age_s": 9.0}, "  9s old", "9s OLD"),
    ],
)
def test_n07_n09_a_gpu_that_does_not_answer_says_so_and_is_dim(
    change: dict[str, object], word: str, short: str
) -> None:
    sick = gpu(1, **change)
    row = gpus(frame((gpu(0), sick)), History(), 80, 10, Look(), density="row")[2]
    assert row.text.rstrip().endswith(word)
    bright = [Look().style("text"), Look().style("bright"), Look().style("busy"), Look().style("memory")]
    assert [s.text for s in row if s.style in bright and s.text.strip()] == []
    assert pane(40, 10, gpu(0), sick, density="tiny")[2].rstrip().endswith(short)
    assert word.strip() in pane(120, 18, sick, density="card")[0]


def test_n06_a_gpu_of_which_nothing_is_known_keeps_its_row() -> None:
    lost = Gpu(uuid="GPU-x", index="0", name="", condition="lost", condition_s=3.0)
    for density in DENSITIES:
        assert any("lost" in line.lower() for line in pane(100, 18, lost, gpu(1), density=density))


def test_mig_instances_stand_under_their_card() -> None:
    card = gpu(0, mig_mode=True, busy_percent=None)
    parts = [
        gpu(1, uuid=f"MIG-{n}", index=f"0:{n}", parent_uuid=card.uuid, name="NVIDIA H100 80GB HBM3 MIG 1g.10gb",
            busy_percent=None, vram_total_bytes=10 * GIB, vram_used_bytes=3 * GIB)
        for n in range(3)
    ]  # fmt: skip
    rows = pane(124, 16, *parts, card, gpu(9), density="row")
    assert [row.split()[:2] for row in rows[1:]] == [
        ["0", "H100-80G"], ["└0:0", "1g.10gb"], ["└0:1", "1g.10gb"], ["└0:2", "1g.10gb"], ["9", "H100-80G"],
    ]  # fmt: skip
    assert rows[1].rstrip().endswith("mig")
    assert "3.0/10G" in rows[2]
    assert inventory((card, *parts)) == "1×H100-80G"
    assert with_instances(parts) == parts, "an instance without its card is still shown"


def test_sixty_four_gpus_scroll() -> None:
    now, past = server(64)
    top = [strip.text for strip in gpus(now, past, 80, 10, READABLE)]
    assert top[0].rstrip().endswith("37 more")
    end = [strip.text for strip in gpus(now, past, 80, 10, READABLE, first=10_000)]
    assert len(end) == 10
    assert [cell.split()[0] for cell in end[-1].split("│")] == ["45", "54", "63"]
    assert grid("tiny", 80, 10, 64).furthest == 64 - 9 * 3
    cards = [strip.text for strip in gpus(now, past, 120, 18, READABLE, density="card", first=63)]
    tops = [line for line in cards if "MHz" in line]
    assert [part.split()[0] for line in tops for part in line.split("│")] == ["58", "59", "60", "61", "62", "63"]


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("NVIDIA H100 80GB HBM3", "H100-80G"), ("NVIDIA A100-SXM4-40GB", "A100-40G"), ("NVIDIA H200", "H200"),
        ("Tesla V100-SXM2-32GB", "V100-32G"), ("NVIDIA GeForce RTX 4090", "RTX 4090"), ("NVIDIA L40S", "L40S"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada"), ("NVIDIA A100 80GB PCIe", "A100-80G"), ("", ""),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "1g.10gb"), ("NVIDIA", "NVIDIA"),
    ],
)  # fmt: skip
def test_short_names(name: str, short: str) -> None:
    assert short_name(name) == short


@given(st.sampled_from(STRINGS), st.integers(1, 220), st.integers(1, 30), st.sampled_from(DENSITIES))
@settings(max_examples=60)
def test_whatever_the_driver_says_the_pane_keeps_its_width(
    name: str, width: int, height: int, density: Density
) -> None:
    cards = (gpu(0, name=clean(name), index=clean(name)[:4]), capped(1), idle(2))
    for look in (Look(), Look(TERMINAL, ASCII)):
        for strip in gpus(frame(cards), History(), width, height, look, density=density):
            assert strip.cell_length == width
            assert look.glyphs is not ASCII or strip.text.isascii()


def test_cards_say_how_many_there_is_no_room_for() -> None:
    cards = [gpu(number) for number in range(8)]
    assert pane(120, 18, *cards, density="card")[-1].endswith("  2 more")
    assert "more" not in "".join(pane(120, 60, *cards, density="card"))


def test_cards_side_by_side_have_their_values_beside_their_histories() -> None:
    now, past = server(4)
    lines = [strip.text for strip in gpus(now, past, 120, 12, READABLE, density="card")]
    assert len(lines) == 12
    left = [line.partition("│")[0].rstrip() for line in lines[:6]]
    assert left[0].split() == ["0", "H100-80G", "64°C", "1980MHz", "busy"]
    assert left[1].startswith(" busy 58%           ")
    assert left[2].startswith(" avg  58%           ▆▄▄████")
    assert left[3].startswith(" VRAM 66.1/80G      ▆")
    assert left[4].startswith(" power 402/700W     ▅")
    assert left[5].startswith(" PCIe rx/s 1.9G tx/s 307M")
    assert {len(line) for line in lines} == {120}


@pytest.mark.parametrize(
    ("width", "count", "many"),
    [(80, 4, 1), (115, 4, 2), (120, 4, 2), (120, 1, 1), (200, 4, 2), (200, 8, 3), (400, 8, 4)],
)
def test_cards_stand_in_rows_of_about_the_same_number(width: int, count: int, many: int) -> None:
    assert columns("card", width, 30, count) == many


def test_nothing_to_draw() -> None:
    assert gpus(frame(), History(), 80, 10, Look()) == []
    assert gpus(frame((gpu(0),)), History(), 0, 10, Look()) == []
    assert gpus(frame((gpu(0),)), History(), 80, 0, Look()) == []
