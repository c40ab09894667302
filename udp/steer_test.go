package udp

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// share returns n sockets of one address and port.
func share(t *testing.T, m *Mux, n int) (s []*Socket) {
	t.Helper()
	for range n {
		s = append(s, bind(t, m, wire.Addr{}, 443, &Options{Share: true}))
	}
	return s
}

// where gives m a datagram and returns the index of the socket that has it.
func where(t *testing.T, m *Mux, all []*Socket, from uint16, data []byte) int {
	t.Helper()
	if v := input(m, ours, 443, theirs, from, string(data)); v != packet.Deliver {
		t.Fatal(v)
	}
	for _, s := range all {
		if s.Readable() {
			read(s)
			return s.Index()
		}
	}
	t.Fatal("nobody has it")
	return -1
}

func TestFlowsStayWithTheirSocket(t *testing.T) {
	m, _ := newMux(Config{})
	all := share(t, m, 4)
	count := make([]int, 4)
	was := map[uint16]int{}
	for from := range uint16(400) {
		i := where(t, m, all, from+1, []byte("x"))
		if j := where(t, m, all, from+1, nil); j != i {
			t.Fatalf("flow %d went to %d and %d", from, i, j)
		}
		count[i]++
		was[from+1] = i
	}
	for i, n := range count {
		if n < 50 || n > 150 {
			t.Errorf("socket %d has %d of 400 flows", i, n)
		}
	}
	all[2].Close(0) // its flows go elsewhere, the others stay
	for from, i := range was {
		if j := where(t, m, all, from, nil); j == 2 || i != 2 && j != i {
			t.Errorf("flow %d moved from %d to %d", from, i, j)
		}
	}
	if s := bind(t, m, wire.Addr{}, 443, &Options{Share: true}); s.Index() != 2 {
		t.Errorf("a new socket has index %d", s.Index())
	}
}

// TestHashOfTheEngineSpreads: where the engine gave a hash it decides.
func TestHashOfTheEngineSpreads(t *testing.T) {
	m, _ := newMux(Config{})
	all := share(t, m, 2)
	var used [2]bool
	for h := range uint32(64) {
		m.Input(0, &wire.Tuple{Local: ours, LocalPort: 443, Remote: theirs, RemotePort: 1}, &Datagram{Hash: h + 1})
		for i, s := range all {
			used[i] = used[i] || s.Readable()
			read(s)
		}
	}
	if !used[0] || !used[1] {
		t.Error("the hash changes nothing")
	}
}

// long and header make QUIC packets with a destination connection ID (RFC 8999 5).
func long(id []byte) []byte {
	return append(append([]byte{0xc3, 0, 0, 0, 1, byte(len(id))}, id...), "more"...)
}

func header(id []byte) []byte { return append(append([]byte{0x43}, id...), "more"...) }

func TestConnectionIDsDecide(t *testing.T) {
	for _, offset := range []int{0, 3, 7, -1} {
		m, _ := newMux(Config{})
		all := share(t, m, 3)
		if err := all[1].Steer(&Steering{Length: 8, Offset: offset}); err != nil {
			t.Fatal(err)
		}
		rnd := rand.New(rand.NewPCG(1, 1))
		for range 100 {
			id := make([]byte, 8)
			for i := range id {
				id[i] = byte(rnd.Uint32())
			}
			want := all[0].Steered(id)
			if offset >= 0 && want != int(id[offset])%3 {
				t.Errorf("offset %d: %x is for %d", offset, id, want)
			}
			for from := range uint16(3) { // a client that moves
				if i := where(t, m, all, 1+from, header(id)); i != want {
					t.Errorf("offset %d: short header of %x went to %d, want %d", offset, id, i, want)
				}
				if i := where(t, m, all, 1+from, long(id)); i != want {
					t.Errorf("offset %d: long header of %x went to %d, want %d", offset, id, i, want)
				}
			}
			other := append(id, 1, 2, 3, 4) // a client's own
			if a, b := where(t, m, all, 1, long(other)), where(t, m, all, 2, long(other)); a != b || a != all[0].Steered(other) {
				t.Errorf("a client's ID went to %d and %d", a, b)
			}
		}
	}
}

func TestPacketsWithoutConnectionIDGoByFlow(t *testing.T) {
	m, _ := newMux(Config{})
	all := share(t, m, 3)
	want := make([]int, 50)
	for from := range want {
		want[from] = where(t, m, all, uint16(from)+1, nil)
	}
	_ = all[0].Steer(&Steering{Length: 8})
	for _, data := range [][]byte{nil, {0x43}, {0x43, 1, 2, 3, 4, 5, 6, 7}, {0xc3}, {0xc3, 0, 0, 0, 1, 0, 9, 9}, {0xc3, 0, 0, 0, 1, 4, 9, 9, 9}} {
		for from := range want {
			if i := where(t, m, all, uint16(from)+1, data); i != want[from] {
				t.Errorf("%x: flow %d went to %d, want %d", data, from, i, want[from])
			}
		}
	}
	_ = all[0].Steer(nil)
	if i := where(t, m, all, 1, header(make([]byte, 8))); i != want[0] || all[0].Steered([]byte{1}) != -1 {
		t.Error("steering goes on after it was switched off")
	}
}

func TestSteeringBounds(t *testing.T) {
	m, _ := newMux(Config{})
	s := share(t, m, 1)[0]
	for _, st := range []Steering{{}, {Length: 21}, {Length: 8, Offset: 8}, {Length: 8, Offset: -2}} {
		if err := s.Steer(&st); !errors.Is(err, ErrSteering) {
			t.Errorf("%+v: %v", st, err)
		}
	}
	c := connect(t, m, wire.Tuple{Local: ours, Remote: theirs, RemotePort: 1}, nil)
	if err := c.Steer(nil); !errors.Is(err, ErrSteering) {
		t.Error(err)
	}
}
