"""What gputop explain says of pasted texts: tables of torch.profiler, nvidia-smi, CSV, logs, memory snapshots."""

from __future__ import annotations

import json
import pickle
import random
from pathlib import Path
from typing import Any

import pytest

from gputop import thresholds
from gputop.paste import KINDS, Pasted, memory_snapshot, read
from gputop.paste import pasted as limits
from gputop.report import FORMATS
from gputop.safe.files import Refused
from gputop.safe.plain_pickle import plain
from tests import pasted_texts
from tests.hostile import STRINGS

GIB = 2**30


def told(text: str) -> Pasted:
    found = read(text)
    assert found is not None
    return found


def said(text: str) -> str:
    """The page as one line of words."""
    return " ".join(FORMATS["text"](told(text).page("x")).split())


def worst(text: str) -> str:
    return next((point.text for point in told(text).points if point.severity != "fine"), "")


class TestOperatorTable:
    def test_the_documents_table(self) -> None:
        found = told(pasted_texts.s1())
        assert found.numbers["dataloader_share"] == pytest.approx(0.1907, abs=1e-4)
        assert found.numbers["window"] == {"ms": pytest.approx(223.257), "of": "of model_training"}
        top = found.numbers["operators"][0]
        assert top["name"].startswith("enumerate(DataLoader)#_SingleProcess")
        assert (top["self_cpu_ms"], top["cpu_ms"], top["count"]) == (pytest.approx(32.919), pytest.approx(42.571), 11)
        assert worst(pasted_texts.s1()).startswith("The DataLoader takes 19 % of model_training, in the main process")
        words = said(pasted_texts.s1())
        assert "The table has no GPU columns" in words
        assert "only a trace shows" in words
        assert "larger operators may be missing" in words
        assert "Synchronization" not in words, "126 µs of aten::item are no trouble"

    def test_a_table_is_read_as_it_was_pasted(self) -> None:
        whole = told(pasted_texts.s1()).numbers["operators"]
        stripped = "\n".join(line.strip() for line in pasted_texts.s1().splitlines())
        logged = "".join(f"[rank0]: {line}\r\n" for line in pasted_texts.s1().splitlines())
        for text in (stripped, logged, f"```\n{pasted_texts.s1()}```\n", f"Epoch 1\n\n{pasted_texts.s1()}done\n"):
            assert told(text).numbers["operators"] == whole
            assert told(text).problems == ()

    def test_a_cut_table_says_so(self) -> None:
        found = told("\n".join(pasted_texts.s1().splitlines()[:6]))
        assert found.problems == ("The table is truncated: its last rule is missing, so rows may be missing too.",)

    def test_python_functions_are_not_taken_for_operators(self) -> None:
        table = pasted_texts.Operators(2_090_000)
        table.row("threading.py(1002): _bootstrap", 2.3, 1_393_000, 2)
        table.row("multiprocessing/queues.py(231): _feed", 67.9, 1_393_000, 2)
        table.row("threading.py(327): wait", 267_413, 267_594, 2)
        table.row("s2.py(28): <module>", -81.6, 696_693)
        words = said(table.text())
        assert "a waiting helper thread" in words
        assert "with_stack=True was set; no operator is among them" in words
        assert told(table.text()).points == ()

    def test_kernels_are_no_regions(self) -> None:
        table = pasted_texts.Operators(100_000, 50_000).row("data_transfer", 5_000, 9_000, 4, gpu=10.0)
        table.row("ampere_sgemm_128x64_tn", 0, calls=40, gpu=30_000).row("triton_poi_fused_0", 0, calls=9, gpu=9_000)
        table.row("flash_fwd_splitkv", 0, calls=9, gpu=900).row("data_transfer", 0, calls=4, gpu=8_000)
        table.row("Runtime Triggered Module Loading", 700, calls=9).row("Instrumentation", 600, calls=9)
        (rows,) = [each.rows for each in told(table.text()).tables if each.title.startswith("Regions")]
        assert [row[0] for row in rows] == ["data_transfer"]

    def test_launches(self) -> None:
        table = pasted_texts.Operators(100_000, 20_000).row("ProfilerStep*", 10_000, 100_000, 4)
        table.row("cudaLaunchKernel", 40_000, calls=4000).row(
            "void tiny_elementwise_kernel<float>", 0, 0, 4000, gpu=20_000
        )
        found = told(table.text())
        assert found.numbers["gpu_busy_at_most"] == pytest.approx(0.2)
        assert found.numbers["steps"] == 4
        assert "Launch-bound: 1000 kernel launches per step, 5.0 µs of GPU time each." in [
            one.text for one in found.points
        ]
        assert any("GPU idle at least 80 %" in one.text for one in found.points)

    def test_a_busy_gpu_is_healthy_though_the_cpu_waits_for_it(self) -> None:
        table = pasted_texts.Operators(100_000, 97_000).row("ProfilerStep*", 2_000, 100_000, 4)
        table.row("cudaDeviceSynchronize", 90_000, calls=4).row("nvjet_hsh_128x128_bf16", 0, 0, 400, gpu=97_000)
        assert [point.severity for point in told(table.text()).points] == ["fine"]

    @pytest.mark.parametrize(
        ("name", "own", "total", "calls", "gpu", "wanted"),
        [
            ("aten::item", 100, 40_000, 400, 0, "Synchronization: the CPU waits for the GPU 40 % of the steps."),
            ("cudaStreamSynchronize", 40_000, None, 400, 0, "Synchronization"),
            ("cudaMalloc", 12_000, None, 60, 0, "Driver allocations in the loop: 60 calls take 12 %"),
            ("Memcpy HtoD (Pageable -> Device)", 0, 0, 8, 9_000, "copies take 45 % of the GPU time, from pageable"),
            ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", 0, 0, 8, 9_000, "Communication takes 45 % of the GPU time."),
            ("ampere_sgemm_128x64_tn", 0, 0, 8, 9_000, "FP32 matrix kernels without tensor cores take 45 %"),
        ],
    )
    def test_advice(self, name: str, own: float, total: float | None, calls: int, gpu: float, wanted: str) -> None:
        table = pasted_texts.Operators(100_000, 20_000).row("ProfilerStep*", 10_000, 100_000, 4)
        text = table.row(name, own, total, calls, gpu=gpu).text()
        assert any(wanted in point.text for point in told(text).points), [point.text for point in told(text).points]

    def test_the_optimizer(self) -> None:
        table = pasted_texts.Operators(100_000).row("Optimizer.step#AdamW.step", 5_000, 40_000, 4)
        assert "not fused" in said(table.row("aten::addcdiv_", 9_000, calls=800).text())
        assert "not fused" not in said(table.row("aten::_foreach_addcdiv_", 9_000, calls=4).text())

    def test_the_regions_of_the_documents(self) -> None:
        table = pasted_texts.Operators(231_000).row("backward", 1_000, 125_300, 3).row("forward", 1_000, 78_200, 3)
        table.row("NllLossBackward0", 1_000, 2_000, 3)
        assert "NllLossBackward0" not in said(table.text()).split("Regions of")[1]
        table.row("optimizer", 1_000, 15_400, 3).row("data_transfer", 1_000, 12_100, 3)
        assert "backward 54 %, forward 34 %, optimizer 7 %, data_transfer 5 %: forward and backward" in said(
            table.text()
        )

    def test_regions_that_are_little_of_a_step_do_not_dominate(self) -> None:
        """726 ms of steps: half waits for data, the rest pauses; backward has 70 % of what the regions have."""
        table = pasted_texts.Operators(726_000).row("backward", 1_000, 41_000, 4).row("optimizer", 1_000, 16_000, 4)
        words = said(table.row("forward", 1_000, 2_000, 4).row("ProfilerStep*", 660_000, 726_000, 4).text())
        assert "backward 69 %, optimizer 27 %, forward 3 %; together 8 % of the steps." in words
        assert "dominate" not in words

    def test_python_in_a_region_is_larger_than_any_operator(self) -> None:
        table = pasted_texts.Operators(71_860).row("model_inference", 71_140, 71_860).row("aten::addmm", 349, 404, 6)
        words = said(table.text())
        assert "rows: model_inference itself, 71.14 ms (99.0 % of 71.86 ms): Python and waits there" in words
        assert "Largest operator: aten::addmm, 349 µs (0.5 %)." in words


class TestNvidiaSmi:
    def test_a_healthy_gpu(self) -> None:
        found = told(pasted_texts.smi())
        assert [point.severity for point in found.points] == ["fine"]
        gpu = found.numbers["gpus"][0]
        assert (gpu["gpu"], gpu["power_w"], gpu["power_limit_w"], gpu["temperature_c"]) == ("3", 640, 700, 65)
        assert (gpu["pcie_generation"], gpu["pcie_width"], gpu["memory_used_bytes"]) == (5, 16, 60010 * 2**20)
        assert gpu["processes"] == [{"pid": 4242, "name": "/usr/bin/python", "used_bytes": 60000 * 2**20}]
        assert "It is a single sample" in said(pasted_texts.smi())

    @pytest.mark.parametrize(
        ("changes", "severity", "wanted"),
        [
            ({"thermal": "Active"}, "crit", "GPU 3: hardware thermal slowdown."),
            ({"power_cap": "Active"}, "info", "GPU 3: power-capped at full load, as expected."),
            (
                {"power_cap": "Active", "limit": "500.00"},
                "warn",
                "power limit 500 W (default 700 W), power-capped now.",
            ),
            ({"volatile": "2"}, "crit", "GPU 3: 2 uncorrectable ECC errors since the driver was loaded."),
            ({"aggregate": "5"}, "info", "GPU 3: 5 uncorrectable ECC errors over its lifetime."),
            ({"pending": "Yes"}, "crit", "row remapping pending, done at the next reset."),
            ({"celsius": "88"}, "warn", "GPU 3: close to its temperature limit."),
            ({"width": "8"}, "warn", "GPU 3: PCIe runs at 8 of 16 lanes."),
            ({"generation": "1"}, "warn", "GPU 3: PCIe runs at generation 1 of 5 under load."),
            ({"persistence": "Disabled"}, "info", "GPU 3: persistence mode is off"),
            ({"used": "81000"}, "warn", "GPU 3: memory is nearly full."),
            ({"busy": "30"}, "info", "GPU 3: not fully used at this moment, with 1 process on it."),
        ],
    )
    def test_trouble(self, changes: dict[str, str], severity: str, wanted: str) -> None:
        points = told(pasted_texts.smi(**changes)).points
        assert [(point.severity, wanted in point.text) for point in points] == [(severity, True)], points

    def test_a_link_at_rest_is_slow_to_save_power(self) -> None:
        assert not any("PCIe" in point.text for point in told(pasted_texts.smi(generation="1", busy="0")).points)

    def test_the_box_of_plain_nvidia_smi(self) -> None:
        first, second = told(pasted_texts.BOX).numbers["gpus"]
        assert (first["busy_percent"], first["power_w"], first["power_limit_w"], first["uncorrectable"]) == (
            12,
            390,
            400,
            2,
        )
        assert first["processes"] == [{"pid": 4242, "name": "/usr/bin/python", "used_bytes": 80000 * 2**20}]
        assert (second["product"], second["temperature_c"]) == ("NVIDIA GeForce RTX 4090", 33)
        assert (second["uncorrectable"], second["processes"]) == (None, [])
        assert [point.text for point in told(pasted_texts.BOX).points] == [
            "GPU 0: 2 uncorrectable ECC errors since the driver was loaded.",
            "GPU 0: close to its temperature limit.",
            "GPU 0: memory is nearly full.",
            "GPU 0: not fully used at this moment, with 1 process on it.",
            "GPU 1: persistence mode is off, so the driver unloads between jobs.",
        ]

    def test_nothing_is_said_of_what_is_not_in_it(self) -> None:
        part = pasted_texts.smi().split("    Clocks Event Reasons")[0]
        assert worst(part) == "No problem found in the values present. Missing values may say otherwise."

    def test_without_its_indents(self) -> None:
        flat = "\n".join(line.strip() for line in pasted_texts.smi(thermal="Active").splitlines())
        assert worst(flat) == "GPU 3: hardware thermal slowdown."


class TestCsv:
    def test_a_steady_gpu(self) -> None:
        found = told(pasted_texts.csv([0, 0, *[97] * 40, 0]))
        assert [point.severity for point in found.points] == ["fine"]
        gpu = found.numbers["gpus"][0]
        assert (gpu["busy_percent"], gpu["samples"], gpu["samples_at_work"], gpu["interval_s"]) == (97, 43, 40, 5)
        assert gpu["power_w"] == pytest.approx(300.12)

    def test_what_holds_memory_and_works_no_more(self) -> None:
        """Five minutes at 97 %, then five at 0 % with the memory held: no word of praise alone is said."""
        found = told(pasted_texts.csv([97] * 60 + [0] * 60))
        assert found.points[0].text == "GPU 0 was idle in the last 5 min while its memory stayed allocated."
        assert found.points[0].severity == "warn"
        freed = told(pasted_texts.csv([97] * 60 + [0] * 60, used=[30000] * 60 + [3] * 60))
        assert [point.severity for point in freed.points] == ["fine"]
        assert [point.severity for point in found.points] == ["warn"]  # a hang is not well, too

    def test_what_is_not_counted_is_said(self) -> None:
        """A mean of 98 % over a file that is at 0 % for two thirds of its time."""
        late = "Idle time at the ends is not counted: GPU 0, 40 samples before its first work."
        assert late in told(pasted_texts.csv([0] * 40 + [98] * 20)).words
        assert not any("not counted" in words for words in told(pasted_texts.csv([98] * 60)).words)

    def test_what_is_high_in_between_is_not_low_throughout(self) -> None:
        """Two of three samples are low, so that the median is; a single pause is no low use, either."""
        for busy in ([97, 2, 3] * 20, [98] * 20 + [0] * 20 + [98] * 20):
            assert worst(pasted_texts.csv(busy)).startswith("GPU 0: utilization rises and falls, the GPU waits")
        assert worst(pasted_texts.csv([20, 25, 30] * 20)).startswith("GPU 0: utilization is low throughout")

    def test_dips_and_their_period(self) -> None:
        gpu = told(pasted_texts.csv([5 if at % 12 == 11 else 70 for at in range(120)])).numbers["gpus"][0]
        assert (gpu["dips"], gpu["period_s"]) == (10, pytest.approx(60))

    def test_a_starved_gpu(self) -> None:
        text = pasted_texts.csv([random.Random(at).choice((10, 90, 30, 60, 95)) for at in range(70)])
        assert "the GPU waits for input, the CPU or other ranks" in worst(text)

    def test_dips_are_not_all_that_is_low(self) -> None:
        low, high = ([5 if at % 12 == 11 else value for at in range(120)] for value in (70, 85))
        assert "utilization rises and falls" in worst(pasted_texts.csv(low))
        assert "one every 1 min" in said(pasted_texts.csv(low))
        assert worst(pasted_texts.csv(high)).startswith("GPU 0: utilization dips every 1 min")

    def test_growing_memory(self) -> None:
        used = [20_000 + 100 * at for at in range(80)]
        found = told(pasted_texts.csv([97] * 80, used=used))
        assert found.numbers["gpus"][0]["memory_growth_bytes"] == pytest.approx(4000 * 2**20, rel=0.02)
        assert any("memory grows steadily" in point.text for point in found.points)
        assert not any("memory" in point.text for point in told(pasted_texts.csv([97] * 80)).points)

    def test_the_other_recipes(self) -> None:
        plain_ = told(pasted_texts.csv([97] * 9, nounits=True)).numbers["gpus"][0]
        assert plain_["busy_percent"] == 97
        logger = "timestamp,gpu_idx,util_pct,mem_used_mb,mem_total_mb,temp_c,power_w\n"
        logger += "".join(f"2024-01-02T03:04:{5 * at:02d},1,50,1000,2000,40,99.5\n" for at in range(9))
        found = told(logger).numbers["gpus"]
        assert [(one["gpu"], one["busy_percent"], one["interval_s"]) for one in found] == [("GPU 1", 50, 5)]
        bare = "0, NVIDIA A100-SXM4-80GB, 55, 12, 1234, 81920, 45, 250.12\n" * 10
        assert told(bare).numbers["gpus"][0]["busy_percent"] == 55
        assert "It has no header" in said(bare)
        alone = "utilization.gpu [%]\n" + "55 %\n" * 10
        assert told(alone).numbers["gpus"][0]["busy_percent"] == 55
        assert read("memory.used is what nvidia-smi calls it\n1, 2\n") is None

    def test_slow_clocks_by_the_mask(self) -> None:
        rows = "index, utilization.gpu [%], clocks_event_reasons.active\n" + "0, 99 %, 0x0000000000000040\n" * 20
        assert worst(rows) == "GPU 0: hardware thermal slowdown."

    def test_the_log_of_gputop(self) -> None:
        head = (
            "timestamp,gpu_idx,util_pct,mem_used_mb,mem_total_mb,temp_c,power_w,sm_clock_mhz,throttled_heat_percent\n"
        )
        rows = "2026-11-25T17:52:13.033+00:00,0,97.5,30724,81559,90,452.595,1410,47.2\n" * 20
        assert worst(head + rows) == "GPU 0: thermal slowdown."
        assert not any(point.severity == "fine" for point in told(head + rows).points)

    def test_what_cannot_be_read_is_said(self) -> None:
        text = pasted_texts.csv([97] * 9)
        assert told(text + "2024/01/02 00:0").problems == ("The last line is truncated and left out.",)
        assert told(text + "Failed\nUnable to\n").problems == ("2 lines could not be read and are left out.",)
        mixed = "timestamp, utilization.gpu [%]\n" + "2024/01/02 03:04:05, 9 %\n2024/01/02 03:04:05, 99 %\n" * 9
        assert "no column that identifies them" in told(mixed).problems[0]


class TestLog:
    def test_memory_that_is_in_use(self) -> None:
        found = told(pasted_texts.oom())
        assert worst(pasted_texts.oom()) == "GPU 0: CUDA out of memory in backward."
        trouble = found.numbers["troubles"][0]
        assert (trouble["tried_bytes"], trouble["fragmented"]) == (2 * GIB, False)
        assert trouble["free_bytes"] == GIB
        assert found.numbers["raised_at"] == "train.py:61 (step)"
        assert "Last step in the log before it: 42." in said(pasted_texts.oom())
        assert "export PYTORCH" not in said(pasted_texts.oom())

    def test_a_fragmented_cache(self) -> None:
        text = pasted_texts.oom(allocated=60, cached=16)
        assert worst(text) == "GPU 0: CUDA out of memory in backward: memory is fragmented."
        assert "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True" in said(text)
        assert "export PYTORCH_ALLOC_CONF=expandable" in said(f"torch version: 2.12.0\n{text}")

    def test_other_processes(self) -> None:
        assert "other processes use 40.0G of it" in worst(pasted_texts.oom(free=1, own=38.15, allocated=37))
        assert "nvidia-smi" not in said(pasted_texts.oom())

    def test_this_process_by_a_pid_of_the_host(self) -> None:
        """In a container the driver lists it by another PID, as if it were another process."""
        text = pasted_texts.oom().replace("Including non-PyTorch memory, this process has", "Process 1234 has")
        assert "this process uses 78.0G (PID 1234 on the host, judging by its size)" in said(text)
        assert "nvidia-smi" not in said(text)
        assert told(text).numbers["troubles"][0]["process_bytes"] == 78 * GIB
        beside = text.replace("Process 1234 has", "Process 9 has 30.00 GiB memory in use. Process 1234 has")
        beside = beside.replace("78.00 GiB memory", "48.00 GiB memory").replace("76.00 GiB", "46.00 GiB")
        assert "(PID 1234 on the host" in said(beside)
        assert "other process 9 uses 30.0G" in said(beside)
        assert "nvidia-smi -i 0" in said(beside)

    def test_only_a_log_without_errors_is_sent_elsewhere(self) -> None:
        assert "GPU times" not in said(pasted_texts.oom())

    def test_an_old_message(self) -> None:
        trouble = told(pasted_texts.OLD_OOM).numbers["troubles"][0]
        assert (trouble["gpu"], trouble["tried_bytes"], trouble["allocated_bytes"]) == ("1", 20 * 2**20, 21 * GIB)
        assert trouble["reserved_unallocated_bytes"] == GIB

    def test_a_timeout(self) -> None:
        found = told("".join(pasted_texts.timeout(rank) for rank in (0, 1, 3)))
        assert found.points[0].text == "Hang: allreduce #42 timed out on ranks 0, 1, 3."
        rank = found.numbers["troubles"][0]["ranks"][0]
        assert rank == {"rank": 0, "operation": "ALLREDUCE", "sequence": 42, "timeout_s": 600, "last_completed": None}
        words = said("".join(pasted_texts.timeout(rank) for rank in (0, 1, 3)))
        assert "TORCH_NCCL_TRACE_BUFFER_SIZE" in words
        assert "ranks 0, 1, 3 waited for them. A missing rank is slow, stuck or dead." in words
        assert words.count("#42") == 1, "each rank at the same one needs no line of its own"
        assert "the log does not show how many ranks there are" in words

    def test_one_log_does_not_tell_which_rank_is_late(self) -> None:
        words = said(pasted_texts.timeout(0))
        assert "waited for them" not in words
        assert "Compare the logs of all ranks: this log has rank 0 alone, which may be late" in words

    def test_the_rank_behind(self) -> None:
        text = pasted_texts.timeout(0, 43) + pasted_texts.timeout(1, 42, "BROADCAST") + pasted_texts.timeout(2, 43)
        assert worst(text) == "Hang: rank 1 is behind the others, at broadcast #42."
        assert "ranks 0, 2 at allreduce #43 · rank 1 at broadcast #42" in said(text)
        assert told(text).numbers["troubles"][0]["behind"] == [1]

    def test_groups_of_ranks_count_for_themselves(self) -> None:
        of = [pasted_texts.timeout(at, 42 - at).replace("[Rank", f"[PG ID {at} PG GUID {at} Rank") for at in (0, 1)]
        assert "behind" not in worst("".join(of))

    @pytest.mark.parametrize(
        ("lines", "wanted", "first"),
        [
            (
                ["step 1 loss: 2.1", "step 2 loss: 2.0", "step 3 loss: 2.2", "step 4 loss: nan"],
                "all at once",
                "Find the op",
            ),
            (["loss=2.1", "loss=2.0", "loss=9", "loss=80", "loss=inf"], "infinite, after it grew", "Clip gradients"),
            (["{'loss': 2.1, 'grad_norm': nan, 'epoch': 0.1}"], "The grad_norm is NaN.", "Find the op"),
            (['{"loss": 2.1, "step": 7}', '{"loss": NaN, "step": 8}'], "The loss is NaN at step 8", "Find the op"),
            (["10%|# | 1/9 [loss=2.1]\r20%|# | 2/9 [loss=nan.0]"], "The loss is NaN", "Find the op"),
            (["epoch 5 | loss nan | best 0.4 | clip 100 | checkpoint saved"], "The loss is NaN", "Find the op"),
            (["Loss is nan, stopping training"], "The loss is NaN.", "Find the op"),
            (
                ["RuntimeError: Function 'LogBackward0' returned nan values in its 0th output."],
                "NaN gradient: LogBackward0 returned NaN in backward.",
                "Look at the forward call",
            ),
        ],
    )
    def test_nan(self, lines: list[str], wanted: str, first: str) -> None:
        point = told("\n".join(lines)).points[0]
        assert wanted in point.text
        step = point.steps[0]
        assert (step if isinstance(step, str) else step.text).startswith(first)
        words = said("\n".join(lines))
        assert "clip_grad_norm_" in words
        assert "LogBackward0" in words or "detect_anomaly" in words
        assert "initialization" in words

    @pytest.mark.parametrize(
        ("lines", "severity", "text"),
        [
            (["step 7 grad_norm: 1.2", "step 8 grad_norm: inf", "step 9 grad_norm: 1.1"], "warn",
             "The grad_norm was infinite at step 8; it recovered."),
            (["grad_norm=nan", *["grad_norm=1.5"] * 3], "warn", "The grad_norm was NaN; it recovered."),
            (["non-finite loss, skipping", *["loss=1.5"] * 3], "warn", "The loss was not finite; it recovered."),
            (["grad_norm=nan", "grad_norm=1.5"], "crit", "The grad_norm is NaN."),  # perhaps of another rank
            (["grad_norm=nan", "grad_norm=1.5"] * 4, "crit", "The grad_norm is NaN."),
            (["step 1 grad_norm: inf", "step 2 grad_norm: 2", "step 9 loss: nan", "step 9 grad_norm: nan"], "crit",
             "The loss is NaN at step 9."),
            (["step 1 loss: nan", "step 2 val_loss: 2"], "crit", "The loss is NaN at step 1."),
        ],
    )  # fmt: skip
    def test_a_number_that_recovers_is_a_warning(self, lines: list[str], severity: str, text: str) -> None:
        (point,) = told("\n".join(lines)).points
        assert (point.severity, point.text) == (severity, text)
        assert told("\n".join(lines)).numbers["troubles"][0]["recovered"] == (severity == "warn")

    @pytest.mark.parametrize(
        "line",
        [
            "best_loss: inf",
            "val_loss improved from inf to 0.5",
            "loss: 2.1 info: fine",
            "loss 0.5 infer 3",
            "Gradient overflow. Skipping step, reducing loss scale to 32768.0",
            "main;nan_to_num;loss nan 5",
            "step 10 loss 2.5",
            "max_grad_norm: inf",
            "check for nan: loss is NaN check on",
        ],
    )
    def test_healthy_logs_are_no_trouble(self, line: str) -> None:
        assert read(line) is None

    @pytest.mark.parametrize(
        ("line", "name"),
        [
            ("RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed.", "worker killed"),
            ("RuntimeError: DataLoader worker (pid(s) 7, 8) exited unexpectedly", "worker killed"),
            ("RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error. It is possible that "
             "dataloader's workers are out of shared memory.", "shared memory"),
            ("OSError: [Errno 98] Address already in use", "address in use"),
            ("RuntimeError: CUDA error: device-side assert triggered", "device assert"),
            ("OSError: [Errno 24] Too many open files", "open files"),
            ("  exitcode  : -9 (pid: 77)", "rank killed"),
            ("ncclSystemError: System call (e.g. socket, malloc) or external library call failed", "NCCL error"),
        ],
    )  # fmt: skip
    def test_other_errors(self, line: str, name: str) -> None:
        assert [one["name"] for one in told(f"hello\n{line}\n").numbers["troubles"]] == [name]

    def test_the_first_error_is_first(self) -> None:
        found = told("loss: nan\n" + pasted_texts.timeout(0))
        assert [one["name"] for one in found.numbers["troubles"]] == ["NaN", "collective timeout"]
        assert found.words[0] == "The first error is usually the cause of those after it: NaN."


class TestSnapshot:
    def test_what_holds_memory(self) -> None:
        data = pasted_texts.snapshot(
            [pasted_texts.block(6 * GIB), pasted_texts.block(2 * GIB, place="/home/me/model.py")]
        )
        gpu = memory_snapshot.read(data).numbers["gpus"][0]
        assert (gpu["reserved_bytes"], gpu["allocated_bytes"]) == (8 * GIB, 8 * GIB)
        assert gpu["sites"][0] == {"where": "train.py:17 forward", "bytes": 6 * GIB, "blocks": 1}

    def test_a_fragmented_cache_and_an_end_of_memory(self) -> None:
        blocks = [pasted_texts.block(GIB, "inactive" if at % 2 else "active_allocated") for at in range(8)]
        events = [{"action": "oom", "size": 2 * GIB, "device_free": 2**20, "frames": [], "time_us": 5}]
        found = memory_snapshot.read(pasted_texts.snapshot(blocks, events))
        assert [point.text for point in found.points] == [
            "GPU 0: CUDA out of memory, 2.0G requested.",
            "GPU 0: the allocator's cache is fragmented.",
        ]
        assert found.numbers["gpus"][0]["largest_free_bytes"] == GIB

    def test_what_is_never_freed(self) -> None:
        events: list[dict[str, Any]] = []
        for at in range(100):
            frames = pasted_texts.block(1)["frames"]
            events.append({"action": "alloc", "addr": at, "size": 1000, "frames": frames})
            events.append({"action": "alloc", "addr": 10**6 + at, "size": 1000, "frames": frames})
            events.append({"action": "free_completed", "addr": 10**6 + at, "size": 1000, "frames": frames})
        found = memory_snapshot.read(pasted_texts.snapshot([pasted_texts.block(GIB)], events))
        assert "100 allocations of train.py:17 forward were never freed" in found.points[0].text

    @pytest.mark.parametrize("protocol", [2, 3, 4, 5])
    def test_plain_values_are_as_pickle_reads_them(self, protocol: int) -> None:
        shared = ["twice"]
        value = {
            "a": [1, -1, 255, 65535, 2**31, -(2**62), 2**63 + 5, 1.5, True, False, None, "é", "x" * 300],
            "b": ((), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)),
            "c": {1: [], "d": {}, "e": b"raw" if protocol > 2 else "raw"},
            "f": [shared, shared],
        }
        assert plain(pickle.dumps(value, protocol=protocol), again="", fewer="") == value

    def test_objects_are_refused_and_nothing_runs(self, tmp_path: Path) -> None:
        class Attack:
            def __reduce__(self) -> tuple[Any, ...]:
                return (Path.touch, (tmp_path / "owned",))

        for value in (Attack(), {"segments": [Attack()]}, {1, 2}, complex(1, 2)):
            with pytest.raises(Refused, match=r"Python objects|strange"):
                memory_snapshot.read(pickle.dumps(value))
        assert not (tmp_path / "owned").exists()

    @pytest.mark.parametrize(
        "data",
        [
            b"\x80\x04.",
            b"\x80\x04}\x8d\xff\xff\xff\xff\xff\xff\xff\x7f.",
            b"\x80\x04h\x05.",
            b"\x80\x04]r\xff\xff\xff\xff0.",
            b"\x80\x04e.",
            b"\x80\x04}(KKu.",
            b"\x80\x04" + b")\x85" * 1000 + b"K\x01s.",
            b"\x80\x04" + b"(" * 100_000,
            pasted_texts.snapshot([pasted_texts.block(1)])[:-40],
        ],
    )
    def test_damage_is_one_line(self, data: bytes) -> None:
        with pytest.raises(Refused) as refused:
            memory_snapshot.read(data)
        assert len(str(refused.value).splitlines()) == 1

    def test_what_is_shared_many_times_ends(self) -> None:
        blocks = [pasted_texts.block(1)] * 5000
        segments = [{"device": 0, "total_size": 1, "blocks": blocks}] * 5000
        with pytest.raises(Refused, match="too many blocks"):
            memory_snapshot.read(pickle.dumps({"segments": segments}))

    def test_another_pickle_is_said_to_be_one(self) -> None:
        with pytest.raises(Refused, match="not a memory snapshot"):
            memory_snapshot.read(pickle.dumps([1, 2]))


SAMPLES = (
    pasted_texts.s1(),
    pasted_texts.smi(),
    pasted_texts.BOX,
    pasted_texts.csv([50] * 30),
    pasted_texts.oom(),
    pasted_texts.timeout(1),
    "loss: 1\nloss: nan\n",
)


@pytest.mark.parametrize("text", SAMPLES)
def test_each_text_is_of_one_kind(text: str) -> None:
    assert [kind.name for kind in KINDS if kind.looks_like(text)][:1] == [told(text).kind]


@pytest.mark.parametrize("text", SAMPLES)
def test_nothing_hostile_falls_or_reaches_the_terminal(text: str) -> None:
    lines = text.splitlines()
    for at, strange in enumerate(STRINGS):
        place = at * 7 % len(lines)
        words = lines[place].split(" ")
        cuts = (
            "\n".join([*lines[:place], strange[:3000] + lines[place], *lines[place + 1 :]]),
            "\n".join([*lines[:place], " ".join([*words[:-1], strange[:3000]]), *lines[place + 1 :]]),
            text[: at * 37 % len(text)],
        )
        for cut in cuts:
            found = read(cut)
            if found is not None:
                for draw in FORMATS.values():
                    assert all(line.isprintable() for line in draw(found.page("x")).splitlines())
                json.dumps(found.as_json("x"), allow_nan=False)


@pytest.mark.parametrize("line", ["9" * 100_000, "- " * 50_000, "a,b: " * 20_000, "loss " * 20_000, "GPU 0 " * 20_000])
def test_long_lines_take_no_time(line: str) -> None:
    for start in (
        "",
        "Name  Self CPU\n",
        "Attached GPUs  : 1\n",
        "a, utilization.gpu\n",
        "CUDA out of memory. Tried to allocate ",
    ):
        read(start + line)


def test_a_site_sets_the_numbers_by_which_a_text_is_judged() -> None:
    text = "\n".join(["timestamp, index, utilization.gpu [%]", *(f"{second}, 0, 70 %" for second in range(60))])
    assert "the GPU waits for input" in said(text)
    limits.adopt(thresholds.merged({"starved": {"duty": 0.6}})[0])
    try:
        assert "waits for input" not in said(text)
    finally:
        limits.adopt(None)
