package tls

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

// A judge is an implementation whose answers to wrong records and messages are compared: the Engine's have to be those of the RFCs.
type judge struct {
	name   string
	client func(t *testing.T, addr, version string)                  // connects and stays until it has failed or is answered
	server func(t *testing.T, version string) (dial func() net.Conn) // serves one connection after the other
}

// judges are the Engine and its peers.
func judges(t *testing.T) []judge {
	cert, key := pemFiles(t)
	s, c := engineConfigs(t)
	versions := map[string]uint16{"1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13}
	of := func(base *tls.Config, version string) *tls.Config {
		cfg := base.Clone()
		cfg.MinVersion, cfg.MaxVersion = versions[version], versions[version]
		return cfg
	}
	flag := func(version string) string { return "-tls" + strings.ReplaceAll(version, ".", "_") }
	return []judge{
		{
			"Engine",
			func(t *testing.T, addr, version string) {
				x, conn := &end{Engine: NewClientEngine(of(c, version), EngineOptions{})}, dialed(t, addr)
				go func() {
					defer x.Close() // here: the end of the test may come first
					x.echoOver(conn)
				}()
			},
			func(t *testing.T, version string) func() net.Conn {
				return served(t, func(conn net.Conn) {
					x := &end{Engine: NewServerEngine(of(s, version), EngineOptions{})}
					defer x.Close()
					x.echoOver(conn)
				})
			},
		},
		{
			"crypto/tls",
			func(t *testing.T, addr, version string) { go echoAll(tls.Client(dialed(t, addr), of(c, version))) },
			func(t *testing.T, version string) func() net.Conn {
				return served(t, func(conn net.Conn) { echoAll(tls.Server(conn, of(s, version))) })
			},
		},
		{
			"OpenSSL",
			func(t *testing.T, addr, version string) {
				startOpenSSL(t, "s_client", "-connect", addr, "-servername", "example.com", "-CAfile", cert, flag(version))
			},
			func(t *testing.T, version string) func() net.Conn {
				o := startOpenSSL(t, "s_server", "-accept", "127.0.0.1:0", "-cert", cert, "-key", key, "-rev", flag(version))
				addr := strings.TrimPrefix(o.expect("ACCEPT "), "ACCEPT ")
				return func() net.Conn { return dialed(t, addr) }
			},
		},
	}
}

func dialed(t *testing.T, addr string) net.Conn {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Error(err)
		return nil
	}
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// served accepts connections until the test ends.
func served(t *testing.T, serve func(net.Conn)) func() net.Conn {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go serve(conn)
		}
	}()
	return func() net.Conn { return dialed(t, l.Addr().String()) }
}

func echoAll(conn *tls.Conn) {
	defer conn.Close()
	_, _ = io.Copy(conn, conn)
}

// wrongRecords are records with the right keys that no peer may send, and the alert for them: of RFC 8446 5.4 and RFC 5246 6.2.1
// for empty ones.
var wrongRecords = []struct {
	name string
	send func(r *records) []byte
	want tls.AlertError
}{
	{"empty alert", sealed(typeAlert, nil), alertUnexpectedMessage},
	{"alert of one byte", sealed(typeAlert, []byte{levelWarning}), alertUnexpectedMessage},
	{"alert of three bytes", sealed(typeAlert, []byte{levelWarning, 90, 0}), alertUnexpectedMessage},
	{"two alerts in a record", sealed(typeAlert, []byte{levelWarning, 90, levelWarning, 90}), alertUnexpectedMessage},
	{"empty handshake record", sealed(typeHandshake, nil), alertUnexpectedMessage},
}

// Every judge ends a connection with the same alert, as a client and as a server.
func TestWrongRecordsByJudges(t *testing.T) {
	s, c := engineConfigs(t)
	for _, j := range judges(t) {
		for _, version := range []string{"1.2", "1.3"} {
			for _, w := range wrongRecords {
				t.Run(fmt.Sprint(j.name, "/", version, "/", w.name), func(t *testing.T) {
					t.Parallel()
					if j.name == "OpenSSL" && version == "1.2" && w.name == "empty handshake record" {
						t.Skip("OpenSSL ignores it")
					}
					got := answer(t, NewClientEngine(c, EngineOptions{}), j.server(t, version)(), w.send)
					if got != w.want {
						t.Errorf("the server answers with %v, want %v", got, w.want)
					}
					if got = answer(t, NewServerEngine(s, EngineOptions{}), called(t, j, version), w.send); got != w.want {
						t.Errorf("the client answers with %v, want %v", got, w.want)
					}
				})
			}
		}
	}
}

// answer returns the alert that the peer of an engine sends for records.
func answer(t *testing.T, e *Engine, conn net.Conn, send func(r *records) []byte) tls.AlertError {
	t.Helper()
	defer conn.Close()
	defer e.Close()
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	x, sent, buf := &end{Engine: e}, false, make([]byte, 4096)
	for x.err == nil {
		if x.Handshaken() && !sent {
			sent = true
			if _, err := conn.Write(append(x.take(), send(x.own)...)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := conn.Write(x.take()); err != nil {
			t.Fatal(err)
		}
		n, err := conn.Read(buf)
		if x.feed(buf[:n], wholly); err != nil && x.err == nil {
			t.Fatalf("no alert: %v", err)
		}
	}
	var a tls.AlertError
	if !errors.As(x.err, &a) {
		t.Fatalf("no alert: %v", x.err)
	}
	return a
}

// plain is a record without protection.
func plain(typ byte, content ...byte) []byte {
	return append([]byte{typ, 3, 3, byte(len(content) >> 8), byte(len(content))}, content...)
}

// The answers to firstMessages that are no alert.
const (
	goesOn = "the handshake goes on"
	closes = "closed without an alert" // as what may not be TLS at all
)

// firstMessages are what an end may send before its hello, and the answer of the Engine; crypto/tls answers the same, unless it is
// named. OpenSSL alone may bear what it sees fit to.
var firstMessages = []struct {
	name    string
	send    []byte
	client  string // the client's answer to its server; "" is unexpected_message
	server  string // the server's to its client
	openssl bool   // goes on there
	std     string // the answer of a client of crypto/tls, where it differs
}{
	// A client that is negotiating ignores HelloRequests (RFC 5246 7.4.1.1), here up to 32 that are records of their own.
	{name: "HelloRequest", send: helloRequest, client: goesOn, std: "unexpected message"},
	{name: "32 HelloRequests", send: bytes.Repeat(helloRequest, 32), client: goesOn, std: "unexpected message"},
	{name: "33 HelloRequests", send: bytes.Repeat(helloRequest, 33), openssl: true},
	{name: "two HelloRequests in a record", send: plain(typeHandshake, append(message(0), message(0)...)...), openssl: true},
	{name: "HelloRequest of two records", send: append(plain(typeHandshake, 0, 0), plain(typeHandshake, 0, 0)...), openssl: true},
	{name: "HelloRequest with content", send: plain(typeHandshake, message(0, 1)...), client: "error decoding message", server: "error decoding message"},

	{name: "empty alert", send: plain(typeAlert)},
	{name: "two alerts in a record", send: plain(typeAlert, levelWarning, 90, levelWarning, 90)},
	{name: "empty handshake record", send: plain(typeHandshake), openssl: true},

	{name: "ChangeCipherSpec", send: plain(typeChangeCipherSpec, 1), client: closes, server: closes},
	{name: "empty ChangeCipherSpec", send: plain(typeChangeCipherSpec), client: closes, server: closes, openssl: true},
	{name: "data", send: plain(typeData, 'x'), client: closes, server: closes},
	{name: "empty data", send: plain(typeData), client: closes, server: closes},
	{name: "unknown type", send: plain(99, 'x'), client: closes, server: closes},
	{name: "heartbeat", send: plain(24, 1, 0, 0), client: closes, server: closes},

	{name: "HelloVerifyRequest", send: plain(typeHandshake, message(3, 3, 3, 0)...)},
	{name: "NewSessionTicket", send: plain(typeHandshake, message(4, 0, 0, 0, 1, 0, 1, 'x')...)},
	{name: "EndOfEarlyData", send: plain(typeHandshake, message(5)...)},
	{name: "EncryptedExtensions", send: plain(typeHandshake, message(8, 0, 0)...)},
	{name: "Certificate", send: plain(typeHandshake, message(11, 0, 0, 0)...)},
	{name: "ServerHelloDone", send: plain(typeHandshake, message(14)...)},
	{name: "ClientKeyExchange", send: plain(typeHandshake, message(16, 1, 4)...)},
	{name: "Finished", send: plain(typeHandshake, message(20, make([]byte, 12)...)...)},
	{name: "KeyUpdate", send: plain(typeHandshake, message(24, 0)...)},
	{name: "message_hash", send: plain(typeHandshake, message(254, make([]byte, 32)...)...)},
	{name: "unknown message", send: plain(typeHandshake, message(99)...)},
}

var helloRequest = plain(typeHandshake, message(messageHelloRequest)...)

// What comes before the hello of a server or a client gets the answers that the RFCs have for it.
func TestFirstMessagesByJudges(t *testing.T) {
	for _, j := range judges(t) {
		for _, version := range []string{"1.2", "1.3"} {
			for _, f := range firstMessages {
				t.Run(fmt.Sprint(j.name, "/", version, "/", f.name), func(t *testing.T) {
					t.Parallel()
					s, c := engineConfigs(t)
					client := cmp.Or(f.client, "unexpected message")
					if j.name == "crypto/tls" {
						client = cmp.Or(f.std, client)
					}
					wantAnswer(t, j, f.openssl, "client", client, refusal(NewServerEngine(s, EngineOptions{}), called(t, j, version), f.send))
					server := cmp.Or(f.server, "unexpected message")
					wantAnswer(t, j, f.openssl, "server", server, refusal(NewClientEngine(c, EngineOptions{}), j.server(t, version)(), f.send))
				})
			}
		}
	}
}

// wantAnswer compares an answer. OpenSSL has other alerts for some, or goes on.
func wantAnswer(t *testing.T, j judge, lenient bool, role, want, got string) {
	t.Helper()
	refused := got != goesOn
	if j.name == "OpenSSL" && (refused && want != goesOn || !refused && lenient) {
		return
	}
	if got != want {
		t.Errorf("the %s: %s, want %s", role, got, want)
	}
}

// called returns the connection of a client.
func called(t *testing.T, j judge, version string) net.Conn {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	j.client(t, l.Addr().String(), version)
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// refusal lets an engine begin with other bytes, and returns the answer of its peer.
func refusal(e *Engine, conn net.Conn, first []byte) string {
	defer conn.Close()
	defer e.Close()
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	x, buf := &end{Engine: e}, make([]byte, 4096)
	for hello := e.role == client; ; hello = true {
		if hello {
			if _, err := conn.Write(append(first, x.take()...)); err != nil {
				return closes
			}
			first = nil
		}
		n, err := conn.Read(buf)
		if p := buf[:n]; len(p) == 7 && p[0] == typeAlert { // in the clear
			return strings.TrimPrefix(tls.AlertError(p[6]).Error(), "tls: ")
		}
		x.feed(buf[:n], wholly)
		switch {
		case x.Handshaken():
			return goesOn
		case err != nil && !errors.Is(err, os.ErrDeadlineExceeded):
			return closes
		case err != nil || x.err != nil:
			return fmt.Sprint(err, "; ", x.err)
		}
	}
}

// Requests before ServerHello are ignored however the stream is cut, and the connection is as any other.
func TestHelloRequestsInPieces(t *testing.T) {
	for _, m := range modes {
		for _, cut := range []cutter{wholly, byteWise, randomCuts(3)} {
			s, c := m.configs(t)
			srv, cli := &end{Engine: NewServerEngine(s, m.options)}, &end{Engine: NewClientEngine(c, m.options)}
			srv.feed(cli.take(), cut)
			cli.feed(append(bytes.Repeat(helloRequest, 3), srv.take()...), cut)
			exchange(srv, cli, cut)
			if srv.err != nil || cli.err != nil || cli.OwnRecords() != m.own {
				t.Fatalf("%s: server %v, client %v, own records %v", m.name, srv.err, cli.err, cli.OwnRecords())
			}
			talk(t, srv, cli, cut)
			srv.Close()
			cli.Close()
		}
	}
	// What begins as a request and is none reaches crypto/tls whole: here a message whose length is not 0, in two records.
	for _, cut := range []cutter{wholly, byteWise} {
		_, c := engineConfigs(t)
		x := &end{Engine: NewClientEngine(c, EngineOptions{})}
		x.take()
		x.feed(append(plain(typeHandshake, 0, 0, 0, 1), plain(typeHandshake, 0)...), cut)
		if got := x.take(); x.err == nil || !bytes.HasSuffix(got, []byte{levelFatal, byte(alertDecodeError)}) {
			t.Errorf("%v, % x", x.err, got)
		}
		x.Close()
	}
}
