"""A notebook kernel that has put its model on the GPU and waits for the next cell; or runs one again and again."""

from __future__ import annotations

import argparse
import ctypes
import signal
import sys
import time
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[2])

from tests.workloads.device import devices  # noqa: E402


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("-f", help="the connection file of the kernel")
    options.add_argument("--busy", action="store_true")
    busy = options.parse_args().busy
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    (device,) = devices()
    device.hold(4 << 30)
    device.run(2.0)
    device.wait()
    print("ready", flush=True)
    while True:
        if busy:
            device.run(1.0)
            device.wait()
        else:
            time.sleep(1.0)


if __name__ == "__main__":
    main()
