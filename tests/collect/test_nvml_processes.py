"""Which processes the driver says use a GPU, and what is made of lists that are wrong."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fakenvml import OLD_DRIVER, Fake, Process
from tests.nvml_child import Child

GIB = 1 << 30
LIST = "nvmlDeviceGetComputeRunningProcesses_v3"
MODERN = [f"nvmlDeviceGet{kind}RunningProcesses_v3" for kind in ("Compute", "Graphics", "MPSCompute")]


@pytest.fixture
def child(fake: Fake) -> Iterator[Child]:
    fake.set("gpus", 2)
    with Child(fake, gpm="off") as child:
        yield child


def share(seen: object, pid: int) -> tuple[object, ...]:
    (one,) = seen.shares[pid]
    return one["kind"], one["vram_bytes"], one["busy_percent"], one["memory_busy_percent"]


def test_shares_of_processes(fake: Fake, child: Child) -> None:
    fake.processes += [
        Process(0, 101, 3 * GIB, sm=57, mem=21),
        Process(0, 102, 2 * GIB),
        Process(0, 103, GIB, "graphics", sm=4, mem=1),
        Process(1, 104, GIB, "mps", sm=9, mem=2),
        Process(0, 105, GIB, sm=1, mem=0),
        Process(1, 105, 2 * GIB, sm=2, mem=0),
    ]
    fake.write()
    seen = child.sweep(2)
    assert share(seen, 101) == ("compute", 3 * GIB, 57.0, 21.0)
    assert share(seen, 102) == ("compute", 2 * GIB, 0.0, 0.0)
    assert share(seen, 103) == ("graphics", GIB, 4.0, 1.0)
    assert share(seen, 104) == ("mps", GIB, 9.0, 2.0)
    uuids = [gpu["uuid"] for gpu in seen.gpus]
    assert [(one["uuid"], one["vram_bytes"]) for one in seen.shares[105]] == [(uuids[0], GIB), (uuids[1], 2 * GIB)]


def test_processes_come_and_go(fake: Fake, child: Child) -> None:
    fake.add_process(gpu=0, pid=101, sm=50)
    assert set(child.sweep(2).shares) == {101}
    fake.remove_process(101)
    fake.add_process(gpu=0, pid=102)
    assert set(child.sweep(2).shares) == {102}
    fake.remove_process(102)
    before = fake.counts()["nvmlDeviceGetProcessUtilization"]
    assert not child.sweep(10).shares
    assert fake.counts()["nvmlDeviceGetProcessUtilization"] - before <= 2  # nobody to ask about


@pytest.mark.parametrize("code", [999, 17])
def test_lists_that_are_refused_for_ever_become_unsupported(fake: Fake, child: Child, code: int) -> None:
    fake.add_process(gpu=0, pid=101)
    fake.fail("nvmlDeviceGetComputeRunningProcesses*", code)
    fake.fail("nvmlDeviceGetGraphicsRunningProcesses*", code)
    fake.fail("nvmlDeviceGetMPSComputeRunningProcesses*", code)
    seen = child.sweep(10)
    assert (seen.reasons(0)["processes"], seen.gpu(0)["age_s"]) == ("stale", 0)
    seen = child.sweep(20)
    (said,) = (one for one in seen.gpu(0)["missing"] if one["metric"] == "processes")
    assert (said["reason"], said["unlock"]) == (
        "unsupported",
        f"the driver rejects this call every time (NVML error {code})",
    )
    assert (seen.gpu(0)["condition"], seen.notes) == ("ok", {})
    before = fake.counts(0)
    child.sweep(50)
    asked = fake.counts(0) - before
    assert asked[LIST] <= 1
    assert not [name for name in asked if name.endswith(("Processes", "Processes_v2"))]  # no older form either
    fake.clear("fail.*")
    assert share(child.sweep(70), 101) == ("compute", GIB, 0.0, 0.0)


def test_a_gpu_that_answers_nothing_is_not_taken_for_one_without_lists(fake: Fake, child: Child) -> None:
    fake.add_process(gpu=0, pid=101)
    child.sweep(3)
    fake.fail("nvmlDeviceGet*", 999, gpu=0)
    seen = child.sweep(40)
    assert seen.gpu(0)["age_s"] > 35
    assert "processes" not in seen.reasons(0)
    fake.release("fail", "nvmlDeviceGet*", gpu=0)
    seen = child.sweep(2)
    assert (seen.gpu(0)["age_s"], set(seen.shares)) == (0, {101})


def test_an_error_that_passes_is_asked_for_at_once(fake: Fake, child: Child) -> None:
    fake.add_process(gpu=0, pid=101)
    for _ in range(6):
        fake.fail(LIST, 999, gpu=0)
        child.sweep(8)
        fake.release("fail", LIST, gpu=0)
        assert set(child.sweep(2).shares) == {101}


def test_n16_memory_that_is_not_available(fake: Fake, child: Child) -> None:
    fake.add_process(gpu=0, pid=101, vram_bytes=None)
    fake.add_process(gpu=0, pid=102, vram_bytes=1 << 62)
    seen = child.sweep()
    assert share(seen, 101)[1] is None
    assert share(seen, 102)[1] is None


@pytest.mark.parametrize("value", [101, 65535])
def test_n15_a_process_busier_than_can_be(fake: Fake, child: Child, value: int) -> None:
    fake.add_process(gpu=0, pid=101, sm=value, mem=12)
    assert share(child.sweep(2), 101)[2:] == (None, 12.0)


def test_n17_insufficient_size_for_ever_ends(fake: Fake, child: Child) -> None:
    fake.add_process(gpu=0, pid=101)
    fake.fail(LIST, 7, gpu=0)
    seen = child.sweep()
    assert fake.counts(0)[LIST] == 4
    assert not seen.shares
    assert seen.reasons(0)["processes"] == "stale"
    fake.release("fail", LIST, gpu=0)
    assert set(child.sweep(2).shares) == {101}


def test_n18_a_list_that_grows_between_two_calls(fake: Fake, child: Child) -> None:
    fake.fault("grow", LIST, 30, gpu=0, times=3)
    assert len(child.sweep().shares) == 90
    assert fake.counts(0)[LIST] == 4
    child.sweep(2)
    assert fake.counts(0)[LIST] == 5  # the buffer is large enough from now on


@pytest.mark.parametrize(
    ("without", "last"),
    [
        (MODERN, "nvmlDeviceGetComputeRunningProcesses_v2"),
        ([*MODERN, *(name.replace("_v3", "_v2") for name in MODERN)], "nvmlDeviceGetComputeRunningProcesses"),
        (OLD_DRIVER, "nvmlDeviceGetComputeRunningProcesses_v2"),
    ],
)
def test_n19_older_layouts(tmp_path: object, without: list[str], last: str) -> None:
    fake = Fake(tmp_path / "old", gpus=1, without=without)
    fake.processes += [Process(0, 101 + at, GIB * (at + 1), sm=at + 1) for at in range(5)]
    fake.write()
    with Child(fake, gpm="off") as child:
        seen = child.sweep(3)
    assert {pid: share(seen, pid)[1:3] for pid in seen.shares} == {
        101 + at: (GIB * (at + 1), at + 1.0) for at in range(5)
    }
    assert fake.counts()[last] == 2
    assert seen.notes["old-driver"]["text"] == "old driver: process lists use the older format"


@pytest.mark.parametrize("stride", [16, 24, 32])
def test_n19_entries_of_another_length_under_the_same_name(fake: Fake, child: Child, stride: int) -> None:
    fake.set("gpu.*.process_stride", stride)
    fake.processes += [Process(0, 101 + at, GIB * (at + 1), gi=0, ci=0) for at in range(40)] + [Process(1, 7, GIB)]
    fake.write()
    for _ in range(3):
        seen = child.sweep()
        held = {pid: share(seen, pid)[1] for pid in seen.shares}
        assert held == {101 + at: GIB * (at + 1) for at in range(40)} | {7: GIB}


def test_room_that_was_enough_for_utilization_is_kept(fake: Fake, child: Child) -> None:
    """Some drivers want room for all that they could have to say."""
    fake.set("process_samples", 100)
    fake.add_process(gpu=0, pid=101, sm=40)
    child.sweep(2)
    before = fake.counts(0)["nvmlDeviceGetProcessUtilization"]
    assert share(child.sweep(20), 101)[2] == 40
    assert fake.counts(0)["nvmlDeviceGetProcessUtilization"] - before == 10


def test_room_for_more_than_can_be_is_not_allocated(fake: Fake, child: Child) -> None:
    fake.add_process(gpu=0, pid=4242, sm=57)
    fake.set("process_samples", (1 << 32) - 1)  # 128 GiB of them
    seen = child.sweep(3)
    assert not [note for note in seen.notes if note == "broken"]
    assert seen.shares[4242][0]["busy_percent"] is None
    fake.clear("process_samples")
    assert child.sweep(3).shares[4242][0]["busy_percent"] == 57


def test_a_client_of_the_multi_process_service_is_listed_twice(fake: Fake, child: Child) -> None:
    fake.processes += [
        Process(0, 101, 3 * GIB, sm=57),
        Process(0, 101, 3 * GIB, "mps"),
        Process(0, 102, 2 * GIB, "mps"),
        Process(0, 103, GIB),
        Process(0, 103, GIB, "graphics"),
    ]
    fake.write()
    seen = child.sweep()
    assert {pid: share(seen, pid)[:2] for pid in seen.shares} == {
        101: ("mps", 3 * GIB),
        102: ("mps", 2 * GIB),
        103: ("compute", GIB),
    }


def test_n26_pid_0_and_a_pid_in_two_lists(fake: Fake, child: Child) -> None:
    fake.processes += [
        Process(0, 0, GIB),
        Process(0, 101, 3 * GIB, sm=57),
        Process(0, 101, 3 * GIB, "graphics"),
        Process(0, 4_000_000, GIB),
    ]
    fake.write()
    seen = child.sweep()
    assert share(seen, 101) == ("compute", 3 * GIB, 57.0, 0.0)
    assert share(seen, 0)[1] == GIB
    assert set(seen.shares) == {0, 101, 4_000_000}


def test_n28_a_process_that_is_gone_is_still_listed(fake: Fake, child: Child) -> None:
    fake.add_process(gpu=0, pid=4_194_000, vram_bytes=GIB, sm=3)
    assert share(child.sweep(), 4_194_000) == ("compute", GIB, 3.0, 0.0)


def test_utilization_in_another_namespace_is_unknown(fake: Fake, child: Child) -> None:
    fake.processes += [Process(0, 7, GIB), Process(0, 918_273, GIB, "mps", sm=88)]
    fake.fail("nvmlDeviceGetMPSComputeRunningProcesses*", 3)
    fake.write()
    assert share(child.sweep(), 7)[2:] == (None, None)


def test_encoder_and_decoder_by_process(fake: Fake, child: Child) -> None:
    fake.processes += [Process(0, 101, GIB, sm=5, enc=40, dec=70), Process(0, 102, GIB), Process(0, 103, GIB, enc=101)]
    fake.write()
    seen = child.sweep()
    used = {pid: (held[0]["encoder_percent"], held[0]["decoder_percent"]) for pid, held in seen.shares.items()}
    assert used == {101: (40, 70), 102: (0, 0), 103: (None, 0)}


def test_more_busy_processes_than_expected(fake: Fake, child: Child) -> None:
    fake.processes += [Process(0, 1000 + at, GIB, sm=1) for at in range(50)]
    fake.write()
    seen = child.sweep()
    assert [share(seen, 1000 + at)[2] for at in range(50)] == [1.0] * 50
    before = fake.counts(0)["nvmlDeviceGetProcessUtilization"]
    child.sweep(2)
    assert fake.counts(0)["nvmlDeviceGetProcessUtilization"] == before + 1


def test_utilization_that_is_unsupported_is_unknown(fake: Fake, child: Child) -> None:
    fake.add_process(gpu=0, pid=101, sm=5)
    fake.fail("nvmlDeviceGetProcessUtilization", 3)
    seen = child.sweep(20)
    assert share(seen, 101)[2:] == (None, None)
    assert fake.counts(0)["nvmlDeviceGetProcessUtilization"] == 1


def test_lists_that_are_denied_say_so(fake: Fake, child: Child) -> None:
    fake.fail("nvmlDeviceGet*", 4, gpu=0)
    fake.fail("nvmlDeviceGetHandle*", 0)
    fake.fail("nvmlDeviceGetCount*", 0)
    seen = child.sweep()
    assert seen.reasons(0)["processes"] == "denied"
    assert seen.gpu(1)["busy_percent"] == 59
