"""Merge the findings of all rules: ranks together, causes under their effects, one primary finding per job."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from shlex import quote

from gputop.diagnose.finding import Abstained, Evidence, Finding, Severity, Step, Subject
from gputop.diagnose.limits import Limits, Table
from gputop.diagnose.rule import RULES, Level
from gputop.diagnose.steadying import RANKS, crit_after
from gputop.diagnose.subject_overlap import applies_to
from gputop.model import Frame, Job, Process

_NAMED = 4  # jobs in the evidence
_GAIN = re.compile(r"[\d.]+ times as fast|[\d.]+x faster|[\d.]+× faster")  # of the same step, with the gain of each


def merge_experiments(findings: Iterable[Finding], jobs: Mapping[str, Job]) -> list[Finding]:
    """The findings in order, with those of one user's jobs joined if text and advice are the same.

    Measured values may differ: the finding with the largest loss represents all. A finding with different advice stays
    separate.
    """
    groups: dict[object, list[Finding]] = {}
    for place, finding in enumerate(findings):
        job = finding.subject.job
        groups.setdefault(place if job is None or job not in jobs else _signature(finding), []).append(finding)
    return [group[0] if len(group) == 1 else _joined_experiments(group, jobs) for group in groups.values()]


def _signature(finding: Finding) -> object:
    """All that must be equal to join; steps that differ only in a PID are equal."""
    pids = "|".join(str(identity.pid) for identity in finding.subject.processes)
    pid = re.compile(rf"\b(?:{pids})\b") if pids else None

    def general(text: str | None) -> str | None:
        return text and _GAIN.sub("", pid.sub("PID", text) if pid else text)

    steps = tuple((general(step.text), general(step.command), step.action) for step in finding.steps)
    said = finding.rule, finding.severity, finding.healthy, finding.primary, finding.causes, finding.state
    return *said, finding.subject.user, _GAIN.sub("", finding.headline), steps


def _joined_experiments(same: list[Finding], jobs: Mapping[str, Job]) -> Finding:
    worst = max(same, key=lambda one: (RANKS[one.severity], one.lost_share or 0.0, one.confidence))
    keys = tuple(dict.fromkeys(one.subject.job for one in same if one.subject.job is not None))
    if len(keys) < 2:
        return worst
    names = [jobs[key].name for key in keys]
    listed = ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
    shares = [one.lost_share for one in same if one.lost_share is not None]
    return replace(
        worst,
        subject=Subject(
            kind="job",
            gpus=tuple(dict.fromkeys(uuid for one in same for uuid in one.subject.gpus)),
            processes=tuple(dict.fromkeys(identity for one in same for identity in one.subject.processes)),
            jobs=keys,
            user=worst.subject.user,
        ),
        evidence=(*worst.evidence, Evidence(text=f"found in {len(keys)} jobs: {listed}", value=float(len(keys)))),
        since_s=max(one.since_s for one in same),
        lost_share=sum(shares) / len(shares) if shares else None,
    )


_CERTAIN = 0.5  # below this confidence a finding explains nothing
Tenants = Mapping[str, Sequence[Process]]  # processes that compute on a GPU, by uuid
# rules that say that others cannot judge yet
_TOO_EARLY = {"cold-cache": frozenset({"io-bound", "io-small-files", "network-fs-bound"})}
_REPLACES = ("conda ", "pip ")  # software that other programs may use as well
_Group = tuple[str, object]  # a job, a process without one, a GPU without either, or the host


def merge_findings(findings: Sequence[Finding], frame: Frame, tenants: Tenants, limits: Limits) -> list[Finding]:
    """The findings as shown, the most urgent first."""
    groups: dict[_Group, list[Finding]] = {}
    for finding in _merge_ranks(findings, frame, tenants):
        groups.setdefault(_group(finding.subject, tenants), []).append(finding)
    host = groups.pop(("host", None), [])
    merged = []
    for group in groups.values():
        members = {identity for finding in group for identity in finding.subject.processes}
        merged += _resolved_group(group, [one for one in host if applies_to(one.subject, members, ())], limits)
    used = {cause for finding in merged for cause in finding.causes}
    merged += _host_group([finding for finding in host if finding.rule not in used])
    return sorted(merge_experiments(merged, {job.key: job for job in frame.jobs}), key=_urgency)


def _urgency(finding: Finding) -> tuple[object, ...]:
    """Sort key: leading findings, then severity; findings about gputop itself come last of their severity."""
    of_itself = RULES[finding.rule].group == "meta"
    return not finding.primary, -RANKS[finding.severity], of_itself, _order(finding)


def _merge_ranks(findings: Sequence[Finding], frame: Frame, tenants: Tenants) -> list[Finding]:
    """Join equal findings on ranks or GPUs of one job into one finding on the job, represented by the worst."""
    same: dict[tuple[str, str, object, str], list[Finding]] = {}
    for finding in findings:
        kind = finding.subject.kind
        owner, job = _group(finding.subject, tenants)
        alone = owner != "job" or kind not in ("process", "gpu")
        # GPU faults are individual
        how = finding.headline if RULES[finding.rule].level is Level.HARDWARE else ""
        same.setdefault((finding.rule, kind, finding.subject if alone else job, how), []).append(finding)
    ranks = {job.key: len(job.ranks) for job in frame.jobs}
    return [
        group[0] if len(group) == 1 else _joined_ranks(group, str(job), max(len(group), ranks.get(str(job), 0)), frame)
        for (_, _, job, _), group in same.items()
    ]


def _joined_ranks(same: list[Finding], job: str, ranks: int, frame: Frame) -> Finding:
    worst = max(same, key=lambda finding: (RANKS[finding.severity], finding.lost_share or 0.0, finding.confidence))
    shares = [finding.lost_share for finding in same if finding.lost_share is not None]
    gpus = dict.fromkeys(uuid for finding in same for uuid in finding.subject.gpus)
    processes = dict.fromkeys(identity for finding in same for identity in finding.subject.processes)
    where = f"on {len(same)} of {ranks} ranks" if processes else f"on {len(same)} GPUs"
    many = Evidence(text=where, value=float(len(same)), limit=float(ranks) if processes else None)
    return replace(
        worst,
        subject=replace(worst.subject, kind="job", gpus=tuple(gpus), processes=tuple(processes), job=job),
        evidence=(*worst.evidence, many),
        steps=worst.steps if processes else _steps_for_all(worst, same, frame),
        since_s=max(finding.since_s for finding in same),
        lost_share=sum(shares) / len(shares) if shares else None,
    )


def _steps_for_all(worst: Finding, same: Sequence[Finding], frame: Frame) -> tuple[Step, ...]:
    """The steps of one GPU with commands that name all GPUs; each needs what the worst one needs."""
    card = frame.by_uuid.get(worst.subject.gpus[0])
    if card is None:
        return worst.steps
    cards = [frame.by_uuid[one.subject.gpus[0]].index for one in same if one.subject.gpus[0] in frame.by_uuid]
    this, all_of = re.compile(rf"(?<= -i ){re.escape(quote(card.index))}(?!\S)"), ",".join(map(quote, cards))

    def naming_all(command: str) -> str:
        return this.sub(lambda _: all_of, command)  # a made-up number would match by accident

    return tuple(replace(step, command=step.command and naming_all(step.command)) for step in worst.steps)


def _group(subject: Subject, tenants: Tenants) -> _Group:
    """The group that shares one primary finding: a GPU belongs to the job that computes on it."""
    if subject.kind == "host":
        return "host", None
    if subject.job is not None:
        return "job", subject.job
    if subject.kind == "gpu":
        for process in tenants.get(subject.gpus[0], ()):
            return ("job", process.job) if process.job else ("process", process.identity)
        return "gpu", subject.gpus[0]
    return ("process", subject.processes[0]) if subject.processes else ("host", None)


def _resolved_group(group: list[Finding], host: list[Finding], limits: Limits) -> list[Finding]:
    """Resolve one group: causes merged, primary marked."""
    numbers = limits["engine"]
    slight: list[Finding] = []
    known = any(_explains(finding) for finding in (*group, *host))
    group = [finding for finding in _without_superseded(group, host) if not (known and RULES[finding.rule].last)]
    starved = [finding for finding in group if RULES[finding.rule].level is Level.STARVED]
    causes = [finding for finding in group if RULES[finding.rule].level is Level.CAUSE]
    # an informational finding on the machine explains nothing about a job
    causes += [one for one in host if RULES[one.rule].level is Level.CAUSE and one.severity != "info"]
    if starved and causes:
        first, *others = sorted(starved, key=_order)
        most: Severity = "crit" if first.since_s >= crit_after(first.rule, limits) else "warn"
        # a host that runs out of memory is critical, however briefly a GPU has waited
        causes = [one for one in causes if most == "crit" or one.severity != "crit" or RULES[one.rule].of_phase]
        slight = [cause for cause in causes if _explains_little(cause, first, numbers["because"])]
        causes = sorted((cause for cause in causes if cause not in slight), key=_order)
        group = [finding for finding in group if finding not in starved and finding not in causes]
        group += [_with_causes(first, causes, most) if causes else first, *others]
    group.sort(key=_order)
    troubles = [one for one in group if one.severity != "info" and not one.healthy and _may_lead(one, numbers)]
    group = [finding for finding in group if not (finding.healthy and _contradicted(finding, troubles))]
    leads = [finding for finding in group if _may_lead(finding, numbers) and finding not in slight]
    lead = next((finding for finding in leads if not _is_remark(finding)), leads[0] if leads else None)
    return [replace(finding, primary=True) if finding is lead else finding for finding in group]


def _without_superseded(group: list[Finding], host: list[Finding]) -> list[Finding]:
    """Drop what another rule explains better; lower to info what cannot be judged yet."""
    rules = {finding.rule for finding in group}
    better = {other for rule in rules for other in RULES[rule].instead_of}
    better |= {other for one in host if one.severity != "info" for other in RULES[one.rule].instead_of}
    early = frozenset[str]().union(*(_TOO_EARLY[rule] for rule in rules & _TOO_EARLY.keys()))
    dropped = [one for one in group if one.rule in better and _level(one) is not Level.HARDWARE]
    return [
        replace(finding, severity="info") if finding.rule in early else _with_explained(finding, dropped)
        for finding in group
        if finding not in dropped
    ]


def _with_explained(finding: Finding, dropped: Sequence[Finding]) -> Finding:
    """Add a profile to what was inferred from outside; evidence and steps of the profile come first."""
    explained = [one for one in dropped if one.rule in RULES[finding.rule].instead_of]
    if not finding.confirmed or not explained:
        return finding
    parts = (finding, *explained)
    losses = [one.lost_share for one in explained if one.lost_share is not None]
    return replace(
        finding,
        evidence=tuple(dict.fromkeys(item for part in parts for item in part.evidence)),
        steps=tuple(dict.fromkeys(step for part in parts for step in part.steps if not _takes_profile(step))),
        since_s=max(part.since_s for part in parts),
        lost_share=max(losses) if losses else finding.lost_share,
    )


def _takes_profile(step: Step) -> bool:
    """Whether a step is to take a profile, which exists already."""
    return step.action in ("stack", "profile", "torch")


def _contradicted(well: Finding, troubles: Sequence[Finding]) -> bool:
    """Whether problems contradict a healthy finding.

    Ranks step together, so a problem of one is a problem of all. A healthy finding on GPUs alone stays for each GPU
    without a problem.
    """
    if well.subject.processes or not all(trouble.subject.gpus for trouble in troubles):
        return bool(troubles)
    return {*well.subject.gpus} <= {uuid for trouble in troubles for uuid in trouble.subject.gpus}


def _explains(finding: Finding) -> bool:
    """Whether it says why a GPU waits, or reports what a profile shows: the fallback rules are silent then."""
    rule, certain = RULES[finding.rule], finding.severity != "info" and finding.confidence >= _CERTAIN
    if rule.last or finding.healthy:
        return False
    if finding.confirmed:
        return True
    if rule.level is Level.EFFICIENCY:  # of those, the one with a lost share explains the gaps
        return finding.lost_share is not None
    return certain and rule.level <= Level.RANKS


def _explains_little(cause: Finding, starved: Finding, part: float) -> bool:
    """Whether a cause explains little of the loss: it stays separate, and another finding leads."""
    if cause.lost_share is None or starved.lost_share is None:
        return False
    return cause.lost_share < part * starved.lost_share


def _with_causes(starved: Finding, causes: list[Finding], most: Severity) -> Finding:
    """Starvation and its cause as one finding; the steps of the cause come first, unless it is a mere suspicion.

    `most`: highest severity shown, however severe the cause was on its own.
    """
    worst = max((starved, *causes), key=lambda finding: RANKS[finding.severity])
    certain = causes[0].severity != "info"
    parts = [*causes, starved] if certain else [starved, *causes]
    joint, where = "; " if certain else "; possibly ", _where(starved, causes[0])
    return replace(
        starved,
        severity=min(worst.severity, most, key=lambda severity: RANKS[severity]),
        headline=f"{starved.headline}{joint}{causes[0].headline}{where}",
        evidence=tuple(dict.fromkeys(item for part in parts for item in part.evidence)),
        steps=_cheapest_first(dict.fromkeys(step for part in parts for step in part.steps)),
        causes=(*starved.causes, *(cause.rule for cause in causes)),
        confidence=max(starved.confidence, causes[0].confidence),
        grade=next((part.grade for part in parts if part.confirmed), starved.grade),
    )


def _cheapest_first(steps: Iterable[Step]) -> tuple[Step, ...]:
    """Steps by effort: variables to set, then program changes, last what replaces software or deletes data.

    Each rule lists its own steps likeliest first; within one effort that order stays.
    """
    return tuple(sorted(steps, key=_effort))


def _effort(step: Step) -> int:
    command = step.command or ""
    if command.startswith("export ") and not step.needs_root:
        return 0
    return 2 if step.destroys or command.startswith(_REPLACES) else 1


def _where(starved: Finding, cause: Finding) -> str:
    """What the headline of a cause refers to, if that is narrower than the subject."""
    wide = cause.subject.kind in ("host", starved.subject.kind)
    return "" if wide else f" on one {'GPU' if cause.subject.kind == 'gpu' else cause.subject.kind}"


def _host_group(host: list[Finding]) -> list[Finding]:
    """Findings on the machine that are not reported as a job's cause: the worst problem leads."""
    host = sorted(host, key=_order)
    lead = next((one for one in host if one.severity != "info" and RULES[one.rule].level is not Level.NEVER), None)
    return [replace(finding, primary=True) if finding is lead else finding for finding in host]


def _level(finding: Finding) -> Level:
    rule = RULES[finding.rule]
    return rule.crit_level if rule.crit_level is not None and finding.severity == "crit" else rule.level


def _may_lead(finding: Finding, numbers: Table) -> bool:
    level = _level(finding)
    if level is Level.DEVICE:
        return (finding.lost_share or 0.0) >= numbers["clocks_cost"]
    return level is not Level.NEVER and not (level is Level.CAUSE and finding.severity == "info")


def _is_remark(finding: Finding) -> bool:
    """Whether it is informational, without a measured cost: it leads only where nothing else does."""
    return finding.severity == "info" and not finding.healthy and finding.lost_share is None


def _order(finding: Finding) -> tuple[int, int, float, int]:
    return _level(finding), -RANKS[finding.severity], -finding.confidence, RULES[finding.rule].place


def merge_abstentions(abstained: Iterable[Abstained]) -> list[Abstained]:
    """Join abstentions of one rule for the same reason."""
    found: dict[object, Abstained] = {}
    for one in abstained:
        same = (one.rule, one.missing, one.unlock, one.subject.kind, one.subject.job)
        first = found.get(same)
        if first is None:
            found[same] = one
        else:
            gpus = tuple(dict.fromkeys((*first.subject.gpus, *one.subject.gpus)))
            processes = tuple(dict.fromkeys((*first.subject.processes, *one.subject.processes)))
            found[same] = replace(first, subject=replace(first.subject, gpus=gpus, processes=processes))
    return list(found.values())
