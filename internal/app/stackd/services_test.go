package stackd

import (
	"net/netip"
	"testing"

	"github.com/millrace/millrace/internal/app/service"
)

// TestServiceThatHas: the shim learns which addresses and ports are those of services.
func TestServiceThatHas(t *testing.T) {
	d := &Daemon{services: []*listener{
		{Service: Service{Kind: service.HTTP, Port: 80}},
		{Service: Service{Kind: service.Echo, Port: 7, Address: netip.MustParseAddr("198.18.0.2")}},
	}}
	for local, want := range map[string]string{
		"0.0.0.0:80": "http", "198.18.0.3:80": "http", "[2001:db8::1]:80": "http", "0.0.0.0:8080": "", "0.0.0.0:0": "",
		"198.18.0.2:7": "echo", "0.0.0.0:7": "echo", "[::]:7": "echo", "198.18.0.3:7": "", "198.18.0.2:80": "http",
	} {
		if got := d.serviceThatHas(netip.MustParseAddrPort(local)); got != want {
			t.Errorf("%s: %q, want %q", local, got, want)
		}
	}
}
