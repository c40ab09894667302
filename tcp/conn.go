package tcp

import (
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/ip"
)

// Conn is one connection. It belongs to its Mux, and calls of its methods to the Mux's loop.
//
// Whoever holds a Conn ends with exactly one call of Close or Abort, whatever happened before, also
// after Closed: it gives the Conn back, which must not be used after.
type Conn struct {
	m     *Mux
	owner Owner
	tuple ip.Tuple
	state State
}

// Write appends a copy of b to what is to be sent and returns how many bytes had room. When that is
// not all, the owner hears Writable later. Bytes leave with the next Poll.
func (c *Conn) Write(now clock.Time, b []byte) int { return 0 }

// WriteMore is Write by an application that has more to come soon: what does not fill a segment stays
// until it does, for 200 ms at most (MSG_MORE).
func (c *Conn) WriteMore(now clock.Time, b []byte) int { return 0 }

// WriteUrgent is Write with the last byte marked urgent (RFC 9293 3.8.5).
func (c *Conn) WriteUrgent(now clock.Time, b []byte) int { return 0 }

// WriteLent appends b itself, which must stay as it is until done is called: when all of it is
// acknowledged or the connection is gone. It takes all or, where there is no room, nothing.
func (c *Conn) WriteLent(now clock.Time, b []byte, done func()) bool { return false }

// Writable returns how many bytes Write has room for.
func (c *Conn) Writable() int { return 0 }

// Read copies received bytes to b and returns how many. 0 says that none wait: Finished tells whether
// more can come.
func (c *Conn) Read(now clock.Time, b []byte) int { return 0 }

// Peek lends the bytes that wait to be read, in order in two pieces. They are valid until the next
// call for the connection or its Mux.
func (c *Conn) Peek() [2][]byte { return [2][]byte{} }

// Discard drops the next n bytes, which Peek has shown.
func (c *Conn) Discard(now clock.Time, n int) {}

// Readable returns how many bytes wait to be read.
func (c *Conn) Readable() int { return 0 }

// Finished reports whether all that the peer will ever send has been read: its FIN was reached, or the
// connection is gone (Err).
func (c *Conn) Finished() bool { return false }

// CloseWrite sends a FIN after all that was written. Reading goes on.
func (c *Conn) CloseWrite(now clock.Time) {}

// CloseRead throws away what waits to be read and what comes later.
func (c *Conn) CloseRead(now clock.Time) {}

// Close ends both directions in order and gives the Conn back. What was written is still sent, by the
// Mux alone; unread data makes it a reset (RFC 9293 3.6, MAY-1).
func (c *Conn) Close(now clock.Time) {}

// Abort drops all that is queued, sends a RST and gives the Conn back.
func (c *Conn) Abort(now clock.Time) {}

// State returns the state.
func (c *Conn) State() State { return c.state }

// Err returns why the connection ended: nil while it has not, or ended in order.
func (c *Conn) Err() error { return nil }

// Tuple returns the addresses and ports.
func (c *Conn) Tuple() ip.Tuple { return c.tuple }

// Mux returns the Mux that the connection belongs to.
func (c *Conn) Mux() *Mux { return c.m }

// Info returns what is known of the connection.
func (c *Conn) Info() Info { return Info{} }

// Options returns the options in force.
func (c *Conn) Options() Options { return Options{} }

// SetOptions changes the options: those of the handshake have no effect any more.
func (c *Conn) SetOptions(now clock.Time, o *Options) error { return nil }

// SetOwner names who is told of events, and has it told at the next Poll what is possible already.
func (c *Conn) SetOwner(o Owner) { c.owner = o }

// Owner returns who is told of events.
func (c *Conn) Owner() Owner { return c.owner }

// Unacked returns how many bytes were written, and the FIN, that the peer has not acknowledged: 0 when
// nothing lingers.
func (c *Conn) Unacked() int { return 0 }

// AtMark reports whether the next byte to be read is the urgent one (RFC 6093).
func (c *Conn) AtMark() bool { return false }
