"""The states of jobs on the screen: each job has its line, and the same word stands at its GPUs and in the table."""

from __future__ import annotations

from dataclasses import replace

from gputop.model import GpuShare, Process
from gputop.ui.advice.states import states
from tests.advice_scenes import drawn, fine, found, hot, server, update
from tests.servers import frame, gpu, idle

ALL = update(fine(), found(), hot())
SO_FAR = "GPU busy 33 % so far, 40 of 60 s"


def test_every_job_has_its_line_and_healthy_is_said_of_those_that_are() -> None:
    told = update(fine())
    lines = drawn(told, (120, 40))
    assert lines[1].startswith(" 3 jobs: 2 judging, 1 healthy   8 GPUs")
    judging = [line for line in lines if line.startswith("  judging ")]
    assert judging == [f"  judging llama-7b (alice, GPU 0-3)  {SO_FAR}  +1"]
    assert "1 check skipped" in lines[1]
    assert "says why" not in lines[1], "the key opens on the finding about the healthy one"
    one = replace(told, jobs=told.jobs[1:2])
    assert drawn(one, (80, 24))[0].startswith(" 1 job healthy   ")
    assert "keeps its GPUs busy" in drawn(one, (120, 40))[2]


def test_one_line_is_of_a_job_that_has_no_verdict_yet() -> None:
    (line,) = drawn(update(fine()), (80, 24))
    assert line.startswith("  judging llama-7b (alice, GPU 0-3)  GPU busy 33 % so far")
    assert " +1 " in line
    assert drawn(update(found()), (80, 24))[0].startswith(" ! llama-7b"), "a warning comes first"
    (ended,) = drawn(replace(update(), jobs=update().jobs[:1]), (120, 24), ended=True)
    assert ended.startswith(f"  judging llama-7b (alice, GPU 0-3)  {SO_FAR}; end of the recording")


def test_below_findings_the_other_jobs_have_their_line() -> None:
    lines = drawn(update(found()), (200, 60))
    told = [line for line in lines if line.startswith("  judging ")]
    assert told[0].startswith("  judging sd3-finetune (bob, GPU 4-6)  ")
    assert told[1].startswith("  judging jupyter (carol, GPU 7)  ")
    said = " ".join(" ".join(lines[lines.index(told[1]) :]).split())
    assert said.endswith(SO_FAR), "in whole: there are lines for it"


def test_before_the_rules_are_asked_nothing_is_called_healthy() -> None:
    assert drawn(replace(update(), jobs=(), host=None), (80, 24)) == [
        " judging   the first verdict takes about a minute"
    ]
    assert drawn(replace(update(), jobs=()), (80, 24))[0].startswith(" no job is running on the GPUs")


def test_gpus_and_jobs_without_a_verdict_say_so() -> None:
    shown = server()
    words = states((), shown, update().jobs)
    assert {state.word for state in words.gpus.values()} == {"judging"}
    assert words.jobs[shown.jobs[0].key].word == "judging"
    words = states(ALL.findings, shown, ALL.jobs)
    assert words.jobs[shown.jobs[0].key].sign == "warn"


def test_a_job_carries_the_word_of_a_gpu_that_drags_it() -> None:
    """A trouble is named by its GPU; the line of the job says it too, though its other GPUs are well."""
    shown = server()
    llama, sd3, jupyter = (job.key for job in shown.jobs)
    words = states((hot(), fine()), shown)
    assert (words.jobs[sd3].word, words.jobs[sd3].sign) == ("thermal", "crit"), "worse than its own remark"
    assert words.gpus["GPU-0006"].word == "thermal"
    assert llama not in words.jobs
    assert jupyter not in words.jobs
    waits = found(subject=replace(hot().subject, kind="job", job=sd3))
    assert states((hot(), waits), shown).jobs[sd3].word == "thermal", "the worst"
    assert states((hot(severity="warn", primary=False), waits), shown).jobs[sd3].word == "dataloader", "what leads"
    capped = hot(rule="power", severity="info", state="power cap", primary=False)
    assert sd3 not in states((capped,), shown).jobs, "a mere remark about one GPU is none about the job"


def test_memory_held_by_a_process_that_ended_is_said_from_the_first_second() -> None:
    """Before any rule speaks: that the process is gone and the GPU is at rest is certain at once."""
    held = Process(pid=7, started_ticks=0, unseen="exited", gpus=(GpuShare(uuid="GPU-0001", vram_bytes=30 << 30),))
    resting = replace(frame((gpu(0), idle(1))), processes=(held,))
    assert states((), resting).gpus["GPU-0001"].word == "mem held"
    at_work = replace(frame((gpu(0), gpu(1))), processes=(held,))
    assert states((), at_work).gpus == {}, "others are at work there"
    unknown = replace(held, gpus=(GpuShare(uuid="GPU-0001", vram_bytes=None),))
    assert states((), replace(frame((gpu(0), idle(1))), processes=(unknown,))).gpus == {}
    hidden = replace(held, unseen="hidden")
    assert states((), replace(frame((gpu(0), idle(1))), processes=(hidden,))).gpus == {}, "that one lives"
