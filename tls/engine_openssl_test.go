package tls

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// openssl is a run of the program openssl; its output is kept.
type openssl struct {
	t     *testing.T
	stdin io.WriteCloser
	lines chan string
	all   strings.Builder
	wait  func() error
}

func startOpenSSL(t *testing.T, args ...string) *openssl {
	t.Helper()
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("openssl is not installed")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	cmd := exec.CommandContext(ctx, "openssl", args...)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	r, w := io.Pipe()
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	o := &openssl{t: t, stdin: stdin, lines: make(chan string, 10000)}
	o.wait = func() error { defer w.Close(); return cmd.Wait() }
	go func() {
		defer close(o.lines)
		for s := bufio.NewScanner(r); s.Scan(); {
			o.lines <- s.Text()
		}
	}()
	t.Cleanup(func() { cancel(); r.Close() })
	return o
}

// expect reads until a line has the text.
func (o *openssl) expect(text string) string {
	o.t.Helper()
	return o.await(text, func() {})
}

// insist says a line until it comes back: openssl drops what it reads together with a command.
func (o *openssl) insist(line string) {
	o.t.Helper()
	o.await(line, func() { o.say(line) })
}

func (o *openssl) await(text string, again func()) string {
	o.t.Helper()
	late := time.After(30 * time.Second)
	again()
	for {
		select {
		case <-time.After(200 * time.Millisecond):
			again()
		case line, ok := <-o.lines:
			o.all.WriteString(line + "\n")
			if strings.Contains(line, text) {
				return line
			}
			if !ok {
				o.t.Fatalf("openssl did not say %q:\n%s", text, o.all.String())
			}
		case <-late:
			o.t.Fatalf("openssl did not say %q:\n%s", text, o.all.String())
		}
	}
}

func (o *openssl) say(line string) {
	o.t.Helper()
	if _, err := io.WriteString(o.stdin, line+"\n"); err != nil {
		o.t.Fatal(err)
	}
}

// pemFiles writes the test's certificate and key.
func pemFiles(t *testing.T) (cert, key string) {
	t.Helper()
	c, _ := testCertificate()
	der, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for name, block := range map[string]*pem.Block{
		cert: {Type: "CERTIFICATE", Bytes: c.Certificate[0]},
		key:  {Type: "PRIVATE KEY", Bytes: der},
	} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

type opensslMode struct {
	name string
	args []string
	own  bool
}

// opensslModes are what both ends are told.
var opensslModes = []opensslMode{
	{"1.3 AES-128", []string{"-tls1_3", "-ciphersuites", "TLS_AES_128_GCM_SHA256"}, true},
	{"1.3 AES-256", []string{"-tls1_3", "-ciphersuites", "TLS_AES_256_GCM_SHA384"}, true},
	{"1.3 ChaCha20", []string{"-tls1_3", "-ciphersuites", "TLS_CHACHA20_POLY1305_SHA256"}, true},
	{"1.2 AES-128", []string{"-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-GCM-SHA256"}, true},
	{"1.2 AES-256", []string{"-tls1_2", "-cipher", "ECDHE-ECDSA-AES256-GCM-SHA384"}, true},
	{"1.2 ChaCha20", []string{"-tls1_2", "-cipher", "ECDHE-ECDSA-CHACHA20-POLY1305"}, true},
	{"1.2 CBC", []string{"-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-SHA"}, false},
}

// TestEngineServesOpenSSL has s_client talk to a server engine: at first, resumed, with key updates of both kinds, and
// with an attempt to renegotiate.
func TestEngineServesOpenSSL(t *testing.T) {
	for _, m := range opensslModes {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			testServesOpenSSL(t, m, EngineOptions{})
		})
		if strings.HasPrefix(m.name, "1.3") {
			t.Run(m.name+"/crypto/tls", func(t *testing.T) {
				t.Parallel()
				testServesOpenSSL(t, m, EngineOptions{StandardHandshake: true})
			})
		}
	}
}

func testServesOpenSSL(t *testing.T, m opensslMode, options EngineOptions) {
	cert, _ := pemFiles(t)
	s, _ := engineConfigs(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	session := filepath.Join(t.TempDir(), "session")
	v13 := strings.HasPrefix(m.name, "1.3")
	for _, resume := range []string{"-sess_out", "-sess_in", ""} {
		args := append([]string{
			"s_client", "-connect", l.Addr().String(), "-servername", "example.com", "-CAfile", cert,
			"-verify_return_error",
		}, m.args...)
		if resume != "" {
			args = append(args, resume, session)
		}
		o := startOpenSSL(t, args...)
		conn, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
		x, served := &end{Engine: NewServerEngine(s, options)}, make(chan bool)
		go func() { x.echoOver(conn); close(served) }()
		o.say("hello")
		o.expect("hello")
		if v13 {
			for _, command := range []string{"K", "k", "K"} { // with and without a request
				o.say(command)
				o.expect("KEYUPDATE")
				o.say("after " + command)
				o.expect("after " + command)
			}
		}
		if !v13 && resume == "" {
			o.say("R")
			<-served
			if x.err == nil || !strings.Contains(x.err.Error(), "unexpected") {
				t.Errorf("renegotiation: %v", x.err)
			}
			continue
		}
		o.say("Q")
		<-served
		if err := o.wait(); err != nil || x.err != nil {
			t.Errorf("openssl: %v, engine: %v", err, x.err)
		}
		cs := x.ConnectionState()
		if x.OwnHandshake() != (v13 && !options.StandardHandshake) {
			t.Errorf("%s: own handshake: %v", resume, x.OwnHandshake())
		}
		if cs.DidResume != (resume == "-sess_in") || x.OwnRecords() != (m.own && (v13 || !cs.DidResume)) {
			t.Errorf("%s: resumed %v, own records %v", resume, cs.DidResume, x.OwnRecords())
		}
	}
}

// TestEngineCallsOpenSSL has a client engine talk to s_server, which sends 2 tickets and key updates.
func TestEngineCallsOpenSSL(t *testing.T) {
	cert, key := pemFiles(t)
	for _, m := range opensslModes {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			_, c := engineConfigs(t)
			c.ClientSessionCache = tls.NewLRUClientSessionCache(4)
			var keys bytes.Buffer
			c.KeyLogWriter = &keys
			v13 := strings.HasPrefix(m.name, "1.3")
			o := startOpenSSL(t, append([]string{"s_server", "-accept", "127.0.0.1:0", "-cert", cert, "-key", key}, m.args...)...)
			addr := strings.TrimPrefix(o.expect("ACCEPT "), "ACCEPT ")
			for i := range 2 {
				conn, err := net.Dial("tcp", addr)
				if err != nil {
					t.Fatal(err)
				}
				_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
				x, done := &end{Engine: NewClientEngine(c, EngineOptions{})}, make(chan bool)
				go func() { x.echoOver(conn); close(done) }()
				o.expect("END SSL SESSION PARAMETERS")
				o.say("hello")
				o.expect("hello")
				if v13 {
					for _, command := range []string{"K", "k"} {
						o.say(command)
						o.insist("after " + command)
					}
				}
				o.say("q") // ends the connection, not the server
				<-done
				if v13 && strings.Contains(keys.String(), hex.EncodeToString(x.own.read.secret)) {
					t.Error("the server's keys are still the first ones")
				}
				// s_server closes without close_notify.
				cs, own := x.ConnectionState(), m.own && (v13 || i == 0)
				if x.err != io.ErrUnexpectedEOF || cs.DidResume != (i > 0) || x.OwnRecords() != own {
					t.Errorf("connection %d: %v, resumed %v, own records %v", i, x.err, cs.DidResume, x.OwnRecords())
				}
			}
		})
	}
}

// TestEngineBulkToOpenSSL sends a file's worth in both directions at once.
func TestEngineBulkToOpenSSL(t *testing.T) {
	cert, key := pemFiles(t)
	_, c := engineConfigs(t)
	o := startOpenSSL(t, "s_server", "-accept", "127.0.0.1:0", "-cert", cert, "-key", key, "-rev")
	addr := strings.TrimPrefix(o.expect("ACCEPT "), "ACCEPT ")
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	x := &end{Engine: NewClientEngine(c, EngineOptions{})}
	line := append(bytes.Repeat([]byte("0123456789"), 100), '\n')
	turned := append(bytes.Repeat([]byte("9876543210"), 100), '\n')
	const lines = 2000
	sent, buf := 0, make([]byte, 5000)
	for len(x.data) < lines*len(line) {
		if x.Handshaken() && sent < lines*len(line) && sent-len(x.data) < 100<<10 {
			n, err := x.Write(line[sent%len(line):])
			if sent += n; err != nil {
				t.Fatal(err)
			}
		}
		n, err := conn.Write(x.Pending())
		if x.Advance(n); err != nil {
			t.Fatal(err)
		}
		if sent < lines*len(line) && sent-len(x.data) < 50<<10 && x.Handshaken() {
			continue
		}
		if n, err = conn.Read(buf); err != nil {
			t.Fatal(err)
		}
		if x.feed(buf[:n], wholly); x.err != nil {
			t.Fatal(x.err)
		}
	}
	if !bytes.Equal(x.data, bytes.Repeat(turned, lines)) {
		t.Errorf("%d bytes came back, or others", len(x.data))
	}
}
