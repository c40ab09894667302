package bgp

import (
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// connection is a connection of a session, from its OPEN to its end. serve's goroutine owns it, but for what the reader has.
type connection struct {
	x      *session
	conn   net.Conn
	id     uint64 // of all connections of the process
	reader reader
	remote *open // nil before OpenConfirm
	agreed negotiated

	out   map[netip.Prefix]string // announced, with key: attributes and next hop
	again families                // whose routes the peer has asked for anew

	in                  chan incoming
	ended               chan struct{} // serve has returned
	hold, keep, refresh *time.Timer
	refreshed           time.Time

	held map[netip.Prefix]struct{} // by the peer's announcements; the reader's
}

// incoming is a message, or the end, from the reader.
type incoming struct {
	kind   messageType
	open   *open
	family Family // of a refresh; 0 is unknown
	err    error  // the last
}

func newConnection(x *session, conn net.Conn) *connection {
	return &connection{
		x: x, conn: conn, id: connections.Add(1), reader: reader{from: conn}, out: map[netip.Prefix]string{}, held: map[netip.Prefix]struct{}{},
		in: make(chan incoming), ended: make(chan struct{}),
	}
}

// connections counts the connections of the process.
var connections atomic.Uint64

// connected notes the connection of a session, nil for none, for Sockets.
func (x *session) connected(conn net.Conn, id uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.conn, x.id = conn, id
}

// stopped returns a timer that does not run.
func stopped() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}

// serve exchanges messages until the connection ends, and returns why. The peer learns the reason, unless it was its own.
func (c *connection) serve(ctx context.Context) error {
	defer close(c.ended)
	defer func() { c.x.connected(nil, 0); c.conn.Close() }()
	c.x.connected(c.conn, c.id)
	c.hold, c.keep, c.refresh = time.NewTimer(openLimit), stopped(), stopped()
	defer c.hold.Stop()
	defer c.keep.Stop()
	defer c.refresh.Stop()
	defer context.AfterFunc(ctx, func() { _ = c.conn.SetWriteDeadline(time.Now().Add(farewell)) })()
	err := c.begin()
	if err == nil {
		go c.read()
	}
	for err == nil {
		err = c.step(ctx)
	}
	if n := new(Notification); errors.As(err, &n) && !n.received {
		_ = c.conn.SetWriteDeadline(time.Now().Add(farewell))
		_, _ = c.conn.Write(n.append(nil)) // the session ends either way
	}
	if tcp, ok := c.conn.(*net.TCPConn); ok && !errors.Is(err, errPassed) {
		linger(tcp)
	}
	return err
}

// linger ends a connection so that the peer reads what was sent last: data that is unread when a socket closes would reset it, and
// the peer would lose the NOTIFICATION. Close alone does not end it either where another process has a copy of the socket.
func linger(conn *net.TCPConn) {
	_ = conn.CloseWrite()
	_ = conn.SetReadDeadline(time.Now().Add(farewell))
	_, _ = io.CopyN(io.Discard, conn, lingerMost)
}

// begin sends the OPEN, or goes on with a session of another process.
func (c *connection) begin() error {
	if c.remote != nil {
		c.startTimers()
		c.x.notify()
		return c.write(appendKeepalive(nil))
	}
	if !c.x.to(eventConnected) {
		return errors.New("the session was stopped")
	}
	return c.write(c.x.open().append(nil))
}

// step waits for the next event and handles it. An error ends the session.
func (c *connection) step(ctx context.Context) error {
	select {
	case <-ctx.Done():
		_ = c.sync() // what is withdrawn before the end
		return context.Cause(ctx)
	case m := <-c.in:
		return c.handle(&m)
	case <-c.hold.C:
		return &Notification{Code: codeHold}
	case <-c.keep.C:
		c.keep.Reset(c.agreed.hold / 3)
		return c.write(appendKeepalive(nil))
	case <-c.refresh.C:
		return c.resend()
	case <-c.x.wake:
		return c.sync()
	case to := <-c.x.pause:
		a, err := c.pass()
		to <- a
		return err
	}
}

// write sends messages. A peer that takes none for the hold time has ended (RFC 9687).
func (c *connection) write(b []byte) error {
	_ = c.conn.SetWriteDeadline(time.Now().Add(max(c.agreed.hold, openLimit)))
	_, err := c.conn.Write(b)
	return err
}

// handle handles what the reader has read.
func (c *connection) handle(m *incoming) error {
	if m.err != nil {
		return m.err
	}
	was := c.x.status().State
	e := map[messageType]event{typeOpen: eventOpen, typeKeepalive: eventKeepalive, typeUpdate: eventUpdate, typeRefresh: eventUpdate}[m.kind]
	if m.kind == typeOpen && was == OpenSent {
		if n := m.open.check(&c.x.local, &c.x.peer); n != nil {
			return n
		}
	}
	if !c.x.to(e) {
		return was.unexpected()
	}
	if c.agreed.hold > 0 && m.kind != typeRefresh {
		c.hold.Reset(c.agreed.hold)
	}
	switch {
	case m.kind == typeOpen:
		return c.confirm(m.open)
	case was == OpenConfirm:
		return c.establish()
	case m.kind == typeRefresh && m.family != 0:
		c.again = c.again.with(m.family)
		c.refresh.Reset(max(0, refreshEvery-time.Since(c.refreshed)))
	}
	return nil
}

// confirm takes the OPEN of the peer.
func (c *connection) confirm(remote *open) error {
	c.remote, c.agreed = remote, c.x.negotiate(remote, c.conn)
	if c.agreed.families == 0 {
		return &Notification{Code: codeOpen, Subcode: openCapability}
	}
	for _, f := range c.x.peer.Families {
		if !c.agreed.families.has(f) {
			c.x.speaker.opt.Log.Warn("bgp", "peer", c.x.peer.Address.String(), "family", f.String(), "state", "not announced",
				"hint", "activate the family on the router, or leave it out of the peer's families")
		}
	}
	c.startTimers()
	return c.write(appendKeepalive(nil))
}

// startTimers starts the timers as negotiated, and enters what is negotiated in the status.
func (c *connection) startTimers() {
	c.hold.Stop()
	if c.agreed.hold > 0 {
		c.hold.Reset(c.agreed.hold)
		c.keep.Reset(c.agreed.hold / 3)
	}
	c.x.update(func(st *PeerStatus) {
		st.HoldTime, st.RouterID, st.Families = c.agreed.hold.Seconds(), c.remote.ID, nil
		c.agreed.families.each(func(f Family) bool { st.Families = append(st.Families, f.String()); return true })
		st.GracefulRestart = c.remote.Restart && c.x.local.GracefulRestart > 0
		if ap, err := netip.ParseAddrPort(c.conn.LocalAddr().String()); err == nil {
			st.LocalAddress = ap.Addr().Unmap()
		}
	})
}

// establish announces all routes, and after them of each family the end (RFC 4724 4.1).
func (c *connection) establish() error {
	c.x.update(func(st *PeerStatus) { st.Established++; st.LastError = "" })
	c.x.log("established", "hold", c.agreed.hold.String(), "router_id", c.remote.ID.String())
	if err := c.sync(); err != nil {
		return err
	}
	if len(c.out) > 0 {
		c.x.log("announced", "routes", len(c.out))
	}
	var b []byte
	c.agreed.families.each(func(f Family) bool { b = appendEndOfRIB(b, f); return true })
	return c.write(b)
}

// resend sends the routes of families again that the peer has asked for (RFC 2918 4).
func (c *connection) resend() error {
	maps.DeleteFunc(c.out, func(p netip.Prefix, _ string) bool { return c.again.has(familyOf(p.Addr())) })
	c.again, c.refreshed = 0, time.Now()
	return c.sync()
}

// group is the routes that one UPDATE can have.
type group struct {
	family Family
	attrs  string
}

// sync brings the peer's picture of the routes to the present one: withdrawals first.
func (c *connection) sync() error {
	rib := c.x.speaker.rib.Load()
	if rib == nil || c.x.status().State != Established {
		return nil
	}
	groups, gone := map[group][]netip.Prefix{}, map[Family][]netip.Prefix{}
	next := make(map[netip.Prefix]string, len(*rib))
	for p, r := range *rib {
		f := familyOf(p.Addr())
		if !c.agreed.families.has(f) {
			continue
		}
		attrs := string(r.attributes(c.x.local.AS, &c.agreed, c.agreed.nextHop[f]))
		if next[p] = attrs; c.out[p] != attrs {
			groups[group{f, attrs}] = append(groups[group{f, attrs}], p)
		}
	}
	for p := range c.out {
		if _, ok := next[p]; !ok {
			gone[familyOf(p.Addr())] = append(gone[familyOf(p.Addr())], p)
		}
	}
	var b []byte
	for f, list := range gone {
		slices.SortFunc(list, comparePrefixes)
		b = appendWithdrawals(b, f, list)
	}
	keys := slices.SortedFunc(maps.Keys(groups), func(a, b group) int {
		return strings.Compare(string(rune(a.family))+a.attrs, string(rune(b.family))+b.attrs)
	})
	for _, g := range keys {
		list := groups[g]
		slices.SortFunc(list, comparePrefixes)
		b = appendAnnouncements(b, g.family, c.agreed.nextHop[g.family], []byte(g.attrs), list)
	}
	if len(b) == 0 {
		return nil
	}
	if err := c.write(b); err != nil {
		return err
	}
	c.out = next
	c.x.update(func(st *PeerStatus) { st.Prefixes = len(next); st.Updates++ })
	return nil
}
