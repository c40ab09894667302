package control

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/millrace/millrace/l4/datapath"
	"github.com/millrace/millrace/packet"
)

// forgeDatagram sends a datagram in the name of a client from another link address, which is forwarded.
func (w *world) forgeDatagram(src, dst string) {
	w.t.Helper()
	s := client(src, dst, "")
	s.from = macForger
	if got := w.send(0, s.bytes()); got.verdict != packet.Forward || got.port != 1 {
		w.t.Fatalf("a forged datagram: %v to %d", got.verdict, got.port)
	}
}

// udpFlows are a client's flow over both families, with the address of the client.
var udpFlows = [][3]string{{host, dns, "198.18.0.9"}, {"[2001:db8::9]:40000", "[2001:db8:1::1]:53", "2001:db8::9"}}

// A datagram that is forged to a standby leads no replies elsewhere: they take the kernel's route to the client until the
// client's own datagrams come that way. It does not keep the records of the peer from counting either.
func TestForgedDatagramsDoNotHarmAStandby(t *testing.T) {
	for _, keys := range []string{"", "source: client"} {
		for _, f := range udpFlows {
			t.Run(fmt.Sprint(keys, f[0]), func(t *testing.T) {
				a, b := syncedWorld(t, keys, 0), routedWorld(t, fill(keys), 1)
				to := flowOf(a.expect(0, client(f[0], f[1], "").bytes(), 1))
				back := backendSends(to.dst.String(), to.src.String(), "")
				a.expect(1, back.bytes(), 0)
				a.recordsTo(b, 2)
				for range 3 {
					b.forgeDatagram(f[0], f[1])
					b.after(20 * time.Millisecond)
				}
				b.resolved()
				b.toClientAt(back) // the first packet after the take-over is the backend's
				b.forgeDatagram(f[0], f[1])
				b.toClientAt(back)
				if n := b.recordsTo(a, 2); n != 0 {
					t.Errorf("forged datagrams are sent to the peer as %d records", n)
				}

				own := client(f[0], f[1], "")
				b.expect(0, own.bytes(), 1)
				own.from = [6]byte{2, 0, 0, 0, 0, 0xc2} // a router that is another now: the client's own datagrams count
				b.expect(0, own.bytes(), 1)
				if got := b.send(1, back.bytes()); got.verdict != packet.Forward || [6]byte(got.p[:6]) != own.from {
					t.Errorf("a reply leaves by %v to %x", got.verdict, got.p[:6])
				}
				b.audit()
			})
		}
	}
}

// A flow that only a record and forged datagrams speak of makes way for the next record: the client's port leads another way
// at the peer.
func TestForgedDatagramsKeepNoRecordOut(t *testing.T) {
	a, b := syncedWorld(t, "", 0), routedWorld(t, fill(""), 1)
	to := flowOf(a.expect(0, client(host, dns, "").bytes(), 1))
	back := backendSends(to.dst.String(), to.src.String(), "")
	a.expect(1, back.bytes(), 0)
	var list []datapath.Record
	a.g.synced.Changes(func(r *datapath.Record) bool { list = append(list, *r); return true })
	b.g.synced.Import(list)
	b.forgeDatagram(host, dns)
	b.resolved()
	b.forgeDatagram(host, dns)
	b.toClientAt(back)
	other := list[0]
	other.Source = netip.AddrPortFrom(other.Source.Addr(), other.Source.Port()+1)
	b.g.synced.Import([]datapath.Record{other})
	b.outcome(t, map[string]uint64{"entered": 2})
	if c := b.conns()[netip.MustParseAddrPort(host)]; c.Source != other.Source {
		t.Errorf("the backend sees %v, by the record %v", c.Source, other.Source)
	}
	b.audit()
}
