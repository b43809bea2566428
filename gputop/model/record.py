"""How the parts of a frame are declared: frozen to the type checker, and at run time as cheap to make as can be.

A dataclass that freezes itself takes four times as long to make, of which a frame of 200 processes would spend most of
its time; what would change one in place does not pass the type checker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass as record
else:
    from dataclasses import dataclass
    from functools import partial

    def record(*, frozen, slots, kw_only):
        """A dataclass with slots that compares and hashes by its fields."""
        return partial(dataclass, slots=slots, kw_only=kw_only, unsafe_hash=frozen)


__all__ = ["record"]
