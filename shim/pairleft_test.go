package shim

import (
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestConnectToAListenerThatTheNodeHasYetToClose: the program has closed it, and the watcher is late with its report. The connection is
// refused, however long the report takes.
func TestConnectToAListenerThatTheNodeHasYetToClose(t *testing.T) {
	for name, through := range map[string]bool{"pair": false, "through the loop": true} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, func(c *Config) { c.ThroughLoop = through })
			c := b.dial(t)
			var share [2]*program // the hash of the flow may choose either
			for i := range share {
				share[i] = c.socket(unix.SOCK_STREAM, false)
				if err := share[i].setInt(unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
					t.Fatal(err)
				}
				if _, err := share[i].listen(nodeAddr+":7000", 5); err != nil {
					t.Fatal(err)
				}
				k := b.sockOf(t, share[i].fd)
				b.watch.forget(k.watch)
			}
			for _, l := range share {
				l.close()
			}
			for range 4 {
				p := c.socket(unix.SOCK_STREAM, false)
				if err := p.connect(nodeAddr + ":7000"); err != syscall.ECONNREFUSED {
					t.Errorf("connect(2): %v, want ECONNREFUSED", err)
				}
				p.close()
			}
		})
	}
}

// TestPairsLeaveNothing: what the node has kept of a pair is gone with it.
func TestPairsLeaveNothing(t *testing.T) {
	b := newBed(t, nil)
	client, server := b.pairOf(t, nodeAddr+":0", nodeAddr)
	client.close()
	server.close()
	until(t, "the ends are forgotten", func() bool {
		b.pairs.mu.Lock()
		defer b.pairs.mu.Unlock()
		return len(b.pairs.ends) == 0
	})
	b.pairs.watch.mu.Lock()
	defer b.pairs.watch.mu.Unlock()
	if n := len(b.pairs.watch.calls); n != 0 {
		t.Errorf("%d calls are left", n)
	}
}
