package memtransport

import (
	"cmp"
	"errors"
	"io"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/l7/transport"
)

// Conn is the proxy's end of a connection.
type Conn struct {
	loop          *Loop
	handler       transport.Handler
	peer          *Peer
	local, remote netip.AddrPort
	pending       transport.Events
	input         []byte // from the peer
	inputEnd      bool
	established   bool
	closed        bool
	lingering     bool
	blocked       bool // a Write found no room
	err           error
}

var _ transport.Conn = (*Conn)(nil)

// Peer is the test's end of a connection.
type Peer struct {
	Conn *Conn
	// Handler is called when something has arrived, or the connection has ended. Nil leaves it to Take.
	Handler func(p *Peer)
	// Window bounds what the proxy can send before Take, in bytes.
	Window int
	// Ended says that the proxy has ended its output, Reset that it has reset the connection.
	Ended, Reset bool
	// User is for the test.
	User any

	received []byte
	news     bool
	gone     bool // it has closed
}

// fail ends a connection by an error.
func (c *Conn) fail(err error) {
	c.err = err
	c.pending |= transport.Failed
}

// Read implements transport.Conn.
func (c *Conn) Read(p []byte) (int, error) {
	switch {
	case c.closed:
		return 0, transport.ErrClosed
	case len(c.input) > 0:
		most := len(c.input)
		if c.loop.Cut != nil {
			most = min(most, max(1, c.loop.Cut(most)))
		}
		n := copy(p, c.input[:min(most, len(c.input))])
		if c.input = c.input[n:]; n < len(p) && (len(c.input) > 0 || c.inputEnd) {
			c.pending |= transport.Readable
		}
		return n, nil
	case c.err != nil:
		return 0, c.err
	case c.inputEnd:
		return 0, io.EOF
	}
	return 0, transport.ErrAgain
}

// Write implements transport.Conn.
func (c *Conn) Write(p []byte) (int, error) {
	switch {
	case c.closed || c.peer.Ended:
		return 0, transport.ErrClosed
	case c.err != nil:
		return 0, c.err
	case !c.established:
		return 0, transport.ErrAgain
	}
	if c.peer.gone {
		c.fail(unix.ECONNRESET) // the first write to a closed connection succeeds
		return len(p), nil
	}
	n := min(len(p), max(0, c.peer.Window-len(c.peer.received)))
	c.peer.received = append(c.peer.received, p[:n]...)
	c.peer.news = c.peer.news || n > 0
	if c.blocked = n < len(p); n == 0 && len(p) > 0 {
		return 0, transport.ErrAgain
	}
	return n, nil
}

// Relay implements transport.Conn.
func (c *Conn) Relay(dst transport.Conn, n int) (taken int, in, out error) {
	d, ok := dst.(*Conn)
	switch {
	case !ok || !c.loop.Relays:
		return 0, nil, errors.ErrUnsupported
	case c.closed:
		return 0, transport.ErrClosed, nil
	case d.closed:
		return 0, nil, transport.ErrClosed
	}
	p := c.input[:min(n, len(c.input))]
	taken, out = d.Write(p)
	if c.input = c.input[taken:]; taken < len(p) {
		return taken, nil, cmp.Or(out, transport.ErrAgain)
	}
	if len(c.input) == 0 { // Read says what follows
		_, in = c.Read(nil)
	}
	return taken, in, nil
}

// CloseWrite implements transport.Conn.
func (c *Conn) CloseWrite() error { c.peer.Ended, c.peer.news = true, true; return nil }

// Close implements transport.Conn.
func (c *Conn) Close() {
	if len(c.input) > 0 {
		c.Abort()
		return
	}
	c.closed, c.peer.Ended, c.peer.news = true, true, true
}

// Linger implements transport.Conn.
func (c *Conn) Linger() { c.closed, c.lingering, c.peer.Ended, c.peer.news = true, true, true, true }

// Abort implements transport.Conn.
func (c *Conn) Abort() {
	c.closed, c.peer.Ended, c.peer.Reset, c.peer.news = true, true, true, true
}

// Err implements transport.Conn.
func (c *Conn) Err() error { return c.err }

// SetHandler implements transport.Conn.
func (c *Conn) SetHandler(h transport.Handler) { c.handler = h }

// Local implements transport.Conn.
func (c *Conn) Local() netip.AddrPort { return c.local }

// Remote implements transport.Conn.
func (c *Conn) Remote() netip.AddrPort { return c.remote }

// Write sends to the proxy. What the proxy does not read stays, however much it is.
func (p *Peer) Write(b []byte) {
	c := p.Conn
	switch {
	case c.lingering || c.err != nil:
	case c.closed:
		p.Reset, p.news = true, true // as the kernel answers what nobody reads
	case len(b) > 0 && !c.inputEnd:
		c.input = append(c.input, b...)
		c.pending |= transport.Readable
	}
}

// CloseWrite ends what the peer sends.
func (p *Peer) CloseWrite() {
	if c := p.Conn; !c.closed {
		c.inputEnd = true
		c.pending |= transport.Readable
	}
}

// Close ends the connection in both directions: what the proxy sends later meets a reset.
func (p *Peer) Close() {
	p.CloseWrite()
	p.gone = true
}

// Abort resets the connection.
func (p *Peer) Abort() {
	if c := p.Conn; !c.closed && c.err == nil {
		c.fail(unix.ECONNRESET)
	}
}

// Take returns what was received since it was called last.
func (p *Peer) Take() []byte {
	b := p.received
	p.received = nil
	p.news = false
	if c := p.Conn; c.blocked && p.Window > 0 && !c.closed {
		c.blocked = false
		c.pending |= transport.Writable
	}
	return b
}

// Unread returns how much the proxy has not read of what was sent.
func (p *Peer) Unread() int { return len(p.Conn.input) }
