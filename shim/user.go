package shim

import (
	"crypto/rand"
	"encoding/hex"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// user counts what the programs of one uid have.
type user struct {
	uid     uint32
	trusted bool   // uid 0 or the node's own
	token   string // lets processes that have changed their user go on as this one

	mu       sync.Mutex // a leaf: callbacks of loops take it
	sockets  int
	channels int
	lookups  int
	rings    int
	second   int64 // of connects
	connects int

	ended errorOrder // Server.mu guards it

	denied, limited atomic.Uint64 // as those of Stats
}

// userOf returns the counters of a uid. They stay: their number is that of the machine's users.
func (s *Server) userOf(uid uint32) *user {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.users[uid]
	if u == nil {
		u = &user{uid: uid, trusted: uid == 0 || int(uid) == os.Geteuid(), token: newToken()}
		s.users[uid] = u
	}
	return u
}

// take counts one of n up to most; false is that the limit is reached.
func (u *user) take(n *int, most int) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if *n >= most && !u.trusted {
		return false
	}
	*n++
	return true
}

// giveBack undoes take.
func (u *user) giveBack(n *int) {
	u.mu.Lock()
	*n--
	u.mu.Unlock()
}

// takeSocket counts a socket; EMFILE is that the user has too many.
func (s *Server) takeSocket(u *user) error {
	if u.take(&u.sockets, s.cfg.Limits.Sockets) {
		return nil
	}
	u.limited.Add(1)
	return syscall.EMFILE
}

// takeAnySocket is takeSocket for callers that may wait: ends of pairs that have closed are found before it says no.
func (s *Server) takeAnySocket(u *user) error {
	if u.take(&u.sockets, s.cfg.Limits.Sockets) {
		return nil
	}
	s.pairs.sweepNow()
	return s.takeSocket(u)
}

// takeConnect counts the beginning of a connection; EAGAIN is that the user has begun too many in this second.
func (s *Server) takeConnect(u *user) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if now := time.Now().Unix(); now != u.second {
		u.second, u.connects = now, 0
	}
	if u.connects++; u.connects > s.cfg.Limits.Connects && !u.trusted {
		u.limited.Add(1)
		return syscall.EAGAIN
	}
	return nil
}

// newToken returns 32 hexadecimal digits.
func newToken() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it does not fail
	return hex.EncodeToString(b[:])
}
