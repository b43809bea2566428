"""Asks a real NVIDIA driver everything that gputop's design stands on, and says where the answers differ.

Run as an ordinary user on a machine with an NVIDIA GPU. It changes no setting. The loads use the GPU for some seconds
each, and only if nobody else does. Exit code 0 when it could measure, whatever it found; 1 when it could not.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from tests.gpu_check import agree, cost, facts, fields, gpm, host, own, power, samples, signatures, traced, usage
from tests.gpu_check.check import Check
from tests.gpu_check.driver import Driver, NoDriver
from tests.gpu_check.folder import Folder
from tests.gpu_check.records import Measurement, Record, Skip, measurements
from tests.gpu_check.report import Report

DECLARE = (samples, cost, gpm, signatures, power, fields, usage, host, traced, own, agree, facts)
SECONDS, QUICK = 20.0, 5.0
PATIENCE_S = 240.0  # without a new record; a load may need long to start


def options(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    top = argparse.ArgumentParser(prog="python -m tests.gpu_check", description=__doc__)
    top.add_argument("--seconds", type=float, help=f"length of each look ({SECONDS:g})")
    top.add_argument("--quick", action="store_true", help=f"looks of {QUICK:g} s")
    top.add_argument("--only", default="", metavar="N,N", help="only these items, as 1,2a,6")
    top.add_argument("--gpu", type=int, metavar="INDEX", help="which GPU (the first that nobody uses)")
    top.add_argument("--out", type=Path, metavar="DIR", help="a folder that does not exist yet (gpu-check-HOST-DATE)")
    top.add_argument("--python", default=sys.executable, help="a Python whose torch has CUDA, for the loads (this one)")
    top.add_argument("--patience", type=float, default=PATIENCE_S, metavar="S", help=argparse.SUPPRESS)
    args = top.parse_args(argv)
    args.seconds = args.seconds or (QUICK if args.quick else SECONDS)
    return args


def open_check(args: argparse.Namespace) -> Check:
    """The driver, the GPU and the folder; NoDriver if one of them cannot be had."""
    driver = Driver()
    gpus = driver.gpus()
    if not gpus:
        raise NoDriver(
            "the NVIDIA driver lists no GPU that this user may read: in a container, start it with --gpus all"
        )
    free = (gpu for gpu in gpus if not driver.on(gpu, "nvmlDeviceGetComputeRunningProcesses").value)
    chosen = next(free, gpus[0]) if args.gpu is None else next((gpu for gpu in gpus if gpu.index == args.gpu), None)
    if chosen is None:
        raise NoDriver(f"there is no GPU {args.gpu}: the driver lists {', '.join(str(gpu.index) for gpu in gpus)}")
    name = re.sub(r"[^A-Za-z0-9.-]", "-", platform.node()) or "host"
    path = args.out or Path(f"gpu-check-{name}-{time.strftime('%Y-%m-%d-%H%M%S')}")
    try:
        folder = Folder(path)
    except OSError as error:
        raise NoDriver(
            f"{path} cannot be created ({error.strerror}): --out names a folder that does not exist yet"
        ) from None
    driver.keep = lambda line: folder.line("recording.jsonl", line)
    return Check(driver, chosen, gpus, args.seconds, args.python, folder)


def introduce(check: Check, report: Report) -> None:
    """What is measured, on what."""
    ask = check.driver.ask
    version, cuda = ask("nvmlSystemGetDriverVersion").value, ask("nvmlSystemGetCudaDriverVersion").value or 0
    report.say(f"gputop GPU check: {platform.node()}, kernel {platform.release()}, Python {platform.python_version()}")
    report.say(f"driver {version}, CUDA {cuda // 1000}.{cuda % 1000 // 10}, {len(check.gpus)} GPUs")
    minutes = 1 + round(check.seconds * 0.9)
    report.say(
        f"measured: GPU {check.gpu.index}, {check.gpu.name}; {check.seconds:g} s a look, {minutes} minutes at most"
    )
    if os.geteuid() == 0:
        report.say(">>>  run as root: what an ordinary user may read is not seen; run it again without")
    if check.others:
        report.say(f">>>  {len(check.others)} processes are on this GPU: idle is not idle, and no load is started")
    report.say(f"raw data, with the command lines that gputop saw: {check.folder.path} (only you can read it)")


def measure(one: Measurement, check: Check, report: Report, patience_s: float) -> None:
    """One measurement in a thread of its own: a driver call that hangs costs this item, not the report."""
    said: SimpleQueue[Record | Exception | None] = SimpleQueue()
    given_up = threading.Event()

    def run() -> None:
        try:
            for record in one.run(check):
                if given_up.is_set():
                    return
                said.put(record)
            said.put(None)
        except Exception as error:
            said.put(error)

    threading.Thread(target=run, name=f"item {one.number}", daemon=True).start()
    while True:
        try:
            record: Any = said.get(timeout=patience_s)
        except Empty:
            given_up.set()
            where = f"inside {check.driver.at}" if check.driver.at else "outside the driver"
            report.fail(f"nothing came for {patience_s:g} s, {where}: given up")
            return
        if record is None:
            return
        if isinstance(record, Skip):
            report.skip(str(record))
            return
        if isinstance(record, Exception):
            report.fail(f"{type(record).__name__}: {record}")
            return
        report.add(record)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the check."""
    args = options(argv)
    only = set(filter(None, args.only.split(",")))
    if unknown := only - {one.number for one in measurements()}:
        sys.stderr.write(
            f"gpu-check: no item {', '.join(sorted(unknown))}: {' '.join(m.number for m in measurements())}\n"
        )
        return 1
    try:
        check = open_check(args)
    except NoDriver as why:
        sys.stderr.write(f"gpu-check: {why}\n")
        return 1
    report = Report(check.folder)
    introduce(check, report)
    try:
        for one in measurements():
            if not only or one.number in only:
                report.begin(one)
                measure(one, check, report, args.patience)
    except KeyboardInterrupt:
        report.say("stopped")
    report.close()
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # a thread may still be inside the driver
