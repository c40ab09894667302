package tcp

import (
	"crypto/sha256"
	"encoding/binary"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/internal/random"
	"github.com/millrace/millrace/wire"
)

// sipKey keys the hashes of flows and addresses that a peer must neither predict nor steer
// into collisions.
type sipKey random.Key

// deriveKey returns the key for one use of a secret; label names the use.
func deriveKey(secret *[32]byte, label string) sipKey {
	h := sha256.New()
	h.Write(secret[:])
	h.Write([]byte(label))
	return sipKey(random.KeyFrom(h.Sum(nil)))
}

// hashAddr adds an address to a hash.
func hashAddr(h *random.Hash, a *wire.Addr) {
	h.Word(binary.LittleEndian.Uint64(a[:8]))
	h.Word(binary.LittleEndian.Uint64(a[8:]))
}

// flow returns a hash that has taken in the flow, in syncookie.FlowLen bytes.
func (k sipKey) flow(t *wire.Tuple) random.Hash {
	h := random.Key(k).Start()
	hashAddr(&h, &t.Local)
	hashAddr(&h, &t.Remote)
	h.Word(uint64(t.LocalPort)<<16 | uint64(t.RemotePort))
	return h
}

// tuple hashes the flow and one word more: 44 bytes.
func (k sipKey) tuple(t *wire.Tuple, extra uint64) uint64 {
	h := random.Key(k).Start()
	hashAddr(&h, &t.Local)
	hashAddr(&h, &t.Remote)
	h.Word(extra)
	return h.Sum(44, uint64(t.LocalPort)<<16|uint64(t.RemotePort))
}

// addrs hashes two addresses and one word: 40 bytes.
func (k sipKey) addrs(a, b *wire.Addr, extra uint64) uint64 {
	h := random.Key(k).Start()
	hashAddr(&h, a)
	hashAddr(&h, b)
	h.Word(extra)
	return h.Sum(40, 0)
}

// isnTick is the time in which the initial sequence numbers of one tuple advance by one
// (RFC 6528 3, RFC 9293 3.4.1): they go around in 4.8 hours, much longer than a segment
// lives.
const isnTick = 4 * time.Microsecond

// timestampTick is the unit of our timestamps (RFC 7323 5.4: between 1 ms and 1 s).
const timestampTick = time.Millisecond

// secrets are the keys that make numbers unguessable from outside, all derived from
// Config.Secret. Each use has its own key, so that what one reveals is no hint at
// another.
type secrets struct {
	isn, timestamp, port, cookie, fastOpen, table sipKey
}

func newSecrets(secret *[32]byte) secrets {
	return secrets{
		isn:       deriveKey(secret, "initial sequence numbers"),
		timestamp: deriveKey(secret, "timestamp offsets"),
		port:      deriveKey(secret, "local ports"),
		cookie:    deriveKey(secret, "SYN cookies"),
		fastOpen:  deriveKey(secret, "Fast Open cookies"),
		table:     deriveKey(secret, "tables"),
	}
}

// initialSequence returns the initial sequence number of a connection: a clock plus a
// secret function of the tuple (RFC 6528 3). Successive connections of a tuple count
// upwards, as TIME-WAIT needs, and one's own numbers do not reveal those of other tuples.
func (s *secrets) initialSequence(now clock.Time, t *wire.Tuple) uint32 {
	return uint32(now/clock.Time(isnTick)) + uint32(s.isn.tuple(t, 0))
}

// sequenceAbove returns iss, or where that is not above last, the number at which the
// tuple's former connection stopped, one that is, by more than an unscaled window (RFC 9293
// 3.10.7.4, TIME-WAIT). Old segments then lie outside the window.
func sequenceAbove(iss, last uint32) uint32 {
	if int32(iss-last) > 0 {
		return iss
	}
	return last + 1<<16 + 1
}

// timestampOffset returns what the tuple's timestamps start from (RFC 7323 7.1). It is the
// same for each connection of the tuple, so that their timestamps count upwards too, as RFC
// 6191 needs. It hides the uptime of the host.
func (s *secrets) timestampOffset(t *wire.Tuple) uint32 { return uint32(s.timestamp.tuple(t, 0)) }

// timestamp returns the timestamp clock at now, without the offset of a connection.
func timestamp(now clock.Time) uint32 { return uint32(now / clock.Time(timestampTick)) }

// The local ports that are chosen for connections: as many as possible, without those that
// services usually have (RFC 6056 3.2).
const (
	firstPort = 16384
	lastPort  = 65535
	portCount = lastPort - firstPort + 1
)

// portChooser chooses local ports by double hashing (RFC 6056 3.3.4): a secret offset for
// each destination, and counters shared by few destinations. Connections to one destination
// use all ports before one is used again, and an observer of one destination learns nothing
// of others.
type portChooser struct {
	key    sipKey
	counts [256]uint32
}

// choose sets t.LocalPort to a port for which suitable is true, and reports whether there
// is one among the next tries ports.
func (p *portChooser) choose(t *wire.Tuple, tries int, suitable func(*wire.Tuple) bool) bool {
	t.LocalPort = 0
	h := p.key.tuple(t, 0)
	count := &p.counts[h>>56]
	offset := uint32(h)
	for range tries {
		*count++
		t.LocalPort = firstPort + uint16((offset+*count)%portCount)
		if suitable(t) {
			return true
		}
	}
	t.LocalPort = 0
	return false
}
