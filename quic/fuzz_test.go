package quic_test

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/millrace/millrace/quic"
)

// FuzzFrames sends frames on a connection after the handshake. Whatever they are, another connection of
// the server works on.
func FuzzFrames(f *testing.F) {
	server := transport(f, nil, quic.TransportConfig{})
	serve(f, server, serverTLS(), &quic.Config{Datagrams: true}, echo)
	for _, frames := range [][]byte{
		streamFrame(0, 0, []byte("x"), true), ackFrame(0, 3), manyConnectionIDs(3), cryptoFrame(0, []byte{4, 0, 0, 1, 0}),
		{0x1c, 0, 0, 0},
		{0x31, 1, 'x'},
		append([]byte{0x1a}, make([]byte, 8)...), appendVarint([]byte{0x19}, 1),
		{0x05, 0, 0},
		{0x04, 0, 0, 0},
		{0x12, 0x40, 0xff},
		{0x10, 1},
	} {
		f.Add(frames)
	}
	f.Fuzz(func(t *testing.T, frames []byte) {
		r := newRawClient(t, server.LocalAddr())
		r.handshake()
		r.send(application, frames[:min(len(frames), 1100)])
		r.send(application, streamFrame(0, 0, []byte("hello"), true)) // perhaps the connection lives
		for r.receive(10 * time.Millisecond) {
		}
		bystander(t, server.LocalAddr())
	})
}

// FuzzDatagrams sends datagrams to a server, cut from b by lengths of two bytes. What comes back is at
// most three times as much and the rest of a packet.
func FuzzDatagrams(f *testing.F) {
	server := transport(f, nil, quic.TransportConfig{Secret: secret})
	serve(f, server, serverTLS(), nil, echo)
	r := newRawClient(f, server.LocalAddr())
	framed := func(b []byte) []byte { return append(binary.BigEndian.AppendUint16(nil, uint16(len(b))), b...) }
	hello := r.packet(initial, append(cryptoFrame(0, make([]byte, 100)), make([]byte, 1100)...))
	f.Add(framed(hello))
	f.Add(append(framed(hello), framed(hello)...))
	f.Add(framed([]byte{0x40, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23}))
	f.Add(framed(append([]byte{0xc0, 0x1a, 0x2a, 0x3a, 0x4a, 8}, make([]byte, 1200)...)))
	f.Fuzz(func(t *testing.T, b []byte) {
		var datagrams [][]byte
		sent := 0
		for len(b) >= 2 && len(datagrams) < 20 {
			n := min(int(binary.BigEndian.Uint16(b)), len(b)-2)
			datagrams = append(datagrams, b[2:2+n])
			sent += n
			b = b[2+n:]
		}
		if got := replay(t, datagrams, server.LocalAddr(), 2*time.Millisecond); got > 3*sent+1280 {
			t.Errorf("%d bytes came for %d", got, sent)
		}
		bystander(t, server.LocalAddr())
	})
}
