package interop

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	stdtls "crypto/tls"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/millrace/millrace/tls"
)

// secureConn is a connection of TLS: crypto/tls configured by package tls, or an Engine.
type secureConn interface {
	io.ReadWriteCloser
	CloseWrite() error // sends close_notify
	ConnectionState() stdtls.ConnectionState
}

// tlsForm is one of the two forms of a connection.
type tlsForm struct {
	name   string
	server func(net.Conn, *stdtls.Config) secureConn
	client func(net.Conn, *stdtls.Config) secureConn
}

var tlsForms = []tlsForm{
	{
		"TLS", func(c net.Conn, conf *stdtls.Config) secureConn { return stdtls.Server(c, conf) },
		func(c net.Conn, conf *stdtls.Config) secureConn { return stdtls.Client(c, conf) },
	},
	{
		"TLS, Engine",
		func(c net.Conn, conf *stdtls.Config) secureConn {
			return &engineConn{Conn: c, e: tls.NewServerEngine(conf, tls.EngineOptions{Remote: c.RemoteAddr(), AnyThread: true})}
		},
		func(c net.Conn, conf *stdtls.Config) secureConn {
			return &engineConn{Conn: c, e: tls.NewClientEngine(conf, tls.EngineOptions{Remote: c.RemoteAddr(), AnyThread: true})}
		},
	},
}

// engineConn drives an engine over a stream. One goroutine uses it at a time.
type engineConn struct {
	net.Conn
	e     *tls.Engine
	in    []byte
	plain []byte
	ended bool
}

func (c *engineConn) ConnectionState() stdtls.ConnectionState { return c.e.ConnectionState() }

func (c *engineConn) flush() error {
	for len(c.e.Pending()) > 0 {
		n, err := c.Conn.Write(c.e.Pending())
		c.e.Advance(n)
		if err != nil {
			return err
		}
	}
	return nil
}

// step gives the engine some input and sends what it answers.
func (c *engineConn) step() error {
	if err := c.flush(); err != nil {
		return err
	}
	if len(c.in) == 0 {
		buf := make([]byte, 16<<10)
		n, err := c.Conn.Read(buf)
		if n == 0 {
			if err == io.EOF {
				err = c.e.InputClosed()
			}
			c.ended = true
			return err
		}
		c.in = buf[:n]
	}
	ev, n, err := c.e.Next(c.in)
	c.in = c.in[n:]
	c.plain = append(c.plain, ev.Data...)
	c.ended = c.ended || ev.Kind == tls.PeerClosed
	if sent := c.flush(); err == nil {
		err = sent
	}
	return err
}

func (c *engineConn) Read(p []byte) (int, error) {
	for len(c.plain) == 0 {
		if c.ended {
			return 0, io.EOF
		}
		if err := c.step(); err != nil {
			return 0, err
		}
	}
	n := copy(p, c.plain)
	c.plain = c.plain[n:]
	return n, nil
}

func (c *engineConn) Write(p []byte) (n int, err error) {
	for !c.e.Handshaken() {
		if err := c.step(); err != nil {
			return 0, err
		}
	}
	for n < len(p) {
		m, err := c.e.Write(p[n:])
		n += m
		if err == nil {
			err = c.flush()
		}
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

func (c *engineConn) CloseWrite() error {
	if err := c.e.CloseWrite(); err != nil {
		return err
	}
	return c.flush()
}

func (c *engineConn) Close() error {
	_ = c.CloseWrite()
	c.e.Close()
	return c.Conn.Close()
}

// The contents that go both ways, and how many bytes come from our server besides.
const tlsUpload, tlsDownload = 200_000, 1 << 20 // tlsUpload is a number of lines of 64

// serveSecure serves requests of HTTP/1.1, one on each connection: it says what TLS agreed on and returns the content, or
// tlsDownload bytes. It returns host and port.
func serveSecure(t *testing.T, b *testbed, form tlsForm, config *stdtls.Config) string {
	t.Helper()
	l := b.listen(t)
	var conns sync.WaitGroup
	t.Cleanup(func() {
		_ = l.Close()
		conns.Wait()
	})
	config = config.Clone()
	config.NextProtos = []string{"http/1.1"}
	go func() {
		for {
			raw, err := l.Accept()
			if err != nil {
				return
			}
			conns.Go(func() {
				_ = raw.SetDeadline(deadline())
				c := form.server(raw, config)
				defer c.Close()
				answerSecure(c)
				// A client that still sends, if only its close_notify, would get a reset and lose what it has not read.
				_ = c.CloseWrite()
				_, _ = io.Copy(io.Discard, c)
			})
		}
	}()
	return l.Addr().String()
}

func answerSecure(c secureConn) {
	r, err := http.ReadRequest(bufio.NewReader(c))
	if err != nil {
		return
	}
	content, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	if r.URL.Path == "/download" {
		content = bytes.Repeat([]byte("0123456789abcdef"), tlsDownload/16)
	}
	st := c.ConnectionState()
	head := fmt.Sprintf("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\nX-Tls: version=%#x resumed=%v name=%s\r\n\r\n",
		len(content), st.Version, st.DidResume, st.ServerName)
	_, _ = c.Write(append([]byte(head), content...))
}

// tlsPeers are programs of other implementations: resumption, both versions, data both ways.
func tlsPeers() (rows []peer) {
	for _, form := range tlsForms {
		add := func(name, role string, run func(t *testing.T, b *testbed, f tlsForm)) {
			rows = append(rows, peer{protocol: form.name, name: name, role: role, ci: plain, run: func(t *testing.T, b *testbed) { run(t, b, form) }})
		}
		add("OpenSSL s_client", asClient, opensslCallsUs)
		add("OpenSSL s_server", asServer, weCallOpenSSL)
		add("gnutls-cli", asClient, gnutlsCallsUs)
		add("gnutls-serv", asServer, weCallGnuTLS)
		add("curl", asClient, curlCallsUs)
	}
	return rows
}

// uploads is a request whose content, in lines of hex, comes back.
func uploads(t *testing.T) (request, content string) {
	t.Helper()
	raw := make([]byte, tlsUpload/2)
	_, _ = rand.Read(raw)
	text := hex.EncodeToString(raw)
	var lines strings.Builder
	for ; len(text) > 0; text = text[64:] {
		lines.WriteString(text[:64] + "\n")
	}
	content = lines.String()
	return fmt.Sprintf("POST / HTTP/1.1\r\nHost: www.a.example\r\nContent-Length: %d\r\n\r\n%s", len(content), content), content
}

func opensslCallsUs(t *testing.T, b *testbed, f tlsForm) {
	needs(t, "openssl", "make deps")
	w := newTLSWorld(t)
	addr := serveSecure(t, b, f, w.config(t, nil))
	for _, version := range []string{"-tls1_2", "-tls1_3"} {
		session := w.path("session" + version)
		for _, how := range []string{"-sess_out", "-sess_in"} {
			in, content := uploads(t)
			out, err := b.program(t, in, "openssl", "s_client", version, "-CAfile", w.path("ca.pem"), "-verify_return_error", "-servername", "www.a.example",
				"-ign_eof", "-connect", addr, how, session)
			if err != nil || !strings.Contains(out, content) {
				t.Errorf("%s %s: the content does not come back, %v\n%.1500s", version, how, err, out)
			}
			wants(t, version, fmt.Sprintf("%.12000s", out), fmt.Sprintf("resumed=%v name=www.a.example", how == "-sess_in"))
		}
	}
}

func gnutlsCallsUs(t *testing.T, b *testbed, f tlsForm) {
	needs(t, "gnutls-cli", "make deps")
	w := newTLSWorld(t)
	host, port, _ := net.SplitHostPort(serveSecure(t, b, f, w.config(t, nil)))
	for _, version := range []string{"1.2", "1.3"} {
		in, content := uploads(t)
		out, err := b.program(t, in, "gnutls-cli", "--x509cafile", w.path("ca.pem"), "--sni-hostname", "www.a.example", "--verify-hostname", "www.a.example",
			"--priority", "NORMAL:-VERS-ALL:+VERS-TLS"+version, "-p", port, host)
		if err != nil || !strings.Contains(out, content) || !strings.Contains(out, "The certificate is trusted") {
			t.Errorf("%s: the content does not come back, %v\n%.1500s\n...%s", version, err, out, out[max(0, len(out)-500):])
		}
	}
	out, err := b.program(t, "", "gnutls-cli", "--x509cafile", w.path("ca.pem"), "--sni-hostname", "www.a.example", "--verify-hostname", "www.a.example",
		"--resume", "--waitresumption", "-p", port, host)
	if !strings.Contains(out, "This is a resumed session") {
		t.Errorf("not resumed: %v\n%.3000s", err, out)
	}
}

func curlCallsUs(t *testing.T, b *testbed, f tlsForm) {
	needs(t, "curl", "make deps")
	w := newTLSWorld(t)
	host, port, _ := net.SplitHostPort(serveSecure(t, b, f, w.config(t, nil)))
	_, content := uploads(t)
	if err := os.WriteFile(w.path("content"), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	get := func(args ...string) string {
		out, err := b.program(t, "", "curl", append([]string{"-sS", "--cacert", w.path("ca.pem"), "--resolve", "www.a.example:" + port + ":" + host}, args...)...)
		if err != nil {
			t.Errorf("%v: %v\n%.500s", args, err, out)
		}
		return out
	}
	url := "https://www.a.example:" + port
	for _, version := range []string{"1.2", "1.3"} {
		if out := get("--tlsv"+version, "--tls-max", version, "--data-binary", "@"+w.path("content"), url+"/"); out != content {
			t.Errorf("%s: %d bytes come back, want %d", version, len(out), len(content))
		}
	}
	if out := get(url + "/download"); len(out) != tlsDownload {
		t.Errorf("%d bytes, want %d", len(out), tlsDownload)
	}
}

func weCallOpenSSL(t *testing.T, b *testbed, f tlsForm) {
	needs(t, "openssl", "make deps")
	w := newTLSWorld(t)
	for _, version := range []string{"-tls1_2", "-tls1_3"} {
		addr := b.freeAddr(t)
		b.ready(t, addr, "openssl", "s_server", "-accept", "PORT", version, "-cert", w.path("ecdsa.pem"), "-key", w.path("ecdsa.key"), "-rev")
		callEcho(t, b, f, w, addr, func(line []byte) {
			for i, j := 0, len(line)-1; i < j; i, j = i+1, j-1 {
				line[i], line[j] = line[j], line[i]
			}
		})
	}
}

func weCallGnuTLS(t *testing.T, b *testbed, f tlsForm) {
	needs(t, "gnutls-serv", "make deps")
	w := newTLSWorld(t)
	addr := b.freeAddr(t)
	b.ready(t, addr, "gnutls-serv", "--echo", "-p", "PORT", "--x509certfile", w.path("ecdsa.pem"), "--x509keyfile", w.path("ecdsa.key"))
	callEcho(t, b, f, w, addr, func([]byte) {})
}

// callEcho sends lines to a server that returns them changed, over two connections, of which the second resumes the first.
func callEcho(t *testing.T, b *testbed, f tlsForm, w *tlsWorld, addr string, change func(line []byte)) {
	t.Helper()
	roots, err := tls.LoadRoots(w.path("ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	config, err := tls.NewClientConfig(tls.ClientOptions{ServerName: "www.a.example", Roots: roots, Sessions: stdtls.NewLRUClientSessionCache(1)})
	if err != nil {
		t.Fatal(err)
	}
	for round := range 2 {
		raw, err := b.dial(context.Background(), "tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		_ = raw.SetDeadline(deadline())
		c := f.client(raw, config)
		echoLines(t, c, change)
		if resumed := c.ConnectionState().DidResume; resumed != (round == 1) {
			t.Errorf("round %d: resumed %v", round, resumed)
		}
		_ = c.Close()
	}
}

// echoLines sends tlsUpload bytes in parts and reads each part back.
func echoLines(t *testing.T, c io.ReadWriter, change func(line []byte)) {
	t.Helper()
	r := bufio.NewReader(c)
	for range tlsUpload / 16000 {
		var part []byte
		for range 125 {
			raw := make([]byte, 63)
			_, _ = rand.Read(raw)
			part = append(append(part, hex.EncodeToString(raw)...), '\n')
		}
		if _, err := c.Write(part); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(part))
		if _, err := io.ReadFull(r, got); err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(got) {
			change(line[:len(line)-1])
		}
		if !bytes.Equal(got, part) {
			t.Fatal("other lines come back")
		}
	}
}
