"""The state of each job, of each other GPU user, and of the machine: decided here, shown everywhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gputop import units
from gputop.diagnose.finding import Abstained, Finding
from gputop.diagnose.program_kind import serves, trains
from gputop.diagnose.rule import RULES, Level
from gputop.diagnose.starvation import has_work, is_fed
from gputop.diagnose.state import JUDGING, JobState, RankState, Word, found_state, needs_action, worst
from gputop.diagnose.subject_overlap import names
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.view import View
from gputop.invocation import as_root_on
from gputop.labels import amount, script
from gputop.model import Gpu, Identity, Job, Missing, Process
from gputop.model.metric_title import metric_title
from gputop.severity import CPU_PERCENT

ON_THE_HOST = "run gputop on the host, or start the container with --pid=host"
_FOREIGN = f"its process is outside this container: {ON_THE_HOST}"
_HIDDEN = "its process is hidden: /proc is mounted with hidepid"
_NAMELESS = "the driver lists no process on it"
_LISTS_NOBODY = "the driver does not list the processes of this GPU"
_NO_TRAINER = "its process is not a training job"


def unjudged(view: View) -> Iterator[tuple[Gpu, Missing]]:
    """GPUs without a verdict, each with the reason: none of its processes is judged, unless it is idle without any."""
    of = {one.identity: trainer for trainer in view.vectors() for one in trainer.tree}
    for gpu in view.gpus():
        there = [one for one in view.tenants(gpu) if one.unseen != "exited"]
        busy = gpu_at_work(view, gpu)
        reasons = [_why_unjudged(view, gpu, one, of.get(one.identity), busy) for one in there]
        if unnamed_user := nameless_user(view, gpu):
            reasons = [unnamed_user]
        if reasons and None not in reasons:
            yield gpu, next(reason for reason in reasons if reason)


def gpu_at_work(view: View, gpu: Gpu) -> bool:
    """Whether something computes on a GPU."""
    return (view.mean(gpu, "busy_percent") or 0.0) >= view.limit("no-cuda-context.nameless_percent")


def nameless_user(view: View, gpu: Gpu) -> Missing | None:
    """Why the driver names no process on a GPU at work; None if it names one, or if the GPU is idle."""
    if any(share.uuid == gpu.uuid for process in view.frame.processes for share in process.gpus):
        return None
    # at work now as well: a process that has just ended is no longer listed
    now = (gpu.busy_percent or 0.0) >= view.limit("no-cuda-context.nameless_percent")
    return unnamed(view, gpu) if now and gpu_at_work(view, gpu) else None


def why_unseen(view: View, unseen: str) -> str:
    """Why a process that the driver names cannot be judged."""
    return view.unlock(_HIDDEN, sudo=as_root_on(view.frame.hostname)) if unseen == "hidden" else _FOREIGN


def _why_unjudged(view: View, gpu: Gpu, process: Process, trainer: Trainer | None, busy: bool) -> Missing | None:
    """Why a process on a GPU cannot be judged; None if it can, or if there is nothing to judge."""
    if process.unseen is not None:
        return Missing(metric="gpus", reason="denied", unlock=why_unseen(view, process.unseen))
    if trainer is None:
        return Missing(metric="gpus", reason="absent", unlock=_NO_TRAINER) if busy else None
    if mute := next((one for one in gpu.missing if one.metric == "busy_percent"), None):
        return mute
    age_s = trainer.context_s or 0.0
    # its activity must hold for a while before it is judged
    judged_s = view.limit("engine.warm_s") + view.limit("on_s")
    if age_s >= judged_s:
        return None
    since = f"its job has run on it for {units.ago_text(age_s)}; checks start after {units.ago_text(judged_s)}"
    return Missing(metric="busy_percent", reason="absent", unlock=since)


def unnamed(view: View, gpu: Gpu) -> Missing:
    """Why the driver names no process on a GPU, or may omit one: it cannot, or its PIDs are those of the host.

    Running on the host helps only if this PID namespace is not the driver's.
    """
    if said := gpu.unlisted:
        return Missing(metric="gpus", reason=said.reason, unlock=said.unlock or _LISTS_NOBODY)
    return Missing(
        metric="gpus",
        reason="denied",
        unlock=f"{_NAMELESS}: {ON_THE_HOST}" if view.frame.host.own_pids else _NAMELESS,
    )


def jobless_states(view: View, findings: Sequence[Finding], judged: set[str]) -> Iterator[JobState]:
    """States of GPU processes outside any visible job, similar ones grouped."""
    seen = {one.identity for trainer in view.vectors() for one in trainer.tree}
    groups: dict[tuple[str, tuple[str, ...], str | None], list[Process]] = {}
    for process in view.frame.processes:
        gpus = tuple(share.uuid for share in process.gpus if share.kind != "graphics")
        if gpus and process.identity not in seen:
            groups.setdefault((process.unseen or "", gpus, process.user), []).append(process)
    for (_, gpus, user), alike in groups.items():
        first, identities = alike[0], {one.identity for one in alike}
        state, why, due = _jobless_state(view, first, gpus, judged)
        # the state of its GPU says nothing about the speed of the process
        bad = found_state([one for one in findings if names(one.subject, identities, ())])
        name = script(first) or f"PID {first.pid}"
        yield JobState(
            key=f"{first.pid}.{first.started_ticks}",
            name=name if len(alike) == 1 else f"{len(alike)} processes",
            user=user,
            gpus=gpus,
            processes=tuple(one.identity for one in alike),
            state=bad.state if bad else state,
            why=bad.why if bad else why,
            due=due,
        )


def _jobless_state(view: View, process: Process, gpus: Sequence[str], judged: set[str]) -> tuple[Word, str, bool]:
    """Why a process without a job has no verdict, and whether one is due: not beside a job that is judged."""
    alone = not judged.intersection(gpus)
    if process.unseen == "exited":
        return "unknown", "no training job: the process has exited, the driver still lists it", False
    if process.unseen is not None:
        return "unknown", why_unseen(view, process.unseen), alone
    at_work = any(gpu_at_work(view, gpu) for gpu in view.gpus() if gpu.uuid in gpus)
    return "unknown", "no training job: no training libraries or worker processes found", alone and at_work


def unattributed_states(view: View) -> Iterator[JobState]:
    """States of busy GPUs for which the driver names no process."""
    for gpu in view.gpus():
        if (missing := nameless_user(view, gpu)) is not None:
            why = _unattributed_reason(view, gpu, missing.unlock or "")
            yield JobState(key=gpu.uuid, name=f"GPU {gpu.index}", gpus=(gpu.uuid,), state="unknown", why=why)


def _unattributed_reason(view: View, gpu: Gpu, unlock: str) -> str:
    busy = view.mean(gpu, "busy_percent")
    return unlock if busy is None else f"GPU busy {busy:.0f} %, {unlock}"


_PACE = (Level.CAUSE, Level.STARVED, Level.RANKS, Level.EFFICIENCY)
_LONG_S = 60.0  # seconds that a pause must exceed to contradict a healthy verdict


class PendingFinding(NamedTuple):
    """A finding that holds but is not shown yet, and the seconds until it can be."""

    finding: Finding
    left_s: float


class _Clock(NamedTuple):
    """Time since judging began, and the time after which a verdict is due, in seconds."""

    passed_s: float
    of_s: float

    @property
    def left_s(self) -> float:
        return max(0.0, self.of_s - self.passed_s)


def job_states(
    view: View, findings: Sequence[Finding], candidates: Sequence[PendingFinding] = ()
) -> tuple[JobState, ...]:
    """One state per job, per GPU process outside any job, and per busy GPU without a visible process.

    `findings` are shown; `candidates` hold but are not shown yet.
    """
    jobs = tuple(_job_state(view, job, view.ranks(job), findings, candidates) for job in view.frame.jobs)
    judged = {uuid for one in jobs for uuid in one.gpus}
    return (*jobs, *jobless_states(view, findings, judged), *unattributed_states(view))


def host_state(view: View, findings: Sequence[Finding]) -> JobState:
    """The state of the machine itself."""
    host, cpu = view.frame.host, view.mean("host", "cpu_percent", 30.0)
    clock = _Clock(view.watched_s, view.limit("engine.judged_s"))
    bad = worst(one for one in findings if needs_action(one) and (one.subject.kind == "host" or _runs_out(one)))
    cpus = f" of {amount(host.cpus_total, 'CPU')}" if host.cpus_total else ""

    def state_of(state: Word, why: str, left_s: float | None = None) -> JobState:
        return JobState(key="host", name=view.frame.hostname, state=state, why=why, judged_in_s=left_s, due=False)

    if bad is not None:
        return state_of("found", bad.headline)
    if full := _cpu_note(view):
        return state_of("found", full)
    if clock.left_s > 0:
        so_far = "CPU" if cpu is None else f"CPU {cpu:.0f} %{cpus} so far"
        return state_of("judging", f"{so_far}, {clock.passed_s:.0f} of {clock.of_s:.0f} s", clock.left_s)
    if cpu is None:
        return state_of("unknown", "CPU usage cannot be read")
    return state_of("healthy", f"no CPU, RAM or local disk problem, CPU {cpu:.0f} %{cpus} in use")


def _runs_out(finding: Finding) -> bool:
    """Whether a resource shared by all programs is about to run out, whichever process fills it."""
    return finding.severity == "crit" and finding.rule in ("host-memory-leak", "shm-nearly-full")


def _cpu_note(view: View) -> str:
    """A note that all CPUs of the machine are busy; empty if they are not, or if unknown."""
    host, cpu = view.frame.host, view.mean("host", "cpu_percent", 30.0)
    if cpu is None or cpu < CPU_PERCENT:
        return ""
    cpus = f" of {amount(host.cpus_total, 'CPU')}" if host.cpus_total else ""
    return f"CPU saturated, {cpu:.0f} %{cpus} in use (healthy < {CPU_PERCENT:.0f} %)"


def _job_state(
    view: View, job: Job, ranks: Sequence[Trainer], findings: Sequence[Finding], candidates: Sequence[PendingFinding]
) -> JobState:
    identities = {rank.identity for rank in ranks} | {*job.ranks}
    gpus = tuple(dict.fromkeys(uuid for rank in ranks for uuid in rank.uuids))
    about = [one for one in findings if _applies(one, job.key, identities, gpus)]
    unseen = [] if ranks else [RankState("unknown", "its training processes are not visible")]
    seen = found_state(about) or _combined(
        unseen or [_rank_state(view, rank, job, about, candidates) for rank in ranks]
    )
    if seen.state == "unknown" and seen.due:  # a problem of the machine explains it as far as anything does
        seen = found_state([one for one in findings if one.subject.kind == "host" and needs_action(one)]) or seen
    return JobState(
        key=job.key,
        name=job.name,
        user=job.user,
        gpus=gpus,
        processes=tuple(rank.identity for rank in ranks),
        state=seen.state,
        judged_in_s=seen.left_s,
        why=seen.why,
        due=seen.due,
    )


def _applies(finding: Finding, job: str, identities: set[Identity], gpus: Sequence[str]) -> bool:
    """Whether a finding applies to a job: its own, of its processes or GPUs, or of the machine if it names them."""
    subject = finding.subject
    if subject.kind == "host" and not subject.processes:
        return False
    return job in subject.job_keys or names(subject, identities, gpus)


_ORDER: tuple[Word, ...] = ("judging", "unknown", "healthy")


def _combined(ranks: Sequence[RankState]) -> RankState:
    """One state for all ranks of a job: judging while any rank is, healthy only if all are."""
    first = min(ranks, key=lambda one: (_ORDER.index(one.state), not one.due, -(one.left_s or 0.0)))
    same = sum(one.state == first.state for one in ranks)
    some = f"{same} of {len(ranks)} ranks: " if same < len(ranks) else ""
    return first._replace(why=f"{some}{first.why}", due=any(one.due for one in ranks))


def _rank_state(
    view: View, trainer: Trainer, job: Job, about: Sequence[Finding], candidates: Sequence[PendingFinding]
) -> RankState:
    if well := _healthy_reason(view, trainer, about):
        return RankState("healthy", well)
    clock = _clock(view, trainer)
    use = _use_text(view, trainer)
    early = next((one for one in about if one.state == JUDGING and not one.healthy), None)
    left_s = max(clock.left_s, _pending_s(trainer, job, candidates) if clock.passed_s < 2 * clock.of_s else 0.0)
    if clock.left_s == 0 and has_work(view, trainer) and _contradicted(view, trainer, 100 * view.limit("starved.duty")):
        # it waits: the fallback rule reports it if no other rule has found a cause by then
        left_s = max(left_s, clock.of_s + view.limit("starved-cause-unknown.after_s") - clock.passed_s)
    if serves(trainer):
        return RankState("unknown", f"no training job: an inference server, {use}", due=False)
    if early is not None and left_s > 0:
        return RankState("judging", f"{early.headline}, {clock.passed_s:.0f} of {clock.of_s:.0f} s", left_s)
    if left_s > 0:
        waits = f"{clock.passed_s:.0f} of {clock.of_s:.0f} s" if clock.left_s > 0 else f"{left_s:.0f} s to go"
        so_far = " so far" if trainer.gpus and not trainer.never_reports_busy else ""
        return RankState("judging", f"{use}{so_far}, {waits}", left_s)
    return _unknown_state(view, trainer, use)


def _healthy_reason(view: View, trainer: Trainer, about: Sequence[Finding]) -> str | None:
    """What a healthy rule says of it, or said of the same work, unless something contradicts that."""
    notes = view.notes(trainer)
    said: str | None = next(
        (one.headline.removeprefix("healthy, ") for one in about if one.healthy and _covers(one, trainer)), None
    )  # the state itself says healthy
    limit = 100 * view.limit("starved.duty")
    if said is None:  # one pause in a minute suspends that rule, and the job is no less healthy
        said, limit = notes.get("healthy"), view.limit("gpu-bound-healthy.busy_percent_exit")
    if trainer.seen_s < view.limit("on_s"):  # the verdict may be of earlier work: utilization must still match
        limit = view.limit("gpu-bound-healthy.busy_percent")
    if said is not None and _contradicted(view, trainer, limit):
        said = None
    notes["healthy"] = said
    return said


def _covers(finding: Finding, trainer: Trainer) -> bool:
    if finding.subject.processes:
        return trainer.identity in finding.subject.processes
    return {gpu.uuid for gpu in trainer.works_on} <= {*finding.subject.gpus}


def _contradicted(view: View, trainer: Trainer, limit_percent: float) -> bool:
    """Whether its GPUs are less busy than a healthy verdict allows, or their utilization is unknown."""
    busy = _busy_percent(view, trainer)
    if busy is None:
        return not trainer.never_reports_busy
    least = trainer.duty_by is not None and trainer.duty_by.lower_bound  # it may be busier than that
    return not least and busy < limit_percent


def _clock(view: View, trainer: Trainer) -> _Clock:
    """The clock that runs longest: of its phase, of its context, or of its start without one."""
    clocks = [_Clock(trainer.seen_s, view.limit("engine.judged_s"))]
    if trainer.context_s is not None:
        clocks.append(_Clock(trainer.context_s, view.limit("engine.warm_s") + view.limit("on_s")))
    elif trains(trainer) and any(view.gpus()):
        on_s = view.limit("on_s")
        clocks.append(_Clock(max(0.0, trainer.process.age_s or 0.0), view.limit("no-cuda-context.age_s") + on_s))
    return max(clocks, key=lambda one: one.of_s - one.passed_s)


def _pending_s(trainer: Trainer, job: Job, candidates: Sequence[PendingFinding]) -> float:
    """Seconds until a finding that holds now is shown, if it persists."""
    mine = [one.left_s for one in candidates if _applies(one.finding, job.key, {trainer.identity}, trainer.uuids)]
    return max(mine, default=0.0)


def _busy_percent(view: View, trainer: Trainer) -> float | None:
    """GPU busy in percent over the last minute of its phase."""
    return view.mean(trainer, "busy_percent", max(1.0, min(_LONG_S, trainer.seen_s)))


def _use_text(view: View, trainer: Trainer) -> str:
    """What its GPUs do, in a few words."""
    if not trainer.gpus:
        cores = "" if trainer.cores is None else f", {trainer.cores:.1f} CPU cores in use"
        return f"no GPU in use{cores}"
    busy = _busy_percent(view, trainer)
    if busy is None:
        return "GPU utilization cannot be read" if trainer.never_reports_busy else "GPU not measured"
    return trainer.reading(busy)


def _unknown_state(view: View, trainer: Trainer, use: str) -> RankState:
    """Why there is no verdict after the time for one, and what would allow one."""
    if not trainer.gpus:
        return RankState("unknown", "no training job on a GPU" if any(view.gpus()) else "no GPU to measure", due=False)
    if ill := next((gpu for gpu in trainer.gpus if gpu.condition != "ok"), None):
        return RankState("unknown", f"GPU {ill.index} is {ill.condition}")
    idle = view.mean(trainer, "busy_percent", _LONG_S)
    if idle is not None and idle < 1 and (trainer.cores or 0.0) < view.limit("job-states.idle_cores"):
        return RankState("unknown", f"idle: {use}, nothing runs", due=False)
    if lacking := _main_abstention(view, trainer):
        metrics = ", ".join(dict.fromkeys(metric_title(missing.metric) for missing in lacking.missing))
        reasons = ", ".join(dict.fromkeys(missing.reason for missing in lacking.missing))
        unlock = f": {lacking.unlock}" if lacking.unlock else ""
        lacks = f"{metrics} is {reasons}" if trainer.never_reports_busy else f"{use}, cannot read {metrics} ({reasons})"
        return RankState("unknown", f"{lacks}{unlock}")
    pid = trainer.process.pid
    healthy = f"healthy ≥ {view.limit('gpu-bound-healthy.busy_percent'):.0f} %"
    but = f", but {full}" if (full := _cpu_note(view)) else ""
    return RankState("unknown", f"{use} ({healthy}), cause unknown{but}: run gputop profile {pid}")


def _main_abstention(view: View, trainer: Trainer) -> Abstained | None:
    """The most useful abstention about its pace: one that a permission or a setting would lift comes first.

    For a GPU that is always busy: the abstention of the rule that would call it healthy.
    """
    well = Level.HEALTHY if is_fed(view, trainer) else None
    about = [
        one
        for one in view.abstained
        if RULES[one.rule].level in (*_PACE, Level.HEALTHY) and names(one.subject, {trainer.identity}, trainer.uuids)
    ]
    reasons = ("denied", "unsupported")

    def weight(one: Abstained) -> tuple[int, bool, bool]:
        first = one.missing[0].reason if one.missing else ""
        place = reasons.index(first) if first in reasons else len(reasons)
        return place, RULES[one.rule].level is not well, one.unlock is None

    return min(about, key=weight, default=None)
