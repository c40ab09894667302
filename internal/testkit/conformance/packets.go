package conformance

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// A packet of the tests describes itself, so that its receiver can check that it is complete:
//
//	0       6      12       14    16        20    22
//	+-------+-------+--------+-----+---------+-----+------ - - -
//	| to    | from  | 0x88B5 |flow | number  | len | pattern of number and place
//	+-------+-------+--------+-----+---------+-----+------ - - -
const (
	headerLen = 22
	shortest  = 60         // bytes, without the checksum that the wire adds (IEEE 802.3 3.2.8)
	etherType = 0x88B5     // for local experiments (IEEE 802 9.2.4): kernels leave it alone
	flows     = 8          // each with an order of its own
	hello     = 0xFFFFFFFF // number of packets that try whether the wire is up
)

// stub is too short to be a packet.
var stub = []byte{1, 2, 3}

// newPacket makes packet number i of a size.
func newPacket(i uint32, size int) []byte {
	p := make([]byte, size)
	copy(p, []byte{2, 0, 0, 0, 0, 0xEE, 2, 0, 0, 0, 1, byte(i % flows)})
	binary.BigEndian.PutUint16(p[12:], etherType)
	binary.BigEndian.PutUint16(p[14:], uint16(i%flows))
	binary.BigEndian.PutUint32(p[16:], i)
	binary.BigEndian.PutUint16(p[20:], uint16(size))
	for j := headerLen; j < size; j++ {
		p[j] = pattern(i, j)
	}
	return p
}

func pattern(i uint32, j int) byte { return byte(j>>8) ^ byte(j) ^ byte(i*29) }

// arrivals are the packets that came to one end.
type arrivals struct {
	next       [flows]int64 // the least number that each flow may bring now
	n, odd     int
	all, bytes uint64 // with those that only tried the wire
	helloSeen  bool
}

// add checks that p is whole and in order, and counts it.
func (a *arrivals) add(t testing.TB, p []byte) {
	t.Helper()
	a.all++
	a.bytes += uint64(len(p))
	if bytes.Equal(p, stub) {
		a.odd++
		return
	}
	if len(p) < headerLen || binary.BigEndian.Uint16(p[12:]) != etherType {
		t.Fatalf("a packet that was never sent: %d bytes, %x", len(p), p[:min(len(p), 40)])
	}
	number := binary.BigEndian.Uint32(p[16:])
	if want := int(binary.BigEndian.Uint16(p[20:])); len(p) != want {
		t.Fatalf("packet %d has %d bytes, and had %d when it was sent", number, len(p), want)
	}
	for j := headerLen; j < len(p); j++ {
		if p[j] != pattern(number, j) {
			t.Fatalf("packet %d of %d bytes is damaged at byte %d", number, len(p), j)
		}
	}
	if number == hello {
		a.helloSeen = true
		return
	}
	flow := binary.BigEndian.Uint16(p[14:]) % flows
	if int64(number) < a.next[flow] {
		t.Fatalf("flow %d brings packet %d, and had brought %d before", flow, number, a.next[flow]-flows)
	}
	a.next[flow] = int64(number) + flows
	a.n++
}
