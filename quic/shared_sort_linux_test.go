package quic

import (
	"encoding/binary"
	"fmt"
	"net"
	"testing"

	"golang.org/x/net/ipv4"
)

// TestPacketsOfABatchAreSorted has packets of two processes and of none in one batch, with addresses and control messages: each is passed
// on, or moved to the front, whole, and the messages keep their buffers.
func TestPacketsOfABatchAreSorted(t *testing.T) {
	generation := func(number uint8) *Generation {
		g, err := NewGeneration(number, []byte("0123456789abcdef"))
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	own, other, gone := generation(1), generation(2), generation(3)
	c := &SharedConn{g: own}
	r := &relay{queue: make(chan []byte, 2)}
	c.relays.Store(&map[uint8]*relay{2: r})
	var ms []ipv4.Message
	var buffers []*byte
	for i, g := range []*Generation{other, own, other, gone, other, own} {
		buf := make([]byte, 100)
		buf[0] = 0x40
		if err := g.IDs().Fill(buf[1:][:generationLength]); err != nil {
			t.Fatal(err)
		}
		n := 1 + generationLength + copy(buf[1+generationLength:], fmt.Sprint("packet ", i))
		m := ipv4.Message{Buffers: [][]byte{buf}, OOB: make([]byte, 8), N: n, NN: 3, Addr: &net.UDPAddr{IP: net.IPv4(192, 0, 2, byte(i)).To4(), Port: 1000 + i}}
		copy(m.OOB, fmt.Sprint("oo", i))
		ms, buffers = append(ms, m), append(buffers, &buf[0])
	}
	if n := c.sort(ms); n != 3 {
		t.Fatalf("%d packets are this process's, want 3", n)
	}
	for at, i := range []int{1, 3, 5} {
		m := ms[at]
		if text := string(m.Buffers[0][1+generationLength : m.N]); text != fmt.Sprint("packet ", i) || string(m.OOB[:m.NN]) != fmt.Sprint("oo", i) ||
			m.Addr.(*net.UDPAddr).Port != 1000+i {
			t.Errorf("message %d: %q %q %v, want packet %d", at, text, m.OOB[:m.NN], m.Addr, i)
		}
	}
	for i := range ms {
		if &ms[i].Buffers[0][0] != buffers[i] {
			t.Errorf("message %d has another buffer", i)
		}
	}
	if len(r.queue) != 2 || r.dropped.Load() != 1 {
		t.Errorf("%d packets were queued and %d dropped, want 2 and 1", len(r.queue), r.dropped.Load())
	}
	for _, i := range []int{0, 2} {
		b := <-r.queue
		n := int(binary.NativeEndian.Uint16(b[relayName:]))
		if oob, text := string(b[relayHeader:][:n]), string(b[relayHeader+n+1+generationLength:]); oob != fmt.Sprint("oo", i) || text != fmt.Sprint("packet ", i) {
			t.Errorf("%q %q were passed on, want packet %d", oob, text, i)
		}
	}
}
