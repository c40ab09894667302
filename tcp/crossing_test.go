package tcp

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/millrace/millrace/wire"
)

// crossing is two ends that connect to each other at the same time.
type crossing struct {
	*net
	t     *testing.T
	r     *rand.Rand
	conns [2]*Conn
	sent  [2][]byte
	got   [2][]byte
	fin   [2]bool
	log   []string
}

// TestCrossingSYNs is RFC 9293 3.5, MUST-10: SYNs cross and what follows is lost, doubled and reordered in any
// way. With any options, text, FINs and Fast Open, both ends are in ESTABLISHED at the end and both streams are
// whole.
func TestCrossingSYNs(t *testing.T) {
	for seed := range uint64(3000) {
		x := newCrossing(t, seed)
		x.disturb(2 + x.r.IntN(14))
		x.settle()
		if t.Failed() {
			for _, l := range x.log {
				t.Log(l)
			}
			t.Fatalf("seed %d", seed)
		}
	}
}

func newCrossing(t *testing.T, seed uint64) *crossing {
	x := &crossing{net: newNet(t), t: t, r: rand.New(rand.NewPCG(seed, 9))}
	tuple := wire.Tuple{Local: addrA, Remote: addrB, LocalPort: 7000, RemotePort: 80}
	for i, e := range []*end{x.a, x.b} {
		k := x.r.Uint32()
		o := &Options{NoTimestamps: k&1 != 0, NoSACK: k&2 != 0, NoScaling: k&4 != 0, FastOpen: k&8 != 0}
		if o.FastOpen {
			e.m.passive.fastOpenCache.store(&tuple.Remote, []byte{1, 2, 3, 4}, 1000)
		}
		c, err := e.m.Connect(x.now, tuple, o, nil)
		if err != nil {
			t.Fatal(err)
		}
		x.conns[i] = c
		if k&16 != 0 {
			x.write(i, x.r.IntN(3000))
		}
		if k&32 != 0 {
			c.CloseWrite(x.now)
			x.fin[i] = true
		}
		tuple = tuple.Reverse()
	}
	x.poll()
	return x
}

func (x *crossing) poll() { x.a.m.Poll(x.now); x.b.m.Poll(x.now) }

// write writes n more bytes of the stream of end i.
func (x *crossing) write(i, n int) {
	b := make([]byte, n)
	for k := range b {
		b[k] = byte(x.r.Uint32())
	}
	n = x.conns[i].Write(x.now, b)
	x.sent[i] = append(x.sent[i], b[:n]...)
}

// disturb does n things to the segments under way, of which each lets one of the first three of a direction
// arrive, vanish or arrive while it also stays.
func (x *crossing) disturb(n int) {
	ends := []*end{x.a, x.b}
	for range n {
		i := x.r.IntN(2)
		from, to := ends[i], ends[1-i]
		if x.r.IntN(5) == 0 {
			x.now = x.now.Add(time.Duration(x.r.IntN(1500)) * ms)
		} else if k := len(from.out); k > 0 {
			k = x.r.IntN(min(k, 3))
			w := from.out[k]
			action := x.r.IntN(4)
			if action != 3 {
				from.out = append(append([]wireSegment{}, from.out[:k]...), from.out[k+1:]...)
			}
			if action != 0 {
				to.deliver(x.now, &w)
			}
			b := wire.TCP(w.bytes)
			x.log = append(x.log, fmt.Sprintf("%d: %v %d ack %d (%d): %d, %v %v", i, b.Flags(), b.Seq(), b.Ack(), len(b.Payload()), action, x.conns[0].State(), x.conns[1].State()))
		}
		x.poll()
	}
}

// settle ends the disturbance. What either end then writes arrives too.
func (x *crossing) settle() {
	for _, e := range []*end{x.a, x.b} {
		for i := range e.out {
			e.out[i].at = x.now
		}
	}
	for round := range 100 {
		x.run(time.Second)
		for i, c := range x.conns {
			if round == 20 && !x.fin[i] {
				x.write(i, 2000)
			}
			b := make([]byte, 1<<16)
			x.got[1-i] = append(x.got[1-i], b[:c.Read(x.now, b)]...)
		}
	}
	for i, c := range x.conns {
		if !bytes.Equal(x.got[i], x.sent[i]) {
			x.t.Errorf("end %d: %d bytes were sent, %d arrived; %v %v", i, len(x.sent[i]), len(x.got[i]), x.conns[0].State(), x.conns[1].State())
		}
		if want := x.want(i); c.State() != want && !(x.fin[0] && x.fin[1]) {
			x.t.Errorf("end %d: %v, want %v", i, c.State(), want)
		}
		if c.Err() != nil {
			x.t.Errorf("end %d: %v", i, c.Err())
		}
	}
}

// want is the state of end i once everything has arrived.
func (x *crossing) want(i int) State {
	switch {
	case x.fin[i]:
		return StateFinWait2
	case x.fin[1-i]:
		return StateCloseWait
	}
	return StateEstablished
}
