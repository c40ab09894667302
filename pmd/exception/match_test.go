package exception_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/exception"
)

// TestClaimsAllocatesNothing decides for claimed packets and for others; FuzzSteering of package afxdp has all other cases.
func TestClaimsAllocatesNothing(t *testing.T) {
	m, err := exception.NewMatcher(pmd.Rule{Addr: boxIP, Proto: 17, PortLo: 53}, pmd.Rule{Addr: claimed, Kind: pmd.Neighbor})
	if err != nil {
		t.Fatal(err)
	}
	yes, no, arp := udp(peerMAC, boxIP, 53, false, "x"), udp(peerMAC, boxIP, 54, false, "x"), arpRequest(claimed)
	allocs := testing.AllocsPerRun(100, func() {
		if !m.Claims(yes) || m.Claims(no) || !m.Claims(arp) {
			t.Error("a packet is claimed that is not, or the other way around")
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}

// BenchmarkClaims decides with the rules of as many services.
func BenchmarkClaims(b *testing.B) {
	for _, n := range []int{1, 100, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var rules []pmd.Rule
			addr := boxIP
			for range n {
				rules = append(rules, pmd.Rule{Addr: addr, Proto: 17, PortLo: 53})
				addr = addr.Next()
			}
			m, err := exception.NewMatcher(rules...)
			if err != nil {
				b.Fatal(err)
			}
			yes, no := udp(peerMAC, boxIP, 53, false, "x"), udp(peerMAC, netip.MustParseAddr("192.0.2.1"), 53, false, "x")
			for b.Loop() {
				m.Claims(yes)
				m.Claims(no)
			}
		})
	}
}
