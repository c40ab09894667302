package defence

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/filter/ebpf"
	"github.com/millrace/millrace/gateway/config"
)

// Errors of verdicts.
var (
	ErrAccepted = errors.New("the source is on the list of those that are accepted")
	ErrFull     = errors.New("there are as many verdicts as defence.max_verdicts allows")
	ErrUnknown  = errors.New("there is no verdict on this prefix")
	ErrListed   = errors.New("the prefix is on a list of the configuration")
)

// errBusy says that Submit was called more often than verdictsPerSecond.
var errBusy = errors.New("more verdicts than the kernel is given in a second")

// Bounds of what callers of Submit can cost.
const (
	verdictsPerSecond = 20_000 // system calls of some microseconds
	records           = 8192   // that wait for Run
)

// sweepInterval is how often Run removes verdicts that have ended.
const sweepInterval = time.Second

// Defence is the verdicts of a gateway. Its methods may be called by any goroutine.
type Defence struct {
	maps    *ebpf.Defence
	rules   rules
	policy  atomic.Pointer[policy]
	entered atomic.Int64 // verdicts beyond the lists that the kernel may have
	records chan record
	second  limiter

	namespace *os.File // of the network, at Open

	refused [reasons]atomic.Uint64

	mu       sync.Mutex // guards all below; not taken by Submit
	verdicts map[netip.Prefix]record
	lists    map[netip.Prefix]config.DefencePrefix
	devices  []*device
	syns     int
}

// policy is what Submit reads of a configuration.
type policy struct {
	lists  *config.DefenceLists
	listed map[netip.Prefix]config.DefencePrefix
	max    int64
	time   time.Duration
}

func (p *policy) isListed(source netip.Prefix) bool {
	_, ok := p.listed[source.Masked()]
	return ok
}

// record is a verdict beyond the lists.
type record struct {
	ebpf.Verdict
	rule  string
	since time.Time
	until time.Time // zero: until it is removed
}

// Why Submit did not write a verdict.
const (
	refusedAccepted = iota
	refusedListed
	refusedFull
	refusedBusy
	refusedKernel
	reasons
)

var reasonNames = [reasons]string{"accepted", "listed", "full", "busy", "kernel"}

// Open loads the maps and fills them with the lists of a configuration. It is attached to no device.
func Open(c *config.Config) (*Defence, error) {
	maps, err := ebpf.LoadDefence()
	if err != nil {
		return nil, err
	}
	ns, err := namespaceOfThread()
	if err != nil {
		return nil, errors.Join(err, maps.Close())
	}
	d := &Defence{
		maps: maps, namespace: ns, records: make(chan record, records), verdicts: map[netip.Prefix]record{}, lists: map[netip.Prefix]config.DefencePrefix{},
	}
	d.rules.init()
	if err := d.Reload(c); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// Close gives the maps back. The devices are detached before.
func (d *Defence) Close() error { return errors.Join(d.maps.Close(), d.namespace.Close()) }

// Verdict is what the gateway decides about a source.
type Verdict struct {
	Source netip.Prefix
	Rule   string        // counts what is dropped, and is shown to the operator
	Rate   int           // packets a second that the source may send; 0: none
	Burst  int           // packets at once; 0: a tenth of a second's
	For    time.Duration // 0: the default of the configuration
}

// Source returns what verdicts on a client are about: the address, or the /64 of IPv6.
func Source(client netip.Addr) netip.Prefix {
	client = client.Unmap().WithZone("")
	if client.Is4() {
		return netip.PrefixFrom(client, 32)
	}
	p, _ := client.Prefix(64)
	return p
}

// Submit puts a verdict in force: packets of the source that come after it has returned are dropped or limited. It takes
// some microseconds, waits for nothing, and does not replace longer prefixes. An error is counted, too.
func (d *Defence) Submit(v Verdict) error {
	p := d.policy.Load()
	if v.For == 0 {
		v.For = p.time
	}
	err := d.submit(p, v)
	for i, e := range [reasons]error{ErrAccepted, ErrListed, ErrFull, errBusy} {
		if e != nil && errors.Is(err, e) {
			d.refused[i].Add(1)
			return err
		}
	}
	if err != nil {
		d.refused[refusedKernel].Add(1)
	}
	return err
}

func (d *Defence) submit(p *policy, v Verdict) error {
	switch {
	case p.lists.Accepted.Lookup(v.Source.Addr()) == config.SourceAllow:
		return ErrAccepted
	case p.isListed(v.Source):
		return ErrListed
	case !d.second.take(time.Now()):
		return errBusy
	case d.entered.Add(1) > p.max:
		d.entered.Add(-1)
		return ErrFull
	}
	now := time.Now()
	r := record{
		Verdict: ebpf.Verdict{Prefix: v.Source.Masked(), Rule: d.rules.number(v.Rule), Rate: uint32(v.Rate), Burst: uint32(v.Burst), For: v.For},
		rule:    v.Rule, since: now,
	}
	if v.For != 0 {
		r.until = now.Add(v.For)
	}
	if err := d.maps.Put(r.Verdict); err != nil {
		d.entered.Add(-1)
		return err
	}
	select {
	case d.records <- r:
	default: // Run is late: the kernel's entry ends by itself, and the sweep of all finds it
		d.entered.Add(-1)
	}
	return nil
}

// Run keeps the list of verdicts until ctx ends, and removes those that have ended.
func (d *Defence) Run(ctx context.Context) {
	tick := time.NewTicker(sweepInterval)
	defer tick.Stop()
	for n := 1; ; {
		select {
		case <-ctx.Done():
			return
		case r := <-d.records:
			d.note(r)
		case now := <-tick.C:
			d.sweep(now)
			d.reattach()
			if n++; n%60 == 0 { // also those that were not noted
				_, _ = d.maps.Expire()
			}
		}
	}
}

// note enters a verdict in the list.
func (d *Defence) note(r record) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, again := d.verdicts[r.Prefix]; again {
		d.entered.Add(-1)
	}
	d.verdicts[r.Prefix] = r
}

// noteAll enters what waits for Run, so that a reader sees what it has submitted.
func (d *Defence) noteAll() {
	for {
		select {
		case r := <-d.records:
			d.note(r)
		default:
			return
		}
	}
}

// sweep removes the verdicts that have ended.
func (d *Defence) sweep(now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for p, r := range d.verdicts {
		if !r.until.IsZero() && r.until.Before(now) {
			_ = d.remove(p)
		}
	}
}

// remove takes a verdict back; what a list says of the prefix is in force again. mu is held.
func (d *Defence) remove(p netip.Prefix) error {
	listed, ok := d.lists[p]
	if ok {
		if err := d.maps.Put(d.listed(&listed)); err != nil {
			return err
		}
	} else if err := d.maps.Remove(p); err != nil {
		return err
	}
	delete(d.verdicts, p)
	d.entered.Add(-1)
	return nil
}

// Add is Submit for the operator: For may be 0, until the verdict is removed or the gateway ends.
func (d *Defence) Add(v Verdict, forever bool) error {
	d.noteAll()
	if !v.Source.IsValid() || v.Rate < 0 || v.Burst < 0 || v.For < 0 {
		return fmt.Errorf("%w: %v", ebpf.ErrValue, v.Source)
	}
	p := d.policy.Load()
	if v.For == 0 && !forever {
		v.For = p.time
	}
	if err := d.submit(p, v); err != nil {
		return fmt.Errorf("%v: %w", v.Source, err)
	}
	d.noteAll()
	return nil
}

// Remove takes back a verdict of the operator or of the gateway.
func (d *Defence) Remove(p netip.Prefix) error {
	d.noteAll()
	d.mu.Lock()
	defer d.mu.Unlock()
	p = p.Masked()
	if _, ok := d.verdicts[p]; !ok {
		if _, listed := d.lists[p]; listed {
			return fmt.Errorf("%w: %v: edit the list and reload", ErrListed, p)
		}
		return fmt.Errorf("%w: %v", ErrUnknown, p)
	}
	return d.remove(p)
}

// limiter bounds the calls in a second.
type limiter struct {
	second atomic.Int64
	calls  atomic.Int64
}

func (l *limiter) take(now time.Time) bool {
	if s := now.Unix(); l.second.Swap(s) != s {
		l.calls.Store(0)
	}
	return l.calls.Add(1) <= verdictsPerSecond
}
