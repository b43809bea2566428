"""One POST by HTTP or HTTPS with a deadline; no error text repeats the address, whose path may be a secret."""

from __future__ import annotations

import http.client
import re
import urllib.error
import urllib.request
from collections.abc import Mapping

from gputop.alerts.receiver import Undelivered
from gputop.safe.http_exchange import Deadline, failure_reason, opener, status_line

_MOST_BYTES = 4096  # of an answer that are read
_CODE = re.compile(r"[a-z][a-z0-9_]{2,39}")  # the answer of Slack to what it refuses: invalid_payload
_MOST_WAIT_S = 300.0
_TEMPORARY = {408, 425, 429, 500, 502, 503, 504}


def post(address: str, data: bytes, headers: Mapping[str, str], seconds: float) -> None:
    """POST these bytes; Undelivered unless the answer is a success. Redirects are not followed."""
    with Deadline(seconds) as deadline:
        try:
            request = urllib.request.Request(address, data, dict(headers), method="POST")
            with opener(deadline).open(request, timeout=seconds) as answer:
                answer.read(_MOST_BYTES)
            if deadline.over:  # an answer cut short looks complete
                raise TimeoutError
        except urllib.error.HTTPError as error:
            with error:
                raise _refusal(error) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise Undelivered(failure_reason(error, deadline)) from None


def _refusal(error: urllib.error.HTTPError) -> Undelivered:
    """What an answer other than success means; its text may repeat the address, so only a code word is shown."""
    status = status_line(error.code)
    if 300 <= error.code < 400:
        return Undelivered(f"{status}: redirects are not followed, use the final address", again=False)
    try:
        word = error.read(_MOST_BYTES).decode("ascii", "replace").strip()
    except (OSError, http.client.HTTPException, ValueError):
        word = ""
    code = f" ({word})" if _CODE.fullmatch(word) else ""
    return Undelivered(f"{status}{code}", again=error.code in _TEMPORARY, after_s=_wanted_wait(error))


def _wanted_wait(error: urllib.error.HTTPError) -> float | None:
    given = (error.headers.get("Retry-After") or "").strip()
    return min(float(given), _MOST_WAIT_S) if re.fullmatch(r"\d{1,6}", given) else None
