"""The contract: what is known about GPUs, processes, jobs and the host. Immutable, standard library only."""

from gputop.model.frame import Frame, Note
from gputop.model.gpu import Condition, Gpu, Samples, Throttle, Xid
from gputop.model.host import Cgroup, Disk, Host, Mount, Network, Node, Pressure
from gputop.model.metric import Metric, Missing, Reason, Unit, metric, metrics
from gputop.model.process import GpuShare, Identity, Job, Kind, Process, Role, Unseen

__all__ = [
    "Cgroup",
    "Condition",
    "Disk",
    "Frame",
    "Gpu",
    "GpuShare",
    "Host",
    "Identity",
    "Job",
    "Kind",
    "Metric",
    "Missing",
    "Mount",
    "Network",
    "Node",
    "Note",
    "Pressure",
    "Process",
    "Reason",
    "Role",
    "Samples",
    "Throttle",
    "Unit",
    "Unseen",
    "Xid",
    "metric",
    "metrics",
]
