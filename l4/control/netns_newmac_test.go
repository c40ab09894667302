package control_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit/testnet"
)

// TestABackendWithANewMACIsFoundByItsRequest gives a backend another link address, as one that is replaced has, and has it ask
// for the link address of the SNAT address, which is on its link. The kernel does not see that request. It takes the sender
// from it all the same, so the backend is served at once and not when the kernel's entry has run out.
func TestABackendWithANewMACIsFoundByItsRequest(t *testing.T) {
	testnet.Program(t, "curl", "ip", "ping")
	for _, driver := range []string{"afxdp", "afpacket"} {
		t.Run(driver, func(t *testing.T) {
			s, _ := layOut(t, "mr-gwmac-"+driver)
			s.listen(0)
			text := strings.NewReplacer(
				"DRIVER", driver,
			).Replace(`
devices: [{name: front, driver: DRIVER}, {name: back1, driver: DRIVER}]
snat: [198.18.3.9, "2001:db8:3::9"]
services:
  - name: web
    address: [198.18.1.1:80, "[2001:db8:1::1]:80"]
    backends: [{name: b1, address: [198.18.3.2:8080, "[2001:db8:3::2]:8080"]}]
`)
			s.must(os.WriteFile(s.file, []byte(text), 0o644))
			s.start("http://198.18.1.1/", "http://[2001:db8:1::1]/")
			services := []struct{ url, snat, ping string }{{"http://198.18.1.1/", "198.18.3.9", "-4"}, {"http://[2001:db8:1::1]/", "2001:db8:3::9", "-6"}}
			const mac = "02:00:00:00:0a:01"
			for _, cmd := range []string{"ip link set eth0 address " + mac, "ip neigh flush dev eth0"} {
				if out, err := s.backends[0].Run("sh", "-c", cmd); err != nil {
					t.Fatal(cmd, err, out)
				}
			}
			for _, c := range services {
				if out, err := s.backends[0].Run("ping", c.ping, "-c", "1", "-W", "20", c.snat); err != nil {
					t.Errorf("the SNAT address does not answer: %v %s", err, out)
				}
			}
			for _, c := range services {
				start := time.Now()
				s.served(c.url, 10*time.Second) // 15 to 45 s without: base_reachable_time is 30 s
				t.Logf("%s: served after %v", c.url, time.Since(start).Round(time.Millisecond))
			}
			if out := s.run(s.gate, "ip neigh show dev back1"); strings.Count(out, mac) < 2 {
				t.Errorf("the kernel does not know %s: %s", mac, out)
			}
			s.stop()
		})
	}
}
