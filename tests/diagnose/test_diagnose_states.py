"""The states of jobs as `gputop diagnose` prints them, and that it goes on while one of them is still being judged."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from gputop.model import Frame
from tests.diagnose_runs import FEW, Recorded, diagnose

pytestmark = pytest.mark.waits


@pytest.mark.parametrize("cpu", [20.0, 100.0])
@pytest.mark.parametrize("recorded_s", [45, 150])
def test_it_goes_on_while_a_job_is_judged_as_far_as_the_recording_does(
    recorded: Recorded, recorded_s: int, cpu: float
) -> None:
    """A starving job that was started a moment ago, on a machine whose CPUs may be full."""
    young = {"age_s": lambda t: 1 + t, "cpu_percent": 20.0, "main_thread_percent": 20.0}
    starves = replace(FEW, gpu={"busy_percent": 33.0}, trainer=young, host={"cpu_percent": cpu})
    done = diagnose("--source", recorded(starves.frame, recorded_s), "--for", "40s", "--json")
    assert done.stderr.startswith("gputop: continues for up to 90 s: j (GPU 0): judging: GPU busy 33 % so far, ")
    told = json.loads(done.stdout)
    assert told["seconds"] > 40
    assert told["host_state"]["state"] == ("found" if cpu == 100 else "judging" if recorded_s < 60 else "healthy")
    (job,) = told["jobs"]
    if recorded_s < 60:
        assert done.returncode == 3
        assert job["state"] == "judging"
        assert 40 < job["judged_in_s"] < 60
        return
    assert told["seconds"] <= 40 + 90
    assert job["judged_in_s"] is None
    if cpu < 100:
        assert (job["state"], done.returncode) == ("found", 1)
    elif job["state"] == "unknown":
        assert done.returncode == 3
        assert "cause unknown, but CPU saturated, 100 % of 16 CPUs in use" in job["why"]


def test_a_job_beside_the_process_that_is_asked_for_is_not_waited_for(recorded: Recorded) -> None:
    def frame(t: float) -> Frame:
        old, new = FEW.frame(t), replace(FEW, trainer={"age_s": 1 + t}).frame(t)
        gpu = replace(new.gpus[0], uuid="H", index="1")
        ours = tuple(
            replace(one, pid=one.pid + 1000, parent_pid=one.parent_pid and one.parent_pid + 1000, job="k",
                    gpus=tuple(replace(share, uuid="H") for share in one.gpus))
            for one in new.processes
        )  # fmt: skip
        job = replace(new.jobs[0], key="k", name="k", ranks=(ours[0].identity,))
        return replace(old, gpus=(*old.gpus, gpu), processes=(*old.processes, *ours), jobs=(*old.jobs, job))

    path = recorded(frame)
    done = diagnose("--source", path, "--for", "60s", "--pid", "100", "--json")
    assert (done.returncode, done.stderr) == (1, "")
    assert [job["name"] for job in json.loads(done.stdout)["jobs"]] == ["j"]
    both = diagnose("--source", path, "--for", "60s", "--json")
    assert "continues for up to 90 s: k (GPU 1): judging" in both.stderr
