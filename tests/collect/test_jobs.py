"""Who belongs to which job, for every launcher: process lists with the expected tree drawn beside them."""

from __future__ import annotations

import pytest

from gputop.collect.jobs import groups
from gputop.collect.jobs.groups import jobs
from gputop.model import GpuShare, Process, Role
from tests.job_tables import GPUS, draw, process, read

TABLES = {
    "torchrun": """
  1    0 systemd                                    | /sbin/init                    | -
 50    1 bash                                       | -bash                         | -
100   50 torchrun                                   | python /env/bin/torchrun t.py | llama/train (torchrun) launcher
101  100 python gpu=1 rank=1/2 local=1 folder=llama | python -u train.py --lr 3     |   rank1
102  100 python gpu=0 rank=0/2 local=0 folder=llama | python -u train.py --lr 3     |   rank0
103  102 pt_data_worker rank=0/2 local=0            | python -u train.py --lr 3     |     loader of 0
104  102 pt_data_worker rank=0/2 local=0            | python -u train.py --lr 3     |     loader of 0
105  101 pt_data_worker rank=1/2 local=1            | python -u train.py --lr 3     |     loader of 1
106  101 python rank=1/2 local=1                    | {TRACKER}                     |     other of 1
107  100 tee                                        | tee log                       |   other
""",
    "python -m torch.distributed.run, through a shell": """
100    1 pt_elastic                    | python3.11 -m torch.distributed.run t.py | t (torchrun) launcher
101  100 sh                            | sh -c python·t.py                        |   other
102  101 python gpu=0 rank=0/1 local=0 | python t.py                              |     rank0
""",
    "torch.distributed.launch": """
100    1 python               | python -m torch.distributed.launch t.py | t (torchrun) launcher
101  100 python gpu=0 local=0 | python t.py --local_rank=0              |   rank0
102  100 python gpu=1 local=1 | python t.py --local_rank=1              |   rank1
""",
    "accelerate": """
100    1 accelerate                    | python /env/bin/accelerate launch sd3.py | sd3 (accelerate) launcher
101  100 python gpu=4 rank=0/2 local=0 | python sd3.py                            |   rank0
102  100 python gpu=5 rank=1/2 local=1 | python sd3.py                            |   rank1
103  101 python rank=0/2 local=0       | python sd3.py                            |     loader of 0
""",
    "accelerate that is no launcher": """
100    1 accelerate | python /env/bin/accelerate config | -
""",
    "deepspeed": """
100    1 deepspeed                     | python /env/bin/deepspeed --num_gpus 2 pre.py | pre (deepspeed) launcher
101  100 python                        | python -m deepspeed.launcher.launch pre.py    |   launcher
102  101 python gpu=0 rank=0/2 local=0 | python -u pre.py --local_rank=0               |     rank0
103  101 python gpu=1 rank=1/2 local=1 | python -u pre.py --local_rank=1               |     rank1
""",
    "horovodrun over mpirun": """
100    1 horovodrun                    | python /env/bin/horovodrun -np 2 python h.py | h (horovod) launcher
101  100 sh                            | /bin/sh -c mpirun·-np·2                      |   other
102  101 mpirun                        | mpirun -np 2 python h.py                     |     launcher
103  102 python gpu=0 rank=0/2 local=0 | python h.py                                  |       rank0
104  102 python gpu=1 rank=1/2 local=1 | python h.py                                  |       rank1
""",
    "srun: the tasks of a step": """
100    1 slurmstepd user=root                     | slurmstepd: [812.0] | bert (slurm) launcher
101  100 python gpu=0 rank=0/2 local=0 slurm=bert | python b.py         |   rank0
102  100 python gpu=1 rank=1/2 local=1 slurm=bert | python b.py         |   rank1
103  102 pt_data_worker rank=1/2 local=1          | python b.py         |     loader of 1
""",
    "srun of another user: no environment": """
100    1 slurmstepd user=root  | slurmstepd: [812.0] | b (slurm) launcher
101  100 python gpu=1 user=bob | python b.py         |   rank1
102  100 python gpu=0 user=bob | python b.py         |   rank0
""",
    "sbatch that runs torchrun": """
100    1 slurmstepd user=root                    | slurmstepd: [813.batch]           | -
101  100 slurm_script rank=0/2 local=0           | /bin/bash /var/spool/slurm_script | -
102  101 torchrun rank=0/2 local=0               | python /env/bin/torchrun t.py     | gpt (torchrun) launcher
103  102 python gpu=0 rank=0/1 local=0 slurm=gpt | python t.py                       |   rank0
""",
    "two trainings in one interactive step": """
100    1 slurmstepd user=root                            | slurmstepd: [814.interactive] | a (slurm) launcher
101  100 bash rank=0/4 local=0                           | bash                          |   other
102  101 python gpu=0 rank=0/4 local=0 slurm=interactive | python a.py                   |     rank0
103  101 python gpu=1 rank=0/4 local=0 slurm=interactive | python a.py                   | a (python) rank0
""",
    "ray": """
 90    1 gcs_server                    | /env/ray/core/src/ray/gcs/gcs_server | -
100    1 raylet                        | /env/ray/core/src/ray/raylet/raylet  | RayTrainWorker (ray) launcher
101  100 ray::RayTrainWorker.run gpu=0 |                                      |   rank0
102  100 ray::RayTrainWorker.run gpu=1 |                                      |   rank1
103  100 ray::IDLE                     |                                      |   other
104  101 pt_data_worker                | ray::RayTrainWorker.run              |     loader of 0
""",
    "notebooks: each kernel a job": """
100    1 jupyter-lab                   | python /env/bin/jupyter-lab             | -
101  100 python gpu=7 folder=nb        | python -m ipykernel_launcher -f 8c.json | jupyter (notebook) trainer
102  100 python gpu=6                  | python -m ipykernel_launcher -f 9d.json | jupyter (notebook) trainer
103  101 pt_data_worker                | python -m ipykernel_launcher -f 8c.json |   loader
104  102 bash                          | bash -c torchrun·t.py                   |   other
105  104 torchrun                      | python /env/bin/torchrun t.py           | t (torchrun) launcher
106  105 python gpu=6 rank=0/1 local=0 | python t.py                             |   rank0
""",
    "accelerate.notebook_launcher forks the kernel": """
101    1 python gpu=0 | python -m ipykernel_launcher -f k.json | jupyter (notebook) trainer
102  101 python gpu=0 | python -m ipykernel_launcher -f k.json |   trainer
103  101 python gpu=1 | python -m ipykernel_launcher -f k.json |   trainer
""",
    "plain python": """
 50    1 bash                         | bash                        | -
100   50 python gpu=0 folder=llama-7b | python /home/alice/train.py | llama-7b/train (python) rank0
101  100 python                       | python /home/alice/train.py |   loader of 0
102  100 python                       | python /home/alice/train.py |   loader of 0
103  100 python                       | {TRACKER}                   |   other of 0
104  100 wandb-service                | wandb-service --pid 100     |   other of 0
105  101 sh                           | sh -c true                  |     other of 0
""",
    "a DataParallel process is one rank": """
100    1 python gpu=0,1,2,3 | python -m pkg.cli.train | train (python) rank0
101  100 pt_data_worker     | python -m pkg.cli.train |   loader of 0
102  100 python             | python -m pkg.cli.train |   other of 0
""",
    "multiprocessing spawns the ranks": """
100    1 python         | python mnist.py | mnist (python) launcher
101  100 python gpu=1   | {SPAWN}         |   rank1
102  100 python gpu=0   | {SPAWN}         |   rank0
103  100 python         | {TRACKER}       |   other
104  102 pt_data_worker | {SPAWN}         |     loader of 0
105  102 python         | {SPAWN}         |     other of 0
""",
    "loaders from a fork server": """
100    1 python gpu=0   | python t.py  | t (python) rank0
101  100 python         | {FORKSERVER} |   other of 0
102  101 pt_data_worker | {FORKSERVER} |     loader of 0
""",
    "environments of reinforcement learning: this PyTorch names its loaders": """
100    1 python gpu=0 build=2.9.0+cu128 | python ppo.py | ppo (python) rank0
101  100 python                         | python ppo.py |   other of 0
102  100 pt_data_worker                 | python ppo.py |   loader of 0
""",
    "loaders of an older PyTorch": """
100    1 python gpu=0 build=2.4.1+cu121 | python t.py | t (python) rank0
101  100 python                         | python t.py |   loader of 0
""",
    "environments beside a PyTorch that names its loaders": """
100    1 python gpu=0 build=2.5.0 | python ppo.py | ppo (python) rank0
101  100 python                   | python ppo.py |   other of 0
""",
    "lightning: the first rank starts the others": """
100    1 python gpu=0                    | python fit.py | fit (python) rank0
101  100 python gpu=1 rank=1/3 local=1   | python fit.py |   rank1
102  100 python gpu=2 rank=2/3 local=2   | python fit.py |   rank2
103  102 pt_data_worker rank=2/3 local=2 | python fit.py |     loader of 2
""",
    "ranks started by hand from one shell": """
 50    1 bash                          | bash run.sh | -
100   50 python gpu=1 rank=1/2 local=1 | python t.py | t (python) rank1
101   50 python gpu=0 rank=0/2 local=0 | python t.py | t (python) rank0
""",
    "the second of two nodes": """
100    1 torchrun                       | python /env/bin/torchrun --nnodes 2 t.py | t (torchrun) launcher
101  100 python gpu=0 rank=8/16 local=0 | python t.py                              |   rank8
102  100 python gpu=1 rank=9/16 local=1 | python t.py                              |   rank9
""",
    "a container with its own names": """
  1    0 torchrun                                        | python /usr/bin/torchrun t.py | bob-dev (torchrun) launcher
 10    1 python gpu=0 rank=0/1 local=0 container=bob-dev | python t.py                   |   rank0
""",
    "a container that only has a number": """
 10    1 python gpu=0 container=4f2a9c81d7e3 folder=w | python t.py | w/t (python) rank0
""",
    "torch without a GPU, when it works": """
100    1 python torch=180 folder=cpu | python t.py       | cpu/t (python) rank0
101  100 pt_data_worker              | python t.py       |   loader of 0
110    1 python torch=3              | python server.py  | -
120    1 python torch=3              | python prepare.py | prepare (python) rank0
121  120 python torch=99             | python prepare.py |   loader of 0
122  120 python torch=99             | python prepare.py |   loader of 0
""",
    "other frameworks without a GPU, but no name alone": """
100    1 python jax=180 folder=cpu   | python -m t.run  | cpu/run (python) rank0
110    1 python jax=3                | python serve.py  | -
120    1 python folder=cpu           | python train.py  | -
""",
    "ranks without a GPU": """
100    1 torchrun                | python /env/bin/torchrun t.py | t (torchrun) launcher
101  100 python rank=0/2 local=0 | python t.py                   |   rank0
102  100 python rank=1/2 local=1 | python t.py                   |   rank1
103  102 python rank=1/2 local=1 | python helper.py              |     other of 1
""",
    "what computes without Python": """
100    1 gmx gpu=0 folder=md | /opt/gromacs/bin/gmx mdrun | md/gmx (None) trainer
""",
    "graphics and servers are no jobs": """
100    1 Xorg gpu=0 kind=graphics     | /usr/lib/xorg/Xorg :0  | -
101    1 nvidia-cuda-mps-server gpu=0 | nvidia-cuda-mps-server | -
""",
    "pids that /proc does not show": """
100    1 python gpu=0           | python t.py | t (python) rank0
101  100 pt_data_worker         | python t.py |   loader of 0
100    0 ? gpu=1 unseen=foreign |             | -
9999   0 ? gpu=1 unseen=exited  |             | -
""",
    "a busy program that starts a launcher is no rank of its job": """
 90    1 python torch=70                     | python sweep.py               | -
100   90 torchrun                            | python /env/bin/torchrun t.py | t (torchrun) launcher
101  100 python gpu=0 rank=0/2 local=0       | python t.py                   |   rank0
102  100 python gpu=1 rank=1/2 local=1       | python t.py                   |   rank1
""",
    "it is none while its ranks still run on CPUs, or wait": """
 90    1 python torch=70                     | python sweep.py               | -
 95   90 sh                                  | sh -c torchrun·t.py           | -
100   95 torchrun                            | python /env/bin/torchrun t.py | t (torchrun) launcher
101  100 python torch=1 rank=0/2 local=0     | python t.py                   |   rank0
102  100 python torch=1 rank=1/2 local=1     | python t.py                   |   rank1
""",
    "mp.spawn on CPUs: the launcher is no rank, however busy it was with its imports": """
100    1 python torch=40 threads=                  | python s.py | s (python) launcher
101  100 python                                    | {TRACKER}   |   other
102  100 python torch=90 threads=gloo_runloop      | {SPAWN}     |   rank0
103  100 python torch=1 threads=gloo_tcp_loop      | {SPAWN}     |   rank1
104  103 pt_data_worker torch=60                   | {SPAWN}     |     loader of 1
""",
    "mp.spawn from a process with a CUDA context": """
100    1 python gpu=0 torch=1 threads=             | python s.py | s (python) launcher
101  100 python gpu=0 torch=90 threads=nccl_watchdg,autograd_0 | {SPAWN} |   rank0
102  100 python gpu=1 torch=90 threads=nccl_watchdg,autograd_1 | {SPAWN} |   rank1
""",
    "a trainer that has an engine of its own beside it stays a trainer": """
100    1 python gpu=0 torch=90 threads=autograd_0  | python grpo.py | grpo (python) rank0
101  100 python gpu=1 torch=90 threads=nccl_watchdg | {SPAWN}       |   rank1
""",
    "multiprocessing.Process: ranks that wait": """
100    1 python torch=3 threads=                   | python m.py | m (python) launcher
101  100 python torch=1 threads=gloo_runloop       | python m.py |   rank0
102  100 python torch=1 threads=gloo_runloop       | python m.py |   rank1
""",
    "ranks of a forkserver": """
100    1 python torch=3 threads=                   | python m.py  | m (python) launcher
101  100 python                                    | {TRACKER}    |   other
102  100 python threads=                           | {FORKSERVER} |   other
103  102 python torch=1 threads=gloo_runloop       | {FORKSERVER} |     rank0
104  102 python torch=1 threads=gloo_runloop       | {FORKSERVER} |     rank1
""",
    "a frozen program that spawns ranks": """
100    1 train                                     | ./train  | train (python) launcher
101  100 train torch=3 threads=                    | ./train  |   launcher
102  101 train torch=1 threads=gloo_runloop        | {FROZEN} |     rank0
103  101 train torch=1 threads=gloo_runloop        | {FROZEN} |     rank1
104  103 pt_data_worker torch=1                    | {FROZEN} |       loader of 1
""",
    "ranks by their arguments alone, from a shell": """
 50    1 bash                                | bash go.sh                  | -
101   50 python torch=1 threads=gloo_runloop | python w.py --rank 1 --lr 3 | w (python) rank1
102   50 python torch=1 threads=gloo_runloop | python w.py --rank 0 --lr 3 | w (python) rank0
""",
    "the rank of an adapter is no rank": """
 50    1 bash                                | bash go.sh          | -
101   50 python torch=1 threads=gloo_runloop | python w.py --rank 8  | w (python) trainer
102   50 python torch=1 threads=gloo_runloop | python w.py --rank 16 | w (python) trainer
""",
    "accelerate launch of a script that spawns its ranks": """
100    1 python                                    | python /env/bin/accelerate launch s.py | s (accelerate) launcher
101  100 python torch=30 threads=                  | python s.py                            |   launcher
102  101 python torch=1 threads=gloo_runloop       | {SPAWN}                                |     rank0
103  101 python torch=1 threads=gloo_runloop       | {SPAWN}                                |     rank1
""",
    "rank 0 that starts the others": """
100    1 python gpu=0 torch=50 threads=nccl_watchdg | python z.py | z (python) rank0
101  100 python gpu=1 torch=50 threads=nccl_watchdg | {SPAWN}     |   rank1
""",
    "ranks side by side: the environment tells, whatever the arguments": """
 50    1 bash                               | bash go.sh                   | -
101   50 python rank=0/2 port=29501         | python t.py --local_rank 0 a | t (python) rank0
102   50 python rank=1/2 port=29501         | python t.py --local_rank 1 b | t (python) rank1
103  102 pt_data_worker rank=1/2 port=29501 | python t.py --local_rank 1 b |   loader of 1
""",
    "ranks in two terminals, each behind uv": """
 50    1 bash                              | bash                            | -
 60    1 bash                              | bash                            | -
101   50 uv rank=0/2 port=29501            | uv run t.py --gpu 0             | -
102   60 uv rank=1/2 port=29501            | uv run t.py --gpu 1             | -
103  101 python gpu=0 rank=0/2 port=29501  | python t.py --gpu 0             | t (python) rank0
104  102 python gpu=1 rank=1/2 port=29501  | python t.py --gpu 1             | t (python) rank1
""",
    "two worlds with ports of their own in one shell": """
 50    1 bash                              | bash    | -
101   50 python gpu=0 rank=0/2 port=29501  | python t.py | t (python) rank0
102   50 python gpu=1 rank=0/2 port=29502  | python t.py | t (python) rank0
103   50 python gpu=2 rank=1/2 port=29501  | python t.py | t (python) rank1
104   50 python gpu=3 rank=1/2 port=29502  | python t.py | t (python) rank1
""",
    "two jobs of one rank each that kept the default port": """
101    1 python gpu=0 rank=0/1 port=29500  | python t.py | t (python) rank0
102    1 python gpu=1 rank=0/1 port=29500  | python t.py | t (python) rank0
""",
    "a rank that occurs twice is that of another job": """
 50    1 bash                              | bash        | -
 60    1 bash                              | bash        | -
101   50 python gpu=0 rank=0/2 port=29500  | python t.py | t (python) rank0
102   60 python gpu=1 rank=0/2 port=29500  | python t.py | t (python) rank0
103   60 python gpu=2 rank=1/2 port=29500  | python t.py | t (python) rank1
""",
    "the same world one after the other, in one shell": """
 50    1 bash                   | bash        | -
101   50 python gpu=0 rank=0/2  | python t.py | t (python) rank0
102   50 python gpu=1 rank=1/2  | python t.py | t (python) rank1
103   50 python gpu=2 rank=0/2  | python t.py | t (python) rank0
104   50 python gpu=3 rank=1/2  | python t.py | t (python) rank1
""",
    "rank 0 of two runs and nothing else: two jobs": """
 50    1 bash                   | bash        | -
101   50 python gpu=0 rank=0/2  | python t.py | t (python) rank0
102   50 python gpu=1 rank=0/2  | python t.py | t (python) rank0
""",
    "the world of another user is another one": """
101    1 python gpu=0 rank=0/2 port=29500            | python t.py | t (python) rank0
102    1 python gpu=1 rank=1/2 port=29500 user=bob   | python t.py | t (python) rank1
""",
    "and that of another container": """
101    1 python gpu=0 rank=0/2 port=29500 container=a  | python t.py | a (python) rank0
102    1 python gpu=1 rank=1/2 port=29500 container=b  | python t.py | b (python) rank1
""",
    "a sweep that one shell started": """
 50    1 bash          | bash                | -
101   50 python gpu=0  | python t.py --lr 1  | t (python) rank0
102   50 python gpu=1  | python t.py --lr 2  | t (python) rank0
103   50 python gpu=2  | python t.py --gpu 2 | t (python) rank0
""",
    "ranks and their GPUs by arguments": """
 50    1 bash                              | bash                          | -
101   50 python gpu=0 threads=nccl_w       | python t.py --rank 0 --gpu 0  | t (python) rank0
102   50 python gpu=1 threads=nccl_w       | python t.py --rank 1 --gpu 1  | t (python) rank1
""",
    "a world by arguments alone, before its ranks talk": """
 50    1 bash          | bash                             | -
101   50 python gpu=0  | python t.py --world-size 2 -rank 0 | t (python) rank0
102   50 python gpu=1  | python t.py --world-size 2 -rank 1 | t (python) rank1
""",
    "a rank that stands alone has the number it was given, or none": """
101    1 python gpu=0 rank=3/4 port=1            | python t.py                        | t (python) rank3
102    1 python gpu=1 threads=nccl_w             | python a.py --local_rank=1         | a (python) rank1
103    1 python gpu=2 threads=nccl_w             | python b.py --dist-url x --rank 5  | b (python) rank5
104    1 python gpu=3 threads=nccl_w             | python c.py                        | c (python) trainer
105    1 python gpu=4      | python d.py --node_rank 1 --local_rank 0 --rank 4 --world_size 8 | d (python) rank4
106    1 python gpu=5                            | python e.py --rank 16              | e (python) trainer
""",
    "two nodes on one machine: two torchruns of one world": """
100    1 torchrun                              | python /env/bin/torchrun t.py | t (torchrun) launcher
101  100 python gpu=0 rank=0/2 local=0 port=2  | python t.py                   |   rank0
200    1 torchrun                              | python /env/bin/torchrun t.py | t (torchrun) launcher
201  200 python gpu=1 rank=1/2 local=0 port=2  | python t.py                   |   rank1
""",
    "two programs of one Slurm step are two jobs": """
100    1 slurmstepd user=root    | slurmstepd: [814.interactive] | a (slurm) launcher
101  100 bash                    | bash                          |   other
102  101 python gpu=0            | python a.py                   |     rank0
103  101 python gpu=1            | python b.py                   | b (python) rank0
""",
    "srun --multi-prog: ranks of several programs": """
100    1 slurmstepd user=root            | slurmstepd: [815.0] | actor (slurm) launcher
101  100 python gpu=0 rank=0/2 local=0   | python actor.py     |   rank0
102  100 python gpu=1 rank=1/2 local=1   | python learner.py   |   rank1
""",
    "nodes in the environment, ranks by mp.spawn": """
100    1 python rank=1/2 torch=3 threads=              | python k.py | k (python) launcher
101  100 python rank=1/2 torch=9 threads=nccl_watchdg | {SPAWN}     |   rank0
102  100 python rank=1/2 torch=9 threads=nccl_watchdg | {SPAWN}     |   rank1
""",
}  # fmt: skip


@pytest.mark.parametrize("name", TABLES)
def test_tree(name: str) -> None:
    processes, expected = read(TABLES[name])
    assert draw(processes) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ranks started by hand from one shell", [[101, 100]]),
        ("ranks by their arguments alone, from a shell", [[102, 101]]),
        ("the rank of an adapter is no rank", [[101], [102]]),
        ("ranks side by side: the environment tells, whatever the arguments", [[101, 102]]),
        ("ranks in two terminals, each behind uv", [[103, 104]]),
        ("two worlds with ports of their own in one shell", [[101, 103], [102, 104]]),
        ("two jobs of one rank each that kept the default port", [[101], [102]]),
        ("a rank that occurs twice is that of another job", [[101], [102, 103]]),
        ("the same world one after the other, in one shell", [[101, 102], [103, 104]]),
        ("rank 0 of two runs and nothing else: two jobs", [[101], [102]]),
        ("the world of another user is another one", [[101], [102]]),
        ("and that of another container", [[101], [102]]),
        ("a sweep that one shell started", [[101], [102], [103]]),
        ("ranks and their GPUs by arguments", [[101, 102]]),
        ("a world by arguments alone, before its ranks talk", [[101, 102]]),
        ("two nodes on one machine: two torchruns of one world", [[101, 201]]),
        ("two programs of one Slurm step are two jobs", [[102], [103]]),
        ("srun --multi-prog: ranks of several programs", [[101, 102]]),
    ],
)
def test_which_ranks_are_one_job(name: str, expected: list[list[int]]) -> None:
    """In the order of their numbers: two roots of one job look alike in a tree."""
    _, found = jobs(read(TABLES[name])[0], GPUS)
    assert [[pid for pid, _ in job.ranks] for job in found] == expected


def test_a_loader_is_a_loader_even_with_a_context_of_its_own() -> None:
    processes, expected = read("""
100    1 python gpu=0         | python t.py | t (python) rank0
101  100 pt_data_worker gpu=0 | python t.py |   loader of 0
""")
    assert draw(processes) == expected


def test_who_makes_optimizer_steps_trains_whatever_else_is_known_of_it() -> None:
    idle = process(100, 50, "python", "python train.py", {"torch": "3"})
    asleep = process(101, 50, "train", "./train", {})  # of which nothing was read yet
    (first, second), found = jobs([idle, asleep], GPUS, {asleep.identity})
    assert (first.role, second.role) == (Role.OTHER, Role.TRAINER)
    assert [job.ranks for job in found] == [(asleep.identity,)]


def test_a_rank_is_asked_once_for_thousands_of_children(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    named = groups._named
    monkeypatch.setattr(groups, "_named", lambda people, owner: asked.append(owner.pid) or named(people, owner))
    command = ("python", "train.py")
    rank = Process(pid=9, started_ticks=1, name="python", command=command, gpus=(GpuShare(uuid="a"),))
    below = (Process(pid=10 + n, started_ticks=2, parent_pid=9, name="python", command=command) for n in range(500))
    cast, _ = groups.jobs((rank, *below))
    assert asked == [9]
    assert {one.role for one in cast[1:]} == {Role.LOADER}
