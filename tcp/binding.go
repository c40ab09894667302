package tcp

import (
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/internal/ports"
	"github.com/millrace/millrace/wire"
)

// BindOptions are the options of socket(7) that decide which sockets may have a port together. Without any, none whose
// addresses have one in common may.
type BindOptions struct {
	Reuse  bool   // SO_REUSEADDR: beside others that say so, while none of them listens
	Share  bool   // SO_REUSEPORT: beside others of the same user that say so
	V6Only bool   // IPV6_V6ONLY, see Options
	User   uint32 // whose socket it is
}

// Binding reserves a local address and port, before it is known whether they are to listen or to connect (bind(2)).
// Until Close only those get them that BindOptions allow; Connect chooses the port for no other connection.
type Binding struct {
	m        *Mux
	scope    ports.Scope
	local    wire.Addr
	port     uint16
	opts     BindOptions
	listener *Listener // that Listen has made
	closed   bool
}

func (o *BindOptions) terms() ports.Terms {
	return ports.Terms{Reuse: o.Reuse, Share: o.Share, User: o.User}
}

// localPort holds the sockets bound to one port. One user may have thousands of bindings and listeners there, at as many
// addresses of 127/8: neither a request nor a SYN visits them one by one.
type localPort struct {
	listeners ports.ByScope[sharers]
	listening ports.Taken // the listeners
	bound     ports.Taken // bindings that do not listen
}

// Bind reserves port at local: any address where that is zero, any of IPv4 where it is wire.Unspecified4. Port 0 chooses
// one that nothing is bound to and, as far as possible, no connection has begun at. The errors are ErrInUse, by the rules of
// bind(2) on Linux, and ErrNoPort. Connections that are not of a Binding, and TIME-WAIT, are no reason for ErrInUse: as if all
// sockets on Linux had SO_REUSEADDR.
func (m *Mux) Bind(local wire.Addr, port uint16, o BindOptions) (*Binding, error) {
	if port == 0 {
		if port = m.freePort(); port == 0 {
			return nil, ErrNoPort
		}
	}
	b := &Binding{m: m, scope: ports.NewScope(local, o.V6Only), local: local, port: port, opts: o}
	f := &m.passive
	if p := f.byPort[port]; p != nil && p.conflict(b.scope, o.terms()) {
		return nil, ErrInUse
	}
	f.bind(b)
	return b, nil
}

// conflict reports whether a socket may not be beside the bindings and listeners of the port.
func (p *localPort) conflict(s ports.Scope, x ports.Terms) bool {
	return p.bound.Conflict(s, x) || p.listening.Conflict(s, x)
}

// at returns what is bound to a port, a new localPort where that is nothing.
func (f *passive) at(port uint16) *localPort {
	p := f.byPort[port]
	if p == nil {
		p = &localPort{}
		f.byPort[port] = p
		f.bound.Add(port)
	}
	return p
}

// release forgets a port that nothing is bound to, which is free again for connections to anywhere.
func (f *passive) release(port uint16) {
	f.searches.Reset()
	if p := f.byPort[port]; p.bound.Len() == 0 && p.listening.Len() == 0 {
		delete(f.byPort, port)
		f.bound.Remove(port)
	}
}

// bind makes b known to the look-ups.
func (f *passive) bind(b *Binding) { f.at(b.port).bound.Add(b.scope, b.opts.terms()) }

// unbind ends what bind began.
func (f *passive) unbind(b *Binding) { f.byPort[b.port].bound.Remove(b.scope, b.opts.terms()) }

// Addr returns the address and the port.
func (b *Binding) Addr() (wire.Addr, uint16) { return b.local, b.port }

// Listen is Mux.Listen at the address of b, with its V6Only and Share. ErrInUse is another listener there: bindings with Reuse
// may be together, and the first of them that listens has the port. Once the listener is closed b is as before.
func (b *Binding) Listen(backlog int, o *Options, owner Owner) (*Listener, error) {
	m := b.m
	if o == nil {
		o = &m.cfg.Defaults
	}
	if o.V6Only != b.opts.V6Only || o.Share != b.opts.Share {
		x := *o
		x.V6Only, x.Share = b.opts.V6Only, b.opts.Share
		o = &x
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	if b.closed || b.listener != nil || m.passive.at(b.port).listening.Conflict(b.scope, ports.Terms{Share: b.opts.Share, User: b.opts.User}) {
		return nil, ErrInUse
	}
	l, err := m.newListener(b.scope, b.local, b.port, backlog, o, owner, b.opts.User)
	if err != nil {
		return nil, err
	}
	m.passive.unbind(b)
	b.listener, l.binding = l, b
	return l, nil
}

// Narrow leaves b one address of those that it is bound to, as connect(2) does with the local address of the connection; the zero
// address undoes that. Others may then bind to the other addresses.
func (b *Binding) Narrow(local wire.Addr) {
	if local == (wire.Addr{}) {
		local = b.local
	}
	known := !b.closed && b.listener == nil
	if known {
		b.m.passive.unbind(b)
	}
	if b.scope = ports.NewScope(local, b.opts.V6Only); known {
		b.m.passive.bind(b)
	}
}

// Connect is Mux.Connect from the address of b. t has its port, and an address that b covers.
func (b *Binding) Connect(now clock.Time, t wire.Tuple, o *Options, owner Owner) (*Conn, error) {
	if b.closed || b.listener != nil || t.LocalPort != b.port || !b.scope.Covers(t.Local) {
		return nil, ErrInUse
	}
	return b.m.connect(now, t, o, owner, b)
}

// Close releases the address and port. Listeners and connections that b has made go on: a listener keeps the port
// until it is closed. It may be called twice.
func (b *Binding) Close() {
	if b.closed {
		return
	}
	b.closed = true
	if b.listener == nil {
		b.m.passive.unbind(b)
		b.m.passive.release(b.port)
	}
}

// listenerClosed returns the port to b after its listener has left the tables.
func (b *Binding) listenerClosed() {
	b.listener = nil
	if !b.closed {
		b.m.passive.bind(b)
	}
}

// activePorts counts the connections that Connect began at each port, so that Bind does not choose a port which could then
// not reach every destination. Pages exist for the ports that were used.
type activePorts [1 << 16 / portPage]*[portPage]uint32

const portPage = 1 << 10

func (a *activePorts) add(port uint16) {
	p := &a[port/portPage]
	if *p == nil {
		*p = new([portPage]uint32)
	}
	(*p)[port%portPage]++
}

func (a *activePorts) remove(port uint16) { a[port/portPage][port%portPage]-- }

func (a *activePorts) has(port uint16) bool {
	p := a[port/portPage]
	return p != nil && p[port%portPage] > 0
}

// PortActive reports whether a connection that Connect began has the port.
func (m *Mux) PortActive(port uint16) bool { return m.active.has(port) }
