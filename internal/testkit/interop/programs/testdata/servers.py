"""servers.py serves ADDRESS with what Python has: asyncio, a server that forks, one with threads, UDP by asyncio.

With "client ADDRESS" it is the client of all of them, and compares what comes back.
"""
import asyncio
import hashlib
import os
import random
import signal
import socket
import socketserver
import sys
import threading


class Sum(socketserver.StreamRequestHandler):
    """Sum answers each connection with the hash of what it sends."""

    def handle(self):
        h = hashlib.sha256()
        while data := self.rfile.read1(65536):
            h.update(data)
        self.wfile.write(h.hexdigest().encode())


class Forking(socketserver.ForkingTCPServer):
    allow_reuse_address, request_queue_size, max_children = True, 100, 20


class Threading(socketserver.ThreadingTCPServer):
    allow_reuse_address, request_queue_size, daemon_threads = True, 100, True


class Back(asyncio.DatagramProtocol):
    def connection_made(self, transport):
        self.transport = transport

    def datagram_received(self, data, addr):
        self.transport.sendto(data[::-1], addr)


async def echo(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


async def serve(host):
    for kind, port in ((Forking, 7101), (Threading, 7102)):
        threading.Thread(target=kind((host, port), Sum).serve_forever, daemon=True).start()
    await asyncio.get_running_loop().create_datagram_endpoint(Back, local_addr=(host, 7103))
    server = await asyncio.start_server(echo, host, 7104, backlog=200)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, server.close)
    print("ready", flush=True)
    try:
        await server.serve_forever()
    except asyncio.CancelledError:
        pass
    os._exit(0)


async def through_echo(host, data):
    reader, writer = await asyncio.open_connection(host, 7104)

    async def send():
        writer.write(data)
        await writer.drain()
        writer.write_eof()

    sending = asyncio.create_task(send())
    assert await reader.read(-1) == data
    await sending
    writer.close()


def through_sum(host, port, data):
    with socket.create_connection((host, port), 30) as s:
        s.sendall(data)
        s.shutdown(socket.SHUT_WR)
        answer = b""
        while more := s.recv(1000):
            answer += more
    assert answer == hashlib.sha256(data).hexdigest().encode(), (port, answer)


async def check(host):
    data = random.Random(1).randbytes(2_000_000)
    await asyncio.gather(*(through_echo(host, data[i:i + 400_000]) for i in range(40)))
    for port in 7101, 7102:
        await asyncio.gather(*(asyncio.to_thread(through_sum, host, port, data[i:]) for i in range(20)))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as u:
        u.settimeout(20)
        for i in range(1, 300):  # asyncio sends no empty datagram
            u.sendto(data[i:i * 4], (host, 7103))
            assert u.recvfrom(2000) == (data[i:i * 4][::-1], (host, 7103))
    print("equal")


if sys.argv[1] == "client":
    asyncio.run(asyncio.wait_for(check(sys.argv[2]), 50))
else:
    asyncio.run(serve(sys.argv[1]))
