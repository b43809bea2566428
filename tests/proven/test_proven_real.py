"""A real training with a planted fault, then the same one with the value that its finding says."""

from __future__ import annotations

import pytest

from tests.workloads.proven import SCRIPTS, play

pytestmark = pytest.mark.alone  # a machine that is busy by turns proves nothing, and is told so


def test_the_next_run_of_a_real_script_proves_the_fix() -> None:
    """Workers that live on spare it the start of an epoch. The others of these scripts are played by hand."""
    (script,) = [one for one in SCRIPTS if one.case == "workers start anew each epoch"]
    seen = play(script)
    if not seen.after["proven"]:  # something else came or went between the two runs
        seen = play(script)
    assert seen.before["proven"] == []
    (fix,) = seen.after["proven"]
    assert fix["text"].startswith(f"train.py: {script.changed}")
    assert fix["gain"]["beyond_noise"]
    before, after = fix["before"]["step_s"]["median"], fix["outcome"]["after"]["step_s"]["median"]
    # it steps as its GPU does then, whose work takes 200 ms
    assert after == pytest.approx(0.2, rel=0.1)
    assert before > 1.1 * after
    assert fix["gain"]["times"] == pytest.approx(before / after, rel=0.05)
    assert fix["outcome"]["after"]["busy_percent"]["median"] > fix["before"]["busy_percent"]["median"]
    assert [one["text"] for one in seen.proven["fixes"]] == [fix["text"]]
    assert seen.proven["stats"]["gained"] == 1
