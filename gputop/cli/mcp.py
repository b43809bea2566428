"""gputop mcp: read-only answers for assistants on standard input and output."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

from gputop.cli.options import OK, USAGE, CliCommand, Failure
from gputop.cli.sources import open_source

if TYPE_CHECKING:
    from gputop.config import Settings
    from gputop.source import Source

DRIVER_S = 5.0  # seconds the first frame waits for a driver that opens slowly


def mcp(args: argparse.Namespace, settings: Settings) -> int:
    """Answer a client until it closes its end."""
    spec = getattr(args, "source", "live")
    if spec == "-":
        raise Failure("--source - cannot be used: standard input belongs to the protocol; name a file", USAGE)
    if sys.stdin is None or os.isatty(0):
        raise Failure(
            "gputop mcp is started by an assistant, which talks with it on standard input: see gputop docs mcp", USAGE
        )
    try:
        from gputop.mcp.server import serve
    except ImportError as error:
        raise Failure(missing(error)) from None
    from gputop import thresholds
    from gputop.mcp.command_tools import command_tools, end_children
    from gputop.mcp.live_tools import live_tools
    from gputop.mcp.manual_tools import manual_pages, manual_tools
    from gputop.mcp.observation import Observation
    from gputop.safe.terminal import on_ending

    def opened() -> Source:
        return open_source(spec, settings, pace=False, patience_s=DRIVER_S)

    limits = settings.thresholds or thresholds.shipped()
    observation = Observation(opened, live=spec == "live", limits=limits)
    observation.start()
    on_ending(_ended)
    tools = (*live_tools(observation), *command_tools(_options(args, settings)), *manual_tools(limits))
    try:
        serve(tools, manual_pages())
    finally:
        end_children()
    return OK


def missing(error: ImportError) -> str:
    """What to install when the SDK cannot be imported."""
    if error.name is not None and error.name.partition(".")[0] not in ("mcp", "mcp_types", "jsonschema"):
        raise error
    return f"the MCP SDK is missing ({error.name}): install it with `{sys.executable} -m pip install 'gputop-tui[mcp]'`"


def _ended(number: int, _frame: object) -> None:
    """End at once: the thread that reads standard input cannot be interrupted."""
    from gputop.mcp.command_tools import end_children

    end_children()
    os._exit(128 + number)


def _options(args: argparse.Namespace, settings: Settings) -> list[str]:
    """The global options that a command run as a child needs, too."""
    options = [] if settings.nvml else ["--no-nvml"]
    if (file := getattr(args, "config", None)) is not None:
        options += ["--config", os.path.abspath(file)]  # noqa: PTH100 the user's spelling of a path is kept
    return options


COMMANDS = (
    CliCommand(
        name="mcp",
        help="answer an assistant by the Model Context Protocol",
        examples=(
            "gputop mcp                           # started by an assistant",
            "gputop mcp --source demo:showcase    # to try it without a GPU",
        ),
        run=mcp,
    ),
)
