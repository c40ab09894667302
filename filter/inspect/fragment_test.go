package inspect

import (
	"testing"

	"github.com/millrace/millrace/filter/signature"
	"github.com/millrace/millrace/wire"
)

// fragmentFrame returns the first fragment of a datagram whose others do not come.
func fragmentFrame(id uint16, size int) []byte {
	b := ipPacket(client, server, wire.ProtoUDP, make([]byte, size))
	wire.IPv4(b).SetID(id)
	wire.IPv4(b).SetMoreFragments(true)
	return ether(wire.EtherTypeIPv4, b)
}

// TestFlushForgetsFragments has packets that never become whole.
func TestFlushForgetsFragments(t *testing.T) {
	l := newLab(t, evil)
	for id := range uint16(3) {
		l.frame(fragmentFrame(id, 1000))
	}
	if n := l.e.budget.Used(); n < 3*(1000+fragmentsSize) || n > 3*(1100+fragmentsSize) {
		t.Fatalf("%d bytes held", n)
	}
	l.e.Flush()
	if used := l.e.budget.Used(); used != 0 || len(l.e.frags) != 0 {
		t.Errorf("%d bytes and %d packets are held after the end", used, len(l.e.frags))
	}
}

// TestFragmentsAreGivenUpWhereTimeGoesBack, as that of captures may.
func TestFragmentsAreGivenUpWhereTimeGoesBack(t *testing.T) {
	l := newLab(t, evil)
	l.e.Packet(1000e9, fragmentFrame(1, 1000))
	l.e.Packet(1002e9, fragmentFrame(4, 8))
	l.e.Packet(500e9, fragmentFrame(2, 200))
	l.e.Packet(500e9+fragmentTimeout+2e9, fragmentFrame(3, 32))
	if n := l.e.budget.Used(); len(l.e.frags) != 3 || n < 1040+3*fragmentsSize {
		t.Errorf("%d packets, %d bytes held", len(l.e.frags), n)
	}
}

// TestStaleFragmentsGiveMemoryBack fills the memory with fragments. After their time they are given up: for a fragment, for a
// segment, and where nothing comes, by Expire.
func TestStaleFragmentsGiveMemoryBack(t *testing.T) {
	full := func(t *testing.T, refuse bool) *gate {
		g := newGate(t, Config{Refuse: refuse, MemoryBytes: 18_500}, dropDawn)
		g.open()
		for id := range uint16(11) {
			g.now++
			if r := g.e.Inspect(&Input{Now: g.now, Frame: fragmentFrame(id, 1000), Dir: signature.ToServer}); r.Bound != (id == 10) {
				t.Fatalf("fragment %d: %+v", id, r)
			}
		}
		return g
	}
	for _, refuse := range []bool{false, true} {
		g := full(t, refuse)
		g.now += fragmentTimeout - 100
		if r := g.e.Inspect(&Input{Now: g.now, Frame: fragmentFrame(99, 1000), Dir: signature.ToServer}); !r.Bound {
			t.Errorf("refuse %v, before the end of their time: %+v", refuse, r)
		}
		g.now += 2e9
		if r := g.e.Inspect(&Input{Now: g.now, Frame: fragmentFrame(99, 1000), Dir: signature.ToServer}); r.Bound {
			t.Errorf("refuse %v: a fragment does not fit: %+v", refuse, r)
		}
		if n := g.e.budget.Used(); n < 1000 || n > 1900 {
			t.Errorf("refuse %v: %d bytes held", refuse, n)
		}

		g = full(t, refuse)
		g.now += fragmentTimeout + 2e9
		g.segment(true, 3, wire.FlagACK, "not in order")
		if n := g.e.budget.Used(); n > 200 {
			t.Errorf("refuse %v: %d bytes held after a segment", refuse, n)
		}

		g = full(t, refuse)
		g.e.Expire(g.now+fragmentTimeout+2e9, 10)
		if n := g.e.budget.Used(); n != 0 {
			t.Errorf("refuse %v: %d bytes held after their time", refuse, n)
		}
	}
}
