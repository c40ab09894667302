"""The peer of TestAioquic: echoes streams, or sends on streams and checks the echo.

server CERT KEY [HOST]         prints its port, serves until its standard input ends
client PORT BYTES N [HOST]     N connections of one stream of BYTES bytes each, all but the first resumed; prints "ok"
"""
import asyncio
import os
import ssl
import sys

from aioquic.asyncio import connect, serve
from aioquic.quic.configuration import QuicConfiguration

ALPN = ["echo"]


async def echo(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
    except (ConnectionError, asyncio.CancelledError):
        pass


async def server(cert, key, host="127.0.0.1"):
    configuration = QuicConfiguration(is_client=False, alpn_protocols=ALPN, max_datagram_size=1200)
    configuration.load_cert_chain(cert, key)

    tickets = {}

    def handle(reader, writer):
        asyncio.ensure_future(echo(reader, writer))

    s = await serve(host, 0, configuration=configuration, stream_handler=handle,
                    session_ticket_fetcher=tickets.get, session_ticket_handler=lambda t: tickets.update({t.ticket: t}))
    print(s._transport.get_extra_info("sockname")[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    s.close()


async def client(port, size, n, host="127.0.0.1"):
    configuration = QuicConfiguration(is_client=True, alpn_protocols=ALPN, server_name="b", max_datagram_size=1200)
    configuration.verify_mode = ssl.CERT_NONE  # the certificate has no issuer that OpenSSL accepts
    tickets = []
    for i in range(n):
        configuration.session_ticket = tickets[-1] if tickets else None
        async with connect(host, port, configuration=configuration, session_ticket_handler=tickets.append) as c:
            reader, writer = await c.create_stream()
            data = os.urandom(size)

            async def send():
                writer.write(data)
                await writer.drain()
                writer.write_eof()

            _, got = await asyncio.gather(send(), reader.read())
            if got != data:
                sys.exit(f"{len(got)} bytes of {size} came back")
            if c._quic.tls.session_resumed != (i > 0):
                sys.exit(f"connection {i}: resumed {c._quic.tls.session_resumed}")
    print("ok", flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "server":
        asyncio.run(server(*sys.argv[2:]))
    else:
        asyncio.run(client(*map(int, sys.argv[2:5]), *sys.argv[5:]))
