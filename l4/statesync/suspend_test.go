package statesync

import (
	"context"
	"net"
	"net/netip"
	"testing"

	"github.com/millrace/millrace/internal/testkit/testport"
	"github.com/millrace/millrace/l4/datapath"
)

// A process leaves its listener to another one: that has the streams, and the first one none. When the other one has failed the first
// goes on, and the peer sends it all again.
func TestAPeerThatIsSuspended(t *testing.T) {
	at, other := testport.Hold(t), testport.Hold(t)
	a, b := open(t, at, other, 0, 1), open(t, other, at, 1, 1)
	until(t, "the streams are up", func() bool { return a.peer.Status().Synced && b.peer.Status().Synced })
	resume := a.peer.Suspend()
	if st := a.peer.Status(); st.Sends || st.Receives {
		t.Errorf("suspended: %+v", st)
	}
	f, err := a.peer.File()
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.FileListener(f)
	f.Close()
	if err != nil {
		t.Fatal(err)
	}
	m := &memory{imported: map[netip.AddrPort]datapath.Record{}}
	next, err := Listen(t.Context(), Config{Listen: at, Peer: other, Key: testKey(1), Agreement: Agreement{Index: 0, Loops: 2, First: 1024, Last: 65535}, Table: m, Inherited: l})
	if err != nil {
		t.Fatal(err)
	}
	b.mu.Lock()
	b.all = []datapath.Record{record(1), record(2)}
	b.mu.Unlock()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { next.Run(ctx); close(done) }()
	until(t, "the new process has all", func() bool { return m.known() == 2 && next.Status().Synced && next.Status().Shared })
	if st := a.peer.Status(); st.Sends || st.Receives || a.known() != 0 {
		t.Errorf("beside the new process: %+v", st)
	}
	stop()
	<-done
	resume()
	resume() // without effect
	until(t, "the old process has all", func() bool { return a.known() == 2 && a.peer.Status().Shared })
	a.peer.Suspend()
	a.stop() // also a suspended one ends
	a.peer.Suspend()()
}
