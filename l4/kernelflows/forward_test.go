package kernelflows_test

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/millrace/millrace/l4/fastpath"
	"github.com/millrace/millrace/l4/kernelflows"
	"github.com/millrace/millrace/wire"
)

// Results of the program (linux/pkt_cls.h).
const (
	goOn     = 1<<32 - 1 // TC_ACT_UNSPEC
	redirect = 7
)

// conn is a connection through the gateway, as its client and its backend send.
type conn struct {
	sides [2]seg // the next packet of client and backend
	flow  fastpath.Flow
	slot  uint32
}

// open opens a connection through the handler, which has the numbers 1000 on both sides and windows of 5000, and enters
// it.
func (w *world) open(client, service string, proto uint8) *conn {
	w.t.Helper()
	c := &conn{}
	s := seg{
		from: macClient, to: macGw0, src: netip.MustParseAddrPort(client), dst: netip.MustParseAddrPort(service),
		proto: proto, ttl: 64, window: 5000, dontFrag: true, seq: 999,
	}
	if proto == wire.ProtoTCP {
		s.flags = wire.FlagSYN
	}
	frame := s.bytes()
	out := w.forwarded(0, frame)
	c.flow = fastpath.Flow{Proto: proto}
	c.flow.Directions[0] = pathOf(0, 1, frame, out)
	e := endsOf(out)
	r := seg{
		from: macBackend, to: macGw1, src: addrPort(e.dst, e.dport), dst: addrPort(e.src, e.sport),
		proto: proto, ttl: 64, window: 5000, dontFrag: true, seq: 999, ack: 1000,
	}
	if proto == wire.ProtoTCP {
		r.flags = wire.FlagSYN | wire.FlagACK
	}
	frame = r.bytes()
	c.flow.Directions[1] = pathOf(1, 0, frame, w.forwarded(1, frame))
	c.flow.Directions[1].From = [6]byte{}
	if proto == wire.ProtoTCP {
		s.flags, r.flags, s.ack = wire.FlagACK, wire.FlagACK, 1000
		s.seq, r.seq = 1000, 1000
		w.forwarded(0, s.bytes())
		known := fastpath.Sequence{End: 1000, Limit: 6000, Window: 5000, Acked: 1000}
		c.flow.Sequences = [2]fastpath.Sequence{known, known}
	}
	c.sides = [2]seg{s, r}
	w.enter(c)
	return c
}

func addrPort(a [16]byte, port uint16) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom16(a).Unmap(), port)
}

// enter enters a connection.
func (w *world) enter(c *conn) {
	w.t.Helper()
	l := w.table.Loop(0)
	var ok bool
	if c.slot, ok = l.Enter(&c.flow); !ok {
		w.t.Fatal("the connection was not entered")
	}
	must(w.t, l.Flush(w.now))
}

// everyKind runs a test with TCP and UDP over IPv4 and IPv6.
func everyKind(t *testing.T, f func(t *testing.T, w *world, c *conn)) {
	for _, k := range []struct {
		name, client, service string
		proto                 uint8
	}{
		{"TCP4", "198.18.0.9:3000", "198.18.1.1:80", wire.ProtoTCP},
		{"TCP6", "[2001:db8::9]:3000", "[2001:db8:1::1]:80", wire.ProtoTCP},
		{"UDP4", "198.18.0.9:3000", "198.18.1.1:53", wire.ProtoUDP},
		{"UDP6", "[2001:db8::9]:3000", "[2001:db8:1::1]:53", wire.ProtoUDP},
	} {
		t.Run(k.name, func(t *testing.T) {
			w := newWorld(t)
			f(t, w, w.open(k.client, k.service, k.proto))
		})
	}
}

// What the kernel forwards is byte for byte what the handler forwards, and is counted.
func TestForwardsAsTheHandlerDoes(t *testing.T) {
	everyKind(t, func(t *testing.T, w *world, c *conn) {
		for side, s := range c.sides {
			for _, n := range []int{0, 1, 100, 1400} {
				s.payload = n
				frame := s.bytes()
				result, got := w.table.Run(t, side, frame, 0)
				if result != redirect {
					t.Fatalf("side %d, %d bytes: the program returned %d", side, n, int32(result))
				}
				if want := w.forwarded(uint8(side), frame); !bytes.Equal(got, want) {
					t.Fatalf("side %d, %d bytes: the kernel forwards\n%x\nthe handler\n%x", side, n, got, want)
				}
			}
		}
		tr := w.table.Loop(0).Read(c.slot)
		head := 4 * uint64(len(c.sides[0].bytes()))
		if want := head + 1501; tr.Packets != [2]uint64{4, 4} || tr.Bytes != [2]uint64{want, want} {
			t.Errorf("%d packets and %d bytes are counted, want 4 and %d", tr.Packets, tr.Bytes, want)
		}
	})
}

// Behind XDP, tc counts what it was left and cannot forward any more, and nothing of what XDP has counted.
func TestWhatTcCannotForwardBehindXDPIsLost(t *testing.T) {
	w := newWorld(t)
	must(t, w.ns.Do(func() error {
		_, err := w.table.Attach(0, 1, kernelflows.HookXDP)
		return err
	}))
	c := w.open("198.18.0.9:3000", "198.18.1.1:80", wire.ProtoTCP)
	s := c.sides[0]
	s.flags |= wire.FlagFIN
	other := c.sides[0]
	other.src = withPort(other.src, 3001)
	before, err := w.table.Stats()
	must(t, err)
	for _, frame := range [][]byte{s.bytes(), other.bytes()} {
		if result, out := w.table.Run(t, 0, frame, 0); result != goOn || !bytes.Equal(out, frame) {
			t.Errorf("the program returned %d and\n%x of\n%x", int32(result), out, frame)
		}
	}
	after, err := w.table.Stats()
	must(t, err)
	if why := reasonOf(&before, &after); why != "lost" || after.Packets[9]-before.Packets[9] != 1 {
		t.Errorf("counted %q, want one packet lost", why)
	}
}
