package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/gateway/health"
	"github.com/millrace/millrace/gateway/resolve"
	"github.com/millrace/millrace/l7/accesslog"
	"github.com/millrace/millrace/l7/pool"
	"github.com/millrace/millrace/l7/proxy"
	"github.com/millrace/millrace/l7/quicconn"
	"github.com/millrace/millrace/l7/topk"
	"github.com/millrace/millrace/l7/transport"
	"github.com/millrace/millrace/l7/waf"
	"github.com/millrace/millrace/stack"
	"github.com/millrace/millrace/stack/host"
	"github.com/millrace/millrace/tls"
)

// Options hold settings that are not in the configuration.
type Options struct {
	Log     *slog.Logger     // required
	Version string           // of the program, for spans; may be empty
	OnEvent func(pool.Event) // is called with changes of backends, from any goroutine; nil is none
	Loops   []Loop           // with `stack: devices`: those of the stack; without, the kernel's sockets have loops of their own
	QUIC    quicconn.Opener  // with Loops: opens UDP sockets of the stack

	// OnRefused returns what is called with the client of each request that a worker refuses, on its goroutine; nil: nothing.
	// It is called once for each worker.
	OnRefused func() func(client netip.Addr, r proxy.Refusal, n int)

	// Inspect returns what inspects the requests of each worker, and Policy the number of a policy by its name; nil where listeners are not
	// inspected. FieldNames returns the names of fields that rules of a policy look for.
	Inspect    func(workers int) []proxy.Inspector
	Policy     func(name string) uint8
	FieldNames func(policy string) []string

	// Firewall reads rules of web application firewalls; nil: the program has no engine for them, and configurations with such rules are
	// refused.
	Firewall waf.Compiler

	Inherited *Inherited // from the process that this one replaces; nil: it replaces none
}

// Set is the workers of a configuration. Its methods may be called from any goroutine.
type Set struct {
	opt     Options
	loops   []*loop
	files   *transport.Descriptors // of kernel sockets, nil where a stack has them
	static  *transport.Descriptors // of files for responses: the same, or theirs alone
	drainBy drainBy
	udp     *quicconn.Sockets // nil where a stack has them
	checks  *health.Checker
	wake    chan struct{}                 // the checker has something
	scripts chan scriptLine               // what scripts write for the log
	log     atomic.Pointer[accesslog.Log] // nil: none
	tops    topk.Collections

	recording sync.Mutex // guards what workers are asked to record

	endpoints proxy.Endpoints // of HTTP/3

	ending sync.Once
	stop   context.CancelFunc // of what runs beside the loops
	ctx    context.Context

	mu         sync.Mutex // guards all below; never taken by a loop
	cfg        *config.Config
	tree       *proxy.Tree
	pools      map[string]*pooled
	order      []*pooled // of the configuration
	served     map[string]*servedTLS
	routes     map[string]*proxy.Route
	admissions map[string]*proxy.Admission // of listeners
	guards     guards
	caches     Caches
	disks      map[string]*cacheDisk // by folder
	traces     traces
	firewalls  firewalls
	tunnels    tunnelCounts
	sessions   sessionCounts

	authorities map[string]*authority // of ACME, by their folders
	warned      map[string]time.Time  // of certificates that expire
	probes      pool.Probes

	names   *resolve.Watcher // of backends
	leaving drains           // of backends that the configuration has no more

	staplers sync.WaitGroup // of OCSP responses
}

// Loop is a loop that workers run on.
type Loop struct {
	transport.Loop
	kernel *transport.EpollLoop // nil of a userspace stack
	run    func(context.Context) error
	close  func() error
	hold   func(f func()) // calls f while the loop stands still: before it runs
}

// StackLoop returns the part of a host on one of its loops, which something else runs.
func StackLoop(h *host.Host) Loop {
	l := transport.NewStackLoop(h)
	done := make(chan struct{})
	var once sync.Once
	return Loop{
		Loop: l, hold: l.Hold,
		run:   func(context.Context) error { <-done; return nil },
		close: func() error { once.Do(func() { close(done) }); return l.Close() },
	}
}

// epollLoop returns a loop over the kernel's sockets.
func epollLoop(files *transport.Descriptors) (Loop, error) {
	l, err := transport.NewEpollLoop()
	if err != nil {
		return Loop{}, err
	}
	l.Descriptors = files
	return Loop{Loop: l, kernel: l, run: l.Run, close: l.Close, hold: func(f func()) { f() }}, nil
}

// loop is a loop with its worker.
type loop struct {
	Loop
	worker *proxy.Worker
	lines  accesslog.Lines
}

// renewEvery is the interval at which files of certificates are looked at: one that was renewed is used without a reload.
const renewEvery = time.Minute

// Open opens the loops and the listeners of a configuration. Connections wait until Run.
func Open(cfg *config.Config, opt Options) (*Set, error) {
	s := &Set{
		opt: opt, wake: make(chan struct{}, 1), scripts: make(chan scriptLine, maxScriptLines), pools: map[string]*pooled{}, served: map[string]*servedTLS{},
		leaving: drains{timers: map[*pool.Backend]*time.Timer{}},
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.tops.OnChange(func() { record(s) })
	s.names = resolve.NewWatcher(s.nameChanged, nil)
	s.checks = health.NewChecker(health.Options{Notify: func() {
		select {
		case s.wake <- struct{}{}:
		default: // it is awake already, and takes all there is
		}
	}})
	if err := s.open(cfg); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Set) open(cfg *config.Config) error {
	if err := s.openLoops(cfg); err != nil {
		return err
	}
	inherited, err := inheritSockets(s)
	if err != nil {
		return err
	}
	defer inherited.Close()
	s.watchNames(cfg)
	s.mu.Lock()
	defer s.mu.Unlock()
	next, err := s.plan(cfg)
	if err != nil {
		return err
	}
	release, err := s.endpoints.Reserve(next.tree)
	if err != nil {
		return errors.Join(err, next.drop(s))
	}
	defer release()
	for _, l := range s.loops { // which nothing runs yet
		var err error
		if l.hold(func() { err = l.worker.Apply(next.tree) }); err != nil {
			return errors.Join(err, next.drop(s))
		}
	}
	for i := range cfg.Listeners {
		l := &cfg.Listeners[i]
		s.opt.Log.Info("listener", "name", l.Name, "protocol", string(l.Protocol), "address", fmt.Sprint(l.Addresses), "loops", len(s.loops))
	}
	return errors.Join(s.use(next), restorePools(s))
}

// openLoops opens a loop for each worker, or takes those of the stack.
func (s *Set) openLoops(cfg *config.Config) error {
	loops := s.opt.Loops
	if s.endpoints.Open = s.opt.QUIC; s.opt.Loops == nil {
		var err error
		if s.udp, err = openUDP(s.opt.Inherited); err != nil {
			return err
		}
		s.endpoints.Open, s.endpoints.Config = s.udp.Open, s.udp.Config()
	}
	n := cfg.ProxyLoops
	if n == config.LoopsAuto {
		n = runtime.GOMAXPROCS(0)
	}
	if loops == nil {
		var err error
		if s.files, err = transport.NewDescriptors(); err != nil {
			return err
		}
		s.static = s.files
	} else if d, err := transport.NewDescriptors(); err == nil { // without /proc there is no bound
		s.static = d
	}
	for i := 0; loops == nil && i < n; i++ {
		l, err := epollLoop(s.files)
		if err != nil {
			return err
		}
		s.loops = append(s.loops, &loop{Loop: l})
	}
	for _, l := range loops {
		s.loops = append(s.loops, &loop{Loop: l})
	}
	var inspectors []proxy.Inspector
	if s.opt.Inspect != nil {
		inspectors = s.opt.Inspect(len(s.loops))
	}
	for i, l := range s.loops {
		l.hold(func() { l.worker = proxy.NewWorker(l.Loop.Loop, i) })
		if inspectors != nil {
			l.worker.Inspect(inspectors[i])
		}
		l.worker.OnRecord(recorder(s, i))
		l.worker.Share(&s.endpoints)
		if s.opt.OnRefused != nil {
			l.worker.OnRefused(s.opt.OnRefused())
		}
	}
	return nil
}

// Run runs the loops until Shutdown has ended them.
func (s *Set) Run() error {
	var all sync.WaitGroup
	errs := make([]error, len(s.loops))
	for i, l := range s.loops {
		all.Go(func() {
			if errs[i] = l.run(context.Background()); errs[i] != nil {
				s.opt.Log.Error("loop", "loop", i, "error", errs[i].Error())
			}
		})
	}
	var beside sync.WaitGroup
	beside.Go(s.watchHealth)
	beside.Go(s.renew)
	beside.Go(s.watchDescriptors)
	beside.Go(func() { watchScripts(s) })
	all.Wait()
	s.stop()
	s.names.Close()
	beside.Wait()
	s.staplers.Wait()
	return errors.Join(append(errs, s.closeACME(), closeDisks(s))...)
}

// Close frees what Open has taken where Run was never called; otherwise Shutdown and Run have.
func (s *Set) Close() error {
	s.stop()
	s.names.Close()
	s.checks.Close()
	s.staplers.Wait()
	var errs []error
	for _, l := range s.loops {
		errs = append(errs, l.close())
	}
	errs = append(errs, s.endpoints.Close(), s.closeACME(), closeDisks(s))
	closeStores(s.served, nil, s.pools, nil)
	for _, p := range s.pools {
		p.stop()
	}
	s.leaving.stop()
	s.traces.leave(nil)
	if l := s.log.Swap(nil); l != nil {
		l.Close()
	}
	return errors.Join(errs...)
}

// watchHealth enters what probes find.
func (s *Set) watchHealth() {
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.wake:
			s.mu.Lock()
			s.probes.Enter(stack.Now(), s.checks.Take())
			s.mu.Unlock()
		}
	}
}

// shortageEvery is the interval at which a shortage of descriptors that goes on is logged.
const shortageEvery = 30 * time.Second

// watchDescriptors logs that file descriptors run short.
func (s *Set) watchDescriptors() {
	if s.files == nil {
		return
	}
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.files.Short():
		}
		u := s.files.Use()
		s.opt.Log.Error("listeners",
			"result", "file descriptors run short: new connections and requests wait until others end",
			"limit", u.Limit, "connections", u.Open, "connections_most", u.Usable, "clients", u.Clients, "clients_most", u.Most, "files", u.Files,
			"remedy", "raise the limit of open files (LimitNOFILE= of systemd, ulimit -n), or lower limits.connections and timeouts.idle")
		select {
		case <-s.ctx.Done():
			return
		case <-time.After(shortageEvery):
		}
	}
}

// renew reads files of certificates again that have changed.
func (s *Set) renew() {
	tick := time.NewTicker(renewEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-tick.C:
		}
		s.mu.Lock()
		var list []tls.Reloader
		for _, t := range s.served {
			list = append(list, t.files...)
		}
		for _, p := range s.order {
			list = append(list, p.files...)
		}
		s.mu.Unlock()
		for _, r := range list {
			if err := r.Reload(); err != nil {
				s.opt.Log.Error("certificates", "error", err.Error())
			}
		}
		s.warnExpiry(time.Now())
	}
}

// Reload makes a configuration the one in use. With an error the old one stays.
func (s *Set) Reload(cfg *config.Config) error {
	s.watchNames(cfg)
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() { settleNames(s.names, s.cfg) }()
	next, err := s.plan(cfg)
	if err != nil {
		return err
	}
	if err := s.apply(next.tree); err != nil { // an address is taken
		return errors.Join(err, s.apply(s.tree), next.drop(s))
	}
	err = s.use(next)
	for _, l := range s.loops { // pools have fewer backends only now
		s.on(l, l.worker.DropGone)
	}
	return err
}

// apply gives all workers a tree. The caller holds s.mu.
func (s *Set) apply(t *proxy.Tree) error {
	release, err := s.endpoints.Reserve(t)
	if err != nil {
		return err
	}
	defer release()
	var errs []error
	for i, l := range s.loops {
		var err error
		if !s.on(l, func() { err = l.worker.Apply(t) }) {
			err = fmt.Errorf("loop %d has ended", i)
		}
		if err != nil && !slices.ContainsFunc(errs, func(other error) bool { return other.Error() == err.Error() }) { // an address is taken for each loop
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// on runs f on a loop, and waits until it has run. It reports whether it has.
func (s *Set) on(l *loop, f func()) bool {
	done := make(chan struct{})
	if !l.Do(func() { f(); close(done) }) {
		return false
	}
	<-done
	return true
}

// Shutdown ends what the workers do: they accept nothing more, tell clients so (Connection: close, GOAWAY), and end when
// no request is left, or when the longest drain time of the listeners is over.
func (s *Set) Shutdown() {
	s.ending.Do(func() {
		for _, l := range s.loops {
			s.on(l, l.worker.Drain)
		}
		s.drainBy.begin(s.ShutdownLimit() - closeTime)
		s.drained(s.drainBy.get)
		for _, l := range s.loops {
			s.on(l, l.worker.EndTunnels)
		}
		end := time.Now().Add(closeTime)
		s.drained(func() time.Time { return end })
		if left := s.Totals().Open; left > 0 {
			s.opt.Log.Warn("listeners", "result", "connections were still open at the end of the drain time", "connections", left)
		}
		for _, l := range s.loops {
			if err := l.close(); err != nil {
				s.opt.Log.Error("loop", "error", err.Error())
			}
		}
		if err := s.endpoints.Close(); err != nil { // while the loops of the stack still send
			s.opt.Log.Error("endpoints", "error", err.Error())
		}
	})
}

// drained waits until no connection of a client is left, until a time at most, which may change.
func (s *Set) drained(until func() time.Time) {
	for time.Now().Before(until()) && s.Totals().Open > 0 {
		time.Sleep(drainPoll)
	}
}

// closeTime is the time that WebSockets have, after the drain time, to take the Close frame with which they end.
const closeTime = time.Second

// drainPoll is the interval at which Shutdown looks whether anything is left.
const drainPoll = 20 * time.Millisecond

// ShutdownLimit returns how long Shutdown takes at most.
func (s *Set) ShutdownLimit() (longest time.Duration) {
	if d := s.drainBy.most.Load(); d > 0 {
		return time.Duration(d) + closeTime
	}
	return drainTime(s) + closeTime
}

// drainTime returns the longest drain time of the listeners.
func drainTime(s *Set) (longest time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.cfg.Listeners {
		longest = max(longest, s.cfg.Listeners[i].Timeouts.Drain)
	}
	return longest
}

// Totals returns the counters of all workers.
func (s *Set) Totals() (sum proxy.Stats) {
	for _, l := range s.loops {
		add(&sum, l.worker.Stats())
	}
	return sum
}
