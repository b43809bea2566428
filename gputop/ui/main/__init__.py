"""The main screen: the panes, and what every key does to them.

What only a key opens is imported when it is pressed, `# late` in these modules: the first frame comes that much sooner.
"""

from __future__ import annotations

from typing import ClassVar

from textual.binding import BindingType

from gputop.ui.keys import bindings
from gputop.ui.main.acting import Acting
from gputop.ui.main.doing import Doing
from gputop.ui.main.looking import Looking
from gputop.ui.main.measuring import Measuring
from gputop.ui.main.moving import Moving
from gputop.ui.main.opening import Opening
from gputop.ui.main.picking import Picking
from gputop.ui.main.profiling import Profiling
from gputop.ui.main.replaying import Replaying
from gputop.ui.main.sorting import Sorting
from gputop.ui.main.taking import Taking
from gputop.ui.main.taping import Taping


class Main(
    Moving,
    Sorting,
    Looking,
    Measuring,
    Opening,
    Profiling,
    Acting,
    Doing,
    Picking,
    Taking,
    Taping,
    Replaying,
    inherit_bindings=False,
):
    """GPUs above, jobs below, advice under them, the host beside them where there is room."""

    BINDINGS: ClassVar[list[BindingType]] = bindings.on("main")
    CSS = "Main Lines { position: absolute; display: none; width: 1; height: 1; }"
