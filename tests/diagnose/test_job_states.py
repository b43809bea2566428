"""The state of each job and of the machine: healthy is earned, and judging has an end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gputop.diagnose.state import JobState
from gputop.export.diagnosis import Diagnosis, as_json, page
from gputop.export.formats import snapshot
from gputop.model import Frame, GpuShare, Identity, Job, Missing, Process
from gputop.monitor import Update
from gputop.report import markdown, text
from tests.rule_cases import EACH_S, Machine, after, judged, refused, scenario

Frames = Callable[[float], Frame]
SHARE = GpuShare(uuid="G", busy_percent=None, vram_bytes=2**30)
STARVES: dict[str, Any] = {"busy_percent": 33.0, "power_watts": 200.0, "sm_active_percent": 15.0}
FULL: dict[str, Any] = {"cpu_percent": 100.0}


def diagnosis(frame: Frames, seconds: int) -> Diagnosis:
    """What is said after so many seconds."""
    said = after(frame, seconds)
    update = Update(
        frame=frame(float(seconds)), findings=said.findings, abstained=said.abstained, jobs=said.jobs, host=said.host
    )
    return Diagnosis(update=update, seconds=float(seconds))


def states(frame: Frames, seconds: int) -> list[tuple[float, JobState]]:
    """The state of the first job at each look."""
    looks = judged(frame(float(t)) for t in range(0, seconds, EACH_S))
    return [(now.mono_s - 1000, said.jobs[0]) for now, said in looks]


def young(seconds: float, **dials: Any) -> Machine:
    """A job that was started so many seconds before anybody looked."""
    return Machine(trainer={"age_s": lambda t: seconds + t, **dials.pop("trainer", {})}, **dials)


@pytest.mark.parametrize("seconds", [42, 60, 80])
def test_a_job_that_starves_from_its_start_on_is_never_called_healthy(seconds: int) -> None:
    """The GPU at 33 %, the CPUs at 100 %: exit code 0 and `nothing is wrong` after a minute."""
    found = diagnosis(young(1.0, gpu=STARVES, host=FULL).frame, seconds)
    (job,) = found.update.jobs
    assert job.state in ("judging", "found")
    if job.state == "judging":
        assert job.why == f"GPU busy 33 % so far, {seconds - 1} of 90 s"
        assert job.judged_in_s == 91 - seconds
        assert found.reasons == (f"j (GPU 0): judging: {job.why}",)
        assert "h: 1 job (judging)" in text(page(found))
    assert "healthy:" not in text(page(found))


def test_a_driver_that_opens_slowly_makes_no_job_young() -> None:
    """Its processes are named some frames after the first; they have long been at work."""
    whole = Machine(gpu=STARVES)

    def frame(t: float) -> Frame:
        made = whole.frame(t)
        if t >= 8:
            return made
        return replace(made, gpus=(), processes=tuple(replace(one, gpus=()) for one in made.processes))

    seen = states(frame, 80)
    assert {one.state for t, one in seen if t >= 68} == {"found"}
    assert "judging" in {one.state for t, one in seen if t < 60}


def test_who_was_there_before_is_judged_within_a_minute() -> None:
    seen = states(Machine(gpu=STARVES).frame, 120)
    before = [one for t, one in seen if t < 30]
    assert {one.state for one in before} == {"judging"}
    assert before[-1].why == "GPU busy 33 % so far, 28 of 60 s"
    assert before[-1].judged_in_s == 32
    assert {one.state for t, one in seen if t >= 60} == {"found"}


def test_healthy_is_what_a_healthy_rule_says() -> None:
    seen = states(Machine().frame, 120)
    words = [one.state for _, one in seen]
    assert list(dict.fromkeys(words)) == ["judging", "healthy"]
    assert next(t for t, one in seen if one.state == "healthy") <= 60
    assert seen[-1][1].why in ("compute-bound", "mix of compute and memory")


def test_a_healthy_verdict_does_not_outlive_what_it_was_about() -> None:
    falls = Machine(gpu={**Machine().gpu, "busy_percent": lambda t: 97.0 if t < 120 else 33.0})
    seen = states(falls.frame, 240)
    after_s = [one for t, one in seen if 132 <= t < 240]
    assert "healthy" not in {one.state for one in after_s}
    assert after_s[0].state == "judging"
    assert "GPU busy 3" in after_s[0].why


def test_a_short_pause_is_no_other_state() -> None:
    pauses = Machine(gpu={"busy_percent": lambda t: 0.0 if 120 <= t < 126 else 97.0})
    assert {one.state for t, one in states(pauses.frame, 200) if t >= 60} == {"healthy"}


def test_unknown_says_what_cannot_be_read_and_what_unlocks_it() -> None:
    mute = Missing(metric="busy_percent", reason="unsupported", unlock="an instance tells nothing")
    dark = {"busy_percent": None, "sm_active_percent": None, "missing": (mute,)}
    (job,) = diagnosis(Machine(gpu=dark, trainer={"gpus": (SHARE,)}).frame, 120).update.jobs
    assert (job.state, job.judged_in_s) == ("unknown", None)
    assert job.why == "GPU busy is unsupported: an instance tells nothing"


def test_a_job_that_no_rule_explains_is_unknown_and_no_more() -> None:
    idle = {"busy_percent": 0.0, "sm_active_percent": 0.0, "power_watts": 80.0}
    quiet = {"cpu_percent": 30.0, "main_thread_percent": 30.0}
    found = diagnosis(Machine(gpu=idle, trainer=quiet).frame, 120)
    (job,) = found.update.jobs
    assert job.state in ("unknown", "found")
    assert job.state == "found" or found.reasons


@pytest.mark.parametrize(
    ("processes", "gpu", "why", "due"),
    [
        ((Process(pid=7, started_ticks=0, verified=False, unseen="foreign", gpus=(SHARE,)),), {}, "container", True),
        ((Process(pid=7, started_ticks=0, unseen="hidden", gpus=(SHARE,)),), {}, "hidepid", True),
        ((Process(pid=7, started_ticks=0, unseen="exited", gpus=(SHARE,)),), {"busy_percent": 0.0}, "exited", False),
        ((Process(pid=7, started_ticks=1, name="nvidia-cuda-mps", gpus=(SHARE,)),), {"busy_percent": 0.0},
         "no training job", False),
        ((), {}, "the driver lists no process", True),
    ],
)  # fmt: skip
def test_users_of_a_gpu_that_are_no_job_have_their_line(
    processes: tuple[Process, ...], gpu: dict[str, Any], why: str, due: bool
) -> None:
    found = diagnosis(lambda t: replace(Machine(gpu=gpu).frame(t), processes=processes, jobs=()), 60)
    (one,) = found.update.jobs
    assert (one.state, one.due) == ("unknown", due)
    assert why in one.why
    assert bool(found.reasons) == due
    assert why in " ".join(text(page(found)).split())


def test_an_inference_server_is_no_training_job() -> None:
    server = {"command": ("VLLM::EngineCore",), "name": "VLLM::EngineCor", "cpu_percent": 40.0}
    found = diagnosis(Machine(gpu={**STARVES, "busy_percent": 20.0}, trainer=server).frame, 120)
    (one,) = found.update.jobs
    assert one.why == "no training job: an inference server, GPU busy 20 %"
    assert (one.state, one.due, found.reasons, found.code) == ("unknown", False, (), 0)


def test_without_any_job_that_is_said() -> None:
    found = diagnosis(lambda t: replace(Machine(gpu={"busy_percent": 0.0}).frame(t), processes=(), jobs=()), 60)
    assert (found.code, found.reasons) == (0, ())
    assert "h: no job is running on the GPUs" in text(page(found))


def test_ranks_are_healthy_only_together() -> None:
    def frame(t: float) -> Frame:
        one = Machine().frame(t)
        (trainer,), (gpu,) = one.processes, one.gpus
        gpus = (gpu, replace(gpu, uuid="H", index="1", busy_percent=None, sm_active_percent=None, missing=MUTE))
        ranks = tuple(
            replace(trainer, pid=100 + n, rank=n, local_rank=n, world_size=2, gpus=(replace(SHARE, uuid=uuid),))
            for n, uuid in enumerate("GH")
        )
        job = Job(key="j", name="j", launcher="torchrun", ranks=(Identity(100, 1), Identity(101, 1)))
        return replace(one, gpus=gpus, processes=ranks, jobs=(job,))

    (job,) = after(frame, 150).jobs
    assert job.state == "unknown"
    assert job.why.startswith("1 of 2 ranks: ")


MUTE = (Missing(metric="busy_percent", reason="unsupported"),)


def test_a_full_machine_is_found_and_no_alarm_of_a_job_that_is_fed() -> None:
    fed = Machine(host=FULL, trainer={"cpu_percent": 1500.0})
    found = diagnosis(fed.frame, 120)
    (job,) = found.update.jobs
    assert (job.state, found.code) == ("healthy", 0)
    assert found.update.host is not None
    assert found.update.host.state == "found"
    assert found.update.host.why == "CPU saturated, 100 % of 16 CPUs in use (healthy < 90 %)"
    calm = diagnosis(Machine().frame, 120).update.host
    assert calm is not None
    assert calm.state == "healthy"


def test_a_machine_whose_cpus_cannot_be_read_is_unknown() -> None:
    blind = diagnosis(Machine(host=refused("cpu_percent")).frame, 120).update.host
    assert blind is not None
    assert blind.state == "unknown"


def test_all_outputs_say_the_same() -> None:
    found = diagnosis(Machine(gpu=STARVES).frame, 30)
    (job,) = found.update.jobs
    told = as_json(found)
    assert told["jobs"] == snapshot(found.update)["jobs"]
    assert list(told["jobs"][0]) == ["key", "name", "user", "gpus", "state", "judged_in_s", "why"]
    assert (told["jobs"][0]["state"], told["jobs"][0]["gpus"]) == ("judging", ["0"])
    assert told["host_state"]["state"] == "judging"
    for said in (text(page(found)), markdown(page(found))):
        assert job.why in " ".join(said.split())


def test_the_first_look_has_every_job_as_judging() -> None:
    (job,) = after(Machine().frame, 1).jobs
    assert (job.state, job.judged_in_s) == ("judging", 60.0)


@pytest.mark.parametrize(
    "name", ["showcase", "16gpu", "threads-host", "memory-pressure", "gpu-shared", "zombie-memory"]
)
def test_what_leads_a_job_is_its_state(name: str) -> None:
    _, said = scenario(name)[-1]
    assert said.jobs
    for job in said.jobs:
        bad = [one for one in said.findings if one.severity != "info" and one.subject.job == job.key]
        assert (job.state == "found") or not bad
        assert job.state in ("found", "healthy") or not job.due


def test_a_job_on_the_cpu_is_judging_until_the_rule_could_have_spoken() -> None:
    looks = [said.jobs[0] for _, said in scenario("no-cuda-context") if said.jobs]
    assert list(dict.fromkeys(one.state for one in looks)) == ["judging", "found"]
