"""Clients of Python through the gateway: requests, httpx by both versions, websockets. Arguments: plain address, address with TLS.

They do not verify its certificate, which is self-signed."""
import asyncio
import hashlib
import random
import ssl
import sys
import warnings

import httpx
import requests
import websockets

plain, secure = sys.argv[1:]
warnings.simplefilter("ignore")
context = ssl._create_unverified_context()
sizes = [0, 1, 1000, 65536, 300_000, 3_000_000]


def pieces(content):
    for i in range(0, len(content), 10_000):
        yield content[i:i + 10_000]


def check(name, response, content):
    assert response.status_code == 200, (name, response.status_code)
    assert response.text == hashlib.sha256(content).hexdigest(), (name, len(content))


def with_requests():
    session = requests.Session()
    session.verify, session.trust_env = False, False
    for base in ["http://" + plain, "https://" + secure]:
        for n in sizes:
            content = random.randbytes(n)
            check("requests", session.post(base + "/a", data=content), content)
            check("requests, chunked", session.put(base + "/a", data=pieces(content)), content)
        response = session.get(base + "/a")
        check("requests, get", response, b"")
        assert response.cookies.get_dict() == {"a": "1", "b": "2"}, response.headers
        assert session.head(base + "/a").status_code == 200


async def with_httpx(http2):
    async with httpx.AsyncClient(http1=not http2, http2=http2, verify=False, timeout=60) as client:
        async def one(base, n):
            content = random.randbytes(n)
            response = await client.post(base + "/a", content=content)
            check("httpx", response, content)
            assert response.http_version == ("HTTP/2" if http2 else "HTTP/1.1")

        await asyncio.gather(*(one("https://" + secure, n) for n in sizes * 10))
        if not http2:
            await asyncio.gather(*(one("http://" + plain, n) for n in sizes * 5))


async def with_websockets():
    for url, options in [("ws://" + plain, {}), ("wss://" + secure, {"ssl": context})]:
        async with websockets.connect(url + "/chat", max_size=None, **options) as c:
            for n in sizes:
                content = random.randbytes(n)
                await c.send(content)
                assert await c.recv() == content, n
            await c.send("text: é")
            assert await c.recv() == "text: é"
            await (await c.ping())


with_requests()
asyncio.run(with_httpx(False))
asyncio.run(with_httpx(True))
asyncio.run(with_websockets())
print("done")
