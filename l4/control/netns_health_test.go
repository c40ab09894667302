package control_test

import (
	"os"
	"strings"
	"testing"
	"time"
)

// Backend b1 has nobody on port 8080: its kernel refuses connections. The web service has no checks
// and finds out by what becomes of its clients; the others check it by HTTP, UDP and a command, the
// UDP service by its own datagrams and the address that it answers clients from.
const healthSite = `
devices: [{name: front, driver: afpacket}, {name: back1, driver: afpacket}, {name: back2, driver: afpacket}]
snat: [198.18.2.1]
services:
  - name: passive
    address: 198.18.1.1:80
    backends: [{name: b1, address: 198.18.3.2:8080}, {name: b2, address: 198.18.4.2:8080}]
    passive: {failures: 3, window: 1s, down: 1h, max_down: 1h}
  - name: http
    address: 198.18.1.1:82
    backends: [{name: b1, address: 198.18.3.2:8080}, {name: b2, address: 198.18.4.2:8080}]
    health: {type: http, interval: 200ms, http: {body: b2}}
  - name: udp
    protocol: udp
    source: client
    address: 198.18.1.1:53
    backends: [{name: b1, address: 198.18.3.2:5353}, {name: b2, address: 198.18.4.2:5353}]
    health: {type: udp, interval: 200ms, udp: {send: ask, expect: "b2 ask"}}
  - name: command
    address: 198.18.1.1:83
    backends: [{name: b1, address: 198.18.3.2:8080}, {name: b2, address: 198.18.4.2:8080}]
    health: {type: command, interval: 500ms, command: [/bin/sh, -c, 'exec curl -sS -m 5 "http://$MILLRACE_BACKEND_ADDRESS:$MILLRACE_BACKEND_PORT/"']}
`

// The kernels are the oracle: real refusals, ICMP errors and programs, all at once.
func TestRealRefusalsAreFoundByEveryKindOfCheck(t *testing.T) {
	t.Parallel()
	s, _ := layOut(t, "mr-gwhlth")
	s.listen(1)
	s.must(os.WriteFile(s.file, []byte(healthSite), 0o644))
	s.start()
	found := func(words ...string) bool {
		for line := range strings.Lines(s.log.String()) {
			all := strings.Contains(line, "backend=b1")
			for _, w := range words {
				all = all && strings.Contains(line, w)
			}
			if all {
				return true
			}
		}
		return false
	}
	want := map[string][]string{
		"passive": {"service=passive", "state=ejected", " refused"},
		"http":    {"service=http", "state=unhealthy", "connect: connection refused"},
		"udp":     {"service=udp", "state=unhealthy", "read: connection refused"},
		"command": {"service=command", "state=unhealthy", "the command fails: exit status 7: curl: (7)"},
	}
	for end := time.Now().Add(20 * time.Second); len(want) > 0; time.Sleep(50 * time.Millisecond) {
		s.client.Run("curl", "-sS", "-m", "1", "http://198.18.1.1/") // some of them are refused: so it shows
		for name, words := range want {
			if found(words...) {
				delete(want, name)
			}
		}
		if time.Now().After(end) {
			t.Fatalf("not told: %v", want)
		}
	}
	for _, url := range []string{"http://198.18.1.1/", "http://198.18.1.1:82/", "http://198.18.1.1:83/"} {
		for range 10 {
			if out, err := s.client.Run("curl", "-sS", "-m", "5", url); err != nil || !strings.HasPrefix(out, "b2 ") {
				t.Errorf("%s: %q, %v", url, out, err)
			}
		}
	}
	if strings.Contains(s.log.String(), "backend=b2 address=198.18.4.2:8080 state=unhealthy") || strings.Contains(s.log.String(), "backend=b2 address=198.18.4.2:5353 state=unhealthy") {
		t.Error("b2, which serves, is unhealthy")
	}
	s.stop()
}
