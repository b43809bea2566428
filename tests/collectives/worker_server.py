"""A process that looks like a rank with a worker server of PyTorch, and does to a request what a test asks for.

worker_server.py HOW [FOLDER]: HOW names what it answers; with a folder it takes the dumps that it returns from there.
It prints `ready PORT`.
"""

import socket
import sys
import threading
import time
from pathlib import Path

NAMES = b'["ping","fr_trace_json","dump_nccl_trace_json","dump_nccl_trace_pickle","torch_profile"]'


def response(body: bytes, status: bytes = b"200 OK", length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\nContent-Type: application/json\r\n\r\n%s" % (status, size, body)


def answer(how: str, what: str, folder: Path | None, connected: socket.socket) -> None:
    asks = what.startswith("POST")
    if how == "silent" or (how == "silent-post" and asks):
        time.sleep(600)
    elif how == "endless":
        connected.sendall(response(b"", length=10**9))
        while True:
            connected.sendall(b"x" * 65536)
    elif how == "slow":
        for byte in response(NAMES):
            connected.sendall(bytes([byte]))
            time.sleep(0.2)
    elif how == "binary":
        connected.sendall(b"\x00\xff\x1b]0;owned\x07" * 5000)
    elif how == "no-length":
        connected.sendall(b"HTTP/1.1 200 OK\r\n\r\n" + NAMES)
    elif how == "long-length":
        connected.sendall(response(NAMES, length=len(NAMES) + 1))
    elif how == "redirect":
        connected.sendall(b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n")
    elif how == "other-server" or (how == "other-json" and asks):
        connected.sendall(response(b'{"hello": "world"}'))
    elif not asks:
        connected.sendall(response(NAMES))
    elif folder is not None:
        connected.sendall(response((folder / what.rpartition("/")[2]).read_bytes()))
    else:
        connected.sendall(response(b"<html>\x1b[2J</html>", b"500 Internal Server Error"))


def serve(server: socket.socket, how: str, folder: Path | None) -> None:
    Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text("pt_workerserver")
    while True:
        connected, _ = server.accept()
        threading.Thread(target=handle, args=(how, folder, connected), daemon=True).start()


def handle(how: str, folder: Path | None, connected: socket.socket) -> None:
    with connected:
        try:
            request = connected.recv(65536).split(b"\r\n")[0].decode()
            print(request, file=sys.stderr, flush=True)
            answer(how, " ".join(request.split(" ")[:2]), folder, connected)
        except OSError:
            pass  # the client has left


if __name__ == "__main__":
    address = ("::", 0)
    listening = socket.create_server(address, family=socket.AF_INET6, dualstack_ipv6=True)
    where = Path(sys.argv[2]) if sys.argv[2:] else None
    threading.Thread(target=serve, args=(listening, sys.argv[1], where), daemon=True).start()
    while "pt_workerserver" not in {path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")}:
        time.sleep(0.001)
    print("ready", listening.getsockname()[1], flush=True)
    time.sleep(600)
