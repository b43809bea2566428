"""The fleet as a source: asks Prometheus at intervals, keeps the newest answer, and says why there is no newer one."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from threading import Event

from gputop import units
from gputop.fleet.matchers import Matcher
from gputop.fleet.promql import PrometheusClient, Unanswered
from gputop.fleet.queries import FleetQueries, usable
from gputop.fleet.view import FleetAnswer, FleetHost, HostKey, SshName, Targets, hosts, target
from gputop.frozen_dataclass import frozen_dataclass
from gputop.hosts.overview import HostRow
from gputop.model import Frame, Host, Identity, Missing
from gputop.safe.text import clean
from gputop.source import EVERYTHING, DetailWish, Interest

INTERVAL_S = 10.0  # between two polls: most sites scrape every 15 to 60 s
FIRST_RETRY_S, LAST_RETRY_S = 2.0, 60.0
SELDOM_S = 300.0  # between two looks at what changes slowly: recording rules, hosts that are gone, the last hour
TREND, TREND_STEP_S = 12, 300.0  # values of the last hour, and the time between two
_LONGEST_LABEL = 60  # characters
FORGOTTEN_S = 86400.0  # a host without values for so long is no longer listed
_NO_RULES = "recording rules are missing, so every poll reads raw metrics; install those of `gputop export rules`"
_DETAILS = Missing(metric="details", reason="absent", unlock="open the host")


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class FleetView:
    """All hosts at one answer."""

    hosts: Sequence[FleetHost]
    by_name: Mapping[str, FleetHost]
    wall_s: float  # by the clock of Prometheus
    mono_s: float  # when it arrived


class Fleet:
    """The hosts of one Prometheus. `view`, `problem` and `retry_s` may be read by any thread."""

    def __init__(
        self, client: PrometheusClient, matchers: Sequence[Matcher] = (), *, interval_s: float = INTERVAL_S,
        ssh_name: SshName = "instance", retry_s: float = FIRST_RETRY_S, trends: bool = True,
    ) -> None:  # fmt: skip
        """`trends`: read the last hour of every host, too."""
        self.label = _label(client.address.place, matchers)
        self.elsewhere: str | None = self.label
        self.interval_s, self.interest = interval_s, Interest()
        self.client, self.queries = client, FleetQueries(matchers)
        self.view: FleetView | None = None
        self.problem = ""  # why the last poll failed
        self.retry_s: float | None = None  # when it is repeated, by the monotonic clock
        self.remarks: list[str] = []  # each is said once
        self.hurry = Event()  # ends the wait for the next poll
        self._ssh_name, self._first_retry_s, self._wants_trends = ssh_name, retry_s, trends
        self._warning = ""  # of the last answer
        self._seen: dict[HostKey, float] = {}  # when each host had values, in Unix time
        self._trends: dict[HostKey, tuple[float | None, ...]] = {}
        self._slow_s: float | None = None
        self._closed = False

    # a source of frames, which only say that there is a new answer

    def past(self) -> Iterator[Frame]:
        """Empty."""
        return iter(())

    def frames(self, stop: Event) -> Iterator[Frame]:
        """A frame at each answer; no answer: again after 2, 4, 8 ... 60 s."""
        pause_s = self._first_retry_s
        while not (self._closed or stop.is_set()):
            began_s = time.monotonic()
            self.hurry.clear()
            try:
                for view in self.poll():
                    self.problem, self.retry_s, pause_s = "", None, self._first_retry_s
                    yield Frame(wall_s=view.wall_s, mono_s=view.mono_s, hostname=self.label, host=Host())
            except Unanswered as error:
                self.problem, self.retry_s = str(error), time.monotonic() + pause_s
                self.hurry.wait(pause_s)
                pause_s = min(2 * pause_s, LAST_RETRY_S)
                continue
            took_s = time.monotonic() - began_s
            self.hurry.wait(max(self.interval_s - took_s, took_s))  # a slow server rests at least half of the time

    def inspect(self, identity: Identity, wish: DetailWish = EVERYTHING) -> Missing:  # noqa: ARG002
        """No details of processes."""
        return _DETAILS

    def close(self) -> None:
        """End it; returns at once."""
        self._closed = True
        self.hurry.set()

    def poll(self) -> Iterator[FleetView]:
        """Ask once: the view, and again with what changes slowly where that was asked, too; Unanswered."""
        now_s = time.monotonic()
        slowly = self._slow_s is None or now_s - self._slow_s >= SELDOM_S
        if slowly:
            self._choose_rules()
        values = self.client.instant(self.queries.values())
        warning = self.client.warning
        answer = FleetAnswer(values, self.client.instant(self.queries.findings()))
        self._warning = warning or self.client.warning
        yield self._show(answer)
        if slowly:
            self._slow_s = now_s
            self._look_back(answer.at_s or time.time())
            yield self._show(answer)

    def _choose_rules(self) -> None:
        counts = self.client.instant(self.queries.recorded_count())
        found = {one.labels.get("__name__", ""): one.value or 0.0 for one in counts}
        self.queries = FleetQueries(self.queries.matchers, usable(found))
        if any(found.values()) and not self.queries.recorded:
            self._remark(_NO_RULES)

    def _look_back(self, at_s: float) -> None:
        """The hosts of the last day, and the last hour of each; without them the rest goes on."""
        start_s = at_s - (TREND - 1) * TREND_STEP_S
        try:
            seen = self.client.instant(self.queries.seen())
            trends = self.client.over(self.queries.busy(), start_s, at_s, TREND_STEP_S) if self._wants_trends else []
        except Unanswered as error:
            self._remark(f"hosts that are down and the last hour are missing: {error}")
            return
        for one in seen:
            if one.value is not None:
                key = target(one.labels)
                self._seen[key] = max(one.value, self._seen.get(key, 0.0))
        targets = Targets(self._seen)
        self._trends = {
            place: percents(one.evenly(start_s, TREND_STEP_S, TREND))
            for one in trends
            if (place := targets.of(one.labels))
        }

    def _show(self, answer: FleetAnswer) -> FleetView:
        """Make the lines of an answer, and remember which hosts had values."""
        self._seen.update(dict.fromkeys(answer.reporting, answer.at_s))
        if answer.at_s:
            self._seen = {key: at_s for key, at_s in self._seen.items() if at_s >= answer.at_s - FORGOTTEN_S}
        found = [
            replace(host, row=replace(host.row, trend=self._trends[host.key])) if host.key in self._trends else host
            for host in hosts(answer, self._seen, self._ssh_name)
        ]
        by_name = {host.row.name: host for host in found}
        self.view = FleetView(
            hosts=found, by_name=by_name, wall_s=answer.at_s or time.time(), mono_s=time.monotonic()
        )  # fmt: skip
        return self.view

    def _remark(self, text: str) -> None:
        if text not in self.remarks:
            self.remarks.append(text)

    # what the overview shows

    def rows(self, now_s: float | None = None) -> list[HostRow]:
        """The line of each host now; grey while Prometheus does not answer."""
        view = self.view
        if view is None:
            return []
        passed_s = (time.monotonic() if now_s is None else now_s) - view.mono_s
        silent = bool(self.problem)
        return [_aged(host.row, passed_s, silent) for host in view.hosts]

    def wall_s(self, now_s: float | None = None) -> float:
        """The time by the clock of Prometheus; by ours before its first answer."""
        view = self.view
        if view is None:
            return time.time()
        return view.wall_s + (time.monotonic() if now_s is None else now_s) - view.mono_s

    def notice(self, now_s: float | None = None) -> str:
        """What is wrong with all of them in one line; empty if nothing is."""
        now_s = time.monotonic() if now_s is None else now_s
        problem, view, retry_s = self.problem, self.view, self.retry_s
        if problem:
            age = f"; values are {units.ago_text(now_s - view.mono_s)} old" if view else ""
            again = f"; next attempt in {max(0.0, retry_s - now_s):.0f} s" if retry_s else ""
            return f"Prometheus: {problem}{age}{again}"
        if view and not view.hosts:
            wanted = ", ".join(map(str, self.queries.matchers))
            return f"no host has gputop metrics{f' with {wanted}' if wanted else ''}"
        return f"data may be missing: {self._warning}" if self._warning else ""


def _label(place: str, matchers: Sequence[Matcher]) -> str:
    matching = f" {{{','.join(map(str, matchers))}}}" if matchers else ""
    return clean(f"Prometheus {place}{matching}", _LONGEST_LABEL)


def percents(ratios: Sequence[float | None]) -> tuple[float | None, ...]:
    """Shares in percent."""
    return tuple(None if ratio is None else 100 * ratio for ratio in ratios)


def _aged(row: HostRow, passed_s: float, silent: bool) -> HostRow:
    age_s = None if row.age_s is None else row.age_s + passed_s
    return replace(row, age_s=age_s, state="stale" if silent and row.state == "live" else row.state)
