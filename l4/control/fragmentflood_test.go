package control

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/packet"
)

// A flood of first fragments, of one source or of many, passes up to a bound. Beyond it datagrams wait until they are whole, in
// any order of their fragments, and pass then.
func TestAFloodOfFirstFragmentsIsHeld(t *testing.T) {
	for _, sources := range []int{1, 200} {
		for n := range 6 {
			w := newWorld(t, fill(""))
			o := w.withOutput()
			passed := 0
			for i := range 400 {
				s := client(fmt.Sprintf("198.18.7.%d:4000", 1+i%sources), dns, "")
				s.payload = string(make([]byte, 1500))
				at := uint32(192+i%32) << frameBits // frames of their own, for those that are held
				p := split(s.bytes(), 1000, uint32(i+1))[0]
				copy(w.arena.Mem[at+128:], p)
				b := packet.NewBatch(w.arena, 1)
				b.Append(packet.Desc{Off: at + 128, Len: uint16(len(p)), Port: 0})
				w.run(b)
				if b.D[0].Verdict == packet.Forward {
					passed++
				}
			}
			if passed < 100 || passed > 200 {
				t.Fatalf("%d of 400 first fragments pass", passed)
			}
			s := client(host, dns, "")
			s.payload = string(bytes.Repeat([]byte("fragment"), 400))
			frags := split(s.bytes(), 1200, 7777)
			if len(frags) != 3 {
				t.Fatal(len(frags))
			}
			before := len(o.resumed)
			o.held(0, permuted(frags, n)...)
			for ticks := -1; ticks != o.ticks; { // the first, and then those that came before it
				ticks = o.ticks
				w.h.Tick(w.now)
			}
			var out [][]byte
			for _, r := range o.resumed[before:] {
				if r.verdict != packet.Forward {
					t.Fatalf("order %d: %v", n, r.verdict)
				}
				out = append(out, r.p)
			}
			if got := join(t, out); flowOf(got).payload != s.payload {
				t.Fatalf("order %d: %d fragments with %d of %d bytes", n, len(out), len(flowOf(got).payload), len(s.payload))
			}
			w.after(20 * time.Second) // the flood is over, and counts still
			o.held(0, split(s.bytes(), 1200, 7779)[0])
			w.after(20 * time.Second)
			p := client(host, dns, "")
			p.payload = s.payload
			w.expect(0, split(p.bytes(), 1200, 7778)[0], 1)
		}
	}
}

// Datagrams that are whole do not count against the bound, however many pass.
func TestWholeDatagramsAreNotHeld(t *testing.T) {
	w := newWorld(t, fill(""))
	w.withOutput()
	for i := range 1000 {
		s := client(host, dns, "")
		s.payload = string(make([]byte, 2500))
		for _, p := range split(s.bytes(), 1000, uint32(i+1)) {
			w.expect(0, p, 1)
		}
		if i%100 == 0 {
			w.now = w.now.Add(time.Second)
		}
	}
}
