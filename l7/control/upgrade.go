package control

import (
	"errors"
	"net/netip"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/l7/pool"
	"github.com/millrace/millrace/l7/quicconn"
	"github.com/millrace/millrace/l7/transport"
	"github.com/millrace/millrace/quic"
	"github.com/millrace/millrace/stack"
)

// A process that replaces another takes its listening sockets, the locks of its folders, and what is known of the backends. The other
// accepts nothing from then on, and drains.

// Inherited holds the parts that a process takes from the one that it replaces. Its methods may be called on nil.
type Inherited struct {
	Sockets []*os.File          // listening ones of TCP
	UDP     []quicconn.File     // of HTTP/3
	Locks   map[string]*os.File // by folder, of tls.acme and of caches
	Pools   []PoolState

	Generation uint8  // of the process, in connection IDs of QUIC
	Secret     []byte // of QUIC, which processes that replace each other have in common
}

// PoolState is the state of a pool that its configuration does not have.
type PoolState struct {
	Name     string         `json:"name"`
	Backends []BackendState `json:"backends"`
}

// BackendState is the state of a backend: what probes have found, and what an operator has set.
type BackendState struct {
	Name   string  `json:"name"`
	Down   bool    `json:"down,omitempty"`
	State  *string `json:"state,omitempty"`
	Weight *int    `json:"weight,omitempty"`
}

// lock returns the lock of a folder, nil for none.
func (in *Inherited) lock(dir string) *os.File {
	if in == nil {
		return nil
	}
	f := in.Locks[dir]
	delete(in.Locks, dir)
	return f
}

// down marks the backends of a new pool that were down: a process that takes all for healthy would send them requests until
// its probes have failed.
func (in *Inherited) down(name string, list []pool.BackendOptions) []pool.BackendOptions {
	if in == nil {
		return list
	}
	for _, p := range in.Pools {
		for _, b := range p.Backends {
			for i := range list {
				if p.Name == name && b.Name == list[i].Name {
					list[i].Down = b.Down
				}
			}
		}
	}
	return list
}

// dup returns a duplicate of a file's descriptor. It does not change its mode, as os.File.Fd may: both processes have that in common.
func dup(f *os.File) (fd int, err error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return -1, err
	}
	e := raw.Control(func(of uintptr) { fd, err = unix.FcntlInt(of, unix.F_DUPFD_CLOEXEC, 0) })
	return fd, errors.Join(e, err)
}

// inheritSockets gives the loops the sockets of Options.Inherited.
func inheritSockets(s *Set) (*transport.Sockets, error) {
	sockets := transport.NewSockets(len(s.loops))
	if s.opt.Inherited == nil {
		return sockets, nil
	}
	var errs []error
	for _, f := range s.opt.Inherited.Sockets {
		fd, err := dup(f)
		if err == nil {
			err = sockets.Add(fd)
		}
		errs = append(errs, err, f.Close())
	}
	for _, l := range s.loops {
		if l.kernel != nil {
			l.kernel.Inherited = sockets
		}
	}
	return sockets, errors.Join(errs...)
}

// openUDP returns the UDP sockets of listeners, with those that were inherited.
func openUDP(in *Inherited) (*quicconn.Sockets, error) {
	if in == nil {
		secret, err := quic.NewSecret()
		if err != nil {
			return nil, err
		}
		return quicconn.NewSockets(0, secret, nil)
	}
	udp, err := quicconn.FromFiles(in.UDP)
	if err != nil {
		return nil, err
	}
	return quicconn.NewSockets(in.Generation, in.Secret, udp)
}

// restorePools enters what an operator had set, where pools and backends are still there, and forgets what was inherited: pools of a
// reload begin anew. The caller holds s.mu.
func restorePools(s *Set) error {
	in := s.opt.Inherited
	if s.opt.Inherited = nil; in == nil {
		return nil
	}
	for _, st := range in.Pools {
		p := s.pools[st.Name]
		for _, b := range st.Backends {
			if p == nil || p.ByName(b.Name) == nil {
				continue
			}
			to, now := p.ByName(b.Name), stack.Now()
			if b.Weight != nil {
				to.SetWeight(now, *b.Weight)
			}
			for _, state := range states {
				if b.State == nil || state.String() != *b.State {
					continue
				}
				if to.SetState(now, state); state == pool.Draining {
					p.endDrain(to, p.cfg.Drain, s.endStreams)
				}
			}
		}
	}
	var errs []error
	for _, f := range in.Locks { // of folders that the configuration does not have
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// Pass returns the sockets, locks and states by which another process replaces this one. The files are duplicates.
func Pass(s *Set) (in *Inherited, err error) {
	in = &Inherited{Locks: map[string]*os.File{}}
	if s.udp != nil {
		var all map[netip.AddrPort]*quic.Passed
		all, in.Generation, err = s.udp.Pass()
		in.UDP, in.Secret = quicconn.Files(all), s.udp.Config().Secret
		if err != nil {
			return in, err
		}
	}
	for _, l := range s.loops {
		if l.kernel == nil {
			continue
		}
		var fds []int
		if !s.on(l, func() { fds, err = l.kernel.Listening() }) {
			err = errors.New("a loop has ended")
		}
		for _, fd := range fds {
			in.Sockets = append(in.Sockets, os.NewFile(uintptr(fd), "listener"))
		}
		if err != nil {
			return in, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for dir, a := range s.authorities {
		if in.Locks[dir], err = a.Lock(); err != nil {
			return in, err
		}
	}
	if err = passDisks(s, in); err != nil {
		return in, err
	}
	for _, p := range s.order {
		if st := p.state(); len(st.Backends) > 0 {
			in.Pools = append(in.Pools, st)
		}
	}
	return in, nil
}

// state returns the state of the backends that have one.
func (p *pooled) state() PoolState {
	st := PoolState{Name: p.cfg.Name}
	for _, b := range p.Backends() {
		one := BackendState{Name: b.Name(), Down: !b.Healthy()}
		state, weight := b.Operator()
		if state != nil {
			text := state.String()
			one.State = &text
		}
		if one.Weight = weight; one.Down || one.State != nil || one.Weight != nil {
			st.Backends = append(st.Backends, one)
		}
	}
	return st
}

// Prepared closes the UDP sockets that were inherited for addresses that the configuration does not have, and returns these: the other
// process goes on to read them.
func Prepared(s *Set) []netip.AddrPort {
	if s.udp == nil {
		return nil
	}
	return s.udp.Prepared()
}

// Take reads the inherited UDP sockets, and uses the inherited folders of caches, from now on.
func Take(s *Set) {
	takeDisks(s)
	if s.udp != nil {
		s.udp.Take()
	}
}

// HoldAccept stops accepting, or goes on. Connections wait in the kernel meanwhile, and those that are open go on. UDP sockets are left to
// the other process, but for those at the addresses that it has left, and so are the folders of caches.
func HoldAccept(s *Set, hold bool, left []netip.AddrPort) {
	holdDisks(s, hold)
	if s.udp != nil {
		s.udp.Hold(hold, left)
	}
	for _, l := range s.loops {
		if l.kernel != nil {
			s.on(l, func() { l.kernel.HoldAccept(hold) })
		}
	}
}

// Give leaves the sockets, and the rotation of the access log, to the other process for good.
func Give(s *Set) {
	if l := s.log.Load(); l != nil {
		l.StopRotating()
	}
	if s.udp != nil {
		s.udp.Give()
	}
}

// Await returns when every loop has run, or ended.
func Await(s *Set) {
	for _, l := range s.loops {
		s.on(l, func() {})
	}
}

// DrainFor sets how long Shutdown waits for connections, in place of the drain times of the listeners; 0 leaves these. Connections of
// HTTP/1.1 without a request wait as long for one, with whose response the client learns that it is the last: the other process has the
// sockets, and nothing is to be freed soon.
func DrainFor(s *Set, d time.Duration) {
	s.drainBy.most.Store(int64(d))
	grace := s.ShutdownLimit() - closeTime - idleMargin
	for _, l := range s.loops {
		s.on(l, func() { l.worker.IdleGrace = grace })
	}
}

// idleMargin is the time that idle connections end ahead of the drain time, so that their end is not that of the process.
const idleMargin = time.Second

// Hurry bounds what is left of DrainFor by the drain times of the listeners, from now on.
func Hurry(s *Set) { s.drainBy.limit(drainTime(s)) }

// drainBy is the end of the drain time.
type drainBy struct {
	most atomic.Int64 // nanoseconds in place of those of listeners; 0 is none
	end  atomic.Pointer[time.Time]
}

func (d *drainBy) begin(most time.Duration) { d.limit(most) }

// limit moves the end to the time after which d is over, unless it is before that.
func (d *drainBy) limit(after time.Duration) {
	end := time.Now().Add(after)
	for {
		old := d.end.Load()
		if old != nil && old.Before(end) || d.end.CompareAndSwap(old, &end) {
			return
		}
	}
}

func (d *drainBy) get() time.Time { return *d.end.Load() }
