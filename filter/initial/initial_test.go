package initial

import (
	"bytes"
	"testing"
)

// TestFramesBehindAnACK: the bytes of CRYPTO frames are found behind ACK frames with ranges, and with counts of ECN (RFC 9000, 19.3).
func TestFramesBehindAnACK(t *testing.T) {
	crypto := []byte{6, 0, 3, 'a', 'b', 'c'}
	acks := map[string][]byte{
		"one range":           {2, 9, 1, 0, 5},
		"two ranges more":     {2, 40, 1, 2, 5, 1, 2, 3, 4},
		"ECN":                 {3, 9, 1, 0, 5, 7, 8, 9},
		"ECN, a range":        {3, 9, 1, 1, 5, 2, 3, 7, 8, 9},
		"numbers of 2 octets": {2, 0x40, 9, 0x40, 1, 0x40, 1, 0x40, 5, 0x40, 2, 0x40, 3},
	}
	for name, ack := range acks {
		var i Collector
		if i.frames(append(bytes.Clone(ack), crypto...)); string(i.data) != "abc" {
			t.Errorf("%s: %q", name, i.data)
		}
		for n := range len(ack) { // cut short, it has no end
			var i Collector
			if i.frames(ack[:n]); len(i.data) != 0 {
				t.Errorf("%s, %d bytes: %q", name, n, i.data)
			}
		}
	}
	most := bytes.Repeat([]byte{0xff}, 8) // 2^62-1
	for _, ranges := range [][]byte{{63}, most} {
		var i Collector
		frames := append(append([]byte{2, 9, 1}, ranges...), crypto...)
		if i.frames(frames); len(i.data) != 0 {
			t.Errorf("more ranges than bytes: %q", i.data)
		}
	}
}

// TestKeepIsBounded: what a peer makes a flow keep is a ClientHello at most, in a bounded number of pieces.
func TestKeepIsBounded(t *testing.T) {
	var i Collector
	i.keep(MaxHello-2, []byte("ab"))
	if len(i.data) != MaxHello || len(i.have) != 1 {
		t.Errorf("%d bytes, %v", len(i.data), i.have)
	}
	i.keep(MaxHello-2, []byte("abc"))
	i.keep(MaxHello, []byte("a"))
	if len(i.data) != MaxHello || len(i.have) != 1 {
		t.Errorf("beyond the bound: %d bytes, %v", len(i.data), i.have)
	}
	for k := range 2 * maxSpans {
		i.keep(2*k, []byte("a"))
	}
	if len(i.have) != maxSpans {
		t.Errorf("%d pieces, at most %d", len(i.have), maxSpans)
	}
}

// The number of ranges of an ACK frame has 62 bits: twice it, and the fields around it, do not fit an int.
func TestAnACKWithTooManyRangesEndsThePacket(t *testing.T) {
	most := []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	for _, ecn := range []bool{false, true} {
		p := append(append([]byte{1, 2}, most...), make([]byte, 100)...) // largest, delay, number of ranges
		if at := skipAck(p, 0, ecn); at != -1 {
			t.Errorf("ecn %v: the frame ends at %d", ecn, at)
		}
		p = append([]byte{1, 2, 1}, make([]byte, 100)...) // one range, and the first one
		if at, want := skipAck(p, 0, ecn), map[bool]int{false: 6, true: 9}[ecn]; at != want {
			t.Errorf("ecn %v: the frame ends at %d, want %d", ecn, at, want)
		}
	}
}
