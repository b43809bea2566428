"""Networks: what enters the machine, each byte once; InfiniBand and RoCE ports beside the kernel's own table."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.host_tree import NET_DEV, NETSTAT, SNMP, Server, server
from tests.kernel_trees import write_tree

PORT = "sys/class/infiniband/mlx5_0/ports/1"


def infiniband(words: int, waits: int, layer: str = "InfiniBand", port: str = PORT) -> dict[str, str]:
    """A port that received and sent this many words of four bytes."""
    return {
        f"{port}/link_layer": f"{layer}\n",
        f"{port}/state": "4: ACTIVE\n",
        f"{port}/rate": "400 Gb/sec (4X NDR)\n",
        f"{port}/counters/port_rcv_data": f"{words}\n",
        f"{port}/counters/port_xmit_data": f"{2 * words}\n",
        f"{port}/counters/port_xmit_discards": "3\n",
        f"{port}/counters/port_rcv_errors": "4\n",
        f"{port}/counters/symbol_error": "5\n",
        f"{port}/counters/port_xmit_wait": f"{waits}\n",
    }


def hardware(many: int, port: str = PORT) -> dict[str, str]:
    """Counters that the adapter's firmware keeps."""
    return {
        f"{port}/hw_counters/out_of_sequence": f"{10 * many}\n",
        f"{port}/hw_counters/packet_seq_err": f"{20 * many}\n",
        f"{port}/hw_counters/local_ack_timeout_err": f"{30 * many}\n",
        f"{port}/hw_counters/np_cnp_sent": f"{40 * many}\n",
        f"{port}/hw_counters/rp_cnp_handled": f"{50 * many}\n",
        f"{port}/hw_counters/lifespan": "10\n",
    }


def interfaces(**received: int) -> str:
    return "".join(f"{name}: {count} 1 0 0 0 0 0 0 {count} 1 0 0 0 0 0 0\n" for name, count in received.items())


def test_rates_of_an_interface(tmp_path: Path) -> None:
    box = Server(tmp_path)
    box.look()
    moved = NET_DEV.replace("1000000    725    1    2", "3000000    725    2    6").replace("500000", "600000")
    host = box.look(2.0, net_dev=moved)
    (ens3,) = host.networks
    assert (ens3.name, ens3.kind, ens3.up, ens3.speed_bytes_per_s) == ("ens3", "ethernet", True, 12.5e9)
    assert (ens3.receive_bytes_per_s, ens3.send_bytes_per_s) == (1e6, 50e3)
    assert (ens3.drops_per_s, ens3.errors_per_s, ens3.send_wait_percent) == (2, 0.5, None)
    assert (host.receive_bytes_per_s, host.send_bytes_per_s) == (1e6, 50e3)


@pytest.mark.parametrize("speed", ["-1\n", "4294967295x\n", None])
def test_a_virtual_interface_has_no_speed(tmp_path: Path, speed: str | None) -> None:
    files = {name: text for name, text in server().items() if not name.startswith("sys/class/net")}
    if speed is not None:
        files["sys/class/net/ens3/speed"] = speed
    host = Server(tmp_path, files).look()
    assert [(network.name, network.speed_bytes_per_s) for network in host.networks] == [("ens3", None)]


SEEN = {
    "a server: physical ones, not bonds, bridges or vlans over them": (
        ["ens1f0", "ens1f1"],
        ["lo", "ens1f0", "ens1f1", "bond0", "bond0.100", "docker0", "br-12ab", "veth99", "cali1", "storage"],
        ["ens1f0", "ens1f1"],
    ),
    "a container: its end of a veth pair is called eth0": ([], ["lo", "eth0", "tunl0", "ip6tnl0"], ["eth0"]),
    "nothing but itself": ([], ["lo"], []),
}


@pytest.mark.parametrize(("physical", "names", "expected"), SEEN.values(), ids=SEEN)
def test_each_byte_counts_once(tmp_path: Path, physical: list[str], names: list[str], expected: list[str]) -> None:
    files = {f"sys/class/net/{name}/device/vendor": "0x8086\n" for name in physical}
    box = Server(tmp_path, {**files, "proc/net/dev": interfaces(**dict.fromkeys(names, 0))})
    box.look()
    host = box.look(net_dev=interfaces(**dict.fromkeys(names, 1000)))
    assert [network.name for network in host.networks] == expected
    assert host.receive_bytes_per_s == (1000 * len(expected) if expected else None)


def test_an_interface_under_a_physical_one_that_counts_for_it_is_no_other(tmp_path: Path) -> None:
    names = ["eth0", "enP1s1", "ens5", "bond0"]
    files = {f"sys/class/net/{name}/device/vendor": "0x1414\n" for name in names[:3]}
    box = Server(tmp_path, {**files, "proc/net/dev": interfaces(**dict.fromkeys(names, 0))})
    folder = tmp_path / "sys/class/net"
    (folder / "bond0").mkdir()
    for name, master in (("enP1s1", "eth0"), ("ens5", "bond0")):
        (folder / name / "master").symlink_to(folder / master)
    box.look()
    host = box.look(net_dev=interfaces(**dict.fromkeys(names, 1000)))
    assert ([network.name for network in host.networks], host.receive_bytes_per_s) == (["eth0", "ens5"], 2000)


def test_a_port_that_counts_nothing_is_in_no_sum(tmp_path: Path) -> None:
    silent = "sys/class/infiniband/efa_0/ports/1"
    files = {f"{silent}/state": "4: ACTIVE\n", f"{silent}/rate": "100 Gb/sec (4X EDR)\n"}
    box = Server(tmp_path, {**server(), **files})
    box.look()
    host = box.look(1.0, net_dev=NET_DEV.replace("1000000", "1008000"))
    assert [(network.name, network.receive_bytes_per_s) for network in host.networks] == [
        ("ens3", 8000), ("efa_0:1", None),
    ]  # fmt: skip
    assert (host.receive_bytes_per_s, host.send_bytes_per_s) == (8000, 0)


def test_infiniband_port_in_units_of_four_bytes(tmp_path: Path) -> None:
    box = Server(tmp_path, {**server(), **infiniband(0, 0)})
    box.look()
    write_tree(tmp_path, infiniband(1_000_000, 625_000_000))
    host = box.look(1.0)
    port = host.networks[1]
    assert (port.name, port.kind, port.up, port.speed_bytes_per_s) == ("mlx5_0:1", "infiniband", True, 50e9)
    assert (port.receive_bytes_per_s, port.send_bytes_per_s) == (4e6, 8e6)
    assert (port.drops_per_s, port.errors_per_s, port.send_wait_percent) == (0, 0, 10)
    assert (host.receive_bytes_per_s, host.send_bytes_per_s) == (4e6, 8e6)


def test_a_port_without_a_cable_is_down_whatever_its_speed(tmp_path: Path) -> None:
    box = Server(tmp_path, {**server(), **infiniband(0, 0), f"{PORT}/state": "1: DOWN\n"})
    assert [network.up for network in box.look().networks] == [True, False]


def test_roce_has_no_wait_and_ip_over_infiniband_is_not_counted_twice(tmp_path: Path) -> None:
    ipoib = {"sys/class/net/ib0/type": "32\n", "sys/class/net/ib0/device/vendor": "0x15b3\n"}
    roce = infiniband(0, 0, "Ethernet")
    box = Server(tmp_path, {**server(), **ipoib, **roce, "proc/net/dev": NET_DEV + interfaces(ib0=5)})
    box.look()
    host = box.look()
    assert [network.name for network in host.networks] == ["ens3", "mlx5_0:1"]
    assert host.networks[1].send_wait_percent is None
    box = Server(tmp_path / "b", {**server(), **ipoib, "proc/net/dev": NET_DEV + interfaces(ib0=5)})
    assert [network.name for network in box.look().networks] == ["ens3", "ib0"]


def test_p16_counters_of_a_port_that_was_reset_are_a_gap(tmp_path: Path) -> None:
    box = Server(tmp_path, {**server(), **infiniband(1000, 1000)})
    box.look()
    write_tree(tmp_path, infiniband(10, 10))
    host = box.look()
    assert (host.networks[1].receive_bytes_per_s, host.networks[1].send_wait_percent) == (None, None)
    assert host.receive_bytes_per_s is None


def test_what_rdma_repaired_and_what_congestion_slowed(tmp_path: Path) -> None:
    box = Server(tmp_path, {**server(), **infiniband(0, 0), **hardware(0)})
    box.look()
    write_tree(tmp_path, hardware(1))
    early = box.look(1.0).networks[1]
    assert early.out_of_order_per_s is None, "the firmware is not asked each second"
    port = box.look(4.0).networks[1]
    assert (port.out_of_order_per_s, port.sequence_errors_per_s, port.ack_timeouts_per_s) == (2, 4, 6)
    assert (port.congestion_sent_per_s, port.congestion_handled_per_s) == (8, 10)
    write_tree(tmp_path, hardware(9))
    assert box.look(1.0).networks[1].out_of_order_per_s == 2, "the last answer stands until the next"


def test_bytes_that_only_the_hardware_counts(tmp_path: Path) -> None:
    """EFA and Broadcom's adapters have no folder `counters`."""
    efa = "sys/class/infiniband/rdmap16s27/ports/1"

    def moved(received: int, sent: int) -> dict[str, str]:
        return {
            f"{efa}/state": "4: ACTIVE\n",
            f"{efa}/rate": "100 Gb/sec (4X EDR)\n",
            f"{efa}/hw_counters/rx_bytes": f"{received}\n",
            f"{efa}/hw_counters/tx_bytes": f"{sent}\n",
        }

    box = Server(tmp_path, {**server(), **moved(10**12, 10**12)})
    before = box.look()
    assert before.networks[1].send_bytes_per_s is None
    write_tree(tmp_path, moved(10**12 + 50 * 10**9, 10**12 + 40 * 10**9))
    host = box.look(5.0)
    port = host.networks[1]
    assert (port.receive_bytes_per_s, port.send_bytes_per_s, port.out_of_order_per_s) == (10e9, 8e9, None)
    assert (host.receive_bytes_per_s, host.send_bytes_per_s) == (10e9, 8e9)


def test_an_adapter_without_some_hardware_counters_has_no_numbers_for_them(tmp_path: Path) -> None:
    some = {name: text for name, text in hardware(0).items() if "cnp" not in name}
    box = Server(tmp_path, {**server(), **infiniband(0, 0), **some})
    box.look()
    port = box.look(5.0).networks[1]
    assert (port.out_of_order_per_s, port.congestion_sent_per_s, port.congestion_handled_per_s) == (0, None, None)


def test_tcp_timeouts_come_from_another_file_than_what_was_sent_again(tmp_path: Path) -> None:
    box = Server(tmp_path)
    box.look()
    text = NETSTAT.replace(" 2 7", " 2 27")
    assert box.look(1.0, net_snmp=SNMP.replace(" 40 ", " 42 "), net_netstat=text).tcp_retransmits_per_s == 2
    assert box.look(4.0).tcp_timeouts_per_s == 4
    host = box.look(5.0, net_netstat="")
    assert (host.tcp_retransmits_per_s, host.tcp_timeouts_per_s) == (0, None)
    assert [missing.metric for missing in host.missing] == ["tcp_timeouts_per_s"]
