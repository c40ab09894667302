package dpdk_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/testkit/testnet"
	"github.com/millrace/millrace/pmd/dpdk"
)

// TestFiltersAndMTUReachTheInterface opens drivers whose device is an interface of Linux, which shows what they have set it to, and
// that nothing of it is left after Close.
func TestFiltersAndMTUReachTheInterface(t *testing.T) {
	need(t)
	n := testnet.For(t, "mr-dpdk-filters")
	here, there := n.Namespace("here"), n.Namespace("there")
	number := 0
	for _, driver := range []string{"net_tap", "net_af_packet", "net_af_xdp"} {
		for _, on := range [][2]bool{{false, false}, {true, false}, {false, true}, {true, true}} {
			// An interface for each: DPDK's AF_XDP driver leaves its socket open when it is closed.
			number++
			iface := fmt.Sprintf("mrm%d", number)
			if driver != "net_tap" {
				if err := n.Link(here, iface, there, fmt.Sprintf("eth%d", number)); err != nil {
					t.Fatal(err)
				}
			}
			_, pools := memory(t, 1, 8192, 4096)
			var d *dpdk.Device
			if err := here.Do(func() (err error) {
				d, err = dpdk.Open(dpdk.Config{Name: driver + "0,iface=" + iface, Pools: pools, Promiscuous: on[0], Multicast: on[1], MTU: 1400})
				return err
			}); err != nil {
				t.Fatal(err)
			}
			show := func() (out string, promiscuous, multicast bool) {
				out, err := here.Run("ip", "-d", "link", "show", "dev", iface)
				return out, err == nil && !strings.Contains(out, "promiscuity 0"), err == nil && !strings.Contains(out, "allmulti 0")
			}
			out, promiscuous, multicast := show()
			if promiscuous != on[0] || multicast != on[1] || strings.Contains(d.Queues[0].Info().Negotiated, "promiscuous") != on[0] {
				t.Errorf("%s, promiscuous and multicast %v: %v and %v, %s\n%s", driver, on, promiscuous, multicast, d.Queues[0].Info().Negotiated, out)
			}
			if !strings.Contains(out, "mtu 1400") || d.Queues[0].Info().MTU != 1400 {
				t.Errorf("%s: MTU %d\n%s", driver, d.Queues[0].Info().MTU, out)
			}
			if err := d.Close(); err != nil {
				t.Error(err)
			}
			if out, promiscuous, multicast := show(); promiscuous || multicast {
				t.Errorf("%s, promiscuous and multicast %v: the interface stays so\n%s", driver, on, out)
			}
		}
	}
}
