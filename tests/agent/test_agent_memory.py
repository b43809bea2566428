"""The memory of real trainings, asked through the agent in them: what grows is found, and they end as they would."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.process_watch import ROOT
from tests.pty_programs import Terminal, wait_until
from tests.traced_jobs import Job, environment, job, scratch

PROGRAM = str(ROOT / "tests/workloads/leaking.py")
KEPT = 2 << 20  # bytes a step, as the program keeps them
GPUTOP = [sys.executable, "-m", "gputop", "memory", "--no-nvml"]

pytestmark = pytest.mark.jobs


@pytest.fixture(scope="module")
def folder() -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch, scratch() as folder:
        patch.setenv("MALLOC_MMAP_THRESHOLD_", "65536")  # each tensor by itself: what is freed leaves no holes
        yield folder


def memory(folder: str, *args: str) -> subprocess.CompletedProcess[str]:
    kept = {**os.environ, **{key: value for key, value in environment(folder).items() if key.startswith("GPUTOP_")}}
    return subprocess.run([*GPUTOP, *args], capture_output=True, text=True, timeout=120, check=False, env=kept)


def measured(folder: str, *args: str) -> dict[str, Any]:
    done = memory(folder, "--json", *args)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def ends_as_it_would(running: Job) -> None:
    """Without a word, and without CUDA having been touched."""
    assert running.child.stdin is not None
    running.child.stdin.close()
    assert running.line() == "False"
    assert (running.ended(), running.said) == (0, "")


def row(result: dict[str, Any], kind: str) -> dict[str, Any]:
    (found,) = (one for one in result["rows"] if one["kind"] == kind)
    return dict(found)


def test_a_loss_that_is_kept_is_found_with_what_it_takes_each_step(folder: str) -> None:
    with job(folder, "leaks", program=PROGRAM) as running:
        result = measured(folder, str(running.pid), "--steps", "60", "--tensors")
        host = row(result, "host")
        assert host["grows"] is True
        assert host["each"] == pytest.approx(KEPT, rel=0.25)
        assert host["noise"] < host["each"] / 4
        piled = {(*one["shape"], one["graph"]): one["more"] for one in result["tensors"] if one["grows"]}
        assert piled.keys() == {(True,), (KEPT // 8, True), (KEPT // 8, False)}
        assert list(piled.values()) == [pytest.approx(result["steps"], abs=2)] * 3
        assert result["devices"] == []
        assert result["cuda"] == "the program has not used CUDA"
        said = memory(folder, str(running.pid), "--steps", "40").stdout
        assert "Host memory of the process grows by" in said
        assert "losses.append(loss.item())" in said
        assert f"gputop memory {running.pid} --tensors" in said
        ends_as_it_would(running)


def test_scalars_with_their_graph_are_found_by_their_number(folder: str) -> None:
    with job(folder, "scalars", program=PROGRAM) as running:
        said = memory(folder, str(running.pid), "--steps", "60", "--tensors").stdout
        assert "Losses with their graphs accumulate: " in said
        ends_as_it_would(running)


def test_who_keeps_nothing_does_not_grow(folder: str) -> None:
    with job(folder, "steady", program=PROGRAM) as running:
        result = measured(folder, str(running.pid), "--steps", "60", "--tensors")
        assert row(result, "host")["grows"] is False
        assert [one["grows"] for one in result["tensors"]] == [False] * len(result["tensors"])
        done = memory(folder, str(running.pid), "--for", "2s")
        assert (done.returncode, done.stderr) == (0, "")
        assert "Memory does not grow from step to step." in done.stdout
        ends_as_it_would(running)


def test_the_numbers_of_a_cuda_allocator(folder: str) -> None:
    with job(folder, "cuda", program=PROGRAM) as running:
        result = measured(folder, str(running.pid), "--steps", "60")
        allocated = row(result, "allocated")
        assert (allocated["grows"], allocated["name"]) == (True, "cuda:0 allocated")
        assert allocated["each"] == pytest.approx(1 << 20, rel=0.02)
        assert row(result, "reserved")["grows"] is False
        (device,) = result["devices"]
        assert (device["segments"], device["retries"], device["reserved"]) == (12, 3, 2 << 30)
        agent = running.agent()
        facts = agent.answer("facts")["facts"]["memory"]
        assert facts[0]["reserved"] == 2 << 30
        agent.close()


def test_fragmentation_and_retries_are_judged(folder: str) -> None:
    with job(folder, "fragmented", program=PROGRAM) as running:
        said = memory(folder, str(running.pid), "--steps", "30").stdout
        assert "cuda:0: the allocator's cache is fragmented." in said
        assert "50 % of what is reserved (flagged ≥ 20 %)" in said
        assert "expandable_segments:True" in said
        assert "memory ran out 3 times" in said


def test_without_an_agent_it_says_what_would_unlock_the_rest(folder: str) -> None:
    with job(folder, "steady", program=PROGRAM, injected=False) as running:
        done = memory(folder, str(running.pid), "--for", "1s")
        assert done.returncode == 0, done.stderr
        said = " ".join(done.stdout.split())
        assert f"start the job with `gputop run -- {sys.executable} {PROGRAM} steady`, then repeat" in said
        assert "s without steps are too short" in said
        refused = memory(folder, str(running.pid), "--steps", "5")
        assert refused.returncode == 1
        assert refused.stderr.startswith("gputop: --steps needs an agent. No agent in ")


def test_ctrl_c_prints_what_was_sampled(folder: str) -> None:
    with (
        job(folder, "steady", program=PROGRAM) as running,
        Terminal([*GPUTOP, str(running.pid), "--for", "10m"], env={"GPUTOP_RUNTIME_DIR": f"{folder}/run"}) as terminal,
    ):
        wait_until(lambda: b"of 600 s, " in terminal.output, 30, "it samples")
        terminal.send("ctrl+c")
        assert terminal.process.wait(30) == 130
        wait_until(lambda: b"interrupted" in terminal.output, 10, "it says so")
        assert b"Findings so far" in terminal.output
        ends_as_it_would(running)


def test_a_request_that_makes_no_sense_is_refused(folder: str) -> None:
    with job(folder, "steady", program=PROGRAM) as running:
        agent = running.agent()
        assert agent.answer("memory", tensors=1)["error"] == "bad-args"
        assert agent.answer("memory", path="/etc")["error"] == "bad-args"
        assert "tensors" not in agent.answer("memory")["memory"]
        agent.close()
        ends_as_it_would(running)
