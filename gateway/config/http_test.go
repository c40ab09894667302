package config

import (
	"os"
	"strings"
	"testing"
)

// l7Example is the example of the sections at L7.
const l7Example = "../../examples/http-gateway.yaml"

func TestTheExampleAtL7HasEveryKeyAndTheDefaultsItStates(t *testing.T) {
	src, err := os.ReadFile(l7Example)
	if err != nil {
		t.Fatal(err)
	}
	c, err := Parse(l7Example, src) // its certificates are not there
	if err != nil {
		t.Fatal(err)
	}
	l := c.Listeners[1]
	if want := newListener(); l.Timeouts != want.Timeouts || l.AltSvc != want.AltSvc {
		t.Errorf("the example states other defaults than the code: %+v", l)
	}
	if p, want := c.Pools[0], newPool(); p.Timeouts != want.Timeouts || p.RetryBudget != want.RetryBudget || p.Idle != want.Idle {
		t.Errorf("the example states other defaults than the code: %+v", p)
	}
	rare := map[string]bool{ // in the tests below, and on the page
		"network": true, "routes[].rules[].body_bytes": true, "query_params": true, "sni": true, "ja4": true, "hostname": true, "port": true,
		"stream": true, "queue": true, "client_auth": true, "ca_file": true, "crl_file": true, "optional": true, "ticket_key_file": true,
		"certificate": true, "insecure": true, "state": true, "max_connections": true, "timeout": true, "interval": true, "rise": true, "fall": true,
		"device": true, "udp": true, "command": true, "via": true, "to": true,
	}
	for _, k := range Schema().Keys() {
		name := k.Path[strings.LastIndexByte(k.Path, '.')+1:]
		if laterSection.MatchString(k.Path) && !describedElsewhere(k.Path) && !rare[name] && !strings.Contains(string(src), name+":") {
			t.Errorf("the example lacks %s", k.Path)
		}
	}
}
