package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/gateway/bgp"
	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/gateway/upgrade"
	l4control "github.com/millrace/millrace/l4/control"
	"github.com/millrace/millrace/l4/datapath"
)

// announcer announces the addresses of services to routers, while these have a backend.
type announcer struct {
	speaker   atomic.Pointer[bgp.Speaker] // nil before the gateway serves
	ctx       context.Context             // of the speaker
	stop      context.CancelFunc
	wake      chan struct{}
	inherited []bgp.Socket               // of sessions of the process before this one
	defaults  atomic.Pointer[config.BGP] // of the configuration in use; nil: none
	suspended bool                       // another process may have the sessions; guarded by upgrading.one

	// Of announceRoutes's goroutine.
	routes    map[netip.Prefix]bgp.Route    // announced
	unsettled map[availabilityKey]time.Time // since when

	listeners atomic.Pointer[announcedListeners] // nil: none
}

// availabilityKey names a family of a service or a listener.
type availabilityKey struct {
	of     string
	family int
}

const (
	// settleLimit bounds how long a service that is not known to have a backend keeps its routes: after an upgrade the new process has
	// probed none yet, and knows no next hop.
	settleLimit = 10 * time.Second
	// settleStep is the interval at which such a service is looked at, since the first probe that succeeds is no change.
	settleStep = 100 * time.Millisecond
	// poolStep is the interval at which the pools of announced listeners are looked at.
	poolStep = 200 * time.Millisecond
	bgpEnd   = 3 * time.Second // to send what ends the sessions
)

// speakerConfig returns the configuration of the speaker. Without bgp it has no peers.
func speakerConfig(cfg *config.Config) (c bgp.Config) {
	b := cfg.BGP
	if b == nil {
		return c
	}
	c = bgp.Config{AS: b.AS, RouterID: b.RouterID, GracefulRestart: b.GracefulRestart, Drain: b.Drain}
	for i := range b.Peers {
		p := &b.Peers[i]
		one := bgp.Peer{
			Address: p.Address, Port: uint16(p.Port), AS: p.AS, LocalAddress: p.LocalAddress, Password: p.Password, HoldTime: p.HoldTime,
			ConnectRetry: p.ConnectRetry, Hops: p.Hops, TTLSecurity: p.TTLSecurity, MaxPrefixes: p.MaxPrefixes,
		}
		if p.Hops == 0 && p.AS != b.AS { // a router of another AS is on the link, as routers have it too
			one.Hops = 1
		}
		for _, f := range p.FamiliesOf() {
			one.Families = append(one.Families, map[string]bgp.Family{config.FamilyIPv4: bgp.IPv4, config.FamilyIPv6: bgp.IPv6}[f])
		}
		for _, a := range p.NextHop {
			if a.Is4() {
				one.NextHop4 = a
			} else {
				one.NextHop6 = a
			}
		}
		c.Peers = append(c.Peers, one)
	}
	return c
}

func (a *announcer) open() {
	a.wake, a.routes = make(chan struct{}, 1), map[netip.Prefix]bgp.Route{}
	a.ctx, a.stop = context.WithCancel(context.Background())
}

// wakeRoutes has the routes follow the services. It never waits.
func (d *Daemon) wakeRoutes() {
	select {
	case d.announcer.wake <- struct{}{}:
	default: // they will
	}
}

// runBGP announces addresses to routers until endBGP has ended the sessions. Services are followed until ctx ends, which is before.
func (d *Daemon) runBGP(ctx context.Context) {
	a := &d.announcer
	adopted, announced := d.adoptSessions()
	for _, p := range announced {
		a.routes[p] = bgp.Route{Prefix: p}
	}
	d.reloading.Lock()
	s := bgp.New(speakerConfig(d.cfg), bgp.Options{Log: d.opt.Log, Adopted: adopted})
	a.speaker.Store(s)
	d.reloading.Unlock()
	var all sync.WaitGroup
	all.Go(func() { d.announceRoutes(ctx, s) })
	s.Run(a.ctx)
	all.Wait()
}

// announceRoutes has the speaker announce the routes of services, as these change, until ctx ends.
func (d *Daemon) announceRoutes(ctx context.Context, s *bgp.Speaker) {
	tick, pools := time.NewTicker(settleStep), time.NewTicker(poolStep)
	defer tick.Stop()
	defer pools.Stop()
	for {
		routes := d.announcer.follow(d.announcedNow(), d.attributes(), time.Now())
		list := make([]bgp.Route, 0, len(routes))
		for _, r := range routes {
			list = append(list, r)
		}
		s.Announce(list)
		again := tick.C
		switch {
		case len(d.announcer.unsettled) > 0:
		case d.announcer.listeners.Load() != nil:
			again = pools.C
		default:
			again = nil
		}
		select {
		case <-ctx.Done():
			return
		case <-d.announcer.wake:
		case <-again:
		}
	}
}

// attributes returns the attributes that services have where they name no others.
func (d *Daemon) attributes() config.Attributes {
	if b := d.announcer.defaults.Load(); b != nil {
		return b.Attributes
	}
	return config.Attributes{}
}

// follow returns the routes of services and listeners by their availability, and keeps them. An address that several share is announced while any
// of them has a backend. While that is not known of one, its routes stay as they are, for settleLimit at most.
func (a *announcer) follow(list []announced, others config.Attributes, now time.Time) map[netip.Prefix]bgp.Route {
	best, routes, unsettled := map[netip.Prefix]l4control.Availability{}, map[netip.Prefix]bgp.Route{}, map[availabilityKey]time.Time{}
	for i := range list {
		s := &list[i]
		for _, addr := range s.addresses {
			p := netip.PrefixFrom(addr, addr.BitLen())
			f := datapath.Family6
			if p.Addr().Is4() {
				f = datapath.Family4
			}
			is := s.families[f]
			if is == l4control.Unsettled {
				is = a.settle(availabilityKey{s.key, f}, unsettled, p, now)
			}
			if _, announced := a.routes[p]; is <= best[p] || is == l4control.Draining && !announced { // no router is to leave it
				continue
			}
			best[p] = is
			r := routeOf(p, s.attrs.Or(others))
			r.Shutdown = is == l4control.Draining
			routes[p] = r
		}
	}
	a.routes, a.unsettled = routes, unsettled
	return routes
}

// settle returns the availability that counts for a service that is not known to have a backend.
func (a *announcer) settle(k availabilityKey, unsettled map[availabilityKey]time.Time, p netip.Prefix, now time.Time) l4control.Availability {
	since, ok := a.unsettled[k]
	if !ok {
		since = now
	}
	unsettled[k] = since
	r, announced := a.routes[p]
	switch {
	case !announced || now.Sub(since) >= settleLimit:
		return l4control.Unavailable
	case r.Shutdown:
		return l4control.Draining
	}
	return l4control.Available
}

// routeOf returns a route with attributes.
func routeOf(p netip.Prefix, a config.Attributes) bgp.Route {
	r := bgp.Route{Prefix: p, LocalPref: 100, Communities: a.Communities}
	if a.MED != nil {
		r.MED, r.HasMED = *a.MED, true
	}
	if a.LocalPref != nil {
		r.LocalPref = *a.LocalPref
	}
	if a.Prepend != nil {
		r.Prepend = *a.Prepend
	}
	return r
}

// reloadBGP makes the peers and routes those of the configuration in use.
func (d *Daemon) reloadBGP() {
	d.announcer.defaults.Store(d.cfg.BGP)
	d.announcer.listeners.Store(listenersOf(d.cfg))
	if s := d.announcer.speaker.Load(); s != nil {
		s.Configure(speakerConfig(d.cfg))
	}
	d.wakeRoutes()
}

// endBGP leads traffic to other gateways, and ends the sessions.
func (d *Daemon) endBGP() {
	defer d.announcer.stop()
	if s := d.announcer.speaker.Load(); s != nil && !d.Replaced() {
		ctx, stop := context.WithTimeout(context.Background(), d.bgpLimit())
		defer stop()
		s.Shutdown(ctx, "the gateway stops")
	}
}

// bgpLimit returns how long endBGP may take.
func (d *Daemon) bgpLimit() time.Duration {
	if b := d.announcer.defaults.Load(); b != nil {
		return b.Drain + bgpEnd
	}
	return bgpEnd
}

// bgpStatus returns the sessions with routers, nil where there are to be none.
func (d *Daemon) bgpStatus() *bgp.Status {
	s := d.announcer.speaker.Load()
	if s == nil || d.announcer.defaults.Load() == nil {
		return nil
	}
	st := s.Status()
	return &st
}

// takeSessions takes the sockets of the sessions of the process before this one.
func (d *Daemon) takeSessions() (err error) {
	d.opt.Predecessor.Take(upgrade.Session, func(at string, f *os.File) {
		s, e := bgp.ParseSocket(at, f)
		if err = errors.Join(err, e); e != nil {
			f.Close()
			return
		}
		d.announcer.inherited = append(d.announcer.inherited, s)
	})
	return err
}

// adoptSessions returns the sessions of the process before this one, and what that has announced.
func (d *Daemon) adoptSessions() (list []bgp.Adopted, announced []netip.Prefix) {
	var st bgp.Suspended
	if text := d.takeover.devices.Sessions; len(text) > 0 {
		if err := json.Unmarshal(text, &st); err != nil {
			d.opt.Log.Warn("bgp", "error", err.Error()) // the sessions begin anew
		}
	}
	list = st.Adopt(d.announcer.inherited)
	d.announcer.inherited = nil
	if len(list) > 0 {
		announced = list[0].Announced
	}
	return list, announced
}

// suspendBGP stops the sessions for another process.
func (d *Daemon) suspendBGP() (json.RawMessage, error) {
	s := d.announcer.speaker.Load()
	if s == nil {
		return nil, nil
	}
	d.announcer.suspended = true
	return json.Marshal(s.Suspend())
}

// resumeBGP begins new sessions where another process has not taken over.
func (d *Daemon) resumeBGP() {
	if d.announcer.suspended {
		d.announcer.suspended = false
		d.announcer.speaker.Load().Resume()
		d.wakeRoutes()
	}
}

// bgpSockets returns copies of the sockets of sessions.
func (d *Daemon) bgpSockets() ([]bgp.Socket, error) {
	if s := d.announcer.speaker.Load(); s != nil {
		return s.Sockets()
	}
	return nil, nil
}
