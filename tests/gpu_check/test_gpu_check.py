"""The GPU check against the fake driver: every item answers, one failure stays one failure, what differs stands out."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

from tests.fakenvml import Fake, NoCompiler
from tests.gpu_check.records import quantile
from tests.gpu_check.signatures import window_s

pytestmark = pytest.mark.waits

VRAM = 3 << 30
ITEMS = {"1", "2a", "2b", "2c", "3", "4", "5", "6", "7", "8", "9", "11", "12", "13"}
TIMES = r"p95 at most|driver time|no dearer|: calls"  # verdicts on how fast this machine is, which is not tested
LOADS = {"2a", "2b", "2c", "4", "5", "7", "12", "9"}  # have a part that needs torch with CUDA


def run(env, *arguments):
    command = (sys.executable, "-m", "tests.gpu_check", "--quick", "--seconds", "0.3", *map(str, arguments))
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=240, check=False)


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def verdicts(records, item):
    return [record for record in records if record["item"] == item and record["kind"] == "verdict"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """One run of everything, two GPUs, a process on the second."""
    folder = tmp_path_factory.mktemp("check")
    try:
        fake = Fake(folder / "driver", gpus=2)
    except NoCompiler as why:
        pytest.skip(f"not covered: {why}")
    fake.add_process(gpu=1, pid=os.getpid(), vram_bytes=VRAM, sm=40)
    return run(fake.env(), "--out", folder / "out"), folder / "out"


def test_every_item_is_answered_and_none_breaks(whole):
    done, out = whole
    assert (done.returncode, done.stderr) == (0, "")
    records = lines(out / "records.jsonl")
    questions = {record["item"]: record["text"] for record in records if record["kind"] == "question"}
    assert questions.keys() == ITEMS
    for item, question in questions.items():
        assert f"{item:>3}  {question}" in done.stdout
        kinds = {record["kind"] for record in records if record["item"] == item}
        assert "failed" not in kinds, f"item {item} broke"
        assert ("skipped" in kinds) == (item in LOADS), f"item {item}"
        assert kinds & {"figures", "fact", "verdict"} or item in ("2c", "4"), f"item {item} said nothing"
    assert all("has no CUDA" in record["why"] for record in records if record["kind"] == "skipped")
    said = [record["text"] for record in records if record.get("holds") is False]
    assert [text for text in said if not re.search(TIMES, text)] == []


def test_the_figures_are_those_of_the_driver(whole):
    done, out = whole
    assert "sample spacing 0.1667 s; assumed 0.15 to 0.21" in done.stdout
    records = lines(out / "records.jsonl")
    values = {record["name"]: set(record["values"]) for record in records if record["kind"] == "figures"}
    assert values["busy: values"] == {58.0}
    assert values["metric 5, 1000 ms apart"] == {37.5}
    assert values["no context of ours: power"] == {431.0}
    assert any("slow-down at temperature + margin - T.Limit 90 C" in one["text"] for one in verdicts(records, "6"))


def test_gputop_agrees_with_the_driver_and_gives_a_reason_for_each_gap(whole):
    done, out = whole
    records = lines(out / "records.jsonl")
    assert "as assumed  as it is: 1 GPU processes of ours, 1 of the driver's: they agree" in done.stdout
    compared = [one["text"] for one in verdicts(records, "12") if "against the driver: 2 GPUs agree" in one["text"]]
    assert len(compared) == 11
    gaps = {one["metric"]: one["reason"] for one in records if one["item"] == "11" and "metric" in one}
    assert gaps["fan_percent"] == "unsupported"
    counted = {one["name"] for one in records if one["item"] == "2b" and one["kind"] == "figures"}
    assert {"GPM off: FieldValues", "GPM on: GpmMetricsGet"} <= {name.partition("  ")[0] for name in counted}


def test_loaders_of_a_real_training_process_are_found_by_name(whole):
    done, _ = whole
    assert "as assumed  2 of 2 workers are named pt_data_worker" in done.stdout
    assert "as assumed  py-spy dump as this user took" in done.stdout


def test_what_is_kept_can_be_read_again_and_only_by_us(whole):
    done, out = whole
    assert out.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in out.iterdir()} == {0o600}
    assert (out / "report.txt").read_text() == done.stdout
    recording = lines(out / "recording.jsonl")
    ring = next(line for line in recording if line["call"] == "nvmlDeviceGetSamples" and line["args"] == [1, 0])
    assert (ring["gpu"], ring["code"], len(ring["value"][1])) == (0, 0, 100)
    assert {sample["sampleValue"]["uiVal"] for sample in ring["value"][1]} == {58}
    assert json.loads((out / "gputop.json").read_text())["frame"]["gpus"]
    assert lines(out / "gputop.jsonl")


def test_a_call_that_fails_costs_its_own_item_only(fake, tmp_path):
    fake.fail("nvmlDeviceGetFieldValues", 999)
    done = run(fake.env(), "--only", "1,3,6", "--out", tmp_path / "out")
    records = lines(tmp_path / "out" / "records.jsonl")
    assert [record["item"] for record in records if record["kind"] == "failed"] == ["6"]
    assert ">>>  FAILED" in done.stdout
    assert done.returncode == 0
    assert all(verdict["holds"] for item in "13" for verdict in verdicts(records, item))
    assert verdicts(records, "1")
    assert verdicts(records, "3")


def test_a_call_that_hangs_costs_its_own_item_only(fake, tmp_path):
    fake.hang("nvmlDeviceGetSamples")
    done = run(fake.env(), "--only", "1,6", "--patience", "3", "--out", tmp_path / "out")
    assert "nothing came for 3 s, inside nvmlDeviceGetSamples: given up" in done.stdout
    assert verdicts(lines(tmp_path / "out" / "records.jsonl"), "6")
    assert done.returncode == 0


def test_what_differs_stands_out(fake, tmp_path):
    fake.update({"sample_hz": 2, "gpu.*.power_average_mw": 100_000, "gpu.*.gpm.5": "nan", "gpu.*.gpm.2": 140})
    fake.fault("delay_us", "nvmlDeviceGetFanSpeed", 30_000)
    done = run(fake.env(), "--only", "1,2a,3,12", "--out", tmp_path / "out")
    assert ">>>  DIFFERS     idle: p95 at most 20 ms a call, but not nvmlDeviceGetFanSpeed" in done.stdout
    assert ">>>  DIFFERS     sample spacing 0.5 s; assumed 0.15 to 0.21" in done.stdout
    assert ">>>  DIFFERS     metric 2 lies outside 0 to 100 %: 140 to 140" in done.stdout
    assert "metric   5 50 ms apart:" in done.stdout
    assert "NaN" in done.stdout
    assert ">>>  DIFFERS     as it is: power_watts against the driver: GPU 0: 412, not 100 to 100" in done.stdout
    assert "What differs:" in done.stdout
    assert done.returncode == 0


def test_a_gpu_somebody_uses_gets_no_load(fake, tmp_path):
    fake.add_process(gpu=0, pid=os.getpid())
    done = run(fake.env(), "--only", "5", "--gpu", "0", "--out", tmp_path / "out")
    assert f"skipped: GPU 0 is in use (pid {os.getpid()}): a load would disturb it" in done.stdout
    free = run(fake.env(), "--only", "6", "--out", tmp_path / "free")
    assert "measured: GPU 1," in free.stdout


def test_without_gpm_the_item_is_skipped_with_the_reason(fake, tmp_path):
    fake.set("gpu.*.gpm_supported", 0)
    done = run(fake.env(), "--only", "3", "--out", tmp_path / "out")
    assert "skipped: this GPU or driver has no GPM" in done.stdout


def no_library(tmp_path, fake):
    (tmp_path / "libnvidia-ml.so.1").write_text("no library")
    return {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}


def not_loaded(tmp_path, fake):
    fake.fail("nvmlInit*", 9)
    return fake.env()


def no_gpus(tmp_path, fake):
    fake.set("gpus", 0)
    return fake.env()


@pytest.mark.parametrize(
    ("machine", "why"),
    [(no_library, "LIBRARY_NOT_FOUND"), (not_loaded, "DRIVER_NOT_LOADED"), (no_gpus, "lists no GPU")],
)
def test_without_a_driver_one_line_says_so(machine, why, fake, tmp_path):
    done = run(machine(tmp_path, fake), "--out", tmp_path / "out")
    assert (done.returncode, done.stdout) == (1, "")
    assert why in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_folder_that_exists_is_left_alone(fake, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "records.jsonl").write_text("old")
    done = run(fake.env(), "--out", tmp_path / "out")
    assert done.returncode == 1
    assert "--out names a folder that does not exist yet" in done.stderr
    assert [path.read_text() for path in (tmp_path / "out").iterdir()] == ["old"]


@pytest.mark.parametrize(("share", "value"), [(0, 1), (0.5, 51), (0.95, 96), (1, 100)])
def test_quantiles_are_values_that_occurred(share, value):
    assert quantile(range(1, 101), share) == value


@pytest.mark.parametrize("window", [1 / 6, 0.2])
@pytest.mark.parametrize("period", [1.0, 3.0])
def test_the_window_is_found_from_a_square_wave(window, period):
    def busy(at_s):
        """Percent of the window that ends then in which the wave is high, by 200 looks."""
        looks = (at_s - window * (i + 0.5) / 200 for i in range(200))
        return sum(100 * (look % period < period / 2) for look in looks) / 200

    samples = [busy(10.05 + i * window) for i in range(int(60 / window))]
    assert window_s(samples, period) == pytest.approx(window, rel=0.25)


def test_each_fact_stands_beside_what_this_device_answers(whole):
    _, out = whole
    records = lines(out / "records.jsonl")
    said = [record.get("text", "") for record in records if record["item"] == "13"]
    for start in (
        "NVIDIA H100 80GB HBM3, driver 580.65.06",
        "newest sample of utilization ",
        "power samples: 100 over",
        "PCIe counter said to be ull: highest value",
        "PcieThroughput sent: 1200000 KB/s, took ",
        "field 185, average power: 0.",
        "PowerUsage over field 185 1.00",
        "field 3, corrected ECC errors: type ull, value 3",
        "a field that does not exist is refused: NOT_SUPPORTED",
        "GPM: 2 OK, 20 OK, 100 NOT_SUPPORTED",
        "clock event reasons 0x1ff",
    ):
        assert any(text.startswith(start) for text in said), f"{start}: {said}"


def test_a_device_that_is_otherwise_says_so(fake, tmp_path):
    fake.update({"gpus": 1, "gpu.*.pcie_bytes_short": 0, "gpu.*.power_average_mw": 250_000})
    fake.update({"gpu.*.field.60000": 1, "gpu.*.event_reasons_supported": 0x7FF})
    done = run(fake.env(), "--only", "13", "--out", tmp_path / "out")
    assert ">>>  DIFFERS     PCIe counter said to be ull" in done.stdout
    assert ">>>  DIFFERS     PowerUsage over field 185 1.648" in done.stdout
    assert ">>>  DIFFERS     a field that does not exist is refused: OK" in done.stdout
    assert "new since 580: 0x600" in done.stdout
