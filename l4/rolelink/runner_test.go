package rolelink

import (
	"context"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/l4/role"
)

// end is a runner with a process around it.
type end struct {
	*Runner
	answers, announced, changes atomic.Int64
	streams, unable             atomic.Bool
	stop                        context.CancelFunc
	done                        sync.WaitGroup
}

// monotonic is the clock of the machine.
func monotonic() clock.Time {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	return clock.Time(t.Nano())
}

// start opens and runs an end of a pair on the loopback device.
func start(t *testing.T, index uint8, key byte, more ...Path) *end {
	t.Helper()
	e := &end{}
	at := []netip.AddrPort{netip.MustParseAddrPort("127.83.0.1:3780"), netip.MustParseAddrPort("127.83.0.2:3780")}
	r, err := Open(Config{
		Role: role.Config{Index: index, Priority: 100, Lease: 2 * time.Second}, Paths: append([]Path{{at[index], at[1-index]}}, more...),
		Key: []byte(strings.Repeat(string(key), 32)), Now: monotonic,
		Links: func() ([]Link, error) { return nil, nil }, Addrs: func() []netip.Addr { return nil }, Able: func() (bool, bool) { return !e.unable.Load(), true },
		Streams: func() (bool, bool) { return e.streams.Load(), true },
		Answers: func(until clock.Time) { e.answers.Store(int64(until)) },
		Changed: func(Event) { e.changes.Add(1) }, Announce: func() { e.announced.Add(1) },
	})
	if err != nil {
		t.Fatal(err)
	}
	e.Runner = r
	ctx, stop := context.WithCancel(t.Context())
	e.stop = func() { stop(); e.done.Wait() }
	e.done.Go(func() { r.Run(ctx) })
	t.Cleanup(e.stop)
	return e
}

// await waits until an end has a state.
func await(t *testing.T, e *end, s role.State) {
	t.Helper()
	for end := time.Now().Add(time.Minute); e.State() != s; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%v, want %v: %+v", e.State(), s, e.Status())
		}
	}
}

// Two runners decide, hand over by an order, follow a device without a link, and take over from one that ends.
func TestTwoRunners(t *testing.T) {
	a, b := start(t, 0, 'k'), start(t, 1, 'k')
	await(t, a, role.Active)
	await(t, b, role.Standby)
	if a.answers.Load() == 0 || b.answers.Load() != 0 || a.announced.Load() != 1 || b.announced.Load() != 0 {
		t.Errorf("answers %d and %d, announcements %d and %d", a.answers.Load(), b.answers.Load(), a.announced.Load(), b.announced.Load())
	}
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if err := a.Order(false); err == nil {
			break
		}
	}
	await(t, b, role.Active)
	await(t, a, role.Standby)
	if a.answers.Load() != 0 || a.announced.Load() != 1 {
		t.Error("a standby answers")
	}
	b.unable.Store(true)
	b.LinkChanged()
	await(t, a, role.Active)
	await(t, b, role.Standby)
	a.Configure(role.Config{Priority: 9, Preempt: true})
	st := a.Status()
	if st.Priority != 9 || !st.Preempt || st.Asks != 0 || !st.Peer.Heard || st.Peer.Able || st.Last.Why == "" || !st.Paths[0].Up || st.Received == 0 || st.Rejected != 0 {
		t.Errorf("%+v", st)
	}
	b.unable.Store(false)
	b.LinkChanged()
	a.Leave()
	a.stop()
	await(t, b, role.Active)
	for end := time.Now().Add(time.Minute); b.Status().Peer.Heard && time.Now().Before(end); time.Sleep(time.Millisecond) {
		continue // the farewell is on its way
	}
	if st := b.Status(); st.Peer.Heard || !strings.Contains(st.Last.Why, "hands over") && !strings.Contains(st.Last.Why, "no host") {
		t.Errorf("%+v", st)
	}
}

// A refusal counts where no stream of the sync is up, and on paths that the peer is known to have.
func TestARefusal(t *testing.T) {
	e := start(t, 0, 'k')
	e.stop()
	r := e.Runner
	r.ended = false
	e.streams.Store(false)
	r.machine = role.New(r.cfg.Role, r.cfg.Now())
	r.refused(&path{})
	if s := r.State(); s != role.Joining {
		t.Errorf("a path that the peer does not have: %v", s)
	}
	e.streams.Store(true)
	r.refused(r.paths[0])
	if s := r.State(); s != role.Joining {
		t.Errorf("a peer without a role: %v", s)
	}
	e.streams.Store(false)
	r.refused(r.paths[0])
	if s := r.State(); s != role.Probing {
		t.Errorf("a peer that is gone: %v", s)
	}
}

// Messages of another key are counted, and nothing else.
func TestAnotherKey(t *testing.T) {
	a, b := start(t, 0, 'k'), start(t, 1, 'x')
	for end := time.Now().Add(time.Minute); a.Status().Rejected == 0 || b.Status().Rejected == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%+v", a.Status())
		}
	}
	if st := a.Status(); st.Received != 0 || st.Peer.Heard {
		t.Errorf("%+v", st)
	}
}

// Each message comes by each path, once as a copy: both paths are up, all the time.
func TestBothPathsAreUp(t *testing.T) {
	at := []netip.AddrPort{netip.MustParseAddrPort("127.83.1.1:3780"), netip.MustParseAddrPort("127.83.1.2:3780")}
	a, b := start(t, 0, 'k', Path{at[0], at[1]}), start(t, 1, 'k', Path{at[1], at[0]})
	await(t, a, role.Active)
	await(t, b, role.Standby)
	for _, e := range []*end{a, b} {
		for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			if st := e.Status(); st.Paths[0].Up && st.Paths[1].Up {
				break
			} else if time.Now().After(end) {
				t.Fatalf("%+v", st)
			}
		}
	}
	for range 3 {
		before := [2]int64{a.paths[0].heard.Load(), a.paths[1].heard.Load()}
		for end := time.Now().Add(time.Minute); a.paths[0].heard.Load() == before[0] || a.paths[1].heard.Load() == before[1]; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("one of two paths is not heard: %+v", a.Status())
			}
		}
		if st := a.Status(); st.Received == 0 {
			t.Errorf("%+v", st)
		}
	}
}

// A path without a route does not keep a gateway from its role, and is opened once there is one. An address in use is an error.
func TestAPathWithoutARoute(t *testing.T) {
	none := Path{netip.MustParseAddrPort("192.0.2.77:3780"), netip.MustParseAddrPort("192.0.2.78:3780")}
	if err := (&path{Path: none, closed: make(chan struct{})}).open(); err == nil || absent(err) {
		t.Errorf("an IPv4 address that is not there: %v", err)
	}
	for err, want := range map[error]bool{unix.ENETUNREACH: true, unix.EHOSTUNREACH: true, unix.ENETDOWN: true, unix.EADDRINUSE: false, unix.EADDRNOTAVAIL: false} {
		if absent(err) != want {
			t.Errorf("%v: absent %v", err, !want)
		}
	}
	six := &path{Path: Path{netip.MustParseAddrPort("[2001:db8:77::1]:1"), netip.MustParseAddrPort("[2001:db8:77::2]:1")}, closed: make(chan struct{})}
	if err := six.open(); err == nil || !absent(err) || six.failure() == "" {
		t.Errorf("an IPv6 address that is not there: %v", err)
	}
	six.send(nil)
	if six.fails.Load() != 1 {
		t.Error("a message without a socket is not counted")
	}
	six.Path = Path{netip.MustParseAddrPort("127.83.2.1:3780"), netip.MustParseAddrPort("127.83.2.2:3780")}
	stop := time.AfterFunc(time.Minute, func() { _ = six.close() }) // ends a hang
	defer stop.Stop()
	if six.socket() == nil || six.failure() != "" {
		t.Fatalf("it is not opened: %s", six.failure())
	}
	if err := six.close(); err != nil || six.close() != nil || six.open() == nil {
		t.Errorf("close: %v", err)
	}
	waits := &path{Path: none, closed: make(chan struct{})}
	_ = waits.close()
	if waits.socket() != nil {
		t.Error("a closed path has a socket")
	}
}

// The second copy of a message marks its path as the first one does.
func TestACopyMarksItsPath(t *testing.T) {
	e := start(t, 0, 'k')
	now := e.cfg.Now()
	e.mu.Lock()
	self := e.machine.Farewell(now).From
	e.mu.Unlock()
	in := role.Message{Number: 1, From: role.Incarnation{1}, To: self, Sent: 1, Echo: now, Lease: time.Second}
	for i := range 2 {
		p := &path{}
		if e.take(p, in); !p.up(time.Minute) {
			t.Errorf("path %d is not up", i)
		}
	}
}
