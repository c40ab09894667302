package tcp

import (
	"testing"
	"unsafe"

	"github.com/millrace/millrace/tcp/loss"
)

// TestIdleConnectionsAreSmall bounds what a connection takes that neither sends nor holds anything.
func TestIdleConnectionsAreSmall(t *testing.T) {
	t.Logf("Conn %d awake %d sender %d board %d", unsafe.Sizeof(Conn{}), unsafe.Sizeof(active{}), unsafe.Sizeof(sender{}), unsafe.Sizeof(loss.Scoreboard{}))
	if n := unsafe.Sizeof([pageSize]Conn{}); n > 9728 { // a size class of the allocator
		t.Errorf("a page of Conns is %d bytes", n)
	}
	if n := unsafe.Sizeof(active{}); n > 320 {
		t.Errorf("what an active connection has beside is %d bytes", n)
	}
}
