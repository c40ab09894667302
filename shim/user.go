package shim

import (
	"cmp"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// user counts what the programs of one uid have.
type user struct {
	uid     uint32
	trusted bool // uid 0 or the node's own

	mu       sync.Mutex // a leaf: callbacks of loops take it
	sockets  int
	files    int // descriptors of the node
	channels int
	lookups  int
	rings    int
	second   int64 // of connects
	connects int

	ended errorOrder // Server.mu guards it

	once sync.Once
	work chan struct{} // see begin

	closer closer

	denied, limited atomic.Uint64 // as those of Stats
}

// userOf returns the counters of a uid. They stay: their number is that of the machine's users.
func (s *Server) userOf(uid uint32) *user {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.users[uid]
	if u == nil {
		u = &user{uid: uid, trusted: uid == 0 || int(uid) == os.Geteuid()}
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

// begin waits until fewer than requestsAtOnce requests of the user are done by goroutines. Who has waited longest is the first.
// end undoes it.
func (u *user) begin() {
	u.once.Do(func() { u.work = make(chan struct{}, requestsAtOnce) })
	u.work <- struct{}{}
}

func (u *user) end() { <-u.work }

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

// filesKept is which part of the descriptors of the process is for no program: one in so many, for the node itself. As many
// again are not for users without limits.
const filesKept = 16

// limitFiles sets how many descriptors programs may have: RLIMIT_NOFILE is for all of the process.
func (s *Server) limitFiles() error {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return err
	}
	most := int(min(l.Cur, 1<<30))
	s.mostFiles.Store(int64(most - most/filesKept))
	s.cfg.Limits.Descriptors = cmp.Or(s.cfg.Limits.Descriptors, most/2)
	return nil
}

// takeFile counts a descriptor of the node. EMFILE is that the user has too many, ENFILE that all users together have.
func (s *Server) takeFile(u *user) error {
	all, most := s.mostFiles.Load(), s.cfg.Limits.Descriptors
	if u.trusted {
		most = int(all - all/filesKept)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	err := syscall.EMFILE
	if u.files < most {
		if s.files.Add(1) <= all {
			u.files++
			return nil
		}
		s.files.Add(-1)
		err = syscall.ENFILE
	}
	return err
}

// addFile takes the descriptor of a socket that has been counted, unless err says that it has not. A refusal undoes that.
func (s *Server) addFile(u *user, err error) error {
	if err != nil {
		return err
	}
	if err = s.takeFile(u); err != nil {
		u.limited.Add(1)
		u.giveBack(&u.sockets)
	}
	return err
}

// giveFile undoes takeFile.
func (s *Server) giveFile(u *user) {
	u.giveBack(&u.files)
	s.files.Add(-1)
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
