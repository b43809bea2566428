"""The agent: loaded into a training process, it answers gputop on a private socket and costs nothing until it is asked.

Standard library only, Python 3.8 and newer, Linux; anywhere else it does nothing. It is in a process because
`gputop run` or `gputop env` arranged for it, because the program says `import gputop.agent`, or by `sys.remote_exec`.
However it comes, it is the module `gputop_agent`, once a process.
"""

from __future__ import annotations

import sys

if __name__ == "gputop_agent":
    from .life import lie_in_wait, start
    from .marks import mark, note
else:
    _spec = None
    if "gputop_agent" not in sys.modules:
        from importlib.util import module_from_spec, spec_from_file_location
        from pathlib import Path

        _spec = spec_from_file_location(
            "gputop_agent", __file__, submodule_search_locations=[str(Path(__file__).parent)]
        )
        assert _spec is not None
        assert _spec.loader is not None
        sys.modules["gputop_agent"] = module_from_spec(_spec)
        _spec.loader.exec_module(sys.modules["gputop_agent"])
    sys.modules["gputop_agent"].start("import")
    sys.modules[__name__] = sys.modules["gputop_agent"]

__all__ = ["lie_in_wait", "mark", "note", "start"]
