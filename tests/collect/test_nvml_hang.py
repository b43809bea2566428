"""The lane when calls do not come back: a thread for each GPU that hangs, up to a few; the driver that is only slow."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gputop.collect.nvml.lane import MOST_STUCK
from tests.collect.test_nvml_faults import pci
from tests.fakenvml import Fake
from tests.nvml_child import Child, Seen

pytestmark = pytest.mark.waits

LISTENS = "nvmlEventSetWait_v2"  # the thread for Xids has told the driver of every GPU, in which it would hang too
BRISK = {"interval_s": 0.1, "gpm": "off"}


@pytest.fixture
def child(fake: Fake) -> Iterator[Child]:
    fake.set("gpus", 4)
    with Child(fake, **BRISK) as child:
        yield child


def hung(seconds: float, *gpus: int) -> Callable[[Seen], bool]:
    """Whether these GPUs, and no others, do not answer for so long."""
    names = {str(gpu) for gpu in gpus}

    def looks(seen: Seen) -> bool:
        return names == {
            gpu["index"] for gpu in seen.gpus if gpu["condition_s"] >= seconds and gpu["condition"] == "hung"
        }

    return looks


def fresh(seen: Seen, *gpus: int) -> bool:
    # one that was identified a moment ago is listed when it was read
    listed = set(map(str, gpus)) <= set(seen.indexes)
    return listed and all(seen.gpu(gpu)["age_s"] == 0 and seen.gpu(gpu)["busy_percent"] for gpu in gpus)


def lanes(seen: Seen) -> int:
    return seen.rest["threads"].count("gpus")


def test_n09_one_gpu_hangs_and_the_others_stay_fresh(fake: Fake, child: Child) -> None:
    child.start()
    before = child.until(lambda seen: len(seen.gpus) == 4 and fresh(seen, 0, 1, 2, 3))
    fake.wait_for(LISTENS)
    fake.hang("*", gpu=1)
    child.until(hung(2, 1))
    fake.set("gpu.*.util", 77)
    seen = child.until(lambda seen: fresh(seen, 0, 2, 3) and seen.gpu(3)["busy_percent"] == 77)
    assert seen.gpu(1)["age_s"] > 2
    assert seen.gpu(1)["vram_used_bytes"] == before.gpu(1)["vram_used_bytes"]
    assert lanes(seen) == 2
    assert fake.counts(1)["hanging"] == 1
    later = child.until(hung(3.5, 1))
    assert later.gpu(1)["condition_s"] > seen.gpu(1)["condition_s"]
    assert fresh(later, 0, 2, 3)
    assert child.stop() < 1


def test_n09_the_gpu_rests_after_its_call_returned(fake: Fake, child: Child) -> None:
    child.start()
    child.until(lambda seen: len(seen.gpus) == 4 and fresh(seen, 0, 1, 2, 3))
    fake.hang("*", gpu=1)
    child.until(hung(2, 1))
    fake.release("hang", "*", gpu=1)
    seen = child.until(lambda seen: lanes(seen) == 1)
    before = fake.counts(1)
    seen = child.until(lambda seen: seen.gpu(1)["condition_s"] > 3.5)
    assert (seen.gpu(1)["condition"], fresh(seen, 0, 2, 3)) == ("hung", True)
    assert fake.counts(1) == before
    child.call("advance", 60)
    child.until(lambda seen: seen.gpu(1)["condition"] == "ok" and fresh(seen, 1))


def test_n09_two_gpus_hang_and_the_others_stay_fresh(fake: Fake, child: Child) -> None:
    child.start()
    child.until(lambda seen: len(seen.gpus) == 4 and fresh(seen, 0, 1, 2, 3))
    fake.wait_for(LISTENS)
    fake.hang("*", gpu=1)
    child.until(hung(2, 1))
    fake.hang("*", gpu=2)
    child.until(hung(2, 1, 2))
    fake.set("gpu.*.util", 77)
    seen = child.until(lambda seen: fresh(seen, 0, 3) and seen.gpu(3)["busy_percent"] == 77)
    assert lanes(seen) == 3
    assert fake.counts()["hanging"] == 2
    child.call("advance", 45)  # as long as each call takes while the GPU's firmware does not answer
    for gpu in (1, 2):
        fake.release("hang", "*", gpu=gpu)
    seen = child.until(lambda seen: lanes(seen) == 1 and fresh(seen, 0, 3))
    assert (seen.gpu(1)["condition"], seen.gpu(2)["condition"]) == ("hung", "hung")  # they rest
    assert seen.gpu(1)["busy_percent"] == 59  # what the call that came late said is not shown
    child.call("advance", 60)
    child.until(lambda seen: fresh(seen, 0, 1, 2, 3) and set(seen.conditions.values()) == {"ok"})
    assert child.stop() < 1


def test_n09_three_of_four_gpus_hang_one_after_the_other(fake: Fake, child: Child) -> None:
    child.start()
    child.until(lambda seen: len(seen.gpus) == 4 and fresh(seen, 0, 1, 2, 3))
    fake.wait_for(LISTENS)
    for gpu in (0, 1, 3):
        fake.hang("*", gpu=gpu)
    seen = child.until(lambda seen: hung(2, 0, 1, 3)(seen) and fresh(seen, 2))
    assert (lanes(seen), fake.counts()["hanging"]) == (4, 3)
    fake.hang("*", gpu=2)
    seen = child.until(hung(2, 0, 1, 2, 3))
    assert (lanes(seen), fake.counts()["hanging"]) == (4, 4)  # nobody is left for another thread to serve
    for gpu in (0, 1, 2, 3):
        fake.release("hang", "*", gpu=gpu)
    seen = child.until(lambda seen: lanes(seen) == 1)
    child.call("advance", 60)
    child.until(lambda seen: fresh(seen, 0, 1, 2, 3))


def test_n09_no_more_threads_than_a_few_wait_for_gpus_that_hang(fake: Fake, child: Child) -> None:
    fake.set("gpus", 12)
    child.start()
    child.until(lambda seen: len(seen.gpus) == 12 and fresh(seen, *range(12)))
    fake.wait_for(LISTENS)
    for gpu in range(10):
        fake.hang("*", gpu=gpu)
    for stuck in range(1, MOST_STUCK + 1):
        fake.wait_for("hanging", stuck)
        child.call("advance", 2.1)
    fake.wait_for("hanging", MOST_STUCK + 1)
    child.call("advance", 2.1)
    seen = child.latest()
    assert lanes(seen) == MOST_STUCK + 1
    fake.release("hang", "*", gpu=0)
    child.until(lambda seen: fake.counts()["hanging"] == MOST_STUCK + 1 and seen.gpu(9)["condition"] != "hung")
    child.call("advance", 2.1)
    assert lanes(child.latest()) == MOST_STUCK + 1
    assert child.stop() < 1


def test_n09_a_gpu_that_hangs_again_rests_longer_each_time_and_stops_nobody(fake: Fake, child: Child) -> None:
    child.start()
    child.until(lambda seen: len(seen.gpus) == 4 and fresh(seen, 0, 1, 2, 3))
    fake.wait_for(LISTENS)
    fake.hang("*", gpu=1)
    child.until(hung(2, 1))
    since_s = 0.0
    for pause_s in (60, 120, 240, 300, 300):
        fake.wait_for("hanging", 1)
        child.call("advance", 45)
        seen = child.until(lambda seen: fresh(seen, 0, 2, 3))  # before, while and after it is tried again
        assert lanes(seen) == 2
        assert seen.gpu(1)["condition_s"] > since_s + 45
        since_s = seen.gpu(1)["condition_s"]
        fake.release("hang", "*", gpu=1)
        child.until(lambda seen: lanes(seen) == 1)
        fake.hang("*", gpu=1)
        calls = fake.counts(1)
        child.call("advance", pause_s - 10)
        child.until(lambda seen: fresh(seen, 0, 2, 3))
        child.until(lambda seen: fresh(seen, 0, 2, 3))
        assert fake.counts(1) == calls
        child.call("advance", 10)
    fake.wait_for("hanging", 1)
    fake.release("hang", "*", gpu=1)
    child.until(lambda seen: fresh(seen, 0, 1, 2, 3))  # it answered within two seconds: no rest


def test_n09_release_waits_for_every_thread_and_resume_reads_all_again(fake: Fake, child: Child) -> None:
    child.start()
    child.until(lambda seen: len(seen.gpus) == 4 and fresh(seen, 0, 1, 2, 3))
    fake.wait_for(LISTENS)
    for gpu in (1, 2):
        fake.hang("*", gpu=gpu)
    child.until(lambda seen: hung(2, 1, 2)(seen) and fresh(seen, 0, 3))
    child.call("release")
    fake.release("hang", "*", gpu=1)
    seen = child.until(lambda seen: lanes(seen) == 2)
    assert fake.counts()["nvmlShutdown"] == 0  # a thread is inside the driver
    fake.release("hang", "*", gpu=2)
    child.until(lambda _: fake.counts()["nvmlShutdown"] == 1)
    seen = child.call("advance", 60)
    assert (set(seen.notes), lanes(seen)) == ({"released"}, 1)
    child.call("resume")
    child.until(lambda seen: fresh(seen, 0, 1, 2, 3) and not seen.notes)


def test_n09_a_count_of_bytes_that_hangs_costs_its_gpu_only(fake: Fake, child: Child) -> None:
    child.start()
    child.until(lambda seen: len(seen.gpus) == 4 and all(gpu["pcie_tx_bytes_per_s"] for gpu in seen.gpus))
    fake.wait_for(LISTENS)
    for gpu in (0, 3):
        fake.hang("nvmlDeviceGetFieldValues", gpu=gpu)
    seen = child.until(lambda seen: hung(2, 0, 3)(seen) and fresh(seen, 1, 2))
    assert lanes(seen) == 3


def test_n09_p37_a_file_about_a_gpu_that_never_answers_costs_that_gpu(fake: Fake, tmp_path: Path) -> None:
    fake.set("gpus", 2)
    pci(tmp_path, 0x1B, status="active", control="auto")
    with Child(fake, sys_root=str(tmp_path), **BRISK) as child:
        child.start()
        child.until(lambda seen: len(seen.gpus) == 2 and fresh(seen, 0, 1))
        status = tmp_path / "bus/pci/devices/0000:1b:00.0/power/runtime_status"
        status.unlink()
        os.mkfifo(status)
        seen = child.until(hung(2.5, 0))
        assert fresh(seen, 1)
        assert lanes(seen) == 2
        assert child.stop() < 1


def test_n09_hangs_at_the_start(fake: Fake, child: Child) -> None:
    fake.hang("nvmlDeviceGetHandleByIndex*", gpu=2)
    child.start()
    seen = child.until(lambda seen: len(seen.gpus) == 4 and fresh(seen, 0, 1, 3))
    assert seen.gpu(2)["condition"] == "starting"
    assert seen.gpu(2)["busy_percent"] is None
    child.call("advance", 30)
    seen = child.until(hung(30, 2))
    fake.release("hang", "nvmlDeviceGetHandleByIndex*", gpu=2)
    seen = child.until(lambda seen: lanes(seen) == 1)
    assert seen.gpu(2)["condition"] == "hung"  # it rests


def test_n09_two_gpus_hang_at_the_start(fake: Fake, child: Child) -> None:
    for gpu in (1, 2):
        fake.hang("nvmlDeviceGetHandleByIndex*", gpu=gpu)
    child.start()
    seen = child.until(lambda seen: len(seen.gpus) == 4 and fresh(seen, 0, 3))
    assert (seen.gpu(1)["condition"], seen.gpu(2)["condition"]) == ("starting", "starting")
    child.call("advance", 30)
    seen = child.until(lambda seen: hung(30, 1, 2)(seen) and fresh(seen, 0, 3))
    assert lanes(seen) == 3
    for gpu in (1, 2):
        fake.release("hang", "nvmlDeviceGetHandleByIndex*", gpu=gpu)
    child.until(lambda seen: lanes(seen) == 1)
    child.call("advance", 60)
    child.until(lambda seen: fresh(seen, 0, 1, 2, 3))


def test_n09_hangs_at_the_call_after_the_first(fake: Fake, child: Child) -> None:
    fake.hang("nvmlDeviceGetName", gpu=2)
    child.start()
    seen = child.until(lambda seen: len(seen.gpus) == 4 and fresh(seen, 0, 1, 3) and seen.gpu(2)["condition"] == "hung")
    assert lanes(seen) == 2


def slow(fake: Fake, seconds: float, *gpus: int) -> None:
    """The first call about each of these GPUs, which initialises it, takes so long."""
    for gpu in gpus:
        fake.fault("delay_us", "nvmlDeviceGetHandleByIndex*", seconds * 1e6, gpu=gpu, times=1)


def test_n36_gpus_that_start_slowly_are_starting_then_there(fake: Fake, child: Child) -> None:
    slow(fake, 2.5, 0, 1)
    child.start()
    conditions = set()

    def there(seen: Seen) -> bool:
        conditions.update((gpu["index"], gpu["condition"]) for gpu in seen.gpus)
        return len(seen.gpus) == 4 and fresh(seen, 0, 1, 2, 3)

    seen = child.until(there)
    assert conditions == {(str(gpu), "ok") for gpu in range(4)} | {("0", "starting"), ("1", "starting")}
    assert (lanes(seen), fake.counts(0)["nvmlDeviceGetHandleByIndex_v2"]) == (1, 2)  # the second was answered at once


def test_n36_one_gpu_that_starts_slowly_is_asked_once(fake: Fake, child: Child) -> None:
    fake.set("gpus", 1)
    slow(fake, 3, 0)
    child.start()
    child.until(lambda seen: len(seen.gpus) == 1 and seen.gpu(0)["condition"] == "starting")
    child.until(lambda seen: fresh(seen, 0))
    assert fake.counts(0)["nvmlDeviceGetHandleByIndex_v2"] == 1


def test_n36_a_gpu_that_was_initialised_is_starting_until_it_is_read(fake: Fake, child: Child) -> None:
    fake.set("gpus", 1)
    slow(fake, 3, 0)
    fake.set("delay_us.nvmlDeviceGetName", 500_000)
    child.start()
    child.until(lambda seen: len(seen.gpus) == 1 and seen.gpu(0)["condition"] == "starting")
    child.until(lambda seen: fresh(seen, 0), seconds=6)  # it is an error if it is not there meanwhile


def test_one_gpu_alone_needs_no_substitute(fake: Fake, child: Child) -> None:
    fake.set("gpus", 1)
    child.start()
    child.until(lambda seen: len(seen.gpus) == 1 and fresh(seen, 0))
    fake.hang("nvmlDeviceGet*")
    seen = child.until(hung(2.2, 0))
    assert lanes(seen) == 1


def test_n10_init_hangs(fake: Fake, child: Child) -> None:
    fake.hang("nvmlInit*")
    child.start()
    seen = child.until(lambda seen: seen.notes["waiting"]["text"] == "waiting for driver 1 s", seconds=3)
    assert not seen.gpus
    seen = child.until(lambda seen: seen.notes["waiting"]["text"] == "waiting for driver 3 s", seconds=4)
    assert lanes(seen) == 1
    fake.release("hang", "nvmlInit*")
    child.until(lambda seen: len(seen.gpus) == 4 and not seen.notes)


def test_the_driver_as_a_whole_hangs_later(fake: Fake, child: Child) -> None:
    child.start()
    child.until(lambda seen: len(seen.gpus) == 4 and fresh(seen, 0, 1, 2, 3))
    fake.hang("nvmlDeviceGetCount*")
    seen = child.until(lambda seen: "waiting" in seen.notes and all(gpu["age_s"] > 1.5 for gpu in seen.gpus))
    assert lanes(seen) == 1
    fake.release("hang", "nvmlDeviceGetCount*")
    child.until(lambda seen: not seen.notes and fresh(seen, 0, 1, 2, 3))


def test_n10_leaving_while_init_hangs(fake: Fake, child: Child) -> None:
    fake.hang("nvmlInit*")
    child.start()
    fake.wait_for("hanging")
    assert child.stop() < 1


def test_n12_a_slow_driver_is_asked_less(fake: Fake, child: Child) -> None:
    fake.fault("delay_us", "nvmlDeviceGet*", 30_000)
    child.start()
    seen = child.until(lambda seen: "slow" in seen.notes)
    assert seen.rest["interval_s"] > 0.1
    every, taken = re.fullmatch(
        r"sampling every (\S+) s: driver calls take ([\d.]+) ms", seen.notes["slow"]["text"]
    ).groups()
    assert float(every) == seen.rest["interval_s"]
    assert float(taken) >= 30
