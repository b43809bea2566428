"""CSV files of GPU samples: `nvidia-smi --query-gpu=...

--format=csv -l`, the source documents' logger, `gputop log`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone

from gputop.frozen_dataclass import frozen_dataclass
from gputop.paste.pasted import lines, number
from gputop.safe.text import clean

_MOST_ROWS = 500_000
_MOST_GPUS = 64
_TITLE = r"\"?[\w./]{1,60}(?: ?\[[^\],\n]{1,12}\])?\"?"
_HEADER = re.compile(
    r"^(?=.{0,2000}\b(?:utilization\.gpu|util_pct|memory\.used|mem_used_mb|power\.draw|power_w|temperature\.gpu|temp_c)\b)"
    rf"[ \t#]{{0,8}}{_TITLE}(?:,[ \t]?{_TITLE}){{0,200}},?[ \t]*$",
    re.MULTILINE,
)
_SNAPSHOT = re.compile(
    r"^\d{1,3}, [A-Za-z][^,\n]{1,80}, (?:\d{1,3}|\[N/A\])(?: %)?, (?:\d{1,3}|\[N/A\])(?: %)?, "
    r"\d{1,7}(?: MiB)?, \d{1,7}(?: MiB)?, \d{1,3}, (?:[\d.]{1,10}|\[N/A\])(?: W)?\r?$",
    re.MULTILINE,
)
# the eight columns of the source documents' gpu_snapshot(), which has no header
_SNAPSHOT_HEAD = (
    "index", "name", "utilization.gpu", "utilization.memory", "memory.used", "memory.total", "temperature.gpu",
    "power.draw",
)  # fmt: skip
_COLUMNS = {
    "at": ("timestamp", "time", "wall_s"),
    "gpu": ("index", "gpu_idx", "gpu", "uuid", "gpu_uuid", "pci.bus_id", "gpu_bus_id", "serial"),
    "name": ("name", "gpu_name"),
    "busy": ("utilization.gpu", "util_pct", "gpu_util"),
    "memory_busy": ("utilization.memory", "mem_util_pct"),
    "used": ("memory.used", "mem_used_mb"),
    "total": ("memory.total", "mem_total_mb"),
    "celsius": ("temperature.gpu", "temp_c"),
    "watts": ("power.draw", "power.draw.instant", "power.draw.average", "power_w"),
    "limit": ("power.limit", "enforced.power.limit", "power_limit_watts"),
    "sm_mhz": ("clocks.sm", "clocks.current.sm", "sm_clock_mhz", "clocks.gr", "clocks.current.graphics"),
    "sm_most": ("clocks.max.sm", "clocks.max.graphics", "clocks.max.gr"),
    "heat": ("throttled_heat_percent",),  # two columns of gputop log: shares of time
    "capped": ("throttled_power_percent",),
    "reasons": ("clocks_event_reasons.active", "clocks_throttle_reasons.active"),
}
_TIMES = ("%Y/%m/%d %H:%M:%S.%f", "%Y/%m/%d %H:%M:%S", "%Y-%m-%d %H:%M:%S.%f", "%Y-%m-%d %H:%M:%S")
_MIB = {"kib": 2.0**-10, "mib": 1.0, "gib": 2.0**10, "mb": 1.0, "gb": 2.0**10}
_MOST_FORMS = 20  # lines whose last cells are compared
_UNIT = re.compile(r"\[(\w{1,8})\]$")


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class GpuSample:
    """One line: the values of one GPU at one moment; None if missing."""

    at_s: float | None
    busy: float | None
    used_mib: float | None
    total_mib: float | None
    celsius: float | None
    watts: float | None
    limit_watts: float | None
    sm_mhz: float | None
    sm_most: float | None
    heat_percent: float | None
    capped_percent: float | None
    reasons: int


@frozen_dataclass(frozen=True, slots=True)
class GpuSeries:
    """The samples of one GPU in file order."""

    gpu: str
    samples: tuple[GpuSample, ...]

    def values(self, name: str) -> list[float]:
        """Known values of a column."""
        return [value for one in self.samples if (value := getattr(one, name)) is not None]


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class GpuCsv:
    """The file: series by GPU, invalid lines, and whether columns were guessed or GPUs are indistinguishable."""

    series: tuple[GpuSeries, ...]
    strange: int
    cut: bool  # the last line is truncated
    guessed: bool
    mixed: bool
    columns: tuple[str, ...]


def looks_like(text: str) -> bool:
    """Whether it has the header of such a CSV, or lines of the documents' recipe without one."""
    return _HEADER.search(text) is not None or _SNAPSHOT.search(text) is not None


def parse(text: str) -> GpuCsv:
    """The samples by GPU."""
    rows = lines(text)
    start = next((at for at, line in enumerate(rows) if _HEADER.match(line)), None)
    guessed = start is None
    if start is None:
        head = list(_SNAPSHOT_HEAD)
        units = [""] * len(head)
        start = next((at for at, line in enumerate(rows) if _SNAPSHOT.match(line)), 0) - 1
    else:
        titles = [part.strip(' \t#"').lower() for part in rows[start].split(",")]
        units = [found[1] if (found := _UNIT.search(title)) else "" for title in titles]
        head = [_UNIT.sub("", title).replace("[%]", "").strip() for title in titles]
    places = {name: at for name, names in _COLUMNS.items() if (at := _place(head, names)) is not None}
    if _ends_early(rows[start + 1 :]):
        rows[-1] = ""
        return replace(_samples(rows[start + 1 :], places, units, len(head), guessed=guessed), cut=True)
    return _samples(rows[start + 1 :], places, units, len(head), guessed=guessed)


def _ends_early(rows: Sequence[str]) -> bool:
    """Whether the unterminated last line ends within its last cell: those above have one form."""
    filled = [line for line in rows[-_MOST_FORMS - 1 :] if line.strip()]
    if len(filled) < 3 or not rows[-1].strip() or len({line.count(",") for line in filled}) > 1:
        return False
    *before, last = (_form(line.rpartition(",")[2].strip()) for line in filled)
    return len(set(before)) == 1 and last != before[0] and not last.endswith("]")


def _form(cell: str) -> str:
    """A value without its digits; the driver always writes the same number of decimals."""
    return re.sub(r"\d", "9", re.sub(r"(?<![.\d])\d+", "9", cell))


def _place(head: Sequence[str], names: Sequence[str]) -> int | None:
    return next((head.index(name) for name in names if name in head), None)


def _samples(rows: Sequence[str], places: dict[str, int], units: Sequence[str], width: int, *, guessed: bool) -> GpuCsv:
    found: dict[str, list[GpuSample]] = {}
    strange, last_strange = 0, False
    filled = [line for line in rows if line.strip()]
    for line in filled[:_MOST_ROWS]:
        cells = [part.strip(' \t"') for part in line.split(",")]
        if _HEADER.match(line):  # several runs were appended to one file
            continue
        sample = _sample(cells, places, units) if len(cells) == width else None
        last_strange = sample is None
        if sample is None:
            strange += 1
            continue
        gpu = clean(cells[places["gpu"]], 60) if "gpu" in places else ""
        if gpu in found or len(found) < _MOST_GPUS:
            found.setdefault(gpu, []).append(sample)
    cut = last_strange and strange == 1
    alone = found.get("", [])
    times = [one.at_s for one in alone if one.at_s is not None]
    return GpuCsv(
        series=tuple(GpuSeries(gpu, tuple(samples)) for gpu, samples in found.items()),
        strange=0 if cut else strange + max(0, len(filled) - _MOST_ROWS),
        cut=cut,
        guessed=guessed,
        mixed=bool(times) and 2 * len(set(times)) <= len(times),
        columns=tuple(places),
    )


def _sample(cells: Sequence[str], places: dict[str, int], units: Sequence[str]) -> GpuSample | None:
    def value(name: str) -> float | None:
        return number(cells[places[name]]) if name in places else None

    def mib(name: str) -> float | None:
        amount = value(name)
        if amount is None:
            return None
        word = cells[places[name]].rpartition(" ")[2].lower()
        return amount * _MIB.get(word, _MIB.get(units[places[name]].lower(), 1.0))

    busy, used, watts = value("busy"), mib("used"), value("watts")
    if busy is None and used is None and watts is None and value("celsius") is None:
        known = [cells[at] for name, at in places.items() if name not in ("at", "gpu", "name")]
        if not any("N/A" in cell or "Not Supported" in cell or "Unknown" in cell for cell in known):
            return None
    return GpuSample(
        at_s=_time(cells[places["at"]]) if "at" in places else None,
        busy=busy if busy is not None and 0 <= busy <= 100 else None,
        used_mib=used,
        total_mib=mib("total"),
        celsius=value("celsius"),
        watts=watts,
        limit_watts=value("limit"),
        sm_mhz=value("sm_mhz"),
        sm_most=value("sm_most"),
        heat_percent=value("heat"),
        capped_percent=value("capped"),
        reasons=_mask(cells[places["reasons"]]) if "reasons" in places else 0,
    )


def _mask(text: str) -> int:
    return int(text, 16) if re.fullmatch(r"0x[0-9a-fA-F]{1,16}", text) else 0


def _time(text: str) -> float | None:
    plain = text.replace("T", " ").removesuffix("Z")[:40]
    plain = re.sub(r"[+-]\d\d:\d\d$", "", plain)
    for pattern in _TIMES:
        try:
            return datetime.strptime(plain, pattern).replace(tzinfo=timezone.utc).timestamp()
        except (ValueError, OverflowError):
            continue
    return number(plain)
