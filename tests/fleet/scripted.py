"""A server on loopback that answers the queries of `gputop fleet` as a Prometheus would, or as a test asks."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler
from typing import Any, NamedTuple
from urllib.parse import parse_qs

from gputop.fleet import queries
from tests.fleet import simulated
from tests.fleet.simulated import DEAD, GPUS, HEADLINE, HEAT, HOT, IDLE, JUDGING, LOST, SLOW
from tests.http_receiver import Act, LoopbackServer

AGE_S = 12.0  # of every value
DIED_S = 1300.0  # before now, a host without values had some


class Asked(NamedTuple):
    """One query."""

    path: str
    form: dict[str, str]
    headers: dict[str, str]


def body(result: Sequence[Any], kind: str = "vector") -> bytes:
    """A successful answer."""
    return json.dumps({"status": "success", "data": {"resultType": kind, "result": result}}).encode()


def instant(at_s: float, value: float | str, **labels: str) -> dict[str, Any]:
    """One series of an answer."""
    return {"metric": labels, "value": [at_s, value if isinstance(value, str) else f"{value:g}"]}


class Answers:
    """The answers for hosts with eight GPUs each, at one time. `instances`: what Prometheus calls them."""

    def __init__(self, instances: Sequence[str], at_s: float) -> None:
        self.at_s, self._targets = at_s, [{"instance": one, "job": "gputop"} for one in instances]

    def values(self) -> list[dict[str, Any]]:
        """Every value of every host, tagged."""
        return [one for number, target in enumerate(self._targets) for one in self._of_host(number, target)]

    def _of_host(self, number: int, target: dict[str, str]) -> list[dict[str, Any]]:
        if number == DEAD:
            return [instant(self.at_s, 0, gputop_value=queries.DOWN, **target)]
        busy = simulated.busy(number, 0, self.at_s)
        values = {
            queries.GPUS: GPUS, queries.GPUS_BUSY: 0 if number == IDLE else GPUS, queries.BUSY: busy,
            queries.VRAM: 0.75, queries.POWER: 640 + 4800 * busy, queries.CPU: 0.25, queries.MEMORY: 0.2,
            queries.JOB_COUNT: number != IDLE, queries.LOST: {SLOW: LOST / 2, HOT: HEAT / GPUS}.get(number, 0),
            queries.FRAME: self.at_s - AGE_S,
        }  # fmt: skip
        found = [instant(self.at_s, value if tag != queries.FRAME else repr(value), gputop_value=tag, **target)
                 for tag, value in values.items()]  # fmt: skip
        host = target["instance"].rpartition(":")[0]
        found.append(instant(self.at_s, 1, gputop_value=queries.HOSTNAME, hostname=f"{host}.cluster", **target))
        if number != IDLE:
            state = {SLOW: "found", HOT: "found", JUDGING: "judging"}.get(number, "healthy")
            found.append(instant(self.at_s, 1, gputop_value=queries.JOBS, state=state, **target))
        return found

    def findings(self) -> list[dict[str, Any]]:
        """A warning on one host, something critical and a warning on another."""
        slow = ("starved-cpu-idle", "warn", "job", "llama-7b", "0-3", "7.1", "llama-7b")
        hot = ("thermal", "crit", "gpu", "GPU 6", "6", "", "")
        worn = ("memory-pressure", "warn", "host", "dgx-004", "", "", "")
        found = []
        for number, about, headline, lost, primary in (
            (SLOW, slow, HEADLINE, LOST, "true"),
            (HOT, hot, "hardware thermal slowdown", HEAT, "true"),
            (HOT, worn, "host memory low, 9.0G of 256G left", None, "false"),
        ):
            if number < len(self._targets):
                found += self._finding(self._targets[number], about, headline, lost, primary)
        return found

    def _finding(
        self, target: dict[str, str], about: tuple[str, ...], headline: str, lost: float | None, primary: str
    ) -> list[dict[str, Any]]:
        labels = {**dict(zip(queries.FINDINGS[0].labels, about, strict=False)), **target}
        finding, title, cost, age = (family.name for family in queries.FINDINGS)
        found = [
            instant(self.at_s, 2, __name__=finding, primary=primary, **labels),
            instant(self.at_s, 1, __name__=title, headline=headline, **labels),
            instant(self.at_s, 720, __name__=age, **labels),
        ]
        return found if lost is None else [*found, instant(self.at_s, lost, __name__=cost, **labels)]

    def seen(self) -> list[dict[str, Any]]:
        """When each host had values."""
        return [
            instant(self.at_s, repr(self.at_s - (DIED_S if number == DEAD else AGE_S)), **target)
            for number, target in enumerate(self._targets)
        ]

    def over(self, form: dict[str, str]) -> list[dict[str, Any]]:
        """GPU busy of every host, or of the one that is asked for also the time lost."""
        start_s, end_s, step_s = (float(form[name]) for name in ("start", "end", "step"))
        times = [start_s + step_s * step for step in range(int((end_s - start_s) / step_s + 1.5))]
        found = []
        for number, target in enumerate(self._targets):
            if number == DEAD or ('instance="' in form["query"] and target["instance"] not in form["query"]):
                continue
            lost = LOST * 4 / GPUS if number == SLOW else 0.0  # of its four GPUs
            for tag, scale, least in ((queries.BUSY, 1.0, 0.0), (queries.LOST, 0.0, lost)):
                points = [[at_s, f"{scale * simulated.busy(number, 0, round(at_s)) + least:.4f}"] for at_s in times]
                labels = {**target, "gputop_value": tag} if "gputop_value" in form["query"] else target
                if labels is not target or tag == queries.BUSY:
                    found.append({"metric": labels, "values": points})
        return found


class ScriptedPrometheus(LoopbackServer):
    """The server. `act`, while it is set, is done instead of an answer. `asked` has every query."""

    def __init__(self, instances: Sequence[str], *, at_s: float | None = None, rules: bool = True) -> None:
        """`at_s`: a fixed time of all answers; by default now. `rules`: recording rules are installed."""
        self.act: Act | None = None
        self.asked: list[Asked] = []
        self.instances, self._at_s, self._rules = list(instances), at_s, rules
        self._made: dict[tuple[str, ...], bytes] = {}  # answers of a fixed time
        super().__init__()

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    def _take(self, handler: BaseHTTPRequestHandler) -> None:
        text = handler.rfile.read(int(handler.headers.get("Content-Length", "0"))).decode()
        form = {name: values[0] for name, values in parse_qs(text).items()}
        self.asked.append(Asked(handler.path, form, dict(handler.headers)))
        if act := self.act:
            act(handler)
            return
        if self._at_s is None:
            made = self._answer(handler.path, form)
        else:
            key = (handler.path, form["query"], form.get("start", ""), *self.instances)
            made = self._made.get(key) or self._made.setdefault(key, self._answer(handler.path, form))
        send(handler, 200, made)

    def _answer(self, path: str, form: dict[str, str]) -> bytes:
        answers, query = Answers(self.instances, self._at_s or time.time()), form["query"]
        if path.endswith("query_range"):
            return body(answers.over(form), "matrix")
        if query.startswith("count by (__name__)"):
            names = ["gputop_gpus", *(queries.RECORDED.values() if self._rules else ())]
            return body([instant(answers.at_s, len(self.instances), __name__=name) for name in names])
        if query.startswith("last_over_time"):
            return body(answers.seen())
        return body(answers.findings() if query.startswith("{__name__") else answers.values())


def send(handler: BaseHTTPRequestHandler, code: int, data: bytes, kind: str = "application/json") -> None:
    """Answer with a status and a body."""
    handler.send_response(code)
    handler.send_header("Content-Type", kind)
    handler.send_header("Content-Length", str(len(data)))
    handler.end_headers()
    handler.wfile.write(data)


def saying(code: int, data: bytes, kind: str = "application/json") -> Act:
    """Answer so, whatever is asked."""
    return lambda handler: send(handler, code, data, kind)


def names(count: int) -> list[str]:
    """What Prometheus calls the hosts of a fleet."""
    return [f"{simulated.name(number)}:9400" for number in range(count)]
