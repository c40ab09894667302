package quic

import "context"

// Attach keeps a value with the connection of a client whose hello is being handled, for Conn.Attached: what the server wants to
// know of the hello later. ctx is that of tls.ClientHelloInfo. A later value replaces an earlier one. It reports false if the hello
// did not come to a Listener.
func Attach(ctx context.Context, v any) bool {
	h, ok := ctx.Value(handshakeKey{}).(*handshake)
	if ok {
		h.attached.Store(&v)
	}
	return ok
}

// Attached returns what Attach has kept with a connection that was accepted, nil for nothing.
func (c *Conn) Attached() any {
	h, ok := c.q.Context().Value(handshakeKey{}).(*handshake)
	if !ok {
		return nil
	}
	if v := h.attached.Load(); v != nil {
		return *v
	}
	return nil
}
