package transport

import (
	"fmt"
	"testing"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/rdma/memory"
	"github.com/millrace/millrace/rdma/roce"
	"github.com/millrace/millrace/wire"
)

// wired is two queue pairs whose packets are built into frames, parsed and verified, without a link between: what one core does for both
// sides.
type wired struct {
	a, b   *QP
	frames [][]byte
	used   int
	done   int
}

func newWired(tb testing.TB, size int) (*wired, SendWR) {
	w := new(wired)
	for range 512 {
		w.frames = append(w.frames, make([]byte, 4096+roce.Overhead))
	}
	var keys [2]uint32
	for i := range 2 {
		tab := memory.NewTable(func() uint32 { return 0x55 })
		var err error
		if keys[i], err = tab.Register(1, make([]byte, max(size, 8)), vaBase, everything); err != nil {
			tb.Fatal(err)
		}
		q, err := New(Config{
			Service: roce.RC, QPN: uint32(10 + i), PD: 1, Memory: tab, SendDepth: 256, Recv: NewRecvQueue(1, true, nil), Window: 256,
			SendDone: func(Completion) { w.done++ }, RecvDone: func(Completion) {},
		})
		if err != nil {
			tb.Fatal(err)
		}
		attr := goodAttr
		attr.MTU, attr.DestQP, attr.Timeout = 4096, uint32(11-i), 0
		for _, s := range []State{Init, ReadyToReceive, ReadyToSend} {
			if err := q.Modify(s, attr, wire.AddrFrom4([4]byte{198, 18, 0, byte(2 - i)})); err != nil {
				tb.Fatal(err)
			}
		}
		if i == 0 {
			w.a = q
		} else {
			w.b = q
		}
	}
	return w, SendWR{Op: OpWrite, Flags: Signaled, List: []SGE{{Addr: vaBase, Length: uint32(size), LKey: keys[0]}}, RemoteAddr: vaBase, RKey: keys[1]}
}

// carry moves what from has to send to the other queue pair.
func (w *wired) carry(from, to *QP, host byte) {
	e := roce.Envelope{Src: wire.AddrFrom4([4]byte{198, 18, 0, host}), Dst: wire.AddrFrom4([4]byte{198, 18, 0, 3 - host}), SrcPort: 50000, TTL: 64}
	n := 0
	lens := [512]int{}
	from.Poll(clock.Time(0), func(_ uint32, p *roce.Packet, pieces [][]byte) bool {
		if n == len(w.frames) {
			return false
		}
		lens[n] = roce.Build(w.frames[n], &e, p, pieces...)
		n++
		return true
	})
	var f roce.Frame
	for i := range n {
		if f.Parse(w.frames[i][:lens[i]]) != roce.Accepted || f.Verify() != roce.Accepted {
			panic("frame")
		}
		to.Input(0, &f)
	}
}

// BenchmarkWrite posts batches of 32 WRITEs and carries them and their acknowledgements.
func BenchmarkWrite(b *testing.B) {
	for _, size := range []int{8, 64, 4096, 65536} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			w, wr := newWired(b, size)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			batch := 32
			if size > 4096 {
				batch = 8
			}
			posted := 0
			for b.Loop() {
				if err := w.a.PostSend(&wr); err != nil {
					b.Fatal(err)
				}
				if posted++; posted%batch == 0 {
					w.carry(w.a, w.b, 1)
					w.carry(w.b, w.a, 2)
				}
			}
			for w.a.req.head != w.a.req.tail {
				w.carry(w.a, w.b, 1)
				w.carry(w.b, w.a, 2)
			}
			if w.done != posted {
				b.Fatalf("%d of %d", w.done, posted)
			}
		})
	}
}
