"""A CSV log for spreadsheets and notebooks: a row per GPU and update, printed or appended to a file."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import NamedTuple

from gputop.export.format import redacted
from gputop.export.formats import cell
from gputop.model import Frame, Gpu, Host, Job, Process, metrics
from gputop.monitor import Update
from gputop.safe.files import Refused
from gputop.safe.output import AppendOnlyFile, StandardOutput
from gputop.safe.text import clean

_MIB = 1024**2
_LONGEST_LINE = 1 << 20


class LogRow(NamedTuple):
    """The data of a row: a GPU of a frame, and the training process on it."""

    frame: Frame
    gpu: Gpu
    training: Process | None


Cell = Callable[[LogRow], object]


def row(frame: Frame, gpu: Gpu) -> LogRow:
    """The row of a GPU, with the process that reports steps or notes; the first rank of several."""
    on_it = (one for one in frame.processes if any(share.uuid == gpu.uuid for share in one.gpus))
    metered = [one for one in on_it if one.step_count is not None or one.noted]
    return LogRow(frame, gpu, min(metered, key=lambda one: (one.rank or 0, one.pid), default=None))


def _number(value: object) -> str:
    """A number without noise; empty if unknown, the usual form in CSV."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float):
        return f"{value:.3f}".rstrip("0").rstrip(".")
    return str(value)


def _mib(value: int | None) -> float | None:
    return None if value is None else value / _MIB


def _metric(name: str) -> Cell:
    return lambda row: getattr(row.gpu, name)


def _of_host(name: str) -> Cell:
    return lambda row: getattr(row.frame.host, name)


def _of_training(name: str) -> Cell:
    return lambda row: None if row.training is None else getattr(row.training, name)


def _jobs(row: LogRow) -> str:
    """Names of the jobs on the GPU; with a PID if the name is not unique."""
    frame = row.frame
    held = {process.job for process in frame.processes for share in process.gpus if share.uuid == row.gpu.uuid}
    many = Counter(job.name for job in frame.jobs)

    def name(job: Job) -> str:
        first = next(iter((*job.ranks, *job.members)), None)
        return job.name if many[job.name] == 1 or first is None else f"{job.name} pid {first.pid}"

    return " ".join(name(job) for job in frame.jobs if job.key in held)


def _noted(row: LogRow) -> str:
    """The latest noted value of each name: loss=0.53 epoch=3."""
    noted = row.training.noted if row.training is not None else ()
    newest = {one.name: one for one in sorted(noted, key=lambda one: one.wall_s)}
    return " ".join(f"{clean(name)}={_number(one.value) if one.finite else 'nan'}" for name, one in newest.items())


_FIRST: Mapping[str, Cell] = {
    "timestamp": lambda row: datetime.fromtimestamp(row.frame.wall_s).astimezone().isoformat(timespec="milliseconds"),
    "gpu_idx": lambda row: row.gpu.index,
    "util_pct": lambda row: row.gpu.busy_percent,
    "mem_used_mb": lambda row: _mib(row.gpu.vram_used_bytes),
    "mem_total_mb": lambda row: _mib(row.gpu.vram_total_bytes),
    "temp_c": lambda row: row.gpu.temperature_celsius,
    "power_w": lambda row: row.gpu.power_watts,
}
_SAID = {"busy_percent", "vram_used_bytes", "temperature_celsius", "power_watts"}
COLUMNS: Mapping[str, Cell] = {
    **_FIRST,
    "wall_s": lambda row: f"{row.frame.wall_s:.3f}",
    "host": lambda row: row.frame.hostname,
    "gpu_uuid": lambda row: row.gpu.uuid,
    "gpu_name": lambda row: row.gpu.name,
    "gpu_state": lambda row: row.gpu.condition,
    "jobs": _jobs,
    **{metric.name: _metric(metric.name) for metric in metrics(Gpu) if metric.history and metric.name not in _SAID},
    **{f"host_{metric.name}": _of_host(metric.name) for metric in metrics(Host) if metric.history},
    **{name: _of_training(name) for name in ("step_count", "step_s", "data_wait_percent", "samples_per_s")},
    "noted": _noted,
}


class Log:
    """The file, or standard output for `-`; `take` is a sink.

    Times are local with offset; sizes are MiB for the first columns, else bytes.
    """

    def __init__(self, path: str) -> None:
        """Continues a file with the same columns; Refused says in one line why it cannot."""
        self.problem: str | None = None  # why the last rows could not be written
        self.missed = 0  # updates missing from it
        self.name = "standard output" if path == "-" else clean(path)
        self._file: AppendOnlyFile | StandardOutput = StandardOutput() if path == "-" else AppendOnlyFile(path)
        header = (_rows([list(COLUMNS)])).encode()
        try:
            if isinstance(self._file, StandardOutput) or not self._file.size:
                self._file.append(header)
            elif self._file.read(len(header), 0) != header:
                raise Refused(f"{path} exists with other columns: left unchanged; choose another file")
            elif not self._file.cut_line(_LONGEST_LINE):
                raise Refused(f"the end of {path} is damaged: not appended to; choose another file")
        except OSError as error:
            raise Refused(f"{self.name} cannot be written: {error.strerror}; choose another file") from None
        if isinstance(self._file, AppendOnlyFile):
            self._file.withhold()

    @property
    def size_bytes(self) -> int:
        """The file size."""
        return self._file.size

    def take(self, update: Update) -> None:
        """Write the rows of an update, all or none."""
        frame = redacted(update.frame)
        found = [row(frame, gpu) for gpu in frame.gpus if not gpu.parent_uuid]
        rows = [[_cell(cell(one)) for cell in COLUMNS.values()] for one in found]
        try:
            self._file.append(_rows(rows).encode())
        except OSError as error:
            self.missed += 1
            self.problem = f"log paused: {error.strerror}"
        else:
            self.problem = None


def _cell(value: object) -> str:
    return cell(value) if isinstance(value, str) else _number(value)


def _rows(rows: list[list[str]]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue()
