package tcp

import (
	"testing"
	"time"
)

// TestConnectionsCarryDataBothWaysAndClose is RFC 9293 3.5 and 3.6, in the ordinary order.
func TestConnectionsCarryDataBothWaysAndClose(t *testing.T) {
	n := newNet(t)
	a, b, _, _ := n.open(t, nil, nil)
	n.pour(t, a, b, 300_000, 10*time.Second)
	n.pour(t, b, a, 300_000, 10*time.Second)
	a.CloseWrite(n.now)
	n.run(100 * time.Millisecond)
	if a.State() != StateFinWait2 || b.State() != StateCloseWait || !b.Finished() {
		t.Fatalf("after a FIN: %v and %v", a.State(), b.State())
	}
	b.Close(n.now)
	n.run(100 * time.Millisecond)
	if a.State() != StateTimeWait || a.Err() != nil || !a.Finished() {
		t.Fatalf("after both FINs: %v, %v", a.State(), a.Err())
	}
	a.Close(n.now)
	n.run(100 * time.Millisecond)
	if s := n.a.m.Stats(); s.Conns != 0 || s.Memory != 0 {
		t.Errorf("a has %d connections, %d bytes", s.Conns, s.Memory)
	}
	if s := n.b.m.Stats(); s.Conns != 0 || s.Memory != 0 {
		t.Errorf("b has %d connections, %d bytes", s.Conns, s.Memory)
	}
}
