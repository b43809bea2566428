"""Messages by HTTP: one POST to an address, whose path is a secret and never shown."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field
from urllib.parse import urlsplit

from gputop import __version__
from gputop.alerts.message import AlertMessage
from gputop.alerts.receiver import TIMEOUT_S
from gputop.alerts.webhook_formats import FORMATS
from gputop.frozen_dataclass import frozen_dataclass
from gputop.safe.text import MASK, clean


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """An address that takes messages as JSON, in the shape of a service."""

    name: str
    shape: str  # of FORMATS
    url: str = field(repr=False)
    token: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout_s: float = TIMEOUT_S

    @property
    def acts(self) -> bool:
        """It changes nothing on this machine."""
        return False

    @property
    def place(self) -> str:
        """Shape and host; path, query and user of the address are secrets."""
        return f"{self.shape} {shown_address(self.url)}"

    def send(self, message: AlertMessage) -> None:
        """POST it."""
        # late: HTTP and TLS take 5 MB and a moment, and most alerts are quiet
        from gputop.alerts.http_post import post

        address, body = FORMATS[self.shape](message, self.url)
        headers = {
            "Content-Type": "application/json",
            "User-Agent": f"gputop/{__version__}",
            **({"Authorization": f"Bearer {self.token}"} if self.token else {}),
            **self.headers,
        }
        post(address, json.dumps(body, allow_nan=False).encode(), headers, self.timeout_s)


def shown_address(url: str) -> str:
    """The address without its secrets: scheme and host."""
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return MASK
    return clean(f"{parts.scheme}://{parts.hostname or ''}{port}/{MASK}", 120)
