"""Time training steps in one precision, in the user's own Python: standard library and torch, Python 3.8 and later.

It is started by path, as child_request.py says. One process makes one run: nothing that torch caches, compiles or
allocates reaches the next one. child_model.py documents what the user's function may return.
"""

from __future__ import annotations

import math
import os
import sys
import time
from contextlib import ExitStack

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # it may be absent (PYTHONSAFEPATH); see child_request
import child_model
from child_request import SHORT, Wrong, make, run

COMPILES_S = 900.0  # longest wait for a compilation
ALONE_STEPS, ALONE_S = 20, 3.0  # of the last batch without its loader, or as many as fit into that time
PAIRS, PAIRS_S = 60, 6.0  # steps of both batch sizes, or as many as fit into that time
CEILING_S = 0.5  # for each one
COPIED_BYTES = 256 << 20  # larger than any cache
COPIED_BYTES_CPU = 64 << 20
TF32_SINCE = (8, 0)  # compute capability
WIDEST = {"cuda": 8192, "cpu": 2048}  # of the square matrices
NO_COMPILER = ("no working c++ compiler", "failed to find c compiler", "invalidcxxcompiler", "no c compiler")


def answer(pipe, torch, request):
    """One run, the two batch sizes, or the ceilings of the device."""
    if request["mode"] == "ceilings":
        pipe.say("ready")
        pipe.say("done", **ceilings(pipe, torch, request["kinds"]))
        return
    training = child_model.training(torch, make(request), request)
    precision = Precision(torch, training, request["kind"])
    batches = training.batches()
    first = next(batches)
    pipe.say("ready", patience_s=COMPILES_S if precision.compiled else 0.0, **about(torch, training, first))
    if request["mode"] == "sizes":
        pipe.say("done", **sizes(pipe, training, precision, first))
    else:
        pipe.say("done", **measured(pipe, training, precision, first, batches, request))


def about(torch, training, batch):
    """Description of the created objects, for the report."""
    name, capability = None, None
    if training.device.type == "cuda":
        name = torch.cuda.get_device_name(training.device)
        capability = list(torch.cuda.get_device_capability(training.device))
    return {
        "torch": str(torch.__version__),
        "device": training.device.type,
        "device_name": name,
        "capability": capability,
        "cpus": torch.get_num_threads(),
        "tf32": torch.get_float32_matmul_precision() != "highest",
        "batch_size": child_model.size_of(batch),
        "loads": training.loader is not None,
        "workers": getattr(training.loader, "num_workers", None),
        "optimizer": training.optimizer_name,
        "own_step": training.step_of_user is not None,
        "parameters": sum(one.numel() for one in training.model.parameters()) if training.model is not None else None,
    }


class Precision:
    """How a step is computed: `fp32`, `tf32`, `bf16` or `fp16`, and `+compile`."""

    def __init__(self, torch, training, kind):
        name, _, compiled = kind.partition("+")
        self.torch, self.training, self.compiled = torch, training, bool(compiled)
        device = training.device.type
        self.dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(name)
        self.scaler = None
        if name == "fp16":
            if training.step_of_user:
                raise Wrong("fp16 needs a GradScaler, which gputop can set only where the model is returned")
            self.scaler = scaler(torch, device)
        if self.dtype is not None and not getattr(self.autocast(), "_enabled", True):  # it only warns
            raise Wrong("autocast of torch %s computes no %s on this %s" % (torch.__version__, name, device.upper()))
        if name == "tf32":
            if why := no_tf32(torch, training.device):
                raise Wrong(why)
            torch.set_float32_matmul_precision("high")
            torch.backends.cudnn.allow_tf32 = True
        if self.compiled:
            self.compile()

    def compile(self):
        """Compile the model in place, so that the user's own step calls the compiled one, too."""
        model = self.training.model
        if not hasattr(self.torch, "compile"):
            raise Wrong("this torch has no torch.compile: it came with 2.0")
        if model is None:
            raise Wrong("torch.compile needs the model, and gputop sees none in step: return model, loader")
        if hasattr(model, "compile") and model.compile.__func__ is self.torch.nn.Module.compile:
            model.compile()
        elif self.training.step_of_user is None:
            self.training.model = self.torch.compile(model)
        else:
            raise Wrong("this torch compiles no model in place: return model, loader")

    def step(self, batch):
        """One training step."""
        if self.dtype is None:
            return self.training.run(batch)
        return self.training.run(batch, self.autocast(), self.scaler)

    def autocast(self):
        """The context in which the loss is computed."""
        return self.torch.autocast(self.training.device.type, dtype=self.dtype)

    def scale(self):
        """The current loss scale."""
        return self.scaler.get_scale() if self.scaler is not None else None


def scaler(torch, device):
    """The GradScaler of this torch; the old one has no effect without CUDA."""
    if hasattr(torch, "amp") and hasattr(torch.amp, "GradScaler"):
        return torch.amp.GradScaler(device)
    if device != "cuda":
        raise Wrong("this torch has no GradScaler for a CPU: it came with 2.3")
    return torch.cuda.amp.GradScaler()


def no_tf32(torch, device):
    """Why TF32 would be plain fp32 here; empty if it would not. torch accepts the setting on any machine."""
    if device.type != "cuda":
        return "TF32 is a mode of the Tensor Cores of a GPU, and the model is on the CPU"
    capability = torch.cuda.get_device_capability(device)
    if capability < TF32_SINCE:
        return "TF32 needs compute capability %d.%d, and this GPU has %d.%d" % (TF32_SINCE + capability)
    return ""


def measured(pipe, training, precision, first, batches, request):
    """The steps of the training loop, then repeated steps on one batch without the loader."""
    found, last = loop(pipe, training, precision, first, batches, request)
    found.update(child_model.peaks(training.torch, training.device))  # of the training's own steps only
    found["breaks"] = breaks() if precision.compiled else None
    placed = training.placed(last)
    found["alone_s"] = alone(pipe, training, precision, placed)
    if request.get("count") and not precision.compiled:
        found.update(counted(training, precision, placed))
    return found


def loop(pipe, training, precision, batch, batches, request):
    """A timed training loop: step times after the warm-up, and its last batch."""
    torch, steps, warmup = training.torch, request["steps"], request["warmup"]
    loss, scale, samples, warm, waited_s, begin = None, None, 0, [], 0.0, time.perf_counter()
    for number in range(steps):
        if number == warmup:
            training.synchronize()
            if training.device.type == "cuda":
                torch.cuda.reset_peak_memory_stats(training.device)
            scale = precision.scale()
            samples, waited_s, begin = 0, 0.0, time.perf_counter()
        before = time.perf_counter()
        if number:
            batch = next(batches)
        placed = training.placed(batch)
        waited_s += time.perf_counter() - before
        loss = guarded(precision, placed)
        if number < warmup:
            training.synchronize()
            warm.append(time.perf_counter() - before)
        samples += child_model.size_of(batch) or 0
        pipe.progress(number + 1)
    training.synchronize()
    found = {
        "steps": steps - warmup,
        "took_s": time.perf_counter() - begin,
        "samples": samples,
        "waited_s": waited_s,
        "warm_s": warm,
        "loss": number_of(loss),
        "loss_name": training.loss_name,
        "skipped": skipped(scale, precision.scale()),
    }
    return found, batch


def skipped(before, after):
    """Steps skipped by the GradScaler: each halves its scale, which doubles only after thousands; None without one."""
    if before is None or not after:
        return None
    return max(0, round(math.log(before / after, 2)))


def guarded(precision, batch):
    """One step; an exception from torch.compile is marked as such."""
    if not precision.compiled:
        return precision.step(batch)
    try:
        return precision.step(batch)
    except Exception as error:
        kinds = [type(one).__module__ for one in (error, error.__cause__, error.__context__) if one is not None]
        words = str(error)
        if any(each in words.lower() for each in NO_COMPILER):
            raise Wrong("torch.compile finds no C++ compiler here: install g++, or name one in CXX") from error
        if SHORT.search(words) or not any(kind.startswith(("torch._dynamo", "torch._inductor")) for kind in kinds):
            raise
        said = [line.strip() for line in words.splitlines() if line.strip()]
        raise Wrong("torch.compile failed: %s" % (said[0] if said else type(error).__name__)) from error


def alone(pipe, training, precision, batch):
    """Seconds of each step on a batch already in place, synchronized."""
    times, begin = [], time.perf_counter()
    for number in range(ALONE_STEPS + 1):
        before = time.perf_counter()
        precision.step(batch)
        training.synchronize()
        now = time.perf_counter()
        if number:  # the first one is a warm-up
            times.append(now - before)
        pipe.progress(None)
        if len(times) >= 3 and now - begin > ALONE_S:
            break
    return times


def sizes(pipe, training, precision, batch):
    """Step times of the batch and of one twice as large, alternating: disturbances affect both."""
    size = child_model.size_of(batch)
    if not size:
        raise Wrong("the batch has no size: its first tensor has no dimension of samples")
    both = [training.placed(batch), training.placed(child_model.resized(batch, 2 * size))]
    times, begin = [[], []], time.perf_counter()
    for number in range(PAIRS + 2):
        for one, took in zip(both, times):
            before = time.perf_counter()
            precision.step(one)
            training.synchronize()
            if number > 1:  # warmed up by then
                took.append(time.perf_counter() - before)
        pipe.progress(None)
        if len(times[0]) >= 5 and time.perf_counter() - begin > PAIRS_S:
            break
    return {"size": size, "once_s": times[0], "twice_s": times[1]}


def number_of(loss):
    """The last loss if it is a single number; None if it is not finite, which JSON cannot express."""
    try:
        value = float(loss.detach() if hasattr(loss, "detach") else loss)
    except (TypeError, ValueError, RuntimeError):
        return None
    return value if math.isfinite(value) else None


def breaks():
    """Number of graph breaks in torch.compile; None if this torch does not report it."""
    try:
        from torch._dynamo.utils import counters

        return int(sum(counters["graph_break"].values()))
    except Exception:
        return None


def counted(training, precision, batch):
    """Floating-point operations of one step, and bytes its operations read and write; None if unknown."""
    found = {"flops": None, "bytes": None, "uncounted": None}
    try:
        from torch.utils._python_dispatch import TorchDispatchMode
        from torch.utils.flop_counter import FlopCounterMode
    except ImportError:
        found["uncounted"] = "this torch counts no operations: it came with 2.1"
        return found
    try:
        with ExitStack() as stack:
            traffic = stack.enter_context(traffic_mode(TorchDispatchMode)())
            flops = stack.enter_context(FlopCounterMode(display=False))
            precision.step(batch)
            training.synchronize()
    except Exception as error:
        found["uncounted"] = "the operations could not be counted: %s" % type(error).__name__
        return found
    found["flops"], found["bytes"] = int(flops.get_total_flops()) or None, traffic.bytes or None
    if not found["flops"]:
        found["uncounted"] = "torch counted no matrix product, convolution or attention in the step"
    return found


def traffic_mode(mode):
    """A mode that adds up what each operation reads and writes, as if there were no cache."""

    class Traffic(mode):
        def __init__(self):
            super().__init__()
            self.bytes = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            given = child_model.tensors([list(args), dict(kwargs or {})])
            made = func(*args, **(kwargs or {}))
            self.bytes += moved_bytes(str(func), given, child_model.tensors([made]))
            return made

    return Traffic


def moved_bytes(name, given, made):
    """Bytes of one operation: inputs and results; 0 for a view; in-place results count as one read and one write."""
    if name.startswith(("aten.empty", "aten.new_empty", "aten.detach")) or not made:
        return 0
    mutates = name.partition(".")[2].partition(".")[0].endswith("_") or ".out" in name or "_foreach" in name
    places = {place(one) for one in given}
    if not mutates and all(place(one) in places for one in made):
        return 0
    return sum(span(one) for one in given) + sum(span(one) for one in made)


def place(tensor):
    """Address of a tensor's memory."""
    try:
        return tensor.untyped_storage().data_ptr()
    except Exception:
        return id(tensor)


def span(tensor):
    """Bytes of a tensor; expanded dimensions count once."""
    try:
        return min(tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes())
    except Exception:
        return 0


def ceilings(pipe, torch, kinds):
    """Peak performance of the device: a matrix product in each precision, and a copy."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    found = {"flops": {}, "bytes_per_s": None}
    for kind in kinds:
        found["flops"][kind] = matmul(pipe, torch, device, kind)
    size = COPIED_BYTES if device == "cuda" else COPIED_BYTES_CPU
    source = torch.zeros(size // 4, device=device)
    target = torch.ones_like(source)
    took_s = shortest(pipe, torch, device, lambda: target.copy_(source))
    found["bytes_per_s"] = 2 * size / took_s
    return found


def matmul(pipe, torch, device, kind):
    """FLOP/s of square matrices of the width suited to the device, or fitting into the time."""
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(kind, torch.float32)
    if kind == "tf32":
        torch.set_float32_matmul_precision("high")
    elif kind == "fp32":
        torch.set_float32_matmul_precision("highest")
    best, wide = 0.0, 256
    while wide <= WIDEST[device]:
        left = torch.ones(wide, wide, device=device, dtype=dtype)
        right = torch.ones_like(left)
        result = torch.empty_like(left)
        took_s = shortest(pipe, torch, device, lambda a=left, b=right, c=result: torch.matmul(a, b, out=c))
        best = max(best, 2.0 * wide**3 / took_s)
        if took_s > CEILING_S / 4:
            break
        wide *= 2
    return best


def shortest(pipe, torch, device, work):
    """The shortest time of repeated runs of `work`."""
    best, begin, count = math.inf, time.perf_counter(), 0
    while count < 4 or time.perf_counter() - begin < CEILING_S / 4:
        before = time.perf_counter()
        work()
        if device == "cuda":
            torch.cuda.synchronize()
        took_s = time.perf_counter() - before
        if count:
            best = min(best, took_s)
        count += 1
        pipe.progress(None)
    return best


if __name__ == "__main__":
    run(answer)
