package proxy

import (
	"bytes"
	ctls "crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit/testcert"
	"github.com/millrace/millrace/l7/route"
	"github.com/millrace/millrace/tls/clienthello"
)

// tlsServer ends TLS, and says its name, the server name that it was asked for and the protocol.
func tlsServer(t *testing.T, name string) string {
	cert, _ := testcert.SelfSigned(name)
	config := &ctls.Config{Certificates: []ctls.Certificate{cert}, NextProtos: []string{"h2", "http/1.1", "acme-tls/1"}}
	return script(t, func(c net.Conn) {
		s := ctls.Server(c, config)
		if s.Handshake() != nil {
			return
		}
		cs := s.ConnectionState()
		io.WriteString(s, name+" "+cs.ServerName+" "+cs.NegotiatedProtocol+"\n")
		io.Copy(s, s)
		s.CloseWrite()
	})
}

// Connections go where the server name, the protocols and the fingerprint of the hello lead, and TLS ends at the backend.
func TestPassesTLSByHello(t *testing.T) {
	fingerprint := helloOf(t, &ctls.Config{ServerName: "ja4.other.test", MaxVersion: ctls.VersionTLS12}).JA4()
	r, ln := passRig(t, StreamTLS,
		streamRule{match: route.Match{Hosts: []string{"exact.test"}}, backends: []string{tlsServer(t, "exact")}},
		streamRule{match: route.Match{Hosts: []string{"*.wild.test"}}, backends: []string{tlsServer(t, "wild")}},
		streamRule{match: route.Match{Hosts: []string{"exact.test"}, ALPN: []string{"acme-tls/1"}}, backends: []string{tlsServer(t, "acme")}},
		streamRule{match: route.Match{Hosts: []string{"*.other.test"}, JA4: []string{fingerprint}}, backends: []string{tlsServer(t, "ja4")}},
	)
	ask := func(c *ctls.Config) string {
		t.Helper()
		c.InsecureSkipVerify = true
		conn, err := ctls.DialWithDialer(&net.Dialer{Timeout: 20 * time.Second}, "tcp", ln.Address.String(), c)
		if err != nil {
			return err.Error()
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(time.Minute))
		io.WriteString(conn, "echo")
		conn.CloseWrite()
		all, err := io.ReadAll(conn)
		if err != nil {
			t.Error(err)
		}
		return string(all)
	}
	for _, c := range []struct {
		config *ctls.Config
		want   string
	}{
		{&ctls.Config{ServerName: "exact.test"}, "exact exact.test \necho"},
		{&ctls.Config{ServerName: "EXACT.test", NextProtos: []string{"h2"}}, "exact EXACT.test h2\necho"},
		{&ctls.Config{ServerName: "a.wild.test", MaxVersion: ctls.VersionTLS12}, "wild a.wild.test \necho"},
		{&ctls.Config{ServerName: "a.b.wild.test"}, "wild a.b.wild.test \necho"},
		{&ctls.Config{ServerName: "exact.test", NextProtos: []string{"http/1.1", "acme-tls/1"}}, "acme exact.test http/1.1\necho"},
		{&ctls.Config{ServerName: "ja4.other.test", MaxVersion: ctls.VersionTLS12}, "ja4 ja4.other.test \necho"},
		{&ctls.Config{ServerName: "ja4.other.test"}, "remote error: tls: unrecognized name"},
		{&ctls.Config{ServerName: "wild.test"}, "remote error: tls: unrecognized name"},
		{&ctls.Config{ServerName: "127.0.0.1"}, "remote error: tls: unrecognized name"}, // an address is not sent
	} {
		if got := ask(c.config); got != c.want {
			t.Errorf("%s %v: %q, want %q", c.config.ServerName, c.config.NextProtos, got, c.want)
		}
	}
	if s := r.passed(); s.Unrouted != 3 || s.Cut != 0 {
		t.Errorf("%+v", s)
	}
	// A rule without names takes the others, those without a name too.
	_, ln = passRig(t, StreamTLS,
		streamRule{match: route.Match{Hosts: []string{"exact.test"}}, backends: []string{tlsServer(t, "exact")}},
		streamRule{backends: []string{tlsServer(t, "default")}},
	)
	for name, want := range map[string]string{"exact.test": "exact exact.test \necho", "none.test": "default none.test \necho", "127.0.0.1": "default  \necho"} {
		if got := ask(&ctls.Config{ServerName: name}); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// rawHello returns the first record that a client sends.
func rawHello(t testing.TB, config *ctls.Config) []byte {
	t.Helper()
	client, server := net.Pipe()
	defer server.Close()
	go func() { ctls.Client(client, config).Handshake(); client.Close() }()
	head := make([]byte, 5)
	_, err := io.ReadFull(server, head)
	if err != nil {
		t.Fatal(err)
	}
	body := make([]byte, binary.BigEndian.Uint16(head[3:]))
	if _, err := io.ReadFull(server, body); err != nil {
		t.Fatal(err)
	}
	return append(head, body...)
}

func helloOf(t testing.TB, config *ctls.Config) *clienthello.Hello {
	t.Helper()
	h, err := new(clienthello.Peeker).Parse(rawHello(t, config))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// inRecords cuts the message of a record into records of n bytes.
func inRecords(record []byte, n int) (out []byte) {
	for body := record[5:]; len(body) > 0; {
		part := body[:min(n, len(body))]
		body = body[len(part):]
		out = binary.BigEndian.AppendUint16(append(out, 22, 3, 1), uint16(len(part)))
		out = append(out, part...)
	}
	return out
}

// cutter writes the first record in pieces, or as several records.
type cutter struct {
	net.Conn
	piece, record int
	done          bool
}

func (c *cutter) Write(p []byte) (int, error) {
	if c.done {
		return c.Conn.Write(p)
	}
	c.done = true
	all := p
	if c.record > 0 {
		all = inRecords(p, c.record)
	}
	for i := 0; len(all) > 0; i++ {
		n := len(all)
		if c.piece > 0 {
			n = min(n, c.piece)
		}
		if _, err := c.Conn.Write(all[:n]); err != nil {
			return 0, err
		}
		if all = all[n:]; c.piece > 0 && i < 100 { // each is read by itself, most of the time
			time.Sleep(20 * time.Microsecond)
		}
	}
	return len(p), nil
}

// A hello may come byte by byte and in many records: the backend gets what the client sent.
func TestPassesHellosInPieces(t *testing.T) {
	r, ln := passRig(t, StreamTLS, streamRule{match: route.Match{Hosts: []string{"a.test"}}, backends: []string{tlsServer(t, "a")}})
	for _, c := range []cutter{{piece: 1}, {piece: 7, record: 100}, {record: 16}, {piece: 1, record: 300}} {
		c.Conn = dial(t, ln)
		s := ctls.Client(&c, &ctls.Config{ServerName: "a.test", InsecureSkipVerify: true})
		got := make([]byte, 9)
		if _, err := io.ReadFull(s, got); err != nil || string(got) != "a a.test " {
			t.Errorf("pieces of %d, records of %d: %q %v", c.piece, c.record, got, err)
		}
		s.Close()
	}
	if s := r.passed(); s.Hellos != 0 {
		t.Errorf("%+v", s)
	}
}

// What is no ClientHello is answered by the alert that a server sends, and nothing of it reaches a backend.
func TestPeekRefusesGarbage(t *testing.T) {
	r, ln := passRig(t, StreamTLS, streamRule{backends: []string{script(t, func(net.Conn) { t.Error("a connection to the backend") })}})
	hello := rawHello(t, &ctls.Config{ServerName: "a.test"})
	long := append([]byte{1, 0, 0xff, 0xff}, make([]byte, 0xffff)...)
	badName := bytes.Replace(bytes.Clone(hello), []byte("a.test"), []byte("a test"), 1)
	cases := map[string]struct {
		in    []byte
		alert clienthello.Alert
	}{
		"http":             {[]byte("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n"), clienthello.AlertUnexpectedMessage},
		"another version":  {[]byte{22, 9, 9, 0, 1, 1}, clienthello.AlertProtocolVersion},
		"over the limit":   {inRecords(append(make([]byte, 5), long...), 1<<14), clienthello.AlertHandshakeFailure},
		"a server's hello": {[]byte{22, 3, 1, 0, 4, 2, 0, 0, 0}, clienthello.AlertUnexpectedMessage},
		"record too long":  {[]byte{22, 3, 1, 0xff, 0xff}, clienthello.AlertRecordOverflow},
		"a name of none":   {badName, clienthello.AlertIllegalParameter},
	}
	for name, c := range cases {
		conn := dial(t, ln)
		conn.Write(c.in)
		got, err := io.ReadAll(conn)
		if err != nil || !bytes.Equal(got, c.alert.Append(nil)) {
			t.Errorf("%s: %x %v", name, got, err)
		}
		conn.Close()
	}
	// The end before the hello is complete.
	conn := dial(t, ln)
	conn.Write(hello[:100])
	conn.CloseWrite()
	if n, err := conn.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("cut: %d %v", n, err)
	}
	if s := r.passed(); int(s.Hellos) != len(cases)+1 || s.Passed != 0 {
		t.Errorf("%+v", s)
	}
	r.do(func() {
		if n := len(r.worker.fronts); n != 0 {
			t.Errorf("%d connections are left", n)
		}
	})
}

// A hello that does not come in time is not waited for.
func TestPeekIsBoundedInTime(t *testing.T) {
	var ln *Listener
	r := newRig(t, "127.0.0.1:1", func(r *rig) {
		ln = r.streams(StreamTLS, streamRule{backends: []string{echoTCP(t)}})
		ln.Timeouts.Handshake = 300 * time.Millisecond
	})
	hello := rawHello(t, &ctls.Config{ServerName: "a.test"})
	conn := dial(t, ln)
	for i := 0; ; i++ { // a byte now and then does not help
		if _, err := conn.Write(hello[i : i+1]); err != nil {
			break
		}
		if i == len(hello)-2 {
			t.Fatal("the gateway waits on")
		}
		time.Sleep(20 * time.Millisecond)
	}
	if s := r.passed(); s.Hellos != 1 {
		t.Errorf("%+v", s)
	}
}

// What follows the hello at once, as early data does, reaches the backend behind it, also after a retry.
func TestPassesWhatFollowsTheHello(t *testing.T) {
	dead := free(t).String()
	r, ln := passRig(t, StreamTLS, streamRule{backends: []string{dead, echoTCP(t)}})
	sent := append(rawHello(t, &ctls.Config{ServerName: "a.test"}), bytes.Repeat([]byte("early"), 50_000)...)
	for range 2 { // in turn: the dead backend is met first
		conn := dial(t, ln)
		go func() { conn.Write(sent); conn.CloseWrite() }()
		got, err := io.ReadAll(conn)
		if err != nil || !bytes.Equal(got, sent) {
			t.Errorf("%d bytes of %d, %v", len(got), len(sent), err)
		}
		conn.Close()
	}
	if s := r.passed(); s.Retries == 0 || s.Up != s.Down || int(s.Up) != 2*len(sent) {
		t.Errorf("%+v", s)
	}
	// Without any backend the client gets an alert.
	_, ln = passRig(t, StreamTLS, streamRule{backends: []string{dead}})
	_, err := ctls.Dial("tcp", ln.Address.String(), &ctls.Config{ServerName: "a.test"})
	var alert ctls.AlertError
	if err == nil || !errors.As(err, &alert) && !strings.Contains(err.Error(), "internal error") {
		t.Error(err)
	}
}

// openssl on both sides.
func TestPassesOpenSSL(t *testing.T) {
	path, err := exec.LookPath("openssl")
	if err != nil {
		t.Skip("openssl is not installed")
	}
	dir := t.TempDir()
	out, err := exec.Command(path, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
		"-keyout", dir+"/k", "-out", dir+"/c", "-subj", "/CN=s.test", "-addext", "subjectAltName=DNS:s.test").CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v", out, err)
	}
	addr := free(t)
	server := exec.Command(path, "s_server", "-accept", addr.String(), "-cert", dir+"/c", "-key", dir+"/k", "-alpn", "x", "-rev", "-quiet")
	must(t, server.Start())
	t.Cleanup(func() { server.Process.Kill(); server.Wait() })
	r, ln := passRig(t, StreamTLS, streamRule{match: route.Match{Hosts: []string{"s.test"}}, backends: []string{addr.String()}})
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		c, err := net.Dial("tcp", addr.String())
		if err == nil {
			c.Close()
			break
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	for _, version := range []string{"-tls1_2", "-tls1_3"} {
		client := exec.Command(path, "s_client", "-connect", ln.Address.String(), "-servername", "s.test", "-CAfile", dir+"/c",
			"-verify_return_error", "-verify_hostname", "s.test", "-alpn", "x", version, "-ign_eof", "-brief")
		in, err := client.StdinPipe()
		must(t, err)
		var all bytes.Buffer
		client.Stdout, client.Stderr = &all, &all
		must(t, client.Start())
		io.WriteString(in, "desserts\n")
		io.WriteString(in, "CLOSE\n") // ends s_server's side
		in.Close()
		stop := time.AfterFunc(30*time.Second, func() { client.Process.Kill() })
		client.Wait()
		stop.Stop()
		if got := all.String(); !strings.Contains(got, "stressed") || !strings.Contains(got, "Verification: OK") {
			t.Errorf("%s: %s", version, got)
		}
	}
	out, _ = exec.Command(path, "s_client", "-connect", ln.Address.String(), "-servername", "t.test", "-brief").CombinedOutput()
	if !strings.Contains(string(out), "unrecognized name") {
		t.Errorf("an unknown name: %s", out)
	}
	r.passed()
}
