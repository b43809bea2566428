"""What is so of a machine, or of one card, is said of those whom it concerns, and of nobody else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gputop.diagnose import Finding, Step, Subject
from gputop.diagnose.merge import merge_findings
from gputop.model import Frame, Gpu, GpuShare, Host, Identity, Job, Process, Xid
from gputop.ui.advice.states import states
from tests.rule_cases import GPU, HOST, LIMITS, LOADER, TRAINER, after, found

GIB = 2**30
CROWDED: dict[str, Any] = {
    "busy_threads": 16, "run_wait_percent": 70.0, "cpu_percent": 400.0, "voluntary_switches_per_s": 5.0,
    "affinity": "0-7", "allowed_cpus": 8.0,
}  # fmt: skip
APART: dict[str, Any] = {"affinity": "8-63", "allowed_cpus": 56.0, "main_thread_percent": 20.0, "cpu_percent": 30.0}
IDLE: dict[str, Any] = {"power_watts": 200.0, "sm_active_percent": 20.0, "tensor_percent": 5.0, "dram_percent": 5.0}


def card(n: int, **shows: Any) -> Gpu:
    return Gpu(**{**GPU, "uuid": f"G{n}", "index": str(n), "name": "H100", **shows})


def three(t: float, loaders: int = 0, **host: Any) -> Frame:
    """Two jobs that crowd eight CPUs, and one that waits on CPUs of its own."""
    gpus = [card(n, **IDLE, busy_percent=50.0 if n == 2 else 30.0) for n in range(3)]
    jobs = [
        Process(
            **{**TRAINER, **(APART if n == 2 else CROWDED)} | {"pid": 100 + n, "started_ticks": 1, "job": f"j{n}"},
            gpus=(GpuShare(uuid=f"G{n}", busy_percent=gpus[n].busy_percent, vram_bytes=30 * GIB),),
        )
        for n in range(3)
    ]
    of_the_third = {"started_ticks": 1, "parent_pid": 102, "job": "j2", "affinity": "8-63", "allowed_cpus": 56.0}
    more = [Process(**{**LOADER, **of_the_third, "pid": 200 + n, "cpu_percent": 97.0}) for n in range(loaders)]
    return Frame(
        wall_s=t,
        mono_s=1000 + t,
        hostname="h",
        host=Host(**{**HOST, "cpus_total": 64, "cpus_allowed": 64.0, "cpu_percent": 15.0, **host}),
        gpus=tuple(gpus),
        processes=(*jobs, *more),
        jobs=tuple(Job(key=f"j{n}", name=f"j{n}", ranks=(Identity(100 + n, 1),)) for n in range(3)),
    )


def of(job: str, findings: tuple[Finding, ...]) -> list[Finding]:
    return [one for one in findings if one.subject.job == job]


def test_a_crowd_explains_nothing_of_a_job_on_other_cpus() -> None:
    said = after(lambda t: three(t, loaders=2), 200)
    crowd = found(said, "threads-host")
    assert crowd is not None
    assert [identity.pid for identity in crowd.subject.processes] == [100, 101]
    (own,) = of("j2", said.findings)
    assert (own.rule, own.causes) == ("starved-cpu-idle", ())
    assert "num_workers" in (own.steps[0].command or "")


def test_nor_does_it_silence_what_nobody_can_explain() -> None:
    (own,) = of("j2", after(three, 200).findings)
    assert (own.rule, own.severity, own.primary) == ("starved-cause-unknown", "warn", True)


def test_who_crowds_others_shares_their_cpus_with_nobody_else() -> None:
    crowd = found(after(three, 200), "threads-host")
    assert crowd is not None
    assert crowd.headline == "CPU oversubscribed, 32 compute threads on 8 CPUs"
    assert crowd.steps[0].text == "Restart each with 4 compute threads"
    assert "0-3, 4-7" in crowd.steps[2].text


def test_the_word_of_a_crowd_is_not_that_of_others() -> None:
    now = three(0.0)
    crowd = Finding(
        rule="threads-host", severity="crit", headline="", primary=True, state="threads",
        subject=Subject(kind="host", processes=tuple(one.identity for one in now.processes[:2])),
    )  # fmt: skip
    assert {uuid: state.word for uuid, state in states([crowd], now).gpus.items()} == {"G0": "threads", "G1": "threads"}


def test_slow_cpus_hold_up_who_works_on_them() -> None:
    saving = {"cpu_governor": "powersave", "cpu_driver": "acpi-cpufreq", "cpu_mhz": 1200.0, "cpu_max_mhz": 3800.0}
    alone = {"busy_threads": 1, "run_wait_percent": 1.0}

    def frame(t: float) -> Frame:
        now = three(t, loaders=2, **saving)
        works, rests = (alone | {"cpu_percent": share, "main_thread_percent": share} for share in (100.0, 15.0))
        first, second, *others = now.processes
        return replace(now, processes=(replace(first, **works), replace(second, **rests), *others))

    said = after(frame, 200)
    slow = found(said, "cpu-slow")
    assert slow is not None
    assert (slow.severity, slow.subject.processes) == ("warn", (Identity(100, 1),))
    assert [(one.rule, one.causes) for job in ("j1", "j2") for one in of(job, said.findings)] == [
        ("starved-cause-unknown", ()),
        ("starved-cpu-idle", ()),
    ]


def broken(*cards: dict[str, Any]) -> tuple[Finding, ...]:
    """What is said of the cards of one job."""

    def frame(t: float) -> Frame:
        gpus = tuple(card(n, **one) for n, one in enumerate(cards))
        ranks = tuple(
            Process(
                **TRAINER | {"pid": 100 + n, "started_ticks": 1, "job": "j", "rank": n, "world_size": len(cards)},
                gpus=(GpuShare(uuid=f"G{n}", busy_percent=97.0, vram_bytes=30 * GIB),),
            )
            for n in range(len(cards))
        )
        job = Job(key="j", name="j", ranks=tuple(one.identity for one in ranks))
        return Frame(
            wall_s=t, mono_s=1000 + t, hostname="h", host=Host(**HOST), gpus=gpus, processes=ranks, jobs=(job,)
        )

    return after(frame, 100).findings


def test_cards_of_a_job_that_break_in_different_ways_are_told_one_by_one() -> None:
    said = broken({}, {"xids": (Xid(number=48, wall_s=3.0),)}, {"remap_failed": True})
    told = {one.subject.gpus: one for one in said if one.rule == "hw-errors"}
    assert set(told) == {("G1",), ("G2",)}
    assert any("RMA" in step.text for step in told["G2",].steps)
    assert not any("RMA" in step.text for step in told["G1",].steps)


def test_what_all_cards_of_a_job_need_is_one_command_for_all_of_them() -> None:
    capped = {"throttled_power_percent": 100.0, "power_limit_watts": 300.0, "power_requested_limit_watts": 300.0}
    (power,) = [one for one in broken(capped, capped, capped) if one.rule == "power"]
    assert power.subject.gpus == ("G0", "G1", "G2")
    assert power.steps[0].command == "sudo nvidia-smi -i 0,1,2 -pl 700"


def test_but_only_where_it_names_the_card() -> None:
    def held(n: int, command: str) -> Finding:
        return Finding(
            rule="power", severity="warn", headline="is held", subject=Subject(kind="gpu", gpus=(f"G{n}",)),
            steps=(Step(text="", command=command),),
        )  # fmt: skip

    gpus = tuple(card(n) for n in range(2))
    frame = Frame(wall_s=0, mono_s=0, hostname="h", host=Host(), gpus=gpus)
    tenants = {f"G{n}": [Process(pid=1, started_ticks=1, job="j")] for n in range(2)}
    (one,) = merge_findings([held(0, "watch -i 00 -n 0 -i 0"), held(1, "watch")], frame, tenants, LIMITS)
    assert one.steps[0].command == "watch -i 00 -n 0 -i 0,1"


def test_a_number_that_somebody_made_up_breaks_nothing() -> None:
    gpus = tuple(card(n, index=f"\\{n + 1}") for n in range(2))
    frame = Frame(wall_s=0, mono_s=0, hostname="h", host=Host(), gpus=gpus)
    tenants = {f"G{n}": [Process(pid=1, started_ticks=1, job="j")] for n in range(2)}
    held = [
        Finding(
            rule="power", severity="warn", headline="is held", subject=Subject(kind="gpu", gpus=(f"G{n}",)),
            steps=(Step(text="", command=f"nvidia-smi -i '\\{n + 1}' -pl 700"),),
        )
        for n in range(2)
    ]  # fmt: skip
    (one,) = merge_findings(held, frame, tenants, LIMITS)
    assert one.steps[0].command == "nvidia-smi -i '\\1','\\2' -pl 700"
