"""NVIDIA's devices as the kernel lists them under /sys: without waking one, without the driver."""

from __future__ import annotations

import os

from gputop.frozen_dataclass import frozen_dataclass
from gputop.safe.text import decode

_NVIDIA = "0x10de"
_DISPLAY = "0x03"  # class of VGA and 3D controllers; their sound and USB functions are other classes


@frozen_dataclass(frozen=True, slots=True)
class PciFunction:
    """One PCI function."""

    bus_id: str  # 0000:1b:00.0
    path: str

    def read(self, name: str) -> str | None:
        """One attribute, or None if the kernel does not have it."""
        try:
            with open(f"{self.path}/{name}", "rb") as file:
                return decode(file.read(4096).strip())
        except OSError:
            return None

    @property
    def port(self) -> PciFunction | None:
        """The upstream port: what it is plugged into, or None if /sys does not show it."""
        path = os.path.dirname(os.path.realpath(self.path))
        return PciFunction(os.path.basename(path), path) if os.path.exists(f"{path}/max_link_width") else None

    @property
    def may_sleep(self) -> bool:
        """Whether the kernel suspends it while it is unused."""
        return self.read("power/control") == "auto"

    @property
    def asleep(self) -> bool:
        """Whether it is suspended now: any driver call would wake it."""
        return self.read("power/runtime_status") == "suspended"

    @property
    def device(self) -> str:
        """Vendor and device as lspci prints them: 10de:2330."""
        return f"{_NVIDIA[2:]}:{(self.read('device') or '0x????')[2:]}"


def bus_id(domain: int, bus: int, device: int) -> str:
    """A place on the bus as the kernel writes it."""
    return f"{domain:04x}:{bus:02x}:{device:02x}.0"


def slot_of(bus_id: str, sys_root: str) -> PciFunction | None:
    """The slot of this bus id, or None if /sys does not have it."""
    path = f"{sys_root}/bus/pci/devices/{bus_id}"
    return PciFunction(bus_id, path) if os.path.isdir(path) else None


def gpus(sys_root: str) -> tuple[PciFunction, ...]:
    """Every NVIDIA GPU in bus order, which is the order of the driver's indexes."""
    folder = f"{sys_root}/bus/pci/devices"
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return ()
    slots = (PciFunction(name, f"{folder}/{name}") for name in names)
    return tuple(
        slot for slot in slots if slot.read("vendor") == _NVIDIA and (slot.read("class") or "").startswith(_DISPLAY)
    )
