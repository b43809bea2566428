"""Where a Prometheus is, and what it asks for: an address, a user with a password, a token."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import field
from urllib.parse import SplitResult, unquote, urlsplit

from gputop.frozen_dataclass import frozen_dataclass
from gputop.safe.text import MASK, clean

_EXAMPLE = "write it as http://HOST:9090"
_ENDINGS = ("/graph", "/query", "/api/v1")  # of addresses copied from a browser or a manual
_LONGEST = 2000


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class PrometheusAddress:
    """The base address without a user, and what authorizes a request."""

    url: str
    place: str  # host and port, to be shown
    user: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)

    @property
    def headers(self) -> dict[str, str]:
        """What authorizes a request."""
        if self.token:
            return {"Authorization": f"Bearer {self.token}"}
        if self.user or self.password:
            pair = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
            return {"Authorization": f"Basic {pair}"}
        return {}

    def _secrets(self) -> Iterator[str]:
        yield from (self.password, self.token)
        yield from (header.partition(" ")[2] for header in self.headers.values())

    def without_secrets(self, text: str) -> str:
        """A text of the server, which may repeat what it was sent."""
        for secret in self._secrets():
            if secret:
                text = text.replace(secret, MASK)
        return text


def parse(text: str) -> PrometheusAddress:
    """An address of the command line; ValueError in one line, which does not repeat what may be a password."""
    if len(text) > _LONGEST or not (text.isascii() and text.isprintable()) or " " in text:
        raise ValueError(f"not an address: {_EXAMPLE}")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise ValueError(f"not an address: {_EXAMPLE}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"an address begins with http:// or https://: {_EXAMPLE}")
    if parts.query or parts.fragment:
        raise ValueError("an address has no ? and no #: write the part before them")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    place = host if port is None else f"{host}:{port}"
    return PrometheusAddress(
        url=f"{parts.scheme}://{place}{_path(parts)}",
        place=clean(place, 80),
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
    )


def _path(parts: SplitResult) -> str:
    """The path before `/api/v1`: a proxy may have put one there."""
    path = parts.path.rstrip("/")
    return next((path.removesuffix(end) for end in _ENDINGS if path.endswith(end)), path)
