"""Process data from the kernel: read permission, pressure, delay accounting, run-queue wait, I/O."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator

from gputop.collect import filesystems
from gputop.collect.proc.proc_files import UNLOCK_DELAYS, delays_on
from gputop.doctor.check import CheckLine, check
from gputop.doctor.machine import DoctorContext
from gputop.safe import programs, ptrace_access

_HIDING = {"1", "2", "4", "noaccess", "invisible", "ptraceable"}
_WEAKENS = "lifting it weakens isolation between processes: the administrator's decision"
_FOR_ALL = {"4", "ptraceable"}  # also via the group of the option gid=


@check("ptrace", "Can py-spy read a running process?")
def ptrace(machine: DoctorContext) -> Iterator[CheckLine]:
    """The rules of ptrace(2) and Yama; for a given process, the kernel's own answer."""
    yield _one_process(machine, machine.pid) if machine.pid is not None else _in_general(machine)


@check("hidepid", "Are the processes of other users visible?")
def hidepid(machine: DoctorContext) -> Iterator[CheckLine]:
    """The hidepid option of /proc."""
    mounts = filesystems.parse_mountinfo(machine.kernel.proc("self/mountinfo"))
    options = next((mount.options for mount in reversed([*mounts]) if mount.path == "/proc"), ())
    chosen = dict(option.partition("=")[::2] for option in options)
    level = chosen.get("hidepid", "0")
    value = {"hidepid": level}
    if level not in _HIDING:
        yield CheckLine("ok", "/proc shows the processes of every user", value=value)
    elif machine.may_trace_all or (level not in _FOR_ALL and chosen.get("gid", "0") in map(str, machine.groups)):
        yield CheckLine("ok", f"/proc hides other users' processes (hidepid={level}), but not from you", value=value)
    else:
        what = f"/proc hides other users' processes (hidepid={level}): GPU memory is shown without their names"
        yield CheckLine("limited", f"{what}; {_WEAKENS}", "sudo mount -o remount,hidepid=0 /proc", value)


@check("psi", "Are stalls on CPU, memory and I/O measured?")
def pressure(machine: DoctorContext) -> Iterator[CheckLine]:
    """Pressure stall information."""
    try:
        for resource in ("cpu", "memory", "io"):
            machine.kernel.proc(f"pressure/{resource}")
    except OSError as error:
        why = os.strerror(error.errno or 0)
        what = f"gputop cannot measure stalls: no pressure stall information, PSI (/proc/pressure: {why})"
        how = "add psi=1 to the kernel command line and reboot"
        yield CheckLine("missing", f"{what}; {how}", _boot_option(machine), {"psi": False})
    else:
        yield CheckLine("ok", "pressure stall information (PSI) for CPU, memory and I/O", value={"psi": True})


@check("delays", "Is the I/O wait of each process measured?")
def delays(machine: DoctorContext) -> Iterator[CheckLine]:
    """Delay accounting, off by default since Linux 5.14."""
    counted = delays_on(machine.kernel.proc_root)
    value = {"task_delayacct": counted}
    if counted:
        yield CheckLine("ok", "I/O wait is counted per process (IO%)", value=value)
    else:
        what = "I/O wait is not counted: IO% is estimated from the samples in state D"
        then = "once enabled, it counts for processes started afterwards"
        yield CheckLine("limited", f"{what}; {then}", UNLOCK_DELAYS, value)


@check("run-delay", "Is the CPU wait of each thread measured?")
def run_delay(machine: DoctorContext) -> Iterator[CheckLine]:
    """/proc/PID/schedstat."""
    try:
        counted = len(machine.kernel.proc("self/schedstat").split()) == 3
    except OSError:
        counted = False
    if counted:
        yield CheckLine("ok", "CPU wait is counted per thread (CPU WAIT%)", value={"schedstat": True})
    else:
        what = "this kernel was built without CONFIG_SCHED_INFO: CPU WAIT% is unknown"
        yield CheckLine("missing", what, value={"schedstat": False})


@check("io", "Is the I/O of each process readable?")
def io(machine: DoctorContext) -> Iterator[CheckLine]:
    """/proc/PID/io, visible to the owner."""
    try:
        machine.kernel.proc(f"{machine.proc_folder}/io")
    except FileNotFoundError:
        yield CheckLine("missing", "this kernel was built without CONFIG_TASK_IO_ACCOUNTING", value={"io": "absent"})
    else:
        if machine.pid is not None:
            yield CheckLine("ok", f"the I/O of process {machine.pid} is readable", value={"io": "process"})
        elif machine.may_trace_all:
            yield CheckLine("ok", "the I/O of every process is readable", value={"io": "all"})
        else:
            why, what = machine.hidden(), "the I/O of your processes is readable, that of others is not"
            if machine.uid == 0:
                what = f"the I/O of root's processes is readable, that of others {why.text}"
            yield CheckLine("limited", what, why.unlock, {"io": "own"})


def _in_general(machine: DoctorContext) -> CheckLine:
    level = ptrace_access.scope(machine.kernel.proc_root)
    value = {"ptrace_scope": level, "cap_sys_ptrace": machine.may_trace_all}
    if level is None:
        return CheckLine("unknown", f"/proc/{ptrace_access.YAMA} cannot be read", value=value)
    if level >= 3:
        what = "no process can be read until a reboot (ptrace_scope=3); find where it is set"
        return CheckLine("missing", what, "grep -rs ptrace_scope /etc/sysctl.* /usr/lib/sysctl.d", value)
    if machine.may_trace_all:
        return CheckLine("ok", "every visible process is readable", value=value)
    if level == 0:
        if machine.uid != 0:
            return CheckLine("ok", "your processes are readable; those of others need sudo", value=value)
        why = machine.hidden()
        return CheckLine("ok", f"root's processes are readable; those of others {why.text}", why.unlock, value)
    allowed = "a parent process" if level == 1 else "root"
    unlock = ptrace_access.CAPABILITY if machine.in_container else ptrace_access.ALLOW
    what = f"running jobs are unreadable: only {allowed} can read them (ptrace_scope={level})"
    return CheckLine("limited", f"{what}; {_WEAKENS}", unlock, value)


def _one_process(machine: DoctorContext, pid: int) -> CheckLine:
    value = {
        "pid": pid,
        "ptrace_scope": ptrace_access.scope(machine.kernel.proc_root),
        "cap_sys_ptrace": machine.may_trace_all,
    }
    try:
        # the kernel checks this like an attach, and nothing is read
        os.close(os.open(f"{machine.kernel.proc_root}/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC))
        return CheckLine("ok", f"process {pid} is readable", value={**value, "readable": True})
    except FileNotFoundError:
        return CheckLine("missing", f"no process with PID {pid} here", value={**value, "readable": False})
    except OSError:
        try:
            spy = programs.find("py-spy", machine.path)
        except programs.NotRun:
            spy = "py-spy"
        dump = f"sudo {shlex.quote(spy)} dump --pid {pid}"
        root = machine.kernel.proc_root
        barred = ptrace_access.refusal(pid, dump, uid=machine.uid, confined=machine.in_container, proc=root)
        note = f"; {_WEAKENS}" if barred.unlock in (ptrace_access.ALLOW, ptrace_access.CAPABILITY) else ""
        return CheckLine("missing", f"{barred.text}{note}", barred.unlock, {**value, "readable": False})


def _boot_option(machine: DoctorContext) -> str | None:
    """How this distribution adds a kernel command line option."""
    if machine.exists("/usr/sbin/grubby") or machine.exists("/sbin/grubby"):
        return "sudo grubby --update-kernel=ALL --args=psi=1"
    if machine.exists("/usr/sbin/update-grub"):
        return "sudo sed -i 's/^GRUB_CMDLINE_LINUX=\"/&psi=1 /' /etc/default/grub && sudo update-grub"
    return None
