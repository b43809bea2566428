"""Talks with `gputop mcp` over its standard input and output, by the SDK's own client."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from mcp import Client, StdioServerParameters, stdio_client
from mcp.types import CallToolResult

T = TypeVar("T")
PATIENCE_S = 90.0


def conversation(
    talk: Callable[[Client], Awaitable[T]],
    *options: str,
    env: Mapping[str, str] | None = None,
    mode: str = "auto",
    log: Path | None = None,
) -> T:
    """The result of a talk with the real program, started with these options."""
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "gputop", "mcp", *options], env=dict(os.environ if env is None else env)
    )

    async def run() -> T:
        with (log or Path(os.devnull)).open("w") as errors:
            async with Client(stdio_client(server, errlog=errors), mode=mode) as client:
                return await talk(client)

    return asyncio.run(asyncio.wait_for(run(), PATIENCE_S))


def answer(result: CallToolResult) -> dict[str, Any]:
    """The structured answer, which is the same as the text."""
    assert not result.is_error, text(result)
    assert isinstance(result.structured_content, dict)
    assert json.loads(text(result)) == result.structured_content
    return result.structured_content


def failure(result: CallToolResult) -> str:
    """The one line that says why there is no answer."""
    assert result.is_error
    assert result.structured_content is None
    said = text(result)
    assert said.isprintable()
    return said


def text(result: CallToolResult) -> str:
    """The text of an answer."""
    (content,) = result.content
    return str(content.text)
