package tcp

import (
	"math/rand/v2"
	"testing"

	"github.com/millrace/millrace/internal/testkit/blockcount"
	"github.com/millrace/millrace/wire"
)

// TestWorkForEachListenerIsBounded: one user's listeners and bindings do not make the requests of others slower, nor their
// SYNs. What each block of the code does for n of them is in proportion to n.
func TestWorkForEachListenerIsBounded(t *testing.T) {
	for _, g := range blockcount.Nonlinear(t, "TestManyListenersAtOnePort", 400, 5, "slices", "github.com/millrace/millrace/tcp", "github.com/millrace/millrace/internal/ports") {
		t.Errorf("%s ran %d times with 400 listeners and %d times with 2000", g.Block, g.Small, g.Large)
	}
}

// TestManyListenersAtOnePort opens and closes as many listeners at one port as it is asked for, in the ways that a program
// may choose, each with a connection that is not complete, and requests of others between.
func TestManyListenersAtOnePort(t *testing.T) {
	n := blockcount.Size(50)
	loopback := func(i int) wire.Addr { return wire.AddrFrom4([4]byte{127, 1, byte(i >> 8), byte(i)}) }
	kinds := []struct {
		name string
		open func(m *Mux, i int) (func(), error)
	}{
		{"SO_REUSEPORT", func(m *Mux, i int) (func(), error) {
			l, err := m.Listen(wire.Addr{}, 80, 10, &Options{Share: true}, nil)
			return func() { l.Close(0) }, err
		}},
		{"an address each", func(m *Mux, i int) (func(), error) {
			l, err := m.Listen(loopback(i), 80, 10, nil, nil)
			return func() { l.Close(0) }, err
		}},
		{"bound", func(m *Mux, i int) (func(), error) {
			b, err := m.Bind(wire.Addr{}, 80, BindOptions{Reuse: true})
			return func() { b.Close() }, err
		}},
		{"bound to an address each", func(m *Mux, i int) (func(), error) {
			b, err := m.Bind(loopback(i), 80, BindOptions{})
			return func() { b.Close() }, err
		}},
	}
	for _, kind := range kinds {
		d := newMuxTest(t)
		m := d.m
		others := func(i int) {
			from := &wire.Tuple{Local: loopback(i), LocalPort: 80, Remote: wire.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)}), RemotePort: 9}
			m.Input(d.now, from, &Segment{Flags: wire.FlagSYN, Packets: 1})
			if b, err := m.Bind(wire.Addr{}, 80, BindOptions{Reuse: true}); err == nil {
				b.Close()
			}
			if b, err := m.Bind(loopback(1), 81, BindOptions{}); err == nil {
				b.Close()
			}
			if l, err := m.Listen(loopback(1), 81, 1, nil, nil); err == nil {
				l.Close(d.now)
			}
			_ = m.ListenerAt(from)
		}
		var all []func()
		for i := range n {
			end, err := kind.open(m, i)
			if err != nil {
				t.Fatal(kind.name, err)
			}
			all = append(all, end)
			others(i)
		}
		for i, end := range all {
			end()
			others(i)
		}
	}
}

// TestCloseFindsItsHalfOpenConnections ends handshakes in random order before a listener closes: those that are left are gone with
// it, and another listener's stay.
func TestCloseFindsItsHalfOpenConnections(t *testing.T) {
	rnd := rand.New(rand.NewPCG(2, 4))
	for left := range 20 {
		d := newMuxTest(t)
		l := d.listen(100, nil)
		if _, err := d.m.Listen(wire.Addr{}, 81, 10, nil, nil); err != nil {
			t.Fatal(err)
		}
		other := from(1000)
		other.LocalPort = 81
		d.input(other, linuxSYN(1))
		for i := range 20 {
			d.input(from(i), linuxSYN(1))
		}
		for _, i := range rnd.Perm(20)[left:] {
			d.input(from(i), Segment{Flags: wire.FlagRST, Seq: 2, Packets: 1})
		}
		if l.halfOpen != left || d.m.passive.synQueue.used != left+1 {
			t.Fatalf("%d of %d are left, want %d", l.halfOpen, d.m.passive.synQueue.used, left)
		}
		l.Close(d.now)
		if n := d.m.passive.synQueue.used; n != 1 || d.m.passive.synQueue.find(&other) == noSlot {
			t.Fatalf("of %d, %d are in the table after Close", left, n)
		}
	}
}
