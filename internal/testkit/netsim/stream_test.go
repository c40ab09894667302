package netsim

import (
	"testing"
	"time"

	"github.com/millrace/millrace/wire"
)

func TestStreamsShowBytesOutOfPlace(t *testing.T) {
	s := stream{base: 99}
	b := append([]byte(nil), s.at(70_000, 3000)...)
	if i := s.mismatch(70_000, b); i != -1 {
		t.Fatalf("byte %d is wrong", i)
	}
	for _, off := range []uint64{1, 1448, 4096, 1 << 16, 1 << 20} {
		if s.mismatch(70_000+off, b) < 0 {
			t.Errorf("%d bytes out of place are not seen", off)
		}
	}
	b[2999] ^= 1
	if i := s.mismatch(70_000, b); i != 2999 {
		t.Errorf("byte 2999 is wrong, %d is told", i)
	}
}

func TestHostsLearnThePathMTU(t *testing.T) {
	n := New(5)
	a, b := n.Host(HostConfig{}), n.Host(HostConfig{})
	l, _ := n.Join(a, b, MustProfile("delay=5ms mtu=700"))
	l.TooBig = true
	f := n.Flow(FlowConfig{From: a, To: b, Bytes: 50_000})
	if !n.RunUntil(time.Minute, f.Done) || f.Err() != nil {
		t.Fatal("not done", f.Err())
	}
	if mtu := a.MTU(&wire.Tuple{Local: a.Addr, Remote: b.Addr}); mtu != 700 {
		t.Errorf("the MTU is thought to be %d", mtu)
	}
	if l.Count.LostMTU == 0 || l.Count.LostMTU > 40 {
		t.Errorf("%d packets were too large", l.Count.LostMTU)
	}
}
