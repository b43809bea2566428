"""The processes of a simulated job at one moment: its launcher, its ranks, their loaders."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property
from typing import Any

from gputop import model
from gputop.demo.cards import Tenant, gate, uuid
from gputop.demo.generator import around, noise, share
from gputop.demo.server import GIB, MIB, Job, Server, Work
from gputop.model import Cgroup, GpuShare, Identity, Process, Role

_ASLEEP = "futex_do_wait"


class Crew:
    """The processes of one job; `tenants` are its places on the GPUs, by GPU index."""

    def __init__(self, server: Server, job: Job, tenants: dict[int, Tenant]) -> None:
        self.server, self.job, self._tenants = server, job, tenants
        self._many = bool(job.launcher_command)
        self._root = job.pid - 7 if self._many else job.pid
        self._seed = next((tenant.seed for tenant in tenants.values()), 1)
        self._ranks = tuple(self._identity(job.pid + rank, 11.0) for rank in range(len(job.ranks)))
        self._places = tuple((rank, place) for rank in range(len(job.ranks)) for place in range(job.loaders))
        self._same = self._facts()

    def seen(self, t: float) -> model.Job:
        """The job as the grouping of processes would see it."""
        job = self.job
        root = (self._identity(self._root, 0.0),) if self._many else ()
        return model.Job(
            key=job.name,
            name=job.name,
            user=job.user,
            launcher=job.launcher,
            container=job.container,
            slurm_job=job.slurm_job,
            ranks=self._ranks,
            members=(*root, *self._ranks, *(self._loader_identity(t, rank, place) for rank, place in self._places)),
        )

    def processes(self, t: float) -> Iterator[Process]:
        """The launcher, the ranks, the loaders; nothing before the job started or after it ended."""
        if not self.job.runs(t):
            return
        _, work = self.job.phase(t)
        if self._many:
            yield self._launcher(t)
        for rank, identity in enumerate(self._ranks):
            yield self._rank(t, work, rank, identity)
        for rank, place in self._places:
            yield self._loader(t, work, rank, self._loader_identity(t, rank, place))

    def _identity(self, pid: int, later_s: float) -> Identity:
        return Identity(pid, int(100 * (self.server.uptime_s + self.job.started_s + later_s)))

    def _loader_identity(self, t: float, rank: int, place: int) -> Identity:
        job, (start, work) = self.job, self.job.phase(t)
        pid, later = job.loader_pid + rank * job.loaders + place, 22.0
        if work.dip and work.dip.respawn:
            dips = gate(work.dip, self._seed).count(t - start)
            pid += dips * len(self._places)
            later = start + dips * work.dip.every_s - job.started_s if dips else later
        return self._identity(pid, later)

    def _launcher(self, t: float) -> Process:
        job = self.job
        return Process(
            **self._common(t, self._identity(self._root, 0.0), cpu=0.6, main=0.6, wait=1.0, rss=0.6 * GIB, shared=0.3),
            **self._reads(0.0, 0.0, 4096),
            parent_pid=1,
            name=job.launcher,
            command=job.launcher_command,
            role=Role.LAUNCHER,
            threads=job.launcher_threads,
            busy_threads=0,
            state="S",
            waiting_in="do_wait",
            write_bytes_per_s=0.0,
            write_chars_per_s=0.0,
            write_calls_per_s=0.0,
            voluntary_switches_per_s=11.0,
            involuntary_switches_per_s=0.0,
            thread_names=((job.launcher, 1), ("pt_elastic", job.launcher_threads - 1)),
        )

    def _rank(self, t: float, work: Work, rank: int, identity: Identity) -> Process:
        job, seed, cards = self.job, identity.pid, self.job.ranks[rank]
        work = job.on_card(t, cards[0]) if len(cards) == 1 else work
        main = min(100.0, around(work.main_cpu, 0.015, seed, t))
        pool = work.pool_threads * around(work.pool_cpu, 0.05, seed + 1, t)
        wait = around(work.run_wait, 0.2, seed + 2, t)
        written = around(work.main_writes, 0.1, seed + 7, t) + (self._written(t, work) if rank == 0 else 0.0)
        rss = job.rank_rss + self._grown(t, work.rss_per_s)
        return Process(
            **self._moved(
                t, rank, self._common(t, identity, cpu=main + pool, main=main, wait=wait, rss=rss, shared=0.15)
            ),
            **self._reads(around(work.main_read, 0.1, seed + 3, t), work.main_chars, work.read_size),
            **self._place(rank),
            parent_pid=self._root if self._many else 1,
            name="python",
            command=job.command,
            role=Role.TRAINER,
            state="D" if work.main_blocked > 90 else "R" if main > 60 else "S",
            waiting_in=self._storage_wait if work.main_blocked > 90 else None if main > 60 else _ASLEEP,
            threads=job.threads,
            busy_threads=work.pool_threads * (work.pool_cpu >= 10) + (main > 10),
            io_wait_percent=around(work.main_blocked, 0.5, seed + 4, t),
            blocked_percent=around(work.main_blocked, 0.5 if work.main_blocked <= 90 else 0.0, seed + 4, t),
            write_bytes_per_s=written,
            write_chars_per_s=written + 900,
            write_calls_per_s=written / (4 * MIB) + work.main_write_calls + 2,
            voluntary_switches_per_s=around(work.switches, 0.1, seed + 5, t),
            involuntary_switches_per_s=around(0.4 * work.run_wait * (1 + work.pool_threads), 0.2, seed + 6, t),
            thread_names=self._thread_names,
            libraries=job.libraries,
            torch_version=job.torch[0],
            torch_cuda=job.torch[1],
            gpus=tuple(self._share(t, card) for card in job.ranks[rank]),
        )

    def _loader(self, t: float, work: Work, rank: int, identity: Identity) -> Process:
        job, seed = self.job, identity.pid
        wander, other = noise(seed, t), noise(seed + 1, t)
        cpu = work.loader_cpu * (1 + 0.06 * wander)
        cpu = cpu if work.loader_cpu > 100 else min(99.6, cpu)
        blocked = min(100.0, work.loader_blocked * (1 + 0.12 * other))
        stuck = 50 + 50 * noise(seed + 2, t) < blocked
        wait = 0.6 * work.run_wait * (1 - 0.2 * wander)
        read = work.loader_read * (1 - 0.06 * other)
        rss = job.loader_rss + self._grown(t, work.loader_rss_per_s)
        return Process(
            **self._moved(
                t,
                rank,
                self._common(t, identity, cpu=cpu, main=min(99.6, cpu), wait=wait, rss=rss, shared=0.7),
            ),
            **self._reads(read, work.loader_cached, work.read_size),
            **self._place(rank),
            parent_pid=job.pid + rank,
            name="pt_data_worker",
            command=job.command,
            role=Role.LOADER,
            state="D" if stuck else "R" if cpu > 60 else "S",
            waiting_in=self._storage_wait if stuck else None if cpu > 60 else _ASLEEP,
            threads=3,
            busy_threads=math.ceil(cpu / 100) if cpu > 10 else 0,
            io_wait_percent=blocked,
            blocked_percent=blocked,
            write_bytes_per_s=0.0,
            write_chars_per_s=0.4e6 * (1 + 0.1 * wander) * min(1.0, cpu),
            write_calls_per_s=40 * (1 + 0.1 * wander),
            voluntary_switches_per_s=90 * (1 + 0.2 * other),
            involuntary_switches_per_s=4 * (1 - 0.3 * other),
            thread_names=(("pt_data_worker", 3),),
            libraries=tuple(name for name in job.libraries if name != "cuda"),
        )

    def _common(
        self, t: float, identity: Identity, *, cpu: float, main: float, wait: float, rss: float, shared: float
    ) -> dict[str, Any]:
        age = self.server.uptime_s + t - identity.started_ticks / 100
        resident = int(around(rss, 0.003, identity.pid, t / 20))
        return self._same | {
            "pid": identity.pid,
            "started_ticks": identity.started_ticks,
            "age_s": age,
            "cpu_percent": cpu,
            "cpu_time_s": age * cpu / 100,
            "main_thread_percent": main,
            "run_wait_percent": wait,
            "main_run_wait_percent": wait,
            "last_cpu": (identity.pid * 7 + int(t) // 9) % self.server.cpus,
            "throttled_percent": around(self.job.phase(t)[1].throttled, 0.1, identity.pid, t),
            "rss_bytes": resident,
            "shared_bytes": int(shared * resident),
            "open_files": 24 + identity.pid % 17,
            "shm_used_bytes": self._shm(t),
            "pss_bytes": int((1 - 0.8 * shared) * resident),
        }

    def _grown(self, t: float, per_s: float) -> float:
        """Bytes taken since it does what it does now."""
        return per_s * max(0.0, t - self.job.phase(t)[0])

    def _facts(self) -> dict[str, Any]:
        job, server = self.job, self.server
        return {
            "user": job.user,
            "uid": job.uid,
            "allowed_cpus": float(server.cpus if job.quota is None else job.quota),
            "affinity": f"0-{server.cpus - 1}",
            "nice": 0,
            "major_faults_per_s": 0.0,
            "swap_bytes": 0,
            "cgroup": self._cgroup,
            "container": job.container,
            "slurm_job": job.slurm_job,
            "slurm_name": job.name if job.slurm_job else None,
            "folder": job.name,
            "job": job.name,
            "omp_threads": job.omp_threads,
            "shm_total_bytes": job.shm_bytes,
            "visible_gpus": job.visible or ",".join(str(card) for rank in job.ranks for card in rank) or None,
        }

    @property
    def _cgroup(self) -> str:
        job = self.job
        if job.container:
            return f"/system.slice/docker-{job.container}.scope"
        return f"/slurm/uid_{job.uid}/job_{job.slurm_job}" if job.slurm_job else f"/user.slice/user-{job.uid}"

    def _moved(self, t: float, rank: int, process: dict[str, Any]) -> dict[str, Any]:
        """The scheduler moves a process about, but keeps it near the GPU of its rank, or where it was put."""
        server, cards, half = self.server, self.job.ranks[rank], self.server.cpus // 2
        if cards:
            late = cards[0] >= (len(server.cards) + 1) // 2
            process["last_cpu"] = half * (late != self.job.phase(t)[1].far) + process["last_cpu"] % half
        return process

    def confined(self, t: float) -> Cgroup:
        """What confines the job."""
        work = self.job.phase(t)[1]
        return Cgroup(
            path=self._cgroup,
            cpu_quota=self.job.quota,
            throttled_percent=around(work.throttled, 0.1, self._seed, t),
            throttled_cpus=work.stopped_cpus,
            oom_kills=0,
        )

    def _shm(self, t: float) -> int | None:
        """What is used of its own /dev/shm: batches come and go."""
        if self.job.shm_bytes is None:
            return None
        return min(self.job.shm_bytes, int(around(self.job.phase(t)[1].shm_used, 0.02, self._seed, t)))

    def _place(self, rank: int) -> dict[str, Any]:
        return (
            {"rank": rank, "local_rank": rank, "world_size": self.job.nodes * len(self.job.ranks)} if self._many else {}
        )

    def _reads(self, read: float, cached: float, call: float) -> dict[str, Any]:
        chars = read + cached
        return {
            "read_bytes_per_s": read,
            "read_chars_per_s": chars,
            "read_calls_per_s": chars / call,
            "mean_read_bytes": call if chars else None,
        }

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
        told = "parent_uuid" not in (name for _, name, _ in tenant.card.settings)  # nothing by process on instances
        return GpuShare(
            uuid=uuid(card),
            busy_percent=float(round(100 * on)) if told else None,
            memory_busy_percent=float(round(min(100.0, 1.35 * on * tenant.work(t).dram))),
            encoder_percent=0.0,
            decoder_percent=0.0,
            vram_bytes=tenant.vram_bytes(t),
        )

    @cached_property
    def _thread_names(self) -> tuple[tuple[str, int], ...]:
        cuda = int(any(self.job.ranks))
        trains = int(any(work.duty > 0 for _, work in self.job.work))  # torch starts it with the first backward pass
        loads = int(self.job.loaders > 0)
        named = (("cuda-EvtHandlr", cuda), ("pt_autograd_0", cuda * trains), ("pt_data_pin", cuda * loads))
        ranks = (("pt_nccl_heartbt", 1), ("pt_nccl_watchdg", 1)) if self._many else ()
        known = tuple(entry for entry in (*named, *ranks) if entry[1])
        return (("python", self.job.threads - len(known)), *known)

    @cached_property
    def _storage_wait(self) -> str:
        store = next((store for store in self.server.stores if store.path == self.job.data), None)
        return "nfs_wait_bit_killable" if store and store.network else "folio_wait_bit_common"
