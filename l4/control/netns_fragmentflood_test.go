package control_test

import (
	"bytes"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit/testnet"
	"github.com/millrace/millrace/l4/control"
	"github.com/millrace/millrace/wire"
)

// TestFragmentsSurviveAFloodOfFirstOnes floods a service with first fragments whose datagrams never end: the backends'
// kernels keep room for the fragments of others, and fragmented datagrams are answered.
func TestFragmentsSurviveAFloodOfFirstOnes(t *testing.T) {
	testnet.Program(t, "curl", "ip")
	s := newSite(t, "mr-gwfflood", "afxdp")
	mac, err := net.ParseMAC(s.frontMAC())
	s.must(err)
	var flood [][]byte
	for i := range 12_000 {
		src := netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 18, 0, byte(100 + i%3)}), 4000)
		list := control.FragmentsOf(forgedMAC, wire.MAC(mac), src, netip.MustParseAddrPort("198.18.1.1:53"), string(make([]byte, 1400)), 1200, uint32(i+1))
		flood = append(flood, list[0])
	}
	for len(flood) > 0 { // by portions that the ring holds
		n := min(500, len(flood))
		s.sendFrames(flood[:n])
		flood = flood[n:]
		time.Sleep(10 * time.Millisecond)
	}
	payload := bytes.Repeat([]byte("x"), 1900)
	answered := 0
	for range 10 {
		c := s.dial("udp", "198.18.1.1:53")
		for range 3 { // an answer may be slow beside other load
			_, err := c.Write(payload)
			s.must(err)
			c.SetReadDeadline(time.Now().Add(2 * time.Second))
			b := make([]byte, 4000)
			if n, err := c.Read(b); err == nil && n > 1900 {
				answered++
				break
			}
		}
	}
	if answered < 9 {
		t.Errorf("%d of 10 fragmented datagrams are answered", answered)
	}
	sum := s.stop()
	if n := sum.Gateway.Dropped["fragment"]; n < 10_000 {
		t.Errorf("%d fragments of the flood are dropped: %v", n, sum.Gateway.Dropped)
	}
}
