package quic_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/quic"
)

func TestConfigErrors(t *testing.T) {
	tr := transport(t, nil, quic.TransportConfig{})
	noProtocol := serverTLS()
	noProtocol.NextProtos = nil
	for _, c := range []struct {
		name string
		tc   *tls.Config
		c    *quic.Config
	}{
		{"no TLS", nil, nil},
		{"no protocol", noProtocol, nil},
		{"small packets", serverTLS(), &quic.Config{PacketSize: 1199}},
		{"large packets", serverTLS(), &quic.Config{PacketSize: 1453}},
		{"unknown version", serverTLS(), &quic.Config{Versions: []quic.Version{3}}},
	} {
		if _, err := tr.Listen(c.tc, c.c); !errors.Is(err, quic.ErrConfig) {
			t.Errorf("%s: Listen: %v", c.name, err)
		}
		if _, err := tr.Dial(timeout(t), tr.LocalAddr(), c.tc, c.c); !errors.Is(err, quic.ErrConfig) {
			t.Errorf("%s: Dial: %v", c.name, err)
		}
	}
	conn := udpConn(t)
	defer conn.Close()
	for _, n := range []int{-1, 3, 21} {
		if _, err := quic.NewTransport(conn, quic.TransportConfig{IDs: quic.ConnectionIDs{Length: n}}); !errors.Is(err, quic.ErrConfig) {
			t.Errorf("IDs of %d bytes: %v", n, err)
		}
	}
	if _, err := quic.NewTransport(conn, quic.TransportConfig{Messages: conn}); !errors.Is(err, quic.ErrConfig) {
		t.Errorf("Messages without ReadBatch: %v", err)
	}
}

func TestVersions(t *testing.T) {
	server, client := transport(t, nil, quic.TransportConfig{}), transport(t, nil, quic.TransportConfig{})
	serve(t, server, serverTLS(), &quic.Config{Versions: []quic.Version{quic.Version2}}, echo)
	// The server answers version 1 by Version Negotiation, and the client goes on with version 2.
	c := dial(t, client, server.LocalAddr(), clientTLS(), nil)
	if v := c.State().Version; v != quic.Version2 {
		t.Errorf("version %v", v)
	}
	ask(t, c, "x")
	_, err := client.Dial(timeout(t), server.LocalAddr(), clientTLS(), &quic.Config{Versions: []quic.Version{quic.Version1}})
	var versions *quic.VersionError
	if !errors.As(err, &versions) || !errors.Is(err, net.ErrClosed) || !slices.Contains(versions.Remote, quic.Version2) {
		t.Errorf("no version in common: %v", err)
	}
	if n := server.Stats().VersionNegotiations; n < 2 {
		t.Errorf("%d Version Negotiation packets", n)
	}
}

func TestTimeouts(t *testing.T) {
	server := transport(t, nil, quic.TransportConfig{})
	serve(t, server, serverTLS(), nil, echo)
	nat := newRelay(t, server.LocalAddr())
	client := transport(t, nil, quic.TransportConfig{})
	c := dial(t, client, nat.addr(), clientTLS(), &quic.Config{IdleTimeout: 200 * time.Millisecond})
	ask(t, c, "x")
	everything := func([]byte, bool) bool { return true }
	nat.setDrop(everything)
	<-c.Context().Done()
	_, err := client.Dial(timeout(t), nat.addr(), clientTLS(), &quic.Config{HandshakeTimeout: 100 * time.Millisecond})
	for want, err := range map[error]error{quic.ErrIdleTimeout: context.Cause(c.Context()), quic.ErrHandshakeTimeout: err} {
		var timed net.Error
		if !errors.Is(err, want) || !errors.As(err, &timed) || !timed.Timeout() || !errors.Is(err, net.ErrClosed) {
			t.Errorf("%v, want %v", err, want)
		}
	}
	ctx, cancel := shortContext(t)
	defer cancel()
	if _, err := client.Dial(ctx, nat.addr(), clientTLS(), nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Dial whose context ends: %v", err)
	}
	eventually(t, "counters", func() bool { s := client.Stats(); return s.Timeouts == 1 && s.DialErrors == 2 })
}

func TestCertificateError(t *testing.T) {
	server, client := transport(t, nil, quic.TransportConfig{}), transport(t, nil, quic.TransportConfig{})
	serve(t, server, serverTLS(), nil, echo)
	tc := clientTLS()
	tc.ServerName = "another.test"
	_, err := client.Dial(timeout(t), server.LocalAddr(), tc, nil)
	var transportError *quic.TransportError
	var cause *tls.CertificateVerificationError
	if !errors.As(err, &transportError) || !errors.As(err, &cause) {
		t.Fatalf("%v", err)
	}
	if alert, ok := transportError.Code.Alert(); !ok || alert != 42 { // bad_certificate (RFC 8446 6)
		t.Errorf("code %v", transportError.Code)
	}
	tc = clientTLS()
	tc.NextProtos = []string{"unknown"}
	_, err = client.Dial(timeout(t), server.LocalAddr(), tc, nil)
	if !errors.Is(err, &quic.TransportError{Code: 0x100 + 120, Remote: true}) { // no_application_protocol (RFC 9001 8.1)
		t.Errorf("unknown protocol: %v", err)
	}
}

// logFile is a qlog that says when it is closed.
type logFile struct {
	mu sync.Mutex
	bytes.Buffer
	closed bool
}

func (l *logFile) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.Write(b)
}

func (l *logFile) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	return nil
}

func (l *logFile) text() (text string, closed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.String(), l.closed
}

func TestLogs(t *testing.T) {
	var ofServer, ofClient, ofTransport logFile
	var keys bytes.Buffer
	var ids [2]string
	log := func(w *logFile) func(client bool, id []byte) io.WriteCloser {
		return func(client bool, id []byte) io.WriteCloser {
			if client {
				ids[0] = string(id)
			} else {
				ids[1] = string(id)
			}
			return w
		}
	}
	server := transport(t, nil, quic.TransportConfig{Qlog: &ofTransport})
	client := transport(t, nil, quic.TransportConfig{})
	serve(t, server, serverTLS(), &quic.Config{Qlog: log(&ofServer)}, echo)
	tc := clientTLS()
	tc.KeyLogWriter = &keys
	replay(t, [][]byte{{0x40, 1, 2, 3}}, server.LocalAddr(), time.Millisecond)
	c := dial(t, client, server.LocalAddr(), tc, &quic.Config{Qlog: log(&ofClient)})
	ask(t, c, "x")
	_ = c.CloseWithError(0, "")
	eventually(t, "the logs are closed", func() bool {
		_, a := ofServer.text()
		_, b := ofClient.text()
		return a && b
	})
	for name, w := range map[string]*logFile{"server": &ofServer, "client": &ofClient} {
		text, _ := w.text()
		for _, want := range []string{"packet_sent", "packet_received", "parameters_set", "connection_closed"} {
			if !strings.Contains(text, want) {
				t.Errorf("the qlog of the %s has no %s", name, want)
			}
		}
	}
	if ids[0] != ids[1] || len(ids[0]) < 8 {
		t.Errorf("IDs %x and %x", ids[0], ids[1])
	}
	if !strings.Contains(keys.String(), "CLIENT_TRAFFIC_SECRET_0 ") {
		t.Errorf("key log: %q", keys.String())
	}
	_ = server.Close()
	eventually(t, "the transport's log is closed", func() bool { _, closed := ofTransport.text(); return closed })
	if text, _ := ofTransport.text(); !strings.Contains(text, "packet_dropped") {
		t.Errorf("the transport's qlog: %s", text)
	}
}

func TestNoQlogForAConnection(t *testing.T) {
	server, client := transport(t, nil, quic.TransportConfig{}), transport(t, nil, quic.TransportConfig{})
	none := &quic.Config{Qlog: func(bool, []byte) io.WriteCloser { return nil }}
	serve(t, server, serverTLS(), none, echo)
	ask(t, dial(t, client, server.LocalAddr(), clientTLS(), none), "x")
}
