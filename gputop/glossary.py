"""The glossary: each term on the screen and in reports, defined once. The manual, the help and F1 are made of it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Literal

from gputop.glossary_columns import COLUMN_TERMS, Term

Group = Literal[
    "gpu", "gpu state", "host", "job", "verdict", "cause", "cpu", "memory", "experiments", "details", "results", "once"
]
GROUPS: dict[Group, str] = {
    "gpu": "GPU pane",
    "gpu state": "States of a GPU",
    "host": "Host pane",
    "job": "Jobs and processes",
    "verdict": "Verdicts",
    "cause": "Causes of lost GPU time",
    "cpu": "CPU and scheduling",
    "memory": "Memory and I/O",
    "experiments": "Columns of the experiments page",
    "details": "Columns of the process details",
    "results": "Profiles, traces and stacks",
    "once": "Columns of --once",
}


TERMS: dict[Group, tuple[Term, ...]] = {
    "gpu": (
        Term("#", "GPU index as in nvidia-smi; a MIG instance is 0:1", source="NVML"),
        Term(
            "busy",
            "Share of time in which at least one kernel was resident on the GPU. It does not say how much of the GPU "
            "worked: one small kernel, or a hung collective, also reads 100 %",
            unit="%",
            source="NVML utilization samples",
            normal="80 % or more in steady training",
            also=("GPU busy", "utilization"),
        ),
        Term(
            "last", "Sparkline of busy, newest at the right; the title says how many seconds", unit="%", source="NVML"
        ),
        Term(
            "VRAM",
            "Device memory in use and installed, all processes",
            unit="GiB",
            source="NVML",
            normal="below 95 %",
            also=("device memory",),
        ),
        Term(
            "temp",
            "GPU core temperature",
            unit="°C",
            source="NVML",
            normal="below its slowdown temperature, mostly 85 to 90 °C",
            also=("temperature",),
        ),
        Term(
            "power",
            "Board power and the power limit in force",
            unit="W",
            source="NVML",
            normal="near the limit at full load",
        ),
        Term("pwr", "Board power", unit="W", source="NVML", normal="near the limit at full load"),
        Term(
            "SM MHz",
            "SM clock",
            unit="MHz",
            source="NVML",
            normal="near the boost clock at full load, unless power-capped",
            also=("SM clock",),
        ),
        Term(
            "effective load",
            "As in nvtop: busy × power ÷ power limit. 100 % busy at a third of the power limit reads 33 %",
            unit="%",
            source="NVML",
            normal="60 % or more in compute-bound training",
            also=("effective load",),
        ),
        Term(
            "tensor",
            "Share of cycles in which the tensor cores were active",
            unit="%",
            source="NVML GPM (Hopper and newer)",
            normal="20 to 60 % in mixed-precision training",
            also=("tensor cores", "tensor active"),
        ),
        Term(
            "SM act",
            "SM activity: share of SMs with at least one warp, averaged over time",
            unit="%",
            source="NVML GPM (Hopper and newer)",
            normal="80 % or more in large kernels",
            also=("SM activity", "SM active"),
        ),
        Term(
            "SM occupancy",
            "Resident warps as a share of those an SM can hold",
            unit="%",
            source="NVML GPM (Hopper and newer)",
            also=("occupancy",),
        ),
        Term(
            "mem BW",
            "Memory bandwidth: share of the peak device-memory bandwidth in use (DRAM activity in GPM and DCGM)",
            unit="%",
            source="NVML GPM (Hopper and newer)",
            normal="above 80 % the GPU is memory-bound",
            also=("mem BW", "memory bandwidth", "bandwidth"),
        ),
        Term(
            "PCIe rx/s",
            "Host to device over PCIe: input batches, offloaded weights",
            unit="bytes/s",
            source="NVML GPM, else NVML PCIe counters",
            normal="far below the link's rate",
            also=("PCIe rx",),
        ),
        Term(
            "tx/s",
            "Device to host over PCIe: checkpoints, metrics",
            unit="bytes/s",
            source="NVML GPM, else NVML PCIe counters",
            also=("PCIe tx",),
        ),
        Term(
            "NVLink rx/s",
            "Received over all NVLinks: collectives between the GPUs of this host",
            unit="bytes/s",
            source="NVML GPM, else NVML counters",
            also=("NVLink",),
        ),
        Term(
            "ECC",
            "Uncorrectable device-memory errors since the driver was loaded",
            unit="count",
            source="NVML",
            normal="0",
        ),
        Term(
            "throttle",
            "Active clock event reasons, e.g. power cap, thermal, hw thermal, power brake, clock settings",
            source="NVML",
            normal="none, or power cap",
            also=("clock event reasons",),
        ),
        Term("fan", "Fan speed requested by the GPU, of its maximum", unit="%", source="NVML"),
        Term(
            "mem temp",
            "Temperature of the hottest memory stack",
            unit="°C",
            source="NVML",
            normal="below 95 °C",
            also=("memory temperature",),
        ),
        Term(
            "P-state",
            "Performance state: P0 is full performance, P8 and above are idle states",
            source="NVML",
            normal="P0 under load",
            also=("performance state",),
        ),
        Term(
            "state",
            "What the GPU does, or what is wrong with it: the most urgent finding, else a state listed below",
            source="rules and NVML",
        ),
    ),
    "gpu state": (
        Term("busy", "Kernels ran within the last second, and no finding applies"),
        Term("healthy", "A rule has judged the job on it: the GPU is the bottleneck, as it should be"),
        Term("idle", "No kernel was resident; with the time since the last one from 60 s on"),
        Term(
            "thermal",
            "Hardware thermal slowdown, or the driver lowers clocks because of temperature",
            normal="never",
            also=("thermal slowdown",),
        ),
        Term("power cap", "The driver lowers clocks to keep the power limit", normal="yes, at full load"),
        Term("starting", "The GPU has just appeared and has no values yet"),
        Term("asleep", "Runtime power management has powered the device off; gputop does not wake it"),
        Term("hung", "The driver does not answer for this GPU; other GPUs may still be read", normal="never"),
        Term("lost", "The GPU has fallen off the bus (Xid 79) or was removed", normal="never"),
        Term(
            "12s old",
            "Age of the values shown: the driver has not answered since",
            unit="s",
            normal="never",
        ),
        Term("judging", "The rules need more data for a verdict on its job"),
        Term("unknown", "A verdict on its job is due, but required metrics are unavailable, or no cause was found"),
        Term("hang", "No rank of its job makes progress: a collective that never completes", normal="never"),
        Term("less busy", "Busy dropped below the job's own earlier level, and step times are not measured"),
        Term("dataloader", "Short for dataloader-bound: the GPU waits for the next batch"),
        Term("NUMA", "The process runs on CPUs far from its GPU: NUMA mismatch"),
        Term("CPU clock", "The CPUs run far below their maximum clock"),
        Term("disk full", "The file system the job writes to is full or nearly full", normal="below 95 % used"),
        Term("host sync", "The trainer waits for GPU results too often, e.g. .item() or logging in every step"),
        Term("profiled", "A profile or trace shows the cause; the finding names it"),
        Term("mig", "Split into MIG instances, which are listed below it"),
    ),
    "host": (
        Term("cpu", "CPU time used, of all CPUs", unit="%", source="/proc/stat", normal="below 90 %"),
        Term(
            "iowait",
            "Time in which CPUs were idle while a task waited for storage. With many CPUs it understates I/O waits; "
            "PSI io is more reliable",
            unit="%",
            source="/proc/stat",
            normal="below 20 %",
        ),
        Term(
            "steal",
            "CPU time the hypervisor gave to other virtual machines",
            unit="%",
            source="/proc/stat",
            normal="below 5 %",
        ),
        Term(
            "PSI",
            "Pressure stall information: share of time in which at least one task waited for CPU, I/O or memory",
            unit="% of the time between two samples",
            source="/proc/pressure",
            normal="below 50 %",
            also=("pressure stall",),
        ),
        Term(
            "load",
            "Load average of 1 minute: tasks that run, are runnable, or are blocked on I/O",
            unit="tasks",
            source="/proc/loadavg",
            normal="at most the number of CPUs",
            also=("load average",),
        ),
        Term(
            "mem", "Host memory in use, page cache excluded", unit="bytes", source="/proc/meminfo", normal="below 90 %"
        ),
        Term(
            "swap",
            "Swap in use; `in` and `out` are pages per second",
            unit="bytes",
            source="/proc/meminfo, /proc/vmstat",
            normal="in and out near 0",
        ),
        Term(
            "storage",
            "Bytes read and written on all disks and network file systems. `axis` is the top of the chart, not a limit",
            unit="bytes/s",
            source="/proc/diskstats, /proc/self/mountstats",
        ),
        Term(
            "disk",
            "Time the disk had requests, and bytes read and written",
            unit="%, bytes/s",
            source="/proc/diskstats",
        ),
        Term(
            "NFS",
            "NFS mounts: mean round trip of a read, and bytes read and written",
            unit="ms, bytes/s",
            source="/proc/self/mountstats",
            normal="round trip of a few ms",
        ),
        Term(
            "net",
            "Bytes received and sent by physical interfaces, of the link speed",
            unit="bytes/s",
            source="/proc/net/dev",
            normal="below 80 % of the link speed",
        ),
        Term("IB", "Bytes received and sent by InfiniBand ports", unit="bytes/s", source="/sys/class/infiniband"),
        Term("limit", "Limits of the cgroup gputop runs in: memory, CPU quota", source="cgroup v2, or v1"),
    ),
    "job": (
        Term("job", "Processes that train one model: launcher, ranks and DataLoader workers, on this host"),
        Term("experiment", "A job as seen in a comparison with the other jobs on the same host", also=("experiments",)),
        Term("process", "One Linux process with its own PID"),
        Term("trainer", "A process that trains: it has a CUDA context and runs optimizer steps. Each rank is one"),
        Term("rank", "One trainer of a distributed job, numbered from 0 (RANK)", also=("ranks",)),
        Term("launcher", "The process that starts the ranks: torchrun, accelerate, deepspeed, srun, a shell"),
        Term(
            "worker",
            "A DataLoader worker process (num_workers). JSON calls its role `loader`",
            also=("workers", "num_workers"),
        ),
        Term(
            "dataloader",
            "torch.utils.data.DataLoader and its workers: reads, decodes and batches the samples",
            also=("DataLoader",),
        ),
        Term(
            "data wait",
            "Time in which the training loop waits for its next batch, as a share of the step",
            unit="%",
            source="step meter, or a trace",
            normal="below 5 %",
        ),
        Term("step", "One optimizer step: input, forward, backward, optimizer", also=("optimizer step",)),
        Term(
            "step meter",
            "Code in the trainer that measures each optimizer step and its data wait; jobs started with `gputop run`",
            source="the trainer",
            also=("step meters",),
        ),
        Term(
            "sample",
            "Of data: one item of a dataset, as in samples/s. Of a measurement: one reading of all metrics, every "
            "refresh interval; in a profile, one reading of the stacks",
            also=("refresh interval",),
        ),
    ),
    "verdict": (
        Term("OK", "Severity of a trace check that found nothing to fix"),
        Term("GPU starved", "The GPU idles because its next work is not ready: input, storage or CPU"),
        Term(
            "class",
            "Workload class of a trainer: GPU work per step small or large, preprocessing per sample simple or complex",
            source="rules",
        ),
        Term("found", "A rule has found a cause; the finding says what to do"),
        Term(
            "judging", "Too little data for a verdict yet; the first one takes about a minute", also=("no verdict yet",)
        ),
        Term("unknown", "A verdict is due, but required metrics are unavailable"),
        Term("healthy", "All rules that apply have judged the job and found nothing to fix", also=("compute-bound",)),
        Term("severity", "CRIT, WARN or INFO, from the share of GPU time lost: 50 %, 20 %, less"),
        Term(
            "GPU time lost",
            "Share of the time of the job's GPUs that the cause costs, averaged over the rule's window",
            also=("lost",),
        ),
        Term("up to N× faster if fixed", "Upper bound of the speedup if the lost time became GPU time"),
        Term("confidence", "How sure a finding is, from 0 to 1; a profile or a trace raises it"),
        Term("reported by the driver", "Basis of a finding: the driver or the kernel states the cause itself"),
        Term("inferred", "Basis of a finding: metrics that move together point to the cause"),
        Term("profiled", "Basis of a finding: a profile, a trace or stacks of the process show the cause"),
        Term("reported by the job", "Basis of a finding: the step meter or the program itself reports the cause"),
    ),
    "cause": (
        Term(
            "dataloader-bound",
            "The GPU waits for the next batch: too few workers, or too little CPU for them",
        ),
        Term(
            "I/O-bound", "Workers or trainer wait for storage or for a file server", also=("io-bound", "network-bound")
        ),
        Term(
            "launch-bound",
            "Kernels are shorter than the CPU time to launch them, so the GPU waits for the main thread. Remedies: "
            "torch.compile, CUDA graphs, larger batches",
        ),
        Term("copy-bound", "The GPU waits for copies from host memory over PCIe", also=("host-to-device copy-bound",)),
        Term("compute-bound", "The GPU's compute throughput limits the job. Nothing to fix outside the model"),
        Term("memory-bound", "Device-memory bandwidth limits the job", also=("device-memory bandwidth",)),
        Term(
            "straggler",
            "One rank is slower than the others, and all wait for it in each collective",
            also=("stragglers",),
        ),
        Term(
            "collective",
            "An operation in which all ranks take part, such as all_reduce (NCCL). The GPU of a rank that waits in one "
            "reads 100 % busy",
            also=("collectives", "NCCL", "all_reduce"),
        ),
        Term(
            "head-of-line blocking", "Batches are delivered in order, so one slow sample delays those already finished"
        ),
        Term(
            "hardware thermal slowdown",
            "The GPU halves its clocks, or worse, at its slowdown temperature (HW thermal slowdown in nvidia-smi)",
            also=("thermal slowdown",),
        ),
        Term(
            "power cap",
            "The power limit in force keeps the SM clock down. Normal at full load with the default limit",
            also=("power-capped", "power limit"),
        ),
        Term(
            "power brake",
            "The server's hardware asks the GPU to halve its clocks: power supply or power budget",
            also=("hardware power brake",),
        ),
        Term("Xid", "An error event of the NVIDIA driver, by number"),
        Term("fp32", "Matrix math without tensor cores; TF32 or bf16 uses them", also=("TF32", "bf16")),
    ),
    "cpu": (
        Term(
            "oversubscribed",
            "More runnable threads than CPUs, so that they take turns",
            also=("oversubscription", "CPU oversubscribed"),
        ),
        Term(
            "compute threads",
            "Threads of OpenMP, MKL or torch intra-op pools: OMP_NUM_THREADS each",
            unit="threads",
            source="/proc/PID/task",
            normal="at most the CPUs divided among the jobs",
            also=("OMP_NUM_THREADS",),
        ),
        Term(
            "run queue wait",
            "Time a thread was runnable but had no CPU, as a share of waiting and running. The column is CPU WAIT%",
            unit="%",
            source="/proc/PID/schedstat",
            normal="below 30 %",
            also=("run queue", "run-queue wait"),
        ),
        Term("core", "100 % CPU of a process is one core; of the host it is all of them", also=("cores",)),
        Term(
            "affinity",
            "The CPUs a process may run on (taskset, cpuset)",
            source="/proc/PID/status",
            also=("CPUs allowed", "allowed CPUs"),
        ),
        Term(
            "NUMA node",
            "CPUs and the memory close to them; a GPU is attached to one node",
            source="/sys/devices/system/node",
            also=("NUMA",),
        ),
        Term(
            "CPU quota",
            "CPU time a cgroup may use per period (cpu.max); when exhausted, its threads are throttled",
            source="cgroup",
            normal="throttled 0 %",
            also=("throttled",),
        ),
    ),
    "memory": (
        Term(
            "page cache",
            "Files kept in host memory: a read from it does not reach storage",
            unit="bytes",
            source="/proc/meminfo",
            also=("cache",),
        ),
        Term(
            "pinned memory",
            "Page-locked host memory (pin_memory=True): needed for asynchronous copies to the GPU",
            also=("pin_memory", "pinned"),
        ),
        Term(
            "/dev/shm",
            "Shared memory through which workers hand over batches",
            unit="bytes",
            source="statvfs",
            normal="below 90 %",
            also=("shared memory",),
        ),
        Term(
            "RSS",
            "Resident memory. Forked workers share pages, so that sums count them more than once",
            unit="bytes",
            source="/proc/PID/statm",
        ),
        Term(
            "PSS",
            "Resident memory with shared pages divided among their users: sums are exact",
            unit="bytes",
            source="/proc/PID/smaps_rollup",
        ),
        Term(
            "blocked on storage",
            "Time a task was in state D, or waited for I/O by delay accounting. The column is IO%",
            unit="%",
            source="/proc/PID/stat",
            normal="below 20 %",
            also=("state D",),
        ),
        Term(
            "unified memory",
            "GPU and host share one memory (GB10, Jetson): there are no separate VRAM figures",
            also=("unified",),
        ),
    ),
    "experiments": COLUMN_TERMS["experiments"],
    "details": COLUMN_TERMS["details"],
    "results": COLUMN_TERMS["results"],
    "once": COLUMN_TERMS["once"],
}


def in_titles(titles: str, group: Group) -> tuple[Term, ...]:
    """The columns of a table, by the line of its titles."""
    names = [(term, (term.name, *term.also)) for term in TERMS[group]]
    return tuple(term for term, of in names if any(re.search(rf"(?<!\S){re.escape(one)}(?!\S)", titles) for one in of))


def named_in(texts: Iterable[str], *groups: Group) -> tuple[Term, ...]:
    """The terms that texts use, in the order of the groups; a longer name hides those inside it."""
    text = "\n".join(texts)
    terms = [term for group in groups for term in TERMS[group]]
    found = [(use.start(), use.end(), term) for term in terms for use in _uses(term).finditer(text)]
    hidden = [
        (start, end)
        for start, end, _ in found
        if any(left <= start and end <= right and right - left > end - start for left, right, _ in found)
    ]
    used = {term for start, end, term in found if (start, end) not in hidden}
    return tuple(dict.fromkeys(term for term in terms if term in used))


@lru_cache(maxsize=256)
def _uses(term: Term) -> re.Pattern[str]:
    """Finds it in a text, where the label of a field, such as `last`, is a word like any other."""
    label = term in TERMS["gpu"] or term in TERMS["host"]
    names = "|".join(map(re.escape, term.also if label else (term.name, *term.also)))
    return re.compile(rf"(?<![\w-])(?:{names or '(?!)'})(?!\w)", re.IGNORECASE)
