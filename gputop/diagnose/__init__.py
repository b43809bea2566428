"""Diagnosis: the rules, the engine that evaluates them, and the types that every output shares.

`gputop docs contributing` says how a rule is added. Steadying, severity over time, merging and the primary finding
belong to the engine (steadying.py, merge.py), never to a rule.
"""

from gputop.diagnose.finding import Abstained, Class, Evidence, Finding, Severity, Step, Subject

__all__ = [
    "Abstained",
    "Class",
    "Evidence",
    "Finding",
    "Severity",
    "Step",
    "Subject",
]
