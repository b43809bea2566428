"""The fake driver's lists: processes, MIG children, links; and how its GPUs are found."""

from __future__ import annotations

from tests.fakenvml import Fake, Process
from tests.fakenvml.remote import Refused, Remote


def test_a_link_is_chosen_by_scope_and_all_ones_is_their_sum(fake, ask):
    fake.update({"gpu.2.nvlink_count": 3, "gpu.2.nvlink.*.tx_bytes_per_s": 0, "gpu.2.nvlink.*.tx_bytes": 2048})
    fake.set("gpu.2.nvlink.1.tx_bytes", 10240)
    values = ask("fields(2, 138, (138, 1), (138, 2), (138, 0xffffffff), (138, 3))")
    assert [value[2] for value in values[:4]] == [2, 10, 2, 14]
    assert values[4][0] == 2  # there is no such link


def test_any_field_can_be_set_over_the_tables(fake, ask):
    fake.update({"gpu.3.field.297": 12.5, "gpu.3.field.83": None, "gpu.3.field.185.1": 7, "gpu.3.field.9999": -3})
    assert ask("fields(3, 297, 83, (185, 1), (185, 0), 9999)") == [
        [0, 0, 12.5],
        [3, 0, 0.0],
        [0, 3, 7],
        *ask("fields(3, (185, 0))"),
        [0, 4, 2**64 - 3],
    ]


def test_memory_of_the_old_call_counts_the_reserved_as_used(fake, ask):
    fake.update({"gpu.4.memory_total": 100, "gpu.4.memory_used": 30, "gpu.4.memory_reserved": 9})
    assert ask("N.nvmlDeviceGetMemoryInfo(gpu(4))") == {"total": 100, "free": 61, "used": 39}
    assert ask("N.nvmlDeviceGetMemoryInfo(gpu(4), version=N.nvmlMemory_v2).free") == 61
    fake.set("gpu.4.memory_used", 2**64 - 1)
    assert ask("N.nvmlDeviceGetMemoryInfo(gpu(4)).used") == 2**64 - 1
    fake.set("gpu.4.memory_total", None)
    assert ask("N.nvmlDeviceGetMemoryInfo(gpu(4))") == Refused(3)


def test_a_gpu_is_found_by_uuid_serial_and_bus(ask):
    for way, wanted in (("UUID", "UUID"), ("Serial", "Serial"), ("PciBusId", "PciInfo")):
        name = f"N.nvmlDeviceGet{wanted}(gpu(5))" + (".busId" if way == "PciBusId" else "")
        assert ask(f"N.nvmlDeviceGetIndex(N.nvmlDeviceGetHandleBy{way}({name}))") == 5
    assert ask("N.nvmlDeviceGetIndex(N.nvmlDeviceGetHandleByPciBusId('0:1f:0.0'))") == 4
    assert ask("N.nvmlDeviceGetHandleByUUID('GPU-none')") == Refused(6)
    assert ask("N.nvmlDeviceGetHandleByIndex(8)") == Refused(2)
    assert ask("N.nvmlDeviceGetName(ctypes.c_void_p(4096))") == Refused(2)


def test_a_gpu_has_a_place_in_the_machine(fake, ask):
    assert ask("[N.nvmlDeviceGetTopologyCommonAncestor(gpu(0), gpu(i)) for i in (0, 1, 4)]") == [0, 40, 50]
    fake.update({"gpu.0.topology.1": 10, "gpu.0.p2p.1": 3, "gpu.0.cpus": "1,62-65"})
    assert ask("N.nvmlDeviceGetTopologyCommonAncestor(gpu(0), gpu(1))") == 10
    assert ask("N.nvmlDeviceGetP2PStatus(gpu(0), gpu(1), 0)") == 3
    assert ask("N.nvmlDeviceGetCpuAffinity(gpu(0), 2)") == [(1 << 62 | 1 << 63 | 2), 3]
    assert ask("N.nvmlDeviceGetCpuAffinityWithinScope(gpu(4), 1, 0)") == [(2**64 - 1) & ~(2**48 - 1)]
    assert [ask(f"N.nvmlDeviceGetMemoryAffinity(gpu({i}), 1, 0)") for i in (0, 4)] == [[1], [2]]


COMPUTE = "N.nvmlDeviceGetComputeRunningProcesses"


def pids(listed) -> list[int]:
    return [entry["pid"] for entry in listed]


def test_each_kind_of_process_has_its_own_list(fake, ask):
    assert ask(f"{COMPUTE}(gpu(0))") == []
    for pid, kind in ((11, "compute"), (12, "graphics"), (13, "mps")):
        fake.add_process(gpu=0, pid=pid, vram_bytes=pid << 20, kind=kind)
    for pid, kind in ((11, "Compute"), (12, "Graphics"), (13, "MPSCompute")):
        for version in ("", "_v2"):
            [entry] = ask(f"N.nvmlDeviceGet{kind}RunningProcesses{version}(gpu(0))")
            assert (entry["pid"], entry["usedGpuMemory"]) == (pid, pid << 20)
    assert ask(f"{COMPUTE}(gpu(1))") == []
    fake.remove_process(11)
    assert ask(f"{COMPUTE}(gpu(0))") == []


def test_the_first_layout_has_only_pid_and_memory(fake, ask):
    fake.add_process(gpu=0, pid=21, vram_bytes=5)
    fake.add_process(gpu=0, pid=22, vram_bytes=None)
    listed = "raw('nvmlDeviceGetComputeRunningProcesses', gpu(0), ctypes.byref(ctypes.c_uint(2)), room)"
    assert ask(f"(lambda room: [{listed}, *room])((ctypes.c_ulonglong * 4)())") == [0, 21, 5, 22, 2**64 - 1]


def test_processes_may_be_odd(fake, ask):
    odd = [Process(0, 0), Process(0, 7), Process(0, 7), Process(0, 7, kind="graphics"), Process(0, 2**32 - 1, None)]
    fake.processes.extend(odd)
    fake.write()
    listed = ask(f"{COMPUTE}(gpu(0))")
    assert pids(listed) == [0, 7, 7, 2**32 - 1]
    assert listed[-1]["usedGpuMemory"] is None
    assert pids(ask("N.nvmlDeviceGetGraphicsRunningProcesses(gpu(0))")) == [7]


def test_five_thousand_processes_on_sixty_four_gpus(tmp_path, fake):
    many = Fake(tmp_path / "many", gpus=64)
    many.processes.extend(Process(i % 64, 10_000 + i) for i in range(5_000))
    many.write()
    with Remote(many) as ask:
        assert ask("N.nvmlDeviceGetCount()") == 64
        found = ask(f"[[p.pid for p in {COMPUTE}(gpu(i))] for i in range(64)]")
        assert sorted(pid for on_gpu in found for pid in on_gpu) == list(range(10_000, 15_000))
        assert len(set(ask("[N.nvmlDeviceGetUUID(gpu(i)) for i in range(64)]"))) == 64


def test_utilisation_lists_only_processes_that_worked_since(fake, ask):
    work = "N.nvmlDeviceGetProcessUtilization(gpu(0), {})"
    fake.add_process(gpu=0, pid=31)
    assert ask(work.format(0)) == Refused(6)
    fake.add_process(gpu=0, pid=32, sm=57, mem=30, enc=4, dec=5)
    [entry] = ask(work.format(0))
    assert [entry[key] for key in ("pid", "smUtil", "memUtil", "encUtil", "decUtil")] == [32, 57, 30, 4, 5]
    assert ask(work.format(entry["timeStamp"] + 10_000_000)) == Refused(6)


def test_a_mig_parent_gives_way_to_its_children(fake, ask):
    fake.update({"gpu.0.mig_mode": 1, "gpu.0.mig_count": 2, "gpu.0.mig.1.memory_used": 77})
    fake.add_process(gpu=0, pid=41, gi=7, ci=0, sm=5)
    fake.add_process(gpu=0, pid=42, gi=8, ci=0, sm=5)
    child = "N.nvmlDeviceGetMigDeviceHandleByIndex(gpu(0), {})"
    assert ask("N.nvmlDeviceGetUtilizationRates(gpu(0))") == Refused(3)
    assert ask("N.nvmlDeviceGetSamples(gpu(0), 1, 0)") == Refused(3)
    assert ask("N.nvmlDeviceGetProcessUtilization(gpu(0), 0)") == Refused(3)
    assert ask(child.format(2)) == Refused(6)
    assert ask(child.format(7)) == Refused(2)
    first, second = child.format(0), child.format(1)
    assert ask(f"N.nvmlDeviceGetUtilizationRates({first})") == Refused(3)
    assert ask(f"N.nvmlDeviceGetMemoryInfo({second}).used") == 67108864 + 77
    assert ask(f"N.nvmlDeviceGetUUID({first})") != ask(f"N.nvmlDeviceGetUUID({second})")
    assert [ask(f"N.nvmlDeviceGet{kind}InstanceId({second})") for kind in ("Gpu", "Compute")] == [8, 0]
    assert pids(ask(f"{COMPUTE}({second})")) == [42]
    assert pids(ask(f"{COMPUTE}(gpu(0))")) == [41, 42]
    assert ask(f"N.nvmlDeviceGetIndex(N.nvmlDeviceGetDeviceHandleFromMigDeviceHandle({second}))") == 0
    assert ask(f"[N.nvmlDeviceIsMigDeviceHandle(h) for h in (gpu(0), {first})][1].value") == 1
    assert ask(f"N.nvmlDeviceGetAttributes({first})")["memorySizeMB"] == 9984


def test_retired_pages_have_an_address_each(fake, ask):
    assert ask("N.nvmlDeviceGetRetiredPages(gpu(0), 1)") == Refused(3)
    fake.update({"gpu.0.retired_single": 2, "gpu.0.retired_double": 0})
    assert len(set(ask("N.nvmlDeviceGetRetiredPages(gpu(0), 0)"))) == 2
    assert ask("N.nvmlDeviceGetRetiredPages(gpu(0), 1)") == []
