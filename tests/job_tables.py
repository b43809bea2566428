"""Process lists as text, the expected tree drawn beside them, and the tree that `jobs` makes, drawn alike."""

from __future__ import annotations

from gputop.collect.jobs.groups import jobs
from gputop.model import GpuShare, Job, Process, Role

GPUS = tuple(f"GPU-{number}" for number in range(8))
SPAWN = "python -c from·multiprocessing.spawn·import·spawn_main;·spawn_main(pipe_handle=9) --multiprocessing-fork"
TRACKER = "python -c from·multiprocessing.resource_tracker·import·main;main(5)"
FROZEN = "./train --multiprocessing-fork tracker_fd=8 pipe_handle=11"
FORKSERVER = "python -c from·multiprocessing.forkserver·import·main;·main(6,·7,·['__main__'])"


def read(table: str) -> tuple[list[Process], list[str]]:
    """Processes and the right column of lines `pid parent comm [facts] | command | expected`."""
    processes, expected = [], []
    for line in filter(str.strip, table.splitlines()):
        left, command, right = (part.rstrip() for part in line.split("|", 2))
        pid, parent, comm, *facts = left.split()
        processes.append(process(int(pid), int(parent), comm, command.strip(), dict(fact.split("=") for fact in facts)))
        expected.append(right.removeprefix(" "))
    return processes, expected


def process(pid: int, parent: int, comm: str, command: str, facts: dict[str, str]) -> Process:
    """One line; facts are gpu=0,1 kind= rank=0/4 local= torch=CPU% build= jax=CPU% threads=nccl,autograd folder= slurm=
    container= port= unseen= user=.
    """
    rank, _, world = facts.get("rank", "").partition("/")
    shares = tuple(
        GpuShare(uuid=GPUS[int(gpu)], kind=facts.get("kind", "compute"))  # type: ignore[arg-type]
        for gpu in facts.get("gpu", "").split(",")
        if gpu
    )
    words = command.format(SPAWN=SPAWN, TRACKER=TRACKER, FORKSERVER=FORKSERVER, FROZEN=FROZEN).split()
    if comm.startswith("ray::"):
        words = [comm]
    return Process(
        pid=pid,
        started_ticks=0 if "unseen" in facts else pid,
        parent_pid=parent,
        name=comm[:15],
        command=tuple(word.replace("·", " ") for word in words),
        gpus=shares,
        user=facts.get("user", "alice"),
        rank=int(rank) if rank else None,
        world_size=int(world) if world else None,
        local_rank=int(facts["local"]) if "local" in facts else None,
        thread_names=_threads(comm, facts),
        libraries=tuple(name for name in ("torch", "jax") if name in facts),
        cpu_percent=float(facts.get("torch", facts.get("jax", 0))),
        torch_version=facts.get("build"),
        age_s=100.0,
        cpu_time_s=0.0,
        folder=facts.get("folder"),
        rendezvous=f"127.0.0.1:{facts['port']}" if "port" in facts else None,
        slurm_name=facts.get("slurm"),
        container=facts.get("container"),
        unseen=facts.get("unseen"),  # type: ignore[arg-type]
    )


def _threads(comm: str, facts: dict[str, str]) -> tuple[tuple[str, int], ...]:
    """Names of its threads: unknown unless the line has threads=, which may be empty: then only its own is there."""
    if "threads" not in facts:
        return ()
    given = filter(None, facts["threads"].split(","))
    return ((comm, 1), *((name if name.startswith("gloo") else f"pt_{name}", 1) for name in given))


def draw(before: list[Process]) -> list[str]:
    """What `jobs` says of each process, indented below the job's root, which says the job's name and launcher."""
    processes, found = jobs(before, GPUS)
    assert [process.identity for process in processes] == [process.identity for process in before]
    by_key = {job.key: job for job in found}
    assert len(by_key) == len(found)
    parents = {process.pid: process for process in processes if process.unseen is None}
    return [_line(process, by_key, parents) for process in processes]


def _line(process: Process, found: dict[str, Job], parents: dict[int, Process]) -> str:
    if process.job is None:
        assert process.role is Role.OTHER
        return "-"
    job = found[process.job]
    assert process.identity in job.members
    assert (process.role is Role.TRAINER) == (process.identity in job.ranks)
    word = process.role.value
    if process.role is Role.TRAINER:
        word = "trainer" if process.rank is None else f"rank{process.rank}"
    elif process.rank is not None:
        word += f" of {process.rank}"
    depth, above = 0, process
    while above.identity != job.members[0] and above.parent_pid in parents:
        above = parents[above.parent_pid]
        if above.job != process.job:
            break
        depth += 1
    return f"{job.name} ({job.launcher}) {word}" if depth == 0 else f"{'  ' * depth}{word}"
