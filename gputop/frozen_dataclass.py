"""Value types: compared by field, frozen for the type checker only.

A dataclass with freezing, comparison, hashing and repr compiles seven functions at import, which for all of gputop
takes as long as importing Textual; freezing at run time makes construction four times as slow. Here only `__init__` is
compiled; the rest is shared. The type checker rejects assignments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass as frozen_dataclass
else:
    from dataclasses import dataclass, fields
    from operator import attrgetter

    def frozen_dataclass(*, frozen, slots=False, kw_only=False):
        """A dataclass whose values are compared by field."""
        assert frozen, "what changes is a dataclass"

        def declare(plain):
            made = dataclass(plain, slots=slots, kw_only=kw_only, repr=False, eq=False)
            compared = [field.name for field in fields(made) if field.compare]
            made._compared = attrgetter(*compared) if compared else type
            for name, same in _SAME.items():
                if name not in plain.__dict__:
                    setattr(made, name, same)
            return made

        return declare

    def _equal(self, other):
        if self.__class__ is not other.__class__:
            return NotImplemented
        return self._compared(self) == self._compared(other)

    def _hash(self):
        return hash(self._compared(self))

    def _shown(self):
        told = (f"{field.name}={getattr(self, field.name)!r}" for field in fields(self) if field.repr)
        return f"{self.__class__.__qualname__}({', '.join(told)})"

    _SAME = {"__eq__": _equal, "__hash__": _hash, "__repr__": _shown}

__all__ = ["frozen_dataclass"]
