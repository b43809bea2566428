"""The source that a --source spelling names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputop.cli.line import USAGE, Failure

if TYPE_CHECKING:
    from gputop.config import Settings
    from gputop.source import Source


def open_source(spec: str, settings: Settings, *, pace: bool = True, patience_s: float | None = None) -> Source:
    """The source a --source spelling names. Without pace a demo runs to its end as fast as it can.

    `patience_s` is how long a first frame waits for a driver that is slow to open; else not for long.
    """
    if spec == "live":
        from gputop.collect.live import DRIVER_PATIENCE_S, Live

        return Live(
            interval_s=settings.interval_s,
            nvml=settings.nvml,
            gpm=settings.gpm,
            driver_patience_s=DRIVER_PATIENCE_S if patience_s is None else patience_s,
        )
    kind, _, name = spec.partition(":")
    if kind == "demo" and name:
        from gputop.demo import open_demo

        try:
            return open_demo(name, pace=pace, interval_s=settings.interval_s)
        except ValueError as error:
            raise Failure(str(error), USAGE) from None
    raise Failure(f"{spec!r} is not a source: use live or demo:NAME; `gputop demo --list` names the demos", USAGE)
