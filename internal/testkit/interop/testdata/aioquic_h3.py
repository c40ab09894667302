"""aioquic as a server or client of HTTP/3.

  server CERT KEY [HOST]   echoes contents; prints its port; ends with its input. Takes early data: x-early says what came so
  client PORT N [HOST]     makes N requests of each kind, prints "ok"
"""
import asyncio
import ssl
import sys

from aioquic.asyncio import connect, serve
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import HandshakeCompleted


class Protocol(QuicConnectionProtocol):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.http = H3Connection(self._quic)
        self.streams = {}  # id: [headers, content, future]
        self.complete_handshake = False

    def quic_event_received(self, event):
        if isinstance(event, HandshakeCompleted):
            self.complete_handshake = True
        for e in self.http.handle_event(event):
            if not isinstance(e, (HeadersReceived, DataReceived)):
                continue
            s = self.streams.setdefault(e.stream_id, [None, b"", None])
            if isinstance(e, HeadersReceived):
                s[0] = s[0] or e.headers
            else:
                s[1] += e.data
            if e.stream_ended:
                self.complete(e.stream_id, s)

    def complete(self, stream, s):
        if s[2] is not None:
            s[2].set_result(s)
            return
        headers = [(b":status", b"200"), (b"server", b"aioquic"), (b"x-method", dict(s[0])[b":method"])]
        headers.append((b"x-early", b"0" if self.complete_handshake else b"1"))
        self.http.send_headers(stream, headers)
        self.http.send_data(stream, s[1], end_stream=True)
        self.transmit()

    async def request(self, method, path, content):
        stream = self._quic.get_next_available_stream_id()
        s = self.streams[stream] = [None, b"", asyncio.get_running_loop().create_future()]
        headers = [(b":method", method), (b":scheme", b"https"), (b":authority", b"b"), (b":path", path),
                   (b"user-agent", b"aioquic"), (b"x-repeated", b"a value that a table is good for")]
        self.http.send_headers(stream, headers, end_stream=not content)
        if content:
            self.http.send_data(stream, content, end_stream=True)
        self.transmit()
        return await asyncio.wait_for(s[2], 20)


async def server(cert, key, host="127.0.0.1"):
    config = QuicConfiguration(is_client=False, alpn_protocols=H3_ALPN, max_datagram_size=1200)
    config.load_cert_chain(cert, key)
    tickets = {}
    s = await serve(host, 0, configuration=config, create_protocol=Protocol,
                    session_ticket_fetcher=lambda label: tickets.pop(label, None),
                    session_ticket_handler=lambda ticket: tickets.__setitem__(ticket.ticket, ticket))
    print(s._transport.get_extra_info("sockname")[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


async def client(port, n, host="127.0.0.1"):
    config = QuicConfiguration(is_client=True, alpn_protocols=H3_ALPN, server_name="b", max_datagram_size=1200)
    config.verify_mode = ssl.CERT_NONE
    async with connect(host, port, configuration=config, create_protocol=Protocol) as c:
        for i in range(n):
            headers, content, _ = await c.request(b"GET", b"/", b"")
            assert dict(headers)[b":status"] == b"200" and dict(headers)[b"x-method"] == b"GET", headers
            sent = b"x" * (i * 3000 + 1)
            headers, content, _ = await c.request(b"POST", b"/echo", sent)
            assert content == sent, (i, len(content))
        both = await asyncio.gather(*[c.request(b"POST", b"/echo", b"y" * k) for k in range(1, 30)])
        assert [len(s[1]) for s in both] == list(range(1, 30))
    print("ok")


if sys.argv[1] == "server":
    asyncio.run(server(*sys.argv[2:]))
else:
    asyncio.run(client(int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:]))
