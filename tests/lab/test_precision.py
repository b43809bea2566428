"""fp32, bf16 and torch.compile: what is asked for, the verdict of the thresholds, the roofline, and what is said."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from gputop.lab.child import NotMeasured
from gputop.lab.precision import (
    COMPILED,
    HEIGHT,
    WIDTH,
    PrecisionPlan,
    Spot,
    compare,
    gain,
    picture,
    rate,
    spots,
    verdict,
)
from gputop.lab.precision_report import page
from gputop.report import text

READY = {
    "torch": "2.9.0", "device": "cuda", "device_name": "NVIDIA A100-SXM4-80GB", "capability": [8, 0], "cpus": 16,
    "tf32": False, "batch_size": 64, "loads": True, "workers": 4, "optimizer": "AdamW", "own_step": False,
    "parameters": 25_000_000,
}  # fmt: skip


class Device:
    """A child that answers from a table: seconds of a step, and of a step alone, by precision."""

    def __init__(self, steps: Mapping[str, float], alone: Mapping[str, float] | None = None, **ready: object) -> None:
        self.steps, self.alone, self.ready = steps, alone or steps, {**READY, **ready}
        self.asked: list[str] = []
        self.noise = [1.0, 1.01, 0.99]  # of the equal runs
        self.twice = 1.95  # times the batch of a batch of twice the size
        self.fails: dict[str, NotMeasured] = {}
        self.counts: dict[str, int] = {}
        self.waited: float | None = None  # share of the time until a batch is there; all that a step takes longer
        self.skipped = 0  # by the GradScaler

    def share(self, kind: str) -> float:
        return 1 - self.alone[kind] / self.steps[kind] if self.waited is None else self.waited

    def __call__(self, title: str, request: Mapping[str, Any]) -> dict[str, Any]:
        self.asked.append(title)
        kind = request.get("kind", "")
        for name in (title, kind):
            if name in self.fails:
                raise self.fails[name]
        if request["mode"] == "ceilings":
            known = {"fp32": 19.5e12, "tf32": 140e12, "bf16": 280e12, "fp16": 280e12}
            return {"flops": {kind: known[kind] for kind in request["kinds"]}, "bytes_per_s": 1.5e12}
        if request["mode"] == "sizes":
            return {"size": 64, "once_s": [0.1] * 20, "twice_s": [0.1 * self.twice] * 20}
        number = self.counts[kind] = self.counts.get(kind, -1) + 1
        factor = self.noise[number % len(self.noise)]
        steps = request["steps"] - request["warmup"]
        alone_s = self.alone[kind] * factor
        compiled = kind == COMPILED
        return {
            "ready": self.ready,
            "steps": steps,
            "took_s": steps * self.steps[kind] * factor,
            "samples": steps * 64,
            "waited_s": steps * self.steps[kind] * factor * self.share(kind),
            "skipped": self.skipped if kind == "fp16" else None,
            "warm_s": [20.0 + alone_s if compiled else alone_s, *[alone_s] * (request["warmup"] - 1)],
            "alone_s": [alone_s] * 20,
            "peak_bytes": 8_000_000_000 if kind in ("fp32", "tf32") else 5_000_000_000,
            "reserved_bytes": 9_000_000_000,
            "loss": 2.1,
            "loss_name": "the function's own",
            "breaks": 0 if compiled else None,
            "flops": 2e12 if request["count"] and not compiled else None,
            "bytes": 20e9 if request["count"] and not compiled else None,
        }


def measured(device: Device, **plan: Any) -> dict[str, Any]:
    result: dict[str, Any] = {"factory": "train.py:make", "at_s": 1.0}
    compare(device, PrecisionPlan(**plan), result)
    return result


def test_precisions_take_turns_so_that_a_machine_that_changes_changes_for_all() -> None:
    device = Device({"fp32": 0.3, "bf16": 0.15, COMPILED: 0.1})
    measured(device, repeats=2)
    kinds = ["fp32", "bf16", COMPILED]
    assert device.asked == [f"{kind}, run {n} of 2" for n in (1, 2) for kind in kinds] + ["two batch sizes", "ceilings"]
    assert PrecisionPlan(fp16=True, tf32=True).kinds == ["fp32", "tf32", "bf16", "fp16", COMPILED]
    assert PrecisionPlan().steps - PrecisionPlan().warmup == 50  # mission row 58


@pytest.mark.parametrize(
    ("bf16", "compiled", "precision", "fused", "says"),
    [
        (0.15, 0.10, True, True, "use bf16 and torch.compile, 3.0× the speed of fp32"),
        (0.15, 0.145, True, False, "use bf16; torch.compile gains little: kernels are already fused"),
        (0.27, 0.265, False, False, "precision is not the limit: bf16 gains little"),
        (0.27, 0.18, False, True, "use torch.compile"),
        (0.252, 0.18, None, True, "undecided: the gain of bf16; equal runs differ too much"),
    ],
)
def test_the_verdict_is_that_of_the_guide_and_none_where_equal_runs_could_turn_it(
    bf16: float, compiled: float, precision: bool | None, fused: bool | None, says: str
) -> None:
    """Mission row 59: below 20 % not precision, below 10 % already fused, both large: take both."""
    result = measured(Device({"fp32": 0.3, "bf16": bf16, COMPILED: compiled}))
    found = verdict(result)
    assert (found["precision_helps"], found["compile_helps"]) == (precision, fused)
    assert says in text(page(result))


def test_one_run_of_each_decides_no_gain() -> None:
    result = measured(Device({"fp32": 0.3, "bf16": 0.15, COMPILED: 0.1}), repeats=1)
    found = verdict(result)
    assert (found["precision_helps"], found["compile_helps"]) == (None, None)
    said = " ".join(text(page(result)).split())
    assert "bf16: 2.00× the speed of fp32 (one run of each; worthwhile from 1.20×)." in said
    assert "undecided: the gain of bf16, the gain of torch.compile; one run of each may be chance" in said


def test_waits_for_data_come_first_and_hide_no_gain() -> None:
    device = Device({"fp32": 0.045, "bf16": 0.045, COMPILED: 0.045}, {"fp32": 0.02, "bf16": 0.01, COMPILED: 0.01})
    result = measured(device)
    found = verdict(result)
    assert found["waits"] == pytest.approx(1 - 20 / 45)
    assert found["waits_for_data"] is True
    said = text(page(result))
    assert "dataloader-bound" in said
    assert "gputop loader train.py:make" in said
    assert "precision is not the limit" not in said  # it is the loader that hides what bf16 gains


def test_what_steps_take_longer_for_another_reason_is_no_wait_for_data() -> None:
    """A busy machine stretched every step of a loop whose batches were there in a hundredth of it."""
    device = Device({"fp32": 0.045, "bf16": 0.045, COMPILED: 0.045}, {"fp32": 0.02, "bf16": 0.01, COMPILED: 0.01})
    device.waited = 0.01
    result = measured(device)
    found = verdict(result)
    assert found["waits"] == pytest.approx(0.01)
    assert found["waits_for_data"] is False
    said = " ".join(text(page(result)).split())
    assert "dataloader-bound" not in said
    assert "waits for data 1 % of the time. The rest of the difference is not a wait for data" in said


VOLTA = {"device_name": "Tesla V100", "capability": [7, 0]}


@pytest.mark.parametrize(
    ("fp16", "kind", "helps", "says"),
    [
        (0.15, "fp16", True, "use fp16 + scaler"),
        (0.29, "fp16", False, "precision is not the limit: fp16 + scaler gains little"),
        (None, "bf16", False, "undecided: whether precision is the limit; this GPU has no Tensor Cores for bf16"),
    ],
)
def test_where_bf16_has_no_tensor_cores_fp16_is_judged(fp16: float | None, kind: str, helps: bool, says: str) -> None:
    times = {"fp32": 0.3, "bf16": 0.31, COMPILED: 0.31, **({"fp16": fp16} if fp16 else {})}
    result = measured(Device(times, **VOLTA), fp16=fp16 is not None)
    found = verdict(result)
    assert (found["precision"], found["precision_helps"]) == (kind, helps)
    said = text(page(result))
    assert says in said
    assert ("Measure with --fp16" in said) is (fp16 is None)
    assert ("precision is not the limit" in said) is (fp16 == 0.29)


def test_tf32_is_taken_where_no_half_precision_gains_more() -> None:
    times = {"fp32": 0.3, "tf32": 0.15, "bf16": 0.29, COMPILED: 0.29}
    said = text(page(measured(Device(times), tf32=True)))
    assert "use TF32" in said
    assert "precision is not the limit" not in said
    assert "use TF32" not in text(page(measured(Device({**times, "bf16": 0.1, COMPILED: 0.1}), tf32=True)))


def test_steps_that_the_scaler_skipped_are_told() -> None:
    device = Device({"fp32": 0.3, "bf16": 0.15, "fp16": 0.15, COMPILED: 0.1})
    device.skipped = 7
    said = " ".join(text(page(measured(device, fp16=True))).split())
    assert "fp16 + scaler: gradients overflowed in 7 of 50 steps, which take no optimizer step." in said


def test_the_speedup_is_that_of_the_samples_a_second_beside_it() -> None:
    """Of two runs that differ much, the mean of times and that of rates are two things."""
    device = Device({"fp32": 0.3, "bf16": 0.15, COMPILED: 0.1})
    device.noise = [1.0, 5.0, 1.0, 1.0]
    device.counts["bf16"] = 1  # only fp32 has a slow run
    lines = [line.split() for line in text(page(measured(device, repeats=2))).splitlines()]
    fp32, bf16 = (next(line for line in lines if line[:1] == [name]) for name in ("fp32", "bf16"))
    assert float(bf16[-1].rstrip("×")) == pytest.approx(float(bf16[1]) / float(fp32[1]), abs=0.01)


def test_a_fixed_batch_waits_for_no_loader() -> None:
    result = measured(Device({"fp32": 0.045, "bf16": 0.045, COMPILED: 0.045}, loads=False))
    assert verdict(result)["waits_for_data"] is None
    assert "waits for data" not in text(page(result))


@pytest.mark.parametrize(("twice", "says"), [(1.05, True), (1.95, False), (1.5, None)])
def test_two_batch_sizes_tell_overhead_from_work(twice: float, says: bool | None) -> None:
    """Mission row 55."""
    device = Device({"fp32": 0.3, "bf16": 0.15, COMPILED: 0.1})
    device.twice = twice
    result = measured(device)
    assert verdict(result)["overhead_bound"] is says
    assert ("overhead-bound" in text(page(result))) is (says is True)
    said = " ".join(text(page(result)).split())
    assert ("slow kernels. Find them with gputop trace." in said) is (says is False)
    assert ("slow or small kernels. Find them" in said) is (says is None)
    result["sizes"]["steady"] = False
    assert verdict(result)["overhead_bound"] is None


def test_a_cpu_gives_no_verdict_on_what_a_gpu_gains() -> None:
    result = measured(Device({"fp32": 0.3, "bf16": 0.15, COMPILED: 0.1}, device="cpu", device_name=None))
    said = text(page(result))
    assert "use bf16 and torch.compile" not in said
    assert "This is a CPU." in said
    assert "PEAK RSS" in said


def test_what_fails_is_one_line_and_the_others_are_kept() -> None:
    device = Device({"fp32": 0.3, "bf16": 0.15})
    device.fails = {
        COMPILED: NotMeasured("torch.compile finds no C++ compiler here"),
        "two batch sizes": NotMeasured("x"),
    }
    result = measured(device)
    assert list(result["runs"]) == ["fp32", "bf16"]
    assert device.asked.count(f"{COMPILED}, run 1 of 3") == 1
    said = text(page(result))
    assert "bf16 + compile was not measured: torch.compile finds no C++ compiler here" in said
    assert "two batch sizes was not measured: x" in said
    assert "kernels are already fused" not in said


def test_a_first_run_that_fails_ends_it_unless_another_may_need_less_memory() -> None:
    device = Device({"bf16": 0.15, COMPILED: 0.1})
    device.fails = {"fp32": NotMeasured("ValueError: no data")}
    with pytest.raises(NotMeasured, match="no data"):
        measured(device)
    device.fails = {"fp32": NotMeasured("CUDA out of memory", cause="memory")}
    result = measured(device)
    assert list(result["runs"]) == ["bf16", COMPILED]
    assert gain(result, "fp32", "bf16") is None
    assert "fp32 was not measured: CUDA out of memory" in text(page(result))


def test_a_place_on_the_roofline() -> None:
    result = measured(Device({"fp32": 0.3, "bf16": 0.15, COMPILED: 0.1}))
    fp32, bf16, compiled = spots(result)
    assert fp32.utilization == pytest.approx(2e12 / 0.3 / 19.5e12)
    assert bf16.intensity == pytest.approx(100)
    assert bf16.roof == pytest.approx(150e12)  # 1.5 TB/s of 100 FLOP a byte, below the 280 of the matrix product
    assert bf16.bound is None  # far below both roofs, of which the time can be overhead or many things
    result["sizes"]["ratio"].update(low=1.0, middle=1.0, high=1.0)
    assert spots(result)[1].bound == "overhead"
    assert (compiled.flops, compiled.intensity, compiled.bound) == (2e12, None, None)


@pytest.mark.parametrize(
    ("flops_per_s", "intensity", "bound"),
    [(250e12, 1000.0, "compute"), (100e12, 80.0, "memory bandwidth"), (20e12, 1000.0, None)],
)
def test_what_limits_a_step(flops_per_s: float, intensity: float, bound: str | None) -> None:
    """Mission rows 49-51: compute, memory bandwidth, or overhead."""
    spot = Spot(kind="bf16", flops=1e12, flops_per_s=flops_per_s, ceiling=280e12, intensity=intensity, bandwidth=1.5e12)
    assert spot.bound == bound


def test_the_picture_fits_80_columns_and_a_letter_stands_below_its_roof() -> None:
    found = spots(measured(Device({"fp32": 0.3, "bf16": 0.15, COMPILED: 0.1})))
    lines = picture(found)
    assert max(map(len, lines)) <= WIDTH + 2 <= 80
    assert len(lines) == HEIGHT + 3
    rows = {name: next(at for at, line in enumerate(lines) if name in line) for name in ("280", "19.5", "A", "B")}
    assert rows["280"] < rows["19.5"] < rows["A"]
    assert rows["280"] < rows["B"] < rows["A"]
    assert picture([]) == ()


@pytest.mark.parametrize("share", [0.9, 1.02, 1.1])
def test_a_letter_is_not_on_the_line_of_another_precision(share: float) -> None:
    """Below a ceiling in its row it stands below the line, above it above."""
    same = {"flops": 1e12, "intensity": 100.0, "bandwidth": 1.5e12}
    slow = Spot(kind="fp32", flops_per_s=5e12, ceiling=19.5e12, **same)
    other = Spot(kind="bf16", flops_per_s=share * 19.5e12, ceiling=280e12, **same)
    lines = picture([slow, other])
    ceiling = next(at for at, line in enumerate(lines) if line.startswith("19.5"))
    letter = next(at for at, line in enumerate(lines) if "B" in line.partition("│")[2])
    assert letter == ceiling + (1 if share < 1 else -1)
    assert lines[HEIGHT - 1].startswith("   1 TFLOP/s │")


@pytest.mark.parametrize(
    ("value", "says"),
    [(312e12, "312 TFLOP/s"), (45.12e9, "45.1 GFLOP/s"), (1.2e15, "1200 TFLOP/s"), (900.0, "900 FLOP/s")],
)
def test_rates_in_words(value: float, says: str) -> None:
    assert rate(value) == says


def test_a_result_is_json_and_a_page(golden: Callable[[str, str], None]) -> None:
    result = measured(Device({"fp32": 0.3, "tf32": 0.2, "bf16": 0.15, COMPILED: 0.1}), tf32=True)
    again = json.loads(json.dumps(result, allow_nan=False))
    golden("precision.txt", text(page(again)))
