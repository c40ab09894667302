package control_test

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit/testnet"
)

// Datagrams without Don't Fragment that a sender leaves to segmentation offload, or that the gateway joins, reach a backend
// behind a narrower link as they were sent: Linux puts the fragments of each together.
func TestJoinedDatagramsPassANarrowLink(t *testing.T) {
	t.Parallel()
	for _, driver := range []string{"afxdp", "afpacket"} {
		t.Run(driver, func(t *testing.T) {
			s := newSite(t, "mr-gwsegm", driver)
			s.must(s.client.Sysctl("net.ipv4.ip_no_pmtu_disc", "1"))
			for i, ns := range s.backends {
				s.run(ns, "ip link set eth0 mtu 1400")
				s.run(s.gate, fmt.Sprintf("ip link set back%d mtu 1400", i+1))
			}
			const rounds, burst = 5, 20
			for end := time.Now().Add(time.Minute); ; {
				before := s.reassembled()
				if n := s.bursts("198.18.1.1:53", rounds, burst, 1400); n > 0 {
					t.Errorf("%d answers are out of order", n)
				}
				if got := s.reassembled() - before; got == rounds*burst {
					break
				} else if time.Now().After(end) {
					t.Fatalf("the backends put %d of %d datagrams together", got, rounds*burst)
				}
			}
			s.stop()
		})
	}
}

// reassembled returns how many datagrams the kernels of the backends have put together.
func (s *site) reassembled() (n int) {
	s.t.Helper()
	for _, ns := range s.backends {
		n += ipCounter(s.t, ns, "ReasmOKs")
	}
	return n
}

// ipCounter returns a counter of IPv4 in a network namespace.
func ipCounter(t *testing.T, ns *testnet.Namespace, name string) (n int) {
	t.Helper()
	cat := exec.Command("cat", "/proc/net/snmp")
	var out strings.Builder
	cat.Stdout = &out
	if err := ns.Start(cat); err != nil {
		t.Fatal(err)
	}
	if err := cat.Wait(); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out.String(), "\n")
	for i, key := range strings.Fields(lines[0]) {
		if key == name {
			_, err := fmt.Sscan(strings.Fields(lines[1])[i], &n)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("no counter %s in %q", name, lines[0])
	return 0
}
