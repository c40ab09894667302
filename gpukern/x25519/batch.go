package x25519

import (
	"crypto/ecdh"
	"sync/atomic"
)

// Exchange is one key exchange: a new key, and its product with the peer's (RFC 7748 6.1). The caller sets the first
// fields; Batch.Run sets Public and Shared, and then calls Done, if it is not nil.
type Exchange struct {
	Private [Size]byte // random
	Peer    [Size]byte // the peer's public key
	Done    func()

	Public [Size]byte
	Shared [Size]byte
	state  exchangeState
}

// exchangeState is the state of an Exchange.
type exchangeState uint8

const (
	idle exchangeState = iota
	queued
	cancelled
	ended
)

// Ended reports whether Public and Shared are set.
func (x *Exchange) Ended() bool { return x.state == ended }

// Cancel withdraws an exchange that waits, and overwrites its key: it is not computed, and Done not called. It reports false
// if the exchange does not wait. Otherwise the batch refers to it until the next Run.
func (x *Exchange) Cancel() bool {
	if x.state != queued {
		return false
	}
	clear(x.Private[:])
	x.state = cancelled
	return true
}

// Secure reports whether Shared is a secret: it is all zero where the peer's key has low order (RFC 7748 6.1).
func (x *Exchange) Secure() bool {
	sum := byte(0)
	for _, b := range x.Shared {
		sum |= b
	}
	return sum != 0
}

// Clear overwrites the keys. The exchange can be used again.
func (x *Exchange) Clear() { *x = Exchange{} }

// exchangesAtOnce is the most exchanges that a pass computes. Each takes a lane for either product.
const exchangesAtOnce = Lanes / 2

// Batch collects exchanges and computes several at once. It is for one loop, and not safe for concurrent use but by
// Computed. The zero value is ready.
type Batch struct {
	waiting  []*Exchange
	spare    []*Exchange // the memory of the last waiting ones
	pass     *Pass
	computed atomic.Uint64
}

// Add queues an exchange until Run.
func (b *Batch) Add(x *Exchange) {
	x.state = queued
	b.waiting = append(b.waiting, x)
}

// Computed returns how many exchanges were computed. Any goroutine may call it.
func (b *Batch) Computed() uint64 { return b.computed.Load() }

// Waiting returns how many exchanges wait.
func (b *Batch) Waiting() int { return len(b.waiting) }

// Run computes the exchanges that wait. Exchanges that Done adds wait for the next Run.
func (b *Batch) Run() {
	waiting := b.waiting
	b.waiting = b.spare[:0]
	most := form.Lanes() / 2
	for left := waiting; len(left) > 0; {
		var group [exchangesAtOnce]*Exchange
		n := 0
		for n < most && len(left) > 0 {
			if left[0].state == queued {
				group[n] = left[0]
				n++
			}
			left = left[1:]
		}
		b.compute(group[:n])
		b.computed.Add(uint64(n))
		for _, x := range group[:n] {
			if x.state == cancelled { // by the Done of another one
				continue
			}
			x.state = ended
			if x.Done != nil {
				x.Done()
			}
		}
	}
	clear(waiting)
	b.spare = waiting[:0]
}

// compute sets the results of exchanges that fit into one pass. Also for one exchange it takes less time than crypto/ecdh, where the
// CPU has the instructions.
func (b *Batch) compute(group []*Exchange) {
	if !form.Vector() {
		for _, x := range group {
			x.alone()
		}
		return
	}
	if b.pass == nil {
		b.pass = NewPass()
	}
	var products, scalars, points [Lanes][Size]byte
	defer clear(scalars[:])
	defer clear(products[:])
	for i, x := range group {
		scalars[2*i], points[2*i] = x.Private, Base
		scalars[2*i+1], points[2*i+1] = x.Private, x.Peer
	}
	switch n := 2 * len(group); {
	case n > Few, n > 0 && !form.Wide():
		b.pass.Multiply(products[:n], scalars[:n], points[:n])
	case n > 0:
		b.pass.MultiplyFew(products[:n], scalars[:n], points[:n])
	}
	for i, x := range group {
		x.Public, x.Shared = products[2*i], products[2*i+1]
	}
}

// alone computes an exchange by crypto/ecdh. Its errors are of lengths, which are right, and of a shared secret that is
// zero: Secure reports that one.
func (x *Exchange) alone() {
	private, err := ecdh.X25519().NewPrivateKey(x.Private[:])
	if err != nil {
		return
	}
	copy(x.Public[:], private.PublicKey().Bytes())
	peer, err := ecdh.X25519().NewPublicKey(x.Peer[:])
	if err != nil {
		return
	}
	if shared, err := private.ECDH(peer); err == nil {
		copy(x.Shared[:], shared)
	}
}

// Compute computes one exchange at once, by crypto/ecdh.
func (x *Exchange) Compute() {
	x.alone()
	x.state = ended
}
