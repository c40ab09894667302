package control

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/l4/datapath"
	"github.com/millrace/millrace/packet"
)

// withLoops is the configuration of the world on several queues.
func withLoops(source string, n int) string {
	queues := fmt.Sprintf("devices: [{name: gw0, queues: %d}, {name: gw1, queues: %[1]d}]", n)
	return strings.Replace(fill(source), "devices: [{name: gw0}, {name: gw1}]", queues, 1)
}

// at passes a packet through a loop and, as long as that hands it over, through the loop that it names,
// without another pass of the engine, as a stack.Mesh does. It returns which loop decided.
func (w *world) at(loop int, from uint8, p []byte) (sent, int) {
	w.t.Helper()
	b := w.batch(from, p)
	w.h = w.g.Handlers()[loop]
	w.run(b)
	d := &b.D[0]
	for d.Verdict == packet.Handover {
		if int(d.Flow) == loop || d.Port != from || d.Flags.Has(packet.FlagHandedAgain) || !bytes.Equal(b.Bytes(0), p) {
			w.t.Fatalf("loop %d hands over %+v", loop, d)
		}
		loop = int(d.Flow)
		d.Verdict, d.Flow = packet.Undecided, 0
		d.Flags |= packet.FlagHanded | d.Flags&packet.FlagHanded<<1
		w.g.Handlers()[loop].Handle(w.now, b)
	}
	return sent{d.Verdict, d.Port, bytes.Clone(b.Bytes(0))}, loop
}

// TestBothDirectionsMeetOnOneLoop has each packet of a connection come to another loop.
func TestBothDirectionsMeetOnOneLoop(t *testing.T) {
	for _, source := range []string{"", "source: client"} {
		for n := 2; n <= 5; n++ {
			w := newWorld(t, withLoops(source, n))
			owners, arrive := map[int]int{}, 0
			pass := func(from uint8, p []byte, to uint8) ([]byte, int) {
				t.Helper()
				arrive++
				s, loop := w.at(arrive%n, from, p)
				if s.verdict != packet.Forward || s.port != to {
					t.Fatalf("%s, %d loops: verdict %v to port %d, want forward to %d", source, n, s.verdict, s.port, to)
				}
				w.checksumsRight(s.p)
				return s.p, loop
			}
			for i := range 60 {
				from, front, flags := fmt.Sprintf("198.18.0.%d:%d", 1+i, 40000+i), "198.18.1.1:80", "S"
				if i%2 == 1 {
					from, front = fmt.Sprintf("[2001:db8::%x]:%d", 1+i, 40000+i), "[2001:db8:1::1]:80"
				}
				if i%3 == 0 {
					front, flags = strings.Replace(front, ":80", ":53", 1), ""
				}
				there, loop := pass(0, client(from, front, flags).bytes(), 1)
				owners[loop]++
				back, at := pass(1, answer(there, strings.Replace(flags, "S", "SA", 1)).bytes(), 0)
				if f := flowOf(back); at != loop || f.src != netip.MustParseAddrPort(front) || f.dst != netip.MustParseAddrPort(from) {
					t.Fatalf("%s, %d loops: opened on loop %d, the answer to %v on loop %d", source, n, loop, f.dst, at)
				}
				again, at := pass(0, client(from, front, strings.Replace(flags, "S", "A", 1)).bytes(), 1)
				if at != loop || flowOf(again).src != flowOf(there).src {
					t.Fatalf("%s, %d loops: opened on loop %d from %v, continued on loop %d from %v", source, n, loop, flowOf(there).src, at, flowOf(again).src)
				}
			}
			for i, h := range w.g.Handlers() {
				if owners[i] == 0 || int(h.Connections()) != owners[i] {
					t.Errorf("%s, %d loops: loop %d has %d connections, opened %d", source, n, i, h.Connections(), owners[i])
				}
			}
			if st := w.g.Status(); st.Connections != 60 || st.Forwarded != 180 || len(st.Dropped) > 0 {
				t.Errorf("%s, %d loops: %+v", source, n, st)
			}
		}
	}
}

func TestALoopAloneHandsNothingOver(t *testing.T) {
	w := newWorld(t, fill("source: client"))
	for i := range 50 {
		if _, loop := w.at(0, 0, client(fmt.Sprintf("198.18.0.%d:40000", 1+i), "198.18.1.1:80", "S").bytes()); loop != 0 {
			t.Fatal("there is no other loop")
		}
	}
}

func TestWhatIsNobodysEndsWhereItCame(t *testing.T) {
	w := newWorld(t, withLoops("", 4))
	for loop := range 4 {
		for what, c := range map[string]struct {
			p   []byte
			why packet.Verdict
		}{
			"to no service":             {client("198.18.0.9:40000", "198.18.1.1:81", "S").bytes(), packet.DropNoService},
			"from no endpoint":          {client("198.18.0.9:40000", "198.18.2.1:2000", "S").bytes(), packet.DropNoFlow},
			"at its last hop, answered": {seg{src: netip.MustParseAddrPort("198.18.0.9:1"), dst: netip.MustParseAddrPort("198.18.1.1:80"), flags: "S", ttl: 1, from: macClient, to: macGw0}.bytes(), packet.Forward},
			"for another host":          {seg{src: netip.MustParseAddrPort("198.18.0.9:1"), dst: netip.MustParseAddrPort("198.18.1.1:80"), flags: "S", from: macClient, to: macGw1}.bytes(), packet.DropUnsupported},
		} {
			if s, at := w.at(loop, 0, c.p); s.verdict != c.why || at != loop {
				t.Errorf("%s: %v on loop %d, came to %d", what, s.verdict, at, loop)
			}
		}
	}
}

func TestAutomaticQueuesAreSettledBeforeTheStart(t *testing.T) {
	c := parse(t, strings.Replace(withLoops("", 2), "queues: 2", "queues: auto", 2))
	if c.Loops() != config.QueuesAuto {
		t.Fatalf("%d loops before they are known", c.Loops())
	}
	opt := Options{Devices: []datapath.Device{{}}, Resolver: hopsOf(c)}
	if _, err := Open(c, opt); err == nil {
		t.Error("a gateway with an unknown number of loops was opened")
	}
	c.SetQueues(3)
	c.SNATPorts = config.PortRange{First: 5000, Last: 5001}
	if _, err := Open(c, opt); err == nil {
		t.Error("three loops share two ports")
	}
	c.SNATPorts.Last++
	g, err := Open(c, opt)
	if err != nil || len(g.Handlers()) != 3 {
		t.Fatal(err)
	}
	c.SetQueues(5) // what is settled stays
	if err := g.Close(); err != nil || c.Loops() != 3 {
		t.Errorf("%d loops, %v", c.Loops(), err)
	}
}

// TestFragmentsMeetWhateverQueuesTheyComeBy has each fragment of a datagram, and of its answer, come to
// another loop.
func TestFragmentsMeetWhateverQueuesTheyComeBy(t *testing.T) {
	const loops = 4
	for _, source := range []string{"", "source: client"} {
		w := newWorld(t, withLoops(source, loops))
		arrive := 0
		all := func(from uint8, list [][]byte, to uint8) (out [][]byte, loop int) {
			t.Helper()
			owners := map[int]bool{}
			for _, p := range list {
				arrive++
				s, at := w.at(arrive%loops, from, p)
				if s.verdict != packet.Forward || s.port != to {
					t.Fatalf("%v to port %d", s.verdict, s.port)
				}
				out, owners[at], loop = append(out, s.p), true, at
			}
			if len(owners) != 1 {
				t.Fatalf("decided by loops %v", owners)
			}
			return out, loop
		}
		for i := range 24 {
			s := datagrams()[i%2]
			s.src = netip.AddrPortFrom(s.src.Addr(), uint16(40000+i))
			out, loop := all(0, split(s.bytes(), 1000, uint32(i)), 1)
			got := join(t, out)
			w.checksumsRight(got)
			back := answer(got, "")
			back.payload = strings.Repeat("reply", 600)
			out, at := all(1, split(back.bytes(), 512, uint32(i)), 0)
			got = join(t, out)
			w.checksumsRight(got)
			if f := flowOf(got); f.payload != back.payload || f.dst != s.src || at != loop {
				t.Fatalf("there by loop %d, back by loop %d to %v", loop, at, f.dst)
			}
		}
	}
}

// What spoils a datagram does so where its fragments meet.
func TestAMalformedFragmentSpoilsItsDatagramOnAnyLoop(t *testing.T) {
	const loops = 4
	w := newWorld(t, withLoops("", loops))
	s := client(host, web, "S")
	if got, _ := w.at(0, 0, s.bytes()); got.verdict != packet.Forward {
		t.Fatal(got.verdict)
	}
	s = client(host, web, "PA")
	s.payload = strings.Repeat("x", 3000)
	for id := range uint32(20) {
		good := split(s.bytes(), 1000, id)
		for i, c := range []struct {
			p   []byte
			why packet.Verdict
		}{
			{good[0], packet.Forward},
			{split(s.bytes(), 16, id)[0], packet.DropMalformed}, // RFC 1858 3
			{good[1], packet.DropFragment},
		} {
			if got, _ := w.at((i+int(id))%loops, 0, c.p); got.verdict != c.why {
				t.Fatalf("datagram %d, fragment %d: %v, want %v", id, i, got.verdict, c.why)
			}
		}
	}
}
