"""The fake driver's sources made into a libnvidia-ml.so.1, once for each version of the sources."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
SONAME = "libnvidia-ml.so.1"
FLAGS = ["-std=gnu11", "-O2", "-fPIC", "-pthread", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror"]

# What a driver of the 470 series does not have yet; it lists processes in the v2 layout.
OLD_DRIVER = (
    *(f"nvmlDeviceGet{kind}RunningProcesses_v3" for kind in ("Compute", "Graphics", "MPSCompute")),
    *("nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetTemperatureV", "nvmlDeviceGetMarginTemperature"),
    *("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetSupportedClocksEventReasons"),
    *("nvmlDeviceGetNumaNodeId", "nvmlDeviceGetPciInfoExt", "nvmlDeviceGetFanSpeedRPM"),
    *("nvmlDeviceGetJpgUtilization", "nvmlDeviceGetOfaUtilization"),
    *("nvmlGpmQueryDeviceSupport", "nvmlGpmMetricsGet", "nvmlGpmSampleGet", "nvmlGpmMigSampleGet"),
    *("nvmlGpmSampleAlloc", "nvmlGpmSampleFree"),
)


class NoCompiler(RuntimeError):
    """There is no C compiler, so no fake driver: the tests that need it cannot run."""

    def __init__(self) -> None:
        super().__init__("the fake NVIDIA driver needs a C compiler: there is no cc on PATH")


def compiler() -> str:
    """The path of cc; NoCompiler without one."""
    found = shutil.which("cc")
    if found is None:
        raise NoCompiler
    return found


@cache
def symbols() -> frozenset[str]:
    """Every NVML function the fake has."""
    words = (re.findall(r"\bnvml[A-Z]\w+", path.read_text()) for path in HERE.glob("*.c"))
    return frozenset(name for found in words for name in found)


@cache
def library(without: Collection[str] = ()) -> Path:
    """The folder of a library that lacks the functions named, to put on LD_LIBRARY_PATH."""
    unknown = set(without) - symbols()
    if unknown:
        raise ValueError(f"the fake has no {', '.join(sorted(unknown))} to leave out")
    kept = sorted(symbols() - set(without))
    return _folder("lib", "\n".join(kept), lambda folder: _link(folder, kept))


def _objects() -> Path:
    return _folder("objects", "", _compile)


def _folder(kind, detail, fill) -> Path:
    """A folder that holds what these sources give; made aside and moved, so that two sessions cannot meet in it."""
    parts = [path.read_text() for path in sorted((*HERE.glob("*.[ch]"), Path(__file__)))]
    digest = hashlib.sha256("\0".join((compiler(), detail, *parts)).encode()).hexdigest()[:16]
    root = Path(tempfile.gettempdir()) / f"gputop-fakenvml-{os.getuid()}"
    root.mkdir(mode=0o700, exist_ok=True)
    if root.is_symlink() or root.stat().st_uid != os.getuid():
        raise RuntimeError(f"{root} is not ours: remove it")
    final = root / f"{kind}-{digest}"
    if not final.exists():
        aside = Path(tempfile.mkdtemp(dir=root))
        fill(aside)
        try:
            aside.rename(final)
        except OSError:
            shutil.rmtree(aside)
    return final


def _compile(folder: Path) -> None:
    def one(source: Path) -> None:
        _cc(*FLAGS, "-c", str(source), "-o", str(folder / f"{source.stem}.o"))

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(one, sorted(HERE.glob("*.c"))))


def _link(folder: Path, kept: list[str]) -> None:
    script = folder / "symbols"
    script.write_text(f"{{ global: {'; '.join(kept)}; local: *; }};")
    objects = (str(path) for path in sorted(_objects().glob("*.o")))
    flags = ("-shared", "-pthread", f"-Wl,-soname,{SONAME}", f"-Wl,--version-script={script}")
    _cc(*flags, *objects, "-lm", "-o", str(folder / SONAME))


def _cc(*arguments: str) -> None:
    done = subprocess.run([compiler(), *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the fake driver does not build:\n{done.stderr}")
