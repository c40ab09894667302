package program

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/millrace/millrace/internal/programsocket"
	"github.com/millrace/millrace/metrics"
	"github.com/millrace/millrace/rdma"
)

// Config is the configuration of a Server. Context and Path are required.
type Config struct {
	Context *rdma.Context
	Path    string // of the control socket

	// Groups are those whose members may use the context, besides uid 0 and the node's own user. Everyone permits all.
	Groups   []uint32
	Everyone bool

	Programs int // of one user at once, other than uid 0 and the node's own; 0 is 64
}

// Server serves programs. New returns one that runs.
type Server struct {
	cfg    Config
	l      *net.UnixListener
	work   sync.WaitGroup
	poller poller // guarded by the loop of the context
	ports  ports  // the same

	denied, violations atomic.Uint64

	mu       sync.Mutex
	closed   bool
	programs map[*program]struct{}
	users    map[uint32]int // programs
}

// New listens at cfg.Path and serves until Close.
func New(cfg Config) (*Server, error) {
	if cfg.Context == nil || cfg.Path == "" {
		return nil, errors.New("rdma/program: Context and Path are required")
	}
	cfg.Programs = cmp.Or(cfg.Programs, 64)
	s := &Server{cfg: cfg, ports: ports{}, programs: map[*program]struct{}{}, users: map[uint32]int{}}
	var err error
	if s.l, err = programsocket.Listen(cfg.Path, "RDMA programs"); err != nil {
		return nil, fmt.Errorf("rdma/program: %w", err)
	}
	h := cfg.Context.Enter()
	s.poller.held = h
	h.AddPoller(&s.poller)
	h.Exit()
	s.work.Go(s.accept)
	return s, nil
}

func (s *Server) accept() {
	programsocket.Accept(s.l, func(c *net.UnixConn) {
		if p := s.admit(c); p != nil {
			s.work.Go(p.serve)
			return
		}
		s.denied.Add(1)
		c.Close()
	})
}

// admit returns the program at the other end, nil if it may not use the context.
func (s *Server) admit(c *net.UnixConn) *program {
	cred, err := programsocket.Credentials(c)
	if err != nil {
		return nil
	}
	var groups []uint32
	if len(s.cfg.Groups) > 0 {
		groups = programsocket.Groups(c)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || !s.permits(cred.Uid, groups) {
		return nil
	}
	p := newProgram(s, c, cred)
	s.programs[p] = struct{}{}
	s.users[cred.Uid]++
	return p
}

// permits reports whether a user of groups may have one more program.
func (s *Server) permits(uid uint32, groups []uint32) bool {
	if uid == 0 || int(uid) == os.Geteuid() {
		return true
	}
	member := slices.ContainsFunc(groups, func(g uint32) bool { return slices.Contains(s.cfg.Groups, g) })
	return (member || s.cfg.Everyone) && s.users[uid] < s.cfg.Programs
}

// hasQP reports whether a program of a user has a queue pair. The holder of the loop calls it.
func (s *Server) hasQP(uid, number uint32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range s.programs {
		if _, ok := p.byQPN[number]; ok && p.cred.Uid == uid {
			return true
		}
	}
	return false
}

// leave forgets a program that has ended.
func (s *Server) leave(p *program) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.programs, p)
	if s.users[p.cred.Uid]--; s.users[p.cred.Uid] == 0 {
		delete(s.users, p.cred.Uid)
	}
}

// Close ends all programs: their connections to the node break, and what they have goes away. It may be called twice.
func (s *Server) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	for p := range s.programs {
		p.hangUp()
	}
	s.mu.Unlock()
	err := s.l.Close()
	s.work.Wait()
	return err
}

// Stats are the counters of a Server.
type Stats struct {
	Programs   int    // that are connected
	Denied     uint64 // connections that were refused
	Violations uint64 // programs that were ended because of what they wrote
}

// Stats returns the counters.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Stats{Programs: len(s.programs), Denied: s.denied.Load(), Violations: s.violations.Load()}
}

// WriteMetrics writes the counters.
func (s *Server) WriteMetrics(w *metrics.Writer) {
	st := s.Stats()
	addr := metrics.Label{Name: "address", Value: s.cfg.Context.Addr().String()}
	w.Gauge("millrace_rdma_programs", "Unmodified programs that are connected.", float64(st.Programs), addr)
	w.Counter("millrace_rdma_programs_denied_total", "Connections of programs that were refused.", st.Denied, addr)
	w.Counter("millrace_rdma_program_violations_total", "Programs that were ended because of what they wrote to shared memory or the channel.", st.Violations, addr)
}
