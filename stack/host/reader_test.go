package host

import (
	"testing"
	"time"

	"github.com/millrace/millrace/tcp"
)

// TestReaderCausesATickOnlyWithOutput exits as a reader, once with nothing done and once with a
// byte to send, which leaves with the next iteration although no timer is due.
func TestReaderCausesATickOnlyWithOutput(t *testing.T) {
	w := newWorld(t, setting{})
	far := w.listen(w.b, 7, false)
	s := w.dial(w.a, 0, addrA4, addrB4, 7)
	if !w.run(time.Second, func() bool { return len(*far) == 1 && s.c.State() == tcp.StateEstablished }) {
		t.Fatal("no connection")
	}
	w.run(time.Second, func() bool { return false })
	h, loop := w.a.Hosts[0], w.loops[w.a][0]
	for want := range 2 {
		now := h.Enter()
		if n := s.c.Write(now, make([]byte, want)); n != want || h.TCP.Idle() != (want == 0) {
			t.Errorf("%d of %d bytes written, idle %v", n, want, h.TCP.Idle())
		}
		h.ExitReader()
		before := loop.Stats().Originated
		loop.Poll(w.now)
		if got := loop.Stats().Originated - before; got != uint64(want) {
			t.Errorf("%d bytes written: %d packets made", want, got)
		}
	}
}
