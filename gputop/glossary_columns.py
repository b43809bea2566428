"""What a term of the glossary is, and the column titles of all tables but the GPU pane and the process table."""

from __future__ import annotations

from typing import Literal, NamedTuple


class Term(NamedTuple):
    """One term. `also` are other spellings by which a text is recognised as about it."""

    name: str
    meaning: str
    unit: str = ""
    source: str = ""
    normal: str = ""
    also: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The definition, then unit, normal values and source as far as there are any."""
        facts = (("Unit", self.unit), ("Normal", self.normal), ("Source", self.source))
        return " ".join([f"{self.meaning}.", *(f"{label}: {said}." for label, said in facts if said)])


COLUMN_TERMS: dict[Literal["experiments", "details", "results", "once"], tuple[Term, ...]] = {
    "experiments": (
        Term("EXPERIMENT", "Name of the job and its GPUs", source="command line"),
        Term("GPU%", "Busy, mean of its GPUs", unit="%", source="NVML", normal="80 % or more"),
        Term(
            "THREADS",
            "Compute threads its processes have started",
            unit="threads",
            source="/proc/PID/task",
            normal="at most ALLOWED CPUS",
        ),
        Term(
            "RUNNABLE",
            "Threads that run or wait for a CPU, mean",
            unit="threads",
            source="/proc/PID/schedstat",
            normal="at most ALLOWED CPUS",
        ),
        Term("ALLOWED CPUS", "CPUs its affinity and cgroup let it use", unit="CPUs", source="/proc/PID/status, cgroup"),
        Term("USED CPUS", "CPUs kept busy", unit="CPUs", source="/proc/PID/stat", normal="below ALLOWED CPUS"),
        Term(
            "CPU WAIT%",
            "Run queue wait of its threads, as a share of waiting and running",
            unit="%",
            source="/proc/PID/schedstat",
            normal="below 30 %",
        ),
        Term("WORKERS", "DataLoader workers", unit="processes", source="/proc"),
        Term("READ/s", "Bytes its processes read from storage", unit="bytes/s", source="/proc/PID/io"),
        Term(
            "OF ALL I/O",
            "Its share of what all programs of the host read and write on storage",
            unit="%",
            source="/proc/PID/io, /proc/diskstats, /proc/self/mountstats",
        ),
        Term("IO%", "Time its tasks were blocked on storage", unit="%", source="/proc/PID/stat", normal="below 20 %"),
    ),
    "details": (
        Term("TID", "Thread ID", source="/proc/PID/task"),
        Term("PID", "Process ID", source="/proc"),
        Term("NAME", "Name of the thread, process or variable", source="/proc/PID"),
        Term("VALUE", "Value of the variable; secrets are hidden", source="/proc/PID/environ"),
        Term("CPU%", "CPU time used; 100 % is one core", unit="%", source="/proc/PID/stat"),
        Term(
            "ST",
            "State: R running or runnable, S sleeping, D blocked in the kernel, T stopped, Z exited",
            source="/proc/PID/stat",
            normal="D only briefly",
        ),
        Term("BLOCKED ON", "Kernel function or wait in which it sleeps; `-` while it runs", source="/proc/PID/wchan"),
        Term("CPU", "CPU it last ran on", source="/proc/PID/stat"),
        Term(
            "WAIT%",
            "Run queue wait, as a share of waiting and running",
            unit="%",
            source="/proc/PID/schedstat",
            normal="below 30 %",
        ),
        Term("VOL/s", "Voluntary context switches: it waited for something", unit="1/s", source="/proc/PID/status"),
        Term(
            "INVOL/s",
            "Involuntary context switches: the scheduler ran another thread",
            unit="1/s",
            source="/proc/PID/status",
            normal="far below VOL/s; high if CPUs are oversubscribed",
        ),
        Term("TIME", "CPU time used since start", unit="hours:minutes:seconds", source="/proc/PID/stat"),
        Term("IO%", "Time blocked on storage", unit="%", source="/proc/PID/stat", normal="below 20 %"),
        Term("READ/s", "Bytes read from storage", unit="bytes/s", source="/proc/PID/io"),
        Term(
            "READS/s",
            "Read system calls, page cache hits included",
            unit="1/s",
            source="/proc/PID/io",
        ),
        Term(
            "FILE NOW",
            "File it reads now; without one, in Children, its command",
            source="/proc/PID/fd",
            also=("FILE NOW, OR COMMAND",),
        ),
        Term("NOW", "Rate of the last sample", unit="per second", source="/proc/PID/io"),
        Term("SINCE START", "Total since the process started", source="/proc/PID/io"),
        Term("FD", "File descriptor number", source="/proc/PID/fd"),
        Term("KIND", "Kind of descriptor: file, socket, pipe, device", source="/proc/PID/fd"),
        Term("MODE", "Opened to read (r), write (w) or both", source="/proc/PID/fdinfo"),
        Term("OFFSET", "File offset of the next read or write", unit="bytes", source="/proc/PID/fdinfo"),
        Term("SIZE", "File size", unit="bytes", source="stat"),
        Term("IO/s", "Rate at which the file offset moves", unit="bytes/s", source="/proc/PID/fdinfo"),
        Term("PATH", "Path of the file, or what the descriptor refers to", source="/proc/PID/fd"),
        Term("LIMIT", "Name of the resource limit", source="/proc/PID/limits"),
        Term("USED", "Amount in use, and its share of the soft limit", source="/proc/PID", normal="below 90 %"),
        Term("SOFT", "Limit in force; the process may raise it to HARD", source="/proc/PID/limits"),
        Term("HARD", "Upper bound of SOFT; only root can raise it", source="/proc/PID/limits"),
        Term("UNIT", "Unit of the limit, unless bytes or seconds", source="/proc/PID/limits"),
    ),
    "results": (
        Term("SELF%", "Share of samples with the function on top of the stack", unit="%", source="profile"),
        Term("TOTAL%", "Share of samples with the function anywhere on the stack", unit="%", source="profile"),
        Term("FUNCTION", "Function, file and line", source="profile"),
        Term("THREAD", "Thread name and ID", source="profile"),
        Term("WAITS%", "Share of the thread's samples in functions that wait", unit="%", source="profile"),
        Term("TOP FRAME", "Function on top of the stack; in a profile, in most samples", source="stacks"),
        Term("YOUR CODE", "Innermost frame outside installed packages", source="stacks"),
        Term("RANK", "Rank of the process", source="RANK"),
        Term("PID", "Process ID", source="/proc"),
        Term("WAITS IN", "Collective that the rank has entered and that has not completed", source="flight recorder"),
        Term("LAST ENTERED", "Newest collective of the rank, with its number in the group", source="flight recorder"),
        Term("COMPLETED", "Number of the last collective that has completed on the rank", source="flight recorder"),
        Term("GROUP", "Process group of the collectives; each numbers its own", source="flight recorder"),
        Term("MOVING", "Whether the stack changed between two samples", source="stacks", normal="yes"),
        Term("MS/STEP", "Time per optimizer step", unit="ms", source="trace"),
        Term("MS", "Time in all: the trace has no steps", unit="ms", source="trace"),
        Term("SHARE", "Share of the time of all rows", unit="%", source="trace"),
        Term("CALLS", "Calls per optimizer step", unit="count", source="trace"),
        Term("EACH", "Mean time per call", unit="µs or ms", source="trace"),
        Term("KIND", "Kind of kernel, e.g. matrix multiply, memory copy, communication", source="trace"),
        Term("KERNEL", "Kernel name, shortened", source="trace"),
        Term("OPERATOR", "PyTorch operator", source="trace"),
        Term("SHAPES", "Shapes of its input tensors", source="trace"),
        Term("NOTE", "Remark on the operator", source="trace"),
        Term("STEP", "Number of the optimizer step", source="trace"),
        Term("TIME", "Duration of the step", unit="ms or s", source="trace"),
        Term("TO MEDIAN", "Duration compared with the median step", source="trace", normal="near the median"),
        Term("DATA WAIT", "Time waiting for the next batch, share of the step", unit="%", source="trace"),
        Term(
            "GPU BUSY", "Time with a kernel running, share of the step", unit="%", source="trace", normal="80 % or more"
        ),
        Term("KERNELS", "Kernels launched in the step", unit="count", source="trace"),
        Term("SAMPLES", "Number of samples of the stacks", unit="count", source="profile"),
        Term(
            "flame graph",
            "Call stacks: each frame stands below its caller, as wide as its share of the time or of the samples",
            source="profile or trace",
        ),
        Term("own code", "Functions outside Python and installed packages: `*` in a profile, `>` in stacks"),
        Term("waits", "Functions that wait for a batch, a lock, a socket, another rank or the GPU: `=`"),
        Term("GIL", "Global interpreter lock: one thread of a process at a time runs Python code", source="py-spy"),
        Term("data", "Phase of a step: waiting for a batch, or loading it in the main thread"),
        Term("forward", "Phase of a step: the model and the loss; in a trace, also what is in no other phase"),
        Term("backward", "Phase of a step: the gradients; most of it runs in a thread of autograd"),
        Term("optimizer", "Phase of a step: the update of the weights, `zero_grad` included in a profile"),
        Term("communication", "Phase of a step: collectives that no kernel overlaps", also=("comms",)),
        Term("host-to-device copies", "Copies of batches or weights to the GPU", source="trace"),
        Term("GPU compute", "Lane of the timeline: kernels but those of collectives; comm and copy have their own"),
        Term("gap", "Time without a kernel on the GPU; without a GPU, without traced calls in the main thread"),
        Term("exposed communication", "Collectives while no other kernel runs: the part that costs time"),
        Term(
            "idle, next kernel not launched",
            "The GPU has finished its work, and the CPU has not launched more: input, or CPU overhead",
            source="trace",
        ),
        Term("idle, launched but not started", "The next kernel is queued, but waits for a copy, event or stream"),
        Term("idle, launch not in the trace", "The launch of its next kernel was not recorded"),
        Term(
            "idle, between two kernels", "Gaps of a few µs between kernels launched in time; fewer kernels shorten them"
        ),
        Term("in tensors", "Device memory PyTorch's allocator has given to tensors", unit="bytes", source="trace"),
        Term(
            "reserved",
            "Device memory the allocator has taken from the driver: tensors, and what it caches for the next ones",
            unit="bytes",
            source="trace",
        ),
        Term("speedscope", "Format of a profile for the viewer https://www.speedscope.app, which runs in the browser"),
        Term("Perfetto", "Viewer of traces, https://ui.perfetto.dev; the file stays in the browser"),
        Term("collapsed stacks", "A stack and its number of samples per line, as flamegraph.pl and inferno read them"),
    ),
    "once": (
        Term("GPU", "GPU index as in nvidia-smi", source="NVML"),
        Term("BUSY", "As busy in the GPU pane", unit="%", source="NVML", normal="80 % or more in steady training"),
        Term("TEMP", "GPU core temperature", unit="°C", source="NVML"),
        Term("POWER", "Board power and the power limit in force", unit="W", source="NVML"),
        Term("PCIE RX/s", "Host to device over PCIe", unit="bytes/s", source="NVML"),
        Term(
            "CLOCK LIMIT",
            "Active clock event reasons, as throttle in the GPU pane",
            source="NVML",
            normal="none, or power cap",
        ),
        Term("NAME", "Product name of the GPU", source="NVML"),
        Term("JOB, PID", "Name of the job, PID of the process"),
    ),
}
