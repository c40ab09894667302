package udp

import (
	"testing"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// FuzzMux runs operations that bytes name on a Mux, next to a slow model that has the queues as lists of
// strings: what is delivered, to whom, and what is left in memory must agree.
func FuzzMux(f *testing.F) {
	f.Add([]byte{0, 0, 0, 4, 1, 4, 1, 5, 0, 8, 0})
	f.Add([]byte{0, 0, 1, 1, 0, 2, 3, 0, 3, 4, 9, 4, 8, 4, 7, 5, 1, 5, 2, 5, 3, 9, 1})
	f.Add([]byte("\x00\x01\x00\x02\x04\x01\x04\x11\x04\x21\x06\x05\x05\x00\x07\x00"))
	f.Fuzz(func(t *testing.T, script []byte) {
		m, o := newMux(Config{Budget: 64 << 10, MaxSockets: 16})
		w := &model{t: t, m: m, o: o}
		for len(script) >= 2 {
			w.step(script[0], script[1])
			script = script[2:]
		}
		w.finish()
	})
}

// model is what should be in the sockets.
type model struct {
	t    *testing.T
	m    *Mux
	o    *outbox
	open []*entry
}

type entry struct {
	s     *Socket
	queue []string
	lease []Lease
}

func (w *model) step(op, arg byte) {
	switch op % 10 {
	case 0, 1:
		w.bind(arg)
	case 2, 3:
		w.connect(arg)
	case 4, 5:
		w.input(arg)
	case 6:
		w.read(arg)
	case 7:
		w.leased(arg)
	case 8:
		w.write(arg)
	case 9:
		w.close(arg)
	}
	if w.m.pool.used > w.m.cfg.Budget {
		w.t.Fatalf("%d bytes in use", w.m.pool.used)
	}
}

var places = []wire.Addr{{}, wire.Unspecified4, ours, ours2, ours6, many}

func (w *model) bind(arg byte) {
	o := &Options{Share: arg&1 != 0, GRO: arg&2 != 0, V6Only: arg&4 != 0, ReceiveBuffer: int(arg>>3&1) * 4000}
	s, err := w.m.Bind(places[int(arg>>4)%len(places)], uint16(1+arg>>7), o, nil)
	if err == nil {
		w.open = append(w.open, &entry{s: s})
	}
}

func (w *model) connect(arg byte) {
	t := wire.Tuple{Local: ours, LocalPort: uint16(arg >> 7), Remote: theirs, RemotePort: uint16(1 + arg&3)}
	s, err := w.m.Connect(t, &Options{Share: arg&4 != 0}, nil)
	if err == nil {
		w.open = append(w.open, &entry{s: s})
	}
}

// input gives a datagram and finds who has it by the rules written out.
func (w *model) input(arg byte) {
	t := wire.Tuple{Local: []wire.Addr{ours, ours2, ours6, many}[arg&3], LocalPort: uint16(1 + arg>>7), Remote: theirs, RemotePort: uint16(1 + arg>>2&3)}
	if !t.Local.Is4() {
		t.Remote = peer6
	}
	data := string(make([]byte, int(arg>>4&7)*300))
	before := map[*entry]int{}
	for _, e := range w.open {
		before[e] = e.s.waitingCount()
	}
	v := w.m.Input(0, &t, &Datagram{Payload: [][]byte{[]byte(data)}, Len: len(data)})
	got := 0
	for _, e := range w.open {
		switch n := e.s.waitingCount() - before[e]; {
		case n == 1:
			got++
			e.queue = append(e.queue, data)
			if !w.mayHave(e, &t) {
				w.t.Fatalf("%+v went to %+v", t, e.s.tuple)
			}
		case n < 0: // made room
			e.queue = e.queue[-n:]
		}
	}
	if (v == packet.Deliver) != (got == 1) || got > 1 || v == packet.DropNoSocket && w.somebody(&t) {
		w.t.Fatalf("%v, %d sockets have it", v, got)
	}
}

// waitingCount walks the queue.
func (s *Socket) waitingCount() (n int) {
	for x := s.head; x != nil; x = x.next {
		n++
	}
	return n
}

func (w *model) somebody(t *wire.Tuple) bool {
	for _, e := range w.open {
		if w.mayHave(e, t) {
			return true
		}
	}
	return false
}

// mayHave reports whether a unicast datagram may be for e: it fits, and no socket fits better.
func (w *model) mayHave(e *entry, t *wire.Tuple) bool {
	best := 0
	for _, x := range w.open {
		best = max(best, fits(x.s, t))
	}
	return best > 0 && fits(e.s, t) == best && !t.Local.Multicast()
}

func fits(s *Socket, t *wire.Tuple) int {
	a := s.tuple.Local
	switch {
	case s.tuple.LocalPort != t.LocalPort:
		return 0
	case s.tuple.RemotePort != 0:
		if s.tuple == *t {
			return 4
		}
		return 0
	case a == t.Local:
		return 3
	case a == wire.Unspecified4 && t.Local.Is4(), a == wire.Addr{} && s.opts.V6Only && !t.Local.Is4():
		return 2
	case a == wire.Addr{} && !s.opts.V6Only:
		return 1
	}
	return 0
}

// pick returns a socket that arg names.
func (w *model) pick(arg byte) (int, *entry) {
	if len(w.open) == 0 {
		return 0, nil
	}
	i := int(arg) % len(w.open)
	return i, w.open[i]
}

func (w *model) read(arg byte) {
	_, e := w.pick(arg)
	if e == nil {
		return
	}
	b := make([]byte, 65535)
	msg := []Message{{Buffers: [][]byte{b}}}
	n := e.s.Read(0, msg)
	if n == 0 && len(e.queue) > 0 {
		w.t.Fatal("data is not read")
	}
	for rest, first := msg[0].N, true; n > 0 && (first || rest > 0); first = false {
		if len(e.queue) == 0 || len(e.queue[0]) > rest {
			w.t.Fatalf("%d bytes that nobody sent", rest)
		}
		rest -= len(e.queue[0])
		e.queue = e.queue[1:]
	}
}

func (w *model) leased(arg byte) {
	_, e := w.pick(arg)
	if e == nil {
		return
	}
	if l, ok := e.s.Lease(0); ok {
		if string(l.Payload()) != e.queue[0] {
			w.t.Fatal("another datagram")
		}
		e.queue, e.lease = e.queue[1:], append(e.lease, l)
	} else if len(e.queue) > 0 {
		w.t.Fatal("data is not leased")
	}
	for len(e.lease) > int(arg>>6) {
		e.lease[0].Release()
		e.lease = e.lease[1:]
	}
}

func (w *model) write(arg byte) {
	_, e := w.pick(arg)
	if e == nil {
		return
	}
	w.o.room, w.o.offload = int(arg>>5), int(arg)*20
	e.s.Write(0, []Message{
		{Buffers: [][]byte{make([]byte, int(arg)*9)}, SegmentSize: int(arg >> 2), Remote: places[arg&3], RemotePort: uint16(arg & 1)},
		{},
	})
	w.m.Poll(0)
}

func (w *model) close(arg byte) {
	i, e := w.pick(arg)
	if e == nil {
		return
	}
	e.s.Close(0)
	for _, l := range e.lease {
		l.Release()
	}
	w.open = append(w.open[:i], w.open[i+1:]...)
}

// finish closes everything: nothing may be left.
func (w *model) finish() {
	for len(w.open) > 0 {
		w.close(0)
	}
	if w.m.pool.used != 0 || len(w.m.ports) != 0 || len(w.m.flows) != 0 || w.m.longest.used != 0 || w.m.sockets != 0 {
		w.t.Fatalf("left behind: %d bytes, %d ports, %d flows, lists %b", w.m.pool.used, len(w.m.ports), len(w.m.flows), w.m.longest.used)
	}
}

// FuzzSteering looks for connection IDs in any bytes.
func FuzzSteering(f *testing.F) {
	f.Add(long([]byte("12345678")), uint8(8), int8(0))
	f.Add(header([]byte("12345678")), uint8(8), int8(-1))
	f.Fuzz(func(t *testing.T, data []byte, length uint8, offset int8) {
		st := Steering{Length: int(length), Offset: int(offset)}
		if !st.valid() {
			return
		}
		id := st.connID(data)
		if id == nil {
			return
		}
		if len(id) == 0 || len(id) > len(data) {
			t.Fatalf("an ID of %d bytes", len(id))
		}
		for n := 1; n < 20; n++ {
			if i := st.index(id, n, 5); i < 0 || i >= n {
				t.Fatalf("index %d of %d", i, n)
			}
		}
	})
}
