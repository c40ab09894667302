# A WSGI server of the standard library that answers with the variables of each request, as an application sees them.
import json
import sys
from wsgiref.simple_server import WSGIRequestHandler, make_server


class Handler(WSGIRequestHandler):
    def log_message(self, *args):
        pass


def app(environ, start):
    start("200 OK", [("Content-Type", "application/json")])
    text = {k: v for k, v in environ.items() if isinstance(v, str) and (k.startswith("HTTP_") or k in ("PATH_INFO", "QUERY_STRING"))}
    return [json.dumps(text).encode()]


server = make_server("127.0.0.1", 0, app, handler_class=Handler)
print(server.server_port, flush=True)
sys.stdin.close()
server.serve_forever()
