package quic_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	mathrand "math/rand/v2"
	"net"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/quic"
)

// bystander is a connection beside the one that a test harms: it must not notice.
func bystander(t *testing.T, server net.Addr) func() {
	t.Helper()
	c := dial(t, transport(t, nil, quic.TransportConfig{}), server, clientTLS(), nil)
	check := func() {
		t.Helper()
		if got := ask(t, c, "bystander"); got != "bystander" {
			t.Errorf("the bystander got %q", got)
		}
	}
	check()
	return check
}

// TestViolations sends frames that the protocol forbids. Each must end that connection with the code
// that RFC 9000 names, and no other.
func TestViolations(t *testing.T) {
	server := transport(t, nil, quic.TransportConfig{})
	serve(t, server, serverTLS(), &quic.Config{MaxStreams: 3, MaxUniStreams: 2, StreamWindow: 1 << 16, ConnWindow: 1 << 17, MaxStreamWindow: 1 << 16, MaxConnWindow: 1 << 17}, echo)
	unaffected := bystander(t, server.LocalAddr())
	x := []byte("x")
	for _, c := range []struct {
		name   string
		frames []byte
		code   quic.ErrorCode
	}{
		{"ACK of a packet that was not sent (13.1)", ackFrame(0, 1<<20), quic.ProtocolViolation},
		{"one stream too many (4.6)", streamFrame(3*4, 0, x, false), quic.StreamLimitError},
		{"one unidirectional stream too many (4.6)", streamFrame(2*4+2, 0, x, false), quic.StreamLimitError},
		{"beyond the stream's window (4.1)", streamFrame(0, 1<<16, x, false), quic.FlowControlError},
		{"data after the end (4.5)", append(streamFrame(0, 0, x, true), streamFrame(0, 1, x, false)...), quic.FinalSizeError},
		{"two ends (4.5)", append(streamFrame(0, 0, x, true), streamFrame(0, 0, []byte("xx"), true)...), quic.FinalSizeError},
		{"STREAM on a stream that the server would open (19.8)", streamFrame(1, 0, x, false), quic.StreamStateError},
		{"STREAM on a stream that only the server sends on (19.8)", streamFrame(3, 0, x, false), quic.StreamStateError},
		{"STOP_SENDING on a stream that only the client sends on (19.5)", []byte{0x05, 2, 0}, quic.StreamStateError},
		{"MAX_STREAM_DATA on a stream that only the client sends on (19.10)", []byte{0x11, 2, 0}, quic.StreamStateError},
		{"MAX_STREAMS of more than 2^60 (4.6)", appendVarint([]byte{0x12}, 1<<60+1), quic.FrameEncodingError},
		{"RETIRE_CONNECTION_ID of one that was not issued (19.16)", appendVarint([]byte{0x19}, 1000), quic.ProtocolViolation},
		{"NEW_CONNECTION_ID of no bytes (19.15)", append([]byte{0x18, 1, 0, 0}, make([]byte, 16)...), quic.FrameEncodingError},
		{"NEW_CONNECTION_ID beyond the limit (5.1.1)", manyConnectionIDs(20), quic.ConnectionIDLimitError},
		{"PATH_RESPONSE to no challenge (19.18)", append([]byte{0x1b}, make([]byte, 8)...), quic.ProtocolViolation},
		{"HANDSHAKE_DONE from a client (19.20)", []byte{0x1e}, quic.ProtocolViolation},
		{"NEW_TOKEN from a client (19.7)", []byte{0x07, 1, 1}, quic.ProtocolViolation},
		{"unknown frame (12.4)", []byte{0x40, 0x77}, quic.FrameEncodingError},
		{"a frame that is cut (12.4)", []byte{0x0e, 0, 0, 0x44, 0xff, 1}, quic.FrameEncodingError},
		{"DATAGRAM without the parameter (RFC 9221 3)", []byte{0x31, 1, 'x'}, quic.FrameEncodingError},
		{"CRYPTO beyond the buffer (7.5)", cryptoFrame(1<<20, x), quic.CryptoBufferExceeded},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRawClient(t, server.LocalAddr())
			r.handshake()
			r.send(application, c.frames)
			code := quic.ErrorCode(r.untilClosed())
			if code != c.code {
				t.Errorf("code %v, want %v", code, c.code)
			}
			unaffected()
		})
	}
}

// manyConnectionIDs are more connection IDs than any active_connection_id_limit of quic-go.
func manyConnectionIDs(n int) (b []byte) {
	for i := range n {
		b = append(b, 0x18, byte(i+1), 0, 8)
		b = binary.BigEndian.AppendUint64(b, uint64(i)+1)
		b = append(b, bytes.Repeat([]byte{byte(i)}, 16)...)
	}
	return b
}

// TestOptimisticAcks: a client that acknowledges what it never got, to make the server send faster,
// acknowledges a packet number that the server has skipped (RFC 9000 21.4).
func TestOptimisticAcks(t *testing.T) {
	server := transport(t, nil, quic.TransportConfig{})
	serve(t, server, serverTLS(), nil, func(c *quic.Conn) {
		s, err := c.AcceptStream(context.Background())
		if err != nil {
			return
		}
		for err == nil {
			_, err = s.Write(make([]byte, 1<<16))
		}
	})
	r := newRawClient(t, server.LocalAddr())
	r.handshake()
	r.optimistic = true
	r.send(application, streamFrame(0, 0, []byte("x"), false))
	if code := quic.ErrorCode(r.untilClosed()); code != quic.ProtocolViolation {
		t.Errorf("code %v", code)
	}
	t.Logf("found after %d packets", r.spaces[application].largest)
}

// heap returns the bytes in use.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestFloodsOfAConnection: what a client may send without end must not need memory without end.
func TestFloodsOfAConnection(t *testing.T) {
	const frames = 50_000
	challenge := append([]byte{0x1a}, make([]byte, 8)...)
	for _, c := range []struct {
		name   string
		closes quic.ErrorCode // the connection may end by this code; 0 is none
		next   func(i int) []byte
	}{
		{"PATH_CHALLENGE", 0, func(int) []byte { return bytes.Repeat(challenge, 100) }},
		{"PING", 0, func(int) []byte { return bytes.Repeat([]byte{1}, 100) }},
		// quic-go keeps at most 1000 gaps in a stream.
		{"one byte here and there", quic.InternalError, func(i int) []byte {
			var b []byte
			for k := range 100 {
				b = append(b, streamFrame(0, uint64(2*(100*i+k)%(1<<16)), []byte("x"), false)...)
			}
			return b
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := transport(t, nil, quic.TransportConfig{})
			serve(t, server, serverTLS(), nil, echo)
			unaffected := bystander(t, server.LocalAddr())
			r := newRawClient(t, server.LocalAddr())
			r.handshake()
			r.quiet = true
			before := heap()
			for i := range frames / 100 {
				r.send(application, c.next(i))
				if i%16 == 0 {
					time.Sleep(time.Millisecond) // the server reads them, rather than lose them
				}
			}
			for r.receive(100 * time.Millisecond) {
			}
			if grown := int64(heap()) - int64(before); grown > 16<<20 {
				t.Errorf("%d MiB more", grown>>20)
			}
			if r.closed {
				if code := quic.ErrorCode(r.closeCode); c.closes == 0 || code != c.closes {
					t.Errorf("closed by %v", code)
				}
			}
			if n := r.spaces[application].largest; n < 20 && !r.closed {
				t.Errorf("the server sent %d packets: the flood did not reach it", n)
			}
			unaffected()
		})
	}
}

// TestRapidReset opens streams and resets them at once, without end, as CVE-2023-44487 does in HTTP/2:
// there are never more than MaxStreams, and the program hears of each.
func TestRapidReset(t *testing.T) {
	const streams, limit = 5000, 50
	server := transport(t, nil, quic.TransportConfig{})
	serve(t, server, serverTLS(), &quic.Config{MaxStreams: limit}, echo)
	unaffected := bystander(t, server.LocalAddr())
	r := newRawClient(t, server.LocalAddr())
	r.handshake()
	r.maxStreams = max(r.maxStreams, limit)
	before := heap()
	for id := uint64(0); id < streams; {
		for ; id < r.maxStreams; id++ {
			reset := appendVarint(appendVarint(appendVarint([]byte{0x04}, 4*id), 0), 1)
			r.send(application, append(reset, streamFrame(4*id, 0, nil, false)...))
			r.send(application, append(appendVarint([]byte{0x05}, 4*id), 0)) // STOP_SENDING
		}
		if !r.receive(patience) || r.closed {
			t.Fatalf("after %d streams: closed %v, code %#x", id, r.closed, r.closeCode)
		}
	}
	if grown := int64(heap()) - int64(before); grown > 8<<20 {
		t.Errorf("%d MiB more", grown>>20)
	}
	unaffected()
}

// TestAmplification: before the server has heard from an address twice it sends at most three times
// what it got from there (RFC 9000 8.1) and the rest of a packet, though its certificate needs more.
func TestAmplification(t *testing.T) {
	server := transport(t, nil, quic.TransportConfig{})
	serve(t, server, largeCertificate(t), nil, echo)
	r := newRawClient(t, server.LocalAddr())
	r.quiet = true
	r.advance() // the ClientHello
	silent := r.sent
	r.countOnly(time.Second)
	// quic-go v0.65.0 asks before each packet whether the limit is reached, and so may exceed it by less
	// than a packet.
	if r.received >= 3*silent+1280 || r.received < 2*silent {
		t.Errorf("%d bytes came for %d sent", r.received, silent)
	}
	t.Logf("%d bytes came for %d sent", r.received, silent)
}

// countOnly reads datagrams and handles none.
func (c *rawClient) countOnly(d time.Duration) {
	_ = c.conn.SetReadDeadline(time.Now().Add(d))
	buf := make([]byte, 65536)
	for {
		n, _, err := c.conn.ReadFrom(buf)
		if err != nil {
			return
		}
		c.received += n
	}
}

// TestInitialFlood: Initial packets of any number of clients, which need not even be decryptable, meet
// MaxHandshakes and Retry. A client that answers the Retry gets through.
func TestInitialFlood(t *testing.T) {
	const flood, retryAbove, maxHandshakes = 3000, 20, 40
	server := transport(t, nil, quic.TransportConfig{RetryAbove: retryAbove, MaxHandshakes: maxHandshakes})
	serve(t, server, serverTLS(), &quic.Config{HandshakeTimeout: time.Minute}, echo)
	unaffected := bystander(t, server.LocalAddr())
	attacker := udpConn(t)
	defer attacker.Close()
	before, sent, most := heap(), 0, 0
	for i := range flood {
		b := make([]byte, 1200)
		_, _ = rand.Read(b)
		copy(b, []byte{0xc0, 0, 0, 0, 1, 8})
		b[14], b[23] = 8, 0                             // SCID, no token
		binary.BigEndian.PutUint16(b[24:], 0x4000|1174) // the rest is the packet
		n, _ := attacker.WriteTo(b, server.LocalAddr())
		sent += n
		if i%32 == 0 {
			time.Sleep(time.Millisecond)
			most = max(most, server.Stats().Handshakes)
		}
	}
	if most != retryAbove {
		t.Errorf("%d handshakes at once, want %d", most, retryAbove)
	}
	if grown := int64(heap()) - int64(before); grown > 8<<20 {
		t.Errorf("%d MiB more", grown>>20)
	}
	answered := 0
	_ = attacker.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	for buf := make([]byte, 65536); ; {
		n, _, err := attacker.ReadFrom(buf)
		if err != nil {
			break
		}
		answered += n
	}
	if answered > sent/2 {
		t.Errorf("%d bytes were answered by %d", sent, answered)
	}
	unaffected()
	bystander(t, server.LocalAddr())
	if s := server.Stats(); s.Retries < flood/10 {
		t.Errorf("%+v", s)
	}
}

// TestGarbage: datagrams that are no packets, or too small or too large, are dropped and counted.
func TestGarbage(t *testing.T) {
	server := transport(t, nil, quic.TransportConfig{Secret: secret})
	serve(t, server, serverTLS(), nil, echo)
	unaffected := bystander(t, server.LocalAddr())
	random := mathrand.New(mathrand.NewPCG(1, 2))
	garbage := make([][]byte, 0, 2000)
	for i := range cap(garbage) {
		b := make([]byte, 1+random.IntN(1500))
		if i%100 == 0 {
			b = make([]byte, 60_000)
		}
		_, _ = rand.Read(b)
		switch i % 3 {
		case 0:
			b[0] |= 0xc0 // long header
			if len(b) > 5 {
				binary.BigEndian.PutUint32(b[1:], 1)
			}
		case 1:
			b[0] = b[0]&0x3f | 0x40
		}
		garbage = append(garbage, b)
	}
	bytesIn := 0
	for _, b := range garbage {
		bytesIn += len(b)
	}
	if out := replay(t, garbage, server.LocalAddr(), 100*time.Millisecond); out > bytesIn {
		t.Errorf("%d bytes were answered by %d", bytesIn, out)
	}
	unaffected()
	d := server.Stats().Dropped
	if d.Malformed == 0 || d.Malformed+d.UnknownConnectionID+d.UnknownVersion+d.Other+d.Overload < 200 {
		t.Errorf("%+v", d)
	}
}

// TestSmallInitials: an Initial below 1200 bytes, or with a connection ID below 8, is dropped
// (RFC 9000 14.1, 7.2).
func TestSmallInitials(t *testing.T) {
	server := transport(t, nil, quic.TransportConfig{})
	serve(t, server, serverTLS(), nil, echo)
	for _, shorten := range []func(c *rawClient) []byte{
		func(c *rawClient) []byte { return c.packet(initial, cryptoFrame(0, make([]byte, 1000))) },
		func(c *rawClient) []byte {
			c.dcid = c.dcid[:7]
			c.spaces[initial].write, _ = initialKeys(c.dcid)
			return c.packet(initial, append(cryptoFrame(0, make([]byte, 1000)), make([]byte, 200)...))
		},
	} {
		r := newRawClient(t, server.LocalAddr())
		before := server.Stats().Dropped.Malformed
		r.sendRaw(shorten(r))
		eventually(t, "the packet is dropped", func() bool { return server.Stats().Dropped.Malformed > before })
		if n := server.Stats().Handshakes; n != 0 {
			t.Errorf("%d handshakes", n)
		}
	}
}

// TestVersionNegotiationPackets: an unknown version is answered, in less than was sent, and only where
// that could be an Initial packet; Version Negotiation never is (RFC 9000 6.1).
func TestVersionNegotiationPackets(t *testing.T) {
	server := transport(t, nil, quic.TransportConfig{})
	serve(t, server, serverTLS(), nil, echo)
	packet := func(version uint32, size int) []byte {
		b := make([]byte, size)
		b[0] = 0xc0
		binary.BigEndian.PutUint32(b[1:], version)
		b[5], b[14] = 8, 8
		return b
	}
	for _, c := range []struct {
		name     string
		b        []byte
		answered bool
	}{
		{"unknown", packet(0x1a2a3a4a, 1200), true},
		{"unknown and small", packet(0x1a2a3a4a, 1199), false},
		{"Version Negotiation", packet(0, 1200), false},
	} {
		n := replay(t, [][]byte{c.b}, server.LocalAddr(), 200*time.Millisecond)
		if (n > 0) != c.answered || n > 100 {
			t.Errorf("%s: %d bytes came back", c.name, n)
		}
	}
}

// TestVersionDowngrade: a Version Negotiation packet that lists the version which the client uses is
// forged or late, and must be ignored (RFC 9000 6.2); so must all after the first packet of the server.
func TestVersionDowngrade(t *testing.T) {
	server := transport(t, nil, quic.TransportConfig{})
	serve(t, server, serverTLS(), nil, echo)
	nat := newRelay(t, server.LocalAddr())
	var forged atomic.Bool
	nat.setDrop(func(b []byte, toServer bool) bool {
		if toServer && b[0]&0x80 != 0 && forged.CompareAndSwap(false, true) {
			at := 6 + int(b[5])
			vn := append([]byte{0x80, 0, 0, 0, 0, b[at]}, b[at+1:at+1+int(b[at])]...)
			vn = append(append(vn, b[5]), b[6:6+int(b[5])]...)
			vn = binary.BigEndian.AppendUint32(vn, uint32(quic.Version2))
			vn = binary.BigEndian.AppendUint32(vn, uint32(quic.Version1))
			_, _ = nat.front.WriteTo(vn, nat.client)
		}
		return false
	})
	c := dial(t, transport(t, nil, quic.TransportConfig{}), nat.addr(), clientTLS(), nil)
	if v := c.State().Version; v != quic.Version1 || !forged.Load() {
		t.Errorf("version %v, forged %v", v, forged.Load())
	}
	ask(t, c, "x")
}

// TestUnfinishedHandshakes: clients that begin a handshake and fall silent hold it no longer than HandshakeTimeout
// (RFC 9000 21.6).
func TestUnfinishedHandshakes(t *testing.T) {
	const clients = 15
	server := transport(t, nil, quic.TransportConfig{RetryAbove: 100})
	serve(t, server, serverTLS(), &quic.Config{HandshakeTimeout: time.Second}, echo)
	for range clients {
		r := newRawClient(t, server.LocalAddr())
		begin := cryptoFrame(0, []byte{1, 0, 4, 0, 3, 3}) // of a ClientHello of 1 KiB
		r.send(initial, append(begin, make([]byte, 1150)...))
	}
	eventually(t, "the last handshake begins", func() bool { return server.Stats().Handshakes > 0 })
	eventually(t, "the handshakes end", func() bool { return server.Stats().Handshakes == 0 })
	bystander(t, server.LocalAddr())
}
