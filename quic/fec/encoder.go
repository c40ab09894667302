package fec

import (
	"encoding/binary"
	"errors"
)

// Config configures a code. Both ends need the same Scheme; Interval and Window are the sender's.
type Config struct {
	Scheme Scheme
	// Interval is the number of source symbols for each repair symbol, 1 to MaxWindow; 0 is 10. It
	// sets the overhead, 1/Interval, and for XOR the block.
	Interval int
	// Window is the number of source symbols that a repair symbol of RLC covers, Interval to
	// MaxWindow; 0 is 4 times Interval.
	Window int
	// MaxSize bounds datagrams, in bytes; 0 is 1500.
	MaxSize int
}

// Bounds and defaults of Config.
const (
	MaxWindow       = 128
	DefaultInterval = 10
	DefaultMaxSize  = 1500
)

// ErrConfig is returned for values that Config does not permit.
var ErrConfig = errors.New("fec: Interval, Window or MaxSize out of bounds")

func (c Config) filled() (Config, error) {
	if c.Interval == 0 {
		c.Interval = DefaultInterval
	}
	if c.Window == 0 {
		c.Window = min(4*c.Interval, MaxWindow)
	}
	if c.Scheme == XOR {
		c.Window = c.Interval
	}
	if c.MaxSize == 0 {
		c.MaxSize = DefaultMaxSize
	}
	if c.Interval < 1 || c.Window < c.Interval || c.Window > MaxWindow || c.MaxSize < 1 || c.MaxSize > 1<<16-1 || c.Scheme > RLC {
		return c, ErrConfig
	}
	return c, nil
}

// Encoder makes symbols of datagrams. It holds Window datagrams.
type Encoder struct {
	c     Config
	next  uint32            // ESI
	held  int               // symbols in ring, at most Window
	ring  [MaxWindow][]byte // length and datagram of the latest symbols, by ESI modulo MaxWindow
	key   uint16
	since int // source symbols since the last repair symbol
}

// NewEncoder returns an encoder.
func NewEncoder(c Config) (*Encoder, error) {
	c, err := c.filled()
	return &Encoder{c: c}, err
}

// ErrTooLarge is returned for datagrams of more than Config.MaxSize.
var ErrTooLarge = errors.New("fec: datagram larger than MaxSize")

// Source appends the source symbol of a datagram to dst. due means that a repair symbol is to follow.
func (e *Encoder) Source(dst, payload []byte) (symbol []byte, due bool, err error) {
	if len(payload) > e.c.MaxSize {
		return dst, false, ErrTooLarge
	}
	symbol = appendSource(dst, e.next, payload)
	if e.c.Scheme == None {
		e.next++
		return symbol, false, nil
	}
	slot := &e.ring[e.next%MaxWindow]
	*slot = binary.BigEndian.AppendUint16((*slot)[:0], uint16(len(payload)))
	*slot = append(*slot, payload...)
	e.next++
	e.since++
	e.held = min(e.held+1, e.c.Window)
	return symbol, e.since >= e.c.Interval, nil
}

// Repair appends a repair symbol over the latest symbols to dst. It may also be called when none is
// due, for instance after the last datagram. Without datagrams since the last one of XOR it appends
// nothing.
func (e *Encoder) Repair(dst []byte) []byte {
	r := repair{scheme: e.c.Scheme, count: e.covered(), key: e.key}
	if r.count == 0 {
		return dst
	}
	r.first = e.next - uint32(r.count)
	e.key++
	e.since = 0
	dst = r.append(dst)
	at := len(dst)
	for i := range r.count {
		s := e.ring[(r.first+uint32(i))%MaxWindow]
		for len(dst)-at < len(s) {
			dst = append(dst, 0)
		}
		addScaled(dst[at:], s, r.coefficient(i))
	}
	return dst
}

// covered returns how many symbols the next repair symbol is about.
func (e *Encoder) covered() int {
	if e.c.Scheme == XOR {
		return min(e.since, e.held)
	}
	return e.held // 0 without FEC
}
