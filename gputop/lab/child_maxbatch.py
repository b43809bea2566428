"""Try one batch size in the user's own Python: standard library and torch only, Python 3.8 and later.

It is started by path, as child_request.py says. One process makes one try, so that a failed one leaves nothing behind:
no fragments in torch's pools, no partial graph. child_model.py documents what the function may return.
"""

from __future__ import annotations

import os
import re
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # it may be absent (PYTHONSAFEPATH); see child_request
import child_model
from child_request import make, run

LEFT = 0.1  # of the memory available to a try on the CPU, left for others on the machine
CGROUPS = (  # control groups v2 and v1: folder, limit, and use
    ("/sys/fs/cgroup", "memory.max", "memory.current"),
    ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
)


def answer(pipe, torch, request):
    """Describe the device, or run some steps with one batch size."""
    if request["mode"] == "device":
        pipe.say("ready")
        pipe.say("done", **device(torch))
        return
    die_first()
    limit = None if torch.cuda.is_available() else confined()
    training = child_model.training(torch, make(request), request)
    batch = child_model.resized(next(training.batches()), request["batch"])
    pipe.say("ready", torch=str(torch.__version__), device=training.device.type, limit_bytes=limit)
    pipe.say("done", **tried(pipe, torch, training, batch, request))


def device(torch):
    """The GPU of the steps, by its driver's identifiers; allocates no memory on it."""
    if not torch.cuda.is_available():
        return {"device": "cpu", "uuid": None, "name": None}
    properties = torch.cuda.get_device_properties(0)
    uuid = str(getattr(properties, "uuid", "")).replace("GPU-", "")
    return {"device": "cuda", "uuid": "GPU-" + uuid if uuid else None, "name": properties.name}


def tried(pipe, torch, training, batch, request):
    """Some complete training steps, or forward passes: the first creates the optimizer state, the next include it."""
    inference, times = request["inference"], []
    placed = training.placed(batch)
    if inference and training.model is not None:
        training.model.eval()
    for number in range(request["steps"]):
        before = time.perf_counter()
        if inference:
            with torch.no_grad():
                training.infer(placed)
        else:
            training.run(placed)
        training.synchronize()
        times.append(time.perf_counter() - before)
        pipe.progress(number + 1)
    found = {"step_s": min(times[1:] or times)}
    found.update(child_model.peaks(torch, training.device))
    return found


def die_first():
    """Make this process the first to be killed if the machine runs out of memory."""
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")
    except OSError:
        pass


def confined():
    """Limit this process to available memory, so that others do not run short: the limit in bytes, or None."""
    try:
        import resource

        left = available()
        if left is None:
            return None
        left = int(left * (1 - LEFT))
        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        wanted = data_bytes() + left
        for limit in (soft, hard):
            if limit != resource.RLIM_INFINITY:
                wanted = min(wanted, limit)
        resource.setrlimit(resource.RLIMIT_DATA, (wanted, hard))
        space, used = resource.getrlimit(resource.RLIMIT_AS)[0], status_bytes("VmSize")
        return left if space == resource.RLIM_INFINITY else min(left, max(0, space - used))
    except (ImportError, OSError, ValueError):
        return None


def available():
    """Bytes available without swapping and within each limiting control group; None if unknown."""
    found = [number_in("/proc/meminfo", r"^MemAvailable:\s+(\d+) kB", 1024)]
    try:
        with open("/proc/self/cgroup") as file:
            groups = [line.strip().split(":", 2) for line in file]
    except OSError:
        groups = []
    for _, controllers, path in (group for group in groups if len(group) == 3):
        if controllers and "memory" not in controllers.split(","):
            continue
        root, most, used = CGROUPS[1 if controllers else 0]
        while True:
            folder = root + path.rstrip("/")
            limit = number_in(os.path.join(folder, most), r"^(\d+)$")
            taken = number_in(os.path.join(folder, used), r"^(\d+)$")
            cache = number_in(os.path.join(folder, "memory.stat"), r"^(?:total_)?inactive_file (\d+)")
            if limit is not None and taken is not None:
                found.append(max(0, limit - taken + (cache or 0)))
            if path in ("/", ""):
                break
            path = os.path.dirname(path)
    known = [one for one in found if one is not None]
    return min(known) if known else None


def data_bytes():
    """Bytes that count toward RLIMIT_DATA now."""
    return status_bytes("VmData")


def status_bytes(name):
    """A line of this process's status, in bytes; 0 if absent."""
    return number_in("/proc/self/status", r"^%s:\s+(\d+) kB" % name, 1024) or 0


def number_in(path, pattern, factor=1):
    """The number in a matching line of a file; None if absent."""
    try:
        with open(path) as file:
            found = re.search(pattern, file.read(), re.MULTILINE)
    except (OSError, UnicodeDecodeError):
        return None
    return int(found.group(1)) * factor if found else None


if __name__ == "__main__":
    run(answer)
