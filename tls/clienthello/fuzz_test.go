package clienthello

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"slices"
	"testing"
	"time"
)

// helloConn is a connection that has sent b and nothing more.
type helloConn struct {
	net.Conn
	b *bytes.Reader
}

func (c helloConn) Read(b []byte) (int, error)     { return c.b.Read(b) }
func (helloConn) Write(b []byte) (int, error)      { return len(b), nil }
func (helloConn) Close() error                     { return nil }
func (helloConn) SetDeadline(time.Time) error      { return nil }
func (helloConn) SetWriteDeadline(time.Time) error { return nil }

// accepted returns what crypto/tls reads of a hello, nil if it refuses it.
func accepted(b []byte) (info *tls.ClientHelloInfo) {
	_ = tls.Server(helloConn{b: bytes.NewReader(b)}, &tls.Config{
		MinVersion: tls.VersionTLS10,
		GetConfigForClient: func(i *tls.ClientHelloInfo) (*tls.Config, error) {
			info = i
			return nil, io.EOF
		},
	}).Handshake()
	return info
}

// seed adds what fuzzers begin with.
func seed(f *testing.F) {
	for _, v := range vectors(f) {
		f.Add(v.raw, uint8(0))
		f.Add(v.raw, uint8(50))
	}
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"), uint8(0))
}

// inRecords cuts a stream into records of another size, unless it is 0.
func inRecords(b []byte, size uint8) []byte {
	if size > 0 && len(b) > recordHeader {
		return records(b[recordHeader:], int(size))
	}
	return b
}

// FuzzParse checks that a hello is the same whatever the pieces in which it arrives.
func FuzzParse(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, b []byte, size uint8) {
		b = inRecords(b, size)
		var p, q Peeker
		h, err := p.Parse(b)
		if err == nil {
			checkHello(t, h)
		}
		var h2 *Hello
		err2 := error(ErrIncomplete)
		for n := 0; err2 == ErrIncomplete && n < len(b); n += 7 {
			h2, err2 = q.Parse(b[:n])
		}
		if err2 == ErrIncomplete {
			h2, err2 = q.Parse(b)
		}
		if err2 != err || err == nil && (h2.JA4() != h.JA4() || h2.JA3() != h.JA3()) {
			t.Fatalf("%v, in pieces %v", err, err2)
		}
	})
}

// FuzzSentServerName compares with ParseMessage: a valid message has the same name, in lower case.
func FuzzSentServerName(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, b []byte, _ uint8) {
		for _, m := range [][]byte{b, b[min(len(b), 5):]} { // a message, or one in a record
			name := SentServerName(m[min(len(m), 4):])
			var h Hello
			if ParseMessage(m, &h) != nil || len(h.ServerName) == 0 {
				continue
			}
			if data, _ := h.Extension(extServerName); data[2] == 0 && !bytes.EqualFold(name, h.ServerName) {
				t.Fatalf("%q, parsed %q", name, h.ServerName)
			}
		}
	})
}

// FuzzAgainstCryptoTLS compares with crypto/tls: what it accepts, this package accepts, with the same
// content, but for a few things that this package refuses on purpose, long session IDs among them.
func FuzzAgainstCryptoTLS(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, b []byte, size uint8) {
		b = inRecords(b, size)
		info := accepted(b)
		if info == nil {
			return
		}
		var p Peeker
		h, err := p.Parse(b)
		if err == nil {
			compare(t, h, info)
			return
		}
		if !errors.Is(err, ErrTooLarge) && err != error(errHostName) && err != error(errPSKNotLast) && err != error(errRecordEmpty) && err != error(errRecordVersion) && err != error(errSessionID) && err != error(errSuites) && err != error(errCompression) {
			t.Fatalf("crypto/tls accepts what is refused: %v", err)
		}
	})
}

// checkHello walks everything that a hello gives.
func checkHello(t *testing.T, h *Hello) {
	if ja4 := h.JA4(); len(ja4) != 36 {
		t.Fatalf("JA4 %q", ja4)
	}
	if len(h.JA3()) != 32 {
		t.Fatal("JA3")
	}
	f := features(h)
	if string(f.AppendJA4(nil, 't')) != h.JA4() || string(f.AppendJA3(nil)) != h.JA3() {
		t.Fatal("fingerprints of features differ")
	}
	for _, typ := range f.Extensions {
		if _, ok := h.Extension(typ); !ok {
			t.Fatalf("extension %d is not found", typ)
		}
	}
}

// compare compares a hello with what crypto/tls read.
func compare(t *testing.T, h *Hello, info *tls.ClientHelloInfo) {
	if !bytes.EqualFold(h.ServerName, []byte(info.ServerName)) {
		t.Fatalf("server name %q, crypto/tls has %q", h.ServerName, info.ServerName)
	}
	var protos []string
	for l := h.ALPN; len(l) > 0; {
		var n []byte
		n, l = l.Next()
		protos = append(protos, string(n))
	}
	f := features(h)
	if !slices.Equal(protos, info.SupportedProtos) || !slices.Equal(f.Suites, info.CipherSuites) || !slices.Equal(f.Extensions, info.Extensions) {
		t.Fatalf("%v %x %x, crypto/tls has %v %x %x", protos, f.Suites, f.Extensions, info.SupportedProtos, info.CipherSuites, info.Extensions)
	}
	if h.Versions.Len() > 0 {
		for i, v := range info.SupportedVersions {
			if h.Versions.At(i) != v {
				t.Fatalf("versions %x, crypto/tls has %x", h.Versions, info.SupportedVersions)
			}
		}
	}
}
