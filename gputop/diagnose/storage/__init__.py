"""Rules about storage: disks and file servers that are too slow, a cold cache, checkpoints, a full /dev/shm."""

from gputop.diagnose.storage import bound, network

# isort: split
from gputop.diagnose.storage import cold, small  # after these, of whose findings they say more

# isort: split
from gputop.diagnose.storage import full, saves

__all__ = ["bound", "network", "cold", "small", "saves", "full"]  # noqa: RUF022  in which their rules are asked
