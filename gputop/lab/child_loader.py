"""Time a DataLoader in the user's own Python: standard library and torch only, Python 3.8 and later.

It is started by path, as child_request.py says, and needs no gputop. One process times one setting: a cache, an open
file or a CUDA context of the user's code never reaches the next setting.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # it may be absent (PYTHONSAFEPATH); see child_request
from child_model import training
from child_request import SEED, Wrong, make, run

SLOW = 2.0  # multiple of the median from which a batch is slow
SLOW_S = 0.001  # and at least this much longer: less is noise
SLOWEST = 3  # slow batches listed
MOST_SAMPLES = 256  # of one batch, timed individually
MOST_EPOCHS = 1000


class Order:
    """A sampler that records its indices; with a limit its epoch ends early."""

    def __init__(self, sampler):
        self.sampler = sampler
        self.limit = None
        self.given = []

    def __iter__(self):
        for number, indices in enumerate(self.sampler):
            if self.limit is not None and number >= self.limit:
                return
            self.given.append(indices)
            yield indices

    def __len__(self):
        return len(self.sampler)


def answer(pipe, torch, request):
    """Create the loader and run the request."""
    begin = time.perf_counter()
    loader, step = parts(torch, make(request), request)
    pipe.say("ready", **about(torch, loader, step, time.perf_counter() - begin))
    if request["mode"] == "samples":
        pipe.say("done", samples=samples(pipe, loader.dataset, request["indices"]))
    else:
        measure(pipe, torch, loader, step if request.get("step") else None, request)


def parts(torch, made, request):
    """The loader and the step from the user's function."""
    data, module = torch.utils.data, torch.nn.Module
    loader, step = made, None
    if isinstance(made, (tuple, list)) and 2 <= len(made) <= 4 and isinstance(made[0], module):
        loader, step = made[1], trained(torch, made, request)
        if not isinstance(loader, (data.DataLoader, data.Dataset)):
            text = "%s returned a model with %s, not with a DataLoader or a Dataset of torch"
            raise Wrong(text % (request["function"], type(loader).__name__))
    elif isinstance(made, (tuple, list)) and len(made) == 2 and callable(made[1]):
        loader, step = made
    elif callable(getattr(made, "step", None)) or isinstance(getattr(made, "model", None), module):
        step = getattr(made, "step", None) or trained(torch, made, request)
        for name in ("loader", "dataset"):
            if not isinstance(made, (data.DataLoader, data.Dataset)) and hasattr(made, name):
                loader = getattr(made, name)
    if isinstance(loader, data.DataLoader):
        return loader, step
    mapped = hasattr(loader, "__getitem__") and hasattr(loader, "__len__") and not isinstance(loader, (str, dict))
    if isinstance(loader, data.IterableDataset):
        return data.DataLoader(loader, batch_size=request["batch_size"]), step
    if isinstance(loader, data.Dataset) or mapped:
        return data.DataLoader(loader, batch_size=request["batch_size"], shuffle=True), step
    kind = type(loader).__name__
    raise Wrong("%s returned %s, not a DataLoader or a Dataset of torch" % (request["function"], kind))


def trained(torch, made, request):
    """A training step of a model as in gputop lab; nothing is created before its first use."""
    of_model = []

    def step(batch):
        if not of_model:
            of_model.append(training(torch, made, request))
        of_model[0].run(of_model[0].placed(batch))

    return step


def about(torch, loader, step, took_s):
    """Description of the created objects, for the report and for the line that gputop prints."""
    data = torch.utils.data
    iterable = isinstance(loader.dataset, data.IterableDataset)
    simple = type(loader.batch_sampler) is data.BatchSampler
    sampler = type(loader.sampler)
    try:
        length = len(loader)
    except Exception:  # an IterableDataset may lack one, and the user's may do anything
        length = None
    return {
        "python": "%d.%d.%d" % sys.version_info[:3],
        "torch": str(torch.__version__),
        "cuda": bool(torch.cuda.is_available()),
        "has_in_order": "in_order" in inspect.signature(data.DataLoader.__init__).parameters,
        "step": step is not None,
        "made_s": took_s,
        "iterable": iterable,
        "length": length,
        "batch_size": loader.batch_size if loader.batch_size is None else int(loader.batch_size),
        "shuffle": sampler is data.RandomSampler,
        "own_sampler": not iterable and sampler not in (data.RandomSampler, data.SequentialSampler),
        "own_batches": loader.batch_sampler is not None and not iterable and not simple,
        "own_collate": getattr(loader.collate_fn, "__module__", "") != data.default_collate.__module__
        if hasattr(data, "default_collate")
        else False,
        "drop_last": bool(loader.drop_last),
        "workers": int(loader.num_workers),
    }


def rebuilt(torch, loader, request):
    """The same loader with the requested settings, and its recording sampler, if any."""
    data, order = torch.utils.data, None
    same = {name: getattr(loader, name) for name in ("collate_fn", "worker_init_fn", "generator")}
    if isinstance(loader.dataset, data.IterableDataset):
        same["batch_size"], same["drop_last"] = loader.batch_size, loader.drop_last
    elif loader.batch_sampler is not None:
        order = same["batch_sampler"] = Order(loader.batch_sampler)
    else:
        order = same["sampler"] = Order(loader.sampler)
        same["batch_size"] = None
    if request["workers"]:
        same["multiprocessing_context"] = loader.multiprocessing_context
    return data.DataLoader(loader.dataset, num_workers=request["workers"], **same, **request["options"]), order


def measure(pipe, torch, loader, step, request):
    """Time batches after one warm-up batch per worker; then the first batch of another epoch, if requested."""
    loader, order = rebuilt(torch, loader, request)
    timing = Timing(pipe, torch, loader, step, request)
    if order is not None and request.get("epochs"):
        order.limit = timing.warm + request["batches"]
    before = read_bytes(torch)
    timing.run()
    read = read_bytes(torch)
    again_s = timing.again() if request.get("epochs") else None
    pipe.say(
        "done",
        times=timing.times,
        steps=timing.steps,
        first_s=timing.first_s,
        again_s=again_s,
        epochs=timing.epochs,
        read_bytes=None if before is None or read is None else max(0, read - before),
        slow=slow(timing, order, request),
    )
    timing.close()


class Timing:
    """A timed training loop."""

    def __init__(self, pipe, torch, loader, step, request):
        self.pipe, self.torch, self.loader, self.step = pipe, torch, loader, step
        self.cuda = torch.cuda.is_available()
        self.copies = bool(request.get("copy")) and self.cuda
        self.batches, self.warm = request["batches"], max(1, request["workers"])
        self.times, self.numbers, self.steps = [], [], []
        self.first_s, self.epochs, self.number = None, 0, 0
        self.iterator = iter(())

    def run(self):
        """Run epochs until there are enough batches."""
        while len(self.times) < self.batches and self.epochs < MOST_EPOCHS:
            got = self.epoch()
            if not got:
                raise Wrong(
                    "the DataLoader yields no batch" + (" any more: its second epoch is empty" if self.epochs else "")
                )
            if got <= self.warm and self.warm == 1:
                raise Wrong("an epoch has a single batch: nothing to time")
            if got <= self.warm:
                self.warm = 1
            self.epochs += 1

    def epoch(self):
        """Run one epoch, or as much as needed; return its number of batches."""
        got = 0
        for took_s, batch in self.timed():
            if self.first_s is None:
                self.first_s = took_s
            if got >= self.warm:
                self.times.append(took_s)
                self.numbers.append(self.number)
            if self.step is not None:
                begin = time.perf_counter()
                self.step(batch)
                self.synchronize()
                if got >= self.warm:
                    self.steps.append(time.perf_counter() - begin)
            got, self.number = got + 1, self.number + 1
            self.pipe.progress(len(self.times))
            if len(self.times) >= self.batches:
                break
        return got

    def timed(self):
        """Each batch with the seconds it took to arrive."""
        self.close()
        self.torch.manual_seed(SEED)
        begin = time.perf_counter()
        self.iterator = iter(self.loader)
        while True:
            try:
                batch = next(self.iterator)
            except StopIteration:
                return
            if self.copies:
                moved(batch)
                self.synchronize()
            yield time.perf_counter() - begin, batch
            begin = time.perf_counter()

    def again(self):
        """Seconds to the first batch of another epoch; None if the present one does not end soon."""
        for _ in range(self.batches):
            try:
                next(self.iterator)
            except StopIteration:
                break
            self.pipe.progress(len(self.times))
        else:
            return None
        for took_s, _ in self.timed():
            return took_s
        return None

    def synchronize(self):
        """Wait for the GPU, if there is one."""
        if self.cuda:
            self.torch.cuda.synchronize()

    def close(self):
        """Stop the workers, unless they are persistent."""
        if not getattr(self.loader, "persistent_workers", False):
            self.iterator = iter(())


def moved(batch):
    """Copy the tensors of a batch to the GPU."""
    if hasattr(batch, "to"):
        return batch.to("cuda", non_blocking=True)
    if isinstance(batch, dict):
        return [moved(value) for value in batch.values()]
    return [moved(value) for value in batch] if isinstance(batch, (tuple, list)) else batch


def slow(timing, order, request):
    """The slowest batches: their numbers, and their samples if the sampler can be recorded."""
    times = timing.times
    middle = sorted(times)[len(times) // 2]
    ranked = sorted(range(len(times)), key=lambda at: -times[at])[:SLOWEST]
    kept = request["options"].get("in_order", True)
    found = []
    for at in ranked:
        if times[at] < max(SLOW * middle, middle + SLOW_S):
            break
        number = timing.numbers[at]
        known = order is not None and kept and number < len(order.given)
        indices = order.given[number] if known else None
        found.append({"number": number, "s": times[at], "indices": plain(indices)})
    return found


def plain(indices):
    """Indices as integers, or None."""
    if indices is None:
        return None
    try:
        return [int(index) for index in (indices if hasattr(indices, "__iter__") else [indices])][:MOST_SAMPLES]
    except (TypeError, ValueError):
        return None


def samples(pipe, dataset, batches):
    """Samples of some batches, each loaded alone and twice: slow once is noise, not the sample."""
    found = []
    for indices in batches:
        times = []
        for index in indices:
            tries = []
            for _ in range(2):
                begin = time.perf_counter()
                dataset[index]
                tries.append(time.perf_counter() - begin)
            times.append([index, min(tries)])
            pipe.progress(len(times))
        found.append(times)
    return found


def read_bytes(torch):
    """Bytes this process and its workers read from disk; None if the kernel does not report it."""
    found_any, total = False, 0
    for pid in [os.getpid()] + [child.pid for child in torch.multiprocessing.active_children()]:
        try:
            with open("/proc/%d/io" % pid) as file:
                found = re.search(r"^read_bytes: (\d+)", file.read(), re.MULTILINE)
        except OSError:
            continue
        if found:
            found_any, total = True, total + int(found.group(1))
    return total if found_any else None


if __name__ == "__main__":
    run(answer)
