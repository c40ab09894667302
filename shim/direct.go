package shim

import (
	"sync"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/shim/ring"
)

// direct is the memory of a pair whose programs both have rings: their bytes travel from one to the other by it, and the socket
// carries doorbells (design 049). The node looks at it for the reports alone.
type direct struct {
	mu   sync.Mutex
	mem  *ring.Direct
	ends int // that are not released
}

// newDirect makes the memory of a pair, for both programs, which the caller closes. It is none where the listener has no rings, or a user
// may have no more of them.
func (k *sock) newDirect(other *sock, l *listener, p, q int) (made memory) {
	if !l.rings {
		return made
	}
	for i, u := range []*user{k.user, other.user} {
		if !u.take(&u.rings, k.s.cfg.Limits.Rings) {
			u.limited.Add(1)
			if i > 0 {
				k.user.giveBack(&k.user.rings)
			}
			return made
		}
	}
	mem, fd, err := ring.CreateDirect(ring.DefaultSize)
	if err != nil {
		k.user.giveBack(&k.user.rings)
		other.user.giveBack(&other.user.rings)
		return made
	}
	for _, end := range []int{p, q} {
		_ = unix.SetsockoptInt(end, unix.SOL_SOCKET, unix.SO_SNDBUF, ringSendBuffer)
	}
	d := &direct{mem: mem, ends: 2}
	for _, end := range []*sock{k, other} {
		end.mu.Lock()
		end.direct = d
		end.mu.Unlock()
	}
	k.s.stats.direct.Add(1)
	return memory{fd, ring.ProgramEnds}
}

// dropDirect closes the memory's descriptor where there is no pair.
func (k *sock) dropDirect(r *reply) {
	r.memory.close()
	k.releaseDirect()
}

// releaseDirect is that the end k is no more.
func (k *sock) releaseDirect() {
	k.mu.Lock()
	d := k.direct
	k.direct = nil
	k.mu.Unlock()
	if d == nil {
		return
	}
	k.user.giveBack(&k.user.rings)
	d.mu.Lock()
	defer d.mu.Unlock()
	k.s.stats.directBytes.Add(d.mem.Count())
	if d.ends--; d.ends == 0 {
		_ = d.mem.Close() // it is mapped
		d.mem = nil
	}
}

// endDirect tells the program of k that the other end is closed, perhaps by SIGKILL.
func (k *sock) endDirect() {
	k.mu.Lock()
	d := k.direct
	k.mu.Unlock()
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mem != nil {
		d.mem.End()
	}
}

// countDirect counts what has been read from the rings of k.
func (k *sock) countDirect() {
	k.mu.Lock()
	d := k.direct
	k.mu.Unlock()
	if d != nil {
		d.look(k.s)
	}
}

// look counts what has been read from the rings, and reports whether the programs still use them.
func (d *direct) look(s *Server) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mem == nil {
		return false
	}
	s.stats.directBytes.Add(d.mem.Count())
	return !d.mem.Moved()
}
