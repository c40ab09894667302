package socket

import (
	"testing"
	"unsafe"
)

// Most connections of most programs wait for a peer that has nothing to say.
func TestConnectionsAreSmall(t *testing.T) {
	if n := unsafe.Sizeof(TCPConn{}); n > 80 {
		t.Errorf("a TCPConn is %d bytes", n)
	}
}
