package queue

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"unsafe"

	"github.com/millrace/millrace/shim/ring"
)

// aligned returns n zeros on a boundary of a page.
func aligned(n int) []byte {
	b := make([]byte, n+page)
	at := -int(uintptr(unsafe.Pointer(&b[0]))) & (page - 1)
	return b[at : at+n]
}

// device is the block's end: a plain one, and what a hostile one needs.
type device struct {
	mem  []byte
	l    Layout
	down *ring.QueueConsumer
	up   *ring.QueueProducer
}

func newBed(t testing.TB, l Layout) (*Block, *device) {
	t.Helper()
	l, err := l.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	mem := aligned(l.size())
	blocks, err := New(mem, l)
	if err != nil {
		t.Fatal(err)
	}
	d := &device{mem: mem, l: l}
	i := l.Blocks - 1
	if d.down, err = ring.NewQueueConsumer(mem[l.downAt(i):l.upAt(i)]); err != nil {
		t.Fatal(err)
	}
	if d.up, err = ring.NewQueueProducer(mem[l.upAt(i):][:ring.QueueSize(l.Slots)]); err != nil {
		t.Fatal(err)
	}
	return blocks[i], d
}

// ring returns a ring of a connection of the last block.
func (d *device) ring(k Conn, up int) []byte {
	return d.mem[d.l.ringAt(d.l.Blocks-1, int(k.Index))+up*d.l.Ring:][:d.l.Ring]
}

func words(v ...uint32) (b []byte) {
	for _, w := range v {
		b = binary.NativeEndian.AppendUint32(b, w)
	}
	return b
}

func (d *device) put(t testing.TB, k Conn, op uint8, data []byte) {
	t.Helper()
	e := ring.Entry{Connection: k.Index, Generation: k.Generation, Operation: op, Length: uint8(len(data))}
	copy(e.Data[:], data)
	if ok, err := d.up.Put(&e); !ok || err != nil {
		t.Fatal(ok, err)
	}
}

// take returns the next entry, and fails if it has another operation.
func (d *device) take(t testing.TB, op uint8) ring.Entry {
	t.Helper()
	var e ring.Entry
	if ok, err := d.down.Take(&e); !ok || err != nil || e.Operation != op {
		t.Fatalf("%v, %v: operation %d, want %d", ok, err, e.Operation, op)
	}
	return e
}

func (d *device) empty(t testing.TB) {
	t.Helper()
	var e ring.Entry
	if ok, _ := d.down.Take(&e); ok {
		t.Fatalf("entry %+v", e)
	}
}

func event(t testing.TB, b *Block, want Kind) (ev Event) {
	t.Helper()
	if !b.Take(&ev) || ev.Kind != want {
		t.Fatalf("event %+v, want kind %d", ev, want)
	}
	return ev
}

func quiet(t testing.TB, b *Block) {
	t.Helper()
	var ev Event
	if b.Take(&ev) {
		t.Fatalf("event %+v", ev)
	}
}

var peer = netip.MustParseAddrPort("[2001:db8::1]:4567")

func open(t testing.TB, b *Block, d *device) Conn {
	t.Helper()
	k, ok := b.Open(peer)
	if !ok {
		t.Fatal("no slot")
	}
	if e := d.take(t, opAccept); e.Connection != k.Index || e.Generation != k.Generation || e.Length != 18 ||
		netip.AddrFrom16([16]byte(e.Data[:16])) != peer.Addr() || binary.NativeEndian.Uint16(e.Data[16:]) != peer.Port() {
		t.Fatalf("%+v", e)
	}
	return k
}

// TestStreams moves bytes both ways, in pieces of all sizes, over many laps of the rings and past position 2^32.
func TestStreams(t *testing.T) {
	b, d := newBed(t, Layout{Blocks: 2, Connections: 3, Slots: 8, Ring: 1024})
	k := open(t, b, d)
	c := b.lookup(k)
	c.in, c.read, c.out, c.acked = 1<<32-5000, 1<<32-5000, 1<<32-5000, 1<<32-5000
	r := rand.New(rand.NewPCG(1, 2))
	sent, got := make([]byte, 50_000), []byte(nil)
	for i := range sent {
		sent[i] = byte(r.Uint32())
	}
	for rest := sent; len(got) < len(sent); {
		n := min(r.IntN(700), len(rest))
		cut := r.IntN(n + 1)
		rest = rest[b.Deliver(k, [2][]byte{rest[:cut], rest[cut:n]}):]
		for _, p := range d.received(t, k) {
			got = append(got, p...)
		}
		d.put(t, k, opCredit, words(1<<32-5000&(1<<32-1)+uint32(len(got))))
		event(t, b, Credit)
	}
	if !bytes.Equal(got, sent) {
		t.Error("to the block: other bytes")
	}
	got = nil
	for at := 0; at < len(sent); {
		n := min(1+r.IntN(1024), len(sent)-at)
		d.send(t, k, c.out, sent[at:at+n])
		at += n
		ev := event(t, b, Bytes)
		got = append(append(got, ev.Data[0]...), ev.Data[1]...)
		b.Acknowledge(k, n)
		if e := d.take(t, opCredit); binary.NativeEndian.Uint32(e.Data[:]) != c.out {
			t.Fatalf("credit %+v at %d", e, c.out)
		}
	}
	if !bytes.Equal(got, sent) {
		t.Error("from the block: other bytes")
	}
	if s := b.Stats(); s.Violations+s.Stale+s.Discarded > 0 {
		t.Errorf("%+v", s)
	}
}

// received takes the bytes of all entries.
func (d *device) received(t testing.TB, k Conn) (pieces [][]byte) {
	t.Helper()
	for e := (ring.Entry{}); ; {
		ok, err := d.down.Take(&e)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return pieces
		}
		switch e.Operation {
		case opData:
			pieces = append(pieces, slices.Clone(e.Data[:e.Length]))
		case opRing:
			r := d.ring(k, 0)
			at, n := binary.NativeEndian.Uint32(e.Data[:])%uint32(len(r)), binary.NativeEndian.Uint32(e.Data[4:])
			pieces = append(pieces, slices.Concat(r, r)[at:][:n])
		default:
			t.Fatalf("%+v", e)
		}
	}
}

// send sends bytes as a block does.
func (d *device) send(t testing.TB, k Conn, at uint32, p []byte) {
	t.Helper()
	if len(p) <= ring.EntryBytes {
		d.put(t, k, opData, p)
		return
	}
	copyIn(d.ring(k, 1), at, p)
	d.put(t, k, opRing, words(at, uint32(len(p))))
}

// TestWindow: what the block has not consumed is bounded by the ring, however it arrives.
func TestWindow(t *testing.T) {
	b, d := newBed(t, Layout{Blocks: 1, Connections: 1, Slots: 64, Ring: 1024})
	k := open(t, b, d)
	if n := b.Deliver(k, [2][]byte{make([]byte, 80), make([]byte, 2000)}); n != 1024 {
		t.Errorf("%d bytes in a ring of 1024", n)
	}
	if n := b.Deliver(k, [2][]byte{{1}}); n != 0 {
		t.Error("a byte in a full ring")
	}
	d.put(t, k, opCredit, words(7))
	event(t, b, Credit)
	if n := b.Deliver(k, [2][]byte{make([]byte, 20)}); n != 7 {
		t.Errorf("%d bytes where 7 are free", n)
	}
}

// TestFullQueue: what finds no slot is written later, an acceptance before bytes, and each state once.
func TestFullQueue(t *testing.T) {
	b, d := newBed(t, Layout{Blocks: 1, Connections: 4, Slots: 2})
	first, _ := b.Open(peer)
	b.Stop()
	late, ok := b.Open(peer)
	if !ok || !b.Waiting() {
		t.Fatal("not waiting")
	}
	if n := b.Deliver(late, [2][]byte{{1}}); n != 0 {
		t.Fatal("bytes of a connection that the block does not know")
	}
	b.Reset(first, 104)
	b.Reset(first, 32) // once failed, the first reason stays
	d.take(t, opAccept)
	if n := b.Deliver(late, [2][]byte{{1}}); n != 0 { // there is a slot, for the acceptance
		t.Fatal("bytes before what announces their connection")
	}
	d.take(t, opStop)
	d.take(t, opAccept)
	b.Flush()
	if e := d.take(t, opReset); binary.NativeEndian.Uint32(e.Data[:]) != 104 {
		t.Errorf("errno %v", e.Data[:4])
	}
	b.Flush()
	d.empty(t)
	if b.Waiting() {
		t.Error("still waiting")
	}
	if n := b.Deliver(late, [2][]byte{{1}}); n != 1 {
		t.Error("not delivered")
	}
}

// TestReusedSlotWaitsOnce: a connection that is closed before its entries are written leaves the list as it was.
func TestReusedSlotWaitsOnce(t *testing.T) {
	b, d := newBed(t, Layout{Blocks: 1, Connections: 1, Slots: 2})
	b.Stop()
	b.Stop()
	for range 3 {
		k, ok := b.Open(peer)
		if !ok {
			t.Fatal("no slot")
		}
		d.put(t, k, opClose, nil)
		event(t, b, Closed)
	}
	if len(b.dirty) != 1 {
		t.Errorf("%d entries wait for one slot", len(b.dirty))
	}
}

// TestLife takes a connection through half-close to its end, and the slot to the next one.
func TestLife(t *testing.T) {
	b, d := newBed(t, Layout{Blocks: 1, Connections: 1, Slots: 16})
	d.put(t, Conn{Index: none}, opListen, words(7000))
	if ev := event(t, b, Listen); ev.Port != 7000 {
		t.Errorf("port %d", ev.Port)
	}
	b.Listening(0)
	d.take(t, opListening)
	k := open(t, b, d)
	if _, ok := b.Open(peer); ok {
		t.Error("two connections in one slot")
	}
	if !b.Finish(k) || b.Finish(k) {
		t.Error("FIN is not reported once")
	}
	d.take(t, opFin)
	if b.Deliver(k, [2][]byte{{1}}) != 0 {
		t.Error("bytes behind a FIN")
	}
	d.put(t, k, opData, []byte("last"))
	if ev := event(t, b, Bytes); string(ev.Data[0]) != "last" || !ev.Named || ev.Conn != k {
		t.Errorf("%+v", ev)
	}
	d.put(t, k, opShutdown, nil)
	event(t, b, ShutDown)
	d.put(t, k, opClose, nil)
	event(t, b, Closed)
	next := open(t, b, d)
	if next.Index != k.Index || next.Generation == k.Generation {
		t.Errorf("%+v after %+v", next, k)
	}
	if b.Finish(k) || b.Reset(k, 1) || b.Deliver(k, [2][]byte{{1}}) != 0 {
		t.Error("a closed connection's name is valid")
	}
	d.put(t, k, opData, []byte("stale"))
	quiet(t, b)
	if s := b.Stats(); s.Stale != 1 || s.Violations != 0 {
		t.Errorf("%+v", s)
	}
	d.put(t, Conn{Index: none}, opExit, nil)
	event(t, b, Exited)
}

// TestFailedDrops: a block that has not read the reset yet does nothing wrong.
func TestFailedDrops(t *testing.T) {
	b, d := newBed(t, Layout{Blocks: 1, Connections: 1, Slots: 16})
	k := open(t, b, d)
	b.Reset(k, 104)
	d.put(t, k, opData, []byte("late"))
	quiet(t, b)
	if s := b.Stats(); s.Discarded != 1 || s.Violations != 0 {
		t.Errorf("%+v", s)
	}
	d.put(t, k, opClose, nil)
	event(t, b, Closed)
	if b.Used() != 0 {
		t.Error("the slot is in use")
	}
}

// TestHostileEntries: each of these fails its connection with EPROTO and no other, and is counted.
func TestHostileEntries(t *testing.T) {
	for name, write := range map[string]func(d *device, k Conn){
		"position before":   func(d *device, k Conn) { d.put(t, k, opRing, words(1<<32-1, 10)) },
		"position behind":   func(d *device, k Conn) { d.put(t, k, opRing, words(16, 10)) },
		"count 0":           func(d *device, k Conn) { d.put(t, k, opRing, words(0, 0)) },
		"count past ring":   func(d *device, k Conn) { d.put(t, k, opRing, words(0, 1025)) },
		"count 2^32-1":      func(d *device, k Conn) { d.put(t, k, opRing, words(0, 1<<32-1)) },
		"short description": func(d *device, k Conn) { d.put(t, k, opRing, words(0)) },
		"no bytes":          func(d *device, k Conn) { d.put(t, k, opData, nil) },
		"credit not given":  func(d *device, k Conn) { d.put(t, k, opCredit, words(6)) },
		"credit backwards":  func(d *device, k Conn) { d.put(t, k, opCredit, words(1<<32-1)) },
		"short credit":      func(d *device, k Conn) { d.put(t, k, opCredit, nil) },
		"host's operation":  func(d *device, k Conn) { d.put(t, k, opAccept, nil) },
		"no operation":      func(d *device, k Conn) { d.put(t, k, 0, nil) },
		"listen":            func(d *device, k Conn) { d.put(t, k, opListen, words(80)) },
	} {
		t.Run(name, func(t *testing.T) {
			b, d := newBed(t, Layout{Blocks: 1, Connections: 2, Slots: 16, Ring: 1024})
			k, other := open(t, b, d), open(t, b, d)
			b.Deliver(k, [2][]byte{[]byte("hello")})
			d.take(t, opData)
			write(d, k)
			if ev := event(t, b, Violation); !ev.Named || ev.Conn != k || b.Stats().Violations != 1 {
				t.Errorf("%+v, %+v", ev, b.Stats())
			}
			if e := d.take(t, opReset); binary.NativeEndian.Uint32(e.Data[:]) != eproto || b.lookup(k).state != Failed {
				t.Errorf("%+v", e)
			}
			d.put(t, other, opData, []byte("fine"))
			event(t, b, Bytes)
		})
	}
}

// TestHostileStates: bytes and shutdowns behind a shutdown, and more than the window.
func TestHostileStates(t *testing.T) {
	for name, ops := range map[string][]uint8{"bytes": {opShutdown, opData}, "again": {opShutdown, opShutdown}} {
		b, d := newBed(t, Layout{Blocks: 1, Connections: 1, Slots: 16, Ring: 1024})
		k := open(t, b, d)
		d.put(t, k, ops[0], nil)
		event(t, b, ShutDown)
		d.put(t, k, ops[1], []byte("x"))
		if ev := event(t, b, Violation); ev.Conn != k {
			t.Errorf("%s: %+v", name, ev)
		}
	}
	b, d := newBed(t, Layout{Blocks: 1, Connections: 1, Slots: 16, Ring: 1024})
	k := open(t, b, d)
	d.send(t, k, 0, make([]byte, 1000))
	event(t, b, Bytes)
	d.put(t, k, opData, make([]byte, 24))
	event(t, b, Bytes)
	d.put(t, k, opData, make([]byte, 1))
	event(t, b, Violation)
}

// TestHostileBlock: entries that name no connection, and a queue that is destroyed.
func TestHostileBlock(t *testing.T) {
	b, d := newBed(t, Layout{Blocks: 1, Connections: 1, Slots: 16})
	k := open(t, b, d)
	for _, write := range []func(){
		func() { d.put(t, Conn{Index: 1}, opClose, nil) },
		func() { d.put(t, Conn{Index: none - 1}, opClose, nil) },
		func() { d.put(t, Conn{Index: none}, opListen, words(1<<16)) },
		func() { d.put(t, Conn{Index: none}, opListen, nil) },
		func() { d.put(t, Conn{Index: none}, opStop, nil) },
	} {
		write()
		if ev := event(t, b, Violation); ev.Named {
			t.Errorf("%+v", ev)
		}
	}
	at := d.l.upAt(0) + ring.QueueSize(0) + 5*128
	d.mem[at+7], d.mem[at+12] = 255, 1 // a length, with the sequence of the lap
	event(t, b, BrokenQueue)
	quiet(t, b)
	if _, ok := b.Open(peer); ok || !b.Broken() || b.Deliver(k, [2][]byte{make([]byte, 500)}) != 0 {
		t.Error("a broken block is used")
	}
}

func TestDataPathAllocates(t *testing.T) {
	b, d := newBed(t, Layout{Blocks: 1, Connections: 1})
	k := open(t, b, d)
	p := [2][]byte{make([]byte, 500)}
	var ev Event
	var e, credit ring.Entry
	credit = ring.Entry{Connection: k.Index, Generation: k.Generation, Operation: opCredit, Length: 4}
	position := uint32(0)
	if n := testing.AllocsPerRun(100, func() {
		position += uint32(b.Deliver(k, p))
		_, _ = d.down.Take(&e)
		binary.NativeEndian.PutUint32(credit.Data[:], position)
		_, _ = d.up.Put(&credit)
		b.Take(&ev)
	}); n != 0 || ev.Kind != Credit {
		t.Errorf("%v allocations, %+v", n, ev)
	}
}

// FuzzDevice runs a hostile block against the host: whatever it writes, events keep to the rings, each entry is counted once, and a
// connection that was not named by the block is not failed.
func FuzzDevice(f *testing.F) {
	f.Add([]byte{0, opData, 1, 0, 5, 0, opRing, 8, 0, 0, 90, opClose, 0})
	f.Add(bytes.Repeat([]byte{1, opRing, 8, 0, 0, 0, 0, 200, 0, 0, 0}, 9))
	f.Add([]byte{0, opShutdown, 0, 0, opShutdown, 0, 2, opClose, 0, 255, opExit, 0, 1, opCredit, 4, 1, 0, 0, 0})
	f.Fuzz(func(t *testing.T, program []byte) {
		b, d := newBed(t, Layout{Blocks: 1, Connections: 4, Slots: 16, Ring: 1024})
		for range 3 {
			b.Open(peer)
		}
		put := uint64(0)
		for len(program) >= 3 {
			e := ring.Entry{Connection: uint32(int8(program[0])), Generation: uint16(program[0] >> 6), Operation: program[1], Length: program[2] % 85}
			program = program[3:]
			program = program[copy(e.Data[:e.Length], program):]
			if ok, err := d.up.Put(&e); !ok || err != nil {
				t.Fatal(ok, err)
			}
			put++
			checkEvents(t, b)
			b.Deliver(Conn{uint32(put % 4), uint16(put % 2)}, [2][]byte{make([]byte, put%200)})
			_, _ = d.down.Take(&e)
			b.Flush()
		}
		if s := b.Stats(); s.Entries != put || s.Violations+s.Stale+s.Discarded > put {
			t.Errorf("%+v of %d entries", s, put)
		}
	})
}

func checkEvents(t *testing.T, b *Block) {
	t.Helper()
	for ev := (Event{}); b.Take(&ev); {
		n := len(ev.Data[0]) + len(ev.Data[1])
		if n > int(b.size) || (n > 0) != (ev.Kind == Bytes) {
			t.Fatalf("%+v", ev)
		}
		if ev.Kind == Bytes {
			b.Acknowledge(ev.Conn, n/2)
		}
	}
	free := 0
	for i := range b.conns {
		c := &b.conns[i]
		if c.out-c.acked > b.size || c.in-c.read > b.size {
			t.Fatalf("windows of %+v", c)
		}
		if c.state == Free {
			free++
		}
	}
	if free != len(b.free) {
		t.Fatalf("%d slots are free, and %d listed", free, len(b.free))
	}
}
