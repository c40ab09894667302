package quic

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"sync"
	"sync/atomic"
	"time"
)

// StrikeConfig configures a StrikeRegister. The zero value is valid.
type StrikeConfig struct {
	// Window is the time that after its issue a ticket is good for early data; 0 is 1 h. Older tickets
	// still resume.
	Window time.Duration
	// Entries bounds the tickets that are remembered for each window; 0 is 65536, about 3 MiB. When
	// it is reached, early data is refused until the window has passed.
	Entries int
	// Now is the clock; nil is time.Now.
	Now func() time.Time
}

// Defaults of StrikeConfig.
const (
	DefaultStrikeWindow  = time.Hour
	DefaultStrikeEntries = 1 << 16
)

// StrikeRegister permits early data once for each session ticket, which makes replays of it fail
// (RFC 8446 8.1, RFC 9001 9.2). A refused client sends its data again after the handshake.
//
// A register accepts early data on tickets that were issued under it only. So a restart, or another
// instance with the same ticket keys, refuses early data instead of accepting a replay.
type StrikeRegister struct {
	c  StrikeConfig
	id [16]byte // of the register, in each ticket

	mu      sync.Mutex
	now     map[strike]struct{}
	before  map[strike]struct{} // of the window before
	started time.Time           // when now began

	accepted, replayed, expired, foreign, full atomic.Uint64
}

// strike is a hash of a ticket.
type strike [16]byte

// StrikeStats are counters of a StrikeRegister. All but Accepted count refusals.
type StrikeStats struct {
	Accepted uint64 // tickets good for early data; the client may have sent none
	Replayed uint64 // tickets seen before
	Expired  uint64 // issued before the window
	Foreign  uint64 // issued by another register
	Full     uint64 // for want of memory
}

// NewStrikeRegister returns an empty register.
func NewStrikeRegister(c StrikeConfig) *StrikeRegister {
	if c.Window <= 0 {
		c.Window = DefaultStrikeWindow
	}
	if c.Entries <= 0 {
		c.Entries = DefaultStrikeEntries
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	r := &StrikeRegister{c: c, now: map[strike]struct{}{}, started: c.Now()}
	_, _ = rand.Read(r.id[:]) // does not fail (crypto/rand)
	return r
}

// Stats returns the counters.
func (r *StrikeRegister) Stats() StrikeStats {
	return StrikeStats{
		Accepted: r.accepted.Load(), Replayed: r.replayed.Load(), Expired: r.expired.Load(),
		Foreign: r.foreign.Load(), Full: r.full.Load(),
	}
}

// extraPrefix marks the register's part of a session: prefix, id, time of issue in ns.
const extraPrefix = "millrace strike 1"

func (r *StrikeRegister) extra() []byte {
	b := append([]byte(extraPrefix), r.id[:]...)
	return binary.BigEndian.AppendUint64(b, uint64(r.c.Now().UnixNano()))
}

// issued returns when the ticket of a session was issued under r.
func (r *StrikeRegister) issued(extras [][]byte) (time.Time, bool) {
	for _, extra := range extras {
		b, ok := bytes.CutPrefix(extra, []byte(extraPrefix))
		if ok && len(b) == len(r.id)+8 && [16]byte(b[:16]) == r.id {
			return time.Unix(0, int64(binary.BigEndian.Uint64(b[16:]))), true
		}
	}
	return time.Time{}, false
}

// permit decides on early data for a ticket, and remembers it.
func (r *StrikeRegister) permit(ticket []byte, extras [][]byte) bool {
	issued, ok := r.issued(extras)
	if !ok {
		r.foreign.Add(1)
		return false
	}
	hash := sha256.Sum256(ticket)
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.c.Now()
	if age := now.Sub(issued); age < 0 || age >= r.c.Window {
		r.expired.Add(1)
		return false
	}
	return r.strike(now, strike(hash[:16]))
}

// strike remembers s. A ticket is remembered for at least a window after its first use, and so until
// it is too old for another.
func (r *StrikeRegister) strike(now time.Time, s strike) bool {
	r.rotate(now)
	_, seen := r.now[s]
	_, seenBefore := r.before[s]
	switch {
	case seen || seenBefore:
		r.replayed.Add(1)
		return false
	case len(r.now) >= r.c.Entries:
		r.full.Add(1)
		return false
	}
	r.now[s] = struct{}{}
	r.accepted.Add(1)
	return true
}

// rotate forgets what is older than a window.
func (r *StrikeRegister) rotate(now time.Time) {
	switch age := now.Sub(r.started); {
	case age < r.c.Window:
		return
	case age < 2*r.c.Window:
		r.before = r.now
	default:
		r.before = nil
	}
	r.now, r.started = map[strike]struct{}{}, now
}

// protect returns tc with sessions under the register. quic-go has no anti-replay; crypto/tls asks
// UnwrapSession for each ticket, and a session without EarlyData refuses early data only.
func (r *StrikeRegister) protect(tc *tls.Config) *tls.Config {
	// The keys of a Config that has none are made at first use, and a clone made before would have
	// others than the Config.
	_, _ = tc.DecryptTicket(nil, tls.ConnectionState{})
	out := tc.Clone()
	wrap, unwrap := tc.WrapSession, tc.UnwrapSession
	if wrap == nil {
		wrap = tc.EncryptTicket
	}
	if unwrap == nil {
		unwrap = tc.DecryptTicket
	}
	out.WrapSession = func(cs tls.ConnectionState, s *tls.SessionState) ([]byte, error) {
		s.Extra = append(s.Extra, r.extra())
		return wrap(cs, s)
	}
	out.UnwrapSession = func(ticket []byte, cs tls.ConnectionState) (*tls.SessionState, error) {
		s, err := unwrap(ticket, cs)
		if s != nil && s.EarlyData {
			s.EarlyData = r.permit(ticket, s.Extra)
		}
		return s, err
	}
	if choose := tc.GetConfigForClient; choose != nil {
		out.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			chosen, err := choose(hello)
			if chosen == nil || err != nil {
				return chosen, err
			}
			return r.protect(chosen), nil
		}
	}
	return out
}
