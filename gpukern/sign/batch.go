package sign

import (
	"crypto"
	"errors"
	"io"
	"sync/atomic"

	"github.com/millrace/millrace/gpukern/ecdsa"
	"github.com/millrace/millrace/gpukern/ed25519"
	"github.com/millrace/millrace/gpukern/montgomery"
)

// ErrFault is the error of a signature that its own verification refused: the machine computed wrongly.
var ErrFault = errors.New("sign: a signature failed its verification and was discarded")

// Request asks for one signature. The caller sets the first fields; Signature or Err are set by Batch.Run, which also calls
// Done, if it is not nil.
type Request struct {
	Key    Key
	Random io.Reader // salts of PSS; hedges the nonces of ECDSA
	Digest []byte    // of Ed25519 the message
	Opts   crypto.SignerOpts

	Signature []byte
	Err       error
	Done      func()
	state     requestState
	alone     bool    // the key's package has signed
	owner     *Signer // that keeps Key until the request has ended; nil for a Key of the caller's own
}

// requestState is the state of a request.
type requestState uint8

const (
	idle requestState = iota
	queued
	cancelled
	done
)

// Ended reports whether Signature or Err is set.
func (r *Request) Ended() bool { return r.state == done }

// Cancel withdraws a request that waits, or was not added: it is not signed, and Done not called.
func (r *Request) Cancel() {
	if r.state == queued || r.state == idle {
		r.end(cancelled)
	}
}

// end makes cancelled or done the state. Its signer may overwrite the key from here on.
func (r *Request) end(state requestState) {
	r.state = state
	if s := r.owner; s != nil {
		r.owner = nil
		s.ended()
	}
}

// Stats counts the work of a Batch.
type Stats struct {
	Signatures uint64 // made in passes, and verified
	Passes     uint64 // each makes up to four signatures of RSA, or eight of ECDSA and Ed25519
	Faults     uint64 // signatures that failed their verification, or were made beside one that did
	Alone      uint64 // made by crypto/ecdsa and crypto/ed25519: a pass of so few takes longer, or the key has no table
}

// Add adds the counts of another batch.
func (s *Stats) Add(o Stats) {
	s.Signatures += o.Signatures
	s.Passes += o.Passes
	s.Faults += o.Faults
	s.Alone += o.Alone
}

// counters are those of Stats: the loop writes them, and any goroutine reads.
type counters struct{ signatures, passes, faults, alone atomic.Uint64 }

// Key is a private key that batches sign with: an RSAKey, an ECDSAKey or an Ed25519Key.
type Key interface {
	// takes reports whether a batch signs a digest of that kind.
	takes(opts crypto.SignerOpts) bool
	shape() shape
	// sign sets Signature or Err of requests whose keys have one shape, and which fit into one pass.
	sign(b *Batch, requests []*Request)
	// Clear overwrites the private key. It must not be used afterwards.
	Clear()
}

// shape is what keys have in common that one pass can sign with.
type shape struct {
	atOnce              int
	primeBlocks, blocks int // of RSA
	bits                int // of a curve
}

// mostAtOnce is the largest atOnce of a shape.
const mostAtOnce = ecdsa.Lanes

// Batch collects requests and makes their signatures, several at once. It is for one loop, and not safe for concurrent
// use but by Stats. The zero value is ready.
type Batch struct {
	waiting  []*Request
	spare    []*Request                // the memory of the last waiting ones
	powers   map[int]*montgomery.Power // by blocks
	passes   map[*ecdsa.Curve]*ecdsa.Pass
	ed25519  *ed25519.Pass
	counters counters
}

// Add queues a request until Run.
func (b *Batch) Add(r *Request) {
	r.state = queued
	b.waiting = append(b.waiting, r)
}

// Waiting returns how many requests wait.
func (b *Batch) Waiting() int { return len(b.waiting) }

// Stats returns the counts. Any goroutine may call it.
func (b *Batch) Stats() Stats {
	c := &b.counters
	return Stats{Signatures: c.signatures.Load(), Passes: c.passes.Load(), Faults: c.faults.Load(), Alone: c.alone.Load()}
}

// Run makes the signatures that wait. Requests that Done adds wait for the next Run.
func (b *Batch) Run() {
	waiting := b.waiting
	b.waiting = b.spare[:0]
	for left := waiting; len(left) > 0; {
		var pass [mostAtOnce]*Request
		var of shape
		n := 0
		rest := left[:0]
		for _, r := range left {
			switch {
			case r.state == cancelled:
			case n == 0, n < of.atOnce && r.Key.shape() == of:
				of = r.Key.shape()
				pass[n] = r
				n++
			default:
				rest = append(rest, r)
			}
		}
		left = rest
		if n > 0 {
			b.sign(pass[:n])
		}
	}
	clear(waiting)
	b.spare = waiting[:0]
}

// power returns the memory for moduli of so many blocks.
func (b *Batch) power(blocks int) *montgomery.Power {
	p := b.powers[blocks]
	if p == nil {
		p = montgomery.NewPower(blocks)
		if b.powers == nil {
			b.powers = map[int]*montgomery.Power{}
		}
		b.powers[blocks] = p
	}
	return p
}

// pass returns the memory for signatures on a curve.
func (b *Batch) pass(c *ecdsa.Curve) *ecdsa.Pass {
	p := b.passes[c]
	if p == nil {
		p = ecdsa.NewPass(c)
		if b.passes == nil {
			b.passes = map[*ecdsa.Curve]*ecdsa.Pass{}
		}
		b.passes[c] = p
	}
	return p
}

// sign makes the signatures of requests of one pass.
func (b *Batch) sign(requests []*Request) {
	requests[0].Key.sign(b, requests)
	for _, r := range requests {
		switch {
		case r.alone:
			b.counters.alone.Add(1)
		case r.Err == nil:
			b.counters.signatures.Add(1)
		case r.Err == ErrFault:
			b.counters.faults.Add(1)
		}
	}
	for _, r := range requests {
		if r.state == cancelled { // by the Done of another one
			continue
		}
		r.end(done)
		if r.Done != nil {
			r.Done()
		}
	}
}
