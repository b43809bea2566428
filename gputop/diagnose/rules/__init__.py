"""All rules. Importing this loads every one, which takes longer than any other import."""

from dataclasses import replace
from inspect import unwrap

from gputop.diagnose.rule import RULES, Rule
from gputop.diagnose.rules import cpu, device, efficiency, feed, inside, memory, meta, numerics, ranks, storage, usage

# the order in which rules are listed and evaluated; meta reports what the others cannot judge
GROUPS = (usage, feed, efficiency, cpu, storage, memory, ranks, device, inside, numerics, meta)
_ORDER = {module.__name__.rpartition(".")[2]: place for place, module in enumerate(GROUPS)}


def _turn(rule: Rule) -> tuple[bool, bool, int, int, str, int]:
    """Sort key: by group, then by the group's ORDER; rules not in it follow in source order.

    Fallback rules come after all groups but meta, to know what those could not judge.
    """
    place = _ORDER[rule.group]
    order, code = getattr(GROUPS[place], "ORDER", ()), unwrap(rule.judge).__code__
    within = order.index(rule.id) if rule.id in order else len(order)
    return rule.group == "meta", rule.last, place, within, code.co_filename, code.co_firstlineno


# in this order, whichever was imported first
for _place, _rule in enumerate(sorted(RULES.values(), key=_turn)):
    del RULES[_rule.id]
    RULES[_rule.id] = replace(_rule, place=_place)

__all__ = ["GROUPS", "RULES"]
