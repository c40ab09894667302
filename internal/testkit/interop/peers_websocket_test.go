package interop

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	coder "github.com/coder/websocket"
	"github.com/gobwas/ws"

	"github.com/millrace/millrace/websocket"
)

// webSocketPeers echo messages of many sizes with compression where the peer has it, over TLS where it is a program.
func webSocketPeers() []peer {
	return []peer{
		{"WebSocket", "ws (node)", asClient, overTCP, plain, nodeCallsUs},
		{"WebSocket", "ws (node)", asServer, overTCP, plain, weCallNode},
		{"WebSocket", "coder/websocket", asClient, overTCP, lossy, coderCallsUs},
		{"WebSocket", "coder/websocket", asServer, overTCP, lossy, weCallCoder},
		{"WebSocket", "gobwas/ws", asClient, overTCP, lossy, gobwasCallsUs},
		{"WebSocket", "gobwas/ws", asServer, overTCP, lossy, weCallGobwas},
	}
}

// webSocketServer is ours, and echoes. With a config it speaks TLS. ended has how each connection ended.
func webSocketServer(t *testing.T, b *testbed, config *tls.Config) (addr string, ended chan error) {
	t.Helper()
	ended = make(chan error, 10)
	l := b.listen(t)
	addr = l.Addr().String()
	if config != nil {
		l = tls.NewListener(l, config)
	}
	serveHTTP(t, l, func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, &websocket.AcceptOptions{Conn: websocket.ConnOptions{Deflate: websocket.Deflate{Enabled: true}}})
		if err != nil {
			ended <- err
			return
		}
		ended <- wsEcho(c)
	})
	return addr, ended
}

// serveHTTP serves until the test ends.
func serveHTTP(t *testing.T, l net.Listener, h http.HandlerFunc) {
	s := &http.Server{Handler: h}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
}

// weCallWebSocket drives a server that echoes.
func weCallWebSocket(t *testing.T, b *testbed, url string, config *tls.Config, deflate bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	wsDrive(t, ctx, url, &websocket.DialOptions{
		DialContext: b.dial, TLS: config, Conn: websocket.ConnOptions{Deflate: websocket.Deflate{Enabled: deflate}},
	}, true)
}

// nodeClient is a client whose messages must come back. DEFLATE stands for the options of permessage-deflate.
const nodeClient = `
const ws = new WebSocket(process.argv[1], {perMessageDeflate: DEFLATE, rejectUnauthorized: false});
const sizes = [0, 1, 125, 126, 127, 4090, 4096, 65535, 65536, 300000];
let i = 0;
const text = n => 'ä fragment of text, '.repeat(n / 19 + 1).slice(0, n);
const next = () => {
	if (i < sizes.length) ws.send(text(sizes[i]));
	else ws.ping('node');
};
ws.on('open', next);
ws.on('message', (data, binary) => {
	if (binary || data.toString() !== text(sizes[i])) { console.log('wrong echo of ' + sizes[i]); process.exit(1); }
	i++; next();
});
ws.on('pong', data => { console.log(ws.extensions, '|', data.toString()); ws.close(1001, 'bye'); });
ws.on('close', (code, reason) => { console.log('close', code); process.exit(0); });
ws.on('error', err => { console.log(err); process.exit(1); });
`

const nodeServer = `
const [host, cert, key] = process.argv.slice(1);
const fs = require('fs');
const https = require('https').createServer({cert: fs.readFileSync(cert), key: fs.readFileSync(key)});
const wss = new WebSocket.Server({server: https, perMessageDeflate: DEFLATE});
https.listen(0, host, () => console.log(https.address().port));
wss.on('connection', ws => {
	ws.on('message', (data, binary) => ws.send(data, {binary}));
	ws.on('close', (code, reason) => console.log('close', code, reason.toString()));
});
`

// nodeArgs are the arguments of node for a script that uses Debian's package node-ws.
func nodeArgs(t *testing.T, script string, args ...string) []string {
	t.Helper()
	cmd := nodeScript(t, strings.ReplaceAll(script, "DEFLATE", nodeDeflates["takeover"]), args...) // it checks what it needs
	return cmd.Args[1:]
}

func nodeCallsUs(t *testing.T, b *testbed) {
	tc, _ := certificate(t)
	addr, ended := webSocketServer(t, b, tc)
	out, err := b.program(t, "", "node", nodeArgs(t, nodeClient, "wss://"+addr)...)
	if err != nil || !strings.Contains(out, "permessage-deflate | node\nclose 1001") {
		t.Errorf("%v\n%s", err, out)
	}
	wantClosed(t, ended, websocket.CloseGoingAway, "bye")
}

func weCallNode(t *testing.T, b *testbed) {
	tc, client := certificate(t)
	cert, key := writePEM(t, tc)
	s := b.serve(t, "node", nodeArgs(t, nodeServer, linuxAddr, cert, key)...)
	weCallWebSocket(t, b, "wss://"+net.JoinHostPort(linuxAddr, s.line(t)), client, true)
	if line := s.line(t); line != "close 1000 bye" {
		t.Errorf("the server prints %q", line)
	}
}

func coderCallsUs(t *testing.T, b *testbed) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	addr, ended := webSocketServer(t, b, nil)
	c, _, err := coder.Dial(ctx, "ws://"+addr, &coder.DialOptions{
		CompressionMode: coder.CompressionContextTakeover, CompressionThreshold: 1,
		HTTPClient: &http.Client{Transport: &http.Transport{DialContext: b.dialLinux}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseNow()
	c.SetReadLimit(-1)
	for _, size := range wsSizes {
		text := wsText(size)
		go c.Write(ctx, coder.MessageText, text)
		kind, p, err := c.Read(ctx)
		if err != nil || kind != coder.MessageText || !bytes.Equal(p, text) {
			t.Fatalf("%d bytes: %v of %d bytes, %v", size, kind, len(p), err)
		}
	}
	if err := c.Close(coder.StatusNormalClosure, "bye"); err != nil {
		t.Error(err)
	}
	wantClosed(t, ended, websocket.CloseNormal, "bye")
}

func weCallCoder(t *testing.T, b *testbed) {
	l := b.listenLinux(t)
	serveHTTP(t, l, coderEcho(coder.CompressionContextTakeover))
	weCallWebSocket(t, b, fmt.Sprint("ws://", l.Addr()), nil, true)
}

func gobwasCallsUs(t *testing.T, b *testbed) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	addr, ended := webSocketServer(t, b, nil)
	d := ws.Dialer{NetDial: b.dialLinux}
	c, _, _, err := d.Dial(ctx, "ws://"+addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(deadline())
	driveGobwas(t, c)
	wantClosed(t, ended, websocket.CloseGoingAway, "bye")
}

func weCallGobwas(t *testing.T, b *testbed) {
	l := b.listenLinux(t)
	serveHTTP(t, l, gobwasEcho)
	weCallWebSocket(t, b, fmt.Sprint("ws://", l.Addr()), nil, false)
}
