package control

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// A flood of datagrams of which a part is missing is held, though copies of what has come, or fragments that are dropped on
// the way, would add up to all of it.
func TestCopiesOfFragmentsMakeNoDatagramWhole(t *testing.T) {
	for i, s := range append(datagrams(), datagrams()...) {
		w := newWorld(t, fill(""))
		o := w.withOutput()
		passed := 0
		for id := range uint32(400) {
			list := split(s.bytes(), 1000, id+1)
			first := w.runHeld(o, list[0])
			if first == packet.Hold {
				continue
			}
			passed++
			for _, p := range list[1:] {
				if p = bytes.Clone(p); i >= 2 {
					hops := p[14:][map[byte]int{4: 8, 6: 7}[p[14]>>4]:]
					hops[0] = 1
					if p[14]>>4 == 4 {
						wire.IPv4(p[14:]).FillChecksum()
					}
					w.refused(0, p, packet.DropTTL)
				}
			}
			for range 4 { // without list[1]
				if i < 2 {
					w.expect(0, bytes.Clone(list[2]), 1)
					w.expect(0, bytes.Clone(list[3]), 1)
				}
			}
		}
		if passed < 100 || passed > 200 {
			t.Errorf("%d of 400 datagrams pass, with a part missing", passed)
		}
	}
}

// What comes with the identification of a datagram that is whole belongs to another one: its fragments wait for a first.
func TestFragmentsBehindAWholeDatagramAreOfAnother(t *testing.T) {
	for _, s := range datagrams() {
		w := newWorld(t, fill(""))
		o := w.withOutput()
		list := split(s.bytes(), 1000, 7)
		for _, p := range list {
			w.expect(0, bytes.Clone(p), 1)
		}
		o.held(0, list[3], list[1])
		w.expect(0, bytes.Clone(list[0]), 1)
		w.h.Tick(w.now)
		if len(o.resumed) != 2 || o.resumed[0].verdict != packet.Forward || o.resumed[1].verdict != packet.Forward {
			t.Fatalf("%+v", o.resumed)
		}
		w.expect(0, bytes.Clone(list[2]), 1)

		other := s // of another connection, whose host numbers it alike
		other.payload = s.payload + "more"
		var out [][]byte
		for _, p := range split(other.bytes(), 504, 7) {
			out = append(out, w.expect(0, p, 1))
		}
		if got := flowOf(join(t, out)); got.payload != other.payload {
			t.Errorf("%d bytes of %d", len(got.payload), len(other.payload))
		}
	}
}

// Fragments behind the first that overlap, or lie beyond the end, end the datagram (RFC 5722, RFC 8200 4.5), in whatever
// order they come. A copy does not.
func TestLaterFragmentsThatOverlapEndTheDatagram(t *testing.T) {
	for _, s := range datagrams() {
		longer := s
		longer.payload += strings.Repeat("x", 1000)
		whole := split(s.bytes(), 1000, 7) // 0, 1000, 2000 and 3000 to 3008
		for name, lie := range map[string][]byte{
			"of the second and third":   split(s.bytes(), 752, 7)[2],  // 1504 to 2256
			"within the second":         split(s.bytes(), 504, 7)[2],  // 1008 to 1512
			"of the second and a gap":   split(s.bytes(), 1304, 7)[1], // 1304 to 2608
			"beyond the end":            split(longer.bytes(), 1000, 7)[3],
			"the last, of another end":  split(longer.bytes(), 1000, 7)[4],
			"one that ends at its end":  split(longer.bytes(), 1504, 7)[1],
			"the last, before others":   split(strings2(s, 1992).bytes(), 1000, 7)[1],
			"the end, without its mark": unmarked(whole[3]),
		} {
			w := newWorld(t, fill(""))
			for _, p := range [][]byte{whole[0], whole[1], whole[3], whole[1]} {
				w.expect(0, bytes.Clone(p), 1)
			}
			w.refused(0, lie, packet.DropFragment)
			w.refused(0, bytes.Clone(whole[2]), packet.DropFragment)

			w = newWorld(t, fill("")) // while they are held
			o := w.withOutput()
			o.held(0, whole[1], whole[3])
			if v := w.runHeld(o, lie); v != packet.DropFragment {
				t.Errorf("%s: %v while others wait", name, v)
			}
			o.expect(t, name, 2)
			w.refused(0, bytes.Clone(whole[0]), packet.DropFragment)
			if t.Failed() {
				t.Fatal(name)
			}
		}
		w := newWorld(t, fill(""))
		o := w.withOutput()
		o.held(0, whole[1], whole[3])
		if v := w.runHeld(o, whole[1]); v != packet.DropFragment { // a copy
			t.Errorf("a copy of one that is held: %v", v)
		}
		w.expect(0, bytes.Clone(whole[0]), 1)
		if w.h.Tick(w.now); len(o.resumed) != 2 {
			t.Errorf("%d of two are left", len(o.resumed))
		}
	}
}

// strings2 returns s with a datagram of n bytes of data.
func strings2(s seg, n int) seg {
	s.payload = s.payload[:n-8]
	return s
}

// unmarked returns a last fragment of which more are said to follow.
func unmarked(p []byte) []byte {
	p = bytes.Clone(p)
	if p[14]>>4 == 4 {
		wire.IPv4(p[14:]).SetMoreFragments(true)
		wire.IPv4(p[14:]).FillChecksum()
		return p
	}
	p[14+40+3] |= 1
	return p
}

// runHeld sends a fragment in a frame of its own, which it may keep, and returns the verdict.
func (w *world) runHeld(o *output, p []byte) packet.Verdict {
	at := 192 + o.kept%64
	o.kept++
	off := uint32(at<<frameBits) + 128
	copy(w.arena.Mem[off:], p)
	b := packet.NewBatch(w.arena, 1)
	b.Append(packet.Desc{Off: off, Len: uint16(len(p))})
	w.run(b)
	return b.D[0].Verdict
}

// crowd has so many datagrams unfinished that others wait until they are whole.
func (w *world) crowd(o *output) {
	for id := range uint32(200) {
		s := client(fmt.Sprintf("198.18.7.%d:4000", 1+id%200), dns, "")
		s.payload = string(make([]byte, 1500))
		w.runHeld(o, split(s.bytes(), 1000, id+1)[0])
	}
}

// Datagrams whose fragments overlap are not whole when they wait for that: some would pass, and stay unfinished.
func TestOverlapsMakeNoHeldDatagramWhole(t *testing.T) {
	for _, s := range datagrams() {
		w := newWorld(t, fill(""))
		o := w.withOutput()
		w.crowd(o)
		list := split(s.bytes(), 1000, 7777)
		for i, p := range [][]byte{list[0], list[1], split(s.bytes(), 1504, 7777)[1]} { // to the end, from 1504 on
			if v, want := w.runHeld(o, p), []packet.Verdict{packet.Hold, packet.Hold, packet.DropFragment}[i]; v != want {
				t.Errorf("fragment %d: %v, want %v", i, v, want)
			}
		}
		o.expect(t, "overlap", 2)
		w.h.Tick(w.now)
		o.expect(t, "later", 0)
	}
}

// A fragment that is all of its datagram stands alone (RFC 6946): none follows it.
func TestNoFragmentFollowsAnAtomicOne(t *testing.T) {
	w := newWorld(t, fill(""))
	w.withOutput()
	s := datagrams()[1]
	list := split(s.bytes(), 1000, 7)
	short := s
	short.payload = s.payload[:992]
	atomic := split(short.bytes(), 1000, 7)[0]
	w.expect(0, atomic, 1)
	o := w.withOutput()
	if v := w.runHeld(o, list[1]); v != packet.Hold {
		t.Errorf("a fragment behind it: %v", v)
	}
	w.expect(0, bytes.Clone(list[0]), 1)
	w.expect(0, bytes.Clone(atomic), 1)
	w.expect(0, bytes.Clone(list[2]), 1)
}

// A fragment header behind an atomic one would pass uncounted, and fill the memory of a backend.
func TestFragmentsWithinFragmentsAreDropped(t *testing.T) {
	w := newWorld(t, fill(""))
	for to, p := range [][]byte{split(echoPairs(t, 1400)[2].request, 400, 7)[0], split(datagrams()[1].bytes(), 1000, 8)[0]} {
		nested := append(bytes.Clone(p[:14+40]), p[14+6], 0, 0, 0, 0, 0, 0, 9)
		nested = append(nested, p[14+40:]...)
		nested[14+6] = wire.ProtoFragment
		binary.BigEndian.PutUint16(nested[14+4:], uint16(len(nested)-14-40))
		w.refused(0, nested, packet.DropFragment)
		w.expect(0, p, uint8(to))
	}
}

// While datagrams wait until they are whole, those of another handler reach it whole, the first fragment before the others.
func TestAWholeDatagramReachesAnotherHandler(t *testing.T) {
	for _, s := range datagrams() {
		w := newWorld(t, fill(""))
		o := w.withOutput()
		w.crowd(o)
		s.dst = client(host, "198.18.1.1:9", "").dst // of no service here
		if s.src.Addr().Is6() {
			s.dst = client("[2001:db8::9]:40000", "[2001:db8:1::1]:9", "").dst
		}
		list := split(s.bytes(), 1000, 7777)
		o.kept = 0
		for _, i := range []int{2, 0, 3, 1} {
			if v := o.beside(list[i], true); v != packet.Hold {
				t.Fatalf("fragment %d: %v", i, v)
			}
		}
		w.h.Tick(w.now)
		if want := [][]byte{list[0], list[2], list[3], list[1]}; fmt.Sprint(o.repeated) != fmt.Sprint(want) {
			t.Fatalf("%d fragments are offered again, want 4", len(o.repeated))
		}
		for i, p := range o.repeated {
			if v := o.beside(p, true); v != packet.Deliver {
				t.Errorf("fragment %d: %v", i, v)
			}
		}
	}
}

// The work for a fragment does not grow with what is held of its datagram.
func TestHeldFragmentsCostNoSearch(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	s := client(host, dns, "")
	cost := func(held int) time.Duration { // of fragments while so many of their datagram are held
		w := newWorld(t, fill(""))
		o := w.withOutput()
		w.crowd(o)
		s.payload = string(make([]byte, held*16))
		list := split(s.bytes(), 16, 7777)
		for i := range held { // the first, and all others but the last, in reverse order
			if v := w.runHeld(o, list[(held-i)%held]); v != packet.Hold {
				t.Fatalf("fragment %d: %v", i, v)
			}
		}
		before := threadTime(t)
		for range 30 {
			w.runHeld(o, list[held-1])
		}
		return threadTime(t) - before
	}
	few, many := cost(4), cost(470)
	if many > 20*few {
		t.Errorf("30 fragments take %v with 470 held of their datagram, %v with 4", many, few)
	}
}

// threadTime returns the CPU time of the thread.
func threadTime(t *testing.T) time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		t.Skip(err)
	}
	return time.Duration(ts.Nano())
}

// Few datagrams of many fragments fill a backend's memory as many of few do. They pass up to a bound, and whole datagrams of
// others pass beyond it.
func TestAFloodOfLongUnfinishedDatagramsIsBounded(t *testing.T) {
	for i, s := range append(datagrams(), datagrams()...) {
		w := newWorld(t, fill(""))
		o := w.withOutput()
		long := s
		long.payload = string(make([]byte, 16*44))
		const n, parts = 100, 44
		var flood [parts * n][]byte
		for id := range n {
			for at, p := range split(long.bytes(), 16, uint32(id+1))[:parts] {
				if i < 2 {
					flood[id*parts+at] = p // one datagram after the other
				} else {
					flood[at*n+id] = p // all at once
				}
			}
		}
		passed := 0
		for k, p := range flood {
			if w.runHeld(o, p) == packet.Forward {
				passed++
			}
			if k%parts == 0 {
				w.h.Tick(w.now)
			}
		}
		if most := []int{700, 1400}[i/2]; passed < most-200 || passed > most {
			t.Errorf("%d fragments of unfinished datagrams pass, want at most %d", passed, most)
		}
		o.resumed = nil
		whole := split(s.bytes(), 1000, 7777)
		o.kept = 0
		for _, p := range whole {
			if v := w.runHeld(o, p); v != packet.Hold {
				t.Fatal(v)
			}
		}
		w.h.Tick(w.now)
		var out [][]byte
		for _, r := range o.resumed {
			if r.verdict == packet.Forward {
				out = append(out, r.p)
			}
		}
		if len(out) != len(whole) || flowOf(join(t, out)).payload != s.payload {
			t.Errorf("%d fragments of a whole datagram pass", len(out))
		}
		w.after(20 * time.Second)
		w.runHeld(o, split(s.bytes(), 1000, 7779)[0])
		w.after(20 * time.Second) // forgotten
		for _, p := range split(s.bytes(), 1000, 7778) {
			w.expect(0, p, 1)
		}
	}
}

// Long datagrams that become whole do not count, however many pass at once.
func TestLongWholeDatagramsAreNotHeld(t *testing.T) {
	w := newWorld(t, fill(""))
	w.withOutput()
	s := datagrams()[0]
	s.payload = string(make([]byte, 16*44))
	for id := range uint32(200) {
		for _, p := range split(s.bytes(), 16, id+1) {
			w.expect(0, p, 1)
		}
	}
}
