"""The way from the API server to the kubelets: an HTTP CONNECT proxy on a unix socket.

`kubectl logs` and `kubectl exec` make the API server dial a node's address. A guest's address exists only inside
QEMU, but every kubelet of a testbed has a port of its own, which on this machine leads to it on 127.0.0.1 (the host's
kubelet listens there, QEMU forwards the guests'). So the proxy keeps the port and takes 127.0.0.1 for the address; no
address or route of the machine is touched. Run by the supervisor as `kubelet_proxy.py SOCKET`.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys


def target_port(request: bytes) -> int | None:
    """Return the port that a CONNECT request asks for."""
    words = request.split(b"\r\n", 1)[0].split()
    if len(words) != 3 or words[0] != b"CONNECT" or b":" not in words[1]:
        return None
    port = words[1].rsplit(b":", 1)[1]
    return int(port) if port.isdigit() else None


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while chunk := await reader.read(1 << 16):
            writer.write(chunk)
            await writer.drain()
        writer.write_eof()


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        port = target_port(await reader.readuntil(b"\r\n\r\n"))
        if port is None:
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            return
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            writer.write(b"HTTP/1.1 502 Bad Gateway\r\n\r\n")
            return
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))
        far_writer.close()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def _main(path: str) -> None:
    server = await asyncio.start_unix_server(_serve, path)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1]))
