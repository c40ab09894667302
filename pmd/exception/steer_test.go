package exception_test

import (
	"testing"

	"github.com/millrace/millrace/pmd"
)

// TestMarksOfTheDevice has a device mark what it receives as claimed: the loop gets it without a look at the rules, which the device
// has been given.
func TestMarksOfTheDevice(t *testing.T) {
	s := newSite(t, "mr-exc-marks", 0, "198.18.0.2/24")
	s.open(t)
	rule := pmd.Rule{Addr: boxIP, Proto: 17, PortLo: 53}
	must(t, s.path.Steer(rule))
	if len(s.rules) != 1 || s.rules[0] != rule {
		t.Errorf("the device has %v", s.rules)
	}
	if s.path.Steer(pmd.Rule{}) == nil || len(s.rules) != 1 {
		t.Errorf("after rules that are wrong the device has %v", s.rules)
	}
	mac := s.dev.Info().MAC
	s.dev.marks = true
	s.deliver(t, udp(mac, boxIP, 54, false, "marked"))
	s.dev.marks = false
	s.deliver(t, udp(mac, boxIP, 53, false, "matched"), udp(mac, boxIP, 54, false, "neither"))
	if s.b.Len() != 2 || s.b.D[0].Rule != 0 || s.b.D[1].Rule != 0 {
		t.Errorf("the loop has %+v", s.b.D)
	}
	if st := s.path.Queues[0].Info().Stats; st.SteeredSoftware != 1 || st.ToKernel != 1 {
		t.Errorf("%+v", st)
	}
}
