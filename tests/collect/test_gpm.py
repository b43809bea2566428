"""GPM: when it is read, what it costs, what a broken answer leaves."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gputop.collect.nvml.gpm import SHARES
from tests.fakenvml import Fake
from tests.nvml_child import Child


@pytest.fixture
def on(fake: Fake) -> Iterator[Child]:
    fake.set("gpus", 2)
    with Child(fake, gpm="on") as child:
        yield child


def calls(fake: Fake) -> int:
    return sum(count for name, count in fake.counts().items() if name.startswith("nvmlGpm"))


def test_two_calls_a_second_and_gpu(fake: Fake, on: Child) -> None:
    assert on.sweep().gpu(0)["sm_active_percent"] is None
    assert on.sweep().gpu(0)["sm_active_percent"] == 83.25
    before = calls(fake)
    on.sweep(10)
    assert calls(fake) - before == 2 * 2 * (10 + 1)  # and the details, every ten seconds


def test_a_metric_that_fails_costs_only_itself(fake: Fake, on: Child) -> None:
    fake.update({"gpu.0.gpm.5": "nan", "gpu.0.gpm.2": 250, "gpu.0.gpm.10": "error 4", "gpu.0.gpm.12": None})
    seen = on.sweep(2)
    broken = {"tensor_percent": "absent", "sm_active_percent": "absent", "dram_percent": "denied"}
    broken |= {"fp32_percent": "unsupported", "context_switch_percent": "unsupported"}
    assert {name: seen.gpu(0)[name] for name in broken} == dict.fromkeys(broken)
    assert {name: reason for name, reason in seen.reasons(0).items() if name in SHARES.values()} == broken
    assert seen.gpu(0)["sm_occupancy_percent"] == 41.5
    assert seen.gpu(1)["tensor_percent"] == 38.5


def test_engines_links_and_caches_every_ten_seconds(fake: Fake, on: Child) -> None:
    fake.update({"gpu.0.nvlink_count": 2, "gpu.0.gpm.30": 12.5, "gpu.0.gpm.47": 1.5, "gpu.0.gpm.169": 99})
    fake.update({"gpu.0.gpm.63": 20, "gpu.0.gpm.62": 10, "gpu.0.gpm.65": 40, "gpu.0.gpm.64": "error 999"})
    fake.update({"gpu.0.gpm.66": 1, "gpu.0.gpm.164": 88.5, "gpu.0.gpm.160": "nan"})
    assert on.sweep().reasons(0)["engines"] == "absent"
    seen = on.sweep(10)
    gpu, mib = seen.gpu(0), 1 << 20
    assert gpu["engines"] == [
        {"name": "decoder 0", "busy_percent": 12.5},
        {"name": "jpeg 7", "busy_percent": 1.5},
        {"name": "encoder 3", "busy_percent": 99},
    ]
    assert gpu["nvlink_bytes_per_s"] == [[20 * mib, 10 * mib], [40 * mib, None]]
    assert gpu["memory_cache_hit_percent"] == 88.5
    why = {name: seen.reasons(0)[name] for name in ("host_cache_hit_percent", "peer_cache_hit_percent")}
    assert why == {"host_cache_hit_percent": "absent", "peer_cache_hit_percent": "unsupported"}
    other = {name: seen.reasons(1)[name] for name in ("engines", "nvlink_bytes_per_s")}
    assert other == dict.fromkeys(other, "unsupported")


def test_bytes_come_from_gpm_where_the_fields_are_not_there(fake: Fake, on: Child) -> None:
    fake.update({f"gpu.*.field.{number}": None for number in (138, 139, 197, 198)})
    gpu = on.sweep(2).gpu(0)
    mib = 1 << 20
    assert gpu["pcie_tx_bytes_per_s"] == 1144.5 * mib
    assert gpu["pcie_rx_bytes_per_s"] == 3242.5 * mib
    assert gpu["nvlink_rx_bytes_per_s"] == 15500.5 * mib
    assert gpu["nvlink_tx_bytes_per_s"] == 18900.5 * mib


def test_bytes_over_pcie_come_from_gpm_first(fake: Fake, on: Child) -> None:
    fake.update({f"gpu.*.pcie_{way}_bytes_per_s": 9e9 for way in ("tx", "rx")})
    fake.set("gpu.1.gpm.21", "error 3")
    on.sweep()
    seen = on.rest_and_sweep()
    assert [seen.gpu(gpu)["pcie_tx_bytes_per_s"] for gpu in (0, 1)] == [1144.5 * (1 << 20)] * 2
    assert seen.gpu(1)["pcie_rx_bytes_per_s"] == pytest.approx(9e9, rel=0.02)


def test_bytes_link_by_link_without_gpm(fake: Fake) -> None:
    fake.update({"gpus": 1, "gpu.0.nvlink_rcv_xmit_bytes": 1, "gpu.0.nvlink_count": 4})
    fake.update({"gpu.0.field.138": None, "gpu.0.field.139": None, "gpu.0.nvlink.2.state": 0})
    with Child(fake, gpm="off") as child:
        child.sweep()
        gpu = child.rest_and_sweep().gpu(0)
    assert gpu["nvlink_tx_bytes_per_s"] == pytest.approx(4 * 1.1e9, rel=0.02)
    assert gpu["nvlink_rx_bytes_per_s"] == pytest.approx(4 * 0.9e9, rel=0.02)
    assert gpu["nvlinks_active"] == 3


def test_off_costs_nothing(fake: Fake) -> None:
    with Child(fake, gpm="off") as child:
        seen = child.sweep(3)
    assert calls(fake) == 0
    assert seen.reasons(0)["tensor_percent"] == "absent"
    assert any(one["unlock"] == "--gpm on" for one in seen.gpu(0)["missing"])


def test_older_gpus_are_asked_once(fake: Fake, on: Child) -> None:
    fake.set("gpu.*.gpm_supported", 0)
    seen = on.sweep(20)
    assert calls(fake) == 2
    assert seen.reasons(0)["tensor_percent"] == "unsupported"


def test_it_is_read_without_being_asked_beside_dcgm_too(fake: Fake, tmp_path: Path) -> None:
    """Most nodes with cards of this kind run a DCGM host engine; it was in the way of older cards only."""
    (tmp_path / "4711").mkdir()
    (tmp_path / "4711" / "comm").write_text("nv-hostengine\n")
    with Child(fake, gpm="auto", proc_root=str(tmp_path)) as child:
        seen = child.sweep(2)
    assert seen.gpu(0)["tensor_percent"] == 37.5
    assert not seen.notes


def test_a_request_that_is_always_refused_is_not_made_every_second(fake: Fake, on: Child) -> None:
    fake.fail("nvmlGpmMetricsGet", 2)
    seen = on.sweep(13)
    assert seen.reasons(0)["tensor_percent"] == "unsupported"
    before = calls(fake)
    on.sweep(20)
    assert calls(fake) == before


def test_denied_later_is_said(fake: Fake, on: Child) -> None:
    assert on.sweep(2).gpu(0)["tensor_percent"] == 37.5
    fake.fail("nvmlGpmSampleGet", 4)
    assert on.sweep().reasons(0)["tensor_percent"] == "denied"
    before = calls(fake)
    on.sweep(5)
    assert calls(fake) == before


def test_samples_are_given_back(fake: Fake, on: Child) -> None:
    on.start()
    on.until(lambda seen: len(seen.gpus) == 2 and seen.gpu(1)["tensor_percent"])
    on.call("release")
    on.until(lambda _: fake.counts()["nvmlShutdown"])
    counts = fake.counts()
    assert counts["nvmlGpmSampleFree"] == counts["nvmlGpmSampleAlloc"] == 2 * 2 * 2


@pytest.mark.parametrize("refuses_all", [0, 2, 3, 25])
def test_what_an_older_driver_does_not_know_costs_nothing_else(fake: Fake, on: Child, refuses_all: int) -> None:
    """Ids from 98 on came with 575: before, each is refused, or the whole request."""
    fake.update({"gpus": 1, "gpu.0.gpm_known_below": 98, "gpu.0.gpm_refuses_all": refuses_all})
    seen = on.sweep(3)
    known = {"sm_active_percent": 83.25, "tensor_percent": 37.5, "dram_percent": 52.75}
    assert {name: seen.gpu(0)[name] for name in known} == known
    assert seen.reasons(0)["c2c_tx_bytes_per_s"] == seen.reasons(0)["context_switch_percent"] == "unsupported"
    before = calls(fake)
    on.sweep(5)
    assert calls(fake) - before == 2 * 5, "what was refused is not tried again"


@pytest.mark.parametrize("code", [4, 7, 999])
def test_a_refusal_of_any_kind_that_goes_on_is_tried_with_fewer(fake: Fake, on: Child, code: int) -> None:
    fake.update({"gpus": 1, "gpu.0.gpm_known_below": 98, "gpu.0.gpm_refuses_all": code})
    seen = on.sweep(8)
    assert (seen.gpu(0)["sm_active_percent"], seen.gpu(0)["tensor_percent"]) == (83.25, 37.5)


def test_what_was_refused_once_is_asked_for_again_later(fake: Fake, on: Child) -> None:
    fake.update({"gpus": 1, "gpu.0.gpm_known_below": 10, "gpu.0.gpm_refuses_all": 2})
    assert on.sweep(3).gpu(0)["dram_percent"] is None
    fake.clear("gpu.0.gpm_known_below", "gpu.0.gpm_refuses_all")
    assert on.sweep(30).gpu(0)["dram_percent"] is None
    on.sweep(1, 600.0)
    assert on.sweep(3).gpu(0)["dram_percent"] == 52.75


def test_a_request_refused_for_any_id_is_made_for_each(fake: Fake, on: Child) -> None:
    fake.update({"gpus": 1, "gpu.0.gpm_known_below": 9, "gpu.0.gpm_refuses_all": 2})
    seen = on.sweep(3)
    assert (seen.gpu(0)["sm_active_percent"], seen.gpu(0)["tensor_percent"]) == (83.25, 37.5)
    assert seen.reasons(0)["dram_percent"] == "unsupported"


def test_an_entry_that_the_driver_leaves_alone_is_unknown(fake: Fake, on: Child) -> None:
    fake.update({"gpus": 1, "gpu.0.gpm_untouched": "5 10"})
    seen = on.sweep(3)
    assert (seen.gpu(0)["tensor_percent"], seen.gpu(0)["dram_percent"]) == (None, None)
    assert seen.reasons(0)["tensor_percent"] == "absent"
    assert seen.gpu(0)["sm_active_percent"] == 83.25


def test_samples_of_the_same_tenth_of_a_second_are_not_compared(fake: Fake, on: Child) -> None:
    """An H200 reads its counters anew every 100 ms: between two samples of the same ones it says 0, or NaN."""
    fake.update({"gpus": 1, "gpu.0.gpm_counted_s": 0.1})
    on.rest_and_sweep(0.2)
    assert on.rest_and_sweep(0.05).gpu(0)["sm_active_percent"] is None
    assert on.rest_and_sweep(0.2).gpu(0)["sm_active_percent"] == 83.25


def test_the_first_frame_that_is_shown_has_no_zero_that_was_never_measured(fake: Fake) -> None:
    """The first sweep reads everything: where that takes long, the second must not come in the same tenth."""
    fake.update({"gpus": 1, "gpu.0.gpm_counted_s": 0.1, "gpu.0.gpm.21": 9428})
    fake.fault("delay_us", "nvmlDeviceGetUUID", 130_000)
    command = (sys.executable, "-m", "gputop", "--json")
    done = subprocess.run(command, env=fake.env(), capture_output=True, text=True, check=True)
    (gpu,) = json.loads(done.stdout)["frame"]["gpus"]
    assert (gpu["sm_active_percent"], gpu["dram_percent"]) == (83.25, 52.75)
    assert gpu["pcie_rx_bytes_per_s"] == 9428 * (1 << 20)
