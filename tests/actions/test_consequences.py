"""What a signal does to others: ranks that hang, launchers that start anew, loaders, notebooks. Told from a frame."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gputop.actions.handles import Scope, reaches
from gputop.actions.signals import Effect, consequences
from gputop.model import Frame, Identity, Process
from gputop.ui.dialogs.form import facts
from tests.scripted_jobs import frame, notebook, process, training


def server(**job: object) -> Frame:
    """llama under torchrun on four GPUs: launcher 1000, ranks 1100 to 1400, eight loaders each."""
    made, members = training("llama", 1000, 4, 8)
    return frame((replace(made, **job), members), loose=(process(9),))  # type: ignore[arg-type]


def told(now: Frame, effect: Effect, *pids: int) -> tuple[str, ...]:
    return consequences(now, {one.identity for one in now.processes if one.pid in pids}, effect)


def test_one_rank_of_four() -> None:
    assert told(server(), "kill", 1100) == (
        "torchrun will stop the other 3 ranks, or restart all ranks if --max-restarts allows it",
        "its 8 workers will exit within about 5 s, no signal needed",
    )
    assert told(server(launcher="python"), "end", 1100, 1200, 1300) == (
        "terminating 3 ranks will hang the other rank in NCCL until their timeout",
        "their 24 workers will exit with them, no signal needed",
    )
    assert told(server(), "interrupt", 1400)[0].startswith("torchrun will stop the other 3 ranks")


def test_a_rank_together_with_its_launcher() -> None:
    """Then nobody is left to stop the others: a launcher that can passes the signal on."""
    assert told(server(), "end", 1000, 1100)[0] == "torchrun forwards the signal: its 3 ranks exit too"
    assert told(server(), "kill", 1000, 1100)[0].startswith("killing one rank will hang the other 3 ranks in NCCL")


@pytest.mark.parametrize(
    ("launcher", "said"),
    [
        ("deepspeed", "deepspeed will stop the other 3 ranks"),
        ("ray", "Ray will stop the other 3 ranks, or restart the job"),
        ("slurm", "killing one rank will hang the other 3 ranks in NCCL until their timeout, unless srun "
                  "--kill-on-bad-exit ends them"),
        ("python", "killing one rank will hang the other 3 ranks in NCCL until their timeout"),
    ],
)  # fmt: skip
def test_what_a_launcher_does_about_a_rank_that_is_gone(launcher: str, said: str) -> None:
    first = told(server(launcher=launcher), "kill", 1100)[0]
    assert first == said


def test_a_frozen_rank_ends_the_job_in_the_end() -> None:
    assert told(server(), "freeze", 1100) == (
        "suspending one rank will hang the other 3 ranks in NCCL until their timeout",
        "the job aborts unless it is resumed before the collective timeout (often 10 min)",
        "while suspended, it keeps 66.0G of GPU memory",
    )


def test_ranks_without_gpus_hang_elsewhere() -> None:
    made, members = training("llama", 1000, 2, 0)
    now = frame((replace(made, launcher="python"), [replace(member, gpus=()) for member in members]))
    assert told(now, "kill", 1100)[0] == "killing one rank will hang the other rank in their next collective until " + (
        "their timeout"
    )


@pytest.mark.parametrize(
    ("effect", "sentence"),
    [
        ("end", "torchrun forwards the signal: its 4 ranks exit too"),
        ("kill", "a killed torchrun cannot terminate its 4 ranks: they may keep running and keep 264G of GPU memory; "
                 "choose the whole job"),
        ("freeze", "its 4 ranks keep training; while it is suspended, a failed rank goes undetected"),
    ],
)  # fmt: skip
def test_the_launcher_alone(effect: Effect, sentence: str) -> None:
    assert told(server(), effect, 1000) == (sentence,)


@pytest.mark.parametrize("effect", ["interrupt", "end", "kill"])
def test_a_script_that_started_ranks_may_leave_them_behind(effect: Effect) -> None:
    sentence = "its 4 ranks may keep running and keep 264G of GPU memory: choose the whole job"
    assert told(server(launcher="python"), effect, 1000) == (sentence,)


def test_a_loader_takes_its_trainer_with_it() -> None:
    assert told(server(), "kill", 1101, 1102) == ("rank 0 (1100) fails when a DataLoader worker is gone",)
    assert told(server(), "freeze", 1201) == ("rank 1 (1200) will wait for its batches",)
    assert told(server(), "end", 1100, *range(1101, 1109))[1:] == (
        "DataLoader workers are terminated too: a trainer that saves a checkpoint on TERM may fail without them",
    )


def test_a_whole_job_hurts_nobody_else() -> None:
    now = server()
    everybody = [one.pid for one in now.processes if one.job]
    assert told(now, "kill", *everybody) == ()
    assert told(server(slurm_job="77"), "kill", *everybody) == (
        "Slurm will record job 77 as failed; scancel 77 cancels it cleanly",
    )
    assert told(now, "none", *everybody) == ()
    assert told(now, "kill", 9) == ()
    assert consequences(now, {Identity(1100, 1)}, "kill") == ()  # a later process with its pid


def over_two_machines(local: int = 4, **job: object) -> Frame:
    """llama on eight GPUs, ranks 4 and on of it here."""
    now = server(**job)
    spread = [
        one if one.rank is None else replace(one, rank=one.rank + 4, world_size=8)
        for one in now.processes
        if one.rank is None or one.rank < local
    ]
    ranks = tuple(one.identity for one in spread if one.rank is not None)
    members = tuple(one.identity for one in spread if one.job)
    return replace(now, processes=tuple(spread), jobs=(replace(now.jobs[0], ranks=ranks, members=members),))


def test_ranks_of_other_machines_hang_too() -> None:
    now = over_two_machines()
    assert told(now, "kill", 1100)[:2] == (
        "torchrun will stop the other 3 ranks on this machine, or restart all ranks if --max-restarts allows it",
        "unless torchrun restarts all ranks, the other 4 ranks, running elsewhere, will hang in NCCL until their "
        "timeout",
    )
    assert told(over_two_machines(launcher="mpirun"), "kill", 1100)[0] == (
        "mpirun will stop the other 7 ranks (4 running elsewhere)"
    )
    assert told(over_two_machines(launcher="python"), "kill", 1100)[0] == (
        "killing one rank will hang the other 7 ranks (4 running elsewhere) in NCCL until their timeout"
    )
    everybody = [one.pid for one in now.processes if one.job]
    assert told(now, "end", *everybody)[0] == (
        "terminating 4 ranks will hang the other 4 ranks, running elsewhere, in NCCL until their timeout"
    )
    assert told(now, "interrupt", 1000) == (
        "torchrun forwards the signal: its 4 ranks exit too",
        "this will hang the other 4 ranks, running elsewhere, in NCCL until their timeout",
    )
    assert len(told(now, "freeze", 1000)) == len(told(now, "kill", 1000)) == 1
    assert told(over_two_machines(1), "freeze", 1100)[:2] == (
        "suspending one rank will hang the other 7 ranks, running elsewhere, in NCCL until their timeout",
        "the job aborts unless it is resumed before the collective timeout (often 10 min)",
    )


def test_programs_that_slurm_only_numbered_hang_nobody() -> None:
    now = over_two_machines(1, launcher="slurm")
    names = {"talks": (("python", 1), ("pt_nccl_watchdg", 1)), "alone": (("python", 65),), "unknown": ()}
    for what, threads in names.items():
        processes = tuple(replace(one, thread_names=threads) if one.rank is not None else one for one in now.processes)
        said = told(replace(now, processes=processes), "kill", 1100)
        assert any("elsewhere" in line for line in said) == (what != "alone"), what


def test_a_dialog_counts_them_among_its_ranks() -> None:
    for now, said in (
        (server(), "rank 0 of 4"),
        (over_two_machines(), "rank 4 of 8"),
        (over_two_machines(1), "4 of 8"),
    ):
        (rank,) = (one for one in now.processes if one.pid == 1100)
        assert f"{said} of llama" in facts(now, rank, "·")


def test_a_notebook_loses_what_it_knows() -> None:
    now = frame(notebook("jupyter", 500, 0))
    assert told(now, "interrupt", 500) == ("the running cell of the notebook stops; variables and GPU memory stay",)
    assert told(now, "kill", 500) == (
        "the notebook loses all variables, also those on the GPU; Jupyter may start an empty kernel",
    )
    assert told(now, "freeze", 500)[0] == "the notebook does not respond until it is resumed"


def scopes(now: Frame, pid: int) -> dict[Scope, str]:
    (one,) = (process for process in now.processes if process.pid == pid)
    found = reaches(now, one)
    assert all(isinstance(process, Process) for reach in found for process in reach.processes)
    return {reach.scope: f"{reach.title}: {len(reach.processes)}" for reach in found}


def test_scopes_are_those_that_differ() -> None:
    whole = "the whole job: 4 ranks, 32 workers, torchrun: 37"
    assert scopes(server(), 1100) == {Scope.LOADERS: "its 8 workers: 9", Scope.JOB: whole}
    assert scopes(server(), 1000) == scopes(server(), 1101) == {Scope.JOB: whole}
    assert scopes(server(), 9) == {}
    assert scopes(frame(notebook("jupyter", 500, 0)), 500) == {}
