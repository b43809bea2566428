"""Plays a process with Kineto in it, without torch: maps a library, asks for work, writes the trace it is asked for.

Started as `kineto.py LIBRARY [TRACE [masks]]`; without a trace it only maps the library. It asks once with each mask,
prints how many bytes came back each time, `-` for none, and ends when it is told to, by its end of standard input.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import re
import shutil
import socket
import struct
import sys
import time

UNHEARD = (struct.pack("=Q32siiq", *each, 1, 0) for each in ((16, b"req", 2), (16, b"ctxt", 2)))
NOISE = (b"", b"x", b"\0" * 4096, *UNHEARD)


def main() -> None:
    with open(sys.argv[1], "rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    print("ready", flush=True)
    if len(sys.argv) > 2:
        ask(sys.argv[2], [int(mask) for mask in sys.argv[3:]])
    sys.stdin.read()
    mapped.close()


def ask(trace: str, masks: list[int]) -> None:
    folder = os.environ["KINETO_IPC_SOCKET_DIR"]
    name = f"{folder}/dynoconfigclient{os.getpid():08x}-0000-4000-8000-000000000000"
    client = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    client.bind(name)  # which Kineto leaves there
    while not os.path.exists(f"{folder}/dynolog"):
        time.sleep(0.01)
    for noise in NOISE:
        send(client, noise)
    nameless = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    send(nameless, request(2))
    if os.fork() == 0:  # it was not asked for
        send(client, request(2))
        os._exit(0)
    os.wait()
    client.settimeout(0.2)
    for mask in masks:
        send(client, request(mask))
        with contextlib.suppress(TimeoutError):
            said = client.recv(4096)
            print(len(said), *said[40:].decode().split(), flush=True)
            if trace != "none":
                stem = re.search(r"ACTIVITIES_LOG_FILE=(\S+)\.json\n", said[40:].decode())
                assert stem
                shutil.copy(trace, f"{stem[1]}_{os.getpid()}.json.tmp")
                os.rename(f"{stem[1]}_{os.getpid()}.json.tmp", f"{stem[1]}_{os.getpid()}.json")
            return
        print("-", flush=True)


def request(mask: int) -> bytes:
    return struct.pack("=Q32siiqii", 24, b"req", mask, 2, 0, os.getpid(), os.getppid())


def send(client: socket.socket, message: bytes) -> None:
    with contextlib.suppress(OSError):  # nobody is there any more
        client.sendto(message, f"{os.environ['KINETO_IPC_SOCKET_DIR']}/dynolog")


main()
