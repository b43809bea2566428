"""Train a model with every performance setting in place, on one GPU or on the CPU.

    python train.py --steps 200             loss, ms per step, samples/s
    python train.py --trace trace.json.gz   record 5 steps; gputop explain trace.json.gz says where their time goes
    python train.py --nan-hunt              stop at the operation that returns NaN
    python train.py --checkpoint run.pt     save there, and continue from there

Replace Data and make_model with yours. Each [name] below can be printed alone: gputop recipe NAME.
"""

import argparse
import contextlib
import math
import os
import time
from pathlib import Path

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.profiler import profile, record_function, schedule
from torch.utils.data import DataLoader, Dataset

# [loader] worker processes prepare batches in pinned memory and stay for all epochs
WORKERS = 0  # start with half of the CPUs of each training process, at most 8; then time more and fewer


class Data(Dataset):
    """Replace with yours: random vectors, each labelled with the one of ten directions it points to most."""

    def __init__(self, samples=65_536):
        generator = torch.Generator().manual_seed(0)
        self.inputs = torch.randn(samples, 64, generator=generator)
        self.labels = (self.inputs @ torch.randn(64, 10, generator=generator)).argmax(1)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.inputs[index], self.labels[index]


def make_model():
    """Replace with yours: Tensor Cores want widths that are multiples of 8, better 64."""
    return nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))


# [loader] non_blocking copies need pinned memory; drop_last: one batch shape, no second compilation
def make_loader(data, batch_size, workers, device):
    return DataLoader(
        data,
        batch_size=batch_size,
        shuffle=True,
        drop_last=True,
        num_workers=workers,
        pin_memory=device.type == "cuda",
        persistent_workers=workers > 0,  # otherwise they restart every epoch
        prefetch_factor=4 if workers else None,  # batches each worker prepares ahead
    )


def endless(loader):
    while True:
        yield from loader


# [profiler] record 5 steps: top operators, and a trace for gputop explain or Perfetto
# use: with make_profiler("trace.json.gz") as profiler: train, and call profiler.step() after each step
def make_profiler(path):
    def save(recorded):
        recorded.export_chrome_trace(path)
        key = "self_cuda_time_total" if torch.cuda.is_available() else "self_cpu_time_total"
        print(recorded.key_averages().table(sort_by=key, row_limit=15))

    return profile(  # CPU and, where there is one, GPU
        schedule=schedule(wait=1, warmup=2, active=5, repeat=1),  # 8 steps
        record_shapes=True,  # which layer a kernel belongs to
        profile_memory=True,  # memory that grows
        with_stack=False,  # True names source lines and slows each step
        on_trace_ready=save,  # for TensorBoard: torch.profiler.tensorboard_trace_handler("./profiler_logs")
    )


# [nan] stop at the first operation that returns NaN; slow, so for a few steps only
class NanCheck(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        name = getattr(function, "__name__", str(function))
        for tensor in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(tensor, torch.Tensor) and "empty" not in name and tensor.isnan().any():
                raise FloatingPointError(f"{name} returned NaN; the lines above show where it was called")
        return result


# [nan] use: with nan_hunt(): train, not compiled. Then: clip, lower learning rate, initialization, activations
@contextlib.contextmanager
def nan_hunt():
    with NanCheck(), torch.autograd.set_detect_anomaly(True):  # forward; backward, with its forward line
        yield


# [checkpoint] write a temporary file, then rename it: a crash leaves the previous checkpoint whole
def save(path, step, model, optimizer):
    temporary = path.with_name(f"{path.name}.tmp")
    with temporary.open("wb") as file:
        torch.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


# [checkpoint] the step to continue after; weights_only runs no code from the file
def resume(path, model, optimizer, device):
    if not path.exists():
        return 0
    state = torch.load(path, map_location=device, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return state["step"]


# [log] read the loss every N steps: each .item() waits until the GPU has finished all its work
class Log:
    def __init__(self, every, batch_size):
        self.every, self.batch_size = every, batch_size
        self.losses, self.began = [], time.perf_counter()

    def add(self, step, loss, last):
        self.losses.append(loss.detach())  # a loss with its graph keeps the memory of its step
        if step % self.every and not last:
            return
        mean = torch.stack(self.losses).mean().item()
        seconds = (time.perf_counter() - self.began) / len(self.losses)  # first line: with start-up and compilation
        rate = self.batch_size / seconds
        print(f"step {step}  loss {mean:.4f}  {seconds * 1000:.2f} ms/step  {rate:,.0f} samples/s", flush=True)
        if not math.isfinite(mean):
            raise SystemExit("the loss is not finite: --nan-hunt (gputop recipe nan) names the operation")
        self.losses, self.began = [], time.perf_counter()


def training_step(batch, model, compute, optimizer, device):
    # [regions] name the parts of a step: gputop explain and trace viewers show them
    with record_function("data_transfer"):
        # [transfer] non_blocking: the CPU continues while pinned memory is copied
        inputs, labels = (tensor.to(device, non_blocking=True) for tensor in batch)
    with record_function("forward"):
        # [amp] bf16 on Ampere and newer GPUs; unlike fp16 it needs no GradScaler
        bf16 = device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=bf16):
            loss = nn.functional.cross_entropy(compute(inputs), labels)
    with record_function("backward"):
        loss.backward()
    with record_function("optimizer"):
        # [clip] limit the gradient norm between backward and step: one bad batch does little harm
        nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)  # frees the gradients; writes no zeros

    return loss


def train(args, device):
    torch.set_float32_matmul_precision("high")  # TF32 where fp32 stays
    data, model = Data(), make_model().to(device)

    # [optimizer] fused: a few kernels for all parameters instead of several for each
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=device.type == "cuda")

    start = resume(args.checkpoint, model, optimizer, device) if args.checkpoint else 0
    torch.manual_seed(args.seed + start)  # a run that continues draws other batches
    if args.trace and args.steps - start < 8:
        raise SystemExit("--trace records steps 4 to 8 of a run: raise --steps")
    loader = make_loader(data, args.batch_size, args.workers, device)
    if not len(loader):
        raise SystemExit(f"--batch-size {args.batch_size} is more than the {len(data)} samples")

    # [compile] fuse small kernels; the first steps are slow. Checkpoint model, not compute
    compiles = device.type == "cuda" and not (args.no_compile or args.nan_hunt)  # on a CPU it rarely pays
    compute = torch.compile(model) if compiles else model

    batches, log = endless(loader), Log(args.log_every, args.batch_size)
    with make_profiler(args.trace) if args.trace else contextlib.nullcontext() as profiler:
        for step in range(start + 1, args.steps + 1):
            last = step == args.steps
            loss = training_step(next(batches), model, compute, optimizer, device)
            log.add(step, loss, last)
            if args.checkpoint and (last or step % args.save_every == 0):
                save(args.checkpoint, step, model, optimizer)
            if profiler:
                profiler.step()


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--workers", type=int, default=WORKERS, help="DataLoader workers (%(default)s)")
    parser.add_argument("--no-compile", action="store_true", help="without torch.compile")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log-every", type=int, default=50, metavar="STEPS")
    parser.add_argument("--checkpoint", type=Path, metavar="FILE", help="save there, and continue from it")
    parser.add_argument("--save-every", type=int, default=1000, metavar="STEPS")
    parser.add_argument("--trace", metavar="FILE", help="record steps 4 to 8 with torch.profiler")
    parser.add_argument("--nan-hunt", action="store_true", help="stop at the operation that makes a NaN; slow")
    return parser.parse_args()


def main():
    args = arguments()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    with nan_hunt() if args.nan_hunt else contextlib.nullcontext():
        train(args, device)

    # [memory] peaks: reserved far above allocated is cache, no leak; growing allocated is one
    if device.type == "cuda":
        allocated, reserved = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
        print(f"peak memory: {allocated / 2**20:,.0f} MiB allocated, {reserved / 2**20:,.0f} MiB reserved")


if __name__ == "__main__":
    main()
