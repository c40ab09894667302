package interop

import (
	"bytes"
	"crypto/tls"
	"image/png"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/millrace/millrace/websocket"
)

// chromiumPeers are pages in Chromium.
func chromiumPeers() []peer {
	rows := []peer{
		{"HTTP/3", "Chromium", asClient, overLargeUDP, never, chromiumFetches},
		{"WebTransport", "Chromium", asClient, overLargeUDP, never, chromiumSession},
	}
	for _, version := range []string{"HTTP/1.1", "HTTP/2"} {
		rows = append(rows, peer{"WebSocket, " + version, "Chromium", asClient, overTCP, never, func(t *testing.T, b *testbed) { chromiumWebSocket(t, b, version) }})
	}
	return append(rows, peer{"WebSocket, HTTP/3", "Chromium", asClient, overLargeUDP, never, chromiumWebSocketOverHTTP3})
}

// pageOfTest is what the tab shows. The pictures have priorities of their own.
const pageOfTest = `<!DOCTYPE html><meta charset=utf-8><title>Millrace</title><link rel=icon href=data:,>
<style>body { font: 18px monospace; background: #123; color: #fff } td { padding: 0 1em }</style>
<h1>Millrace</h1><table id=log></table>
<script>
const log = (what, how) => document.getElementById('log').insertRow().innerHTML = '<td>' + what + '<td>' + how;
const check = (ok, what) => { if (!ok) throw new Error(what); };
</script>`

// chromiumPage serves the page and what its scripts ask for.
type chromiumPage struct {
	mu         sync.Mutex
	protocols  map[string]int    // requests by version of HTTP
	priorities map[string]string // by path
}

func (p *chromiumPage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	if p.protocols == nil {
		p.protocols, p.priorities = map[string]int{}, map[string]string{}
	}
	p.protocols[r.Proto]++
	p.priorities[r.URL.Path] = r.Header.Get("Priority")
	p.mu.Unlock()
	w.Header().Set("Access-Control-Allow-Origin", "*")
	switch r.URL.Path {
	case "/":
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, pageOfTest)
	case "/large":
		_, _ = w.Write(bytes.Repeat([]byte("0123456789abcdef"), 1<<16))
	default:
		_, _ = io.Copy(w, r.Body)
	}
}

// openPage starts Chromium on a page of ours over HTTP/3, whose other requests go to h.
func openPage(t *testing.T, b *testbed, h http.Handler) (br *browser, tc *tls.Config, origin string) {
	t.Helper()
	tc, _ = certificate(t, "h3")
	_, port, _ := net.SplitHostPort(http3Server(t, b, tc, h))
	origin = "b:" + port
	br = b.browse(t, tc, origin)
	br.open(t, "https://"+origin+"/")
	return br, tc, origin
}

func chromiumFetches(t *testing.T, b *testbed) {
	p := new(chromiumPage)
	br, _, _ := openPage(t, b, p)
	br.eval(t, `async link => {
		log('link', link);
		const large = await (await fetch('/large')).text();
		check(large === '0123456789abcdef'.repeat(1 << 16), large.length + ' bytes of /large');
		log('GET', large.length + ' bytes');
		for (const size of [0, 1, 1000, 300000]) {
			const sent = 'x'.repeat(size);
			const got = await (await fetch('/echo', {method: 'POST', body: sent})).text();
			check(got === sent, got.length + ' of ' + size + ' bytes come back');
			log('POST', size + ' bytes come back');
		}
		await Promise.all([...Array(30).keys()].map(async i => {
			const got = await (await fetch('/echo', {method: 'POST', body: 'y'.repeat(i * 1000)})).text();
			check(got.length === i * 1000, 'side by side: ' + got.length);
		}));
		log('POST', '30 side by side');
		await Promise.all(['high', 'low'].map(priority => fetch('/' + priority, {priority})));
		const used = performance.getEntriesByType('resource').map(e => e.nextHopProtocol);
		check(used.length > 30 && used.every(p => p === 'h3'), 'protocols ' + used);
		log('protocols', [...new Set(used)]);
	}`, b.name)
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.protocols) != 1 || p.protocols["HTTP/3.0"] < 37 {
		t.Errorf("requests %v", p.protocols)
	}
	// Chromium gives the page 0, and low ones 3, which is the default and left out (RFC 9218 4.1).
	if p.priorities["/"] != "u=0, i" || p.priorities["/high"] != "u=1, i" || p.priorities["/low"] != "i" {
		t.Errorf("priorities %v", p.priorities)
	}
	checkScreenshot(t, br.screenshot(t))
}

// checkScreenshot expects text on a background. MILLRACE_SCREENSHOT names a file for it.
func checkScreenshot(t *testing.T, shot []byte) {
	t.Helper()
	img, err := png.Decode(bytes.NewReader(shot))
	if err != nil {
		t.Fatal(err)
	}
	colours := map[[3]uint32]int{}
	for y := range img.Bounds().Dy() {
		for x := range img.Bounds().Dx() {
			r, g, b, _ := img.At(x, y).RGBA()
			colours[[3]uint32{r >> 8, g >> 8, b >> 8}]++
		}
	}
	if background, text := colours[[3]uint32{0x11, 0x22, 0x33}], colours[[3]uint32{255, 255, 255}]; background < 50_000 || text < 1000 {
		t.Errorf("%d pixels of the background and %d of text, %d colours", background, text, len(colours))
	}
	if path := os.Getenv("MILLRACE_SCREENSHOT"); path != "" {
		if err := os.WriteFile(path, shot, 0o644); err != nil {
			t.Error(err)
		}
	}
}

func chromiumSession(t *testing.T, b *testbed) {
	ended := make(chan error, 1)
	sessions := sessionHandler(ended)
	p := new(chromiumPage)
	br, _, origin := openPage(t, b, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodConnect {
			sessions(w, r)
			return
		}
		p.ServeHTTP(w, r)
	}))
	br.eval(t, `async origin => {
		const text = async stream => await new Response(stream).text();
		const first = async stream => { const r = stream.getReader(); const {value} = await r.read(); r.releaseLock(); return value; };
		const write = async (stream, s) => { const w = stream.getWriter(); await w.write(new TextEncoder().encode(s)); await w.close(); };
		const wt = new WebTransport('https://' + origin + '/wt');
		await wt.ready;
		const greeting = await text((await first(wt.incomingBidirectionalStreams)).readable);
		check(greeting === 'from the server', 'greeting ' + greeting);
		log('bidirectional', 'from the server');
		for (let i = 0; i < 5; i++) {
			const s = await wt.createBidirectionalStream();
			const sent = ('' + i).repeat(60000);
			const [, got] = await Promise.all([write(s.writable, sent), text(s.readable)]);
			check(got === sent, got.length + ' bytes come back');
		}
		await write(await wt.createUnidirectionalStream(), 'shout');
		const shout = await text(await first(wt.incomingUnidirectionalStreams));
		check(shout === 'SHOUT', 'unidirectional ' + shout);
		const w = wt.datagrams.writable.getWriter(), r = wt.datagrams.readable.getReader();
		const sending = setInterval(() => w.write(new TextEncoder().encode('datagram')), 100);
		const {value} = await r.read();
		clearInterval(sending);
		check(new TextDecoder().decode(value) === 'datagram', 'datagram ' + value);
		wt.close({closeCode: 77, reason: 'bye'});
	}`, origin)
	wantSessionClosed(t, ended)
}

// driveWebSocket is the script of a page that sends messages, which must come back.
const driveWebSocket = `async url => {
	const ws = new WebSocket(url, ['echo']);
	const event = name => new Promise((ok, fail) => { ws['on' + name] = ok; ws.onerror = () => fail(new Error('error of ' + url)); });
	await event('open');
	check(ws.protocol === 'echo' && ws.extensions === 'permessage-deflate', ws.protocol + ' ' + ws.extensions);
	for (const size of [0, 1, 125, 126, 127, 4090, 4096, 65535, 65536, 300000]) {
		const sent = 'ä fragment of text, '.repeat(size / 19 + 1).slice(0, size);
		const got = event('message');
		ws.send(sent);
		check((await got).data === sent, 'message of ' + size);
	}
	ws.binaryType = 'arraybuffer';
	const got = event('message');
	ws.send(new Uint8Array([0, 255, 1]));
	check(new Uint8Array((await got).data).join() === '0,255,1', 'binary');
	const closed = event('close');
	ws.close(4000, 'bye');
	const e = await closed;
	check(e.wasClean && e.code === 4000, 'closed with ' + e.code);
}`

// webSocketHandler echoes for any origin, and reports the version of HTTP and how the connection ended.
func webSocketHandler(versions chan string, ended chan error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		versions <- r.Proto
		c, err := websocket.Accept(w, r, &websocket.AcceptOptions{
			Subprotocols: []string{"echo"}, OriginPatterns: []string{"*"}, Conn: websocket.ConnOptions{Deflate: websocket.Deflate{Enabled: true}},
		})
		if err != nil {
			ended <- err
			return
		}
		ended <- wsEcho(c)
	}
}

// chromiumWebSocket connects to a server of net/http. Chromium uses HTTP/2 for WebSocket where it has a connection already.
func chromiumWebSocket(t *testing.T, b *testbed, version string) {
	if version == "HTTP/2" && os.Getenv("GODEBUG") != http2xconnect {
		t.Skipf("net/http takes WebSocket over HTTP/2 only with GODEBUG=%s in the environment, as make interop-peers has it", http2xconnect)
	}
	alpn := map[string]string{"HTTP/1.1": "http/1.1", "HTTP/2": "h2"}[version]
	tc, _ := certificate(t, alpn)
	versions, ended := make(chan string, 10), make(chan error, 10)
	echo, page := webSocketHandler(versions, ended), new(chromiumPage)
	l := b.listen(t)
	s := &http.Server{TLSConfig: tc, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/ws" {
			echo(w, r)
			return
		}
		page.ServeHTTP(w, r)
	})}
	go func() { _ = s.ServeTLS(l, "", "") }()
	t.Cleanup(func() { _ = s.Close() })
	_, port, _ := net.SplitHostPort(l.Addr().String())
	br := b.browse(t, tc)
	br.open(t, "https://b:"+port+"/")
	br.eval(t, driveWebSocket, "wss://b:"+port+"/ws")
	wantWebSocket(t, version, versions, ended)
}

func chromiumWebSocketOverHTTP3(t *testing.T, b *testbed) {
	versions, ended := make(chan string, 10), make(chan error, 10)
	echo, page := webSocketHandler(versions, ended), new(chromiumPage)
	br, _, origin := openPage(t, b, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodConnect {
			echo(w, r)
			return
		}
		page.ServeHTTP(w, r)
	}))
	br.eval(t, driveWebSocket, "wss://"+origin+"/ws")
	wantWebSocket(t, "HTTP/3", versions, ended)
}

func wantWebSocket(t *testing.T, version string, versions chan string, ended chan error) {
	t.Helper()
	if got := <-versions; !strings.HasPrefix(got, version) {
		t.Errorf("the handshake came by %s, want %s", got, version)
	}
	wantClosed(t, ended, 4000, "bye")
}
