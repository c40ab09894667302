package udp

import (
	"testing"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

var (
	ours   = wire.AddrFrom4([4]byte{198, 18, 0, 1})
	ours2  = wire.AddrFrom4([4]byte{198, 18, 0, 2})
	theirs = wire.AddrFrom4([4]byte{198, 18, 0, 9})
	ours6  = wire.Addr{0x20, 1, 0xd, 0xb8, 15: 1}
	peer6  = wire.Addr{0x20, 1, 0xd, 0xb8, 15: 9}
	many   = wire.AddrFrom4([4]byte{239, 1, 2, 3})
)

// outbox is an Output that keeps what is sent, and Groups that keeps what is wanted.
type outbox struct {
	sent    []sent
	offload int
	verdict packet.Verdict // Undecided is Forward
	room    int            // datagrams until DropTxFull; below 0 is no bound
	wanted  map[want][]wire.Addr
	include map[want]bool
}

type want struct {
	socket, iface uint32
	group         wire.Addr
}

type sent struct {
	Outgoing
	t    wire.Tuple
	data string
}

func (o *outbox) Offload() int { return o.offload }

func (o *outbox) Send(_ clock.Time, d *Outgoing) packet.Verdict {
	if o.verdict != packet.Undecided {
		return o.verdict
	}
	if o.room == 0 {
		return packet.DropTxFull
	}
	o.room--
	s := sent{Outgoing: *d, t: *d.Tuple}
	for _, p := range d.Payload {
		s.data += string(p)
	}
	s.Payload = nil
	o.sent = append(o.sent, s)
	return packet.Forward
}

func (o *outbox) Listen(_ clock.Time, socket, iface uint32, group wire.Addr, include bool, sources []wire.Addr) error {
	w := want{socket, iface, group}
	if include && len(sources) == 0 {
		delete(o.wanted, w)
		return nil
	}
	o.wanted[w], o.include[w] = append([]wire.Addr(nil), sources...), include
	return nil
}

func newMux(cfg Config) (*Mux, *outbox) {
	o := &outbox{room: -1, wanted: map[want][]wire.Addr{}, include: map[want]bool{}}
	cfg.Output, cfg.Groups, cfg.Seed = o, o, 1
	return NewMux(cfg), o
}

func bind(t testing.TB, m *Mux, a wire.Addr, port uint16, o *Options) *Socket {
	t.Helper()
	s, err := m.Bind(a, port, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func connect(t testing.TB, m *Mux, tuple wire.Tuple, o *Options) *Socket {
	t.Helper()
	s, err := m.Connect(tuple, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// input gives m a datagram.
func input(m *Mux, local wire.Addr, port uint16, remote wire.Addr, from uint16, data string) packet.Verdict {
	return m.Input(0, &wire.Tuple{Local: local, LocalPort: port, Remote: remote, RemotePort: from},
		&Datagram{Payload: [][]byte{[]byte(data)}, Len: len(data)})
}

// read returns the next datagram of s, "" for none.
func read(s *Socket) string {
	b := make([]byte, 65535)
	m := []Message{{Buffers: [][]byte{b}}}
	if s.Read(0, m) == 0 {
		return ""
	}
	return string(b[:m[0].N])
}
