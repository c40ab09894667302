package sign

import (
	"crypto"
	"errors"
	"io"
	"sync/atomic"

	"github.com/millrace/millrace/gpukern/montgomery"
)

// ErrFault is the error of a signature that its own verification refused: the machine computed wrongly.
var ErrFault = errors.New("sign: a signature failed its verification and was discarded")

// Request asks for one signature. The caller sets the first fields; Signature or Err are set by Batch.Run, which also calls
// Done, if it is not nil.
type Request struct {
	Key    *RSAKey
	Random io.Reader // salts of PSS
	Digest []byte
	Opts   crypto.SignerOpts

	Signature []byte
	Err       error
	Done      func()
	state     requestState
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

// Cancel withdraws a request that waits: it is not signed, and Done not called.
func (r *Request) Cancel() {
	if r.state == queued {
		r.state = cancelled
	}
}

// Stats counts the work of a Batch.
type Stats struct {
	Signatures uint64 // made and verified
	Passes     uint64 // each makes up to AtOnce signatures
	Faults     uint64 // signatures that failed their verification
}

// Add adds the counts of another batch.
func (s *Stats) Add(o Stats) {
	s.Signatures += o.Signatures
	s.Passes += o.Passes
	s.Faults += o.Faults
}

// counters are those of Stats: the loop writes them, and any goroutine reads.
type counters struct{ signatures, passes, faults atomic.Uint64 }

// AtOnce is the number of signatures of a pass. Each takes a lane for either prime.
const AtOnce = montgomery.Lanes / 2

// Batch collects requests and makes their signatures, several at once. It is for one loop, and not safe for concurrent
// use but by Stats. The zero value is ready.
type Batch struct {
	waiting  []*Request
	spare    []*Request                // the memory of the last waiting ones
	powers   map[int]*montgomery.Power // by blocks
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
	return Stats{Signatures: c.signatures.Load(), Passes: c.passes.Load(), Faults: c.faults.Load()}
}

// Run makes the signatures that wait. Requests that Done adds wait for the next Run.
func (b *Batch) Run() {
	waiting := b.waiting
	b.waiting = b.spare[:0]
	for left := waiting; len(left) > 0; {
		var pass [AtOnce]*Request
		n := 0
		rest := left[:0]
		for _, r := range left {
			switch {
			case r.state == cancelled:
			case n == 0, n < AtOnce && r.Key.sameShape(pass[0].Key):
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

// sign makes the signatures of requests whose keys have one shape, AtOnce at most.
func (b *Batch) sign(requests []*Request) {
	b.counters.passes.Add(1)
	var s pass
	for _, r := range requests {
		em := make([]byte, r.Key.size())
		if r.Err = encode(em, r.Key.n.BitLen(), r.Random, r.Digest, r.Opts); r.Err == nil {
			s.add(r, em)
		}
	}
	if s.n > 0 {
		k := requests[0].Key
		s.power(b.power(k.p.Blocks()))
		s.verify(b.power(k.n.Blocks()))
	}
	for _, r := range requests {
		switch r.Err {
		case nil:
			b.counters.signatures.Add(1)
		case ErrFault:
			b.counters.faults.Add(1)
		}
	}
	for _, r := range requests {
		if r.state == cancelled { // by the Done of another one
			continue
		}
		r.state = done
		if r.Done != nil {
			r.Done()
		}
	}
}
