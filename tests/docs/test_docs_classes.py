"""The manual's table of which GPU has which metric: made of what the reader reads of each class of devices."""

from __future__ import annotations

from pathlib import Path

import pytest

from gputop import docs
from gputop.docs.markdown import table
from gputop.model import Gpu, metrics
from tests.device_profiles import frame, gpus
from tests.fakenvml.profiles import PROFILES, Profile

PAGE = Path(docs.__file__).parent / "metrics.md"
BEGIN, END = "<!-- classes -->\n", "<!-- /classes -->\n"
WORDS = {"unsupported": "no", "stale": "no"}
HOST = "GPU and host share one memory"


def _why(cards: tuple[Gpu, ...], metric: str) -> str:
    """Whether a card, or its instance, has it; the card's reason where neither has."""
    if any(getattr(card, metric) is not None for card in cards):
        return "yes"
    missing = next(one for one in cards[0].missing if one.metric == metric)
    return "host" if missing.unlock == HOST else WORDS.get(missing.reason, missing.reason)


def _cell(profile: Profile, cards: tuple[Gpu, ...], metric: str) -> str:
    if metric in profile.unknown:
        return "?"
    return f"{_why(cards, metric)}{', dump' if metric in profile.seen else ''}"


def class_tables() -> str:
    """The classes, and every metric of a GPU on each of them."""
    classes = table(
        ("class", "GPU", "driver"), [(f"`{one.name}`", one.device, one.driver) for one in PROFILES.values()]
    )
    cards = {name: frame(gpus(name)).gpus for name in PROFILES}
    rows = [
        (f"`{metric.name}`", *(_cell(profile, cards[name], metric.name) for name, profile in PROFILES.items()))
        for metric in metrics(Gpu)
    ]
    return f"{classes}\n\n{table(('metric', *PROFILES), rows)}\n"


def test_the_manual_says_which_gpu_has_which_metric(request: pytest.FixtureRequest) -> None:
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    wanted = f"{before}{BEGIN}{class_tables()}{END}{after}"
    if request.config.getoption("--golden"):
        PAGE.write_text(wanted, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == wanted, "write it with --golden"


def test_a_dump_that_shows_a_value_agrees_with_the_class() -> None:
    """What nvidia-smi prints as N/A of such a card is `no` here, and what it prints is `yes`."""
    cards = {name: frame(gpus(name)).gpus for name in PROFILES}
    shown = {
        ("rtx4090-550", "ecc_uncorrected"): "no",
        ("rtx4090-550", "boost_clock_max_mhz"): "no",
        ("rtx4090-550", "remapped_uncorrected"): "yes",
        ("h100-550", "power_memory_watts"): "no",
        ("h200-580", "power_memory_watts"): "yes",
        ("gb10", "vram_total_bytes"): "host",
        ("laptop", "fan_percent"): "no",
        ("laptop", "power_instant_watts"): "implausible",
        ("mig-container", "vram_used_bytes"): "yes",  # of the instance
        ("wsl", "fan_percent"): "no",
        ("cc-h200", "power_watts"): "yes",
    }
    assert {(name, metric): _why(cards[name], metric) for name, metric in shown} == shown
    assert all(metric in PROFILES[name].seen for name, metric in shown)
    assert all(not profile.seen & profile.unknown for profile in PROFILES.values())


def test_the_page_reads_without_marks() -> None:
    page = docs.read("metrics")
    assert "| `busy_percent`" in page.partition("## Which GPU has which metric")[2]
    assert "classes -->" not in page
