package interop

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
)

// countedFrontend refuses clients beyond a number of requests in an hour, so that nothing is given back in the time of the test.
const countedFrontend = `
defaults
 mode http
 timeout connect 5s
 timeout client 20s
 timeout server 20s
frontend f
 bind LISTEN
 stick-table type ip size 100k expire 2h store http_req_rate(1h)
 http-request track-sc0 src
 http-request deny deny_status 429 if { sc_http_req_rate(0) OVER }
 default_backend one
backend one
 server s ONE
`

// TestConvertedRates sends requests from addresses of their own to HAProxy and to the gateway: both serve the same number of each, and
// refuse the others.
func TestConvertedRates(t *testing.T) {
	for over, most := range map[string]int{"gt 20": 20, "ge 20": 19} {
		t.Run(over, func(t *testing.T) {
			peer, gateway := pairOfProxies(t, "haproxy", strings.NewReplacer("ONE", echoBackend(t, "one"), "OVER", over).Replace(countedFrontend))
			for _, client := range []string{"127.0.0.2", "127.0.0.3"} {
				want, got := answersTo(t, peer, client), answersTo(t, gateway, client)
				if want != got || !strings.HasPrefix(want, fmt.Sprintf("%d times 200, ", most)) {
					t.Errorf("%s: haproxy %s, gateway %s, want %d served", client, want, got, most)
				}
			}
		})
	}
}

// answersTo sends 30 requests from an address, and returns the runs of equal answers.
func answersTo(t *testing.T, to netip.AddrPort, from string) string {
	t.Helper()
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	tr := &http.Transport{DialContext: dialer.DialContext}
	defer tr.CloseIdleConnections()
	var runs []string
	last, n := 0, 0
	end := func() {
		if n > 0 {
			runs = append(runs, fmt.Sprintf("%d times %d", n, last))
		}
	}
	for range 30 {
		resp, err := (&http.Client{Transport: tr}).Get("http://" + to.String() + "/x")
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != last {
			end()
			last, n = resp.StatusCode, 0
		}
		n++
	}
	end()
	return strings.Join(runs, ", ")
}
