package rolelink

import (
	"errors"
	"os"
	"time"

	"github.com/millrace/millrace/l4/role"
)

// A process that replaces another one has its sockets and its role: the peer hears one gateway all the time. The old process reads and
// sends nothing from Suspend on, and goes on by Resume if the new one fails.

// Files returns duplicates of the sockets of the paths that have one, which the caller closes.
func (r *Runner) Files() (files map[Path]*os.File, err error) {
	files = map[Path]*os.File{}
	for _, p := range r.paths {
		if c := p.conn.Load(); c != nil {
			f, e := c.File()
			if err = errors.Join(err, e); e == nil {
				files[p.Path] = f
			}
		}
	}
	return files, err
}

// Suspend leaves the role to another process, and returns its state. This one does not answer for addresses from then on.
func (r *Runner) Suspend() role.Saved {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.resumed = make(chan struct{})
	r.listens.Store(false)
	r.probing.Store(false)
	r.watches.Store(false)
	r.setReadDeadline(time.Unix(1, 0)) // what comes from now on is for the other process
	saved := r.machine.Save()
	r.cfg.Answers(0)
	return saved
}

// Resume goes on after Suspend: the other process has ended.
func (r *Runner) Resume() {
	r.mu.Lock()
	if r.resumed == nil {
		r.mu.Unlock()
		return
	}
	r.setReadDeadline(time.Time{})
	close(r.resumed)
	r.resumed = nil
	r.mu.Unlock()
	r.AddrsChanged()
	r.do(nil)
}

// Leaves has Run end without a last message: another process has the role.
func (r *Runner) Leaves() { r.silent.Store(true) }

func (r *Runner) setReadDeadline(at time.Time) {
	for _, p := range r.paths {
		if c := p.conn.Load(); c != nil {
			_ = c.SetReadDeadline(at) // of a closed one reads fail by themselves
		}
	}
}

// suspended reports whether another process has the role.
func (r *Runner) suspended() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.resumed != nil
}

// awaitResume returns once the runner is not suspended, or a little later.
func (r *Runner) awaitResume() {
	r.mu.Lock()
	resumed := r.resumed
	r.mu.Unlock()
	if resumed == nil {
		return
	}
	select {
	case <-resumed:
	case <-time.After(openEvery):
	}
}
