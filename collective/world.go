package collective

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/collective/link"
)

// world holds what all communicators of a Connect share: the links to all ranks, and the state of failure.
type world struct {
	cfg        Config
	generation uint32
	shrinking  bool     // ranks may be missing; their numbers change with the table
	hosts      []string // of the ranks
	addresses  [][]string
	links      []link.Link // by rank; nil for this one
	control    *frameConn
	costs      Costs
	coord      *coordinator // of the lowest rank; nil in others
	listeners  []net.Listener
	incoming   chan arrival

	failed   chan struct{} // is closed with failure
	done     chan struct{} // is closed by Close
	listened chan struct{} // is closed when control has ended

	mu      sync.Mutex
	failure *Error
	leaving bool
	joined  map[uint32]bool // ranks that are connected to this one as coordinator
	comms   map[uint64]*Comm
	active  map[*activity]struct{}
	waiting map[operation]chan struct{}
}

// arrival is a connection that has proved its key.
type arrival struct {
	hello
	conn net.Conn
}

// activity is an operation under way.
type activity struct {
	comm     *Comm
	what     call
	waits    atomic.Int32 // rank of Connect; -1 is none
	progress atomic.Uint64

	seen  uint64 // progress at since: of the watch
	since time.Time
}

// Connect joins the group. It returns when all ranks are connected to each other, on all of them.
func Connect(ctx context.Context, cfg Config) (*Comm, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, cfg.Timeout, fmt.Errorf("collective: not all of %d ranks have come within %v", cfg.Size, cfg.Timeout))
	defer cancel()
	host, _, _ := net.SplitHostPort(cfg.Address) // was checked, or is the transport's
	if cfg.Rank > 0 {
		host = "" // the address by which this rank reaches the coordinator
	}
	w, err := prepare(ctx, cfg, 0, host)
	if err != nil {
		return nil, err
	}
	return w.connect(ctx, cfg.Address)
}

// connect joins the ranks: rank 0 listens on an address, where the others connect.
func (w *world) connect(ctx context.Context, address string) (*Comm, error) {
	err := w.establish(ctx, address)
	if err == nil {
		c := w.root()
		if w.cfg.Size == 1 || w.cfg.NoMeasure || w.cfg.Deterministic {
			return c, nil
		}
		if err = c.measure(); err == nil {
			return c, nil
		}
	}
	w.shut()
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w (%w)", cause, err)
	}
	return nil, err
}

// prepare makes the state of a rank, with a listener for each rail, or one on host if it is not empty.
func prepare(ctx context.Context, cfg Config, generation uint32, host string) (*world, error) {
	w := &world{
		cfg: cfg, costs: fixedCosts, generation: generation, incoming: make(chan arrival, cfg.Size),
		failed: make(chan struct{}), done: make(chan struct{}), listened: make(chan struct{}),
		joined: map[uint32]bool{}, comms: map[uint64]*Comm{}, active: map[*activity]struct{}{}, waiting: map[operation]chan struct{}{},
	}
	rails := cfg.Rails
	if len(rails) == 0 && host != "" {
		rails = []string{host}
	}
	if err := w.listenRails(ctx, rails); err != nil {
		w.shut()
		return nil, err
	}
	return w, nil
}

// listenRails listens on each of some addresses of this machine.
func (w *world) listenRails(ctx context.Context, rails []string) error {
	for _, rail := range rails {
		l, err := w.cfg.Transport.Listen(ctx, net.JoinHostPort(rail, "0"))
		if err != nil {
			return fmt.Errorf("collective: rail %s: %w", rail, err)
		}
		w.serve(l)
	}
	return nil
}

// serve takes connections of a listener, until shut.
func (w *world) serve(l net.Listener) {
	w.mu.Lock()
	w.listeners = append(w.listeners, l)
	if w.leaving {
		_ = l.Close() // shut has come first
	}
	w.mu.Unlock()
	go w.accept(l)
}

// dialUntil dials until something listens.
func (w *world) dialUntil(ctx context.Context, address string) (net.Conn, error) {
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, 250*time.Millisecond) {
		conn, err := w.cfg.Transport.Dial(ctx, address)
		if err == nil {
			return conn, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: nothing listens on %s (%w)", context.Cause(ctx), address, err)
		case <-time.After(wait):
		}
	}
}

// dial connects to a rank's listener and proves the key.
func (w *world) dial(ctx context.Context, address string, h hello) (net.Conn, error) {
	conn, err := w.dialUntil(ctx, address)
	if err != nil {
		return nil, err
	}
	if w.cfg.TLS != nil {
		cfg := w.cfg.TLS.Clone()
		if host, _, err := net.SplitHostPort(address); err == nil && cfg.ServerName == "" {
			cfg.ServerName = host
		}
		conn = tls.Client(conn, cfg)
	}
	h.rank, h.size, h.generation = uint32(w.cfg.Rank), uint32(w.cfg.Size), w.generation
	if err := greet(conn, h, w.cfg.Key); err != nil {
		conn.Close()
		return nil, fmt.Errorf("collective: %s: %w", address, err)
	}
	return conn, nil
}

// accept takes connections of other ranks until the listener is closed.
func (w *world) accept(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			if w.cfg.TLS != nil {
				conn = tls.Server(conn, w.cfg.TLS)
			}
			h, err := welcome(conn, w.cfg.Key, w.admit)
			if err != nil {
				conn.Close()
				return
			}
			select {
			case w.incoming <- arrival{h, conn}:
			case <-w.done:
				conn.Close()
			case <-w.failed:
				conn.Close()
			}
		}()
	}
}

// admit decides about a connection whose other end has the key.
func (w *world) admit(h *hello) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case h.generation != w.generation:
		return fmt.Errorf("generation %d, this rank is in %d", h.generation, w.generation)
	case h.size != uint32(w.cfg.Size) && !w.shrinking:
		return fmt.Errorf("rank %d is of a group of %d ranks, this one of %d: start all with the same Size", h.rank, h.size, w.cfg.Size)
	case h.rank >= h.size || h.size > MaxSize:
		return fmt.Errorf("rank %d of %d", h.rank, h.size)
	case h.purpose == purposeData && h.rail >= uint32(w.rails()):
		return fmt.Errorf("rail %d of rank %d: start all with as many Rails", h.rail, h.rank)
	}
	if h.purpose == purposeJoin {
		if w.joined[h.rank] || h.rank == uint32(w.cfg.Rank) {
			return fmt.Errorf("there is a rank %d already: give each process its own Rank", h.rank)
		}
		w.joined[h.rank] = true
	}
	return nil
}

// rails returns the number of connections to each rank.
func (w *world) rails() int { return max(len(w.cfg.Rails), 1) }

// hostIdentity is the same for processes that share a machine and its loopback interface.
func hostIdentity() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		name, _ := os.Hostname() // an empty name only makes ranks look alike, which changes costs, not results
		return name
	}
	ns, _ := os.Readlink("/proc/self/ns/net") // as above
	return strings.TrimSpace(string(boot)) + ns
}

// self describes this rank to the others.
func (w *world) self() joinFrame {
	f := joinFrame{Host: hostIdentity()}
	for _, l := range w.listeners[:w.rails()] {
		f.Addresses = append(f.Addresses, l.Addr().String())
	}
	return f
}

// establish connects all ranks by the coordinator, which is rank 0 and listens on an address.
func (w *world) establish(ctx context.Context, address string) (err error) {
	stop := context.AfterFunc(ctx, w.shut) // ends reads without a deadline
	defer stop()
	early := map[[2]uint32]net.Conn{}
	if w.cfg.Rank == 0 {
		rendezvous, err := w.cfg.Transport.Listen(ctx, address)
		if err != nil {
			return fmt.Errorf("collective: rank 0 cannot listen: %w (another process may have the port: choose another Address for all ranks)", err)
		}
		w.serve(rendezvous)
		if err := w.gather(ctx, early); err != nil {
			return err
		}
	} else {
		err = w.join(ctx, address)
	}
	if err != nil {
		return err
	}
	var table tableFrame
	if err := w.control.expect(frameTable, &table); err != nil {
		return err
	}
	if err := w.learn(&table); err != nil {
		return err
	}
	if err := w.mesh(ctx, early); err != nil {
		return err
	}
	if err := w.control.write(frameReady, struct{}{}); err != nil {
		return err
	}
	if err := w.control.expect(frameGo, nil); err != nil {
		return err
	}
	if !stop() {
		return context.Cause(ctx)
	}
	go w.listen()
	go w.watch()
	return nil
}

func (w *world) learn(t *tableFrame) error {
	place := slices.Index(t.Ranks, w.cfg.Rank)
	if len(t.Members) != len(t.Ranks) || place < 0 || !w.shrinking && len(t.Members) != w.cfg.Size {
		return fmt.Errorf("collective: the coordinator names ranks %v of %d", t.Ranks, w.cfg.Size)
	}
	w.mu.Lock()
	w.cfg.Rank, w.cfg.Size = place, len(t.Ranks)
	w.mu.Unlock()
	for _, m := range t.Members {
		if len(m.Addresses) != w.rails() {
			return fmt.Errorf("%w: a rank has %d rails, this one %d: name as many for all", ErrConfig, len(m.Addresses), w.rails())
		}
		w.hosts = append(w.hosts, m.Host)
		w.addresses = append(w.addresses, m.Addresses)
	}
	return nil
}

// join connects to the coordinator.
func (w *world) join(ctx context.Context, address string) error {
	conn, err := w.dial(ctx, address, hello{purpose: purposeJoin})
	for w.shrinking && err != nil && ctx.Err() == nil { // the coordinator has not called Shrink yet
		time.Sleep(20 * time.Millisecond)
		conn, err = w.dial(ctx, address, hello{purpose: purposeJoin})
	}
	if err != nil {
		return err
	}
	w.setControl(conn)
	if len(w.listeners) == 0 { // without rails: the address by which this rank reaches the coordinator
		host, _, err := net.SplitHostPort(conn.LocalAddr().String())
		if err == nil {
			err = w.listenRails(ctx, []string{host})
		}
		if err != nil {
			return err
		}
	}
	return w.control.write(frameJoin, w.self())
}

// setControl sets the connection to the coordinator.
func (w *world) setControl(conn net.Conn) {
	w.mu.Lock()
	w.control = &frameConn{conn: conn}
	w.mu.Unlock()
}

// gather waits for all other ranks and starts the coordinator.
func (w *world) gather(ctx context.Context, early map[[2]uint32]net.Conn) error {
	conns := make([]*frameConn, w.cfg.Size)
	mine, theirs := net.Pipe()
	w.setControl(mine)
	conns[w.cfg.Rank] = &frameConn{conn: theirs}
	go func() { _ = w.control.write(frameJoin, w.self()) }() // net.Pipe has no buffer
	var patience <-chan time.Time                            // forever
	if w.shrinking {
		patience = time.After(w.patience())
	}
	for missing := w.cfg.Size - 1; missing > 0; {
		select {
		case <-patience:
			missing = 0
		case a := <-w.incoming:
			if a.purpose == purposeData { // of a rank that was faster
				early[[2]uint32{a.rank, a.rail}] = a.conn
				continue
			}
			conns[a.rank] = &frameConn{conn: a.conn}
			missing--
		case <-ctx.Done():
			var absent []int
			for r, c := range conns {
				if c == nil {
					absent = append(absent, r)
				}
			}
			return fmt.Errorf("%w: ranks %s are missing", context.Cause(ctx), numbers(absent))
		}
	}
	var table tableFrame
	deadline, _ := ctx.Deadline()
	for r, c := range conns {
		if c == nil {
			continue
		}
		var f joinFrame
		_ = c.conn.SetReadDeadline(deadline) // it fails for closed ones, whose read fails too
		if err := c.expect(frameJoin, &f); err != nil {
			return fmt.Errorf("collective: rank %d: %w", r, err)
		}
		table.Members, table.Ranks = append(table.Members, f), append(table.Ranks, r)
	}
	conns = slices.DeleteFunc(conns, func(c *frameConn) bool { return c == nil })
	go w.begin(conns, &table)
	return nil
}

// begin sends the table to all ranks, waits until they are connected, and serves them. Where that fails it closes their connections,
// which ends Connect for all.
func (w *world) begin(conns []*frameConn, table *tableFrame) {
	each := func(do func(c *frameConn) error) (err error) {
		for r, c := range conns {
			if err = do(c); err != nil {
				e := &Error{Kind: Died, Ranks: []int{r}, Reason: fmt.Sprintf("while ranks connected to each other: %v", err)}
				for _, c := range conns {
					_ = c.write(frameAbort, e) // the connection ends anyway
					_ = c.conn.Close()
				}
				return err
			}
		}
		return nil
	}
	if each(func(c *frameConn) error { return c.write(frameTable, table) }) != nil ||
		each(func(c *frameConn) error { return c.expect(frameReady, nil) }) != nil ||
		each(func(c *frameConn) error { return c.conn.SetReadDeadline(time.Time{}) }) != nil {
		return
	}
	w.coord = newCoordinator(conns, w.grace())
	_ = each(func(c *frameConn) error { return c.write(frameGo, struct{}{}) })
}

// mesh connects to the ranks below this one, and waits for those above it.
func (w *world) mesh(ctx context.Context, early map[[2]uint32]net.Conn) error {
	rails := w.rails()
	conns := make([][]net.Conn, w.cfg.Size)
	for r := range conns {
		conns[r] = make([]net.Conn, rails)
	}
	for r := range w.cfg.Rank {
		for rail := range rails {
			conn, err := w.dial(ctx, w.addresses[r][rail], hello{purpose: purposeData, rail: uint32(rail)})
			if err != nil {
				return err
			}
			conns[r][rail] = conn
		}
	}
	missing := (w.cfg.Size - 1 - w.cfg.Rank) * rails
	take := func(rank, rail uint32, conn net.Conn) {
		if int(rank) <= w.cfg.Rank || int(rank) >= w.cfg.Size || conns[rank][rail] != nil {
			conn.Close() // a rank of another generation, or one that dials twice
			return
		}
		conns[rank][rail] = conn
		missing--
	}
	for k, conn := range early {
		take(k[0], k[1], conn)
	}
	for missing > 0 {
		select {
		case a := <-w.incoming:
			if a.purpose != purposeData {
				a.conn.Close()
				continue
			}
			take(a.rank, a.rail, a.conn)
		case <-ctx.Done():
			return fmt.Errorf("%w: %d connections between ranks are missing", context.Cause(ctx), missing)
		}
	}
	links := make([]link.Link, w.cfg.Size)
	for r, c := range conns {
		switch {
		case r == w.cfg.Rank:
		case rails == 1:
			links[r] = link.NewSingle(c[0])
		default:
			for _, rail := range c {
				endSilentRail(rail, w.cfg.Timeout/4)
			}
			links[r] = link.NewStriped(c)
		}
	}
	w.mu.Lock()
	w.links = links
	w.mu.Unlock()
	return nil
}
