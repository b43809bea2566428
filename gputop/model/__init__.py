"""The contract: what is known about GPUs, processes, jobs and the host. Immutable, standard library only."""

from gputop.model.detail import (
    PARTS,
    Detail,
    File,
    FileKind,
    Io,
    Limit,
    LimitUnit,
    Memory,
    Overview,
    Part,
    Relative,
    Thread,
    Variable,
)
from gputop.model.fact import Fact, Witness
from gputop.model.frame import Frame, Note
from gputop.model.gpu import Condition, Engine, Gpu, Samples, Series, Throttle, Xid
from gputop.model.host import Cgroup, Disk, Host, Mount, Network, Node, Pressure
from gputop.model.links import NvLink, PcieErrors
from gputop.model.metric import Metric, Missing, Reason, Unit, metric, metrics
from gputop.model.process import GpuShare, Identity, Job, Kind, Process, Role, Unseen

__all__ = [
    "PARTS",
    "Cgroup",
    "Condition",
    "Detail",
    "Disk",
    "Engine",
    "Fact",
    "File",
    "FileKind",
    "Frame",
    "Gpu",
    "GpuShare",
    "Host",
    "Identity",
    "Io",
    "Job",
    "Kind",
    "Limit",
    "LimitUnit",
    "Memory",
    "Metric",
    "Missing",
    "Mount",
    "Network",
    "Node",
    "Note",
    "NvLink",
    "Overview",
    "Part",
    "PcieErrors",
    "Pressure",
    "Process",
    "Reason",
    "Relative",
    "Role",
    "Samples",
    "Series",
    "Thread",
    "Throttle",
    "Unit",
    "Unseen",
    "Variable",
    "Witness",
    "Xid",
    "metric",
    "metrics",
]
