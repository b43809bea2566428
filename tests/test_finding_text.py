"""A finding in words: the limits beside its numbers, and for how long it has been so."""

from __future__ import annotations

import re

import pytest

from gputop import finding_text
from gputop.diagnose import Evidence
from gputop.diagnose.finding import Grade
from gputop.export import diagnosis
from tests.advice_scenes import fine, found, server


@pytest.mark.parametrize(
    ("unit", "limit", "text", "said"),
    [
        ("B/s", 1_040_073_472.0, "it reads 0.30 GB/s", "1.04 GB/s"),
        ("B/s", 50e6, "reads 12 MB/s", "50 MB/s"),
        ("B/s", 1_500_000.0, "reads 0.2 MB/s", "1.5 MB/s"),
        ("B/s", 20e3, "writes nothing", "20 kB/s"),
        ("B/s", 50e6, "reads 12 MB/s, below 50 MB/s", ""),
        ("B", 64e3, "a read is 9 kB", "64 kB"),
        ("B", 1e8, "12.1G are written", "100 MB"),
        ("B", 67108864.0, "+192M in 3 min", "64.0M"),
        ("B", 427_819_008.0, "+5.2G in 15 min", "408M"),
        ("s", 900.0, "without work for 32 min 30 s", "15 min"),
        ("s", 21600.0, "full in about 46 min", "6 h"),
        ("cores", 1.0, "7.9 of 16 CPU cores in use", "1 core"),
        ("cores", 14.0, "15 of 16 CPU cores in use", "14 cores"),
        ("1/s", 1000.0, "swap traffic 9300 pages/s", "1000/s"),
        ("%", 5.0, "uses 7.5 % of a core", "5 %"),
        ("%", 80.0, "GPU busy 80 %", "80 %"),
        ("C", 90.0, "90 °C, slowdown at 90 °C", ""),
        ("s", 5.0, "threads sampled every 16 s", "5 s"),
    ],
)
def test_a_limit_reads_as_the_number_beside_it(unit: str, limit: float, text: str, said: str) -> None:
    number = re.search(r"\d+(?:\.\d+)?", text)
    item = Evidence(text=text, value=float(number[0]) if number else None, unit=unit, limit=limit)
    assert finding_text.limit(item) == said


@pytest.mark.parametrize(
    ("headline", "said"),
    [
        ("waits for something that no rule can name", "for 6 min"),
        ("runs 64 compute threads on 16 CPUs", "for 6 min"),
        ("shares the CPUs with unet-3d of user bob", "for 6 min"),
        ("waits for /data/7d", "for 6 min"),
        ("has 31.0G held by python 7 of carol, idle for over 10 min", ""),
        ("is out of device memory in about 2 h: it takes 21.1G more every hour", ""),
        ("21 % slower for 7 min 45 s, cause inside the program", ""),
        ("stands still for 24 s every 5 min, while a checkpoint is written", ""),
    ],
)
def test_how_long_it_has_been_so_is_not_told_beside_another_time(headline: str, said: str) -> None:
    assert finding_text.duration_text(found(headline=headline), "6 min") == said


def test_nor_of_what_is_well() -> None:
    assert finding_text.duration_text(fine(), "6 min") == ""


def test_nor_of_what_happened_once() -> None:
    assert finding_text.duration_text(found(evidence=(Evidence(text="Xid 79, 6 s ago", value=79.0),)), "10 s") == ""
    old = Evidence(text="PyTorch 2.0 came out 3.2 years ago", value=3.2)
    assert finding_text.duration_text(found(evidence=(old,)), "10s") == "for 10s"


@pytest.mark.parametrize(
    ("text", "value", "strong"),
    [
        ("uses 3.2 cores of 16", 3.2, "3.2 cores"),
        ("rank 31 of 32 is one of 3", 3.0, "3"),
        ("1,024 threads want to run", 1024.0, "1,024"),
        ("PyTorch 2.13.0, at least 2.13", 2.13, "2.13"),
        ("83 °C, limit of 83.5 °C", 83.2, "83 °C"),
        ("it is -3 °C there", -3.0, "-3 °C"),
        ("no number of this kind: 8", 7.0, ""),
        ("GPU busy 12 %, 12 times", 12.0, "12 %"),
    ],
)
def test_the_number_that_it_rests_on_is_strong(text: str, value: float, strong: str) -> None:
    parts = finding_text.parts(Evidence(text=text, value=value))
    assert "".join(part.text for part in parts) == text
    assert [part.text for part in parts if part.strong] == [strong] * bool(strong)


@pytest.mark.parametrize(
    ("text", "value", "unit", "limit", "shown"),
    [
        ("GPUs 2, 3 idle for 32 min 30 s", 1950.0, "s", 100.0, "GPUs 2, 3 idle for 32 min 30 s (healthy ≥ 1 min 40 s)"),
        ("158G left, full in about 45 min", 2707.6, "s", 21600.0, "158G left, full in about 45 min (healthy ≥ 6 h)"),
        (
            "mlx5_0, mlx5_1 (400 Gb/s each) idle",
            0.0,
            "Gb/s",
            4.0,
            "mlx5_0, mlx5_1 (400 Gb/s each) idle (healthy ≥ 4 Gb/s)",
        ),
        (
            "not ruled out: network receives 4 MB/s",
            4014703.8,
            "B/s",
            5e5,
            "not ruled out: network receives 4 MB/s (healthy ≥ 500 kB/s)",
        ),
        (
            "+5.2G in 15 min, +1.7G per 5 min",
            5567938560.0,
            "B",
            1e8,
            "+5.2G in 15 min (healthy ≥ 100 MB), +1.7G per 5 min",
        ),
        (
            "SM clock 1200 of 1980 MHz (-39 %)",
            1200.0,
            "MHz",
            1485.0,
            "SM clock 1200 of 1980 MHz (healthy ≥ 1485 MHz; -39 %)",
        ),
        ("77.1G of 79.1G in use (97 %)", 97.4, "%", 92.0, "77.1G of 79.1G in use (97 %; healthy ≥ 92 %)"),
        ("in use (97 %, rising), ok", 97.4, "%", 92.0, "in use (97 %, rising; healthy ≥ 92 %), ok"),
        ("active 25-32 % (others 51 %)", 32.0, "%", 10.0, "active 25-32 % (healthy ≥ 10 %; others 51 %)"),
        ("/dev/shm 99 % used: 99.0G of 100G", 99.0, "%", 92.0, "/dev/shm 99 % used (healthy ≥ 92 %): 99.0G of 100G"),
        ("24 workers asleep 24 % of the time", 24.0, "%", 20.0, "24 workers asleep 24 % of the time (healthy ≥ 20 %)"),
        ("8 workers, each 8 % of a core", 8.0, "%", 15.0, "8 workers, each 8 % of a core (healthy ≥ 15 %)"),
        ("GPUs 0, 1 busy 71/37 %", 71.0, "%", 42.0, "GPUs 0, 1 busy 71/37 % (healthy ≥ 42 %)"),
        ("grew for 1 h 12 min", 720.0, "s", 60.0, "grew for 1 h 12 min (healthy ≥ 1 min)"),
        ("reads 1,512 kB", 512e3, "B", 1e3, "reads 1,512 kB (healthy ≥ 1 kB)"),
        ("GPU busy 40 %, rising and falling", 40.2, "%", 80.0, "GPU busy 40 % (healthy ≥ 80 %), rising and falling"),
    ],
)
def test_a_reference_stands_behind_its_number_in_whatever_unit_and_joins_a_bracket(
    text: str, value: float, unit: str, limit: float, shown: str
) -> None:
    item = Evidence(text=text, value=value, unit=unit, limit=limit, sense="healthy_from")
    assert "".join(part.text for part in finding_text.referenced(item)) == shown


@pytest.mark.parametrize(
    ("grade", "said", "in_json"),
    [
        ("correlation", "inferred", "correlation"),
        ("driver", "reported by the driver or kernel", "driver"),
        ("profile", "profiled", "profile"),
        ("job", "reported by the job", "profile"),
    ],
)
def test_the_basis_of_a_finding_has_four_words_and_three_values_in_json(grade: Grade, said: str, in_json: str) -> None:
    finding = found(grade=grade, confidence=0.7)
    assert finding_text.confidence(finding) == f"confidence 0.70 · {said}"
    assert diagnosis.finding(finding, server())["grade"] == in_json
