"""Dumps of PyTorch's flight recorder made up by hand, in the structure of FlightRecorderDetail.hpp, version 2.10."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable
from typing import Any

from gputop.collectives.comparison import RankRecord
from gputop.collectives.flight_record import from_pickle

TORCH = "/usr/lib/python3/site-packages/torch/distributed/distributed_c10d.py"


def entry(number: int, name: str = "all_reduce", state: str = "completed", **more: Any) -> dict[str, Any]:
    """One collective, by default of the group of all ranks and complete; `line` is where train.py calls it."""
    line = more.pop("line", 88)
    sizes, dtype = more.pop("sizes", [[4096]]), more.pop("dtype", "Float")
    backend, group = more.pop("backend", "nccl"), more.pop("group", ("0", "default_pg"))
    frames = [
        {"name": name, "filename": TORCH, "line": 3245},
        {"name": "step", "filename": "/home/a/train.py", "line": line},
        {"name": "<module>", "filename": "/home/a/train.py", "line": 200},
    ]
    return {
        "frames": frames, "record_id": number, "pg_id": int(group[0]) if group[0].isdecimal() else 0,
        "process_group": group, "thread_name": "python",
        "thread_id": "1404", "collective_seq_id": number, "p2p_seq_id": 0, "op_id": number,
        "profiling_name": f"{backend}:{name}", "time_created_ns": 1_795_789_308_106_016_785, "input_sizes": sizes,
        "input_dtypes": [dtype] * len(sizes), "output_sizes": sizes, "output_dtypes": [dtype] * len(sizes),
        "state": state, "time_discovered_started_ns": None, "time_discovered_completed_ns": None,
        "retired": state == "completed", "timeout_ms": 600_000, "is_p2p": False, **more,
    }  # fmt: skip


def peer(name: str, number: int, state: str = "scheduled", **more: Any) -> dict[str, Any]:
    """A point-to-point operation: `send 1->2`."""
    return entry(0, name, state, is_p2p=True, p2p_seq_id=number, **more)


def dump(*entries: dict[str, Any], ranks: Iterable[int] = range(4), **more: Any) -> dict[str, Any]:
    """The dump of a rank in which the group of all ranks has these; `groups`: ranks of further groups by name."""
    groups = {"0": list(ranks), **more.pop("groups", {})}
    config = {name: {"name": name, "desc": "", "ranks": str(some)} for name, some in groups.items()}
    own = [one for one in entries if one["pg_id"] == 0 and not one["is_p2p"]]
    entered = max((one["collective_seq_id"] for one in own), default=0)
    done = max((one["collective_seq_id"] for one in own if one["state"] == "completed"), default=0)
    status = {"0": {"last_enqueued_collective": entered, "last_started_collective": entered,
                    "last_completed_collective": done}}  # fmt: skip
    return {"version": "2.10", "pg_config": config, "comm_lib_version": "2.27.5", "pg_status": status,
            "entries": list(entries), **more}  # fmt: skip


def pickled(*entries: dict[str, Any], **more: Any) -> bytes:
    """The same as torch writes it."""
    return pickle.dumps(dump(*entries, **more), protocol=2)


def as_json(*entries: dict[str, Any], **more: Any) -> bytes:
    """The same as the debug server returns it: without frames, numbers of the status as text."""
    found = dump(*[{key: value for key, value in one.items() if key != "frames"} for one in entries], **more)
    found["pg_status"] = {
        name: {key: str(value) for key, value in status.items()} for name, status in found["pg_status"].items()
    }
    return json.dumps(found).encode()


def records(*dumps: bytes) -> list[RankRecord]:
    """The records of ranks 0, 1, ... from their dumps."""
    return [RankRecord(rank, f"rank {rank}", from_pickle(one)) for rank, one in enumerate(dumps)]


def until(number: int, *more: dict[str, Any], first: int = 1) -> tuple[dict[str, Any], ...]:
    """Complete collectives up to this one, then others."""
    return (*(entry(each) for each in range(first, number + 1)), *more)
