package stackd

import (
	"testing"

	"github.com/millrace/millrace/socket"
)

// TestSocketsOfProcesses: the reports say which process a socket was opened for, and list its listeners, which are of no service.
func TestSocketsOfProcesses(t *testing.T) {
	s := newSite(t, "process", siteConfig{driver: "afpacket"})
	p := &socket.Process{PID: 7, UID: 1000, Command: "nginx"}
	l, err := s.d.stack.ListenWith(t.Context(), &socket.ListenConfig{Process: p}, "tcp", host4+":8080")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	u, err := s.d.stack.ListenPacketWith(t.Context(), &socket.ListenConfig{Process: p}, "udp", host4+":8053")
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	c, err := s.d.stack.DialWith(t.Context(), &socket.Dialer{Process: p}, "tcp", host4+":8080") // to itself
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	found := map[string]int{}
	for _, r := range s.d.Sockets(Query{}).Sockets {
		if r.Process == nil {
			continue
		}
		if *r.Process != (ProcessReport{PID: 7, UID: 1000, Command: "nginx"}) {
			t.Errorf("%+v", r.Process)
		}
		found[r.Protocol+" "+r.State]++
	}
	// The accepted end is not accepted yet, and so without its process.
	if found["tcp LISTEN"] != 1 || found["tcp ESTAB"] != 1 || found["udp UNCONN"] == 0 || len(found) != 3 {
		t.Error(found)
	}
}
