package fec

import (
	"context"
	"strings"
	"sync"
)

// Datagrams carries symbols: a *quic.Conn, or a link of a simulation.
type Datagrams interface {
	SendDatagram(b []byte) error
	ReceiveDatagram(ctx context.Context) ([]byte, error)
}

// suffixes of application protocols, by scheme. A client that offers one and a server that selects it
// have agreed.
var suffixes = map[Scheme]string{XOR: "+fec-xor-1", RLC: "+fec-rlc-1"}

// Offer returns the application protocols for tls.Config.NextProtos: protocol with the schemes, the
// preferred one first, and without.
func Offer(protocol string, schemes ...Scheme) (protocols []string) {
	for _, s := range schemes {
		if suffix, ok := suffixes[s]; ok {
			protocols = append(protocols, protocol+suffix)
		}
	}
	return append(protocols, protocol)
}

// Negotiated splits the protocol that TLS agreed on.
func Negotiated(protocol string) (base string, s Scheme) {
	for s, suffix := range suffixes {
		if base, ok := strings.CutSuffix(protocol, suffix); ok {
			return base, s
		}
	}
	return protocol, None
}

// Conn sends and receives datagrams with error correction. All methods may be called by several
// goroutines at once.
type Conn struct {
	under Datagrams

	mu  sync.Mutex // guards the sending side
	enc *Encoder
	buf []byte

	// One goroutine at a time waits for a symbol: a second one would wait on, while the datagram that
	// the first has recovered for it lies in waiting.
	receiving chan struct{}

	decoding sync.Mutex // guards all below
	dec      *Decoder
	waiting  [][]byte // delivered and not yet returned
}

// NewConn returns a Conn over datagrams. Both ends must have agreed on c.Scheme. With None, symbols
// are datagrams as they are, without a header.
func NewConn(under Datagrams, c Config) (*Conn, error) {
	f := &Conn{under: under, receiving: make(chan struct{}, 1)}
	if c.Scheme == None {
		return f, nil
	}
	var err error
	if f.enc, err = NewEncoder(c); err != nil {
		return nil, err
	}
	f.dec, err = NewDecoder(c, func(b []byte) {
		f.waiting = append(f.waiting, append([]byte(nil), b...))
	})
	return f, err
}

// SendDatagram sends b, and a repair symbol when one is due. It copies b. b must be Overhead bytes
// shorter than what the connection carries.
func (f *Conn) SendDatagram(b []byte) error {
	if f.enc == nil {
		return f.under.SendDatagram(b)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	symbol, due, err := f.enc.Source(f.buf[:0], b)
	if err != nil {
		return err
	}
	f.buf = symbol
	if err := f.under.SendDatagram(symbol); err != nil || !due {
		return err
	}
	return f.flush()
}

// Flush sends a repair symbol now: after the last datagram of a burst.
func (f *Conn) Flush() error {
	if f.enc == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.flush()
}

func (f *Conn) flush() error {
	f.buf = f.enc.Repair(f.buf[:0])
	if len(f.buf) == 0 {
		return nil
	}
	return f.under.SendDatagram(f.buf)
}

// ReceiveDatagram returns the next datagram, which is the caller's. Recovered ones come out of order.
// Symbols that are malformed are dropped.
func (f *Conn) ReceiveDatagram(ctx context.Context) ([]byte, error) {
	if f.dec == nil {
		return f.under.ReceiveDatagram(ctx)
	}
	select {
	case f.receiving <- struct{}{}:
		defer func() { <-f.receiving }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	for {
		if b, ok := f.next(); ok {
			return b, nil
		}
		symbol, err := f.under.ReceiveDatagram(ctx)
		if err != nil {
			return nil, err
		}
		f.decoding.Lock()
		_ = f.dec.Receive(symbol) // an error is of this symbol alone, and its effect is a loss
		f.decoding.Unlock()
	}
}

// next returns a datagram that has been delivered.
func (f *Conn) next() ([]byte, bool) {
	f.decoding.Lock()
	defer f.decoding.Unlock()
	if len(f.waiting) == 0 {
		return nil, false
	}
	b := f.waiting[0]
	f.waiting = f.waiting[1:]
	return b, true
}

// Stats returns the counters of the receiving side.
func (f *Conn) Stats() DecoderStats {
	if f.dec == nil {
		return DecoderStats{}
	}
	f.decoding.Lock()
	defer f.decoding.Unlock()
	return f.dec.Stats()
}
