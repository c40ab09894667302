package control

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/gateway/config"
)

// holding runs the exchange with a peer until the gateway holds resets, or holds none any more, and no longer waits.
func holding(t *testing.T, peer netip.AddrPort, established time.Duration, want bool) {
	t.Helper()
	c := parse(t, fill("source: gateway"))
	c.Table.TCPEstablished = established
	c.Sync = &config.Sync{Listen: netip.MustParseAddrPort("127.0.0.1:0"), Peer: peer, Key: make([]byte, 32)}
	w := newWorldWith(t, c, hopsOf(c))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	defer func() { stop(); <-ended }()
	go func() {
		w.g.Sync(ctx, func() clock.Time { return w.now }, func(_ int, f func()) bool { f(); return true })
		close(ended)
	}()
	<-w.g.PeerAwaited()
	for end := time.Now().Add(time.Minute); w.g.snap.Load().HoldResets != want; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("holds resets: %v, after a minute", !want)
		}
	}
	time.Sleep(3 * peerEvery)
	if st := w.g.syncStatus(); st.Holds != want || st.Waiting {
		t.Errorf("the status says %+v", st)
	}
}

// A gateway that starts while its peer is out of reach, or does not understand it, resets no unknown connections: they may
// be the peer's.
func TestResetsAreHeldForAPeerThatIsNotReached(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0") // answers, and is no peer
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	holding(t, netip.MustParseAddrPort(l.Addr().String()), time.Hour, true)
}

// Its resets are not held for ever: where the peer's host refuses, no gateway runs there, and what one had is lost.
func TestResetsAreNotHeldForAPeerThatIsGone(t *testing.T) {
	t.Parallel()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := netip.MustParseAddrPort(closed.Addr().String())
	closed.Close()
	holding(t, at, time.Hour, false)
}

// Nor for longer than an idle connection is remembered.
func TestResetsAreNotHeldForEver(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0") // never answers
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	holding(t, netip.MustParseAddrPort(l.Addr().String()), peerAwaited+2*time.Second, false)
}
