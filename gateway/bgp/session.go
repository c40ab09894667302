package bgp

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"
)

// session is the state machine of a peer. run's goroutine owns it; what others read is guarded by mu.
type session struct {
	speaker *Speaker
	local   Config // without peers
	peer    Peer
	adopted *Adopted // the session that it begins with; nil: none
	stop    context.CancelCauseFunc
	wake    chan struct{}
	pause   chan chan<- *Handed // asks for the session, for another process

	failures int // that followed each other

	mu   sync.Mutex
	st   PeerStatus
	conn net.Conn // nil: none
	id   uint64   // of conn
}

// lingerMost bounds what is read of a peer that goes on to send, octets.
const lingerMost = 16 << 20

// Times of the state machine.
const (
	dialLimit    = 10 * time.Second // of TCP
	openLimit    = 30 * time.Second // from the connection to Established
	steady       = time.Minute      // a session that lasted so long has not failed
	maxRetry     = time.Minute      // between dials, unless ConnectRetry is longer
	farewell     = time.Second      // to send a last message
	refreshEvery = time.Second      // a peer that asks for the routes again gets them no more often
)

func newSession(s *Speaker, c *Config, p Peer, adopted *Adopted) *session {
	x := &session{
		speaker: s, local: *c, peer: p, adopted: adopted, wake: make(chan struct{}, 1), pause: make(chan chan<- *Handed),
		st: PeerStatus{Address: p.Address, AS: p.AS, Since: time.Now()},
	}
	x.local.Peers = nil
	return x
}

// notify has the session look at the routes.
func (x *session) notify() {
	select {
	case x.wake <- struct{}{}:
	default: // it will
	}
}

// to moves the session on by an event. It reports false, and leaves the state, where the event may not come.
func (x *session) to(e event) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	next, ok := x.st.State.next(e)
	if !ok {
		return false
	}
	if next != x.st.State {
		x.st.State, x.st.Since = next, time.Now()
	}
	return true
}

// update changes what status returns.
func (x *session) update(f func(st *PeerStatus)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	f(&x.st)
}

// status returns what is known of the session.
func (x *session) status() PeerStatus {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.st
}

// errPassed is the end of a session that another process goes on with.
var errPassed = errors.New("passed to another process")

// run dials the peer and serves its session, again and again until ctx ends. The cause of that is what the peer is sent.
func (x *session) run(ctx context.Context) {
	defer x.to(eventStop)
	if a := x.adopted; a != nil {
		c, err := a.open(x)
		if err == nil {
			x.to(eventAdopt)
			x.log("established", "adopted", true)
			err = c.serve(ctx)
		}
		if x.ended(ctx, err) {
			return
		}
	}
	for {
		x.to(eventDial)
		dialing, done := context.WithTimeout(ctx, dialLimit)
		conn, err := x.speaker.opt.Dial(dialing, &x.peer)
		done()
		if err == nil {
			err = newConnection(x, conn).serve(ctx)
		}
		if x.ended(ctx, err) || !x.rest(ctx) {
			return
		}
	}
}

// ended notes why a session, or the dial for one, has ended. It reports true where there is to be no other.
func (x *session) ended(ctx context.Context, err error) bool {
	st := x.status()
	was, lasted := st.State, time.Since(st.Since)
	if was != Established || lasted < steady {
		x.failures++
	} else {
		x.failures = 1
	}
	if ctx.Err() != nil || errors.Is(err, errPassed) {
		x.to(eventStop)
		if was == Established && !errors.Is(err, errPassed) {
			x.log("closed", "cause", fmt.Sprint(context.Cause(ctx)))
		}
		return true
	}
	x.to(eventEnd)
	said := x.status().LastError
	x.update(func(st *PeerStatus) {
		st.LastError, st.LastErrorAt = describe(err, &x.peer), time.Now()
		st.Prefixes, st.Received, st.Families, st.HoldTime = 0, 0, nil, 0
		if was == Established {
			st.Lost++
		} else {
			st.Failed++
		}
	})
	if text := describe(err, &x.peer); was == Established || text != said { // a peer that is away says the same for hours
		x.speaker.opt.Log.Warn("bgp", "peer", x.peer.Address.String(), "state", "down", "was", was.String(), "cause", text, "retry", x.delay().String())
	}
	return false
}

// describe returns an error of a session, with what an operator does about it.
func describe(err error, p *Peer) string {
	text := err.Error()
	n := new(Notification)
	if !errors.As(err, &n) {
		silent := isTimeout(err) || errors.Is(err, context.DeadlineExceeded) // the latter is of a dial
		switch {
		case p.Password != "" && silent:
			text += " (a router with another password, or none, does not answer: compare password_file with the router's)"
		case silent:
			text += " (is it reachable from here, and is BGP configured there for this address? a router with a password does not answer without one)"
		}
		return text
	}
	switch {
	case n.Code == codeOpen && n.Subcode == openPeerAS && n.received:
		text += " (it expects another AS of this gateway: compare bgp.as with its `neighbor remote-as`)"
	case n.Code == codeOpen && n.Subcode == openPeerAS:
		text += fmt.Sprintf(" (it is not AS %d, as the key `as` of the peer says)", p.AS)
	case n.Code == codeOpen && n.Subcode == openIdentifier:
		text += " (two routers have the same identifier: change bgp.router_id)"
	case n.Code == codeCease && n.Subcode == ceasePrefixes && !n.received:
		text += fmt.Sprintf(" (it announced more than %d: filter what it sends to this gateway, or raise max_prefixes)", p.MaxPrefixes)
	case n.Code == codeHold && !n.received:
		text += " (it has sent nothing for the hold time)"
	}
	return text
}

// delay returns how long the session rests after so many failures: a peer that flaps, or refuses, is dialled less and less often.
func (x *session) delay() time.Duration {
	d := x.peer.ConnectRetry << min(max(x.failures-1, 0), 6)
	return max(min(d, maxRetry), x.peer.ConnectRetry)
}

// rest waits before the next dial: three quarters of delay to all of it (RFC 4271 10). It returns false when ctx ends.
func (x *session) rest(ctx context.Context) bool {
	d := x.delay()
	t := time.NewTimer(d - time.Duration(rand.Int64N(int64(d)/4+1)))
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case to := <-x.pause:
			to <- nil
		case <-t.C:
			return true
		}
	}
}

// log logs a change of the session.
func (x *session) log(state string, args ...any) {
	x.speaker.opt.Log.Info("bgp", append([]any{"peer", x.peer.Address.String(), "state", state}, args...)...)
}

// negotiated holds the result of both OPEN messages.
type negotiated struct {
	internal bool // the peer is of the same AS
	fourAS   bool
	families families
	hold     time.Duration // 0 is none
	nextHop  [IPv6 + 1]netip.Addr
}

// negotiate returns what a peer's OPEN and the configuration settle. Families without a next hop are left out.
func (x *session) negotiate(remote *open, conn net.Conn) negotiated {
	n := negotiated{internal: x.peer.AS == x.local.AS, fourAS: remote.FourAS, hold: holdTime(x.peer.HoldTime, remote.HoldTime)}
	n.nextHop[IPv4], n.nextHop[IPv6] = x.peer.NextHop4, x.peer.NextHop6
	if ap, err := netip.ParseAddrPort(conn.LocalAddr().String()); err == nil {
		if own := ap.Addr().Unmap(); !n.nextHop[familyOf(own)].IsValid() {
			n.nextHop[familyOf(own)] = own
		}
	}
	for _, f := range x.peer.Families {
		if remote.Families.has(f) && n.nextHop[f].IsValid() {
			n.families = n.families.with(f)
		}
	}
	return n
}

// open returns the OPEN of this side.
func (x *session) open() *open {
	o := &open{
		AS: x.local.AS, HoldTime: uint16(x.peer.HoldTime / time.Second), ID: x.local.RouterID, FourAS: true, Refresh: true,
		Restart: x.local.GracefulRestart > 0, RestartTime: uint16(x.local.GracefulRestart / time.Second),
	}
	for _, f := range x.peer.Families {
		o.Families = o.Families.with(f)
	}
	if o.Restart {
		// The gateway forwards by other tables than routes from BGP, and so its forwarding state is preserved. It waits for no routes
		// of its peer, and the peer need not wait for those of the gateway either, which come at once: so the bit R is set.
		o.Restarting, o.Preserved = true, o.Families
	}
	return o
}
