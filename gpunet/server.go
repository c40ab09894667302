package gpunet

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"

	"github.com/millrace/millrace/gpunet/queue"
	"github.com/millrace/millrace/ring"
	"github.com/millrace/millrace/socket"
)

// frame is the unit of the arena: the slab is one piece of it.
const frame = 4096

// Config describes a Server. Stack and Layout are required.
type Config struct {
	Stack  *socket.Stack
	Layout queue.Layout // at least one block for each loop of the stack
	Huge   ring.Huge
}

// Stats has the counters of a Server.
type Stats struct {
	Accepted   uint64 // connections given to a block
	Refused    uint64 // connections reset because no listening block had a free slot
	Reset      uint64 // connections that the peer or a time-out ended
	Violations uint64 // entries of a block that no correct kernel writes
	Exited     uint64 // blocks that ended, or destroyed their queue
}

// Server moves bytes between connections of a stack and thread blocks of a kernel. Each block belongs to one loop, with the
// connections that were accepted there.
type Server struct {
	stack *socket.Stack
	arena *ring.Arena
	loops []*loop
	stats struct{ accepted, refused, reset, violations, exited atomic.Uint64 }
	ports [1 << 16]atomic.Bool // that a listener of Serve has
}

// New makes the shared memory, and has the loops poll it.
func New(cfg Config) (*Server, error) {
	size, err := cfg.Layout.Size()
	if err != nil {
		return nil, err
	}
	n := cfg.Stack.LoopCount()
	if cfg.Layout.Blocks < n {
		return nil, fmt.Errorf("gpunet: %d blocks for %d loops: launch at least one block for each loop", cfg.Layout.Blocks, n)
	}
	s := &Server{stack: cfg.Stack, loops: make([]*loop, n)}
	s.arena, err = ring.NewArena(ring.ArenaConfig{Frames: (size + frame - 1) / frame, FrameSize: frame, Huge: cfg.Huge, Shared: true})
	if err != nil {
		return nil, err
	}
	blocks, err := queue.New(s.arena.Mem, cfg.Layout)
	if err != nil {
		return nil, errors.Join(err, s.arena.Close())
	}
	for i := range s.loops {
		s.loops[i] = &loop{s: s}
	}
	for i, b := range blocks {
		l := s.loops[i%n]
		l.blocks = append(l.blocks, &block{l: l, q: b, conns: make([]*conn, cfg.Layout.Connections)})
	}
	for i, l := range s.loops {
		cfg.Stack.EnterLoop(i, func(in socket.LoopStack) { in.AddPoller(l) })
	}
	return s, nil
}

// Slab returns the shared memory, for the launch. It is page-aligned.
func (s *Server) Slab() []byte { return s.arena.Mem }

// File returns the descriptor of the shared memory, for another process. Its size is sealed.
func (s *Server) File() int { return s.arena.File() }

// Serve assigns the connections of l to the blocks that listen on its port. The caller keeps l, and closes it.
func (s *Server) Serve(l *socket.Listener) error {
	addr, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		return fmt.Errorf("gpunet: %v is no address of TCP", l.Addr())
	}
	port := uint16(addr.Port)
	s.ports[port].Store(true)
	l.OnAccept(func(in socket.LoopConn) { s.loops[s.stack.LoopOf(in).Index()].accept(in, port) })
	return nil
}

// Stats returns the counters.
func (s *Server) Stats() Stats {
	return Stats{s.stats.accepted.Load(), s.stats.refused.Load(), s.stats.reset.Load(), s.stats.violations.Load(), s.stats.exited.Load()}
}

// Stop asks all blocks to end, and resets all connections. The kernel ends soon if it follows the protocol.
func (s *Server) Stop() {
	for i, l := range s.loops {
		s.stack.EnterLoop(i, func(socket.LoopStack) {
			for _, b := range l.blocks {
				b.stop()
			}
		})
	}
}

// Close ends the polling and unmaps the memory. The kernel must have ended before.
func (s *Server) Close() error {
	for i, l := range s.loops {
		s.stack.EnterLoop(i, func(socket.LoopStack) {
			for _, b := range l.blocks {
				b.abort()
			}
			l.blocks = nil
		})
	}
	return s.arena.Close()
}

// accept assigns a new connection to the listening block with the fewest.
func (l *loop) accept(in socket.LoopConn, port uint16) {
	var best *block
	for _, b := range l.blocks {
		if b.life == listening && b.port == port && (best == nil || b.q.Used() < best.q.Used()) {
			best = b
		}
	}
	if best == nil || !best.open(in) {
		l.s.stats.refused.Add(1)
		_ = in.Abort()
		return
	}
	l.s.stats.accepted.Add(1)
}

// remote returns the peer's address.
func remote(in socket.LoopConn) netip.AddrPort {
	if a, ok := in.Conn().RemoteAddr().(*net.TCPAddr); ok {
		return a.AddrPort()
	}
	return netip.AddrPort{}
}

// errnoOf returns the number of an error for the device, ECONNRESET for those without.
func errnoOf(err error) uint32 {
	if n, ok := socket.Errno(err); ok && n != 0 {
		return uint32(n)
	}
	return uint32(syscall.ECONNRESET)
}
