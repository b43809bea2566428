"""What scenarios are made of: stores, daemons, jobs and servers to be changed a little."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gputop.demo.server import GIB, DemoGpu, DemoJob, DemoServer, DemoStorage, Scenario, Work

BEFORE_S = -40_000.0  # work that was already there when the scenario began
ONSET_S = 120.0
SOON_S = 150  # of a past that is enough for nearly every verdict there is to be had: the demo opens at once

HEALTHY = Work(main_cpu=100, loader_cpu=25, nvlink=38e9)
PARKED = Work(
    duty=0.0,
    watts=71,
    vram_bytes=2.1 * GIB,
    main_cpu=0.05,
    main_blocked=0,
    run_wait=0,
    switches=3,
    io_pressure=0,
    cpu_pressure=0,
)

DATA = DemoStorage(
    path="/data",
    device="nas01:/export/data",
    file_system="nfs4",
    total_bytes=400 * 1024 * GIB,
    free_bytes=61 * 1024 * GIB,
    bytes_per_s=2.0 * GIB,
    network=True,
    latency_s=0.0011,
)
SCRATCH = DemoStorage(
    path="/scratch",
    device="nvme1n1",
    file_system="xfs",
    total_bytes=14 * 1024 * GIB,
    free_bytes=int(5.4 * 1024 * GIB),
    bytes_per_s=6.8e9,
    latency_s=0.00009,
)
ROOT = DemoStorage(
    path="/",
    device="nvme0n1",
    file_system="ext4",
    total_bytes=1800 * GIB,
    free_bytes=1216 * GIB,
    bytes_per_s=3.2e9,
    latency_s=0.0001,
)
STORES = (DATA, SCRATCH, ROOT)
OTHERS = (
    (1, "root", 0, "/sbin/init", 0.0),
    (812, "root", 0, "/usr/lib/systemd/systemd-journald", 0.3),
    (1377, "root", 0, "/usr/bin/nvidia-persistenced --user nvidia-persistenced", 0.0),
    (1502, "root", 0, "/usr/bin/containerd", 0.6),
    (1544, "root", 0, "/usr/sbin/sshd -D", 0.0),
    (1689, "root", 0, "/usr/sbin/slurmd -D -s", 0.1),
    (1731, "prometheus", 991, "/usr/bin/node_exporter --web.listen-address=127.0.0.1:9100", 0.9),
    (2210, "root", 0, "/usr/bin/nv-fabricmanager -c /usr/share/nvidia/nvswitch/fabricmanager.cfg", 0.2),
    (39001, "alice", 1001, "sshd: alice@pts/0", 0.1),
    (39002, "alice", 1001, "-bash", 0.0),
    (39744, "alice", 1001, "tmux new -s train", 0.4),
    (50231, "bob", 1002, "sshd: bob@pts/3", 0.0),
    (50232, "bob", 1002, "-zsh", 0.0),
    (50980, "bob", 1002, "vim configs/sd3.yaml", 0.2),
    (60411, "carol", 1003, "sshd: carol@notty", 0.0),
    (60502, "carol", 1003, "/opt/conda/bin/python /opt/conda/bin/jupyter-lab --no-browser --port 8899", 1.1),
    (71544, "alice", 1001, "gputop", 1.4),
)


def each(*cards: int) -> tuple[tuple[int, ...], ...]:
    """One rank on each of these GPUs."""
    return tuple((card,) for card in cards)


def llama(ranks: tuple[tuple[int, ...], ...], *work: tuple[float, Work], loaders: int = 8) -> DemoJob:
    """A language model trained with torchrun from shards on the file server."""
    train = ("train.py", "--config", "configs/llama7b.yaml")
    return DemoJob(
        name="llama-7b",
        user="alice",
        uid=1001,
        pid=41207,
        ranks=ranks,
        work=work,
        command=("python", *train),
        launcher="torchrun",
        launcher_command=("python", "-m", "torch.distributed.run", f"--nproc_per_node={len(ranks)}", *train),
        launcher_threads=64,
        loaders=loaders,
        loader_pid=41390,
        started_s=-45_051 + 300 - 11,
        slurm_job="88123",
    )


def sd3(ranks: tuple[tuple[int, ...], ...], *work: tuple[float, Work]) -> DemoJob:
    """An image model fine-tuned with accelerate from latents on the local disk; it needs no loaders."""
    return DemoJob(
        name="sd3-finetune",
        user="bob",
        uid=1002,
        pid=52011,
        ranks=ranks,
        work=work,
        command=("python", "-m", "train_sd3", "--fsdp"),
        launcher="accelerate",
        launcher_command=("python", "accelerate", "launch", "--num_processes", str(len(ranks)), "-m", "train_sd3"),
        launcher_threads=5,
        threads=67,
        rank_rss=13 * GIB,
        started_s=-10_930 + 300 - 11,
        data="/scratch",
        slurm_job="88131",
    )


def jupyter(card: int, idle_since_s: float) -> DemoJob:
    """A notebook that holds device memory and does nothing."""
    busy = replace(PARKED, duty=0.4, period_s=2.0, jitter=0.3, watts=240, sm=30, tensor=6, dram=12, main_cpu=70)
    return DemoJob(
        name="jupyter",
        user="carol",
        uid=1003,
        pid=60877,
        ranks=((card,),),
        work=((idle_since_s - 900, busy), (idle_since_s, PARKED)),
        command=("python", "-m", "ipykernel_launcher", "-f", "kernel-8c.json"),
        launcher="notebook",
        threads=21,
        rank_rss=3.2 * GIB,
        started_s=-187_860 + 300,
        data="/",
        omp_threads=None,
    )


def dgx(cards: int, *jobs: DemoJob) -> DemoServer:
    """A server with H100s, a file server, a local disk and a few daemons."""
    return DemoServer(
        cards=tuple(DemoGpu(index=index) for index in range(cards)), jobs=jobs, stores=STORES, others=OTHERS
    )


def workstation(*jobs: DemoJob) -> DemoServer:
    """A server with one H100 and 16 CPUs."""
    small = dgx(1, *jobs)
    return replace(small, cpus=16, memory_bytes=256 * GIB, memory_base_bytes=18 * GIB, cached_bytes=90 * GIB)


def fault(name: str, title: str, loaders: int = 2, length_s: float = 600.0, **changes: Any) -> Scenario:
    """One GPU whose job, healthy until the onset, then works otherwise."""
    work = replace(HEALTHY, vram_bytes=30 * GIB, nvlink=0)
    job = llama(each(0), (BEFORE_S, work), (ONSET_S, replace(work, **changes)), loaders=loaders)
    return Scenario(name=name, title=title, server=workstation(job), length_s=length_s)


def card_fault(name: str, title: str, **changes: Any) -> Scenario:
    """One GPU with a healthy job on a card that is set or cooled otherwise."""
    healthy = fault(name, title)
    card = replace(healthy.server.cards[0], **changes)
    return replace(healthy, server=replace(healthy.server, cards=(card,)))
