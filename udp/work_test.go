package udp

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/millrace/millrace/internal/testkit/blockcount"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// TestWorkForEachSocketIsBounded: one user's sockets at a port do not make the requests of others, nor their datagrams,
// slower. What each block of the code does for n sockets is in proportion to n.
func TestWorkForEachSocketIsBounded(t *testing.T) {
	for _, g := range blockcount.Nonlinear(t, "TestManySocketsAtOnePort", 400, 5, "slices", "github.com/millrace/millrace/udp", "github.com/millrace/millrace/internal/ports") {
		t.Errorf("%s ran %d times with 400 sockets and %d times with 2000", g.Block, g.Small, g.Large)
	}
}

// TestManySocketsAtOnePort opens and closes as many sockets at one port as it is asked for, in the ways that a program may
// choose, with a datagram and a request of others between.
func TestManySocketsAtOnePort(t *testing.T) {
	n := blockcount.Size(50)
	loopback := func(i int) wire.Addr { return wire.AddrFrom4([4]byte{127, 1, byte(i >> 8), byte(i)}) }
	kinds := []struct {
		name string
		open func(m *Mux, i int) (*Socket, error)
	}{
		{"SO_REUSEPORT", func(m *Mux, i int) (*Socket, error) {
			return m.Bind(wire.Addr{}, 53, &Options{Share: true, ReceiveBuffer: 400}, nil)
		}},
		{"SO_REUSEADDR", func(m *Mux, i int) (*Socket, error) {
			return m.Bind(wire.Addr{}, 53, &Options{Reuse: true, ReceiveBuffer: 400}, nil)
		}},
		{"both", func(m *Mux, i int) (*Socket, error) {
			return m.Bind(wire.Addr{}, 53, &Options{Reuse: true, Share: i%2 == 0, ReceiveBuffer: 400}, nil)
		}},
		{"an address each", func(m *Mux, i int) (*Socket, error) {
			return m.Bind(loopback(i), 53, &Options{ReceiveBuffer: 400}, nil)
		}},
		{"a peer each", func(m *Mux, i int) (*Socket, error) {
			return m.Connect(wire.Tuple{Local: ours, LocalPort: 53, Remote: loopback(i), RemotePort: 9}, &Options{Reuse: true}, nil)
		}},
	}
	for _, kind := range kinds {
		m, out := newMux(Config{})
		others := func() {
			input(m, loopback(3), 53, theirs, 7, "x")
			input(m, many, 53, theirs, 7, "x") // a group that none of them is in
			if s, err := m.Bind(ours, 54, nil, nil); err == nil {
				s.Close(0)
			}
			if s, err := m.Bind(ours, 53, nil, nil); err == nil {
				s.Close(0)
			}
			m.Poll(0)
		}
		var all []*Socket
		for i := range n {
			s, err := kind.open(m, i)
			if err != nil {
				t.Fatal(kind.name, err)
			}
			all = append(all, s)
			others()
		}
		out.verdict = packet.DropTxFull // no room for any of them
		for _, s := range all {
			s.Write(0, []Message{{Remote: theirs, RemotePort: 9}})
		}
		for range n {
			others()
		}
		for _, s := range all {
			s.Close(0)
			others()
		}
	}
}

// TestBroadcastHasABound: however many sockets are at the port, one datagram is copied to maxBroadcast of them.
func TestBroadcastHasABound(t *testing.T) {
	m, _ := newMux(Config{})
	all := share(t, m, maxBroadcast+50)
	m.Input(0, &wire.Tuple{Local: wire.AddrFrom4([4]byte{198, 18, 255, 255}), LocalPort: 443, Remote: theirs, RemotePort: 7}, &Datagram{Broadcast: true})
	readable := 0
	for _, s := range all {
		if s.Readable() {
			readable++
		}
	}
	if readable != maxBroadcast {
		t.Errorf("%d sockets have it, want %d", readable, maxBroadcast)
	}
}

// TestWritersTakeTurns: of the sockets that found no room, each Poll wakes writeRetries, those first that wait longest.
func TestWritersTakeTurns(t *testing.T) {
	m, out := newMux(Config{})
	out.verdict = packet.DropTxFull
	var woken []int
	for i := range 2*writeRetries + 1 {
		s, err := m.Bind(wire.Addr{}, 0, nil, readyFunc(func(ev Events) {
			if ev&Writable != 0 {
				woken = append(woken, i)
			}
		}))
		if err != nil {
			t.Fatal(err)
		}
		s.Write(0, []Message{{Remote: theirs, RemotePort: 9}})
	}
	for _, want := range []int{writeRetries, 2 * writeRetries, 2*writeRetries + 1, 2*writeRetries + 1} {
		if m.Poll(0); len(woken) != want {
			t.Fatalf("%d were woken, want %d", len(woken), want)
		}
	}
	for i, w := range woken {
		if i != w {
			t.Fatalf("socket %d was woken at %d", w, i)
		}
	}
}

// readyFunc is an Owner.
type readyFunc func(Events)

func (f readyFunc) Ready(ev Events) { f(ev) }

// TestOthersDoNotShare: SO_REUSEPORT is for sockets of one user (socket(7)).
func TestOthersDoNotShare(t *testing.T) {
	m, _ := newMux(Config{})
	bind(t, m, wire.Addr{}, 53, &Options{Share: true, User: 1000})
	if _, err := m.Bind(wire.Addr{}, 53, &Options{Share: true, User: 1001}, nil); err != ErrInUse {
		t.Errorf("another user's: %v", err)
	}
	bind(t, m, wire.Addr{}, 53, &Options{Share: true, User: 1000})
}

// TestTheNewestSocketHasTheDatagrams closes sockets with SO_REUSEADDR in random order: those that are left are still in the order
// of binding.
func TestTheNewestSocketHasTheDatagrams(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 9))
	for range 20 {
		m, _ := newMux(Config{})
		var open []*Socket
		for range 10 {
			open = append(open, bind(t, m, wire.Addr{}, 53, &Options{Reuse: true}))
		}
		for len(open) > 0 {
			input(m, ours, 53, theirs, 7, "x")
			if newest := open[len(open)-1]; read(newest) != "x" {
				t.Fatalf("of %d sockets another one than the newest has it", len(open))
			}
			i := rnd.IntN(len(open))
			open[i].Close(0)
			open = slices.Delete(open, i, i+1)
		}
	}
}
