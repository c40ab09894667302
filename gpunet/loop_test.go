package gpunet

import (
	"net/netip"
	"testing"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/gpunet/queue"
	"github.com/millrace/millrace/ring"
)

// TestArm: a loop that is about to sleep polls again soon with connections, later without, and not at all without blocks.
func TestArm(t *testing.T) {
	a, err := ring.NewArena(ring.ArenaConfig{Frames: 64, FrameSize: frame, Huge: ring.HugeOff})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	q, err := queue.New(a.Mem, queue.Layout{Blocks: 1, Connections: 1, Slots: 2})
	if err != nil {
		t.Fatal(err)
	}
	l := &loop{}
	if at := l.Arm(); at != clock.Never {
		t.Errorf("without blocks: %v", at)
	}
	l.blocks = []*block{{l: l, q: q[0]}}
	l.Poll(1000)
	if at := l.Arm(); at != 1000+idlePoll {
		t.Errorf("without connections: %v", at)
	}
	if _, ok := q[0].Open(netip.AddrPort{}); !ok {
		t.Fatal("no slot")
	}
	if at := l.Arm(); at != 1000+activePoll {
		t.Errorf("with a connection: %v", at)
	}
}
