"""Every step that the rules advise in the demos: the trial that shows its effect, or why there is none.

A step is known by a part of its text or of its command. Trials stand in test_trials.py, under the names used here.
"""

from __future__ import annotations

GPU = "needs a GPU: its effect is on kernels, device memory or the driver"
HARDWARE = "work on hardware, its firmware or its cooling"
MACHINE = "changes the machine or a container, as root"
INSTALL = "replaces software"
LOOK = "only looks: changes nothing"
GPUTOP = "gputop's own command, tested with the command"
WORDS = "a choice for a person, with nothing to run"
DATA = "depends on what the samples are"

# by a part of the command
TRIED: dict[str, str] = {
    "num_workers=": "loaders_beside_the_training",
    "persistent_workers=True)": "loaders_that_stay",
    "in_order=False": "batches_as_they_are_ready",
    "prefetch_factor=": "batches_ahead",
    "export OMP_NUM_THREADS=": "threads_by_the_environment",
    "export OPENBLAS_NUM_THREADS=": "threads_by_the_environment",
    "torch.set_num_threads(": "threads_by_the_program",
    "total += loss.detach()": "losses_without_their_graphs",
    "logger.log(loss=loss.item())": "losses_without_their_graphs",
    "clip_grad_norm_": "gradients_of_a_bounded_length",
    "detect_anomaly(": "the_operation_that_returned_nan",
    "torch.utils.checkpoint": "activations_recomputed",
    "model.no_sync()": "gradients_sent_less_often",
    "bf16_compress_hook": "needs NCCL: PyTorch refuses it with gloo",
    "bucket_cap_mb=": "buckets_of_two_sizes",
    "expandable_segments": "tests/test_pytorch.py",
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "tests/test_pytorch.py",
    "taskset -acp": "pinned_while_it_runs",
    "taskset -c": "pinned_from_its_start",
    "os.sched_setaffinity": "pinned_from_its_start",
    "fused=True": "a_fused_optimizer",
    "tar --sort=name": "one_shard_for_many_files",
    "is_available())": "asked_its_pytorch",
    "/environ | grep CUDA_VISIBLE": "asked_its_environment",
    "gputop stack": GPUTOP,
    "gputop profile": GPUTOP,
    "gputop recipe": GPUTOP,
    "gputop --": GPUTOP,
    "sudo gputop": GPUTOP,
    "torch.compile": GPU,
    "torch.autocast": GPU,
    "torch.set_float32_matmul_precision": GPU,
    "scaled_dot_product_attention": GPU,
    "pin_memory=True); x": GPU,
    'model.to("cuda")': GPU,
    "set_sync_debug_mode": GPU,
    "DistributedDataParallel(model.cuda": GPU,
    "torchrun --nproc_per_node": "one_process_a_gpu",
    "FullyShardedDataParallel": GPU,
    "BitsAndBytesConfig": GPU,
    "torch.distributed.pipelining": GPU,
    "fully_shard": GPU,
    "vllm serve": "another program, on a GPU",
    "CUDA_VISIBLE_DEVICES=": GPU,
    "NCCL_": GPU,
    "nc localhost": GPU,
    "nvidia-cuda-mps": GPU,
    "nvidia-smi": GPU,
    "dcgmi": GPU,
    "nvidia-persistenced": GPU,
    "docker ": MACHINE,
    "mount ": MACHINE,
    "cpupower": MACHINE,
    "renice": "less_of_the_cpus_for_another",
    "conda ": INSTALL,
    "dmesg": LOOK,
    "lspci": LOOK,
    "iostat": LOOK,
    "nfsiostat": LOOK,
    "/wchan": LOOK,
    "vmtouch": DATA,
    "rsync": DATA,
    "gc.disable()": WORDS,
    "cv2.setNumThreads": "a library that these tests do not have",
}
# by a part of the text, where there is no command
SAID: dict[str, str] = {
    "Halve the batch and accumulate": "half_the_batch_accumulated",
    "Shard the data with DistributedSampler": "a_part_of_the_data_for_each_rank",
    "Per rank: batch size": "the_batch_divided_among_ranks",
    "map the dataset instead of loading it": "a_mapped_dataset",
    "Pinned memory cannot be swapped": "the manual of the kernel: tmpfs pages are swappable, locked ones are not",
}
