"""The manual for assistants: one rule in full as a tool; glossary, rules and pages as resources."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gputop import docs, thresholds
from gputop.diagnose.rules import RULES
from gputop.docs.rules import rule_list, whole_page
from gputop.frozen_dataclass import frozen_dataclass
from gputop.mcp.tool import Answer, AssistantTool, ToolFailure, text
from gputop.suggest import unknown

SCHEME = "gputop://"
PAGES = ("glossary", "diagnosis", "metrics", "profilers", "loader", "memory", "lab", "doctor", "faults", "mcp")


@frozen_dataclass(frozen=True, slots=True)
class ManualPage:
    """A page that an assistant may read: text in Markdown."""

    uri: str
    title: str
    read: Callable[[], str]


def manual_pages() -> Mapping[str, ManualPage]:
    """The pages by their URI."""
    titles = dict(docs.topics())
    pages = [ManualPage(f"{SCHEME}rules", "Every rule with its question", lambda: f"{rule_list()}\n")]
    pages += [ManualPage(f"{SCHEME}docs/{name}", titles[name], lambda name=name: docs.read(name)) for name in PAGES]  # type: ignore[misc]
    return {page.uri: page for page in pages}


def manual_tools(limits: thresholds.Thresholds) -> tuple[AssistantTool, ...]:
    """The tools; `limits` are the thresholds in effect."""

    def run(rule: str) -> Answer:
        if rule not in RULES:
            raise ToolFailure(unknown("rule", rule, RULES, f"the resource {SCHEME}rules lists them"))
        return {"rule": rule, "report": whole_page(rule, limits)}

    return (
        AssistantTool(
            name="explain_rule",
            title="A diagnosis rule in full",
            description="What a rule of get_findings checks, the metrics it needs, and its thresholds with their "
            "sources. Use it to judge whether a finding applies, or why a check was skipped.",
            arguments={"rule": {**text("Id of the rule: the field rule of a finding."), "maxLength": 80}},
            needed=("rule",),
            answer={"rule": text("Id of the rule."), "report": text("The rule in Markdown.")},
            run=run,
        ),
    )
