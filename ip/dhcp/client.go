// Package dhcp is a DHCPv4 client (RFC 2131): the messages and the state machine, without sockets. Its caller sends the
// messages of Config.Send from port 68 to port 67, passes those to port 68 to Input, and calls Poll at the time that Poll
// returned. It assigns the address of a Lease to the host, after duplicate address detection (RFC 2131 4.4.1), and calls
// Decline where there is a duplicate.
//
//	init --DISCOVER--> selecting --OFFER, REQUEST--> requesting --ACK--> bound --T1--> renewing --T2--> rebinding
//	 ^ with an earlier address: rebooting --REQUEST, ACK----------------> ^  ^----- ACK ----+----- ACK ------+
//	 +----------- NAK, Decline, end of the lease ------------------------------------------------------------+
//
// The package is pure: times and messages come in as arguments. A client belongs to one goroutine at a time.
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
	maxWait     = 64 * time.Second
	renewFloor  = 60 * time.Second
	declineWait = 10 * time.Second // RFC 2131 3.1.5
	startDelay  = time.Second      // RFC 2131 4.4.1 has 10 s: hosts of one site do not all start at once any more
	leaseFloor  = 60 * time.Second // a shorter lease counts as this, or a server could make the client send all the time
	maxRequests = 4                // of one offer
)

// Route is a classless static route (RFC 3442).
type Route struct {
	Prefix wire.Addr
	Bits   int
	Router wire.Addr // 0.0.0.0: on link
}

// Lease is an address with the parameters that a server gave with it.
type Lease struct {
	Addr    wire.Addr
	Bits    int         // length of the prefix; 32 without a subnet mask option
	Routers []wire.Addr // default routers, the preferred first (RFC 2132 3.5)
	Routes  []Route     // where there are some, Routers is empty (RFC 3442)
	DNS     []wire.Addr
	Domain  string
	MTU     int // of the link, bytes; 0 without an interface MTU option
	Server  wire.Addr
	Until   clock.Time // Never: for ever
}

// Config configures a Client.
type Config struct {
	Now      clock.Time
	Seed     uint64 // of transaction IDs and delays; secret, since a forged answer has to match the ID
	MAC      [6]byte
	Hostname string    // sent to the server unless empty, at most 63 bytes
	Last     wire.Addr // address of an earlier lease, requested first; zero is none (RFC 2131 3.2)

	// Send sends a message: from 0.0.0.0 to 255.255.255.255, or from the lease's address to server, where
	// that is not zero. msg is borrowed.
	Send func(now clock.Time, server wire.Addr, msg []byte)
	// Bound receives a new lease, and one that was extended or has changed.
	Bound func(now clock.Time, l Lease)
	// Lost receives a lease that has ended: its address must not be used any more (RFC 2131 4.4.5).
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
	began  clock.Time    // of the transaction: the secs field counts from here
	next   clock.Time    // Poll has to be called
	wait   time.Duration // mean time to the next attempt
	sent   int           // attempts in this state
	lease  Lease         // offered, or bound
	t1, t2 clock.Time    // renewing and rebinding begin
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

// restart goes to Init, from which the client starts again after a time. The time keeps a server that answers each request
// with a NAK from being asked in a tight loop.
func (c *Client) restart(now clock.Time, after time.Duration) {
	c.state, c.next, c.sent = Init, now.Add(after), 0
}

// Poll sends what is due, and returns the time of its next call.
func (c *Client) Poll(now clock.Time) clock.Time {
	for now >= c.next {
		c.fire(now)
	}
	return c.next
}

// fire runs the timer of the state.
func (c *Client) fire(now clock.Time) {
	switch c.state {
	case Init:
		c.begin(now)
	case Rebooting, Selecting:
		// The server of the earlier lease may be gone: forget the address and discover (RFC 2131 4.4.2).
		if c.state == Rebooting && c.sent == maxRequests {
			c.lease = Lease{}
			c.begin(now)
			return
		}
		c.send(now)
		c.backoff(now)
	case Requesting:
		if c.sent == maxRequests {
			c.lease = Lease{}
			c.restart(now, c.rand.Between(0, startDelay)+time.Second)
			return
		}
		c.send(now)
		c.backoff(now)
	default:
		c.extend(now)
	}
}

// begin starts a transaction: DISCOVER, or REQUEST of the earlier address (RFC 2131 4.4.1, 4.4.2).
func (c *Client) begin(now clock.Time) {
	c.xid, c.began, c.wait, c.sent = uint32(c.rand.Uint64()), now, firstWait, 0
	c.state = Selecting
	if c.lease.Addr != (wire.Addr{}) {
		c.state = Rebooting
	}
	c.send(now)
	c.backoff(now)
}

// backoff sets the time of the next attempt (RFC 2131 4.1): 4 s, doubled up to 64 s, each a second more or less, so that
// the clients of a network that comes up do not send in step.
func (c *Client) backoff(now clock.Time) {
	c.next = now.Add(c.rand.Between(c.wait-time.Second, c.wait+time.Second))
	c.wait = min(2*c.wait, maxWait)
	c.sent++
}

// extend requests an extension: from T1 on of the server of the lease, by unicast, from T2 on of any server, and with the
// end of the lease it stops (RFC 2131 4.4.5). Using the address longer would take it from its next holder.
func (c *Client) extend(now clock.Time) {
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

// enter goes to a state. A new state has a new transaction ID, so that late answers to the one before are ignored; requests
// that are repeated in a state keep it, so that an answer to any of them counts.
func (c *Client) enter(now clock.Time, s State) {
	if c.state != s {
		c.state, c.xid, c.began = s, uint32(c.rand.Uint64()), now
	}
}

// retry returns the time of the next request between now and end: after half of what remains, but not within a minute
// (RFC 2131 4.4.5).
func retry(now, end clock.Time) clock.Time {
	return min(end, now.Add(max(end.Sub(now)/2, renewFloor)))
}

// send sends the message of the state (RFC 2131 4.3.2, table 4). Which of ciaddr, requested address and server identifier
// it has shows a server in which state the client is:
//
//	             requested address  server identifier  ciaddr  sent by
//	selecting    -                  -                  -       broadcast
//	rebooting    yes                -                  -       broadcast
//	requesting   yes                yes                -       broadcast
//	renewing     -                  -                  yes     unicast
//	rebinding    -                  -                  yes     broadcast
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
		// Without an address the host drops unicast answers, so the server has to broadcast them (RFC 2131 4.1).
		binary.BigEndian.PutUint16(w.b[atFlags:], broadcast)
	}
	c.appendClientID(&w)
	w.option(optMaxSize, byte(maxDatagram>>8), byte(maxDatagram&0xff))
	w.option(optParameters, optMask, optRoutes, optRouter, optDNS, optDomain, optMTU, optT1, optT2)
	if h := c.cfg.Hostname; h != "" && len(h) <= 63 {
		w.option(optHostname, []byte(h)...)
	}
	c.cfg.Send(now, server, w.end())
}

// maxDatagram is the largest message that is taken: what a link with an MTU of 1500 carries.
const maxDatagram = 1472

// appendClientID adds the client identifier, by which the server finds the lease of this client (RFC 2132 9.14).
func (c *Client) appendClientID(w *writer) {
	m := c.cfg.MAC
	w.option(optClientID, 1, m[0], m[1], m[2], m[3], m[4], m[5])
}

// Input takes a message that came from a server. It returns false for one that it ignores: it is not an answer to the current
// transaction, or not one that the state waits for. Transaction ID and MAC are all that a client without an address can
// verify.
func (c *Client) Input(now clock.Time, b []byte) bool {
	r, ok := parse(b)
	if !ok || r.xid != c.xid || r.mac != c.cfg.MAC || !host(r.server) {
		return false
	}
	switch {
	case r.typ == offer && c.state == Selecting:
		return c.handleOffer(now, &r)
	case r.typ == ack && c.state != Selecting && c.state != Init && c.state != Bound:
		return c.handleAck(now, &r)
	case r.typ == nak && (c.state == Rebooting || c.state == Requesting || c.state == Renewing || c.state == Rebinding):
		return c.handleNak(now, &r)
	}
	return false
}

// host reports whether a can be the address of a host.
func host(a wire.Addr) bool {
	v := a.As4()
	return a.Is4() && v[0] != 0 && !a.Loopback() && v[0] < 224
}

// handleOffer takes the first offer that can be used. Collecting several (RFC 2131 4.4.1) would delay every start to choose
// between servers that administrators keep equal.
func (c *Client) handleOffer(now clock.Time, r *reply) bool {
	if !host(r.addr) || r.lease == 0 {
		return false
	}
	c.lease = Lease{Addr: r.addr, Server: r.server}
	c.state, c.wait, c.sent = Requesting, firstWait, 0
	c.send(now)
	c.backoff(now)
	return true
}

// handleAck takes a lease, if it is for the requested address and from the server that offered it.
func (c *Client) handleAck(now clock.Time, r *reply) bool {
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
		c.setTimers(now, d, r)
	}
	c.next = c.t1
	c.cfg.Bound(now, c.lease)
	return true
}

// setTimers sets T1 and T2 to the server's values where they are in order, else to 0.5 and 0.875 of the lease with some
// random fuzz, so that the clients of one server do not renew together (RFC 2131 4.4.5).
func (c *Client) setTimers(now clock.Time, d time.Duration, r *reply) {
	t1, t2 := time.Duration(r.t1)*time.Second, time.Duration(r.t2)*time.Second
	if t1 < leaseFloor/4 || t2 <= t1 || t2 >= d {
		fuzz := c.rand.Between(0, d/50)
		t1, t2 = d/2+fuzz, d*7/8+fuzz
	}
	c.t1, c.t2 = now.Add(t1), now.Add(t2)
}

// handleNak takes a NAK: the address is not or no longer this client's, for instance since it has moved to another network
// (RFC 2131 3.2). Where the server is known, only its own NAK counts.
func (c *Client) handleNak(now clock.Time, r *reply) bool {
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

// Decline reports to the server that another host has the address of the lease (RFC 2131 4.4.1), so that it is not offered
// again. The client restarts after at least ten seconds, or a server with one address would be in a loop (RFC 2131 3.1.5).
func (c *Client) Decline(now clock.Time) { c.endLease(now, decline, declineWait) }

// Release releases the lease (RFC 2131 4.4.6), so that the server can assign the address to another host at once. The
// client does nothing more until Restart.
func (c *Client) Release(now clock.Time) {
	c.endLease(now, release, 0)
	c.next = clock.Never
}

// Restart makes the client begin again at once, as when a link comes up.
func (c *Client) Restart(now clock.Time) { c.restart(now, 0) }

// endLease ends a lease by a message of type typ.
func (c *Client) endLease(now clock.Time, typ uint8, wait time.Duration) {
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
	c.appendClientID(&w)
	c.cfg.Send(now, to, w.end())
	c.lease = Lease{}
	c.restart(now, wait)
	c.cfg.Lost(now, l)
}
