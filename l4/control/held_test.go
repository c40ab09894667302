package control

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/packet"
)

// FragmentsOf returns the frames of a datagram in fragments of at most size bytes of data, for tests with Linux.
func FragmentsOf(from, to [6]byte, src, dst netip.AddrPort, payload string, size int, id uint32) [][]byte {
	return split(seg{src: src, dst: dst, payload: payload, from: from, to: to}.bytes(), size, id)
}

// held sends fragments that must be held, in frames of their own: the first 32, which nothing overwrites, and others.
func (o *output) held(from uint8, list ...[]byte) {
	w := o.w
	w.t.Helper()
	for i, p := range list {
		at := 192 + o.kept
		if o.kept++; o.kept > 32 {
			at = 224 + o.kept%32
		}
		off := uint32(at<<frameBits) + 128
		copy(w.arena.Mem[off:], p)
		b := packet.NewBatch(w.arena, 1)
		b.Append(packet.Desc{Off: off, Len: uint16(len(p)), Port: from})
		w.run(b)
		if v := b.D[0].Verdict; v != packet.Hold {
			w.t.Fatalf("fragment %d: %v", i, v)
		}
	}
}

// Each order of the fragments of a datagram leaves the same datagram; those before the first leave after it, in Tick.
func TestFragmentsWaitForTheirFirst(t *testing.T) {
	for _, s := range datagrams() {
		frags := split(s.bytes(), 1000, 77) // four
		for n := range 24 {
			w := newWorld(t, fill(""))
			o := w.withOutput()
			list := permuted(frags, n)
			b := w.batch(0, list...)
			w.run(b)
			var out [][]byte
			firstAt := -1
			for i := range b.D {
				isFirst := bytes.Equal(list[i], frags[0])
				if isFirst {
					firstAt = i
				}
				want := packet.Forward
				if firstAt < 0 {
					want = packet.Hold
				}
				if b.D[i].Verdict != want {
					t.Fatalf("order %d, packet %d: %v", n, i, b.D[i].Verdict)
				}
				if want == packet.Forward {
					out = append(out, bytes.Clone(b.Bytes(i)))
				}
			}
			if len(o.resumed) != 0 || (o.ticks > 0) != (firstAt > 0) {
				t.Fatalf("order %d: %d resumed before Tick, which was asked for %d times", n, len(o.resumed), o.ticks)
			}
			w.h.Tick(w.now)
			for _, r := range o.resumed {
				if r.verdict != packet.Forward || r.port != 1 {
					t.Fatalf("order %d: resumed as %v to port %d", n, r.verdict, r.port)
				}
				out = append(out, r.p)
			}
			got := join(t, out)
			w.checksumsRight(got)
			if f := flowOf(got); f.payload != s.payload || f.dst.Port() != 5353 {
				t.Fatalf("order %d: %v -> %v, %d bytes", n, f.src, f.dst, len(f.payload))
			}
		}
	}
}

// permuted returns the n-th order of a list.
func permuted(list [][]byte, n int) (out [][]byte) {
	rest := append([][]byte(nil), list...)
	for k := len(rest); k > 0; k-- {
		i := n % k
		n /= k
		out = append(out, rest[i])
		rest = append(rest[:i], rest[i+1:]...)
	}
	return out
}

// What waits too long, or for a first that is dropped, is dropped; and so is all when the loop ends.
func TestHeldFragmentsEndInTime(t *testing.T) {
	for _, s := range datagrams() {
		frags := split(s.bytes(), 1000, 77)
		w := newWorld(t, fill(""))
		o := w.withOutput()
		o.held(0, frags[1], frags[2])
		w.now = w.now.Add(900 * time.Millisecond)
		w.h.Tick(w.now)
		o.expect(t, "early", 0)
		w.now = w.now.Add(200 * time.Millisecond)
		w.h.Tick(w.now)
		o.expect(t, "late", 2)
		w.expect(0, frags[0], 1)
		w.h.Tick(w.now)
		o.expect(t, "after their first", 0)

		closed := s
		closed.dst = netip.AddrPortFrom(s.dst.Addr(), 9)
		other := split(closed.bytes(), 1000, 78)
		o.held(0, other[1])
		w.refused(0, other[0], packet.DropNoService)
		w.h.Tick(w.now)
		o.expect(t, "of no service", 1)

		o.held(0, split(s.bytes(), 1000, 79)[1])
		for _, f := range o.end {
			f()
		}
		o.expect(t, "at the end", 1)
		w.refused(0, split(s.bytes(), 1000, 80)[1], packet.DropFragment)
		if n := w.h.Count(packet.DropFragment); n != 5 {
			t.Errorf("counted %d drops", n)
		}
	}
}

// expect checks how many were resumed, all as dropped fragments, and forgets them.
func (o *output) expect(t *testing.T, when string, n int) {
	t.Helper()
	if len(o.resumed) != n {
		t.Errorf("%s: %d resumed, want %d", when, len(o.resumed), n)
	}
	for _, r := range o.resumed {
		if r.verdict != packet.DropFragment {
			t.Errorf("%s: resumed as %v", when, r.verdict)
		}
	}
	o.resumed = nil
}

// A fragment that overlaps the first poisons the datagram in either order (RFC 1858, RFC 3128, RFC 5722).
func TestAHeldFragmentThatOverlapsTheFirstPoisonsTheDatagram(t *testing.T) {
	for _, s := range datagrams() {
		frags := split(s.bytes(), 1000, 77)
		for _, lie := range [][]byte{split(s.bytes(), 8, 77)[1], split(s.bytes(), 504, 77)[1], split(s.bytes(), 496, 77)[2]} {
			w := newWorld(t, fill(""))
			o := w.withOutput()
			o.held(0, lie)
			w.refused(0, frags[0], packet.DropFragment)
			w.h.Tick(w.now)
			o.expect(t, "overlap", 1)
			w.refused(0, frags[1], packet.DropFragment)
		}
		w := newWorld(t, fill(""))
		w.withOutput().held(0, frags[1])
		w.expect(0, frags[0], 1) // one that begins where the first ends is none
	}
}

// A flood of fragments without a first takes from the sender that sends most, and not from others.
func TestAFloodOfFragmentsTakesNoRoomFromOthers(t *testing.T) {
	for _, s := range datagrams() {
		w := newWorld(t, fill(""))
		o := w.withOutput()
		frags := split(s.bytes(), 1000, 77)
		o.held(0, frags[1], frags[2])
		for i := range 3000 {
			f := s
			f.src = netip.MustParseAddrPort(fmt.Sprintf("198.18.77.%d:9", 1+i%4))
			if s.src.Addr().Is6() {
				f.src = netip.MustParseAddrPort(fmt.Sprintf("[2001:db8:77:%d::%d]:9", i%4, 1+i))
			}
			o.held(0, split(f.bytes(), 1000, uint32(i))[1])
		}
		o.expect(t, "beyond the bound", 3002-512)
		w.expect(0, frags[0], 1)
		w.h.Tick(w.now)
		if len(o.resumed) != 2 || o.resumed[0].verdict != packet.Forward || o.resumed[1].verdict != packet.Forward {
			t.Errorf("of two fragments %d are left", len(o.resumed))
		}
	}
}

// beside runs a frame as a Dispatcher of several handlers does that offers it to the gateway first: another one gets what
// it declines, if other says so.
func (o *output) beside(p []byte, other bool) packet.Verdict {
	w, off := o.w, uint32((192+o.kept%64)<<frameBits)+128
	o.kept++
	copy(w.arena.Mem[off:], p)
	b := packet.NewBatch(w.arena, 1)
	b.Append(packet.Desc{Off: off, Len: uint16(len(p))})
	w.describe(b)
	w.h.Offer(w.now, b)
	if v := b.D[0].Verdict; v != packet.DropNoService && v != packet.DropNoFlow {
		return v
	}
	if other {
		return packet.Deliver
	}
	b.D[0].Verdict = packet.Undecided
	w.h.Refuse(w.now, b)
	return b.D[0].Verdict
}

// What is held of a datagram whose first goes to another handler of the loop is offered again, and what comes later is
// declined, so that all of it goes there. Where no other takes it, it is dropped.
func TestFragmentsFollowTheirFirstToAnotherHandler(t *testing.T) {
	for _, s := range datagrams() {
		s.dst = netip.AddrPortFrom(s.dst.Addr(), 9) // of no service here
		frags := split(s.bytes(), 1000, 77)
		hold := func(o *output, p []byte) {
			t.Helper()
			if v := o.beside(p, true); v != packet.Hold {
				t.Fatalf("a fragment without its first: %v", v)
			}
		}
		w := newWorld(t, fill(""))
		o := w.withOutput()
		repeated := func(when string, want ...[]byte) {
			t.Helper()
			w.h.Tick(w.now)
			if fmt.Sprint(o.repeated) != fmt.Sprint(want) || len(o.resumed) != 0 {
				t.Errorf("%s: %d fragments are offered again, want %d; %d resumed", when, len(o.repeated), len(want), len(o.resumed))
			}
			o.repeated = nil
		}
		hold(o, frags[2])
		hold(o, frags[1])
		repeated("without a first")
		if v := o.beside(frags[0], true); v != packet.Deliver {
			t.Errorf("the first: %v", v)
		}
		repeated("after the first", frags[2], frags[1])
		for _, p := range [][]byte{frags[2], frags[1], frags[3]} {
			if v := o.beside(p, true); v != packet.Deliver {
				t.Errorf("behind the first: %v", v)
			}
		}
		if v := o.beside(frags[3], false); v != packet.DropFragment {
			t.Errorf("behind the first, of no other handler: %v", v)
		}
		w.reload(strings.ReplaceAll(fill(""), ":53\"", ":9\"") + "  - {name: nine, protocol: udp, address: 198.18.1.1:9, backends: [{address: 198.18.2.11:9}]}\n")
		for i, p := range frags[:2] { // the first comes once more, to a service
			if v := o.beside(p, true); v != packet.Forward {
				t.Errorf("fragment %d, to a new service: %v", i, v)
			}
		}

		w = newWorld(t, fill("")) // no other handler takes the first
		o = w.withOutput()
		hold(o, frags[1])
		if v := o.beside(frags[0], false); v != packet.DropNoService {
			t.Errorf("the first, of no other handler: %v", v)
		}
		repeated0 := len(o.repeated)
		w.h.Tick(w.now)
		o.expect(t, "behind a first that nobody takes", 1)
		if len(o.repeated) != repeated0 {
			t.Error("offered again")
		}
		hold(o, frags[2]) // as if there had been none
		if v := o.beside(frags[0], true); v != packet.Deliver {
			t.Errorf("the first, once more: %v", v)
		}
		repeated("after the first, once more", frags[2])

		w = newWorld(t, fill("")) // the Dispatcher gives the first to another handler
		o = w.withOutput()
		hold(o, frags[1])
		b := w.batch(0, split(s.bytes(), 1000, 78)[0], frags[0])
		w.describe(b)
		w.h.Elsewhere(&b.D[0], b.Bytes(0))
		repeated("after the first of another datagram")
		w.h.Elsewhere(&b.D[1], b.Bytes(1))
		repeated("after a first elsewhere", frags[1])

		hold(o, frags[1]) // and does so on another loop
		w.now = w.now.Add(900 * time.Millisecond)
		repeated("early")
		w.now = w.now.Add(200 * time.Millisecond)
		repeated("late", frags[1])
		for _, p := range [][]byte{frags[1], frags[2]} {
			if v := o.beside(p, true); v != packet.Deliver {
				t.Errorf("late: %v", v)
			}
		}

		hold(o, split(s.bytes(), 1000, 79)[1]) // there is no room
		o.full = true
		w.now = w.now.Add(2 * time.Second)
		w.h.Tick(w.now)
		o.expect(t, "without room", 1)
	}
}

// A datagram of a service is forwarded though its fragments were declined while its first had not come.
func TestADatagramIsForwardedWhoseFirstComesVeryLate(t *testing.T) {
	for _, s := range datagrams() {
		frags := split(s.bytes(), 1000, 77)
		w := newWorld(t, fill(""))
		o := w.withOutput()
		if v := o.beside(frags[1], true); v != packet.Hold {
			t.Fatal(v)
		}
		w.now = w.now.Add(1200 * time.Millisecond)
		w.h.Tick(w.now)
		for i, p := range frags {
			if v := o.beside(p, true); v != packet.Forward {
				t.Errorf("fragment %d: %v", i, v)
			}
		}
	}
}
