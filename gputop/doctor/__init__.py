"""gputop doctor: what works on this machine, what does not, and the command that unlocks each."""

from __future__ import annotations

from gputop.doctor import advice, container, driver, kernel, python, terminal, tools  # noqa: F401  their checks
from gputop.doctor.check import GROUPS, STATUSES, checks
from gputop.doctor.machine import DoctorContext
from gputop.doctor.report import as_json, render, run_checks

__all__ = ["GROUPS", "STATUSES", "DoctorContext", "as_json", "checks", "render", "run_checks"]
