package gateway_test

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/testnet"
)

// Backends send large packets with checksums left to the device; the gateway rewrites them whole, and the
// devices that it sends by cut them and make the checksums, which the client verifies.
func TestLargePacketsPassTheGatewayWhole(t *testing.T) {
	testnet.Program(t, "ethtool")
	s := newSite(t, "mr-gwlarge", "afpacket")
	for _, b := range s.backends {
		_, err := b.Run("ethtool", "-K", "eth0", "tx", "on", "tso", "on", "gso", "on")
		s.must(err)
	}
	const size = 256 << 20
	s.bulk(size)
	bad, err := s.client.Run("sh", "-c", "awk '/^Tcp:/{print $NF}' /proc/net/snmp")
	s.must(err)
	if f := strings.Fields(bad); len(f) != 2 || f[1] != "0" {
		t.Errorf("the client counts %q segments with a wrong checksum", f)
	}
	sum := s.stop()
	if sum.Forwarded == 0 || sum.Forwarded > size/1448 {
		t.Errorf("%d packets for %d bytes: they were cut before the gateway", sum.Forwarded, size)
	}
}
