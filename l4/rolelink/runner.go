package rolelink

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/l4/role"
)

// Path is a pair of addresses that messages go between.
type Path struct{ Listen, Peer netip.AddrPort }

// Inherited holds the role of the process that this one replaces.
type Inherited struct {
	Saved role.Saved
	Files map[Path]*os.File // sockets of paths; Open uses them, and closes none
}

// Config configures a Runner. Its functions are called with a lock held, by any goroutine: they must neither block nor call the
// runner.
type Config struct {
	Role  role.Config // but for Incarnation
	Paths []Path      // the first one is that of the sync
	Key   []byte      // of the sync
	Now   func() clock.Time

	Inherited *Inherited // nil: this process replaces none

	Links    func() ([]Link, error)   // that are asked; called by a goroutine of its own, without the lock, and may block
	Addrs    func() []netip.Addr      // all addresses that this gateway answers for while it is active; as Links
	Able     func() (all, any bool)   // the devices have a link
	Streams  func() (up, synced bool) // a stream to or from the peer is up; all its connections are here
	Answers  func(until clock.Time)   // the data path may answer until then, 0: not at all
	Changed  func(Event)              // the state, or whether there are two active gateways
	Announce func()                   // the addresses
}

// Event is a change that is worth a line in the log.
type Event struct {
	role.Change
	Term     uint64
	Split    bool // a split brain begins, or ends with Healed
	Healed   bool
	HeldOff  bool // probing goes on: another host answers, or with Rivalled asks as well
	Rivalled bool
	By       string // whose link address that is
	Addrs    bool   // the addresses of both gateways are the same since now, or with Differ are not
	Differ   bool
}

// Runner is the role of this gateway. Its methods may be called from any goroutine.
type Runner struct {
	cfg   Config
	key   []byte
	paths []*path
	asker *asker

	resumed  chan struct{} // is closed by Resume; guarded by mu, nil while the runner is not suspended
	silent   atomic.Bool   // another process has the role: Run ends without a last message
	wake     chan struct{} // the time of the next Poll has changed
	probe    chan struct{} // has the asker send what wanted returns
	listens  atomic.Bool   // the machine needs to know what comes on the links
	watches  atomic.Bool   // addresses are watched
	probing  atomic.Bool   // and that all has been handled that has come
	changed  chan struct{} // the addresses have changed
	asks     atomic.Int64  // addresses of a probe
	rejected atomic.Uint64 // messages that are not authentic or malformed
	received atomic.Uint64
	sent     atomic.Uint64
	probes   atomic.Uint64

	mu      sync.Mutex // guards all below
	machine *role.Machine
	next    clock.Time
	seen    role.Picture // at the last report
	by      string       // link address of the last host that has answered
	rival   string       // and of the last that has asked as well
	asksNow bool         // for wanted: questions
	claim   role.Claim   // and the claim; its State is Joining without one
	ended   bool
	last    time.Time // of the last change
	splits  time.Time
}

// Open opens the sockets of all paths. Run serves them.
func Open(cfg Config) (*Runner, error) {
	r := &Runner{cfg: cfg, wake: make(chan struct{}, 1), probe: make(chan struct{}, 1), changed: make(chan struct{}, 1), last: time.Now()}
	var err error
	if r.key, err = role.Key(cfg.Key); err != nil {
		return nil, err
	}
	if _, err := rand.Read(cfg.Role.Incarnation[:]); err != nil {
		return nil, err
	}
	for _, p := range cfg.Paths {
		c := &path{Path: p, closed: make(chan struct{})}
		r.paths = append(r.paths, c)
		if err := r.openPath(c); err != nil && !absent(err) {
			return nil, errors.Join(fmt.Errorf("role: %w", err), r.Close())
		}
	}
	r.asker = newAsker(r)
	if cfg.Inherited != nil {
		r.machine = role.Restore(cfg.Role, &cfg.Inherited.Saved, cfg.Now())
	} else {
		r.machine = role.New(cfg.Role, cfg.Now())
	}
	r.seen = r.machine.Picture(cfg.Now())
	return r, nil
}

// openPath opens a path, with the socket of the other process if there is one.
func (r *Runner) openPath(p *path) error {
	if in := r.cfg.Inherited; in != nil && in.Files[p.Path] != nil {
		return p.adopt(in.Files[p.Path])
	}
	return p.open()
}

// Close closes the sockets of a Runner that does not run.
func (r *Runner) Close() error {
	var errs []error
	for _, p := range r.paths {
		errs = append(errs, p.close())
	}
	return errors.Join(errs...)
}

// Run exchanges messages until ctx ends. Its last message has the peer take this gateway for ended.
func (r *Runner) Run(ctx context.Context) {
	var all sync.WaitGroup
	for _, p := range r.paths {
		all.Go(func() { r.receive(p) })
	}
	asking, stop := context.WithCancel(ctx)
	all.Go(func() { r.asker.run(asking) })
	r.follow(ctx)
	r.mu.Lock()
	r.ended = true
	r.cfg.Answers(0)
	if !r.silent.Load() {
		r.send([]role.Message{r.machine.Farewell(r.cfg.Now())})
	}
	r.mu.Unlock()
	stop()
	_ = r.Close() // ends receive
	all.Wait()
}

// follow polls the machine when its time has come.
func (r *Runner) follow(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		r.mu.Lock()
		wait := r.next.Sub(r.cfg.Now())
		r.mu.Unlock()
		timer.Reset(max(wait, 0))
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
		case <-timer.C:
			r.awaitResume()
			r.do(nil)
		}
	}
}

// do changes the machine by f, lets time pass, and carries out what follows.
func (r *Runner) do(f func(m *role.Machine, now clock.Time)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended || r.resumed != nil {
		return
	}
	now := r.cfg.Now()
	_, synced := r.cfg.Streams()
	r.machine.SetSynced(now, synced)
	all, any := r.cfg.Able()
	r.machine.SetAble(now, all)
	r.machine.SetLinked(any)
	if f != nil {
		f(r.machine, now)
	}
	out := r.machine.Poll(now)
	r.cfg.Answers(r.machine.AnswersUntil()) // before the peer learns of it
	r.send(out.Messages)
	if out.Announce {
		r.cfg.Announce()
	}
	r.wantLinks(now, &out)
	if out.Next != r.next {
		r.next = out.Next
		signal(r.wake)
	}
	r.report(now)
}

// wantLinks has the asker send and read what the machine wants of the links.
func (r *Runner) wantLinks(now clock.Time, out *role.Output) {
	r.listens.Store(r.machine.Listens(now))
	r.probing.Store(r.machine.State() == role.Probing)
	if out.Claim.State != role.Joining {
		r.claim = out.Claim
	}
	if out.Probe || out.Claim.State != role.Joining {
		r.asksNow = r.asksNow || out.Probe
		signal(r.probe)
	}
}

// signal wakes the reader of a channel with room for one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // it is awake already
	}
}

// report compares the state with that of the last report.
func (r *Runner) report(now clock.Time) {
	p := r.machine.Picture(now)
	e := Event{Change: p.Last, Term: p.Term, By: r.by}
	if p.Changes != r.seen.Changes {
		r.last = time.Now()
		r.cfg.Changed(e)
	}
	if p.Split != r.seen.Split || p.Splits > r.seen.Splits {
		if p.Splits > r.seen.Splits {
			r.splits = time.Now()
			e.Split = true
			r.cfg.Changed(e)
		}
		if !p.Split {
			e.Split, e.Healed = true, true
			r.cfg.Changed(e)
		}
	}
	if p.Differ != r.seen.Differ {
		r.cfg.Changed(Event{Change: p.Last, Term: p.Term, Addrs: true, Differ: p.Differ})
	}
	if p.HeldOff && (!r.seen.HeldOff || p.Rivalled != r.seen.Rivalled) {
		r.cfg.Changed(Event{Change: p.Last, Term: p.Term, HeldOff: true, Rivalled: p.Rivalled, By: r.host(&p)})
	}
	r.seen = p
}

// host returns the link address of the host that a state is due to.
func (r *Runner) host(p *role.Picture) string {
	if p.Rivalled {
		return r.rival
	}
	return r.by
}

// send sends messages over all paths. One that has no way at present is lost, as in the network.
func (r *Runner) send(list []role.Message) {
	for i := range list {
		b := list[i].Append(make([]byte, 0, role.MaxMessage), r.key)
		for _, p := range r.paths {
			p.send(b)
		}
		r.sent.Add(1)
	}
}

// StreamChanged is called when a stream of the sync comes up or breaks: the peer may have ended.
func (r *Runner) StreamChanged() {
	r.do(func(m *role.Machine, now clock.Time) { m.Ask(now) })
}

// LinkChanged is called when a device has lost its link, or has it again.
func (r *Runner) LinkChanged() { r.do(nil) }

// Configure changes priority and preemption.
func (r *Runner) Configure(c role.Config) {
	r.do(func(m *role.Machine, _ clock.Time) { m.Configure(c) })
}

// AddrsChanged is called when the addresses of this gateway may have changed.
func (r *Runner) AddrsChanged() { signal(r.changed) }

// Order has this gateway be the active one, or the peer.
func (r *Runner) Order(active bool) (err error) {
	r.do(func(m *role.Machine, now clock.Time) {
		if active {
			err = m.ToActive(now)
		} else {
			err = m.ToStandby(now)
		}
	})
	return err
}

// Leave leaves the addresses to the peer, at the end of the process, and waits until it has them, for a lease at most.
func (r *Runner) Leave() {
	leaves := false
	r.do(func(m *role.Machine, now clock.Time) { leaves = m.Leave(now) })
	for end := time.Now().Add(min(r.cfg.Role.Lease, leaveLimit)); leaves && time.Now().Before(end); time.Sleep(leavePause) {
		if r.State() != role.Yielding {
			return
		}
	}
}

// Limits of a process that ends: the node lets its services have 5 s.
const (
	leaveLimit = 2 * time.Second
	leavePause = 2 * time.Millisecond
)

// State returns the state.
func (r *Runner) State() role.State {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.machine.State()
}
