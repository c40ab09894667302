package bgp

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

// kernelRouter is a router on loopback, by the kernel's TCP.
func kernelRouter(t *testing.T) (*router, net.Listener, Peer) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	p := testPeer()
	p.Address, p.Port = netip.MustParseAddr("127.0.0.1"), uint16(l.Addr().(*net.TCPAddr).Port)
	r := &router{t: t, log: &lockedLog{}, dials: make(chan net.Conn)}
	done := make(chan struct{})
	t.Cleanup(func() { close(done) })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			select {
			case r.dials <- c:
			case <-done:
				c.Close()
			}
		}
	}()
	return r, l, p
}

// run runs a speaker until the test ends.
func run(t *testing.T, s *Speaker) {
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); s.Run(ctx) }()
	t.Cleanup(func() { stop(); <-done })
}

// await waits until the session with the one peer is in a state.
func await(t *testing.T, s *Speaker, want State) PeerStatus {
	t.Helper()
	var st PeerStatus
	for range 6000 {
		if st = s.Status().Peers[0]; st.State == want {
			return st
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("status %+v, want %v", st, want)
	return st
}

// suspended suspends a speaker, and returns its sessions as another process gets them: by JSON and descriptors.
func suspended(t *testing.T, s *Speaker) (adopted []Adopted) {
	t.Helper()
	sockets, err := s.Sockets()
	if err != nil {
		t.Fatal(err)
	}
	for i := range sockets {
		if sockets[i], err = ParseSocket(sockets[i].String(), sockets[i].File); err != nil {
			t.Fatal(err)
		}
	}
	st := s.Suspend()
	text, err := json.Marshal(&st)
	if err != nil {
		t.Fatal(err)
	}
	st = Suspended{}
	if err := json.Unmarshal(text, &st); err != nil {
		t.Fatal(err)
	}
	return st.Adopt(sockets)
}

// TestASessionPassesToAnotherProcess suspends a speaker while its router is in the middle of a message, and goes on with another one.
func TestASessionPassesToAnotherProcess(t *testing.T) {
	r, _, p := kernelRouter(t)
	opt := Options{Log: slog.New(slog.NewTextHandler(r.log, nil))}
	first := New(testConfig(p), opt)
	run(t, first)
	gone, stays := netip.MustParsePrefix("198.18.1.9/32"), vip4
	first.Announce([]Route{{Prefix: gone}, {Prefix: stays}})
	r.establish(routerOpen())
	if u := r.wantUpdate(); len(u.announced) != 2 {
		t.Fatalf("announced %v", u.announced)
	}
	r.wantEnd()
	await(t, first, Established)
	adopted := suspended(t, first)
	if len(adopted) != 1 || !slices.Equal(adopted[0].Announced, []netip.Prefix{stays, gone}) {
		t.Fatalf("adopted %+v", adopted)
	}
	opt.Adopted = adopted
	second := New(testConfig(p), opt)
	run(t, second)
	if st := await(t, second, Established); st.Prefixes != 2 || st.Established != 1 || !slices.Equal(st.Families, []string{"ipv4", "ipv6"}) {
		t.Errorf("status %+v", st)
	}
	second.Announce([]Route{{Prefix: stays}})
	if u := r.wantUpdate(); !slices.Equal(u.withdrawn, []netip.Prefix{gone}) {
		t.Errorf("got %v, want %v withdrawn", u.change, gone)
	}
	if u := r.wantUpdate(); !slices.Equal(u.announced, []netip.Prefix{stays}) {
		t.Errorf("got %v, want %v announced again", u.change, stays)
	}
	if first.Status().Peers[0].State != Stopped {
		t.Error("the first process has the session still")
	}
	r.send(message(typeUpdate, 0, 0, 0, 0, 32, 10, 0, 0, 1))
	for second.Status().Peers[0].Received != 1 {
		time.Sleep(10 * time.Millisecond)
	}
}

// TestAMessageInTwoParts is read by the process that has its first part, and the session passes behind it.
func TestAMessageInTwoParts(t *testing.T) {
	r, _, p := kernelRouter(t)
	s := New(testConfig(p), Options{Log: slog.New(slog.NewTextHandler(r.log, nil))})
	run(t, s)
	s.Announce(nil)
	r.establish(routerOpen())
	r.wantEnd()
	await(t, s, Established)
	update := message(typeUpdate, 0, 0, 0, 0, 32, 10, 0, 0, 1)
	r.send(update[:25])
	time.Sleep(50 * time.Millisecond) // so that it is read; if not, the session passes anyway
	go func() {
		time.Sleep(100 * time.Millisecond)
		r.send(update[25:])
	}()
	adopted := suspended(t, s)
	if len(adopted) != 1 {
		t.Fatalf("%d sessions", len(adopted))
	}
	adopted[0].File.Close()
	if st := s.Status().Peers[0]; st.UpdatesReceived != 1 {
		t.Errorf("status %+v", st)
	}
}

// TestOtherSettingsEndAnAdoptedSession ends it by a word to the router, and dials anew.
func TestOtherSettingsEndAnAdoptedSession(t *testing.T) {
	r, _, p := kernelRouter(t)
	opt := Options{Log: slog.New(slog.NewTextHandler(r.log, nil))}
	first := New(testConfig(p), opt)
	run(t, first)
	first.Announce(nil)
	r.establish(routerOpen())
	r.wantEnd()
	await(t, first, Established)
	opt.Adopted = suspended(t, first)
	p.HoldTime = 30 * time.Second
	second := New(testConfig(p), opt)
	run(t, second)
	r.wantNotification(codeCease, ceaseReconfig)
	second.Announce(nil)
	if o := r.establish(routerOpen()); o.HoldTime != 30 {
		t.Errorf("OPEN %+v", o)
	}
	await(t, second, Established)
}

// TestResume dials anew after a process that has not taken over.
func TestResume(t *testing.T) {
	r, _, p := kernelRouter(t)
	s := New(testConfig(p), Options{Log: slog.New(slog.NewTextHandler(r.log, nil))})
	run(t, s)
	s.Announce([]Route{{Prefix: vip4}})
	r.establish(routerOpen())
	r.wantUpdate()
	r.wantEnd()
	await(t, s, Established)
	for _, a := range suspended(t, s) {
		a.File.Close()
	}
	s.Resume()
	r.establish(routerOpen())
	if u := r.wantUpdate(); !slices.Equal(u.announced, []netip.Prefix{vip4}) {
		t.Errorf("got %v", u.change)
	}
}

// TestAPeerReadsWhyItsFloodEnds sends more than the speaker takes, which must not reset the connection before the NOTIFICATION is read.
func TestAPeerReadsWhyItsFloodEnds(t *testing.T) {
	r, _, p := kernelRouter(t)
	p.MaxPrefixes = 10
	s := New(testConfig(p), Options{Log: slog.New(slog.NewTextHandler(r.log, nil))})
	run(t, s)
	s.Announce(nil)
	r.establish(routerOpen())
	r.wantEnd()
	var flood []byte
	for i := range 20_000 {
		flood = append(flood, message(typeUpdate, 0, 0, 0, 0, 32, 10, 1, byte(i>>8), byte(i))...)
	}
	r.send(flood)
	r.wantNotification(codeCease, ceasePrefixes)
	if _, _, err := r.in.next(); !errors.Is(err, io.EOF) {
		t.Errorf("behind the NOTIFICATION %v, want the end", err)
	}
	r.conn.Close()
}

// TestPasswordAndTTLAreOptionsOfTheSocket connects to a listener that has neither: with TTL security it hears 255 hops away, and a
// password makes it silent.
func TestPasswordAndTTLAreOptionsOfTheSocket(t *testing.T) {
	_, _, p := kernelRouter(t)
	p.TTLSecurity = true
	ctx, stop := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer stop()
	if c, err := Dial(ctx, &p); err == nil { // the listener sends 64
		c.Close()
		t.Error("with ttl_security a router that sends a TTL of 64 is heard")
	}
	p.TTLSecurity, p.Password = false, "secret"
	if c, err := Dial(ctx, &p); err == nil {
		c.Close()
		t.Error("a router without the password is heard")
	} else if text := describe(err, &p); !strings.Contains(text, "compare password_file with the router's") {
		t.Errorf("%q names no remedy", text)
	}
	p.Password, p.LocalAddress = "", netip.MustParseAddr("192.0.2.77")
	if _, err := Dial(context.Background(), &p); err == nil {
		t.Error("an address that is not the kernel's is accepted")
	}
}
