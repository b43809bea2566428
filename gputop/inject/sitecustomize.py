"""The one file that `gputop run` puts first on PYTHONPATH: it starts the agent, then the sitecustomize it shadows.

It must parse under any Python, 2.7 too, and must not change what a program sees.
"""

import os
import sys


def _agent(here):  # type: ignore[no-untyped-def]
    if sys.version_info < (3, 8) or "gputop_agent" in sys.modules:
        return
    try:
        import importlib.util

        folder = os.path.join(os.path.dirname(here), "agent")
        spec = importlib.util.spec_from_file_location(
            "gputop_agent", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
        )
        module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
        sys.modules["gputop_agent"] = module
        spec.loader.exec_module(module)  # type: ignore[union-attr]
        module.lie_in_wait()
    except Exception:
        if os.environ.get("GPUTOP_AGENT_DEBUG") == "1":
            raise


def _shadowed(here):  # type: ignore[no-untyped-def]
    """Debian and conda ship one."""
    try:
        import importlib.machinery
        import importlib.util
    except ImportError:  # 2.7
        return

    # a program sees the path that it would have had; its children get it by the environment
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


_here = os.path.dirname(os.path.abspath(__file__))
_agent(_here)  # type: ignore[no-untyped-call]
_shadowed(_here)  # type: ignore[no-untyped-call]
