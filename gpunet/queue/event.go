package queue

import (
	"encoding/binary"

	"github.com/millrace/millrace/shim/ring"
)

// Kind is that of an Event.
type Kind uint8

// The kinds of events.
const (
	Bytes       Kind = iota + 1 // the block sends Data
	Credit                      // the block has consumed bytes: Deliver may have space
	ShutDown                    // the block sends no more
	Closed                      // the block is done with the connection, whose slot is free from now on
	Listen                      // the block waits for connections to Port; Listening answers
	Exited                      // the block has ended
	Violation                   // the block broke the protocol: Conn has failed, if it names one (Named)
	BrokenQueue                 // the block destroyed its queue, and nothing more follows
)

// Event is an action of a block, from a checked entry.
type Event struct {
	Kind  Kind
	Named bool // Conn is a connection
	Conn  Conn
	Data  [2][]byte // in order, valid until the next Take, and the device may change it before: copy it once
	Port  uint16
}

// eproto is EPROTO of Linux, of a connection whose block broke the protocol.
const eproto = 71

// Take returns the next event of the block, false if there is none. It skips stale entries.
func (b *Block) Take(ev *Event) bool {
	for !b.Broken() {
		e := &b.taken
		ok, err := b.up.Take(e)
		if err != nil {
			b.health = broken
			break
		}
		if !ok {
			return false
		}
		b.stats.Entries++
		*ev = Event{}
		if b.event(ev, e) {
			return true
		}
	}
	if b.health == reported {
		return false
	}
	b.health = reported
	*ev = Event{Kind: BrokenQueue}
	return true
}

// event converts an entry. False means that it is dropped.
func (b *Block) event(ev *Event, e *ring.Entry) bool {
	if e.Connection == none {
		return b.blockEvent(ev, e)
	}
	k := Conn{e.Connection, e.Generation}
	if k.Index >= uint32(len(b.conns)) {
		return b.violation(ev, k, nil)
	}
	c := b.lookup(k)
	if c == nil {
		b.stats.Stale++
		return false
	}
	ev.Named, ev.Conn = true, k
	switch e.Operation {
	case opData, opRing:
		return b.bytes(ev, e, c)
	case opCredit:
		return b.credit(ev, e, c)
	case opShutdown:
		return b.ended(ev, c, Shutdown, ShutDown)
	case opClose:
		return b.ended(ev, c, Close, Closed)
	}
	return b.violation(ev, k, c)
}

func (b *Block) blockEvent(ev *Event, e *ring.Entry) bool {
	switch {
	case e.Operation == opListen && e.Length == 4 && e.Data[2]|e.Data[3] == 0:
		ev.Kind, ev.Port = Listen, binary.NativeEndian.Uint16(e.Data[:])
	case e.Operation == opExit:
		ev.Kind = Exited
	default:
		return b.violation(ev, Conn{}, nil)
	}
	return true
}

// violation counts an entry that no correct kernel writes, and fails its connection.
func (b *Block) violation(ev *Event, k Conn, c *conn) bool {
	b.stats.Violations++
	*ev = Event{Kind: Violation}
	if c != nil {
		ev.Named, ev.Conn = true, k
		b.Reset(k, eproto)
	}
	return true
}

// bytes checks and returns the bytes of an entry. They must be the next of the stream and fit into the ring, wherever they are.
func (b *Block) bytes(ev *Event, e *ring.Entry, c *conn) bool {
	if c.state == Failed {
		b.stats.Discarded++
		return false
	}
	n := uint32(e.Length)
	if e.Operation == opRing {
		n = binary.NativeEndian.Uint32(e.Data[4:])
		if e.Length != 8 || binary.NativeEndian.Uint32(e.Data[:]) != c.out {
			return b.violation(ev, ev.Conn, c)
		}
	}
	if n == 0 || n > b.size-(c.out-c.acked) || !c.state.sends() {
		return b.violation(ev, ev.Conn, c)
	}
	ev.Kind, ev.Data[0] = Bytes, e.Data[:e.Length]
	if e.Operation == opRing {
		ring := b.ring(e.Connection, true)
		at := c.out & (b.size - 1)
		first := min(n, b.size-at)
		ev.Data = [2][]byte{ring[at : at+first], ring[:n-first]}
	}
	c.out += n
	return true
}

func (b *Block) credit(ev *Event, e *ring.Entry, c *conn) bool {
	to := binary.NativeEndian.Uint32(e.Data[:])
	if e.Length != 4 || to-c.read > c.in-c.read {
		return b.violation(ev, ev.Conn, c)
	}
	c.read = to
	ev.Kind = Credit
	return true
}

// ended changes the state of a connection by a shutdown or close of the block.
func (b *Block) ended(ev *Event, c *conn, by Change, kind Kind) bool {
	next := c.state.Next(by)
	if next == Invalid {
		return b.violation(ev, ev.Conn, c)
	}
	c.state = next
	ev.Kind = kind
	if next == Free {
		c.generation++
		c.pending = 0
		b.free = append(b.free, ev.Conn.Index)
	}
	return true
}
