package host

import (
	"testing"

	"github.com/millrace/millrace/pmd"
)

// The depth of the receive rings is what a burst of all connections needs, in powers of two.
func TestDepthFollowsTheConnections(t *testing.T) {
	was := 0
	for _, c := range []struct{ conns, want int }{
		{0, 2048}, {1, 4096}, {64, 4096}, {65, 8192}, {600, 32768}, {960, 32768}, {961, 65536}, {500, 32768}, {0, 2048}, {1 << 30, 1 << 26},
	} {
		if was = depthOf(c.conns, was); was != c.want {
			t.Errorf("%d connections: %d, want %d", c.conns, was, c.want)
		}
	}
	if got := depthOf(64, depthOf(65, 0)); got != 8192 {
		t.Errorf("one connection less: %d, want no change before half", got)
	}
	var d pmd.RxDepth
	for _, c := range [][3]int{{0, 100, 100}, {64, 100, 64}, {200, 100, 100}} {
		if d.Set(c[0]); d.Packets(c[1]) != c[2] {
			t.Errorf("%d asked for of %d: %d", c[0], c[1], d.Packets(c[1]))
		}
	}
}
