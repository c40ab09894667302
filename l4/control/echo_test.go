package control

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// echoPair is an echo request to an address of the gateway's, of so many bytes, and the reply to it as a whole.
type echoPair struct{ request, reply []byte }

func echoPairs(t *testing.T, n int) (list []echoPair) {
	t.Helper()
	for _, c := range [][2]string{{"198.18.0.9", "198.18.1.1"}, {"198.18.0.9", "198.18.2.1"}, {"2001:db8::9", "2001:db8:1::1"}, {"2001:db8::9", "2001:db8:2::1"}} {
		p := echoRequest(c[0], c[1], 0)
		data := make([]byte, n)
		for i := range data {
			data[i] = byte(i * 7)
		}
		if p[14]>>4 == 4 {
			p = append(p[:42], data...) // without the padding of a short frame
			wire.IPv4(p[14:]).SetTotalLen(uint16(len(p) - 14))
			wire.IPv4(p[14:]).FillChecksum()
			wire.ICMP(p[34:]).FillChecksum()
		} else {
			p = append(p[:62], data...)
			wire.IPv6(p[14:]).SetPayloadLen(uint16(len(p) - 54))
			m, ip := wire.ICMP(p[54:]), wire.IPv6(p[14:])
			m.SetChecksum(0)
			m.SetChecksum(wire.Fold(wire.Sum(m, wire.PseudoHeader6(ip.Src(), ip.Dst(), wire.ProtoICMPv6, uint32(len(m))))))
		}
		w := newWorld(t, fill(""))
		list = append(list, echoPair{p, w.expect(0, bytes.Clone(p), 0)})
	}
	return list
}

// identification returns that of a fragment.
func identification(p []byte) uint32 {
	if p[14]>>4 == 4 {
		return uint32(wire.IPv4(p[14:]).ID())
	}
	it := wire.ExtHeaders(wire.IPv6(p[14:]))
	for !it.Fragment().Present() && it.Next() {
	}
	return it.Fragment().ID
}

// The fragments of the reply, put together, are the reply to the whole request (RFC 1122 3.2.2.6, RFC 4443 4.2).
func TestFragmentedEchoRequestsAreAnswered(t *testing.T) {
	for _, x := range echoPairs(t, 1400) {
		w := newWorld(t, fill(""))
		for id := range uint32(3) {
			var replies [][]byte
			for _, p := range split(x.request, 400, 70+id) {
				replies = append(replies, w.expect(0, p, 0))
			}
			got, want := join(t, replies), bytes.Clone(x.reply)
			if want[14]>>4 == 4 { // the identification is the gateway's
				wire.IPv4(want[14:]).SetID(wire.IPv4(got[14:]).ID())
				wire.IPv4(want[14:]).SetDontFragment(false)
				wire.IPv4(want[14:]).FillChecksum()
			}
			if !bytes.Equal(got, want) {
				t.Errorf("got\n%x\nwant\n%x", got, want)
			}
		}
		if err := w.h.Audit(); err != nil {
			t.Error(err)
		}
	}
}

// Datagrams of many clients leave from one address, so they are numbered by the gateway.
func TestRepliesToFragmentedEchoRequestsHaveIdentificationsOfTheirOwn(t *testing.T) {
	for _, x := range echoPairs(t, 1400) {
		w := newWorld(t, fill(""))
		seen := map[uint32]bool{}
		for id := range uint32(20) {
			seen[identification(w.expect(0, split(x.request, 400, id)[0], 0))] = true
		}
		if len(seen) != 20 {
			t.Errorf("%d identifications of 20 datagrams", len(seen))
		}
	}
}

// Fragments that come before the first wait for it, as those of a service do.
func TestFragmentsOfEchoRequestsWaitForTheirFirst(t *testing.T) {
	for _, x := range echoPairs(t, 1400) {
		w := newWorld(t, fill(""))
		o := w.withOutput()
		list := split(x.request, 400, 9)
		o.held(0, list[1:]...)
		replies := [][]byte{w.expect(0, list[0], 0)}
		w.h.Tick(w.now)
		for _, s := range o.resumed {
			if s.verdict != packet.Forward || s.port != 0 {
				t.Fatalf("a fragment that waited: %v to %d", s.verdict, s.port)
			}
			replies = append(replies, s.p)
		}
		if got := join(t, replies); !bytes.Equal(got[len(got)-1400:], x.reply[len(x.reply)-1400:]) {
			t.Errorf("got %x", got)
		}
	}
}

// Extension headers in front of the fragment header are of the path, and no part of the reply. Behind it they are data, which
// cannot be taken out of a fragment.
func TestFragmentedEchoRequestsBehindExtensionHeaders(t *testing.T) {
	const hopByHop = 0
	x := echoPairs(t, 1400)[2]
	for _, kinds := range [][]uint8{{hopByHop}, {wire.ProtoDestOpts}, {hopByHop, wire.ProtoDestOpts}} {
		w := newWorld(t, fill(""))
		var replies [][]byte
		for _, p := range split(x.request, 400, 5) {
			replies = append(replies, w.expect(0, withExtensions(p, kinds...), 0))
		}
		if got := join(t, replies); !bytes.Equal(got, x.reply) {
			t.Errorf("%v: got\n%x\nwant\n%x", kinds, got, x.reply)
		}
	}
	w := newWorld(t, fill(""))
	w.refused(0, split(withExtensions(x.request, wire.ProtoDestOpts), 400, 5)[0], packet.DropFragment)
}

func TestFragmentsOfOtherMessagesAreDropped(t *testing.T) {
	for _, x := range echoPairs(t, 1400) {
		w := newWorld(t, fill(""))
		l4 := len(x.request) - 1408
		for _, kind := range []uint8{0, 3, 13, 129, 135} { // none of them is a request of its family
			p := bytes.Clone(x.request)
			p[l4] = kind
			w.refused(0, split(p, 400, uint32(kind))[0], packet.DropFragment)
		}
		p := bytes.Clone(x.request)
		dst := p[30:34]
		if p[14]>>4 == 6 {
			dst = p[38:54]
		}
		dst[len(dst)-1] = 77 // no address of the gateway's
		if p[14]>>4 == 4 {
			wire.IPv4(p[14:]).FillChecksum()
		}
		w.refused(0, split(p, 400, 3)[0], packet.DropNoService)
		w.refused(0, split(p, 400, 3)[1], packet.DropFragment) // it is not remembered
	}
}

// A second first fragment that differs ends the datagram, as that of a service.
func TestFragmentsOfEchoRequestsThatContradictEachOther(t *testing.T) {
	for _, x := range echoPairs(t, 1400) {
		w := newWorld(t, fill(""))
		list := split(x.request, 400, 4)
		w.expect(0, bytes.Clone(list[0]), 0)
		w.expect(0, bytes.Clone(list[0]), 0) // sent again
		other := bytes.Clone(list[0])
		other[len(other)-398]++ // the checksum of the message
		w.refused(0, other, packet.DropFragment)
		w.refused(0, list[1], packet.DropFragment)
	}
}

// Echo requests that never become whole fill no backend's memory: they do not have the datagrams of services held.
func TestFragmentedEchoRequestsAreNotUnfinishedDatagrams(t *testing.T) {
	w := newWorld(t, fill(""))
	w.withOutput()
	for id := range uint32(400) {
		p := split(echoRequest(fmt.Sprintf("198.18.%d.%d", 100+id/200, 1+id%200), "198.18.1.1", 0), 16, id)[0]
		w.expect(0, p, 0)
	}
	w.expect(0, split(datagrams()[0].bytes(), 1000, 7)[0], 1)
}

// Later fragments cost the budget of replies as well.
func TestRepliesToFragmentsHaveARate(t *testing.T) {
	x := echoPairs(t, 1400)[0]
	w := newWorld(t, fill(""))
	list := split(x.request, 400, 4)
	w.expect(0, list[0], 0)
	answers := 1
	for range 2 * hostAtOnce {
		switch s := w.send(0, list[1]); s.verdict {
		case packet.Forward:
			answers++
		case packet.DropRateLimit:
		default:
			t.Fatal(s.verdict)
		}
	}
	if answers != hostAtOnce {
		t.Errorf("%d answers at once", answers)
	}
	w.now = w.now.Add(time.Second)
	w.expect(0, list[2], 0)
}
