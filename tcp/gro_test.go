package tcp

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/millrace/millrace/wire"
)

// mergeAll merges segments of one flow, in order, as a host does.
func mergeAll(segs []wire.TCP, ecn wire.ECN) (all []Segment) {
	var m *Coalescer
	for _, s := range segs {
		if m != nil && m.Join(s, ecn) {
			continue
		}
		if m != nil {
			all = append(all, m.Segment)
		}
		m = new(Coalescer)
		m.Begin(s, ecn)
	}
	if m != nil {
		all = append(all, m.Segment)
	}
	return all
}

// mergeable is the slow obvious form of the question whether b may follow a.
func mergeable(a, b wire.TCP) bool {
	var x, y wire.TCPOptions
	if !a.ParseOptions(&x) || !b.ParseOptions(&y) {
		return false
	}
	ecnOnly := func(t wire.TCP) bool { // after aligned timestamps or alone: one option of accurate ECN, and NOPs
		b := t.Options()
		if bytes.HasPrefix(b, []byte{1, 1, 8, 10}) && len(b) > 12 {
			b = b[12:]
		}
		n := 0
		if len(b) >= 4 && (b[0] == wire.TCPOptAccECN0 || b[0] == wire.TCPOptAccECN1) && b[1] >= 2 && int(b[1]) <= len(b) {
			n = int(b[1])
		}
		return n > 0 && len(b) == (n+3)/4*4 && len(bytes.Trim(b[n:], "\x01")) == 0
	}
	times := func(t wire.TCP) bool {
		return bytes.HasPrefix(t.Options(), []byte{1, 1, 8, 10}) && len(t.Options()) == 12
	}
	switch {
	case len(a.Payload()) == 0 || len(b.Payload()) == 0:
		return false
	case b.Seq() != a.Seq()+uint32(len(a.Payload())):
		return false
	case a.Flags().Any(wire.FlagSYN|wire.FlagRST|wire.FlagURG|wire.FlagFIN) || b.Flags().Any(wire.FlagSYN|wire.FlagRST|wire.FlagURG):
		return false
	case !a.Flags().Has(wire.FlagACK) || !b.Flags().Has(wire.FlagACK):
		return false
	case (a.Flags()^b.Flags())&(wire.FlagECE|wire.FlagCWR) != 0 || a.AE() != b.AE():
		return false
	case int32(b.Ack()-a.Ack()) < 0:
		return false
	case len(a.Options()) == 0 && len(b.Options()) == 0:
		return true
	}
	if ecnOnly(a) && ecnOnly(b) && len(a.Options()) == len(b.Options()) {
		p, q := a.Options(), b.Options()
		if bytes.HasPrefix(p, []byte{1, 1, 8, 10}) && bytes.HasPrefix(q, []byte{1, 1, 8, 10}) {
			return bytes.Equal(p[12:], q[12:]) && int32(y.TSVal-x.TSVal) >= 0
		}
		return bytes.Equal(p, q)
	}
	return times(a) && times(b) && int32(y.TSVal-x.TSVal) >= 0
}

// neighbours makes two segments that could be merged but for what the seed changes.
func neighbours(r *rand.Rand) (a, b wire.TCP) {
	h := wire.TCPHeader{SrcPort: 1, DstPort: 2, Seq: r.Uint32(), Ack: r.Uint32(), Window: 5, Flags: wire.FlagACK}
	stamp := r.Uint32()
	option := func(b []byte) []byte {
		counters := []uint32{1, 2, 3}[:r.IntN(4)]
		b = wire.AppendAccECN(b, wire.TCPOptAccECN0+2*uint8(r.IntN(2)), counters)
		return wire.AppendNOP(b, -len(b)&3)
	}
	ecn := 0
	switch r.IntN(6) {
	case 0:
	case 4:
		h.Options, ecn = option(nil), 1
	case 5:
		h.Options, ecn = option(wire.AppendTimestamps(wire.AppendNOP(nil, 2), stamp, 7)), 13
	case 1:
		h.Options = wire.AppendSACK(wire.AppendNOP(nil, 2), wire.SACKBlock{Left: 1, Right: 9})
	default:
		h.Options = wire.AppendTimestamps(wire.AppendNOP(nil, 2), stamp, 7)
	}
	make1 := func(h wire.TCPHeader, n int) wire.TCP {
		return append(wire.AppendTCP(nil, &h), bytes.Repeat([]byte{byte(n)}, n)...)
	}
	n := r.IntN(20)
	a = make1(h, n)
	h.Seq += uint32(n)
	if len(h.Options) == 12 && h.Options[2] == 8 {
		h.Options = wire.AppendTimestamps(wire.AppendNOP(nil, 2), stamp+uint32(r.IntN(3)), 8)
	}
	if ecn > 1 {
		h.Options = append(wire.AppendTimestamps(wire.AppendNOP(nil, 2), stamp+uint32(r.IntN(3)), 8), h.Options[12:]...)
	}
	if ecn > 0 && r.IntN(4) == 0 {
		h.Options = append([]byte{}, h.Options...)
		h.Options[len(h.Options)-1-r.IntN(4)] ^= 1 << r.IntN(8)
	}
	h.Window = 6
	b = make1(h, r.IntN(20))
	for range r.IntN(3) { // something that stands against it
		c := [2]wire.TCP{a, b}[r.IntN(2)]
		switch r.IntN(6) {
		case 0:
			c.SetFlags(c.Flags() ^ wire.TCPFlags(1<<r.IntN(8)))
		case 1:
			c.SetSeq(c.Seq() + uint32(r.IntN(3)) - 1)
		case 2:
			c.SetAck(c.Ack() + uint32(r.IntN(3)) - 1)
		case 3:
			c.SetAE(!c.AE())
		case 4:
			if len(c.Options()) > 0 {
				c[wire.TCPLen+r.IntN(len(c.Options()))]++
			}
		case 5:
			c.SetFlags(c.Flags() | wire.FlagPSH)
		}
	}
	return a, b
}

func TestSegmentsAreCoalescedAsByTheReference(t *testing.T) {
	merged := 0
	for seed := range uint64(20_000) {
		a, b := neighbours(rand.New(rand.NewPCG(seed, 5)))
		if !a.Valid() || !b.Valid() {
			continue
		}
		var m Coalescer
		m.Begin(a, wire.ECT0)
		got := m.Join(b, wire.ECT0)
		if want := mergeable(a, b); got != want {
			t.Fatalf("seed %d: merged %v, want %v\n%x\n%x", seed, got, want, []byte(a), []byte(b))
		}
		if got {
			merged++
			checkMerged(t, seed, &m, a, b)
		}
	}
	if merged < 1000 || merged > 19_000 {
		t.Errorf("%d of 20 000 pairs were merged: the test shows little", merged)
	}
}

// checkMerged looks at what a and b together are.
func checkMerged(t *testing.T, seed uint64, m *Coalescer, a, b wire.TCP) {
	t.Helper()
	var last wire.TCPOptions
	b.ParseOptions(&last)
	data := bytes.Join(m.Payload, nil)
	if m.Seq != a.Seq() || m.Ack != b.Ack() || m.Window != b.Window() || m.Flags != a.Flags()|b.Flags() || m.AE != b.AE() ||
		m.Packets != 2 || int(m.Len) != len(data) || m.Raw != nil ||
		m.Options.TSVal != last.TSVal || m.Options.TSEcr != last.TSEcr || m.Options.HasTimestamps != last.HasTimestamps ||
		!bytes.Equal(data, append(bytes.Clone(a.Payload()), b.Payload()...)) {
		t.Fatalf("seed %d: %+v of\n%x\n%x", seed, m.Segment, []byte(a), []byte(b))
	}
}

func TestSingleSegmentIsAsReceived(t *testing.T) {
	h := wire.TCPHeader{Seq: 9, Ack: 8, Window: 7, Urgent: 3, Flags: wire.FlagACK | wire.FlagURG, Options: wire.AppendMSS(nil, 1460)}
	raw := wire.TCP(append(wire.AppendTCP(nil, &h), "payload"...))
	var m Coalescer
	m.Begin(raw, wire.CE)
	if m.Seq != 9 || m.Ack != 8 || m.Window != 7 || m.Urgent != 3 || m.Flags != h.Flags || m.ECN != wire.CE || m.Packets != 1 ||
		m.Len != 7 || m.Options.MSS != 1460 || !bytes.Equal(m.Raw, raw) || string(bytes.Join(m.Payload, nil)) != "payload" {
		t.Errorf("%+v", m.Segment)
	}
}

func TestECNFieldsAreNotMixed(t *testing.T) {
	h := wire.TCPHeader{Seq: 1, Flags: wire.FlagACK}
	a := wire.TCP(append(wire.AppendTCP(nil, &h), 1))
	h.Seq = 2
	b := wire.TCP(append(wire.AppendTCP(nil, &h), 2))
	var m Coalescer
	if m.Begin(a, wire.ECT0); m.Join(b, wire.CE) {
		t.Error("a marked segment joined one that is not")
	}
}

// A report of marks has three bits (RFC 9768 3.2.2.5.1).
func TestAtMostSixMarkedSegmentsAreCoalesced(t *testing.T) {
	var all []wire.TCP
	for i := range 13 {
		h := wire.TCPHeader{Seq: uint32(i), Flags: wire.FlagACK}
		all = append(all, append(wire.AppendTCP(nil, &h), 0))
	}
	got := mergeAll(all, wire.CE)
	if len(got) != 3 || got[0].Packets != 6 || got[1].Packets != 6 || got[2].Packets != 1 {
		t.Errorf("%d merged segments, the first of %d", len(got), got[0].Packets)
	}
}

func TestCoalescingHasBounds(t *testing.T) {
	segs := func(n, size int) (all []wire.TCP) {
		for i := range n {
			h := wire.TCPHeader{Seq: uint32(i * size), Flags: wire.FlagACK}
			all = append(all, append(wire.AppendTCP(nil, &h), make([]byte, size)...))
		}
		return all
	}
	if got := mergeAll(segs(MaxCoalesced+1, 10), 0); len(got) != 2 || got[0].Packets != MaxCoalesced {
		t.Errorf("%d merged segments, the first of %d", len(got), got[0].Packets)
	}
	if got := mergeAll(segs(9, 8191), 0); len(got) != 2 || got[0].Len != 8*8191 {
		t.Errorf("%d merged segments, the first of %d bytes", len(got), got[0].Len)
	}
	if got := mergeAll(segs(9, 8192), 0); len(got) != 2 || got[0].Len != 7*8192 {
		t.Errorf("%d merged segments, the first of %d bytes: 65536 are too many", len(got), got[0].Len)
	}
}

func TestNothingJoinsASegmentInPieces(t *testing.T) {
	h := wire.TCPHeader{Seq: 1, Flags: wire.FlagACK}
	a := wire.TCP(append(wire.AppendTCP(nil, &h), 'a', 'b'))
	var m Coalescer
	m.Begin(a, 0)
	m.Extend([]byte("cd"))
	m.Extend([]byte("e"))
	h.Seq = 6
	if m.Join(append(wire.AppendTCP(nil, &h), 'f'), 0) || m.Raw != nil || m.Len != 5 || string(bytes.Join(m.Payload, nil)) != "abcde" {
		t.Errorf("%+v", m.Segment)
	}
}

func TestCoalescingDoesNotAllocate(t *testing.T) {
	h := wire.TCPHeader{Seq: 1, Flags: wire.FlagACK, Options: wire.AppendTimestamps(wire.AppendNOP(nil, 2), 1, 2)}
	a := wire.TCP(append(wire.AppendTCP(nil, &h), 1))
	b := bytes.Clone(a)
	binary.BigEndian.PutUint32(b[4:], 2)
	var m Coalescer
	if n := testing.AllocsPerRun(100, func() {
		m.Begin(a, 0)
		if !m.Join(b, 0) {
			t.Error("not merged")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzMerge has any bytes for two segments: nothing may break, and a merge loses no byte.
func FuzzMerge(f *testing.F) {
	for seed := range uint64(8) {
		a, b := neighbours(rand.New(rand.NewPCG(seed, 5)))
		f.Add([]byte(a), []byte(b))
	}
	f.Fuzz(func(t *testing.T, a, b []byte) {
		if !wire.TCP(a).Valid() || !wire.TCP(b).Valid() || len(a)+len(b) > maxCoalescedLen {
			return
		}
		var m Coalescer
		m.Begin(a, 0)
		if got, want := m.Join(b, 0), mergeable(a, b); got != want {
			t.Fatalf("merged %v, want %v", got, want)
		} else if got {
			checkMerged(t, 0, &m, a, b)
		}
	})
}

func TestNothingJoinsAFIN(t *testing.T) {
	make1 := func(seq uint32, f wire.TCPFlags) wire.TCP {
		return append(wire.AppendTCP(nil, &wire.TCPHeader{Seq: seq, Flags: wire.FlagACK | f}), 'x')
	}
	var m Coalescer
	m.Begin(make1(1, 0), 0)
	if !m.Join(make1(2, wire.FlagFIN), 0) || m.Join(make1(3, 0), 0) || !m.Flags.Has(wire.FlagFIN) || m.Packets != 2 {
		t.Errorf("%+v", m.Segment)
	}
}
