package link

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Link carries messages to one peer and from it. All methods may be called from any goroutine.
type Link interface {
	// Send sends a message: the bytes of parts, in order. They are the link's until p is done: Send calls p.Add before it
	// returns where it keeps them, and else it has taken them already.
	Send(h *Header, parts [][]byte, p *Pending)
	// Recv receives the message with the key of h, which must have its Fingerprint and Total.
	Recv(h *Header, to Sink) error
	// Flush waits until what was sent is with the system, at most for a time.
	Flush(most time.Duration)
	// Close ends the link: calls fail with err, those under way too.
	Close(err error)
}

// Sink takes the bytes of a message. Those of a Striped link come from several goroutines at a time.
type Sink interface {
	// Direct returns memory for bytes of the message from offset off on: 1 to n bytes. Nil is that Store takes them.
	Direct(off, n int) []byte
	// Store takes bytes of the message from offset off on. It borrows b.
	Store(off int, b []byte)
}

// Pending waits for sends. The zero value is ready, and again after Wait.
type Pending struct {
	wg  sync.WaitGroup
	err atomic.Pointer[error]
}

// Add counts one more send, and Done ends one.
func (p *Pending) Add() { p.wg.Add(1) }

// Done ends a send, with its error.
func (p *Pending) Done(err error) {
	if err != nil {
		p.fail(err)
	}
	p.wg.Done()
}

func (p *Pending) fail(err error) { p.err.CompareAndSwap(nil, &err) }

// Wait waits until all sends are done, and returns the first error.
func (p *Pending) Wait() error {
	p.wg.Wait()
	if err := p.err.Swap(nil); err != nil {
		return *err
	}
	return nil
}

// ErrMismatch is the error of a message that belongs to another operation than the receiver's: ranks differ in the order, the counts
// or the types of their calls.
var ErrMismatch = errors.New("collective: ranks differ in what they call")

// match compares the header of a message with what the receiver expects.
func match(got, want *Header) error {
	switch {
	case got.Fingerprint != want.Fingerprint:
		return fmt.Errorf("%w: operation %d has other parameters here and there (Config.Debug prints them)", ErrMismatch, want.Sequence)
	case got.Total != want.Total:
		return fmt.Errorf("%w: a message of %d bytes comes where %d are expected", ErrMismatch, got.Total, want.Total)
	}
	return nil
}

// inbox keeps messages that came before their Recv.
type inbox struct {
	messages map[Key][]*message
	bytes    int
}

// message is one that came before its Recv.
type message struct {
	Header
	data []byte
	have uint64 // bytes of data that came
}

// put adds a message.
func (b *inbox) put(m *message) {
	if b.messages == nil {
		b.messages = map[Key][]*message{}
	}
	b.messages[m.Key] = append(b.messages[m.Key], m)
	b.bytes += len(m.data)
}

// take removes the first message with a key; nil is none.
func (b *inbox) take(k Key) *message {
	q := b.messages[k]
	if len(q) == 0 {
		return nil
	}
	m := q[0]
	if len(q) == 1 {
		delete(b.messages, k)
	} else {
		b.messages[k] = q[1:]
	}
	b.bytes -= len(m.data)
	return m
}
