package stack

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
)

// targetOf returns the target of one frame.
func targetOf(t *testing.T, d *Dispatcher, frame []byte) Target {
	t.Helper()
	got, _ := d.classify(0, newTestBatches(t).batch(t, frame))
	return got
}

// fragment4 returns a fragment of a datagram to 198.18.0.10. Offset is in units of 8 bytes.
func fragment4(t *testing.T, src string, proto layers.IPProtocol, id, offset uint16, payload []byte) []byte {
	h := header4(src, "198.18.0.10", proto)
	h.Id, h.FragOffset, h.Flags = id, offset, layers.IPv4MoreFragments
	return frameOf(t, layers.EthernetTypeIPv4, h, gopacket.Payload(payload))
}

func TestFragmentsAfterTheFirstHaveClaimsOfTheirOwn(t *testing.T) {
	addr := netip.MustParseAddr("198.18.0.10")
	later := Claim{pmd.Rule{Addr: addr, Proto: udp, LaterFragments: true}, ToHandler(0)}
	claims := []Claim{to("198.18.0.10", udp, 0, 0, ToHandler(2)), later, to("198.18.0.10", udp, 80, 80, ToHandler(0)), to("198.18.0.10", 0, 0, 0, ToHandler(1))}
	for range 2 {
		slices.Reverse(claims) // the order of the claims does not matter
		d, _ := NewDispatcher(tableOf(t, claims...), discard{}, discard{}, discard{})
		for _, tt := range []struct {
			what  string
			frame []byte
			want  Target
		}{
			{"a later fragment", fragment4(t, "198.18.1.1", layers.IPProtocolUDP, 1, 1, []byte("rest")), ToHandler(0)},
			{"a later fragment of another protocol", fragment4(t, "198.18.1.1", layers.IPProtocolTCP, 2, 1, []byte("rest")), ToHandler(1)},
			{"a datagram to another port", udp4(t, "198.18.1.1:1", "198.18.0.10:81"), ToHandler(2)},
			{"a datagram to the port", udp4(t, "198.18.1.1:1", "198.18.0.10:80"), ToHandler(0)},
		} {
			if got := targetOf(t, d, tt.frame); got != tt.want {
				t.Errorf("%s: target %s, want %s", tt.what, got, tt.want)
			}
		}
	}
	if err := NewAddressTable().Replace([]Claim{later, {later.Rule, ToHandler(1)}}); err == nil {
		t.Error("the later fragments of one address were given to two handlers")
	}
}

func TestFragmentsOfTwoSendersAreNotMixedUp(t *testing.T) {
	d, _ := NewDispatcher(tableOf(t, to("198.18.0.10", udp, 80, 80, ToHandler(0)), to("198.18.0.10", 0, 0, 0, ToHandler(1))), discard{}, discard{})
	whole := udp4(t, "198.18.1.1:1", "198.18.0.10:80")
	if got := targetOf(t, d, fragment4(t, "198.18.1.1", layers.IPProtocolUDP, 7, 0, whole[34:42])); got != ToHandler(0) {
		t.Fatalf("the first fragment has the target %s", got)
	}
	for src, want := range map[string]Target{"198.18.1.1": ToHandler(0), "198.19.1.1": ToHandler(1)} { // of one slot
		if got := targetOf(t, d, fragment4(t, src, layers.IPProtocolUDP, 7, 1, []byte("rest"))); got != want {
			t.Errorf("a later fragment from %s has the target %s, want %s", src, got, want)
		}
	}
}

func TestTheNextClaimIsAnotherHandlers(t *testing.T) {
	a, b := ToHandler(0), ToHandler(1)
	prefix := func(addr string, bits uint8, to Target) Claim {
		return Claim{pmd.Rule{Addr: netip.MustParseAddr(addr), Bits: bits}, to}
	}
	from := Claim{pmd.Rule{Addr: netip.MustParseAddr("198.18.1.1"), Kind: pmd.From}, b}
	port, proto, whole := to("198.18.0.10", udp, 80, 80, a), to("198.18.0.10", udp, 0, 0, a), to("198.18.0.10", 0, 0, 0, a)
	near := Claim{pmd.Rule{Addr: netip.MustParseAddr("198.18.0.10"), Kind: pmd.Neighbor}, a}
	datagram := udp4(t, "198.18.1.1:1", "198.18.0.10:80")
	for _, tt := range []struct {
		what   string
		claims []Claim
		frame  []byte
		want   Target
	}{
		{"behind a port and a protocol", []Claim{port, proto, to("198.18.0.10", 0, 0, 0, b)}, datagram, b},
		{"behind an address", []Claim{port, whole, prefix("198.18.0.0", 24, b)}, datagram, b},
		{"behind a prefix", []Claim{whole, prefix("198.18.0.0", 24, a), prefix("198.18.0.0", 16, b)}, datagram, b},
		{"the source", []Claim{whole, prefix("198.18.0.0", 24, a), from}, datagram, b},
		{"none", []Claim{port, proto, whole, prefix("198.18.0.0", 24, a)}, datagram, 0},
		{"the kernel's", []Claim{port, to("198.18.0.10", 0, 0, 0, ToKernel)}, datagram, 0},
		{"of a handler that this loop does not have", []Claim{port, to("198.18.0.10", 0, 0, 0, ToHandler(2))}, datagram, 0},
		{"of ARP", []Claim{near, to("198.18.0.10", 0, 0, 0, b)}, arpFor(t, "198.18.0.10"), 0},
		{"of no packet", []Claim{port}, nil, 0},
	} {
		d, _ := NewDispatcher(tableOf(t, tt.claims...), discard{}, discard{})
		if got := d.nextTarget(0, tt.frame, a); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.what, got, tt.want)
		}
	}
	d, _ := NewDispatcher(tableOf(t, to("198.18.0.10", 0, 0, 0, ToHandler(2))), discard{}, discard{})
	if got := targetOf(t, d, datagram); got != 0 {
		t.Errorf("a packet for a handler that the loop does not have has the target %s", got)
	}
}

func TestANewTableCountsFromTheNextBatchOn(t *testing.T) {
	claims := []Claim{to("198.18.0.10", udp, 80, 80, ToHandler(0))}
	table := tableOf(t, claims...)
	d, _ := NewDispatcher(table, discard{}, discard{})
	frame := udp4(t, "198.18.1.1:1", "198.18.0.10:80")
	if got := targetOf(t, d, frame); got != ToHandler(0) {
		t.Fatalf("target %s", got)
	}
	claims[0].Target = ToHandler(1)
	if got := table.Claims()[0].Target; got != ToHandler(0) {
		t.Errorf("the table follows the caller's slice: target %s", got)
	}
	if err := table.Replace(claims); err != nil {
		t.Fatal(err)
	}
	if got := targetOf(t, d, frame); got != ToHandler(1) {
		t.Errorf("the packet after the change has the target %s", got)
	}
}

func TestTheEarliestTickOfAllHandlersCounts(t *testing.T) {
	for _, next := range [][2]clock.Time{{50, 70}, {70, 50}} {
		d, _ := NewDispatcher(NewAddressTable(), &recorder{next: next[0]}, &recorder{next: next[1]})
		if got := d.Tick(1); got != 50 {
			t.Errorf("handlers want %d, the dispatcher %d", next, got)
		}
	}
}

// TestAHandlerSeesNoVerdictAndNoMatchOfAnother has a batch offered twice, and another one after it.
func TestAHandlerSeesNoVerdictAndNoMatchOfAnother(t *testing.T) {
	a, b := &recorder{verdict: packet.DropNoFlow}, &recorder{verdict: packet.Deliver}
	d, _ := NewDispatcher(tableOf(t, to("198.18.0.10", udp, 80, 80, ToHandler(0)), to("198.18.0.10", 0, 0, 0, ToHandler(1))), a, b)
	frames := [][]byte{
		udp4(t, "198.18.1.1:1", "198.18.0.10:81"), udp4(t, "198.18.1.1:2", "198.18.0.10:80"), udp4(t, "198.18.1.1:3", "198.18.0.11:80"),
		udp4(t, "198.18.1.1:4", "198.18.0.10:80"), udp4(t, "198.18.1.1:5", "198.18.0.10:80"),
	}
	bt := newTestBatches(t).batch(t, frames...)
	for i := range bt.D {
		bt.Matches = append(bt.Matches, packet.Match{D: uint32(i), Rule: uint32(i), End: 1})
	}
	d.Handle(1, bt)
	d.Handle(2, newTestBatches(t).batch(t, frames[:2]...)) // without a match
	if len(a.matches) != 3 || len(b.matches) != 4 {
		t.Errorf("the handlers saw %d and %d matches, want 3 and 4", len(a.matches), len(b.matches))
	}
	for _, r := range []*recorder{a, b} {
		for i, m := range r.matches {
			if !slices.Equal(r.matched[i], frames[m.Rule]) {
				t.Errorf("the match of packet %d is with another one", m.Rule)
			}
		}
		if r.decided != 0 {
			t.Errorf("%d packets came with a verdict", r.decided)
		}
	}
}
