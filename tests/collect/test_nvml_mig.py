"""MIG instances under their GPU, and Xid errors as they come."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fakenvml import Fake, Process
from tests.nvml_child import Child

GIB = 1 << 30


@pytest.fixture
def child(fake: Fake) -> Iterator[Child]:
    fake.update({"gpus": 2, "gpu.1.mig_mode": 1, "gpu.1.mig_count": 3})
    fake.processes += [
        Process(1, 101, GIB, gi=7, ci=0),
        Process(1, 102, 2 * GIB, gi=9, ci=0),
        Process(0, 103, 3 * GIB, sm=5),
    ]
    fake.write()
    with Child(fake, gpm="on") as child:
        yield child


def test_n23_instances_are_rows_under_their_gpu(fake: Fake, child: Child) -> None:
    seen = child.sweep(3)
    assert seen.indexes == ["0", "1", "1:0", "1:1", "1:2"]
    parent, one = seen.gpu(1), seen.gpu("1:1")
    assert (parent["mig_mode"], parent["busy_percent"], parent["parent_uuid"]) == (True, None, None)
    why = next(missing for missing in parent["missing"] if missing["metric"] == "busy_percent")
    assert (why["reason"], why["unlock"]) == ("unsupported", "see its MIG instances")
    why = next(missing for missing in one["missing"] if missing["metric"] == "busy_percent")
    assert "GPM shows their activity" in why["unlock"], "an instance says what would tell more of it, too"
    assert parent["power_watts"] == 413
    assert (one["uuid"], one["parent_uuid"]) == ("MIG-8a41f01c-0b5c-5d2e-a702-c41e90d7b31c", parent["uuid"])
    assert one["name"] == "NVIDIA H100 80GB HBM3 MIG 1g.10gb"
    assert one["vram_total_bytes"] == 10468982784
    assert one["vram_used_bytes"] == 2147483648 + 104857600
    assert (one["sm_active_percent"], one["tensor_percent"]) == (46.5, 23.5)
    assert seen.reasons("1:1")["busy_percent"] == "unsupported"


def test_n23_processes_belong_to_their_instance(fake: Fake, child: Child) -> None:
    seen = child.sweep(4)
    by_index = {gpu["uuid"]: gpu["index"] for gpu in seen.gpus}
    found = {pid: [(by_index[one["uuid"]], one["vram_bytes"]) for one in held] for pid, held in seen.shares.items()}
    assert found == {101: [("1:0", GIB)], 102: [("1:2", 2 * GIB)], 103: [("0", 3 * GIB)]}
    assert seen.shares[101][0]["busy_percent"] is None


def test_n07_instances_are_lost_with_their_gpu(fake: Fake, child: Child) -> None:
    child.sweep(3)
    fake.fail("*", 15, gpu=1)
    seen = child.sweep(6)
    assert seen.conditions == {"0": "ok", "1": "lost", "1:0": "lost", "1:1": "lost", "1:2": "lost"}
    assert set(seen.shares) == {103}


def test_n23_what_is_denied_on_the_parent_says_so(fake: Fake, child: Child) -> None:
    fake.fail("nvmlDeviceGetComputeRunningProcesses*", 4, gpu=1)
    seen = child.sweep(3)
    assert seen.reasons(1)["processes"] == "denied"


def test_instances_come_and_go(fake: Fake, child: Child) -> None:
    child.sweep(3)
    fake.set("gpu.1.mig_count", 1)
    assert child.sweep(31).indexes == ["0", "1", "1:0"]
    fake.set("gpu.1.mig_count", 2)
    assert child.sweep(31).gpu("1:1")["vram_total_bytes"] == 10468982784
    fake.set("gpu.1.mig_mode", 0)
    seen = child.sweep(91)
    assert seen.indexes == ["0", "1"]
    assert seen.gpu(1)["busy_percent"] == 59


def test_n30_xids_are_remembered(fake: Fake, child: Child) -> None:
    child.start()
    child.until(lambda _: fake.counts()["nvmlEventSetWait_v2"])
    for number in range(1, 11):
        fake.xid(gpu=1, code=60 + number)
    seen = child.until(lambda seen: len(seen.gpus) == 5 and len(seen.gpu(1)["xids"]) == 8)
    assert [xid["number"] for xid in seen.gpu(1)["xids"]][-1] == 70
    assert [xid["number"] for xid in seen.gpu(1)["xids"]] == list(range(63, 71))
    assert seen.gpu(0)["xids"] == []


@pytest.mark.parametrize("broken", ["nvmlEventSetCreate", "nvmlDeviceRegisterEvents", "nvmlEventSetWait_v2"])
def test_n30_without_events_nothing_is_lost_and_nothing_spins(fake: Fake, child: Child, broken: str) -> None:
    fake.fail(broken, 999 if broken.endswith("v2") else 3)
    child.start()
    fake.wait_for(broken)
    seen = child.until(lambda seen: seen.gpus and seen.gpu(0)["tensor_percent"])
    assert not seen.notes
    assert fake.counts()[broken] <= 2


def test_instances_are_measured_by_their_units_without_being_asked(fake: Fake) -> None:
    """Nothing else tells how busy an instance is."""
    fake.update({"gpus": 2, "gpu.1.mig_mode": 1, "gpu.1.mig_count": 2})
    with Child(fake, gpm="auto", proc_root="/nowhere") as child:
        seen = child.sweep(3)
        assert seen.gpu("1:0")["sm_active_percent"] is not None
