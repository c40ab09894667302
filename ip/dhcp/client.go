// Package dhcp is a DHCPv4 client (RFC 2131): the messages and the machine, without sockets. Who runs it
// sends what Send is given from port 68 to port 67, passes to Input what comes to port 68, calls Poll
// when it asks to be called, and gives the host the address of a Lease (checked for duplicates, and
// Decline called where there is one).
//
// The package is pure: times and messages come in as arguments.
package dhcp

import (
	"encoding/binary"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/internal/random"
	"github.com/millrace/millrace/wire"
)

// Times (RFC 2131 4.1, 4.4.5).
const (
	firstWait   = 4 * time.Second
	mostWait    = 64 * time.Second
	renewFloor  = 60 * time.Second
	declineWait = 10 * time.Second // RFC 2131 3.1.5
	startDelay  = time.Second      // RFC 2131 4.4.1 has 10 s: hosts of one site do not all start at once any more
	leaseFloor  = 60 * time.Second // what a server says to be less is taken for this
	requests    = 4                // of one offer
)

// Route is a classless static route (RFC 3442).
type Route struct {
	Prefix wire.Addr
	Bits   int
	Router wire.Addr // 0.0.0.0: on link
}

// Lease is what a server gave.
type Lease struct {
	Addr    wire.Addr
	Bits    int // length of the prefix; 32 where the server told none
	Routers []wire.Addr
	Routes  []Route // where there are some, Routers is empty
	DNS     []wire.Addr
	Domain  string
	MTU     int // of the link, bytes; 0 where the server told none
	Server  wire.Addr
	Until   clock.Time // Never: for ever
}

// Config is what a Client is made of.
type Config struct {
	Now      clock.Time
	Seed     uint64 // of transaction numbers and delays; to be secret
	MAC      [6]byte
	Hostname string    // told to the server, at most 63 bytes; empty is not
	Last     wire.Addr // asked for first, as it was ours before; zero is none (RFC 2131 3.2)

	// Send sends a message: from 0.0.0.0 to 255.255.255.255, or from the lease's address to server, where
	// that is not zero. msg is borrowed.
	Send func(now clock.Time, server wire.Addr, msg []byte)
	// Bound is told of a new lease, and of one that was prolonged or has changed.
	Bound func(now clock.Time, l Lease)
	// Lost is told that the address must not be used any more.
	Lost func(now clock.Time, l Lease)
}

// State is a state of the client (RFC 2131 figure 5).
type State uint8

// States.
const (
	Init State = iota
	Rebooting
	Selecting
	Requesting
	Bound
	Renewing
	Rebinding
)

// String returns the state's name.
func (s State) String() string {
	return [...]string{"init", "rebooting", "selecting", "requesting", "bound", "renewing", "rebinding"}[s]
}

// Client is a DHCPv4 client of one interface.
type Client struct {
	cfg    Config
	state  State
	xid    uint32
	began  clock.Time
	next   clock.Time
	wait   time.Duration
	sent   int
	lease  Lease // offered, or ours
	t1, t2 clock.Time
	rand   random.Source
}

// New returns a client, which begins with the next Poll.
func New(cfg Config) *Client {
	c := &Client{cfg: cfg, rand: random.Source(cfg.Seed), lease: Lease{Addr: cfg.Last}}
	c.restart(cfg.Now, c.rand.Between(0, startDelay))
	return c
}

// State returns the state of the client.
func (c *Client) State() State { return c.state }

// Lease returns the lease; without meaning before Bound.
func (c *Client) Lease() Lease { return c.lease }

// restart goes to Init, from which the client starts again after a time.
func (c *Client) restart(now clock.Time, after time.Duration) {
	c.state, c.next, c.sent = Init, now.Add(after), 0
}

// Poll sends what is due, and returns when it wants to be called next.
func (c *Client) Poll(now clock.Time) clock.Time {
	for now >= c.next {
		c.due(now)
	}
	return c.next
}

// due runs the timer of the state.
func (c *Client) due(now clock.Time) {
	switch c.state {
	case Init:
		c.begin(now)
	case Rebooting, Selecting:
		if c.state == Rebooting && c.sent == requests {
			c.lease = Lease{}
			c.begin(now)
			return
		}
		c.send(now)
		c.backoff(now)
	case Requesting:
		if c.sent == requests {
			c.lease = Lease{}
			c.restart(now, c.rand.Between(0, startDelay)+time.Second)
			return
		}
		c.send(now)
		c.backoff(now)
	default:
		c.prolong(now)
	}
}

// begin looks for a server, or asks for the address of the last time (RFC 2131 4.4.1, 4.4.2).
func (c *Client) begin(now clock.Time) {
	c.xid, c.began, c.wait, c.sent = uint32(c.rand.Uint64()), now, firstWait, 0
	c.state = Selecting
	if c.lease.Addr != (wire.Addr{}) {
		c.state = Rebooting
	}
	c.send(now)
	c.backoff(now)
}

// backoff sets the time of the next attempt (RFC 2131 4.1): twice as long, and a second more or less.
func (c *Client) backoff(now clock.Time) {
	c.next = now.Add(c.rand.Between(c.wait-time.Second, c.wait+time.Second))
	c.wait = min(2*c.wait, mostWait)
	c.sent++
}

// prolong asks for more time, ever more often, and gives up at the end (RFC 2131 4.4.5).
func (c *Client) prolong(now clock.Time) {
	switch {
	case now >= c.lease.Until:
		l := c.lease
		c.lease = Lease{}
		c.restart(now, 0)
		c.cfg.Lost(now, l)
		return
	case now >= c.t2:
		c.enter(now, Rebinding)
		c.send(now)
		c.next = retry(now, c.lease.Until)
	default:
		c.enter(now, Renewing)
		c.send(now)
		c.next = retry(now, c.t2)
	}
}

// enter goes to a state, in which a new transaction begins.
func (c *Client) enter(now clock.Time, s State) {
	if c.state != s {
		c.state, c.xid, c.began = s, uint32(c.rand.Uint64()), now
	}
}

// retry returns the time between now and end at which to ask again: half of it, but not within a minute.
func retry(now, end clock.Time) clock.Time {
	return min(end, now.Add(max(end.Sub(now)/2, renewFloor)))
}

// send sends the message of the state (RFC 2131 table 5).
func (c *Client) send(now clock.Time) {
	typ, server := uint8(request), wire.Addr{}
	if c.state == Selecting {
		typ = discover
	}
	w := message(typ, c.xid, uint16(min(now.Sub(c.began)/time.Second, 65535)), c.cfg.MAC)
	switch c.state {
	case Rebooting:
		w.addr(optAddress, c.lease.Addr)
	case Requesting:
		w.addr(optAddress, c.lease.Addr)
		w.addr(optServer, c.lease.Server)
	case Renewing:
		server = c.lease.Server
	}
	if c.state == Renewing || c.state == Rebinding {
		a := c.lease.Addr.As4()
		copy(w.b[atCIAddr:], a[:])
	} else {
		binary.BigEndian.PutUint16(w.b[atFlags:], broadcast) // nothing comes to an address that is not ours yet
	}
	c.common(&w)
	w.option(optMaxSize, byte(maxDatagram>>8), byte(maxDatagram&0xff))
	w.option(optParameters, optMask, optRoutes, optRouter, optDNS, optDomain, optMTU, optT1, optT2)
	if h := c.cfg.Hostname; h != "" && len(h) <= 63 {
		w.option(optHostname, []byte(h)...)
	}
	c.cfg.Send(now, server, w.end())
}

// maxDatagram is the largest message that is taken: what a link with an MTU of 1500 carries.
const maxDatagram = 1472

// common adds what every message has: who the client is (RFC 2132 9.14).
func (c *Client) common(w *writer) {
	m := c.cfg.MAC
	w.option(optClientID, 1, m[0], m[1], m[2], m[3], m[4], m[5])
}

// Input takes a message that came from a server; false says that it means nothing here.
func (c *Client) Input(now clock.Time, b []byte) bool {
	r, ok := parse(b)
	if !ok || r.xid != c.xid || r.mac != c.cfg.MAC || !host(r.server) {
		return false
	}
	switch {
	case r.typ == offer && c.state == Selecting:
		return c.offered(now, &r)
	case r.typ == ack && c.state != Selecting && c.state != Init && c.state != Bound:
		return c.acked(now, &r)
	case r.typ == nak && (c.state == Rebooting || c.state == Requesting || c.state == Renewing || c.state == Rebinding):
		return c.refused(now, &r)
	}
	return false
}

// host reports whether a can be the address of a host.
func host(a wire.Addr) bool {
	v := a.As4()
	return a.Is4() && v[0] != 0 && !a.Loopback() && v[0] < 224
}

// offered takes the first offer that can be used.
func (c *Client) offered(now clock.Time, r *reply) bool {
	if !host(r.addr) || r.lease == 0 {
		return false
	}
	c.lease = Lease{Addr: r.addr, Server: r.server}
	c.state, c.wait, c.sent = Requesting, firstWait, 0
	c.send(now)
	c.backoff(now)
	return true
}

// acked takes a lease: the one that was asked for, from the server that offered it.
func (c *Client) acked(now clock.Time, r *reply) bool {
	if r.addr != c.lease.Addr || r.lease == 0 || (c.state == Requesting || c.state == Renewing) && r.server != c.lease.Server {
		return false
	}
	l := r.Lease
	l.Addr, l.Server, l.Until = r.addr, r.server, clock.Never
	if l.Bits == 0 {
		l.Bits = 32
	}
	c.lease, c.state, c.next = l, Bound, clock.Never
	c.t1, c.t2 = clock.Never, clock.Never
	if r.lease != 0xffffffff {
		d := max(time.Duration(r.lease)*time.Second, leaseFloor)
		c.lease.Until = now.Add(d)
		c.times(now, d, r)
	}
	c.next = c.t1
	c.cfg.Bound(now, c.lease)
	return true
}

// times sets T1 and T2: as the server says, if that is in order, else by the usual shares, a little at
// random (RFC 2131 4.4.5).
func (c *Client) times(now clock.Time, d time.Duration, r *reply) {
	t1, t2 := time.Duration(r.t1)*time.Second, time.Duration(r.t2)*time.Second
	if t1 < leaseFloor/4 || t2 <= t1 || t2 >= d {
		fuzz := c.rand.Between(0, d/50)
		t1, t2 = d/2+fuzz, d*7/8+fuzz
	}
	c.t1, c.t2 = now.Add(t1), now.Add(t2)
}

// refused takes a refusal: the address is no longer, or never was, ours (RFC 2131 4.4.1).
func (c *Client) refused(now clock.Time, r *reply) bool {
	if (c.state == Requesting || c.state == Renewing) && r.server != c.lease.Server {
		return false
	}
	l, had := c.lease, c.state == Renewing || c.state == Rebinding
	c.lease = Lease{}
	c.restart(now, c.rand.Between(0, startDelay)+time.Second)
	if had {
		c.cfg.Lost(now, l)
	}
	return true
}

// Decline says that another host has the address of the lease (RFC 2131 4.4.1): it is given back, and the
// client starts again after a while.
func (c *Client) Decline(now clock.Time) { c.giveUp(now, decline, declineWait) }

// Release gives the lease back (RFC 2131 4.4.6). The client stays still until Restart.
func (c *Client) Release(now clock.Time) {
	c.giveUp(now, release, 0)
	c.next = clock.Never
}

// Restart has the client begin again at once, as when a link comes up.
func (c *Client) Restart(now clock.Time) { c.restart(now, 0) }

// giveUp ends a lease by a message of type typ.
func (c *Client) giveUp(now clock.Time, typ uint8, wait time.Duration) {
	if c.state != Bound && c.state != Renewing && c.state != Rebinding {
		return
	}
	l := c.lease
	w := message(typ, uint32(c.rand.Uint64()), 0, c.cfg.MAC)
	to := wire.Addr{}
	if typ == release {
		a := l.Addr.As4()
		copy(w.b[atCIAddr:], a[:])
		to = l.Server
	} else {
		w.addr(optAddress, l.Addr)
	}
	w.addr(optServer, l.Server)
	c.common(&w)
	c.cfg.Send(now, to, w.end())
	c.lease = Lease{}
	c.restart(now, wait)
	c.cfg.Lost(now, l)
}
