package quic

import (
	"context"

	quicgo "github.com/quic-go/quic-go"
)

// Path is another way from a client to its server: from the address of another transport.
type Path struct{ q *quicgo.Path }

// AddPath names a transport for the connection to migrate to (RFC 9000 9). Only a client can. The
// transport must stay open for as long as the path is used.
//
//	p, err := c.AddPath(wifi)
//	err = p.Probe(ctx) // the server answers on the new path
//	err = p.Switch()   // from now on all packets take it
func (c *Conn) AddPath(t *Transport) (*Path, error) {
	if t.isClosed() {
		return nil, ErrTransportClosed
	}
	p, err := c.q.AddPath(t.e)
	if err != nil {
		return nil, ErrMigration
	}
	return &Path{p}, nil
}

// Probe validates the path by PATH_CHALLENGE, repeated until the server answers or ctx ends
// (RFC 9000 8.2). The connection stays where it is.
func (p *Path) Probe(ctx context.Context) error { return convert(p.q.Probe(ctx)) }

// Switch moves the connection to the path (RFC 9000 9.2). Probe must have succeeded.
func (p *Path) Switch() error { return convert(p.q.Switch()) }

// Close abandons a path that is not the active one. Close the path before after each Switch: packets of it that arrive late make
// the server probe it again, the answer takes one of the few connection IDs, and without any the next Probe never is sent.
func (p *Path) Close() error { return convert(p.q.Close()) }
