package tls

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"testing"
)

// message is a handshake message.
func message(typ byte, body ...byte) []byte {
	return append([]byte{typ, byte(len(body) >> 16), byte(len(body) >> 8), byte(len(body))}, body...)
}

// hostile is what a peer with the right keys sends, and the alert that it gets.
type hostile struct {
	name   string
	modes  string // of modes: names that it applies to, by prefix
	from   role   // who sends it
	send   func(r *records) []byte
	alert  tls.AlertError
	silent bool // no alert is sent
}

// sealed is a record that the sender protects.
func sealed(typ byte, p []byte) func(r *records) []byte {
	return func(r *records) []byte { return r.write.seal(make([]byte, 0, maxRecord), typ, p) }
}

// times repeats a record.
func times(n int, f func(r *records) []byte) func(r *records) []byte {
	return func(r *records) (all []byte) {
		for range n {
			all = append(all, f(r)...)
		}
		return all
	}
}

// keyUpdates are n KeyUpdate messages.
func keyUpdates(n int, request bool) func(r *records) []byte {
	return func(r *records) (all []byte) {
		for range n {
			all = append(all, r.appendKeyUpdate(make([]byte, 0, keyUpdateSize), request)...)
		}
		return all
	}
}

func both(fs ...func(r *records) []byte) func(r *records) []byte {
	return func(r *records) (all []byte) {
		for _, f := range fs {
			all = append(all, f(r)...)
		}
		return all
	}
}

// raw is bytes that nobody protected.
func raw(p ...byte) func(r *records) []byte { return func(*records) []byte { return p } }

// damaged is a record with one bit changed.
func damaged(r *records) []byte {
	p := sealed(typeData, []byte("data"))(r)
	p[len(p)-1] ^= 1
	return p
}

var hostiles = []hostile{
	{name: "damaged record", from: client, send: damaged, alert: alertBadRecordMAC},
	{name: "oversized record", from: client, send: raw(typeData, 3, 3, 0x48, 1), alert: alertRecordOverflow},
	{name: "another version", from: client, send: raw(typeData, 3, 1, 0, 1), alert: alertProtocolVersion},
	{name: "33 empty records", from: client, send: times(33, sealed(typeData, nil)), alert: alertUnexpectedMessage},
	{name: "unknown type", from: client, send: sealed(99, []byte("x")), alert: alertUnexpectedMessage},
	{name: "long alert", from: server, send: sealed(typeAlert, []byte{2, 1, 0}), alert: alertUnexpectedMessage},
	{name: "empty alert", from: server, send: sealed(typeAlert, nil), alert: alertUnexpectedMessage},
	{name: "empty handshake record", from: server, send: sealed(typeHandshake, nil), alert: alertUnexpectedMessage},
	{
		name: "enormous message", from: server,
		send:  sealed(typeHandshake, []byte{messageNewSessionTicket, 1, 0, 0}),
		alert: alertInternalError,
	},
	{name: "fatal alert", from: client, send: sealed(typeAlert, []byte{levelFatal, 51}), alert: 51, silent: true},

	{
		name: "plaintext ChangeCipherSpec", modes: "1.3", from: client,
		send:  raw(20, 3, 3, 0, 1, 1),
		alert: alertUnexpectedMessage,
	},
	{
		name: "plaintext alert", modes: "1.3", from: client,
		send:  raw(typeAlert, 3, 3, 0, 2, 2, 40),
		alert: alertUnexpectedMessage,
	},
	{name: "padding alone", modes: "1.3", from: client, send: sealed(0, nil), alert: alertUnexpectedMessage},
	{
		name: "too much plaintext", modes: "1.3", from: client,
		send:  sealed(typeData, make([]byte, maxPlaintext+1)),
		alert: alertRecordOverflow,
	},
	{
		name: "5 warnings", modes: "1.3", from: client,
		send:  times(5, sealed(typeAlert, []byte{levelWarning, 90})),
		alert: alertUnexpectedMessage,
	},
	{name: "33 key updates", modes: "1.3", from: client, send: keyUpdates(33, true), alert: alertUnexpectedMessage},
	{
		name: "key update of another value", modes: "1.3", from: client,
		send:  sealed(typeHandshake, message(24, 2)),
		alert: alertIllegalParameter,
	},
	{
		name: "empty key update", modes: "1.3", from: client,
		send:  sealed(typeHandshake, message(24)),
		alert: alertDecodeError,
	},
	{
		name: "data behind a key update", modes: "1.3", from: client,
		send:  sealed(typeHandshake, append(message(24, 0), 24)),
		alert: alertUnexpectedMessage,
	},
	{
		name: "message cut by data", modes: "1.3", from: client,
		send:  both(sealed(typeHandshake, []byte{24, 0}), sealed(typeData, []byte("x"))),
		alert: alertUnexpectedMessage,
	},
	{
		name: "ClientHello", modes: "1.3", from: client,
		send:  sealed(typeHandshake, message(1, 0)),
		alert: alertUnexpectedMessage,
	},
	{
		name: "ticket from a client", modes: "1.3", from: client,
		send:  sealed(typeHandshake, message(4, 0)),
		alert: alertUnexpectedMessage,
	},
	{
		name: "certificate request", modes: "1.3", from: server,
		send:  sealed(typeHandshake, message(13, 0, 0, 0)),
		alert: alertUnexpectedMessage,
	},
	{
		name: "short ticket", modes: "1.3", from: server,
		send:  sealed(typeHandshake, message(4, 0, 0, 0, 1)),
		alert: alertDecodeError,
	},
	{
		name: "empty ticket", modes: "1.3", from: server,
		send:  sealed(typeHandshake, message(4, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0)),
		alert: alertDecodeError,
	},

	{
		name: "HelloRequest", modes: "1.2/aes", from: server,
		send:  sealed(typeHandshake, message(0)),
		alert: alertNoRenegotiation,
	},
	{
		name: "ClientHello", modes: "1.2/aes", from: client,
		send:  sealed(typeHandshake, message(1, 0)),
		alert: alertUnexpectedMessage,
	},
	{
		name: "5 warnings", modes: "1.2/aes", from: client,
		send:  times(5, sealed(typeAlert, []byte{levelWarning, 100})),
		alert: alertUnexpectedMessage,
	},
	{
		name: "alert of another level", modes: "1.2/aes", from: client,
		send:  sealed(typeAlert, []byte{3, 40}),
		alert: alertIllegalParameter,
	},
	{
		name: "record shorter than a tag", modes: "1.2/aes", from: client,
		send:  raw(typeData, 3, 3, 0, 20, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0),
		alert: alertBadRecordMAC,
	},
	{
		name: "record shorter than a nonce", modes: "1.2/aes", from: client,
		send:  raw(typeData, 3, 3, 0, 3, 1, 2, 3),
		alert: alertBadRecordMAC,
	},
}

// TestEngineHostilePeer sends what no peer may send: the right alert goes out, the error stays, and another connection
// of the same configuration goes on.
func TestEngineHostilePeer(t *testing.T) {
	for _, m := range modes {
		if !m.own || m.options.AnyThread {
			continue
		}
		for _, cache := range []bool{false, true} {
			for _, h := range hostiles {
				if !bytes.HasPrefix([]byte(m.name), []byte(h.modes)) {
					continue
				}
				t.Run(m.name+"/"+h.name, func(t *testing.T) { h.run(t, m, cache) })
			}
		}
	}
}

func (h hostile) run(t *testing.T, m mode, cache bool) {
	s, c := m.configs(t)
	if cache {
		c.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	}
	srv, cli := handshaken(t, s, c, m.options, wholly)
	if cache {
		c.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	}
	other, otherPeer := handshaken(t, s, c, m.options, wholly)
	from, to := cli, srv
	if h.from == server {
		from, to = srv, cli
	}
	to.feed(h.send(from.own), byteWise)
	var alert tls.AlertError
	if !errors.As(to.err, &alert) || alert != h.alert {
		t.Fatalf("the error is %v, want %v", to.err, h.alert)
	}
	if _, _, err := to.Next([]byte("x")); err != to.err {
		t.Errorf("later: %v", err)
	}
	if _, err := to.Write([]byte("x")); err != to.err {
		t.Errorf("write: %v", err)
	}
	if n := len(to.Pending()); n > 200 || (n == 0) != h.silent {
		t.Errorf("%d bytes are pending", n)
	}
	from.feed(to.take(), wholly)
	var op *net.OpError
	if !h.silent && (!errors.As(from.err, &op) || op.Op != "remote error" || op.Err != h.alert) &&
		!(h.alert == alertNoRenegotiation && from.err == nil) { // a warning
		t.Errorf("the peer's error is %v", from.err)
	}
	say(t, other, otherPeer, []byte("unharmed"), wholly)
}

// TestEngineBears32 has what is just permitted: as many useless records in a row, again after data.
func TestEngineBears32(t *testing.T) {
	s, c := engineConfigs(t)
	srv, cli := handshaken(t, s, c, EngineOptions{}, wholly)
	for range 3 {
		srv.feed(times(32, sealed(typeData, nil))(cli.own), wholly)
		say(t, cli, srv, []byte("x"), wholly)
		srv.feed(keyUpdates(32, false)(cli.own), wholly)
		say(t, cli, srv, []byte("x"), wholly)
		srv.feed(times(maxWarnings, sealed(typeAlert, []byte{levelWarning, 90}))(cli.own), wholly)
		say(t, cli, srv, []byte("x"), wholly)
		if srv.err != nil {
			t.Fatal(srv.err)
		}
	}
}

// TestEngineKeyUpdateFlood has a peer ask for new keys again and again, with data between, and never read.
func TestEngineKeyUpdateFlood(t *testing.T) {
	s, c := engineConfigs(t)
	srv, cli := handshaken(t, s, c, EngineOptions{}, wholly)
	for range 2000 {
		srv.feed(keyUpdates(1, true)(cli.own), wholly)
		srv.feed(sealed(typeData, []byte("x"))(cli.own), wholly)
	}
	if n := len(srv.Pending()); srv.err != nil || n > 0 {
		t.Fatalf("%d bytes are pending; %v", n, srv.err)
	}
	before := bytes.Clone(srv.own.write.secret)
	say(t, srv, cli, []byte("x"), wholly)
	after := bytes.Clone(srv.own.write.secret)
	say(t, srv, cli, []byte("x"), wholly)
	if bytes.Equal(before, after) || !bytes.Equal(after, srv.own.write.secret) {
		t.Error("there was no reply before the next data, or there was more than one")
	}
	srv.feed(keyUpdates(1, true)(cli.own), wholly)
	out, n, err := srv.Seal(make([]byte, 0, keyUpdateSize+maxOverhead-1), []byte("xy"))
	if n != 0 || err != nil {
		t.Errorf("Seal put %d bytes into a buffer that the reply fills, %d long; %v", n, len(out), err)
	}
	cli.feed(out, wholly)
	say(t, srv, cli, []byte("x"), wholly)
	if bytes.Equal(after, srv.own.write.secret) {
		t.Error("a later request has no reply")
	}
}

// TestEngineNotTLS has inputs that are no handshake, to both roles, in both kinds of coroutine.
func TestEngineNotTLS(t *testing.T) {
	s, c := engineConfigs(t)
	for name, in := range map[string]string{
		"HTTP":             "GET / HTTP/1.1\r\nHost: example.com\r\n\r\n",
		"zeros":            string(make([]byte, 1000)),
		"SSLv2":            "\x80\x2e\x01\x03\x01\x00\x15\x00\x00\x00\x10\x01\x00\x80",
		"oversized":        "\x16\x03\x01\xff\xff" + string(make([]byte, 70000)),
		"enormous message": "\x16\x03\x01\x00\x04\x01\xff\xff\xff",
		"data":             "\x17\x03\x03\x00\x01x",
	} {
		for _, any := range []bool{false, true} {
			o := EngineOptions{AnyThread: any}
			for _, e := range []*Engine{NewServerEngine(s, o), NewClientEngine(c, o)} {
				x := &end{Engine: e}
				x.take()
				x.feed([]byte(in), byteWise)
				if x.err == nil {
					t.Errorf("%s: no error", name)
				}
				if n := len(x.Pending()); n > 100 {
					t.Errorf("%s: %d bytes are pending", name, n)
				}
				e.Close()
			}
		}
	}
}

// TestEngineWarningFlood has warnings before the handshake: crypto/tls bears a few.
func TestEngineWarningFlood(t *testing.T) {
	s, _ := engineConfigs(t)
	x := &end{Engine: NewServerEngine(s, EngineOptions{})}
	defer x.Close()
	for i := 0; x.err == nil; i++ {
		if x.feed([]byte{typeAlert, 3, 1, 0, 2, levelWarning, 90}, wholly); i > 40 {
			t.Fatal("40 warnings were borne")
		}
	}
}

// TestEngineCutStream ends the transport at every stage.
func TestEngineCutStream(t *testing.T) {
	s, c := engineConfigs(t)
	srv, cli := &end{Engine: NewServerEngine(s, EngineOptions{})}, &end{Engine: NewClientEngine(c, EngineOptions{})}
	if err := srv.InputClosed(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error("before the first byte:", err)
	}
	if err := cli.InputClosed(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error("after ClientHello:", err)
	}
	for _, o := range []EngineOptions{{}, {StandardRecords: true}} {
		srv, cli = handshaken(t, s, c, o, wholly)
		if err := cli.InputClosed(); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Error("between records:", err)
		}
		if _, err := srv.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, _, err := cli.Next(srv.take()); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Error("after the end:", err)
		}
	}
}

// TestEngineRefusesRenegotiation has a Config that an engine cannot serve.
func TestEngineRefusesRenegotiation(t *testing.T) {
	_, c := engineConfigs(t)
	c.Renegotiation = tls.RenegotiateOnceAsClient
	e := NewClientEngine(c, EngineOptions{})
	defer e.Close()
	if _, _, err := e.Next(nil); !errors.Is(err, ErrRenegotiation) || len(e.Pending()) > 0 {
		t.Errorf("%v, %d bytes pending", err, len(e.Pending()))
	}
}
