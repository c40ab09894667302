package stackd

import (
	"testing"

	"github.com/millrace/millrace/internal/service"
)

// TestServicePort: the shim learns which ports are those of services, at whichever address.
func TestServicePort(t *testing.T) {
	d := &Daemon{services: []*listener{{Service: Service{Kind: service.HTTP, Port: 80}}, {Service: Service{Kind: service.Echo, Port: 7}}}}
	for port, want := range map[uint16]string{80: "http", 7: "echo", 8080: "", 0: ""} {
		if got := d.servicePort(port); got != want {
			t.Errorf("port %d: %q, want %q", port, got, want)
		}
	}
}
