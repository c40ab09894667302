package control_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/gateway/daemon"
	"github.com/millrace/millrace/internal/testkit/testnet"
)

// stackConfig has listeners on the userspace stack, whose addresses no kernel has, beside a service at L4.
const stackConfig = `
devices:
  - {name: front, driver: %[1]s, queues: %[3]d, addresses: [198.18.0.9/24, "2001:db8::9/64"]}
  - {name: back1, driver: %[1]s, queues: %[3]d, addresses: [198.18.3.9/24, "2001:db8:3::9/64"]}
  - {name: back2, driver: %[1]s, queues: %[3]d, addresses: [198.18.4.9/24, "2001:db8:4::9/64"]}
snat: [198.18.2.1, "2001:db8:2::1"]
services:
  - name: web
    address: [198.18.1.1:80, "[2001:db8:1::1]:80"]
    backends: [{name: b1, address: [198.18.3.2:8080, "[2001:db8:3::2]:8080"]}]
stack: devices
listeners:
  - {name: plain, address: ["198.18.0.9:80", "[2001:db8::9]:80"], protocol: HTTP}
  - name: safe
    address: ["198.18.0.9:443", "[2001:db8::9]:443"]
    protocol: HTTPS
    tls: {certificates: [{cert: %[2]s}]}
routes: [{name: all, rules: [{backend_refs: [{name: p}]}]}]
pools:
  - name: p
    backends: [{name: b1, address: "198.18.3.2:8080"}, {name: b2, address: "[2001:db8:4::2]:8080"}]
`

// stacks are what the userspace stack is tested over.
var stacks = []struct {
	driver string
	queues int // and loops
}{{"afxdp", 1}, {"afpacket", 1}, {"afxdp", 2}}

// Listeners with `stack: devices` are served by the userspace stack: the kernel has no such address. L4 services go on beside them.
func TestListenersOnTheUserspaceStack(t *testing.T) {
	t.Parallel()
	testnet.Program(t, "curl", "openssl")
	for i, x := range stacks {
		t.Run(fmt.Sprint(x.driver, " ", x.queues), func(t *testing.T) {
			s, _ := layOutQueues(t, fmt.Sprintf("mr-l7stack%d", i), x.queues)
			for i := range s.backends {
				s.listen(i)
			}
			pair := filepath.Join(t.TempDir(), "pair.pem")
			s.pair(pair)
			s.must(os.WriteFile(s.file, fmt.Appendf(nil, stackConfig, x.driver, pair, x.queues), 0o644))
			s.start("http://198.18.0.9/", "http://[2001:db8::9]/", "http://198.18.1.1/")
			seen := map[string]int{}
			for _, url := range []string{"http://198.18.0.9/", "http://[2001:db8::9]/", "https://198.18.0.9/", "https://[2001:db8::9]/"} {
				for _, version := range []string{"--http1.1", "--http2"} {
					out, err := s.client.Run("curl", "-sSk", "-m", "10", version, url, url, url, url)
					if err != nil {
						t.Errorf("%s %s: %v", url, version, err)
					}
					for line := range strings.Lines(out) {
						name, from, _ := strings.Cut(strings.TrimSpace(line), " ")
						at, err := netip.ParseAddrPort(from)
						s.must(err)
						seen[name+" from "+at.Addr().String()]++
					}
				}
			}
			if seen["b1 from 198.18.3.9"] != 16 || seen["b2 from 2001:db8:4::9"] != 16 || len(seen) != 2 {
				t.Errorf("answers: %v", seen)
			}
			s.must(s.cmd.Process.Signal(os.Interrupt))
			s.must(s.cmd.Wait())
			var sum daemon.Summary
			s.must(json.Unmarshal(s.out.Bytes(), &sum))
			if n := sum.Listeners.Counts.Requests; n < 34 {
				t.Errorf("%d requests are counted", n)
			}
		})
	}
}

// pair writes a certificate and its key.
func (s *site) pair(file string) {
	s.t.Helper()
	_, err := s.gate.Run("sh", "-c", "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "+file+".key -out "+file+
		" -days 2 -subj /CN=gateway.test 2>/dev/null && cat "+file+".key >> "+file+" && chmod 600 "+file)
	s.must(err)
}
