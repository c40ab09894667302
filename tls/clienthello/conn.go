package clienthello

import "net"

// Conn is a connection whose first bytes were read: it returns them again.
type Conn struct {
	net.Conn
	before []byte
}

// NewConn returns c with what was read of it, such as Peeker.Buffered, in front. It keeps before
// until it has been read. Deadlines are c's; a Read of bytes in front does not heed them.
func NewConn(c net.Conn, before []byte) *Conn { return &Conn{c, before} }

// Read returns the bytes in front, and then those of the connection.
func (c *Conn) Read(b []byte) (int, error) {
	if len(c.before) == 0 {
		return c.Conn.Read(b)
	}
	n := copy(b, c.before)
	if c.before = c.before[n:]; len(c.before) == 0 {
		c.before = nil // the buffer may be large
	}
	return n, nil
}
