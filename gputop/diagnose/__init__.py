"""What is wrong, why, and what to do: the rules, the engine that asks them, and the types every sink shares.

How to add a rule:

1. A function in the module of its group, under `@rule(id, question, level=..., needs=..., state=..., short=...)`. It
   takes a `View` and yields findings. Ids and groups are fixed by the documentation, `number` and `rows` say where it
   stands in it; `Level` says what comes first; `last=True`: told only where no other rule says why a GPU waits.
2. Its numbers in a table of that id in thresholds.toml, each with its source: `window_s` (what it measures over) and
   `on_s` (how long it must hold before it is shown) only where they are not 30.
3. It steps through `view.gpus()`, `view.trainers()`, `view.jobs()` or looks at `view.host()`. A `Trainer` is the
   feature vector of one training process over 30 s; other windows come from `view.mean` and `view.window`.
4. What it needs it asks for with `view.knows(thing, "metric", ...)`: what cannot be read becomes an abstention.
   Its declaration names each of these signals, as the manual does: in `needs` where nothing is ever found without it,
   in `partly` where only something is not; tests/diagnose/test_rules_needs.py holds it to that.
5. It compares with `view.above(value, "name")` and `view.below(value, "name")`: an unknown value is neither, and a
   finding that is on the screen leaves only when the value is clearly back. Plain `<` is for what cannot flicker.
6. It yields `view.found(thing, severity, headline, evidence=..., steps=..., confidence=...)`. The headline follows
   the subject's name; evidence has the numbers and their limits, steps the best first.
7. Three cases in tests/test_rules_GROUP.py (firing, near miss, abstaining), and a scenario in demo/scenarios.

Steadying, severity over time, folding and the primary finding are the engine's (steady.py, fold.py): no rule does any.
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
