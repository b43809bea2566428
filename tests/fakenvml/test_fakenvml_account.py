"""What programs say of their own work on a GPU of the fake driver is what every call then answers."""

from __future__ import annotations

import itertools
import subprocess
import sys
import time

import pytest

from tests.fakenvml.account import Account
from tests.fakenvml.remote import Refused
from tests.fakenvml.test_fakenvml_time import SAMPLES, until

GIB = 1 << 30
TENANT = """
import sys
from pathlib import Path
from tests.fakenvml.account import Account
account = Account(Path(sys.argv[1]))
account.hold(int(sys.argv[2]))
print(account.work(float(sys.argv[3])), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def lent(fake):
    return fake.lend(0)


def test_nothing_is_said_and_nothing_is_done(ask, lent):
    assert {value for _at, value in ask(SAMPLES.format(1, 0))} == {0}
    assert ask("N.nvmlDeviceGetUtilizationRates(gpu(0)).gpu") == 0
    assert ask("N.nvmlDeviceGetPowerUsage(gpu(0))") == 75_000
    assert ask("N.nvmlDeviceGetComputeRunningProcesses(gpu(0))") == []
    assert ask("N.nvmlDeviceGetProcessUtilization(gpu(0), 0)") == Refused(6)
    assert ask("N.nvmlDeviceGetUtilizationRates(gpu(1)).gpu") == 59, "another GPU is as it was"


def test_each_sample_is_the_share_of_its_window_that_was_worked(ask, lent):
    account = Account(lent)
    spans = []
    for seconds in (0.05, 0.4, 0.01, 0.2):  # 0.4 holds one whole window, wherever it begins
        end = account.work(seconds)
        spans.append((end - seconds, end))
        time.sleep(max(0.0, end + 0.12 - time.time()))
    ring = until(lambda: ask(SAMPLES.format(1, 0)), lambda ring: ring[-1][0] / 1e6 > spans[-1][1])
    for at_us, percent in ring:
        to = at_us / 1e6
        busy = sum(max(0.0, min(to, end) - max(to - 1 / 6, start)) for start, end in spans)
        assert percent == pytest.approx(600 * busy, abs=1)
    assert {0, 100} <= {percent for _at, percent in ring}


def test_effort_moves_power_and_units_but_not_utilisation(ask, lent):
    Account(lent).work(60, effort=0.25)
    assert until(lambda: ask("N.nvmlDeviceGetUtilizationRates(gpu(0)).gpu"), lambda percent: percent == 100) == 100
    watts = until(lambda: ask("N.nvmlDeviceGetPowerUsage(gpu(0))"), lambda milliwatts: milliwatts == 211_250)
    assert watts == 75_000 + (620_000 - 75_000) / 4


def test_programs_on_one_gpu_take_turns(ask, lent):
    first, second = Account(lent), Account(lent)
    ends = [account.work(0.2) for account in (first, second, first)]
    assert [later - end for end, later in itertools.pairwise(ends)] == pytest.approx([0.2, 0.2])


def test_a_program_is_listed_with_its_memory_and_share_until_it_ends(ask, lent):
    arguments = (sys.executable, "-c", TENANT, str(lent), str(5 * GIB), "30")
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as tenant:
        tenant.stdout.readline()
        (listed,) = ask("N.nvmlDeviceGetComputeRunningProcesses(gpu(0))")
        assert (listed["pid"], listed["usedGpuMemory"]) == (tenant.pid, 5 * GIB)
        assert ask("N.nvmlDeviceGetMemoryInfo(gpu(0), N.nvmlMemory_v2).used") == 5 * GIB
        question = "N.nvmlDeviceGetProcessUtilization(gpu(0), 0)"
        (share,) = until(lambda: ask(question), lambda got: got != Refused(6) and got[0]["smUtil"] == 100)
        assert (share["pid"], share["smUtil"]) == (tenant.pid, 100)
        tenant.kill()
    assert ask("N.nvmlDeviceGetComputeRunningProcesses(gpu(0))") == []
    assert ask("N.nvmlDeviceGetMemoryInfo(gpu(0), N.nvmlMemory_v2).used") == 0


def test_the_account_goes_on_when_its_places_are_used_again(ask, lent):
    account = Account(lent)
    for _ in range(20_000):  # more than there is room for
        end = account.work(0.0001)
    until(lambda: time.time(), lambda now: now > end)
    busy = until(lambda: ask("N.nvmlDeviceGetUtilizationRates(gpu(0)).gpu"), lambda percent: percent == 0)
    assert busy == 0
    assert max(value for _at, value in ask(SAMPLES.format(1, 0))) == 100
