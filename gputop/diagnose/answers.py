"""What the rules say of a trainer at this look, as answers to their questions."""

from __future__ import annotations

from collections.abc import Sequence

from gputop.diagnose.concerns import concerns
from gputop.diagnose.finding import Abstained, Finding, Subject
from gputop.diagnose.trainer import Trainer

_NO = "no"
Asked = tuple[str, str]  # a question, and its answer with the value it rests on


class Answers:
    """The findings on the screen, before any is taken up by another one, and who could not judge."""

    def __init__(self, findings: Sequence[Finding], abstained: Sequence[Abstained]) -> None:
        self._findings, self._abstained = findings, abstained

    def of(self, trainer: Trainer, rule: str) -> Asked:
        """The question of a rule, with its evidence where it says yes, with what it lacks where it cannot say."""
        from gputop.diagnose.rules import RULES  # late: to load them takes longer than anything else here

        question = RULES[rule].question
        return f"{question[0].lower()}{question[1:]}", self._answer(trainer, rule)

    def denies(self, trainer: Trainer, rule: str) -> bool:
        """Whether the answer of a rule is no: one that cannot say does not."""
        return self._answer(trainer, rule) == _NO

    def _answer(self, trainer: Trainer, rule: str) -> str:
        for finding in self._findings:
            if finding.rule == rule and _decides(finding.subject, trainer):
                return ", ".join(("yes", *(item.text for item in finding.evidence[:1])))
        for silent in self._abstained:
            if silent.rule == rule and _decides(silent.subject, trainer):
                return "not known" + "".join(f", no {missing.metric}" for missing in silent.missing[:1])
        return _NO


def _decides(subject: Subject, trainer: Trainer) -> bool:
    # what is asked of the machine has one answer, whoever suffers from it; what other ranks do is not its own
    return subject.kind == "host" or concerns(subject, (trainer.identity,), trainer.uuids)
