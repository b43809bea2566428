"""Rules on CPU placement and clocks: CPUs far from the GPU they feed, and CPUs below their clock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from shlex import quote

from gputop import units
from gputop.diagnose.cpu_budget import affinity
from gputop.diagnose.finding import Evidence, Finding, Severity, Step
from gputop.diagnose.rule import Level, rule
from gputop.diagnose.start_command import is_whole_command, start_command
from gputop.diagnose.steps import only_root_may_inspect, raise_container_limit
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.view import View
from gputop.model import Host, Identity, Process
from gputop.units import cpus_of

_SAVING = frozenset({"powersave", "conservative"})
# with these drivers "powersave" is the default governor, and the energy preference decides
_BY_PREFERENCE = frozenset({"intel_pstate", "amd-pstate-epp", "amd_pstate_epp"})


@rule(
    "cpu-slow",
    "Do the CPUs run below their maximum clock?",
    level=Level.CAUSE,
    state="CPU clock",
    short="CLOCK",
    needs=("cpu_governor", "cpu_max_mhz"),
    alone=True,
)
def cpu_slow(view: View) -> Iterator[Finding]:
    """CPU clock limited by governor, preference, cap or temperature, or far below its maximum while busy."""
    host = view.host()
    if not view.knows(host, "cpu_governor", "cpu_max_mhz"):
        return
    why = [found for found in (_governor(host), _preference(host), _cap(view, host), _cpu_temperature(view)) if found]
    low = _low_clock(view, host)
    if not why and low is None:
        return
    held_up = _trainers_held_up(view) if why else []
    severity: Severity = "warn" if held_up else "info"
    clock = Evidence(
        text=f"mean core clock {host.cpu_mhz:.0f} of {host.cpu_max_mhz:.0f} MHz",
        value=host.cpu_mhz,
        unit="MHz",
        limit=view.limit("clock_share") * (host.cpu_max_mhz or 0.0),
        sense="healthy_from",
    ) if host.cpu_mhz is not None else None  # fmt: skip
    yield view.found(
        host,
        severity,
        "CPU clock limited" if why else "CPU clock far below its maximum under load",
        evidence=tuple(item for item in (*(text for text, _ in why), clock, low) if item),
        steps=tuple(dict.fromkeys(step for _, step in why)) or (_LOOK,),
        confidence=0.75 if why else 0.5,
        processes=held_up,
    )


_LOOK = Step(
    text="Find what limits the clock: power limit, AVX-512, or temperature",
    command="sudo turbostat --interval 5 --num_iterations 1",
    needs_root=True,
)
_FAST = Step(
    text="Set the performance governor", command="sudo cpupower frequency-set -g performance", needs_root=True
)  # fmt: skip
_Reason = tuple[Evidence, Step]


def _governor(host: Host) -> _Reason | None:
    if host.cpu_governor not in _SAVING or host.cpu_driver in _BY_PREFERENCE:
        return None
    return Evidence(text=f"CPU governor {host.cpu_governor}, driver {host.cpu_driver or 'unknown'}"), _FAST


def _preference(host: Host) -> _Reason | None:
    if host.cpu_preference not in ("power", "balance_power"):
        return None
    files = "/sys/devices/system/cpu/cpu*/cpufreq/energy_performance_preference"
    step = Step(
        text="Set the energy preference to performance", command=f"echo performance | sudo tee {files}", needs_root=True
    )
    return Evidence(text=f"energy preference {host.cpu_preference}"), step


def _cap(view: View, host: Host) -> _Reason | None:
    cap, highest = host.cpu_cap_mhz, host.cpu_max_mhz
    if cap is None or not highest or not view.below(cap / highest, "cap_share"):
        return None
    text = f"clock capped at {cap:.0f} of {highest:.0f} MHz"
    step = Step(text="Lift the cap", command=f"sudo cpupower frequency-set -u {highest:.0f}MHz", needs_root=True)
    return Evidence(
        text=text, value=cap, unit="MHz", limit=view.limit("cap_share") * highest, sense="healthy_from"
    ), step


def _cpu_temperature(view: View) -> _Reason | None:
    often = view.mean("host", "cpu_throttles_per_s")
    if not view.above(often, "throttles_per_s"):
        return None
    text = f"cores thermally throttled {often or 0:.1f} times per second"
    step = Step(text="Improve CPU cooling: fans, dust filters, heat sinks, intake air temperature")
    return Evidence(text=text, value=often, unit="1/s", limit=view.limit("throttles_per_s"), sense="healthy_to"), step


def _low_clock(view: View, host: Host) -> Evidence | None:
    """Clock of the busy cores: idle cores lower theirs."""
    if host.cpu_mhz is None or not host.cpu_max_mhz or not view.below(host.cpu_mhz / host.cpu_max_mhz, "clock_share"):
        return None
    busy = view.mean("host", "cpu_percent")
    if not view.above(busy, "busy_percent"):
        return None
    text, least = f"CPUs {busy or 0:.0f} % busy at that clock", view.limit("busy_percent")
    return Evidence(text=text, value=busy, unit="%", limit=least, sense="flagged_above")


def _trainers_held_up(view: View) -> list[Identity]:
    """Trainers with a GPU that waits for a saturated CPU: all that they may use, or their main thread's."""
    return [
        trainer.identity
        for trainer in view.vectors()
        if trainer.warm
        and trainer.duty is not None
        and trainer.duty < view.limit("starved.duty")
        and ((trainer.saturation or 0.0) >= view.limit("full") or (trainer.main or 0.0) >= view.limit("main"))
    ]


def apart(view: View, trainers: Sequence[Trainer], each: int) -> list[str]:
    """That many exclusive CPUs per trainer, near its GPUs first, as CPU lists; empty if there are not enough."""
    taken: set[int] = set()
    found = []
    for trainer in trainers:
        near = frozenset[int]().union(*(cpus_of(gpu.local_cpus) for gpu in trainer.works_on))
        free = sorted(usable(view, trainer) - taken, key=lambda cpu: (cpu not in near, cpu))
        if len(free) < each:
            return []
        taken.update(free[:each])
        found.append(units.ranges(tuple(free[:each])))
    return found


def usable(view: View, trainer: Trainer) -> frozenset[int]:
    """CPUs it may run on; if unknown, all of the machine if its count allows that, else none."""
    total = view.frame.host.cpus_total or 0
    every = frozenset(range(total)) if (trainer.process.allowed_cpus or 0.0) >= total else frozenset[int]()
    return affinity(trainer.process) or every


def bound(view: View, trainer: Trainer, text: str, cpus: str, by: str | None = None) -> Step:
    """Start the program on these CPUs, with taskset or the command `by`.

    A program with a launcher is moved while it runs, with its loaders: its own command line would not start the same.
    """
    if is_whole_command(trainer.process, trainer.job):
        return Step(text=text, command=f"{by or f'taskset -c {cpus}'} {start_command(trainer.process)}")
    return moved(view, trainer, f"{text}, without a restart", cpus)


def moved(view: View, trainer: Trainer, text: str, cpus: str) -> Step:
    """Move the running process and its loaders to these CPUs."""
    pid, root = trainer.process.pid, only_root_may_inspect(view, trainer.process)
    move = f"{'sudo ' if root else ''}taskset -acp {cpus}"
    command = f"for p in {pid} $(pgrep -P {pid}); do {move} $p; done" if trainer.loaders else f"{move} {pid}"
    return Step(text=text, command=command, needs_root=root)


@rule(
    "numa-misplacement",
    "Is a process on another NUMA node than its GPU?",
    level=Level.CAUSE,
    state="NUMA",
    short="NUMA",
    needs=("local_cpus", "cpu_percent", "last_cpu", "cpus_total"),
)
def numa_misplacement(view: View) -> Iterator[Finding]:
    """On several NUMA nodes: the CPU time of a GPU's trainer spent on CPUs far from that GPU."""
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
            yield _far_finding(view, trainer, near, share or 0.0)


def _far_share(view: View, trainer: Trainer, near: frozenset[int]) -> float | None:
    """Share of CPU time on far CPUs over the window: the last CPU of each process, weighted by its CPU time."""
    known = [(process.last_cpu, process.cpu_percent) for process in trainer.tree if process.cpu_percent]
    far = sum(cpu for last, cpu in known if last is not None and last not in near)
    looks = view.record(trainer, (far, sum(cpu for last, cpu in known if last is not None)))
    if view.frame.mono_s - looks[0][0] < view.limit("window_s") / 2:
        return None
    total = sum(all_cpu for _, (_, all_cpu) in looks)
    return sum(far for _, (far, _) in looks) / total if total else None


def _far_finding(view: View, trainer: Trainer, near: frozenset[int], share: float) -> Finding:
    gpu, allowed = trainer.works_on[0], affinity(trainer.process)
    harmful = view.above(trainer.pcie_rx, "pcie_bytes_per_s")  # the GPU may wait for something else
    chance = _share_by_chance(view, allowed, near)
    likely = view.limit("far") <= chance < 1  # most of any process's CPUs are far then, and that is no cause
    severity: Severity = "warn" if harmful and not likely and view.above(share, "warn_far") else "info"
    node = _node(view, near) if gpu.numa_node is None else gpu.numa_node
    where = "another node" if node is None else f"node {node}"
    evidence = [
        Evidence(
            text=f"{100 * share:.0f} % of its CPU time on CPUs remote to its GPU (local: {gpu.local_cpus})",
            value=100 * share,
            unit="%",
            limit=100 * view.limit("far"),
            sense="flagged_above",
        )
    ]
    if allowed and not allowed & near:
        evidence.append(Evidence(text=f"its affinity allows CPUs {trainer.process.affinity} only"))
    elif likely:
        text = f"{100 * chance:.0f} % expected by chance: most CPUs are remote to this GPU"
        evidence.append(Evidence(text=text, value=100 * chance, unit="%"))
    return view.found(
        trainer,
        severity,
        f"NUMA mismatch, GPU is on {where}",
        evidence=tuple(evidence),
        steps=tuple(_steps_to_near_cpus(view, trainer, near, node)),
        confidence=0.65,
    )


def _share_by_chance(view: View, allowed: frozenset[int], near: frozenset[int]) -> float:
    """Expected share of far CPUs by chance, of those it may use or of all, whichever is less; 1 if none is near."""
    if allowed and not allowed & near:
        return 1.0
    shares = [1 - len(near) / (view.frame.host.cpus_total or len(near))]
    if allowed:
        shares.append(1 - len(allowed & near) / len(allowed))
    return max(0.0, min(shares))


def _steps_to_near_cpus(view: View, trainer: Trainer, near: frozenset[int], node: int | None) -> Iterator[Step]:
    """Steps to move it: itself, or its container's or Slurm job's CPUs if none of those is near."""
    process, allowed = trainer.process, affinity(trainer.process)
    if allowed and not allowed & near and _is_confined(view, process, near):
        if process.slurm_job is not None:
            yield Step(
                text="Request CPUs near its GPU from Slurm",
                command="#SBATCH --gres-flags=enforce-binding",
            )
        else:
            some = units.ranges(tuple(sorted(near)[: len(allowed)]))
            text = "Give its container CPUs near its GPU"
            yield raise_container_limit(view, process, text, f"--cpuset-cpus={some}", "set a topology manager policy")
        return
    cpus = quote(trainer.works_on[0].local_cpus or "")
    pin = f"--cpunodebind={node} --membind={node}" if node is not None else f"--physcpubind={cpus}"
    yield bound(view, trainer, "Bind it to the CPUs near its GPU", cpus, by=f"numactl {pin}")
    yield from _program_steps(trainer, near)


def _program_steps(trainer: Trainer, near: frozenset[int]) -> Iterator[Step]:
    """Steps in the program; each rank of it must be near its own GPU."""
    process, call = trainer.process, f"os.sched_setaffinity(0, {_python(near)})"
    ranks = max(process.world_size or 1, len(trainer.job.ranks) if trainer.job else 1)
    if trainer.job is not None and trainer.job.launcher == "torchrun":
        yield Step(text="At the next start, let torchrun bind each rank: --numa-binding=node (PyTorch 2.9)")
    if ranks == 1:
        yield Step(text="Or bind it in the program, before the DataLoader is created", command=call)
    elif process.local_rank is not None:
        yield Step(
            text="Or bind this rank in the program, before the DataLoader is created",
            command=f"if os.environ['LOCAL_RANK'] == '{process.local_rank}': {call}",
        )


def _is_confined(view: View, process: Process, near: frozenset[int]) -> bool:
    """Whether a container or a Slurm job leaves it no near CPU, as far as visible."""
    place = (process.container, process.slurm_job)
    return place != (None, None) and not any(
        (one.container, one.slurm_job) == place and affinity(one) & near for one in view.frame.processes
    )


def _node(view: View, near: frozenset[int]) -> int | None:
    """The NUMA node with most of these CPUs."""
    most = max(view.frame.host.nodes, key=lambda node: len(near & frozenset(units.parse_ranges(node.cpus))))
    return most.number


def _python(numbers: frozenset[int]) -> str:
    """A Python expression for them."""
    parts = []
    for part in units.ranges(tuple(numbers)).split(","):
        first, dash, last = part.partition("-")
        parts.append(f"range({first}, {int(last) + 1})" if dash else f"[{first}]")
    return parts[0] if len(parts) == 1 else f"[{', '.join(f'*{part}' for part in parts)}]"
