package bgp

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Config describes a speaker and the routers that it speaks with.
type Config struct {
	AS       uint32
	RouterID netip.Addr // IPv4; unique in the AS

	// GracefulRestart bounds how long routers keep the routes when a session breaks without a NOTIFICATION (RFC 4724); 0: the
	// capability is not offered. At most MaxRestart.
	GracefulRestart time.Duration

	// Drain is the time from the community of graceful shutdown to the withdrawal; 0: withdrawn at once.
	Drain time.Duration

	Peers []Peer
}

// Peer is a router.
type Peer struct {
	Address      netip.Addr
	Port         uint16
	AS           uint32
	LocalAddress netip.Addr // of the kernel, that connections come from; the zero Addr leaves it to the kernel's routes
	Password     string     // of MD5 signatures (RFC 2385); "" is none
	HoldTime     time.Duration
	ConnectRetry time.Duration // after a session or a dial that failed; longer after several
	Hops         int           // how far it is away: 1 is on the link; 0 is any distance
	TTLSecurity  bool          // packets from further away are not heard (RFC 5082)
	Families     []Family
	NextHop4     netip.Addr // of IPv4 routes; the zero Addr is the local address of the session. NextHop6 likewise
	NextHop6     netip.Addr
	MaxPrefixes  int // that it may announce at once; with more the session ends
}

// Limits of a configuration.
const (
	MaxRestart     = 4095 * time.Second // what the capability has room for
	MaxCommunities = 32                 // of a route: attributes and a prefix must fit in a message
	MaxPrepend     = 16
	MaxPassword    = 80 // TCP_MD5SIG_MAXKEYLEN
	MinHoldTime    = 3 * time.Second
	MaxHoldTime    = 65535 * time.Second
)

// Options hold settings that are not in the configuration.
type Options struct {
	Log *slog.Logger // of changes; required

	// Dial connects to a router; nil is TCP of the kernel.
	Dial func(ctx context.Context, p *Peer) (net.Conn, error)

	// Adopted are sessions of the process that this one replaces, which it took from Speaker.Suspend. New takes them.
	Adopted []Adopted
}

// routes are routes by their prefix. A set is not changed once it is published.
type routes map[netip.Prefix]Route

// Speaker announces routes to routers. Its methods may be called from any goroutine.
type Speaker struct {
	opt Options
	rib atomic.Pointer[routes] // announced at present; nil until the first Announce

	mu       sync.Mutex // guards what follows
	cfg      Config
	wanted   routes                     // by the last Announce
	draining map[netip.Prefix]time.Time // since when routes are marked with Route.Shutdown
	timer    *time.Timer                // of the next end of a drain; nil: none
	sessions map[netip.Addr]*session
	adopted  []Adopted
	ctx      context.Context // of Run; nil before
	ending   bool            // Shutdown or Suspend was called: no session begins
	running  sync.WaitGroup
}

// New returns a speaker, which dials once Run is called.
func New(c Config, o Options) *Speaker {
	if o.Dial == nil {
		o.Dial = Dial
	}
	return &Speaker{opt: o, cfg: c, adopted: o.Adopted, draining: map[netip.Prefix]time.Time{}, sessions: map[netip.Addr]*session{}}
}

// Run keeps sessions with the routers until ctx ends or Shutdown or Suspend has ended them.
func (s *Speaker) Run(ctx context.Context) {
	s.mu.Lock()
	s.ctx = ctx
	s.startSessions()
	s.mu.Unlock()
	<-ctx.Done()
	s.end(shutdown(ceaseShutdown, ""))
	s.running.Wait()
}

// Configure replaces the configuration. Sessions with peers that stay as they are go on, unless what all have in common has changed.
func (s *Speaker) Configure(c Config) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.cfg
	s.cfg = c
	common := was.AS != c.AS || was.RouterID != c.RouterID || was.GracefulRestart != c.GracefulRestart
	for at, x := range s.sessions {
		i := slices.IndexFunc(c.Peers, func(p Peer) bool { return p.Address == at })
		switch {
		case i < 0:
			x.stop(shutdown(ceaseUnconfig, ""))
		case common || !reflect.DeepEqual(x.peer, c.Peers[i]):
			x.stop(shutdown(ceaseReconfig, ""))
		default:
			continue
		}
		delete(s.sessions, at)
	}
	s.startSessions()
	s.publish(time.Now())
}

// startSessions starts those that the configuration has and that are not there. The caller holds s.mu.
func (s *Speaker) startSessions() {
	if s.ctx == nil || s.ending {
		return
	}
	for i := range s.cfg.Peers {
		p := s.cfg.Peers[i]
		if s.sessions[p.Address] != nil {
			continue
		}
		x := newSession(s, &s.cfg, p, s.adopt(&p))
		s.sessions[p.Address] = x
		ctx, stop := context.WithCancelCause(context.WithoutCancel(s.ctx))
		x.stop = stop
		s.running.Go(func() { x.run(ctx) })
	}
	for i := range s.adopted { // whose peers are gone
		s.adopted[i].refuse(shutdown(ceaseUnconfig, ""))
	}
	s.adopted = nil
}

// Announce replaces the routes that are announced. Those with Route.Shutdown are withdrawn once they have been so for Config.Drain.
func (s *Speaker) Announce(list []Route) {
	wanted := make(routes, len(list))
	for _, r := range list {
		wanted[r.Prefix] = r
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending { // Shutdown withdraws; and another process announces after Suspend
		return
	}
	s.wanted = wanted
	s.publish(time.Now())
}

// publish makes what is wanted at a time the routes of the sessions, and wakes these. The caller holds s.mu.
func (s *Speaker) publish(now time.Time) {
	if s.wanted == nil {
		return
	}
	rib, next := make(routes, len(s.wanted)), time.Time{}
	for p, r := range s.wanted {
		if !r.Shutdown {
			delete(s.draining, p)
			rib[p] = r
			continue
		}
		since, ok := s.draining[p]
		if !ok {
			since = now
			s.draining[p] = since
		}
		if until := since.Add(s.cfg.Drain); now.Before(until) {
			rib[p] = r
			if next.IsZero() || until.Before(next) {
				next = until
			}
		}
	}
	maps.DeleteFunc(s.draining, func(p netip.Prefix, _ time.Time) bool { _, ok := s.wanted[p]; return !ok })
	s.alarm(next, now)
	if old := s.rib.Load(); old != nil && maps.EqualFunc(*old, rib, sameRoute) {
		return
	}
	s.logRoutes(s.rib.Swap(&rib), rib)
	for _, x := range s.sessions {
		x.notify()
	}
}

// alarm publishes again at a time, if it is not zero. The caller holds s.mu.
func (s *Speaker) alarm(at, now time.Time) {
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
	if at.IsZero() {
		return
	}
	s.timer = time.AfterFunc(at.Sub(now), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.publish(time.Now())
	})
}

func sameRoute(a, b Route) bool { return reflect.DeepEqual(a, b) }

// logged is the number of prefixes that a line of the log names.
const logged = 8

// logRoutes logs which prefixes come, go and are about to go, and how many routers learn of it now: those with a session. The caller
// holds s.mu.
func (s *Speaker) logRoutes(old *routes, now routes) {
	if old == nil {
		old = &routes{}
	}
	changed := map[string][]netip.Prefix{}
	for p, r := range now {
		was, ok := (*old)[p]
		switch {
		case !ok:
			changed["announced"] = append(changed["announced"], p)
		case r.Shutdown && !was.Shutdown:
			changed["graceful shutdown"] = append(changed["graceful shutdown"], p)
		case !sameRoute(was, r):
			changed["changed"] = append(changed["changed"], p)
		}
	}
	for p := range *old {
		if _, ok := now[p]; !ok {
			changed["withdrawn"] = append(changed["withdrawn"], p)
		}
	}
	up := s.establishedSessions()
	for _, state := range slices.Sorted(maps.Keys(changed)) {
		list := changed[state]
		if state == "announced" && up == 0 {
			state = "waits for a session"
		}
		slices.SortFunc(list, comparePrefixes)
		args := []any{"state", state, "routers", fmt.Sprintf("%d of %d", up, len(s.cfg.Peers)), "prefixes", fmt.Sprint(list[:min(len(list), logged)])}
		if more := len(list) - logged; more > 0 {
			args = append(args, "more", more)
		}
		s.opt.Log.Info("bgp", args...)
	}
}

func comparePrefixes(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}

// end ends all sessions by a notification.
func (s *Speaker) end(why *Notification) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ending = true
	if s.timer != nil {
		s.timer.Stop()
	}
	for _, x := range s.sessions {
		x.stop(why)
	}
}

// Shutdown marks all routes for graceful shutdown, withdraws them after Config.Drain, and ends the sessions. It returns at once where
// no router has a route, and early when ctx ends.
func (s *Speaker) Shutdown(ctx context.Context, text string) {
	s.mu.Lock()
	s.ending = true
	wait := s.cfg.Drain
	list := make(routes, len(s.wanted))
	for p, r := range s.wanted {
		r.Shutdown = true
		list[p] = r
	}
	s.wanted = list
	s.publish(time.Now())
	rib := s.rib.Load()
	if rib == nil || len(*rib) == 0 || s.establishedSessions() == 0 {
		wait = 0
	}
	s.mu.Unlock()
	if wait > 0 {
		t := time.NewTimer(wait)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
		}
	}
	s.mu.Lock()
	s.wanted = routes{}
	s.publish(time.Now())
	s.mu.Unlock()
	s.end(shutdown(ceaseShutdown, text))
	s.running.Wait()
}

// establishedSessions returns the number of sessions that are. The caller holds s.mu.
func (s *Speaker) establishedSessions() (n int) {
	for _, x := range s.sessions {
		if x.status().State == Established {
			n++
		}
	}
	return n
}
