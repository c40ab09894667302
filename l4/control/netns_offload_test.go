package control_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/testkit/testnet"
)

// Backends send large packets with checksums left to the device; the gateway rewrites them whole, their payload stays with the
// driver, and the devices that it sends by cut them and make the checksums, which the client verifies. With two loops some
// connections are another loop's, which gets their packets in frames.
func TestLargePacketsPassTheGatewayWhole(t *testing.T) {
	t.Parallel()
	testnet.Program(t, "ethtool", "curl")
	for _, c := range []struct{ queues, transfers, size int }{{1, 1, 256 << 20}, {2, 8, 8 << 20}} {
		t.Run(fmt.Sprintf("%d loops", c.queues), func(t *testing.T) {
			s := newLargeSite(t, c.queues)
			for range c.transfers {
				s.bulk(int64(c.size))
			}
			bad, err := s.client.Run("sh", "-c", "awk '/^Tcp:/{print $NF}' /proc/net/snmp")
			s.must(err)
			if f := strings.Fields(bad); len(f) != 2 || f[1] != "0" {
				t.Errorf("the client counts %q segments with a wrong checksum", f)
			}
			placed, handed := 0, 0
			for _, n := range s.loops("placed") {
				placed += n
			}
			if c.queues > 1 {
				for _, n := range s.loops("handed_over") {
					handed += n
				}
			}
			sum := s.stop()
			whole := uint64(c.transfers * c.size)
			if sum.Forwarded == 0 || sum.Forwarded > whole/1448 {
				t.Errorf("%d packets for %d bytes: they were cut before the gateway", sum.Forwarded, whole)
			}
			if placed < int(whole/(64<<10)) || c.queues > 1 && handed == 0 {
				t.Errorf("%d packets with external payload, %d handed over", placed, handed)
			}
		})
	}
}

// newLargeSite is a site whose backends send large packets, with so many queues and loops.
func newLargeSite(t *testing.T, queues int) *site {
	t.Helper()
	s, _ := layOutQueues(t, fmt.Sprintf("mr-gwlarge%d", queues), queues)
	for i, b := range s.backends {
		s.listen(i)
		_, err := b.Run("ethtool", "-K", "eth0", "tx", "on", "tso", "on", "gso", "on")
		s.must(err)
	}
	config := strings.ReplaceAll(fmt.Sprintf(siteConfig, "afpacket", ""), "driver: afpacket", fmt.Sprintf("driver: afpacket, queues: %d", queues))
	s.must(os.WriteFile(s.file, []byte(config+"metrics: {listen: 127.0.0.1:9100}\n"), 0o644))
	s.start("http://198.18.1.1/", "http://[2001:db8:1::1]/", "http://198.18.1.1:81/")
	return s
}
