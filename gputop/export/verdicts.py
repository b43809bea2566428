"""Findings and abstentions in the shape that `gputop diagnose --json` promises to keep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gputop.diagnose import Abstained, Class, Evidence, Finding, Step, Subject
from gputop.model import Frame
from gputop.safe.text import redact

if TYPE_CHECKING:
    from gputop.diagnose.state import JobState


def finding(found: Finding, frame: Frame) -> dict[str, Any]:
    """A finding; its GPUs by index and its processes by pid, as people name them."""
    return {
        "rule": found.rule,
        "severity": found.severity,
        "healthy": found.healthy,
        "primary": found.primary,
        "causes": list(found.causes),
        "confidence": found.confidence,
        "grade": found.grade,
        "subject": subject(found.subject, frame),
        "headline": redact(found.headline),
        "evidence": [_evidence(item) for item in found.evidence],
        "steps": [_step(item) for item in found.steps],
        "verify": None if found.verify is None else _step(found.verify),
        "since_s": found.since_s,
        "lost_share": found.lost_share,
        "state": found.state,
    }


def abstained(silent: Abstained, frame: Frame) -> dict[str, Any]:
    """A rule that could not judge, and why."""
    return {
        "rule": silent.rule,
        "subject": subject(silent.subject, frame),
        "missing": [{"metric": missing.metric, "reason": missing.reason} for missing in silent.missing],
        "unlock": silent.unlock,
    }


def subject(about: Subject, frame: Frame) -> dict[str, Any]:
    """What it is about; a GPU that left the frame keeps its uuid."""
    gpus = frame.by_uuid
    return {
        "kind": about.kind,
        "gpus": [gpus[uuid].index if uuid in gpus else uuid for uuid in about.gpus],
        "pids": [identity.pid for identity in about.processes],
        "job": about.job,
        **({"jobs": list(about.jobs)} if about.jobs else {}),
        "host": frame.hostname,
    }


def _evidence(item: Evidence) -> dict[str, Any]:
    return {"text": redact(item.text), "value": item.value, "unit": item.unit, "limit": item.limit}


def _step(step: Step) -> dict[str, Any]:
    return {
        "text": step.text,
        "command": step.command,
        "action": step.action,
        "needs_root": step.needs_root,
        "destroys": step.destroys,
    }


def job(one: JobState, frame: Frame) -> dict[str, Any]:
    """The state of a job, or of another user of GPUs; its GPUs by index."""
    gpus = frame.by_uuid
    return {
        "key": one.key,
        "name": redact(one.name),
        "user": one.user,
        "gpus": [gpus[uuid].index if uuid in gpus else uuid for uuid in one.gpus],
        "state": one.state,
        "judged_in_s": one.judged_in_s,
        "why": redact(one.why),
    }


def host(one: JobState | None) -> dict[str, Any] | None:
    """The state of the machine; nothing before the rules were asked."""
    return None if one is None else {"state": one.state, "judged_in_s": one.judged_in_s, "why": redact(one.why)}


def task(found: Class) -> dict[str, Any]:
    """The class of a process, and the questions that led there."""
    path = [{"question": question, "answer": answer} for question, answer in found.path]
    return {"pid": found.pid, "class": found.name, "margin": found.margin, "path": path}
