"""The fake driver under the real nvidia-ml-py: what it answers, before anything is believed that was tested with it."""

from __future__ import annotations

import pytest

from tests.fakenvml import Fake, NoCompiler
from tests.fakenvml.remote import Refused, Remote


@pytest.fixture
def fake(tmp_path):
    try:
        return Fake(tmp_path)
    except NoCompiler as why:
        pytest.skip(str(why))


def test_it_answers_and_a_change_is_seen_while_the_program_runs(fake):
    with Remote(fake) as ask:
        assert ask("N.nvmlDeviceGetCount()") == 8
        assert ask("N.nvmlDeviceGetPowerUsage(gpu(0))") == 412_000
        fake.set("gpu.0.power_mw", 300_000)
        assert ask("N.nvmlDeviceGetPowerUsage(gpu(0))") == 300_000
        fake.fail("nvmlDeviceGetPowerUsage", 15, gpu=0)
        assert ask("N.nvmlDeviceGetPowerUsage(gpu(0))") == Refused(15)
        assert ask("N.nvmlDeviceGetPowerUsage(gpu(1))") == 413_000
    assert fake.counts(gpu=0)["nvmlDeviceGetPowerUsage"] == 3
