package control

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"

	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/stack"
)

// A gateway with a role answers, announces and claims questions only while it is active, to the moment; it forwards always.
func TestOnlyAnActiveGatewayAnswers(t *testing.T) {
	c := parse(t, fill(""))
	c.Sync = &config.Sync{
		Listen: netip.MustParseAddrPort("127.0.0.1:0"), Peer: netip.MustParseAddrPort("127.0.0.2:1"), Key: make([]byte, 32),
		Role: &config.Role{Priority: 1, Lease: time.Second},
	}
	w := newWorldWith(t, c, hopsOf(c))
	arp, ns := arpFor("198.18.1.1", layers.ARPRequest), solicit("2001:db8::9", "ff02::1:ff00:1", "2001:db8:1::1", true, 255)
	networks := []Network{{netip.MustParsePrefix("198.18.1.0/24"), 0, 0}}
	neighbor := func(s Steer) bool { return s.Neighbor }
	standby := func() {
		t.Helper()
		w.refused(0, slices.Clone(arp), packet.DropNoService)
		w.refused(0, slices.Clone(ns), packet.DropNoService)
		if n := len(w.g.Announcements(networks)); n != 0 {
			t.Errorf("a standby makes %d announcements", n)
		}
	}
	standby()
	if w.g.Answers() || slices.ContainsFunc(w.g.Steering(), neighbor) {
		t.Error("a standby claims questions")
	}
	w.connect("198.18.0.9:4000")
	w.g.SetAnswers(stack.Now().Add(time.Hour))
	w.expect(0, slices.Clone(arp), 0)
	w.expect(0, slices.Clone(ns), 0)
	if n := len(w.g.Announcements(networks)); n != 1 || !w.g.Answers() || !slices.ContainsFunc(w.g.Steering(), neighbor) {
		t.Errorf("an active gateway makes %d announcements", n)
	}
	w.g.SetAnswers(stack.Now().Add(-time.Nanosecond)) // it was suspended, and does not know yet
	standby()
	if !w.g.Answers() || w.g.AnswersNow() {
		t.Error("the time is over")
	}
	w.g.SetAnswers(0)
	standby()
	w.connect("198.18.0.9:4001")
}
