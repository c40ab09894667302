"""An ASGI application: it answers with the digest of the content, and returns messages of WebSockets."""
import hashlib


async def app(scope, receive, send):
    if scope["type"] == "http":
        digest, more = hashlib.sha256(), True
        while more:
            event = await receive()
            if event["type"] == "http.disconnect":
                return
            digest.update(event.get("body", b""))
            more = event.get("more_body", False)
        body = digest.hexdigest().encode()
        names = [(b"x-version", scope["http_version"].encode()), (b"set-cookie", b"a=1"), (b"set-cookie", b"b=2")]
        await send({"type": "http.response.start", "status": 200, "headers": names})
        for i in range(4):
            await send({"type": "http.response.body", "body": body[i * 16:(i + 1) * 16], "more_body": i < 3})
    elif scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        while True:
            event = await receive()
            if event["type"] == "websocket.disconnect":
                return
            await send({"type": "websocket.send", "text": event.get("text"), "bytes": event.get("bytes")})
