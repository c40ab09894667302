package tcp

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/millrace/millrace/tcp/buffer"
	"github.com/millrace/millrace/wire"
)

// upload gives the server pieces of data, and returns what its application read.
func (s *attackTest) upload(pieces []piece) []byte {
	tuple, seq, ack := s.open(1, 65535, nil)
	s.onReply = func(reply) {}
	s.act()
	c := s.accepted[0]
	var got []byte
	var b [4096]byte
	for _, p := range pieces {
		s.attack(tuple, wire.TCPHeader{Seq: seq + p.at, Ack: ack, Flags: wire.FlagACK, Window: 1000}, p.data)
		s.server.Poll(s.now)
		for n := c.Read(s.now, b[:]); n > 0; n = c.Read(s.now, b[:]) {
			got = append(got, b[:n]...)
		}
	}
	return got
}

// piece is some bytes of a stream.
type piece struct {
	at   uint32
	data []byte
}

// TestOverlapsReadOnce sends overlapping pieces in any order: the stream comes once, whole and in order.
func TestOverlapsReadOnce(t *testing.T) {
	g := rand.New(rand.NewPCG(3, 4))
	stream := make([]byte, 20000)
	for i := range stream {
		stream[i] = byte(g.Uint32())
	}
	for range 20 {
		var pieces []piece
		for range 300 {
			at := g.IntN(len(stream))
			n := min(1+g.IntN(1400), len(stream)-at)
			pieces = append(pieces, piece{uint32(at), stream[at : at+n]})
		}
		for at := 0; at < len(stream); at += 1000 {
			pieces = append(pieces, piece{uint32(at), stream[at:min(at+1200, len(stream))]})
		}
		if got := newAttackTest(t, 64).upload(pieces); !bytes.Equal(got, stream) {
			t.Fatalf("%d bytes were read, want %d", len(got), len(stream))
		}
	}
}

// TestOverlapsThatDisagree sends other bytes for what the application has read: those do not change, and nothing is read twice.
func TestOverlapsThatDisagree(t *testing.T) {
	a, b := bytes.Repeat([]byte("a"), 1000), bytes.Repeat([]byte("b"), 1000)
	got := newAttackTest(t, 64).upload([]piece{{0, a}, {0, b}, {500, b}, {1400, a[:100]}, {1500, a[:500]}})
	want := append(append(append([]byte(nil), a...), b[:500]...), a[:500]...)
	if !bytes.Equal(got, want) {
		t.Errorf("%d bytes, %d of a, %d of b", len(got), bytes.Count(got, a[:1]), bytes.Count(got, b[:1]))
	}
}

// TestTinySegmentsWithHoles sends every second byte of windows, one byte each, on many connections: each costs no more than its
// window and a bounded list.
func TestTinySegmentsWithHoles(t *testing.T) {
	s := newAttackTest(t, 64, func(c *Config, o *Options) { c.Budget = siegeBudget })
	s.connect()
	n := 0
	s.run(3*time.Second, 30*time.Millisecond, func() {
		s.onReply = nil
		tuple, seq, ack := s.open(n, 1000, nil)
		n++
		s.onReply = func(reply) {}
		for i := uint32(1); i < 4000; i += 2 {
			s.attack(tuple, wire.TCPHeader{Seq: seq + i, Ack: ack, Flags: wire.FlagACK, Window: 1000}, []byte("x"))
		}
	})
	s.act()
	ranges := 0
	for _, c := range s.accepted {
		if c.active != nil && c.rcv != nil {
			ranges = max(ranges, len(c.rcv.OutOfOrder()))
		}
	}
	if n < 90 || ranges == 0 || ranges > buffer.MaxRanges {
		t.Errorf("%d connections, up to %d ranges", n, ranges)
	}
	s.progress()
	s.memory(siegeBudget + 1<<20)
}

// TestTinySegmentsInOrder sends a stream byte by byte: it takes the memory of a stream, not of segments.
func TestTinySegmentsInOrder(t *testing.T) {
	s := newAttackTest(t, 64)
	s.connect()
	tuple, seq, ack := s.open(1, 65535, nil)
	s.onReply = func(reply) {}
	s.run(3*time.Second, time.Millisecond, func() {
		for range 20 {
			s.attack(tuple, wire.TCPHeader{Seq: seq, Ack: ack, Flags: wire.FlagACK, Window: 65535}, []byte("x"))
			seq++
		}
	})
	c := s.accepted[0]
	if c.Readable() != 60000 || c.rcvNxt != seq {
		t.Errorf("%d bytes can be read, want 60000", c.Readable())
	}
	s.progress()
	s.memory(1 << 20)
}

// TestDataBeyondTheWindow does not fit, and does not count.
func TestDataBeyondTheWindow(t *testing.T) {
	s := newAttackTest(t, 64, func(c *Config, o *Options) { o.ReceiveBuffer = 4096 })
	s.connect()
	tuple, seq, ack := s.open(1, 1000, nil)
	s.onReply = func(reply) {}
	all := bytes.Repeat([]byte("x"), 1400)
	for at := uint32(0); at < 100000; at += 1400 {
		s.attack(tuple, wire.TCPHeader{Seq: seq + at, Ack: ack, Flags: wire.FlagACK, Window: 1000}, all)
		s.server.Poll(s.now)
	}
	s.act()
	if n := s.accepted[0].Readable(); n > 4096 {
		t.Errorf("%d bytes are held, 4096 allowed", n)
	}
	s.run(3*time.Second, time.Second, nil)
	s.progress()
}
