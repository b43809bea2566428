"""gputop with every driver call timed where it enters the library: python -m tests.gpu_check.timed FILE ARGUMENTS..."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any


def install(calls: list[tuple[str, float, float, int]]) -> None:
    """From now on each call into the library adds (name, start, seconds, code) to the list."""
    import pynvml

    find = pynvml._nvmlGetFunctionPointer

    def timed(name: str) -> Callable[..., int]:
        function = find(name)

        def call(*args: Any) -> int:
            start_s = time.monotonic()
            code: int = function(*args)
            calls.append((name, start_s, time.monotonic() - start_s, code))
            return code

        return call

    pynvml._nvmlGetFunctionPointer = timed


def main() -> None:
    """Run gputop with the arguments after the file, then write the file: where time went, and how it ended."""
    path, arguments = sys.argv[1], sys.argv[2:]
    calls: list[tuple[str, float, float, int]] = []
    install(calls)
    from gputop import cli

    start_s, spent_s = time.monotonic(), time.process_time()
    code = cli.main(arguments)
    said = {"code": code, "start_s": start_s, "end_s": time.monotonic(), "cpu_s": time.process_time() - spent_s}
    with open(path, "w", encoding="utf-8") as file:
        json.dump({**said, "calls": calls}, file)
    sys.stdout.flush()
    os._exit(code)  # a thread may still be inside the driver


if __name__ == "__main__":
    main()
