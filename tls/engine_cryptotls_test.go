package tls

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"testing"
	"time"
)

// The tests of this file hold what Engine relies on in crypto/tls beyond its documentation. One that
// fails after an update of Go says that the engine has to change, not the test.

// dripConn is a net.Conn that returns one byte for every other Read, and a temporary error otherwise, once drip is set.
type dripConn struct {
	net.Conn
	drip, odd bool
	errors    int
	fatal     error
}

func (d *dripConn) Read(p []byte) (int, error) {
	if d.fatal != nil {
		return 0, d.fatal
	}
	if !d.drip {
		return d.Conn.Read(p)
	}
	if d.odd = !d.odd; d.odd {
		d.errors++
		return 0, errNoInput
	}
	return d.Conn.Read(p[:1])
}

// loopback returns two ends of a connection of the kernel.
func loopback(t *testing.T) (a, b net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if a, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if b, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []net.Conn{a, b} {
		t.Cleanup(func() { c.Close() })
		_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	}
	return a, b
}

// TestCryptoTLSResumesReads has tls.Conn go on after temporary errors of Read, at every byte and as often as they come,
// and remember others. No engine is involved.
func TestCryptoTLSResumesReads(t *testing.T) {
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		s, c := engineConfigs(t)
		s.MaxVersion = version
		a, b := loopback(t)
		drip := &dripConn{Conn: a}
		reader, writer := tls.Client(drip, c), tls.Server(b, s)
		data := bytes.Repeat([]byte("data"), 2000)
		written := make(chan error, 1)
		go func() { _, err := writer.Write(data); written <- err }()
		if err := reader.Handshake(); err != nil {
			t.Fatal(err)
		}
		drip.drip = true // it gets its tickets by drips too
		var got []byte
		for buf := make([]byte, 1000); len(got) < len(data); {
			n, err := reader.Read(buf)
			if got = append(got, buf[:n]...); err != nil && err != errNoInput {
				t.Fatalf("version %x: crypto/tls did not go on after a temporary error: %v", version, err)
			}
		}
		if err := <-written; err != nil || !bytes.Equal(got, data) || drip.errors < len(data)/2 {
			t.Fatalf("version %x: %d bytes of %d, %d errors, %v", version, len(got), len(data), drip.errors, err)
		}
		drip.fatal = io.ErrNoProgress
		if _, err := reader.Read(make([]byte, 1)); !errors.Is(err, io.ErrNoProgress) {
			t.Errorf("a permanent error is %v", err)
		}
		drip.fatal = nil
		if _, err := reader.Read(make([]byte, 1)); !errors.Is(err, io.ErrNoProgress) {
			t.Errorf("later it is %v", err)
		}
	}
}

// TestCryptoTLSSharesAutomaticTicketKeys has clones of a Config accept each other's tickets once the Config has decrypted
// anything: each engine has a clone.
func TestCryptoTLSSharesAutomaticTicketKeys(t *testing.T) {
	s, c := engineConfigs(t)
	c.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	for i := range 3 {
		srv, cli := handshaken(t, s, c, EngineOptions{}, wholly)
		say(t, srv, cli, []byte("x"), wholly)
		if resumed := srv.ConnectionState().DidResume; resumed != (i > 0) {
			t.Errorf("connection %d: resumed is %v", i, resumed)
		}
	}
}

// TestCryptoTLSSequenceNumbers has the engine know how many records crypto/tls has sent under the traffic keys: one
// ticket, or none. Two records with one number would reveal the key.
func TestCryptoTLSSequenceNumbers(t *testing.T) {
	for _, tickets := range []bool{true, false} {
		for _, clientCert := range []bool{true, false} { // with one, tickets follow the client's Finished
			s, c := engineConfigs(t)
			s.SessionTicketsDisabled = !tickets
			c.ClientSessionCache = tls.NewLRUClientSessionCache(1)
			if clientCert {
				s.ClientAuth, c.Certificates = tls.RequireAnyClientCert, s.Certificates
			}
			srv, cli := handshaken(t, s, c, EngineOptions{}, wholly)
			want := uint64(0)
			if tickets {
				want = 1
			}
			if got := srv.own.write.seq; got != want || cli.own.read.seq != want || cli.own.write.seq != 0 || srv.own.read.seq != 0 {
				t.Errorf("tickets %v, client certificate %v: server %d, its client %d, want %d",
					tickets, clientCert, got, cli.own.read.seq, want)
			}
		}
	}
}

// TestCryptoTLSLeavesNoInput has data arrive together with the last flight of the handshake: crypto/tls must not have
// read it when the engine takes over.
func TestCryptoTLSLeavesNoInput(t *testing.T) {
	for _, m := range modes {
		s, c := m.configs(t)
		srv, cli := &end{Engine: NewServerEngine(s, m.options)}, &end{Engine: NewClientEngine(c, m.options)}
		t.Cleanup(func() { srv.Close(); cli.Close() })
		for !cli.Handshaken() {
			srv.feed(cli.take(), wholly)
			cli.feed(srv.take(), wholly)
			if cli.err != nil || srv.err != nil {
				t.Fatal(cli.err, srv.err)
			}
		}
		if m.version == tls.VersionTLS12 { // there the server sends last
			srv, cli = cli, srv
		}
		if n, err := cli.Write([]byte("at once")); n != 7 || err != nil {
			t.Fatal(n, err)
		}
		srv.feed(cli.take(), wholly)
		if string(srv.data) != "at once" {
			t.Errorf("%s: %q, %v", m.name, srv.data, srv.err)
		}
	}
}

// TestEngineKeepsCallbacks has the Config of the user work as with crypto/tls: its key log, the Config that
// GetConfigForClient returns, and the addresses that callbacks see.
func TestEngineKeepsCallbacks(t *testing.T) {
	s, c := engineConfigs(t)
	var logs [3]bytes.Buffer
	s.KeyLogWriter, c.KeyLogWriter = &logs[0], &logs[1]
	special := s.Clone()
	special.KeyLogWriter = &logs[2]
	special.NextProtos = []string{"special", "http/1.1"}
	remote := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 5}
	s.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if hello.Conn.RemoteAddr() != net.Addr(remote) {
			t.Errorf("the address is %v", hello.Conn.RemoteAddr())
		}
		if hello.ServerName == "example.com" {
			return special, nil
		}
		return nil, nil
	}
	o := EngineOptions{Remote: remote}
	c.NextProtos = []string{"special"}
	srv, cli := handshaken(t, s, c, o, wholly)
	say(t, srv, cli, []byte("x"), wholly)
	if srv.ConnectionState().NegotiatedProtocol != "special" || !srv.OwnRecords() {
		t.Errorf("protocol %q, own records %v", srv.ConnectionState().NegotiatedProtocol, srv.OwnRecords())
	}
	if logs[0].Len() != 0 || logs[1].String() != logs[2].String() || bytes.Count(logs[2].Bytes(), []byte("\n")) != 4 {
		t.Errorf("key logs: %q %q %q", logs[0].String(), logs[1].String(), logs[2].String())
	}
}
