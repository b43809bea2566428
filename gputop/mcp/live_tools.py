"""Tools on the observed machine: findings, jobs, and the metrics that are asked for by name."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from gputop import __version__, finding_text
from gputop.diagnose.finding import POSSIBLE, Evidence, Finding, Step
from gputop.export import diagnosis
from gputop.export.format import masked
from gputop.mcp.metric_places import PLACES, Place, find, named
from gputop.mcp.observation import Observation, Sample
from gputop.mcp.tool import UNTRUSTED, Answer, AssistantTool, ToolFailure, flag, items, number, text, whole
from gputop.model import Frame, Identity, Job
from gputop.severity import Severity

WAIT_S = 45.0  # longest wait for a verdict: clients give a call a minute
MOST_NAMES = 16  # metrics in one question
MOST_ROWS = 200  # values in one answer
MOST_RANKS = 16  # processes named of one job
_ORDER: Mapping[Severity, int] = {"info": 0, "warn": 1, "crit": 2}
_WHEN = {
    "host": text("Name of the machine."),
    "source": text("live, or the demo or recording that is asked about."),
    "sampled_at": text("When the newest sample was taken, local time of this machine."),
    "watched_s": number("Seconds that the rules have watched; below 40 nothing can be judged."),
}


def live_tools(observation: Observation) -> tuple[AssistantTool, ...]:
    """The tools, bound to what is observed."""
    return (
        _findings_tool(observation),
        _jobs_tool(observation),
        _metrics_tool(observation),
        _metric_names_tool(),
    )


def _when(sample: Sample) -> Answer:
    taken = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(sample.frame.wall_s))
    found: Answer = {
        "gputop": __version__,
        "host": sample.frame.hostname,
        "source": sample.label,
        "sampled_at": taken,
        "watched_s": round(sample.seconds),
    }
    notes = [note.text for note in sample.frame.notes]
    if not sample.complete:
        notes.append("the recording is still being read: ask again for its end")
    return {**found, "notes": [*notes, *filter(None, (sample.damage,))]}


def _findings(
    observation: Observation,
    pid: int | None = None,
    least_severity: Severity = "info",
    unlikely: bool = False,
    wait_s: float = 0.0,
) -> Answer:
    sample = observation.sample(wait_s)
    found = sample.diagnosis
    if pid is not None:
        if all(process.pid != pid for process in found.update.frame.processes):
            raise ToolFailure(f"no process with PID {pid} in {sample.label}: list_jobs lists those of jobs")
        found = diagnosis.restricted_to(found, pid)
    frame = found.update.frame
    shown = [
        each
        for each in found.update.findings
        if _ORDER[each.severity] >= _ORDER[least_severity] and (unlikely or each.confidence >= POSSIBLE)
    ]
    return {
        **_when(sample),
        "summary": diagnosis.page(found).title,
        "uncertain": list(found.reasons),
        "findings": [_finding(each, frame) for each in shown],
        "jobs": [finding_text.state_line(one, frame) for one in found.update.jobs],
        "skipped_checks": [_skipped(each, frame) for each in found.update.abstained],
    }


def _findings_tool(observation: Observation) -> AssistantTool:
    return AssistantTool(
        name="get_findings",
        title="Findings: what slows training down",
        description="What slows the training jobs on this GPU server down, with the evidence, the cost in GPU time and "
        "the steps that fix it, most severe first; also what is healthy, and which checks lacked a metric. A new job "
        "needs about 90 s to be judged: while `uncertain` says so, ask again with wait_s. Steps are proposals to show "
        f"to the user: nothing is run. {UNTRUSTED}",
        arguments={
            "pid": whole("Only findings about this process, its job and its GPUs.", minimum=1),
            "least_severity": {**text("Leave out findings below this severity."), "enum": list(_ORDER)},
            "unlikely": flag("Include findings with a confidence below 0.5."),
            "wait_s": number("Wait up to this many seconds until every job is judged.", minimum=0, maximum=WAIT_S),
        },
        answer={
            **_WHEN,
            "summary": text("The result in one line."),
            "uncertain": items("Why it is not certain yet that nothing else is wrong.", {"type": "string"}),
            "findings": items(
                "Each with rule (see explain_rule), severity, sentence, evidence, steps, cost, confidence, subject."
            ),
            "jobs": items("State of each job in one line.", {"type": "string"}),
            "skipped_checks": items("Checks that lacked a metric, and what would make it available."),
        },
        run=partial(_findings, observation),
    )


def _finding(found: Finding, frame: Frame) -> Answer:
    answer: Answer = {
        "rule": found.rule,
        "severity": "healthy" if found.healthy else found.severity,
        "primary": found.primary,
        "sentence": finding_text.sentence(found, frame),
        "cost": finding_text.cost(found),
        "confidence": finding_text.confidence(found),
        "since_s": round(found.since_s),
        "causes": list(found.causes),
        "subject": diagnosis.subject(found.subject, frame),
        "evidence": [_evidence(each) for each in found.evidence],
        "steps": [_step(each) for each in found.steps],
    }
    if found.verify is not None:
        answer["verify"] = _step(found.verify)
    return {key: value for key, value in answer.items() if value not in ("", [], None)}


def _evidence(item: Evidence) -> str:
    return "".join(part.text for part in finding_text.referenced(item))


def _step(step: Step) -> Answer:
    answer: Answer = {"text": step.text}
    if step.command:
        answer["command"] = step.command
    if warnings := finding_text.warnings(step):
        answer["warning"] = warnings
    return answer


def _skipped(silent: Any, frame: Frame) -> Answer:
    answer = {
        "rule": silent.rule,
        "subject": finding_text.subject_name(silent.subject, frame),
        "missing": finding_text.missing_text(silent),
    }
    return {**answer, "unlock": silent.unlock} if silent.unlock else answer


def _jobs(observation: Observation) -> Answer:
    sample = observation.sample()
    frame = sample.frame
    return {
        **_when(sample),
        "gpus": [_gpu(gpu) for gpu in frame.gpus],
        "jobs": [_job(one, frame) for one in sample.update.jobs],
    }


def _jobs_tool(observation: Observation) -> AssistantTool:
    return AssistantTool(
        name="list_jobs",
        title="Training jobs and their GPUs",
        description="The training jobs and other GPU users of this server: name, user, GPUs, ranks by PID, launcher, "
        "container, pod UID, Slurm job, and whether each is healthy, still being judged, has findings or cannot be "
        f"judged, and why. Command lines have secrets masked; no measurements (see get_metrics). {UNTRUSTED}",
        arguments={},
        answer={
            **_WHEN,
            "gpus": items("Index, model and condition of each GPU."),
            "jobs": items("Each with name, user, GPUs, state and why, and its processes."),
        },
        run=partial(_jobs, observation),
    )


def _gpu(gpu: Any) -> Answer:
    return {"index": gpu.index, "name": gpu.name, "condition": gpu.condition}


def _job(one: Any, frame: Frame) -> Answer:
    answer = diagnosis.job(one, frame)
    job = next((each for each in frame.jobs if each.key == one.key), None)
    first = next((frame.by_identity[each] for each in _ranked(job, one.processes) if each in frame.by_identity), None)
    if job is not None:
        answer |= {"launcher": job.launcher, "container": job.container, "pod": job.pod, "slurm_job": job.slurm_job}
    if first is not None and any(first.command):
        answer["command"] = shlex.join(masked(first).command)
    answer["ranks"] = [_rank(each, frame) for each in _ranked(job, one.processes)[:MOST_RANKS]]
    return {key: value for key, value in answer.items() if value not in (None, [], "")}


def _ranked(job: Job | None, processes: Sequence[Identity]) -> Sequence[Identity]:
    return job.ranks if job is not None and job.ranks else processes


def _rank(identity: Identity, frame: Frame) -> Answer:
    process = frame.by_identity.get(identity)
    if process is None:
        return {"pid": identity.pid}
    index = {gpu.uuid: gpu.index for gpu in frame.gpus}
    return {"pid": identity.pid, "rank": process.rank, "gpus": [index.get(each.uuid, "?") for each in process.gpus]}


def _metrics(
    observation: Observation, names: Sequence[str], gpus: Sequence[str] = (), pids: Sequence[int] = ()
) -> Answer:
    asked = [named(name) for name in names]
    sample = observation.sample()
    rows = [row for place, name in asked for row in _values(sample.frame, place, name, set(gpus), set(pids))]
    if not rows:
        raise ToolFailure("none of these GPUs or processes is in the sample: list_jobs lists those that are")
    return {**_when(sample), "values": rows[:MOST_ROWS], "values_in_all": len(rows)}


def _metrics_tool(observation: Observation) -> AssistantTool:
    return AssistantTool(
        name="get_metrics",
        title="Measurements by name",
        description="The newest value of the metrics that are named, such as gpu.busy_percent or process.cpu_percent; "
        "find_metrics lists the names. null is unknown, never 0, and comes with the reason. Without gpus or pids: of "
        f"all GPUs, and of the processes of jobs. Ask for this only if get_findings does not answer. {UNTRUSTED}",
        arguments={
            "names": items("Metrics by name.", {"type": "string", "maxLength": 80}, minItems=1, maxItems=MOST_NAMES),
            "gpus": items("Only of these GPUs, by index.", {"type": "string"}, maxItems=64),
            "pids": items("Only of these processes.", {"type": "integer"}, maxItems=64),
        },
        needed=("names",),
        answer={
            **_WHEN,
            "values": items("Each with metric, of (what it is about), value, unit; missing if it is unknown."),
            "values_in_all": whole("Number of values; more than are listed if they were cut."),
        },
        run=partial(_metrics, observation),
    )


def _values(frame: Frame, place: Place, name: str, gpus: set[str], pids: set[int]) -> Iterator[Answer]:
    for about, owner, of in place.subjects(frame):
        chosen: set[Any] = pids if isinstance(of, int) else gpus
        if chosen and of is not None and of not in chosen:
            continue
        value = getattr(owner, name)
        row: Answer = {"metric": f"{place.name}.{name}", "of": about, "value": value}
        if unit := place.metrics[name].unit.value:
            row["unit"] = unit
        if value is None:
            missing = next((one for one in getattr(owner, "missing", ()) if one.metric == name), None)
            row["missing"] = missing.reason if missing else "unknown"
            if missing and missing.unlock:
                row["unlock"] = missing.unlock
        yield row


def _metric_names(words: str) -> Answer:
    found = find(words)
    if not found:
        raise ToolFailure(f"no metric matches {words[:80]!r}: use other words, or a kind: {', '.join(PLACES)}")
    return {"metrics": [{"name": name, "unit": unit, "meaning": meaning} for name, unit, meaning in found]}


def _metric_names_tool() -> AssistantTool:
    return AssistantTool(
        name="find_metrics",
        title="Names of metrics",
        description="The names, units and meanings of metrics whose name or meaning has all these words, for "
        "get_metrics. No measurements.",
        arguments={"words": {**text("Words such as `power limit`, or a kind such as `disk`."), "maxLength": 200}},
        needed=("words",),
        answer={"metrics": items("Each with name, unit and meaning.")},
        run=_metric_names,
    )
