"""The query API of Prometheus: expressions in, validated series out; every failure is one line."""

from __future__ import annotations

import http.client
import json
import math
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlencode

from gputop import __version__
from gputop.fleet.address import PrometheusAddress
from gputop.safe.http_exchange import Deadline, failure_reason, opener, status_line
from gputop.safe.text import clean

TIMEOUT_S = 10.0
MOST_BYTES = 64 << 20  # of an answer: a thousand hosts with their findings are 6 MB
_MOST_ERROR = 64 << 10
_PIECE = 1 << 20
_LONGEST = 160  # characters of what the server says

Labels = Mapping[str, str]


class Unanswered(Exception):
    """Why there is no answer, in one line without secrets."""


class Sample(NamedTuple):
    """One series of an answer at one time."""

    labels: Labels
    at_s: float  # when the expression was evaluated, by the clock of Prometheus
    value: float | None  # None: not a finite number


class Range(NamedTuple):
    """One series of an answer over time: Unix times and values."""

    labels: Labels
    points: tuple[tuple[float, float | None], ...]

    def evenly(self, start_s: float, step_s: float, count: int) -> tuple[float | None, ...]:
        """One value for each step from `start_s` on; None where there is none."""
        found: list[float | None] = [None] * count
        for at_s, value in self.points:
            place = round((at_s - start_s) / step_s)
            if 0 <= place < count:
                found[place] = value
        return tuple(found)


class PrometheusClient:
    """Asks one Prometheus. Thread-safe: every query has a connection and a deadline."""

    def __init__(self, address: PrometheusAddress, timeout_s: float = TIMEOUT_S) -> None:
        self.address, self.timeout_s = address, timeout_s
        self.warning = ""  # of the last instant query: a part of the data may be missing

    def instant(self, expr: str) -> list[Sample]:
        """The series that an expression has now; Unanswered."""
        result, self.warning = self._ask("query", {"query": expr}, "vector")
        return list(_checked(_sample(one) for one in result))

    def over(self, expr: str, start_s: float, end_s: float, step_s: float) -> list[Range]:
        """The series that it has at each step from `start_s` to `end_s`, in Unix time; Unanswered."""
        when = {"start": f"{start_s:.3f}", "end": f"{end_s:.3f}", "step": f"{step_s:g}"}
        result, _ = self._ask("query_range", {"query": expr, **when}, "matrix")
        return list(_checked(_range(one) for one in result))

    def _ask(self, path: str, form: Mapping[str, str], kind: str) -> tuple[list[Any], str]:
        """The result of a query as JSON has it: a list of this kind; and the first of its warnings."""
        answer = self._json(
            self._post(f"{self.address.url}/api/v1/{path}", {**form, "timeout": f"{self.timeout_s:g}s"})
        )
        data = answer.get("data")
        result = data.get("result") if isinstance(data, dict) and data.get("resultType") == kind else None
        if not isinstance(result, list):
            raise Unanswered(_NO_RESULT)
        warnings = answer.get("warnings")
        first = warnings[0] if isinstance(warnings, list) and warnings else ""
        return result, self._shown(first) if isinstance(first, str) else ""

    def _post(self, url: str, form: Mapping[str, str]) -> bytes:
        headers = {
            "Content-Type": "application/x-www-form-urlencoded",
            "Accept": "application/json",
            "User-Agent": f"gputop/{__version__}",
            **self.address.headers,
        }
        with Deadline(self.timeout_s) as deadline:
            try:
                request = urllib.request.Request(url, urlencode(form).encode(), headers, method="POST")
                with opener(deadline).open(request, timeout=self.timeout_s) as answer:
                    body = _read(answer, MOST_BYTES)
                if deadline.over:  # an answer cut short looks complete
                    raise TimeoutError
                if len(body) > MOST_BYTES:
                    raise Unanswered(f"the answer is larger than {MOST_BYTES >> 20} MiB: restrict it with --match")
                return body
            except urllib.error.HTTPError as error:
                with error:
                    raise Unanswered(self._refusal(error)) from None
            except (OSError, http.client.HTTPException, ValueError) as error:
                reason = clean(failure_reason(error, deadline), _LONGEST)
                raise Unanswered(f"{reason[:1].lower()}{reason[1:]}") from None

    def _refusal(self, error: urllib.error.HTTPError) -> str:
        """What an answer other than success means, with what the server says of the query."""
        status = clean(status_line(error.code), 60)
        if 300 <= error.code < 400:
            return f"{status}: redirects are not followed, use the final address"
        if error.code in (401, 403):
            return f"{status}: give a token with --token-file, or a user with --password-file"
        try:
            said = json.loads(_read(error, _MOST_ERROR))
        except (OSError, http.client.HTTPException, ValueError, RecursionError):
            said = None
        if isinstance(said, dict) and said.get("status") == "error":
            return self._said(said)
        hint = ": no query API there, check the address" if error.code == 404 else ""
        return f"{status}{hint}"

    def _said(self, answer: Mapping[str, Any]) -> str:
        """An error object in one line."""
        kind, text = (answer.get(name) for name in ("errorType", "error"))
        said = ": ".join(part for part in (kind, text) if isinstance(part, str) and part)
        return f"query failed: {self._shown(said) or 'no reason given'}"

    def _shown(self, said: str) -> str:
        """A text of the server in one line."""
        return clean(self.address.without_secrets(" ".join(said.split())), _LONGEST)

    def _json(self, body: bytes) -> Mapping[str, Any]:
        try:
            answer = json.loads(body)
        except (ValueError, RecursionError):
            raise Unanswered("the answer is not JSON: is this the address of a Prometheus?") from None
        if isinstance(answer, dict) and answer.get("status") == "error":
            raise Unanswered(self._said(answer))
        if not isinstance(answer, dict) or answer.get("status") != "success":
            raise Unanswered(_NO_RESULT)
        return answer


_NO_RESULT = "the answer is not one of the query API: is this the address of a Prometheus?"


def _read(answer: Any, most: int) -> bytes:
    """The body, up to one byte more than `most`."""
    pieces, size = [], 0
    while size <= most and (piece := answer.read(min(_PIECE, most + 1 - size))):
        pieces.append(piece)
        size += len(piece)
    return b"".join(pieces)


def _checked(series: Iterator[Any]) -> Iterator[Any]:
    """The series; Unanswered where one is not as the API describes it."""
    try:
        yield from series
    except (TypeError, ValueError, KeyError, OverflowError):
        raise Unanswered(_NO_RESULT) from None


def _labels(series: Any) -> Labels:
    labels = series["metric"]
    if type(labels) is not dict or not all(type(value) is str for value in labels.values()):
        raise TypeError
    return labels


def _sample(series: Any) -> Sample:
    at_s, text = series["value"]
    return Sample(_labels(series), _finite(at_s), _value(text))


def _range(series: Any) -> Range:
    return Range(_labels(series), tuple((_finite(at_s), _value(text)) for at_s, text in series["values"]))


def _finite(number: Any) -> float:
    found = float(number)
    if isinstance(number, str) or not math.isfinite(found):
        raise ValueError
    return found


def _value(text: Any) -> float | None:
    """A value, which is a text in JSON; NaN and infinity are unknown."""
    if type(text) is not str:
        raise TypeError
    found = float(text)
    return found if math.isfinite(found) else None
