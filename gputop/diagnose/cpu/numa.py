"""A rule about work on the wrong side of a machine: CPUs that are far from the GPU they feed."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote

from gputop import units
from gputop.diagnose.container import widened
from gputop.diagnose.cpu.apart import bound
from gputop.diagnose.finding import Evidence, Finding, Severity, Step
from gputop.diagnose.room import affinity
from gputop.diagnose.rule import Level, rule
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.view import View
from gputop.model import Process
from gputop.units import cpus_of


@rule(
    "numa-misplacement",
    "Do the CPUs of a process sit far from its GPU?",
    level=Level.CAUSE,
    state="far cpu",
    short="NUMA",
    number="R21",
    rows=(),
    needs=("local_cpus", "cpu_percent", "last_cpu", "cpus_total"),
)
def numa_misplacement(view: View) -> Iterator[Finding]:
    """With two nodes or more, the CPU time of one GPU's trainer that is spent outside the CPUs near that GPU."""
    if sum(bool(node.cpus) for node in view.frame.host.nodes) < 2:
        return
    for trainer in view.trainers():
        if len(trainer.works_on) != 1 or not view.knows(trainer.works_on[0], "local_cpus"):
            continue
        near = cpus_of(trainer.works_on[0].local_cpus)
        if not near or not view.knows(trainer, "cores") or not view.above(trainer.cores, "cores"):
            continue
        total = view.cpus()
        if total is None or len(near) >= total or not view.knows(trainer.process, "last_cpu"):
            continue
        share = _far_share(view, trainer, near)
        if view.above(share, "far"):
            yield _far(view, trainer, near, share or 0.0)


def _far_share(view: View, trainer: Trainer, near: frozenset[int]) -> float | None:
    """The share of CPU time on far CPUs over the window: where each process ran last, by the time it used."""
    known = [(process.last_cpu, process.cpu_percent) for process in trainer.tree if process.cpu_percent]
    far = sum(cpu for last, cpu in known if last is not None and last not in near)
    looks = view.looks(trainer, (far, sum(cpu for last, cpu in known if last is not None)))
    if view.frame.mono_s - looks[0][0] < view.limit("window_s") / 2:
        return None
    total = sum(all_cpu for _, (_, all_cpu) in looks)
    return sum(far for _, (far, _) in looks) / total if total else None


def _far(view: View, trainer: Trainer, near: frozenset[int], share: float) -> Finding:
    gpu, allowed = trainer.works_on[0], affinity(trainer.process)
    harmful = view.above(trainer.pcie_rx, "pcie_bytes_per_s")  # a GPU that waits does so for anything
    chance = _by_chance(view, allowed, near)
    likely = view.limit("far") <= chance < 1  # then most that run anywhere are far, and that is no cause
    severity: Severity = "warn" if harmful and not likely and view.above(share, "warn_far") else "info"
    node = _node(view, near) if gpu.numa_node is None else gpu.numa_node
    where = "another node" if node is None else f"node {node}"
    evidence = [
        Evidence(
            text=f"{100 * share:.0f} % of its CPU time ran outside CPUs {gpu.local_cpus}, which are near its GPU",
            value=100 * share,
            unit="%",
            limit=100 * view.limit("far"),
        )
    ]
    if allowed and not allowed & near:
        evidence.append(Evidence(text=f"it may run on CPUs {trainer.process.affinity} only"))
    elif likely:
        text = f"chance alone makes that {100 * chance:.0f} %: so many CPUs are not near it"
        evidence.append(Evidence(text=text, value=100 * chance, unit="%"))
    return view.found(
        trainer,
        severity,
        f"works on CPUs far from its GPU, which hangs on {where}",
        evidence=tuple(evidence),
        steps=tuple(_nearer(view, trainer, near, node)),
        confidence=0.65,
    )


def _by_chance(view: View, allowed: frozenset[int], near: frozenset[int]) -> float:
    """The share of far CPUs, of those it may use or of all, whichever is less; 1 where it may use none that is near."""
    if allowed and not allowed & near:
        return 1.0
    shares = [1 - len(near) / (view.frame.host.cpus_total or len(near))]
    if allowed:
        shares.append(1 - len(allowed & near) / len(allowed))
    return max(0.0, min(shares))


def _nearer(view: View, trainer: Trainer, near: frozenset[int], node: int | None) -> Iterator[Step]:
    """How it gets there: by itself, or by who gave its container or Slurm job CPUs, where none of those is near."""
    process, allowed = trainer.process, affinity(trainer.process)
    if allowed and not allowed & near and _confined(view, process, near):
        if process.slurm_job is not None:
            yield Step(
                text="ask Slurm for CPUs near its GPU: its job was given others",
                command="#SBATCH --gres-flags=enforce-binding",
            )
        else:
            some = units.ranges(tuple(sorted(near)[: len(allowed)]))
            text = "give its container CPUs near its GPU"
            yield widened(view, process, text, f"--cpuset-cpus={some}", "a policy of the topology manager")
        return
    cpus = quote(trainer.works_on[0].local_cpus or "")
    pin = f"--cpunodebind={node} --membind={node}" if node is not None else f"--physcpubind={cpus}"
    yield bound(view, trainer, "put it near its GPU", cpus, by=f"numactl {pin}")
    yield from _next_time(trainer, near)


def _next_time(trainer: Trainer, near: frozenset[int]) -> Iterator[Step]:
    """In the program; ranks run the same one, and each has a GPU of its own to be near to."""
    process, call = trainer.process, f"os.sched_setaffinity(0, {_python(near)})"
    ranks = max(process.world_size or 1, len(trainer.job.ranks) if trainer.job else 1)
    if trainer.job is not None and trainer.job.launcher == "torchrun":
        yield Step(text="at its next start let torchrun do so for each rank: --numa-binding=node (PyTorch 2.9)")
    if ranks == 1:
        yield Step(text="or in the program, before the DataLoader is made", command=call)
    elif process.local_rank is not None:
        yield Step(
            text="or in the program, before the DataLoader is made, for this rank",
            command=f"if os.environ['LOCAL_RANK'] == '{process.local_rank}': {call}",
        )


def _confined(view: View, process: Process, near: frozenset[int]) -> bool:
    """Whether a container or a Slurm job leaves it no CPU near: as far as is seen, none of it may run there."""
    place = (process.container, process.slurm_job)
    return place != (None, None) and not any(
        (one.container, one.slurm_job) == place and affinity(one) & near for one in view.frame.processes
    )


def _node(view: View, near: frozenset[int]) -> int | None:
    """The node that has the most of these CPUs."""
    most = max(view.frame.host.nodes, key=lambda node: len(near & frozenset(units.listed(node.cpus))))
    return most.number


def _python(numbers: frozenset[int]) -> str:
    """A Python expression for them."""
    parts = []
    for part in units.ranges(tuple(numbers)).split(","):
        first, dash, last = part.partition("-")
        parts.append(f"range({first}, {int(last) + 1})" if dash else f"[{first}]")
    return parts[0] if len(parts) == 1 else f"[{', '.join(f'*{part}' for part in parts)}]"
