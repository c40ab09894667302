package tcp

import (
	"testing"
	"unsafe"

	"github.com/millrace/millrace/tcp/loss"
)

// TestIdleConnectionsAreSmall bounds what a connection takes that neither sends nor holds anything.
func TestIdleConnectionsAreSmall(t *testing.T) {
	t.Logf("Conn %d sender %d board %d", unsafe.Sizeof(Conn{}), unsafe.Sizeof(sender{}), unsafe.Sizeof(loss.Board{}))
	if n := unsafe.Sizeof(Conn{}); n > 512 {
		t.Errorf("a Conn is %d bytes", n)
	}
}
