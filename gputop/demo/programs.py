"""The processes of a simulated job at one moment: its launcher, its ranks, their loaders."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from typing import Any, NamedTuple

from gputop import model
from gputop.demo.generator import around, noise, share, spent
from gputop.demo.gpu import Tenant, gate, uuid
from gputop.demo.server import GIB, MIB, DemoJob, DemoServer, Work
from gputop.model import Cgroup, GpuShare, Identity, Process, Role

_FULL = 99.6  # percent of a core: no single thread of a loader uses more

Amount = Callable[[float, float, int, float], float]  # of a load, its noise, its seed, and the most there can be


class Cores(NamedTuple):
    """Percent of a core, or seconds: of the main thread, and of each of the others that compute."""

    main: float
    each: float = 0.0
    others: int = 0

    @property
    def all(self) -> float:
        """Of the process."""
        return self.main + self.each * self.others


Threads = Callable[[Work, int, Amount], Cores]  # of a kind of process, with its pid


def rank_cores(work: Work, pid: int, amount: Amount) -> Cores:
    """A rank: its main thread, and a pool."""
    main, pool = amount(work.main_cpu, 0.015, pid, 100.0), amount(work.pool_cpu, 0.05, pid + 1, math.inf)
    return Cores(main, pool, work.pool_threads)


def loader_cores(work: Work, pid: int, amount: Amount) -> Cores:
    """A loader: threads beside its main one only where that is not enough."""
    others = math.ceil(work.loader_cpu / 100) - 1 if work.loader_cpu > 100 else 0
    main = amount(work.loader_cpu, 0.06, pid, _FULL)
    more = amount(work.loader_cpu, 0.06, pid, math.inf) - main if others else 0.0
    return Cores(main, more / others if others else 0.0, others)


def cores_now(threads: Threads, work: Work, pid: int, t: float) -> Cores:
    """Percent of a core at t."""
    return threads(work, pid, lambda load, share, seed, most: min(most, around(load, share, seed, t)))


def cores_so_far(job: DemoJob, role: Role, pid: int, started_s: float, t: float) -> list[Cores]:
    """CPU seconds from its start to t, for each phase of its work: they grow by what it uses now."""
    threads, found = rank_cores if role is Role.TRAINER else loader_cores, []
    for start_s, end_s, work in job.phases(t, job.card(pid)):
        if end_s > started_s:
            one = threads(work, pid, partial(spent, since_s=max(start_s, started_s), until_s=end_s))
            found.append(Cores(one.main / 100, one.each / 100, one.others))
    return found


def of_launcher(server: DemoServer, job: DemoJob) -> dict[str, Any]:
    """Of the process that started the ranks."""
    return _of_job(server, job) | {
        "parent_pid": 1,
        "name": job.launcher,
        "command": job.launcher_command,
        "role": Role.LAUNCHER,
        "threads": job.launcher_threads,
        "busy_threads": 0,
        "state": "S",
        "waiting_in": "do_wait",
        "write_bytes_per_s": 0.0,
        "write_chars_per_s": 0.0,
        "write_calls_per_s": 0.0,
        "voluntary_switches_per_s": 11.0,
        "involuntary_switches_per_s": 0.0,
        "thread_names": ((job.launcher, 1), ("pt_elastic", job.launcher_threads - 1)),
    }


def of_rank(server: DemoServer, job: DemoJob, rank: int, launcher_pid: int) -> dict[str, Any]:
    """Of a rank."""
    return (
        _of_job(server, job)
        | _place(job, rank)
        | {
            "parent_pid": launcher_pid if job.launcher_command else 1,
            "name": "python",
            "command": job.command,
            "role": Role.TRAINER,
            "threads": job.threads,
            "thread_names": _thread_names(job),
            "libraries": job.libraries,
            "torch_version": job.torch[0],
            "torch_cuda": job.torch[1],
        }
    )


def of_loader(server: DemoServer, job: DemoJob, rank: int) -> dict[str, Any]:
    """Of a loader of a rank."""
    return (
        _of_job(server, job)
        | _place(job, rank)
        | {
            "parent_pid": job.pid + rank,
            "name": "pt_data_worker",
            "command": job.command,
            "role": Role.LOADER,
            "threads": 3,
            "write_bytes_per_s": 0.0,
            "thread_names": (("pt_data_worker", 3),),
            "libraries": tuple(name for name in job.libraries if name != "cuda"),
        }
    )


def cgroup(job: DemoJob) -> str:
    """The path of its control group."""
    if job.container:
        return f"/system.slice/docker-{job.container}.scope"
    return f"/slurm/uid_{job.uid}/job_{job.slurm_job}" if job.slurm_job else f"/user.slice/user-{job.uid}"


def _of_job(server: DemoServer, job: DemoJob) -> dict[str, Any]:
    return {
        "user": job.user,
        "uid": job.uid,
        "allowed_cpus": float(server.cpus if job.quota is None else job.quota),
        "affinity": f"0-{server.cpus - 1}",
        "nice": 0,
        "major_faults_per_s": 0.0,
        "swap_bytes": 0,
        "cgroup": cgroup(job),
        "container": job.container,
        "slurm_job": job.slurm_job,
        "slurm_name": job.name if job.slurm_job else None,
        "folder": job.name,
        "job": job.key,
        "omp_threads": job.omp_threads,
        "shm_total_bytes": job.shm_bytes,
        "visible_gpus": job.visible or ",".join(str(card) for rank in job.ranks for card in rank) or None,
    }


def _place(job: DemoJob, rank: int) -> dict[str, Any]:
    if not job.launcher_command:
        return {}
    return {"rank": rank, "local_rank": rank, "world_size": job.nodes * len(job.ranks)}


def _thread_names(job: DemoJob) -> tuple[tuple[str, int], ...]:
    cuda = int(any(job.ranks))
    trains = int(any(work.duty > 0 for _, work in job.work))  # torch starts it with the first backward pass
    pins = int(job.loaders > 0 and job.pins)
    named = (("cuda-EvtHandlr", cuda), ("pt_autograd_0", cuda * trains), ("pt_data_pin", cuda * pins))
    ranks = (("pt_nccl_heartbt", 1), ("pt_nccl_watchdg", 1)) if job.launcher_command else ()
    known = tuple(entry for entry in (*named, *ranks) if entry[1])
    return (("python", job.threads - len(known)), *known)


_ASLEEP = "futex_do_wait"
_LAUNCHER = Cores(0.6)
_METERED_S = 30.0  # over which a step meter has its means
_OPTIMIZER = 4.0  # percent of a step


class _Now(NamedTuple):
    """What is the same for all processes of a job at one moment."""

    t: float
    up_s: float  # since the machine was started
    work: Work
    worked_s: float  # for how long it has done that
    shm_used: int | None  # of its own /dev/shm: batches come and go


class JobProcesses:
    """The processes of one job; `tenants` are its places on the GPUs, by GPU index."""

    def __init__(self, server: DemoServer, job: DemoJob, tenants: dict[int, Tenant]) -> None:
        self.server, self.job, self._tenants = server, job, tenants
        self._many = bool(job.launcher_command)
        self._root = job.pid - 7 if self._many else job.pid
        self._seed = next((tenant.seed for tenant in tenants.values()), 1)
        self._ranks = tuple(self._identity(job.pid + rank, 11.0) for rank in range(len(job.ranks)))
        self._places = tuple((rank, place) for rank in range(len(job.ranks)) for place in range(job.loaders))
        self._hired: tuple[float, tuple[Identity, ...]] = (math.nan, ())  # the loaders, and when they were started
        self._of_launcher = of_launcher(server, job)
        self._of_rank = tuple(of_rank(server, job, rank, self._root) for rank in range(len(job.ranks)))
        self._of_loader = tuple(of_loader(server, job, rank) for rank in range(len(job.ranks)))

    def seen(self, t: float) -> model.Job:
        """The job as the grouping of processes would see it."""
        job = self.job
        root = (self._identity(self._root, 0.0),) if self._many else ()
        return model.Job(
            key=job.key,
            name=job.name,
            user=job.user,
            launcher=job.launcher,
            container=job.container,
            slurm_job=job.slurm_job,
            ranks=self._ranks,
            members=(*root, *self._ranks, *self._loaders(t)),
        )

    def processes(self, t: float) -> Iterator[Process]:
        """The launcher, the ranks, the loaders; nothing before the job started or after it ended."""
        if not self.job.runs(t):
            return
        start, work = self.job.phase(t)
        now = _Now(t, self.server.uptime_s + t, work, max(0.0, t - start), self._shm(work, t))
        if self._many:
            yield self._launcher(now)
        for rank, identity in enumerate(self._ranks):
            yield self._rank(now, rank, identity)
        for (rank, _), identity in zip(self._places, self._loaders(t), strict=True):
            yield self._loader(now, rank, identity)

    def _identity(self, pid: int, later_s: float) -> Identity:
        return Identity(pid, int(100 * (self.server.uptime_s + self.job.started_s + later_s)))

    def _loaders(self, t: float) -> tuple[Identity, ...]:
        """The workers that load now: where a dip replaces them, each of its ends brings new ones."""
        job, (start, work) = self.job, self.job.phase(t)
        dips, later = 0, 22.0
        if work.dip and work.dip.respawn:
            dips = gate(work.dip, self._seed).count(t - start)
            later = start + dips * work.dip.every_s - job.started_s if dips else later
        if self._hired[0] != later:
            first = job.loader_pid + dips * len(self._places)
            self._hired = (
                later,
                tuple(self._identity(first + rank * job.loaders + place, later) for rank, place in self._places),
            )
        return self._hired[1]

    def _launcher(self, now: _Now) -> Process:
        identity = self._identity(self._root, 0.0)
        return Process(
            **self._of_launcher,
            **self._common(now, identity, use=_LAUNCHER, wait=1.0, rss=0.6 * GIB, shared=0.3),
            cpu_time_s=(now.up_s - identity.started_ticks / 100) * _LAUNCHER.all / 100,
            **_reads(0.0, 0.0, 4096),
            last_cpu=self._cpu(now, identity.pid),
        )

    def _rank(self, now: _Now, rank: int, identity: Identity) -> Process:
        t, work, job, seed, cards = now.t, now.work, self.job, identity.pid, self.job.ranks[rank]
        work = job.on_card(t, cards[0]) if len(cards) == 1 else work
        use = cores_now(rank_cores, work, seed, t)
        wait = around(work.run_wait, 0.2, seed + 2, t)
        written = around(work.main_writes, 0.1, seed + 7, t) + (self._written(t, work) if rank == 0 else 0.0)
        rss = job.rank_rss + work.rss_per_s * now.worked_s
        stuck = work.main_blocked > 90
        return Process(
            **self._of_rank[rank],
            **self._common(now, identity, use=use, wait=wait, rss=rss, shared=0.15),
            cpu_time_s=self._spent(now, Role.TRAINER, identity),
            **_reads(around(work.main_read, 0.1, seed + 3, t), work.main_chars, work.read_size),
            last_cpu=self._near(now, rank, identity.pid),
            state="D" if stuck else "R" if use.main > 60 else "S",
            waiting_in=self._storage_wait if stuck else None if use.main > 60 else _ASLEEP,
            busy_threads=work.pool_threads * (work.pool_cpu >= 10) + (use.main > 10),
            io_wait_percent=min(100.0, around(work.main_blocked, 0.5, seed + 4, t)),
            blocked_percent=around(work.main_blocked, 0.0 if stuck else 0.5, seed + 4, t),
            write_bytes_per_s=written,
            write_chars_per_s=written + 900,
            write_calls_per_s=written / (4 * MIB) + work.main_write_calls + 2,
            voluntary_switches_per_s=around(work.switches, 0.1, seed + 5, t),
            involuntary_switches_per_s=around(0.4 * work.run_wait * (1 + work.pool_threads), 0.2, seed + 6, t),
            gpus=tuple(self._share(t, card) for card in cards),
            **(self._metered(now, cards[0], identity) if job.samples is not None else {}),
        )

    def _metered(self, now: _Now, card: int, identity: Identity) -> dict[str, Any]:
        """What the step meter in a rank says: its GPU works for the same time in each step, and waits for data else."""
        window_s = min(_METERED_S, max(1.0, now.worked_s))
        busy = max(0.01, share(self._tenants[card].activity, now.t, window_s))
        step_s = now.work.period_s * now.work.duty / busy
        longest_s = step_s * around(1.8 if now.work.dip else 1.1, 0.05, identity.pid, now.t / 30)
        return {
            "metered": True,
            "step_s": step_s,
            "step_p90_s": min(longest_s, 1.4 * step_s),
            "step_longest_s": longest_s,
            "step_count": int((now.up_s - identity.started_ticks / 100) / now.work.period_s),
            "samples_per_s": (self.job.samples or 0) / step_s,
            "data_wait_percent": max(0.5, 98 - 100 * busy),
            "optimizer_percent": _OPTIMIZER * busy,
            "evaluated_percent": 0.0,
        }

    def _loader(self, now: _Now, rank: int, identity: Identity) -> Process:
        t, work, seed = now.t, now.work, identity.pid
        wander, other = noise(seed, t), noise(seed + 1, t)
        use = cores_now(loader_cores, work, seed, t)
        blocked = min(100.0, work.loader_blocked * (1 + 0.12 * other))
        stuck = 50 + 50 * noise(seed + 2, t) < blocked
        wait = 0.6 * work.run_wait * (1 - 0.2 * wander)
        read = work.loader_read * (1 - 0.06 * other)
        rss = self.job.loader_rss + work.loader_rss_per_s * now.worked_s
        return Process(
            **self._of_loader[rank],
            **self._common(now, identity, use=use, wait=wait, rss=rss, shared=0.7),
            cpu_time_s=self._spent(now, Role.LOADER, identity),
            **_reads(read, work.loader_cached, work.read_size),
            last_cpu=self._near(now, rank, identity.pid),
            state="D" if stuck else "R" if use.all > 60 else "S",
            waiting_in=self._storage_wait if stuck else None if use.all > 60 else _ASLEEP,
            busy_threads=1 + use.others if use.all > 10 else 0,
            io_wait_percent=blocked,
            blocked_percent=blocked,
            write_chars_per_s=0.4e6 * (1 + 0.1 * wander) * min(1.0, use.all),
            write_calls_per_s=40 * (1 + 0.1 * wander),
            voluntary_switches_per_s=90 * (1 + 0.2 * other),
            involuntary_switches_per_s=4 * (1 - 0.3 * other),
        )

    def _spent(self, now: _Now, role: Role, identity: Identity) -> float:
        started_s = identity.started_ticks / 100 - self.server.uptime_s
        return sum(one.all for one in cores_so_far(self.job, role, identity.pid, started_s, now.t))

    def _common(
        self, now: _Now, identity: Identity, *, use: Cores, wait: float, rss: float, shared: float
    ) -> dict[str, Any]:
        pid, started = identity
        age = now.up_s - started / 100
        resident = int(around(rss, 0.003, pid, now.t / 20))
        return {
            "pid": pid,
            "started_ticks": started,
            "age_s": age,
            "cpu_percent": use.all,
            "main_thread_percent": use.main,
            "run_wait_percent": wait,
            "main_run_wait_percent": wait,
            "throttled_percent": around(now.work.throttled, 0.1, pid, now.t),
            "rss_bytes": resident,
            "shared_bytes": int(shared * resident),
            "open_files": 24 + pid % 17,
            "shm_used_bytes": now.shm_used,
            "pss_bytes": int((1 - 0.8 * shared) * resident),
        }

    def _cpu(self, now: _Now, pid: int) -> int:
        return (pid * 7 + int(now.t) // 9) % self.server.cpus

    def _near(self, now: _Now, rank: int, pid: int) -> int:
        """The scheduler moves a process about, but keeps it near the GPU of its rank, or where it was put."""
        server, cards, half = self.server, self.job.ranks[rank], self.server.cpus // 2
        if not cards:
            return self._cpu(now, pid)
        late = cards[0] >= (len(server.cards) + 1) // 2
        return half * (late != now.work.far) + self._cpu(now, pid) % half

    def confined(self, t: float) -> Cgroup:
        """What confines the job."""
        work = self.job.phase(t)[1]
        return Cgroup(
            path=cgroup(self.job),
            cpu_quota=self.job.quota,
            throttled_percent=around(work.throttled, 0.1, self._seed, t),
            throttled_cpus=work.stopped_cpus,
            oom_kills=0,
        )

    def _shm(self, work: Work, t: float) -> int | None:
        """What is used of its own /dev/shm."""
        return (
            None
            if self.job.shm_bytes is None
            else min(self.job.shm_bytes, int(around(work.shm_used, 0.02, self._seed, t)))
        )

    def _written(self, t: float, work: Work) -> float:
        """What rank 0 writes: its checkpoint, spread over the dip."""
        if not work.dip or not work.dip.write_bytes:
            return 0.0
        start, _ = self.job.phase(t)
        paused = 1 - share(gate(work.dip, self._seed), t - start, 1.0)
        return paused * work.dip.write_bytes / work.dip.for_s

    def _share(self, t: float, card: int) -> GpuShare:
        tenant = self._tenants[card]
        on = share(tenant.activity, t - 0.11 * (card % 4), 1.0)
        reported = "parent_uuid" not in (name for _, name, _ in tenant.card.settings)  # nothing by process on instances
        return GpuShare(
            uuid=uuid(card),
            busy_percent=float(round(100 * on)) if reported else None,
            memory_busy_percent=float(round(min(100.0, 1.35 * on * tenant.work(t).dram))),
            encoder_percent=0.0,
            decoder_percent=0.0,
            vram_bytes=tenant.vram_bytes(t),
        )

    @cached_property
    def _storage_wait(self) -> str:
        store = next((store for store in self.server.stores if store.path == self.job.data), None)
        return "nfs_wait_bit_killable" if store and store.network else "folio_wait_bit_common"


def _reads(read: float, cached: float, call: float) -> dict[str, Any]:
    chars = read + cached
    return {
        "read_bytes_per_s": read,
        "read_chars_per_s": chars,
        "read_calls_per_s": chars / call,
        "mean_read_bytes": call if chars else None,
    }
