"""The report on a torch.profiler table: top operators, shares, advice, and what only a trace would show."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from typing import Any

from gputop import num_workers
from gputop.paste.operator_table import OperatorRow, OperatorTable, looks_like, parse
from gputop.paste.pasted import LimitTable, Pasted, by_severity
from gputop.paste.pasted import TextKind as Form
from gputop.phrases import held_against, percent
from gputop.report import Point, ReportTable
from gputop.severity import by_lost_share
from gputop.trace.names import FULL_PRECISION, FUSED, GEMM, ActivityKind, kind

_LIMIT = LimitTable("paste-operators")
_STARVED = LimitTable("starved")  # its duty: utilization of a GPU that is kept busy

_ROWS = 15

_PYTHON = re.compile(r"\.py\(\d+\): |^<(?:built-in|module)|^nn\.Module: ")
_RUNTIME = re.compile(
    r"^(?:cuda|cu|hip|xpu|ze|ur)[A-Z]\w+$|^(?:Instrumentation|Resource)$|"
    r"^(?:Command Buffer Full|Activity Buffer Request|Lazy Func|Runtime Triggered|Buffer Flush)"
)
_BACKWARD = re.compile(r"Backward\d*$|^detach_?$|^INVALID")  # an autograd node
_LAUNCHES = re.compile(r"^(?:cuda|cu|hip)(?:Ext)?(?:Module)?Launch(?:Cooperative)?Kernel")
_WAITS = re.compile(r"^(?:cuda|hip)(?:Stream|Device|Event)Synchronize$|^cu(?:Stream|Ctx|Event)Synchronize$")
_ALLOCATES = re.compile(r"^(?:cuda|hip)(?:Malloc|Free|HostAlloc|MallocHost)$|^cuMem(?:Create|Map|Unmap|Release)$")
_READS = ("aten::item", "aten::_local_scalar_dense", "aten::nonzero")
_REGIONS = ("data_transfer", "data_loading", "data", "forward", "backward", "loss", "optimizer", "optimizer_step")
_WAITING = re.compile(r"threading\.py\(\d+\): wait|queues\.py\(\d+\): (?:_feed|get)|connection\.py\(\d+\): poll|select")

ONLY_A_TRACE = (
    "A table has sums and no order in time. When the GPU idles and why, and whether communication overlaps, only a "
    'trace shows: prof.export_chrome_trace("trace.json.gz"), then gputop explain trace.json.gz.'
)


class OperatorSums:
    """Sums over the rows of a table."""

    def __init__(self, table: OperatorTable) -> None:
        self.table = table
        self.rows = table.rows

    def cpu(self, row: OperatorRow) -> float:
        """Total CPU time of a row."""
        return row.cpu_total_us if row.cpu_total_us is not None else row.self_cpu_us or 0.0

    @cached_property
    def window(self) -> tuple[float, str] | None:
        """The reference time of shares, and its name: the steps, else an enclosing region, else all CPU time."""
        steps = [row for row in self.rows if row.name.startswith("ProfilerStep")]
        if steps and (took := sum(map(self.cpu, steps))) > 0:
            return took, "of the steps"
        regions = [row for row in self.rows if row.calls == 1 and is_region(row.name)]
        widest = max(regions, key=self.cpu, default=None)
        total = self.table.self_cpu_us
        if widest and self.cpu(widest) >= _LIMIT["region"] * (total or self.cpu(widest)) and self.cpu(widest) > 0:
            return self.cpu(widest), f"of {widest.name}"
        return (total, "of the CPU time") if total and total > 0 else None

    @cached_property
    def steps(self) -> int | None:
        """Number of steps; None if no row counts them."""
        for start in ("ProfilerStep", "Optimizer.step#"):
            counts = [row.calls for row in self.rows if row.name.startswith(start) and row.calls]
            if counts:
                return sum(counts) if start == "ProfilerStep" else max(counts)
        return None

    def share(self, us: float) -> float:
        """Share (0-1) of the window."""
        return us / self.window[0] if self.window else 0.0

    def own(self, pattern: re.Pattern[str]) -> tuple[float, int]:
        """Own CPU time and calls of rows with matching names."""
        found = [row for row in self.rows if pattern.search(row.name)]
        return sum(row.self_cpu_us or 0.0 for row in found), sum(row.calls or 0 for row in found)

    @cached_property
    def kernels(self) -> list[OperatorRow]:
        """Rows of kernels and copies: only these have device time without CPU time."""
        return [row for row in self.rows if row.self_device_us and not self.cpu(row)]

    @cached_property
    def busy(self) -> float | None:
        """Upper bound of GPU busy as a share of the window; None if unknown."""
        total = self.table.self_device_us
        return None if total is None or not self.window or self.steps is None else total / self.window[0]

    @cached_property
    def listed(self) -> float | None:
        """The share of own CPU time covered by the rows."""
        total = self.table.self_cpu_us
        return sum(row.self_cpu_us or 0.0 for row in self.rows) / total if total and total > 0 else None


def is_region(name: str) -> bool:
    """Whether a row is a `record_function` of the program."""
    strange = (
        "::" in name
        or "#" in name
        or name.startswith(("[", "Mem", "Profiler"))
        or kind(name) is not ActivityKind.COMPUTE
    )
    return not (
        strange or _BACKWARD.search(name) or _PYTHON.search(name) or _RUNTIME.match(name) or "(" in name or "<" in name
    )


def summarize(table: OperatorTable | None) -> Pasted:
    """The table as text, items and smaller tables."""
    if table is None or not table.rows:
        return Pasted(
            kind="operator-table",
            about="a table of torch.profiler",
            problems=("The table has a header, but no readable rows: paste all of it, from rule to rule.",),
            numbers={"operators": []},
        )
    sums = OperatorSums(table)
    return Pasted(
        kind="operator-table",
        about=f"A table of torch.profiler: {len(table.rows)} rows" + (f", {table.device}" if table.device else ""),
        problems=tuple(_problems(table)),
        words=tuple(_words(sums)),
        points=by_severity(_points(sums)),
        tables=tuple(_tables(sums)),
        notes=tuple(_notes(sums)),
        numbers=_numbers(sums),
    )


def _problems(table: OperatorTable) -> Iterator[str]:
    if not table.ended:
        yield "The table is truncated: its last rule is missing, so rows may be missing too."
    if table.strange:
        lines, are = ("line", "is") if table.strange == 1 else ("lines", "are")
        yield f"{table.strange} {lines} in the table could not be read and {are} left out."


def _words(sums: OperatorSums) -> Iterator[str]:
    table, rows = sums.table, [row for row in sums.rows if not is_region(row.name)]
    top = max(rows or sums.rows, key=lambda row: row.self_cpu_us or 0.0)
    total = table.self_cpu_us
    if total:
        part = f" ({percent((top.self_cpu_us or 0.0) / total, 1)} of {time(total)})"
        what = "Largest own CPU time of the listed rows"
        around = max(
            (row for row in sums.rows if is_region(row.name)), key=lambda row: row.self_cpu_us or 0.0, default=top
        )
        if (around.self_cpu_us or 0.0) > (top.self_cpu_us or 0.0):
            held = f"{time(around.self_cpu_us)} ({percent((around.self_cpu_us or 0.0) / total, 1)} of {time(total)})"
            yield f"{what}: {around.name} itself, {held}: Python and waits there, in no operator."
            what, part = "Largest operator", f" ({percent((top.self_cpu_us or 0.0) / total, 1)})"
        yield f"{what}: {top.name}, {time(top.self_cpu_us or 0.0)}{part}."
    if table.device is None:
        yield (
            "The table has no GPU columns: the GPU was not profiled, or PyTorch sees none. "
            "Profile with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]."
        )
    elif table.self_device_us:
        first = max(sums.kernels or rows, key=lambda row: row.self_device_us or 0.0, default=None)
        if first and first.self_device_us:
            share = first.self_device_us / table.self_device_us
            yield f"Largest own {table.device} time: {first.name}, {time(first.self_device_us)} ({percent(share, 1)})."
    yield from _of_regions(sums)
    yield from _of_python(sums)
    if sums.listed is not None and sums.listed < _LIMIT["covers"]:
        yield (
            f"The listed rows hold {percent(max(0.0, sums.listed))} of the own CPU time: larger operators may be "
            'missing. Print more, sorted: table(sort_by="self_cpu_time_total", row_limit=50).'
        )
    yield ONLY_A_TRACE


def _of_regions(sums: OperatorSums) -> Iterator[str]:
    """The regions of the documents' recipe, and the dominant one."""
    rows = [row for row in sums.rows if row.name.lower() in _REGIONS]
    took = sum(map(sums.cpu, rows))
    if len(rows) < 2 or took <= 0:
        return
    parts = ", ".join(f"{row.name} {percent(sums.cpu(row) / took)}" for row in sorted(rows, key=sums.cpu, reverse=True))
    data = sum(sums.cpu(row) for row in rows if row.name.lower().startswith("data")) / took
    compute = sum(sums.cpu(row) for row in rows if row.name.lower() in ("forward", "backward", "loss")) / took
    held = sums.share(took)  # no region covers data loading or pauses
    verdict = (
        f"; together {percent(held)} {_of(sums)}"
        if sums.window and held < _LIMIT["bound"]
        else ": the input pipeline dominates"
        if data >= _LIMIT["bound"]
        else ": forward and backward dominate, as expected"
        if compute >= _LIMIT["bound"]
        else ""
    )
    yield f"CPU time of the regions: {parts}{verdict}."


def _of_python(sums: OperatorSums) -> Iterator[str]:
    """A table of Python functions: most of their time is in waiting threads."""
    python = [row for row in sums.rows if _PYTHON.search(row.name)]
    if 2 * len(python) <= len(sums.rows):
        return
    waiting = [row for row in python if _WAITING.search(row.name)]
    if waiting:
        row = max(waiting, key=sums.cpu)
        yield (
            f"CPU time here is a sum over threads: {row.name} holds {time(sums.cpu(row))} of it, "
            "a waiting helper thread."
        )
    if not any("::" in row.name for row in sums.rows):
        yield "The rows are Python functions, since with_stack=True was set; no operator is among them."


def _points(sums: OperatorSums) -> Iterator[Point]:
    yield from _gpu(sums)
    yield from _data(sums)
    yield from _launches(sums)
    yield from _reads(sums)
    yield from _allocations(sums)
    yield from _copies(sums)
    yield from _optimizer(sums)
    yield from _kernels(sums)


def _of(sums: OperatorSums) -> str:
    return sums.window[1] if sums.window else ""


def _gpu(sums: OperatorSums) -> Iterator[Point]:
    busy = sums.busy
    if busy is None:
        return
    fact = (
        f"{sums.table.device} time {percent(busy)} {_of(sums)} "
        f"({held_against(percent(_STARVED['duty']), 'healthy_from')})",
    )
    if busy >= _STARVED["duty"]:
        yield Point(severity="fine", text="GPU-bound: kernels fill the steps, as far as sums show.", facts=fact)
    else:
        yield Point(
            severity=by_lost_share(1 - busy, "warn"),
            text=f"GPU idle at least {percent(1 - busy)} {_of(sums)}.",
            facts=fact,
        )


def _data(sums: OperatorSums) -> Iterator[Point]:
    rows = [row for row in sums.rows if row.name.startswith("enumerate(DataLoader)#")]
    took = sum(map(sums.cpu, rows))
    share = sums.share(took)
    if not rows or share < _LIMIT["data"]:
        return
    alone = any("_SingleProcess" in row.name for row in rows)
    calls = sum(row.calls or 0 for row in rows)
    where = ", in the main process (num_workers=0)" if alone else ""
    yield Point(
        severity=by_lost_share(share, "warn"),
        text=f"The DataLoader takes {percent(share)} {_of(sums)}{where}.",
        facts=(
            f"DataLoader {time(took)} {_of(sums)} ({held_against(percent(_LIMIT['data']), 'flagged_from')})",
            *((f"{calls} batches, {time(took / calls)} each",) if calls else ()),
        ),
        steps=(
            num_workers.IN_WORKERS if alone else num_workers.MORE,
            "Set pin_memory=True, persistent_workers=True and prefetch_factor=4.",
        ),
    )


def _launches(sums: OperatorSums) -> Iterator[Point]:
    took, calls = sums.own(_LAUNCHES)
    steps, device = sums.steps or 1, sums.table.self_device_us
    if not calls or not device or calls / steps < _LIMIT["launches"]:
        return
    mean = device / calls
    tiny = _LIMIT["tiny_us"]
    if mean >= tiny or (sums.busy is not None and sums.busy >= _STARVED["duty"]):
        return
    each = f"{calls / steps:.0f} kernel launches per step" if sums.steps else f"{calls} kernel launches"
    yield Point(
        severity="warn",
        text=f"Launch-bound: {each}, {mean:.1f} µs of GPU time each.",
        facts=(
            f"mean kernel {mean:.1f} µs ({held_against(f'{tiny:.0f} µs', 'flagged_below')})",
            f"launch calls {percent(sums.share(took))} {_of(sums)}",
        ),
        steps=(
            "Fuse kernels with torch.compile(model).",
            'Use mode="reduce-overhead" or CUDA graphs where shapes are fixed.',
            "Raise the batch size.",
        ),
    )


def _reads(sums: OperatorSums) -> Iterator[Point]:
    waits, calls = sums.own(_WAITS)
    rows = [row for row in sums.rows if row.name in _READS]
    # each calls the next: the largest includes the others
    inside = max(map(sums.cpu, rows), default=0.0)
    count, share = max((row.calls or 0 for row in rows), default=0), sums.share(max(waits, inside))
    if not sums.table.device or share < _LIMIT["sync"] or (sums.busy is not None and sums.busy >= _STARVED["duty"]):
        return
    reads = count / (sums.steps or 1)
    yield Point(
        severity="warn",
        text=f"Synchronization: the CPU waits for the GPU {percent(share)} {_of(sums)}.",
        facts=(
            f"{calls} synchronize calls, {time(waits)}",
            *((f"aten::item and its like {count} times, {time(inside)}",) if count else ()),
        ),
        steps=(
            *(
                ("Read loss.item() every 50 steps; keep sums as tensors.",)
                if reads >= 1 or count >= _LIMIT["reads"]
                else ("Remove torch.cuda.synchronize() and .cpu() from the loop.",)
            ),
            'Find each line that waits with torch.cuda.set_sync_debug_mode("warn").',
        ),
    )


def _allocations(sums: OperatorSums) -> Iterator[Point]:
    took, calls = sums.own(_ALLOCATES)
    if sums.share(took) < _LIMIT["allocate"]:
        return
    yield Point(
        severity="warn",
        text=f"Driver allocations in the loop: {calls} calls take {percent(sums.share(took))} {_of(sums)}.",
        facts=(f"cudaMalloc and similar {time(took)} ({held_against(percent(_LIMIT['allocate']), 'flagged_from')})",),
        steps=(
            "Profile after warm-up first: schedule(wait=1, warmup=2, active=5).",
            "Remove torch.cuda.empty_cache() from the loop.",
            "Keep batch shapes fixed, or set expandable_segments:True for the allocator.",
        ),
    )


def _copies(sums: OperatorSums) -> Iterator[Point]:
    device = sums.table.self_device_us
    rows = [row for row in sums.rows if "HtoD" in row.name and row.self_device_us]
    took = sum(row.self_device_us or 0.0 for row in rows)
    if not device or took / device < _LIMIT["copy"]:
        return
    pageable = any("Pageable" in row.name for row in rows)
    yield Point(
        severity="warn",
        text=f"Host-to-device copies take {percent(took / device)} of the GPU time"
        + (", from pageable memory." if pageable else "."),
        facts=(f"Memcpy HtoD {time(took)} ({held_against(percent(_LIMIT['copy']), 'flagged_from')})",),
        steps=(
            *(("Set pin_memory=True, and copy with non_blocking=True.",) if pageable else ()),
            "Copy smaller types, such as uint8 images, and convert them on the GPU.",
        ),
    )


def _optimizer(sums: OperatorSums) -> Iterator[Point]:
    rows = [row for row in sums.rows if row.name.startswith("Optimizer.step#")]
    took, calls = sum(map(sums.cpu, rows)), sum(row.calls or 0 for row in rows)
    single = [row for row in sums.rows if row.name in ("aten::addcdiv_", "aten::addcmul_", "aten::lerp_")]
    together = any("_foreach_" in row.name or FUSED.search(row.name) for row in sums.rows)
    many = max((row.calls or 0 for row in single), default=0)
    if not calls or sums.share(took) < _LIMIT["optimizer"] or together or many < _LIMIT["optimizer_calls"] * calls:
        return
    yield Point(
        severity="warn",
        text=f"The optimizer is not fused: it takes {percent(sums.share(took))} {_of(sums)}.",
        facts=(f"{many / calls:.0f} {single[0].name} calls per step, one per parameter",),
        steps=("Set fused=True, as in AdamW(..., fused=True), or foreach=True.",),
    )


def _kernels(sums: OperatorSums) -> Iterator[Point]:
    device = sums.table.self_device_us
    if not device:
        return
    comm = sum(row.self_device_us or 0.0 for row in sums.kernels if kind(row.name) is ActivityKind.COMM)
    if comm / device >= _LIMIT["comm"]:
        yield Point(
            severity="info",
            text=f"Communication takes {percent(comm / device)} of the GPU time.",
            facts=("a table does not show overlap with compute",),
            steps=("Trace all ranks and explain them together: gputop explain rank*.json.gz.",),
        )
    full = [row for row in sums.kernels if GEMM.search(row.name) and FULL_PRECISION.search(row.name)]
    took = sum(row.self_device_us or 0.0 for row in full)
    if took / device >= _LIMIT["full_precision"]:
        yield Point(
            severity="warn",
            text=f"FP32 matrix kernels without tensor cores take {percent(took / device)} of the GPU time.",
            facts=(f"{full[0].name}",),
            steps=(
                "Train in bf16: torch.autocast('cuda', dtype=torch.bfloat16).",
                "Or allow TF32: torch.set_float32_matmul_precision('high').",
            ),
        )


def _tables(sums: OperatorSums) -> Iterator[ReportTable]:
    table, whole = sums.table, sums.table.self_cpu_us
    head = ("name", "own", "own %", "total", "calls")
    by_cpu = sorted(sums.rows, key=lambda row: -(row.self_cpu_us or 0.0))[:_ROWS]
    yield ReportTable(
        "Operators by own CPU time",
        head,
        tuple(
            (row.name, time(row.self_cpu_us), _part(row.self_cpu_us, whole), time(row.cpu_total_us), _count(row.calls))
            for row in by_cpu
        ),
    )
    if table.device:
        gpu, total = sorted(sums.rows, key=lambda row: -(row.self_device_us or 0.0))[:_ROWS], table.self_device_us
        yield ReportTable(
            f"Operators by own {table.device} time",
            head,
            tuple(
                (
                    row.name,
                    time(row.self_device_us),
                    _part(row.self_device_us, total),
                    time(row.device_total_us),
                    _count(row.calls),
                )
                for row in gpu
                if row.self_device_us
            ),
        )
    # without CPU time it is a kernel, or the GPU row of a region
    known = [row for row in sums.rows if sums.cpu(row) > 0]
    regions = [row for row in known if row.name.lower() in _REGIONS or (is_region(row.name) and row.calls)]
    yield ReportTable(
        "Regions of the program (record_function)",
        ("name", "CPU total", f"{table.device or 'GPU'} total", "calls"),
        tuple(
            (row.name, time(row.cpu_total_us), time(row.device_total_us), _count(row.calls))
            for row in sorted(regions, key=lambda row: -sums.cpu(row))[:_ROWS]
        ),
    )


def _notes(sums: OperatorSums) -> Iterator[str]:
    if sums.table.others:
        yield f"the text holds {sums.table.others} more such tables, which are not shown"
    if sums.window and sums.window[1] == "of the CPU time":
        yield "no ProfilerStep is listed: shares are of the CPU time of all threads, not of a step"


def _numbers(sums: OperatorSums) -> dict[str, Any]:
    table, window = sums.table, sums.window
    data = [row for row in sums.rows if row.name.startswith("enumerate(DataLoader)#")]
    return {
        "device": table.device,
        "self_cpu_ms": _ms(table.self_cpu_us),
        "self_device_ms": _ms(table.self_device_us),
        "listed_share": sums.listed,
        "window": {"ms": window[0] / 1000, "of": window[1]} if window else None,
        "steps": sums.steps,
        "gpu_busy_at_most": sums.busy,
        "dataloader_share": sums.share(sum(map(sums.cpu, data))) if window and data else None,
        "operators": [
            {
                "name": row.name,
                "self_cpu_ms": _ms(row.self_cpu_us),
                "cpu_ms": _ms(row.cpu_total_us),
                "self_device_ms": _ms(row.self_device_us),
                "device_ms": _ms(row.device_total_us),
                "count": row.calls,
            }
            for row in sorted(sums.rows, key=lambda row: -(row.self_cpu_us or 0.0))[:200]
        ],
    }


def time(us: float | None) -> str:
    """Microseconds in the format of the table."""
    if us is None:
        return "-"
    for least, unit in ((1e6, "s"), (1e3, "ms")):
        if abs(us) >= least:
            return f"{us / least:.4g} {unit}"
    return f"{us:.3g} µs"


def _part(us: float | None, whole: float | None) -> str:
    return "-" if us is None or not whole else f"{us / whole:.1%}"


def _count(calls: int | None) -> str:
    return "-" if calls is None else str(calls)


def _ms(us: float | None) -> float | None:
    return None if us is None else us / 1000


def read(text: str) -> Pasted:
    """The report on such a table."""
    return summarize(parse(text))


KIND = Form("operator-table", "a table of torch.profiler", looks_like, read)
