"""Each step that can be tried without a GPU: what a real process does before it, and after."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gputop.demo import SCENARIOS
from tests.advice import steps
from tests.rule_cases import scenario

pytestmark = pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="processes of Linux")
TAKES_S = 420.0  # of each demo, in which it comes to say what it is there for
LOADING = """
import json, os, sys, time
import torch
from torch.utils.data import DataLoader, Dataset

class Samples(Dataset):
    def __init__(self, of=64, slow=(), seconds=0.0):
        self.of, self.slow, self.seconds = of, slow, seconds
    def __len__(self):
        return self.of
    def __getitem__(self, index):
        time.sleep(1.0 if index in self.slow else self.seconds)
        return torch.tensor([index, os.getpid()])
"""
RANKS = """
import json, os, sys
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512))

def started(rank, folder):
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)

def of_both(work, folder):
    mp.spawn(work, args=(folder,), nprocs=2)
    print(json.dumps(json.load(open(f"{folder}/said"))))
"""


def told(program: str, *arguments: str, env: Mapping[str, str] | None = None, folder: Path | None = None) -> Any:
    """What a program prints as JSON."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **(env or {})}
    command = [sys.executable, "-W", "ignore", "-c", program, *arguments]
    if folder is not None:  # who starts processes of its own has to be a file
        (folder / "program.py").write_text(program)
        command = [sys.executable, "-W", "ignore", str(folder / "program.py"), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def loaders_beside_the_training(folder: Path) -> None:
    """Samples that take 20 ms each, loaded by the training process or by four others."""
    program = f"""{LOADING}
def seconds(workers):
    loader = DataLoader(Samples(48, seconds=0.02), batch_size=4, num_workers=workers)
    batches = iter(loader)
    next(batches)
    start = time.monotonic()
    for _ in batches:
        pass
    return time.monotonic() - start
print(json.dumps([seconds(0), seconds(4)]))
"""
    alone, beside = told(program)
    assert beside < alone / 1.5


def loaders_that_stay(folder: Path) -> None:
    program = f"""{LOADING}
def teams(stay):
    loader = DataLoader(Samples(8), batch_size=1, num_workers=2, persistent_workers=stay)
    return len({{int(pid) for _ in range(3) for _, pid in (batch[0] for batch in loader)}})
print(json.dumps([teams(False), teams(True)]))
"""
    assert told(program) == [6, 2]


def batches_as_they_are_ready(folder: Path) -> None:
    """One sample takes a second: in order, everything behind it waits."""
    program = f"""{LOADING}
def first(order):
    loader = DataLoader(Samples(16, slow=(0,)), batch_size=1, num_workers=2, in_order=order)
    return int(next(iter(loader))[0][0])
print(json.dumps([first(True), first(False)]))
"""
    before, after = told(program)
    assert before == 0
    assert after != 0


def batches_ahead(folder: Path) -> None:
    """How much of /dev/shm waits there to be used, once the loaders have nothing left to do."""
    program = """
import json, os, time
import torch
from torch.utils.data import DataLoader, Dataset

class Large(Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, index):
        return torch.zeros(1 << 18)

def shared(ahead, strategy="file_descriptor"):
    torch.multiprocessing.set_sharing_strategy(strategy)
    free = os.statvfs("/dev/shm")
    batches = iter(DataLoader(Large(), batch_size=1, num_workers=2, prefetch_factor=ahead))
    next(batches)
    least, until, same = 0, time.monotonic() + 20, 0
    while same < 40 and time.monotonic() < until:
        now = os.statvfs("/dev/shm")
        used = (free.f_bfree - now.f_bfree) * now.f_frsize
        least, same = (used, 0) if used > least else (least, same + 1)
        time.sleep(0.05)
    return least / (1 << 20)
print(json.dumps([shared(8), shared(2), shared(8, "file_system")]))
"""
    many, few, by_files = told(program)
    assert few < many / 2
    assert by_files > 0.7 * many  # sharing through files uses the same memory: not advised against a full /dev/shm


def threads_by_the_environment(folder: Path) -> None:
    """A pool of torch, and one of the OpenBLAS that NumPy's wheel brings."""
    torch = "import json, torch; print(json.dumps(torch.get_num_threads()))"
    assert [told(torch, env={"OMP_NUM_THREADS": number}) for number in ("2", "1")] == [2, 1]
    numpy = "import json, os, numpy; print(json.dumps(len(os.listdir('/proc/self/task'))))"
    assert [told(numpy, env={"OPENBLAS_NUM_THREADS": number}) for number in ("2", "1")] == [2, 1]


def threads_by_the_program(folder: Path) -> None:
    """A program that sets its number ignores the environment, so that its line is what has to be changed."""
    program = "import json, torch; torch.set_num_threads({}); print(json.dumps(torch.get_num_threads()))"
    assert told(program.format(7), env={"OMP_NUM_THREADS": "2"}) == 7
    assert told(program.format(2), env={"OMP_NUM_THREADS": "7"}) == 2


def losses_without_their_graphs(folder: Path) -> None:
    """A sum of losses keeps the graph of every step, unless they are detached or read."""
    program = """
import gc, json, sys, torch
def kept(add):
    layer, total, alive = torch.nn.Linear(64, 64), torch.zeros(()), []
    import weakref
    for _ in range(20):
        hidden = layer(torch.rand(8, 64)).tanh()
        alive.append(weakref.ref(hidden))
        total = add(total, hidden.square().mean())
        del hidden
    gc.collect()
    return total.grad_fn is not None
def detached(total, loss):
    return total + loss.detach()
def read(total, loss):
    return total + loss.item()
def whole(total, loss):
    return total + loss
print(json.dumps([kept(whole), kept(detached), kept(read)]))
"""
    assert told(program) == [True, False, False]


def gradients_of_a_bounded_length(folder: Path) -> None:
    """One bad batch throws the weights away, unless its gradient is clipped."""
    program = """
import json, torch
def loss_after(clips):
    torch.manual_seed(0)
    model, x = torch.nn.Linear(8, 1), torch.rand(64, 8)
    y = x.sum(1, keepdim=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for number in range(200):
        optimizer.zero_grad()
        bad = 1e6 if number == 100 else 1.0
        (bad * (model(x) - y).square().mean()).backward()
        if clips:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return float((model(x) - y).square().mean())
print(json.dumps([loss_after(False), loss_after(True)]))
"""
    whole, clipped = told(program)
    assert whole > 1e3 * clipped


def the_operation_that_returned_nan(folder: Path) -> None:
    """The error of a backward pass names the function, and the line of the forward pass that it belongs to."""
    program = """
import json, torch, warnings
x = torch.zeros(1, requires_grad=True)
def backward():
    (0 * torch.sqrt(x)).sum().backward()
backward()
with warnings.catch_warnings(record=True) as warned, torch.autograd.detect_anomaly():
    warnings.simplefilter("always")
    try:
        backward()
        named = ""
    except RuntimeError as error:
        named = str(error)
said = " ".join(str(one.message) for one in warned)
print(json.dumps([bool(x.grad.isnan()), "SqrtBackward" in named, "in backward" in said]))
"""
    assert told(program) == [True, True, True]


def activations_recomputed(folder: Path) -> None:
    program = """
import json, torch
from torch.utils.checkpoint import checkpoint
blocks = [torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.GELU(), torch.nn.Linear(256, 256)) for _ in range(4)]
def saved(recompute):
    size = 0
    def pack(tensor):
        nonlocal size
        size += tensor.numel() * (tensor.dim() == 2 and tensor.shape[0] == 512)
        return tensor
    x = torch.rand(512, 256, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda kept: kept):
        for block in blocks:
            x = checkpoint(block, x, use_reentrant=False) if recompute else block(x)
    return size
print(json.dumps([saved(False), saved(True)]))
"""
    before, after = told(program)
    assert after < before / 2


def gradients_sent_less_often(folder: Path) -> None:
    program = f"""{RANKS}
def work(rank, folder):
    started(rank, folder)
    wrapped, sent = DistributedDataParallel(model()), 0
    def hook(_, bucket):
        nonlocal sent
        sent += 1
        done = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done
    wrapped.register_comm_hook(None, hook)
    counts = []
    wrapped(torch.rand(4, 512)).mean().backward()
    counts.append(sent)
    with wrapped.no_sync():
        wrapped(torch.rand(4, 512)).mean().backward()
    counts.append(sent - counts[0])
    if rank == 0:
        json.dump(counts, open(f"{{folder}}/said", "w"))
    dist.destroy_process_group()
if __name__ == "__main__":
    of_both(work, sys.argv[1])
"""
    each, quiet = told(program, str(folder), folder=folder)
    assert each > 0
    assert quiet == 0


def buckets_of_two_sizes(folder: Path) -> None:
    """Smaller buckets are more messages, the first of which leaves earlier in the backward pass."""
    program = f"""{RANKS}
def work(rank, folder):
    started(rank, folder)
    counts = []
    for size in (0.5, 25):
        wrapped = DistributedDataParallel(model(), bucket_cap_mb=size)
        sent = []
        def hook(_, bucket):
            sent.append(bucket.buffer().numel())
            done = torch.futures.Future()
            done.set_result(bucket.buffer())
            return done
        wrapped.register_comm_hook(None, hook)
        for _ in range(2):  # buckets are made anew after the first
            sent.clear()
            wrapped(torch.rand(4, 512)).mean().backward()
        counts.append([len(sent), sent[0]])
    if rank == 0:
        json.dump(counts, open(f"{{folder}}/said", "w"))
    dist.destroy_process_group()
if __name__ == "__main__":
    of_both(work, sys.argv[1])
"""
    (many, first), (few, all_of) = told(program, str(folder), folder=folder)
    assert many > few
    assert first < all_of


def a_fused_optimizer(folder: Path) -> None:
    """One operator for all parameters instead of several for each."""
    program = """
import json, torch
from torch.profiler import ProfilerActivity, profile
def operators(**how):
    parameters = [torch.nn.Parameter(torch.rand(8)) for _ in range(20)]
    optimizer = torch.optim.AdamW(parameters, **how)
    for one in parameters:
        one.grad = torch.rand(8)
    optimizer.step()
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        optimizer.step()
    return sum(row.count for row in seen.key_averages() if row.key.startswith("aten::"))
print(json.dumps([operators(foreach=False), operators(fused=True)]))
"""
    before, after = told(program)
    assert after < before / 4


def one_shard_for_many_files(folder: Path) -> None:
    """The shard is opened once, and read in large pieces."""
    data = folder / "DATASET" / "part-000"
    data.mkdir(parents=True)
    for number in range(200):
        (data / f"{number}.bin").write_bytes(bytes(2000))
    subprocess.run(
        ["tar", "--sort=name", "-cf", "shard-000.tar", "DATASET/part-000"], cwd=folder, check=True, timeout=60
    )
    program = """
import json, os, sys, tarfile
def calls():
    return int(open("/proc/self/io").read().split("syscr: ")[1].split()[0])
start = calls()
for name in os.listdir("DATASET/part-000"):
    open(f"DATASET/part-000/{name}", "rb", buffering=0).read()
files = calls() - start
start = calls()
with open("shard-000.tar", "rb", buffering=1 << 20) as file, tarfile.open(fileobj=file, mode="r|") as shard:
    read = sum(len(shard.extractfile(each).read()) for each in shard if each.isfile())
print(json.dumps([files, calls() - start, read]))
"""
    before = os.getcwd()
    os.chdir(folder)
    try:
        files, shard, read = told(program)
    finally:
        os.chdir(before)
    assert read == 200 * 2000
    assert shard < files / 5


def half_the_batch_accumulated(folder: Path) -> None:
    program = """
import json, torch
torch.manual_seed(0)
layer, x = torch.nn.Linear(16, 4).double(), torch.rand(8, 16).double()
layer(x).square().mean().backward()
whole = layer.weight.grad.clone()
layer.weight.grad = None
for half in x.chunk(2):
    (layer(half).square().mean() / 2).backward()
print(json.dumps(torch.allclose(whole, layer.weight.grad)))
"""
    assert told(program) is True


def the_batch_divided_among_ranks(folder: Path) -> None:
    """Two ranks with half the batch each step as one with all of it: the learning rate stays."""
    program = f"""{RANKS}
def work(rank, folder):
    started(rank, folder)
    x = torch.rand(8, 512, generator=torch.Generator().manual_seed(1))
    alone, wrapped = model(), DistributedDataParallel(model())
    alone(x).square().mean().backward()
    wrapped(x.chunk(2)[rank]).square().mean().backward()
    pairs = zip(alone.parameters(), wrapped.parameters())
    same = all(torch.allclose(one.grad, other.grad, atol=1e-6) for one, other in pairs)
    if rank == 0:
        json.dump(same, open(f"{{folder}}/said", "w"))
    dist.destroy_process_group()
if __name__ == "__main__":
    of_both(work, sys.argv[1])
"""
    assert told(program, str(folder), folder=folder) is True


def a_part_of_the_data_for_each_rank(folder: Path) -> None:
    program = """
import json, torch
from torch.utils.data import DistributedSampler
data = list(range(100))
samplers = [DistributedSampler(data, num_replicas=4, rank=rank) for rank in range(4)]
def epoch(number):
    for one in samplers:
        one.set_epoch(number)
    return [list(one) for one in samplers]
first, second = epoch(0), epoch(1)
print(json.dumps([sorted(sum(first, [])) == data, first != second]))
"""
    assert told(program) == [True, True]


def a_mapped_dataset(folder: Path) -> None:
    """What is mapped belongs to the page cache, and can be dropped; what is loaded is memory of the process."""
    program = """
import json, sys, numpy
def own():
    return sum(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("RssAnon"))
numpy.save(sys.argv[1], numpy.ones((64, 1 << 17), dtype="float64"))
def used(mode):
    before = own()
    data = numpy.load(sys.argv[1], mmap_mode=mode)
    float(data.sum())
    return own() - before
print(json.dumps([used(None), used("r")]))
"""
    loaded, mapped = told(program, str(folder / "data.npy"))
    assert loaded > 60_000
    assert mapped < loaded / 10


def pinned_while_it_runs(folder: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        only = str(min(os.sched_getaffinity(0)))
        line = f"for p in {child.pid} $(pgrep -P {child.pid}); do taskset -acp {only} $p; done"
        subprocess.run(["bash", "-c", line], check=True, capture_output=True, timeout=60)
        assert os.sched_getaffinity(child.pid) == {int(only)}
        child.communicate(b"\n")


def pinned_from_its_start(folder: Path) -> None:
    """What it starts has the same CPUs; and a program may take back CPUs that it was started without."""
    every = sorted(os.sched_getaffinity(0))
    program = "import json, os; os.sched_setaffinity(0, {}); print(json.dumps(sorted(os.sched_getaffinity(0))))"
    assert told(program.format(every[:1])) == every[:1]
    asks = "import os, json; print(json.dumps(sorted(os.sched_getaffinity(0))))"
    done = subprocess.run(
        ["taskset", "-c", str(every[0]), sys.executable, "-c", asks], capture_output=True, check=True, timeout=60
    )
    assert json.loads(done.stdout) == every[:1]


def less_of_the_cpus_for_another(folder: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        subprocess.run(["renice", "-n", "19", "-p", str(child.pid)], check=True, capture_output=True, timeout=60)
        assert os.getpriority(os.PRIO_PROCESS, child.pid) == 19
        child.communicate(b"\n")


def asked_its_pytorch(folder: Path) -> None:
    line = "import torch; print(torch.__version__, torch.version.cuda, torch.cuda.is_available())"
    done = subprocess.run([sys.executable, "-c", line], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split()[0].startswith("2.")


def asked_its_environment(folder: Path) -> None:
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "3"}
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env=environment) as child:
        line = f"tr '\\0' '\\n' </proc/{child.pid}/environ | grep CUDA_VISIBLE"
        done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True, timeout=60)
        assert done.stdout == "CUDA_VISIBLE_DEVICES=3\n"
        child.communicate(b"\n")


def one_process_a_gpu(folder: Path) -> None:
    """torchrun starts as many ranks as asked, each with a rank of its own and one compute thread."""
    program = folder / "train.py"
    program.write_text(
        "import os, pathlib, sys\n"
        "name = '-'.join(os.environ[key] for key in ('LOCAL_RANK', 'WORLD_SIZE', 'OMP_NUM_THREADS'))\n"
        "pathlib.Path(sys.argv[1], name).touch()\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", str(program)]
    subprocess.run([*run, str(folder)], env=environment, capture_output=True, check=True, timeout=120)
    assert sorted(path.name for path in folder.glob("?-2-*")) == ["0-2-1", "1-2-1"]


TRIALS = {
    trial.__name__: trial
    for trial in (
        loaders_beside_the_training, loaders_that_stay, batches_as_they_are_ready, batches_ahead,
        threads_by_the_environment, threads_by_the_program, losses_without_their_graphs, activations_recomputed,
        gradients_of_a_bounded_length, the_operation_that_returned_nan,
        gradients_sent_less_often, buckets_of_two_sizes, a_fused_optimizer,
        one_shard_for_many_files, half_the_batch_accumulated, the_batch_divided_among_ranks,
        a_part_of_the_data_for_each_rank, a_mapped_dataset, pinned_while_it_runs, pinned_from_its_start,
        less_of_the_cpus_for_another, asked_its_pytorch, asked_its_environment, one_process_a_gpu,
    )
}  # fmt: skip


@pytest.mark.parametrize("name", TRIALS)
def test_a_step_does_what_it_is_advised_for(name: str, tmp_path: Path) -> None:
    TRIALS[name](tmp_path)


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_command_that_is_advised_was_tried_or_says_why_not(name: str) -> None:
    *_, (_, verdict) = scenario(name, TAKES_S)
    advised = {step.command: one.rule for one in verdict.findings for step in one.steps if step.command}
    unknown = {command: rule for command, rule in advised.items() if not any(part in command for part in steps.TRIED)}
    assert unknown == {}


def test_every_trial_is_of_a_step() -> None:
    named = {*steps.TRIED.values(), *steps.SAID.values()}
    assert TRIALS.keys() <= named


def test_what_was_found_to_do_nothing_is_advised_no_more() -> None:
    """Sharing through files takes the same /dev/shm (batches_ahead); a pause cools nothing that a limit does not."""
    for file in Path(steps.__file__).parents[2].glob("gputop/**/*.py"):
        text = file.read_text()
        assert "set_sharing_strategy" not in text, file
        assert 'command="time.sleep' not in text, file
