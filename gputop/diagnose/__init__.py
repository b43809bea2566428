"""Diagnosis: the rules, the engine that evaluates them, and the types that every output shares.

How to add a rule:

1. Write a function in the module of its group, under `@rule(id, question, level=..., needs=..., state=...,
   short=...)`. It takes a `View` and yields findings. Ids and groups are fixed by the documentation; `number` and
   `rows` are its place there. `Level` ranks it among the rules of a job; `last=True`: reported only if no other rule
   says why a GPU waits.
2. Put its numbers into a table of that id in thresholds.toml, each with its source. `window_s` (the measuring
   window) and `on_s` (how long it must hold before it is shown) are needed only where they differ from 30.
3. Iterate over `view.gpus()`, `view.trainers()` or `view.jobs()`, or use `view.host()`. A `Trainer` is the feature
   vector of one training process over 30 s; `view.mean` and `view.window` give other windows.
4. Check each metric it needs with `view.knows(thing, "metric", ...)`: an unreadable metric becomes an abstention.
   The declaration lists each of these metrics, as the manual does: in `needs` if nothing can be found without it, in
   `partly` if only a part depends on it. tests/diagnose/test_rules_needs.py checks that.
5. Compare with `view.above(value, "name")` and `view.below(value, "name")`. An unknown value is neither, and a shown
   finding clears only when the value is clearly back. Use plain `<` only for values that cannot flicker.
6. Yield `view.found(thing, severity, headline, evidence=..., steps=..., confidence=...)`. The headline follows the
   name of the subject; evidence has the numbers and their limits; the best step comes first.
7. Add three cases to tests/diagnose/test_rules_GROUP.py (firing, near miss, abstaining) and a scenario to
   demo/scenarios.

Steadying, severity over time, merging and the primary finding belong to the engine (steadying.py, merge.py), never to a
rule.
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
