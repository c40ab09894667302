package shim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/programsocket"
	"github.com/millrace/millrace/socket"
)

// Config is the configuration of a Server. Stack and Path are required.
type Config struct {
	Stack *socket.Stack
	Path  string // of the control socket, a SOCK_SEQPACKET socket
	Name  string // of the stack, for programs that ask

	// Groups are those whose members may use the stack, besides uid 0 and the node's own user. Everyone permits all.
	Groups   []uint32
	Everyone bool

	// PrivilegedPorts permits every user to bind ports below 1024. Otherwise only uid 0 and the node's own may.
	PrivilegedPorts bool

	// Lookup returns the addresses of a host name. Nil: names are not resolved (ENOSYS).
	Lookup func(ctx context.Context, name string) ([]netip.Addr, error)

	// ThroughLoop makes connections between two programs of the stack TCP through its loop, as all others are. Otherwise
	// most are AF_UNIX pairs, which no capture sees.
	ThroughLoop bool

	// Service returns the name of the node's own service that has a local address and port, "" for none. An unspecified address
	// is all. A program that cannot bind there reports it. Nil: the node has no services.
	Service func(local netip.AddrPort) string

	Limits Limits // of each user
}

// Limits bound what one user's programs have at once. 0 is the default. Uid 0 and the node's own user have none of these
// limits, but some of the process's descriptors are kept for others.
type Limits struct {
	Sockets  int // registered sockets and connections, default 16384
	Channels int // control channels, default 1024
	Backlog  int // the most of listen(2), default 4096
	Connects int // connections begun in one second, default 10000
	Rings    int // connections with rings, default 4096; each takes 256 KiB when it is used
	Lookups  int // host names resolved at the same time, default 32

	// Descriptors are those of the node that channels, sockets and connections take, one each. The default is half of what the
	// process may have (RLIMIT_NOFILE).
	Descriptors int
}

// complete returns the limits with their defaults.
func (l Limits) complete() Limits {
	return Limits{
		Sockets: cmp.Or(l.Sockets, 16384), Channels: cmp.Or(l.Channels, 1024), Backlog: cmp.Or(l.Backlog, 4096),
		Connects: cmp.Or(l.Connects, 10000), Lookups: cmp.Or(l.Lookups, 32),
		Rings: cmp.Or(l.Rings, 4096), Descriptors: l.Descriptors,
	}
}

// Server serves programs that use the sockets of a stack by the preloaded library. New returns one that runs.
type Server struct {
	cfg     Config
	control *net.UnixListener
	chroot  *net.UnixListener // the same by an abstract name, for programs that have changed their root directory; mu guards it
	private *registrar
	watch   *watcher
	pairs   *pairs
	scratch [][]byte // of each loop, for bytes that are dropped
	batches []*batch // of each loop, for datagrams
	pollers []*ringPoller
	queues  []*fairQueue // of each loop
	later   []loopQueues // of each loop
	process uint32       // which run of a node this is, in names
	secret  []byte       // see openSecret

	mayBindLowPorts func(c *channel) bool // a test takes the rights of root away

	notice int // the descriptor of sendNotice

	mostFiles atomic.Int64 // descriptors that programs may have
	files     atomic.Int64 // of these, those that they have

	stats    counters
	nextLoop atomic.Uint32  // of a channel
	work     sync.WaitGroup // goroutines that Close waits for
	ctx      context.Context
	cancel   context.CancelFunc

	reopened sync.Mutex // of options in ended; mu may be taken after it

	mu       sync.Mutex // a leaf, but for sock.mu
	gone     sync.Cond  // of mu: a socket has left all
	closed   bool
	users    map[uint32]*user
	sockets  map[uint64]*sock   // by cookie of the program's end, while the node has the other
	all      map[*sock]struct{} // until what they had is free
	channels map[*channel]struct{}
	ended    errorTable

	listeners map[*socket.Listener]*listener    // of programs, for connections of others on the same stack
	ports     map[uint16]map[*listener]struct{} // the same by port
	bound     map[uint16]map[*sock]struct{}     // sockets that have reserved a port, until it is free
	leaving   map[uint64]*sock                  // of bound, by cookie: those that are no longer in sockets
}

// New listens at cfg.Path and serves until Close.
func New(cfg Config) (*Server, error) {
	if cfg.Stack == nil || cfg.Path == "" {
		return nil, errors.New("shim: Stack and Path are required")
	}
	cfg.Limits = cfg.Limits.complete()
	s := &Server{
		cfg: cfg, process: newInstance(), mayBindLowPorts: (*channel).mayBindLow,
		users: map[uint32]*user{}, sockets: map[uint64]*sock{}, all: map[*sock]struct{}{}, channels: map[*channel]struct{}{},
		listeners: map[*socket.Listener]*listener{}, ports: map[uint16]map[*listener]struct{}{}, bound: map[uint16]map[*sock]struct{}{}, leaving: map[uint64]*sock{}, notice: -1,
	}
	s.gone.L = &s.mu
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.batches = make([]*batch, cfg.Stack.LoopCount())
	s.later = make([]loopQueues, cfg.Stack.LoopCount())
	s.pollers = make([]*ringPoller, cfg.Stack.LoopCount())
	s.queues = make([]*fairQueue, cfg.Stack.LoopCount())
	for range cfg.Stack.LoopCount() {
		s.scratch = append(s.scratch, make([]byte, scratchSize))
	}
	if err := s.open(); err != nil {
		return nil, fmt.Errorf("shim: %w", errors.Join(err, s.Close()))
	}
	s.work.Go(s.watch.run)
	s.work.Go(func() { s.accept(s.control) })
	s.work.Go(s.acceptAbstract)
	s.work.Go(s.pairs.watch.run)
	s.work.Go(func() { s.pairs.run(s.ctx) })
	return s, nil
}

func (s *Server) open() (err error) {
	if err = s.limitFiles(); err != nil {
		return err
	}
	if s.notice, err = newNotice(); err != nil {
		return err
	}
	if s.watch, err = newWatcher(); err != nil {
		return err
	}
	if s.pairs, err = newPairs(!s.cfg.ThroughLoop); err != nil {
		return err
	}
	if s.private, err = newRegistrar(); err != nil {
		return err
	}
	if s.control, err = programsocket.Listen(s.cfg.Path, "programs"); err != nil {
		return err
	}
	s.secret = openSecret(s.cfg.Path + ".key") // no other node has the path
	if err = s.listenAbstract(); errors.Is(err, syscall.EADDRINUSE) {
		return nil // any user may take such a name, and must not keep the node from starting: see acceptAbstract
	}
	return err
}

func (s *Server) listenAbstract() error {
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: "@" + s.cfg.Path, Net: "unixpacket"})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errors.Join(net.ErrClosed, l.Close())
	}
	s.chroot = l
	return nil
}

// acceptAbstract serves the abstract name, as soon as no other process has it. Programs do not trust who has (SO_PEERCRED).
func (s *Server) acceptAbstract() {
	for {
		s.mu.Lock()
		l := s.chroot
		s.mu.Unlock()
		if l != nil {
			s.accept(l)
			return
		}
		select {
		case <-s.ctx.Done():
			return
		case <-time.After(namePause):
			_ = s.listenAbstract() // later, then
		}
	}
}

// namePause is the interval at which acceptAbstract checks whether the name is free.
const namePause = time.Second

// accept takes control channels until the listener is closed.
func (s *Server) accept(l *net.UnixListener) {
	programsocket.Accept(l, func(c *net.UnixConn) {
		if ch := s.newChannel(c); ch != nil {
			s.work.Go(ch.serve)
		}
	})
}

// Close ends all channels and sockets. What programs have written and the stack has not taken is lost, and they get
// ECONNRESET; connections of the stack are reset. It waits until nothing of the stack is in use, but not for files of programs
// whose close takes long. It may be called twice.
func (s *Server) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	var open []*channel
	listeners := []*net.UnixListener{s.control, s.chroot}
	for c := range s.channels {
		open = append(open, c)
	}
	s.mu.Unlock()
	s.cancel()
	var errs []error
	for _, l := range listeners {
		if l != nil {
			errs = append(errs, l.Close())
		}
	}
	for _, c := range open {
		c.hangUp()
	}
	s.releaseAll()
	if s.watch != nil {
		errs = append(errs, s.watch.close())
	}
	if s.pairs != nil {
		errs = append(errs, s.pairs.watch.close())
	}
	s.work.Wait()
	s.releaseAll() // what channels have registered meanwhile
	s.awaitAll()
	s.awaitChannels()
	if s.private != nil {
		errs = append(errs, s.private.close())
	}
	if s.notice >= 0 {
		errs = append(errs, unix.Close(s.notice))
	}
	return errors.Join(errs...)
}

// awaitAll waits until what sockets had in the stack is free.
func (s *Server) awaitAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.all) > 0 {
		s.gone.Wait()
	}
}

// channelsTime is the time that Close waits for channels whose descriptors take long to close.
const channelsTime = time.Second

// awaitChannels waits until channels are closed, but not for long.
func (s *Server) awaitChannels() {
	for end := time.Now().Add(channelsTime); time.Now().Before(end); time.Sleep(time.Millisecond) {
		s.mu.Lock()
		n := len(s.channels)
		s.mu.Unlock()
		if n == 0 {
			return
		}
	}
}

// unique returns a number for an abstract name that no other name of the machine has.
func unique() uint64 { return rand.Uint64() }
