package inspection

import (
	"cmp"
	"errors"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/filter/inspect"
	"github.com/millrace/millrace/filter/signature"
	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/gpukern/literal"
)

// Options hold settings that are not in the configuration.
type Options struct {
	Wall      func(t clock.Time) time.Time // the calendar time of the loops' clock; required
	Literals  bool                         // make a set of the literals that rules want in payloads, for packet engines
	OnVerdict func(*Verdict)               // called by loops, which it must not delay; the Verdict is borrowed; may be nil
}

// Inspector is the inspection of a gateway. Its methods may be called from any goroutine.
type Inspector struct {
	opt     Options
	loops   []*Loop
	workers []*Requests
	set     atomic.Pointer[set]
	alerts  atomic.Pointer[output]
	packets atomic.Pointer[packetFile]

	closing  sync.WaitGroup // outputs that a reload replaced
	planning sync.Mutex
	compiled map[string]compiled // by policy: the newest, that others follow; guarded by planning

	mu       sync.Mutex // guards all below
	cfg      *config.Config
	numbers  map[string]uint8 // of policies, for good
	totals   map[string]*policyCounts
	counters counters      // of the present rules
	earlier  counters      // of those before
	loaded   time.Duration // how long the rules took to compile
}

// compiled is the rules of a policy: those for packets, and of them those for requests, nil where it never had any.
type compiled struct{ packets, requests *inspect.Rules }

// counters are those of rules and of marks, which they keep over reloads. An Inspector has the ones of two generations: rules that
// have other numbers at each reload would else fill the memory. A rule that comes back later begins at 0.
type counters struct {
	rules map[countKey]*ruleCounts
	marks map[markKey]*atomic.Uint64
}

func newCounters() counters {
	return counters{map[countKey]*ruleCounts{}, map[markKey]*atomic.Uint64{}}
}

// countKey names the counters of a rule in all generations.
type countKey struct {
	policy   string
	gid, sid uint32
	access   string // the file and text of an access rule
}

// markKey names a counter of packets with a mark.
type markKey struct {
	policy string
	mark   uint32
}

// maxNumbers bounds the names of policies of one process: numbers are for good.
const maxNumbers = 255

// errTooMany reports that reloads have brought too many names.
var errTooMany = errors.New("inspection: more than 255 names of policies since the start; a restart is needed")

// Open reads the rules of a configuration and opens its files. A mistake in one is a *config.Error.
func Open(cfg *config.Config, opt Options) (*Inspector, error) {
	i := &Inspector{
		opt: opt, numbers: map[string]uint8{}, totals: map[string]*policyCounts{}, compiled: map[string]compiled{},
	}
	i.set.Store(&set{})
	return i, i.Reload(cfg)
}

// SetLoops sets how many loops share the bounds, before the first packet.
func (i *Inspector) SetLoops(loops int) {
	i.loops = nil
	for n := range loops {
		i.loops = append(i.loops, &Loop{of: i, number: n})
	}
}

// Loop returns what inspects the packets of a loop.
func (i *Inspector) Loop(n int) *Loop { return i.loops[n] }

// Number returns the number of a policy, 0 for one that was never loaded.
func (i *Inspector) Number(policy string) uint8 {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.numbers[policy]
}

// Plan is a configuration whose rules are compiled and whose files are open: Swap and Finish use it, Discard does not.
type Plan struct {
	cfg      *config.Config
	policies []*policy
	counters counters       // of the policies
	literals *literal.Set   // of all policies; nil without
	before   *set           // what Swap has replaced; nil before
	alerts   io.WriteCloser // nil without
	packets  io.WriteCloser
	took     time.Duration
	of       *Inspector
}

// Plan compiles the rules of a configuration, beside the loops, and opens its files anew: after a rotation they are others.
func (i *Inspector) Plan(cfg *config.Config) (*Plan, error) {
	i.planning.Lock()
	defer i.planning.Unlock()
	began := time.Now()
	l := loader{cfg: cfg}
	p := &Plan{cfg: cfg, of: i, policies: l.load(i.compiled), counters: newCounters()}
	p.took = time.Since(began)
	if err := l.err(); err != nil {
		return nil, err
	}
	for _, q := range p.policies {
		i.compiled[q.name] = compiled{q.rules, cmp.Or(q.requests, none(i.compiled[q.name].requests))}
	}
	err := i.enter(p)
	if i.opt.Literals && err == nil {
		p.literals, err = literalsOf(p.policies)
	}
	if path := beside(cfg, cfg.Inspection.Alerts.File); path != "" && err == nil {
		p.alerts, err = openLines(path)
	}
	if path := beside(cfg, cfg.Inspection.Packets.File); path != "" && err == nil {
		p.packets, err = openFile(path)
	}
	if err != nil {
		p.Discard()
		return nil, err
	}
	return p, nil
}

// literalsOf compiles the literals of policies into one set; nil where there are none, or more than a set takes: rules are
// then searched by the core that inspects.
func literalsOf(policies []*policy) (*literal.Set, error) {
	var list []literal.Pattern
	for _, p := range policies {
		p.base = uint32(len(list))
		list = p.rules.AppendLiterals(list)
	}
	if len(list) == 0 || len(list) > literal.MaxPatterns {
		return nil, nil
	}
	set, err := literal.Compile(list)
	for _, p := range policies {
		p.literals = set
	}
	return set, err
}

// Literals returns the literals that the present rules want in payloads, nil for none: a packet engine that searches for
// them spares the loops the search.
func (i *Inspector) Literals() *literal.Set { return i.set.Load().literals }

// beside returns the path of an output, "-" for the standard output, "" for none.
func beside(cfg *config.Config, file string) string {
	if file == "" || file == "-" {
		return file
	}
	return cfg.Beside(file)
}

// Discard abandons a plan. If it was swapped to, what was before comes back.
func (p *Plan) Discard() {
	if p.before != nil {
		p.of.set.Store(p.before)
		p.before = nil
	}
	for _, f := range []io.WriteCloser{p.alerts, p.packets} {
		if f != nil {
			_ = f.Close() // nothing was written
		}
	}
}

// Swap passes the rules of a plan to the loops, which take them with their next packet: no packet waits and no flow is lost.
// Policies that the plan lacks stay until the next one, for services that name them until they are reloaded too.
func (i *Inspector) Swap(p *Plan) {
	was := i.set.Load()
	next := &set{rules: p.policies, payload: p.cfg.Inspection.Alerts.Payload, literals: p.literals}
	for _, list := range [][]*policy{was.rules, p.policies} {
		for _, q := range list {
			for len(next.policies) <= int(q.number) {
				next.policies = append(next.policies, nil)
			}
			next.policies[q.number] = q
		}
	}
	for _, q := range p.policies {
		if old := was.policy(q.number); old != nil && old.access != nil && q.access != nil {
			q.access.rates.follow(&old.access.rates)
		}
	}
	p.before = was
	i.set.Store(next)
}

// Finish makes the files of a plan the outputs.
func (i *Inspector) Finish(p *Plan) error {
	i.forgetRules(p)
	i.mu.Lock()
	defer i.mu.Unlock()
	err := i.useFiles(p)
	i.earlier, i.counters = i.counters, p.counters
	i.cfg, i.loaded = p.cfg, p.took
	p.before = nil
	return err
}

// forgetRules abandons the rules of policies that a plan lacks. What is left has no rules, and their generation: an engine that has met
// no packet since must not take those of a policy of the same name for its own.
func (i *Inspector) forgetRules(p *Plan) {
	i.planning.Lock()
	defer i.planning.Unlock()
	for name, rules := range i.compiled {
		if slices.ContainsFunc(p.policies, func(q *policy) bool { return q.name == name }) {
			continue
		}
		i.compiled[name] = compiled{none(rules.packets), none(rules.requests)}
	}
}

// none returns rules that follow others and are empty; nil behind nil.
func none(before *inspect.Rules) *inspect.Rules {
	if before == nil {
		return nil
	}
	r, err := inspect.CompileNext(nil, before)
	if err != nil {
		panic(err) // no rule can be wrong
	}
	return r
}

// enter gives the policies of a plan their numbers and counters.
func (i *Inspector) enter(p *Plan) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	for k, q := range p.policies {
		if i.numbers[q.name] == 0 {
			if len(i.numbers) == maxNumbers {
				return errTooMany
			}
			i.numbers[q.name] = uint8(len(i.numbers) + 1)
			i.totals[q.name] = &policyCounts{}
		}
		q.number, q.totals = i.numbers[q.name], i.totals[q.name]
		q.engine = engineConfig(&p.cfg.Inspection, &p.cfg.Inspection.Policies[k])
		i.enterCounts(p, q)
	}
	return nil
}

// enterCounts gives the rules of a policy their counters.
func (i *Inspector) enterCounts(plan *Plan, p *policy) {
	p.counts = map[*signature.Rule]*ruleCounts{}
	for _, r := range p.all {
		p.counts[r] = i.countsOf(plan, countKey{policy: p.name, gid: r.GID, sid: r.SID})
	}
	if p.access == nil {
		return
	}
	for _, r := range p.access.Rules() {
		p.access.counts = append(p.access.counts, i.countsOf(plan, countKey{policy: p.name, access: r.File + "\x00" + r.Text}))
		var marked *atomic.Uint64
		if r.Mark != 0 {
			marked = i.markedBy(plan, markKey{p.name, r.Mark})
		}
		p.access.marked = append(p.access.marked, marked)
	}
}

func (i *Inspector) markedBy(p *Plan, k markKey) *atomic.Uint64 {
	return keptCounter(p.counters.marks, i.counters.marks, i.earlier.marks, k)
}

func (i *Inspector) countsOf(p *Plan, k countKey) *ruleCounts {
	return keptCounter(p.counters.rules, i.counters.rules, i.earlier.rules, k)
}

// keptCounter returns the counter of k in next, which gets that of two generations before where they have one.
func keptCounter[K comparable, V any](next, present, earlier map[K]*V, k K) *V {
	c := next[k]
	if c == nil {
		c = cmp.Or(present[k], earlier[k])
	}
	if c == nil {
		c = new(V)
	}
	next[k] = c
	return c
}

// useFiles makes the files of a plan the outputs.
func (i *Inspector) useFiles(p *Plan) (err error) {
	c := &p.cfg.Inspection
	was := i.alerts.Load()
	switch {
	case p.alerts == nil:
		i.alerts.Store(nil)
		if was != nil {
			i.closing.Go(func() { _ = was.close() }) // it may wait for a slow disk
		}
	case was != nil && i.cfg.Inspection.Alerts.Buffer == c.Alerts.Buffer:
		err = was.file.swap(p.alerts)
	default:
		i.alerts.Store(newOutput(beside(p.cfg, c.Alerts.File), p.alerts, c.Alerts.Buffer))
		if was != nil {
			i.closing.Go(func() { _ = was.close() })
		}
	}
	return errors.Join(err, i.usePackets(p))
}

func (i *Inspector) usePackets(p *Plan) (err error) {
	was := i.packets.Load()
	if p.packets == nil {
		i.packets.Store(nil)
	} else {
		path := beside(p.cfg, p.cfg.Inspection.Packets.File)
		var f *packetFile
		most := int64(p.cfg.Inspection.Packets.Size)
		if was != nil {
			f, err = was.succeed(path, p.packets, most)
		} else {
			f, err = newPacketFile(path, p.packets, sizeOf(path), most)
		}
		if err == nil {
			i.packets.Store(f)
		}
	}
	if was != nil {
		i.closing.Go(func() { _ = was.out.close() })
	}
	return err
}

// Reload is Plan, Swap and Finish.
func (i *Inspector) Reload(cfg *config.Config) error {
	p, err := i.Plan(cfg)
	if err != nil {
		return err
	}
	i.Swap(p)
	return i.Finish(p)
}

// Close writes what waits, for a bounded time. The loops have ended.
func (i *Inspector) Close() error {
	var errs []error
	if o := i.alerts.Swap(nil); o != nil {
		errs = append(errs, o.close())
	}
	if f := i.packets.Swap(nil); f != nil {
		errs = append(errs, f.out.close())
	}
	i.closing.Wait() // the files before a reload
	return errors.Join(errs...)
}

// sorted returns the rules that have matched, those with the most matches first.
func sorted(list []RuleStatus) []RuleStatus {
	slices.SortFunc(list, func(a, b RuleStatus) int {
		return cmp.Or(cmp.Compare(b.Matches, a.Matches), cmp.Compare(a.Policy, b.Policy), cmp.Compare(a.GID, b.GID), cmp.Compare(a.SID, b.SID))
	})
	return list
}
