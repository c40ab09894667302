package transport

import (
	"testing"

	"github.com/millrace/millrace/rdma/roce"
)

// TestRepeatedReads repeats a READ whole, and from a later packet on, and in ways in which it was never made.
func TestRepeatedReads(t *testing.T) {
	p := newPair(t, options{psn: 100})
	read := func(psn uint32, va, length uint32, rkey uint32) roce.Packet {
		return roce.Packet{Opcode: roce.ReadRequest, PSN: psn, VA: vaBase + uint64(va), Length: length, RKey: rkey}
	}
	if why, got := p.craft(read(100, 1000, 600, p.b.key), 0); why != Taken || len(got) != 3 {
		t.Fatalf("%v: %v", why, got)
	}
	for _, c := range []struct {
		name    string
		pk      roce.Packet
		why     Reason
		answers int
	}{
		{"whole", read(100, 1000, 600, p.b.key), Duplicate, 3},
		{"from the second packet on", read(101, 1256, 344, p.b.key), Duplicate, 2},
		{"its middle", read(101, 1256, 256, p.b.key), Duplicate, 1},
		{"another address", read(100, 1001, 600, p.b.key), InvalidRequest, 0},
		{"another address for its place", read(101, 1000, 344, p.b.key), InvalidRequest, 0},
		{"longer", read(100, 1000, 601, p.b.key), InvalidRequest, 0},
		{"longer behind", read(101, 1256, 345, p.b.key), InvalidRequest, 0},
		{"another key", read(100, 1000, 600, p.b.key^1), InvalidRequest, 0},
		{"before it", read(99, 1000, 600, p.b.key), Duplicate, 0},
	} {
		if why, got := p.craft(c.pk, 0); why != c.why || len(got) != c.answers {
			t.Errorf("%s: %v, %v", c.name, why, got)
		}
	}
	p.b.qp.attr.Access = 0
	if why, got := p.craft(read(100, 1000, 600, p.b.key), 0); why != NoAccess || got != nil {
		t.Errorf("after the right was taken away: %v, %v", why, got)
	}
}

// TestGapsInResponsesAreRepeatedAtOnce loses a response, which later ones show, and all of one, which an acknowledgement shows: no
// timeout is waited for.
func TestGapsInResponsesAreRepeatedAtOnce(t *testing.T) {
	for _, lost := range []uint32{0, 1, 2} {
		p := newPair(t, options{})
		p.b.fill(8)
		once := false
		p.b.lose = func(pk *roce.Packet) bool {
			lose := !once && pk.Opcode.Kind() == roce.KindReadResponse && pk.PSN == lost
			once = once || lose
			return lose
		}
		p.a.post(p.a.request(1, OpRead, 0, 700, 5000))
		p.a.post(p.a.request(2, OpWrite, 2000, 8, 0))
		p.run()
		c := p.a.qp.Counters()
		if c.ImpliedNaks != 1 || c.Timeouts != 0 || len(p.a.sends) != 2 {
			t.Errorf("packet %d lost: %+v", lost, c)
		}
		for i := range 700 {
			if p.a.mem[i] != p.b.mem[5000+i] {
				t.Fatalf("byte %d differs", i)
			}
		}
	}
}
