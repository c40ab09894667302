package control

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/millrace/millrace/l4/datapath"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// asks is a request of a host for the link address of a gateway's address of its family.
func asks(src string, mac wire.MAC) []byte {
	a := netip.MustParseAddr(src)
	if a.Is6() {
		p := solicit(src, "2001:db8:1::1", "2001:db8:1::1", true, 255)
		at := 14 + wire.IPv6Len + wire.NeighborAdvertLen // of the option's address, behind type and length
		copy(p[at+2:], mac[:])
		wire.ICMPv6(p[14+wire.IPv6Len:]).FillChecksum(wire.IPv6(p[14:]).Pseudo())
		return p
	}
	p := wire.AppendEthernet(nil, wire.Broadcast, mac, wire.EtherTypeARP)
	return wire.AppendARP(p, wire.ARPRequest, wire.ARPHost{MAC: mac, Addr: a.As4()}, wire.ARPHost{Addr: [4]byte{198, 18, 1, 1}})
}

// reported returns the senders of requests that the loop reports, with their link addresses.
func (w *world) reported() map[netip.Addr]wire.MAC {
	m := map[netip.Addr]wire.MAC{}
	var list [32]datapath.Sender
	for n := w.h.Senders(list[:]); n > 0; n = w.h.Senders(list[:]) {
		for _, s := range list[:n] {
			m[s.Addr] = s.Hop.MAC
		}
	}
	return m
}

// A flood of requests, of many senders or of one that claims a backend's address, keeps no backend's new link address from
// the kernel: neither at once, nor while nothing takes the senders.
func TestAFloodOfRequestsHidesNoBackend(t *testing.T) {
	moved := wire.MAC{2, 0, 0, 0, 0xaa, 1}
	for _, c := range []struct{ backend, others, one string }{
		{"198.18.2.11", "198.18.%d.%d", "198.18.2.12"}, {"2001:db8:2::11", "2001:db8:77:%d::%d", "2001:db8:2::12"},
	} {
		for _, flood := range []string{"many", "one"} {
			w := newWorld(t, fill(""))
			woken := 0
			w.h.ReportSenders(func() { woken++ })
			for i := range 5000 {
				src := fmt.Sprintf(c.others, 100+i/250, 1+i%250)
				if flood == "one" {
					src = c.one
				}
				w.now = w.now.Add(time.Millisecond)
				w.expect(0, asks(src, macForger), 0)
			}
			w.expect(1, asks(c.backend, moved), 1)
			if got := w.reported(); got[netip.MustParseAddr(c.backend)] != moved || woken < 10 || woken > 200 {
				t.Errorf("%s, of %s: %d reports, and the backend is at %v", c.backend, flood, woken, got[netip.MustParseAddr(c.backend)])
			}
			for range 100 { // each second 100 of others, while they are taken
				w.now = w.now.Add(10 * time.Millisecond)
				w.expect(0, asks(fmt.Sprintf(c.others, 200, 1+w.now.Sub(0)/1e7%250), macForger), 0)
				w.reported()
			}
			w.expect(1, asks(c.backend, moved), 1)
			if got := w.reported(); got[netip.MustParseAddr(c.backend)] != moved {
				t.Errorf("%s, of %s: later the backend is at %v", c.backend, flood, got[netip.MustParseAddr(c.backend)])
			}
		}
	}
}

// Others are reported as well, at a rate: routers of the gateway have no addresses that it knows.
func TestSendersAreReportedAtARate(t *testing.T) {
	w := newWorld(t, fill(""))
	w.h.ReportSenders(func() {})
	w.expect(0, asks("198.18.0.1", macForger), 0)
	if got := w.reported(); got[netip.MustParseAddr("198.18.0.1")] != macForger {
		t.Errorf("a router: %v", got)
	}
	reports := 0
	for i := range 2000 {
		w.expect(0, asks(fmt.Sprintf("198.18.%d.%d", 100+i/250, 1+i%250), macForger), 0)
		reports += len(w.reported())
		w.now = w.now.Add(time.Millisecond)
	}
	if reports < 100 || reports > 64+2*100+1 {
		t.Errorf("%d reports in 2 s", reports)
	}
}

// Requests for link addresses touch no budget of answers: errors go on during a flood of them.
func TestAFloodOfRequestsSuppressesNoAnswer(t *testing.T) {
	list := questions()
	w := newWorld(t, fmt.Sprintf(limitConfig, "reject"))
	w.h.ReportSenders(func() {})
	for range 20 * hostAtOnce {
		for _, src := range []string{"198.18.100.1", "2001:db8::9"} {
			if s := w.send(0, asks(src, macForger)); s.verdict != packet.Forward && s.verdict != packet.DropNoService {
				t.Fatal(s.verdict)
			}
		}
	}
	for i := range list {
		if n := w.answered(&list[i], 1, 1); n != 1 {
			t.Errorf("%s: %d answers", list[i].name, n)
		}
	}
}
