package daemon

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/gateway/admin"
	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/internal/controlsocket"
	"github.com/millrace/millrace/l4/role"
	"github.com/millrace/millrace/l4/rolelink"
	"github.com/millrace/millrace/l4/statesync"
	"github.com/millrace/millrace/node"
)

// errNoRole is the error of orders to a gateway without a role.
var errNoRole = errors.New("this gateway has no role: both of two gateways answer for the addresses (add sync.role, and restart)")

// peerChanged logs that a stream to or from the other gateway came up or went down.
func (d *Daemon) peerChanged(e statesync.Event) {
	if d.role != nil {
		go d.role.StreamChanged() // the streams' lock is held
	}
	if e.Up {
		d.opt.Log.Info("sync", "stream", e.Stream, "state", "up")
		return
	}
	d.opt.Log.Warn("sync", "stream", e.Stream, "state", "down", "cause", e.Cause.Error())
}

// roleOf returns the part of a configuration that the machine of the role knows.
func roleOf(s *config.Sync) role.Config {
	r := s.Role
	return role.Config{Index: uint8(s.Index), Priority: uint8(r.Priority), Lease: r.Lease, Preempt: r.Preempt, PreemptDelay: r.PreemptDelay}
}

// openRole opens the role of a gateway that has one.
func (d *Daemon) openRole(cfg *config.Config) (err error) {
	if cfg.Sync == nil || cfg.Sync.Role == nil || d.role != nil { // that of another process goes on
		return nil
	}
	return d.openRoleAs(cfg, nil)
}

// openRoleAs opens the role, with what the process before has left.
func (d *Daemon) openRoleAs(cfg *config.Config, in *rolelink.Inherited) (err error) {
	paths := []rolelink.Path{{Listen: cfg.Sync.Listen, Peer: cfg.Sync.Peer}}
	for _, p := range cfg.Sync.Role.Paths {
		paths = append(paths, rolelink.Path(p))
	}
	d.watched.Store(&cfg.Sync.Role.Watch)
	d.role, err = rolelink.Open(rolelink.Config{
		Role: roleOf(cfg.Sync), Paths: paths, Key: cfg.Sync.Key, Now: d.roles.now, Inherited: in,
		Links: d.askedLinks, Addrs: d.roleAddrs, Able: d.roleLinks, Streams: d.roleStreams,
		Answers: d.setAnswers, Changed: d.roleChanged, Announce: d.Announce,
	})
	if err != nil {
		return err
	}
	for _, p := range d.role.Status().Paths {
		if p.Error != "" {
			d.opt.Log.Warn("role", "path", p.Peer.String(), "error", p.Error, "remedy", "bring its device up: the path is opened once there is a route")
		}
	}
	return nil
}

// runRole runs the role until the gateway has left it, at the end of shutdown: it outlives ctx.
func (d *Daemon) runRole(ctx context.Context) {
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var all sync.WaitGroup
	all.Go(func() { d.steerRole(running) })
	all.Go(func() { d.logRole(running) })
	d.startRole()
	select {
	case <-d.roleLeft:
	case <-d.node.Ended(): // without a shutdown: no device is left
	}
	d.endRole()
	stop()
	all.Wait()
}

// leaveRole leaves the addresses to the other gateway, and ends the role. A process that has been replaced has none to leave.
func (d *Daemon) leaveRole() {
	if d.role == nil {
		return
	}
	if d.Replaced() {
		d.role.Leaves()
	} else {
		d.role.Leave()
	}
	close(d.roleLeft)
}

// roleChanged takes a change. It is called with the role's lock held, which a log must not keep.
func (d *Daemon) roleChanged(e rolelink.Event) {
	if !e.Split && !e.HeldOff && !e.Addrs {
		select {
		case d.roleSteer <- struct{}{}:
		default: // it is about to be
		}
	}
	select {
	case d.roleEvents <- e:
	default: // the log is stalled; the status has the last change
	}
}

// logRole logs changes until ctx ends.
func (d *Daemon) logRole(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-d.roleEvents:
			d.logRoleEvent(&e)
		}
	}
}

func (d *Daemon) logRoleEvent(e *rolelink.Event) {
	log := d.opt.Log
	switch {
	case e.Split && e.Healed:
		log.Warn("role", "split brain", "over", "state", e.To.String(), "term", e.Term)
	case e.Split:
		log.Error("role", "split brain", "two gateways answer for the addresses", "answered by", e.By, "term", e.Term)
	case e.HeldOff && e.Rivalled:
		log.Warn("role", "state", e.To.String(), "held off", "another host or gateway is about to have an address", "asked by", e.By)
	case e.HeldOff:
		log.Warn("role", "state", e.To.String(), "held off", "another host answers for an address", "answered by", e.By)
	case e.Addrs && e.Differ:
		log.Warn("role", "addresses", "the file of the other gateway has other service or SNAT addresses", "remedy", "give both the same: what only one has is not answered for while the other is active")
	case e.Addrs:
		log.Info("role", "addresses", "both gateways have the same")
	default:
		log.Info("role", "state", e.To.String(), "was", e.From.String(), "cause", e.Why.String(), "term", e.Term)
	}
}

// steerRole has the node steer ARP and neighbour discovery as the role has it, until ctx ends.
func (d *Daemon) steerRole(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.roleSteer:
			if err := d.node.Update(); err != nil {
				d.opt.Log.Warn("role", "error", err.Error())
			}
		}
	}
}

// linksUp reports whether all devices have a link, and whether any has.
func (d *Daemon) linksUp() (all, any bool) {
	links := d.node.Links()
	up := func(l node.Link) bool { return l.State == node.LinkUp }
	return !slices.ContainsFunc(links, func(l node.Link) bool { return !up(l) }), slices.ContainsFunc(links, up)
}

// askedLinks returns the networks of the devices in which service, SNAT and watched addresses are.
func (d *Daemon) askedLinks() (list []rolelink.Link, err error) {
	if !d.roles.opened.Load() {
		return nil, errNotOpen
	}
	networks, err := d.networks()
	if err != nil {
		return nil, err
	}
	links, addrs := d.node.Links(), d.gate.Announced()
	for _, n := range networks {
		l := rolelink.Link{Device: links[n.Dev].Name, VLAN: n.VLAN, MAC: links[n.Dev].MAC}
		for _, a := range addrs {
			if n.Prefix.Contains(a) {
				l.Addrs = append(l.Addrs, a)
			}
		}
		for _, a := range *d.watched.Load() {
			if n.Prefix.Contains(a) {
				l.Watch = append(l.Watch, a)
			}
		}
		if len(l.Addrs)+len(l.Watch) > 0 {
			list = append(list, l)
		}
	}
	return list, nil
}

// warnUnasked warns of a role whose gateways cannot see on their links that the other answers.
func (d *Daemon) warnUnasked() {
	if d.role == nil {
		return
	}
	links, _ := d.askedLinks()
	for _, a := range *d.watched.Load() {
		if !slices.ContainsFunc(links, func(l rolelink.Link) bool { return slices.Contains(l.Watch, a) }) {
			d.opt.Log.Warn("role", "watch", a.String(), "warning", "no device has an address in its network", "remedy", "watch addresses of neighbours")
		}
	}
	if !slices.ContainsFunc(links, func(l rolelink.Link) bool { return len(l.Addrs) > 0 }) {
		d.opt.Log.Warn("role", "warning", "no service or SNAT address is in a network of a device: while no message of the other gateway comes, both answer", "remedy", "add sync.role.paths over another network")
	}
}

// roleStatus returns the role, nil without one.
func (d *Daemon) roleStatus() *rolelink.Status {
	if d.role == nil {
		return nil
	}
	st := d.role.Status()
	return &st
}

// serveRole serves an order, and logs it.
func (d *Daemon) serveRole(c *controlsocket.Commands, r *http.Request) (any, error) {
	st, err := d.setRole(r)
	c.Record("role", err)
	return st, err
}

// setRole carries out an order, and waits for its end.
func (d *Daemon) setRole(r *http.Request) (any, error) {
	var req admin.Role
	if err := body(r, &req); err != nil {
		return nil, err
	}
	if d.role == nil {
		return nil, conflict(errNoRole)
	}
	want := role.Standby
	switch req.State {
	case role.Active.String():
		want = role.Active
	case role.Standby.String():
	default:
		return nil, badRequest("state is %q: say active or standby", req.State)
	}
	if err := d.role.Order(want == role.Active); err != nil {
		return nil, conflict(err)
	}
	return d.awaitRole(r.Context(), want)
}

// roleLimit bounds the wait for a change of the role.
const roleLimit = 10 * time.Second

// announceOnOrder announces the addresses, unless the other gateway answers for them.
func (d *Daemon) announceOnOrder() error {
	if !d.gate.Answers() {
		return conflict(errors.New("this gateway is not the active one of two: the other one answers for the addresses (millrace gateway role active takes them)"))
	}
	d.Announce()
	return nil
}

// awaitRole waits until the role has a state.
func (d *Daemon) awaitRole(ctx context.Context, want role.State) (any, error) {
	end := time.NewTimer(roleLimit)
	defer end.Stop()
	for tick := time.NewTicker(5 * time.Millisecond); ; {
		if d.role.State() == want {
			tick.Stop()
			return d.roleStatus(), nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-end.C:
			return nil, &controlsocket.Error{Code: http.StatusGatewayTimeout, Message: "the gateway is still " + d.role.State().String() + ": the other one has not answered; see its log"}
		}
	}
}
