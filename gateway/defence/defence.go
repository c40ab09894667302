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

// Verdicts of the gateway that Submit does not write; the operator's Add does not return errKept.
var (
	errKept = errors.New("the verdict in force on this prefix is the operator's, or lasts longer")
	errBusy = errors.New("more verdicts than the kernel is given in a second")
)

// verdictsPerSecond bounds the system calls of Submit, each of some microseconds.
const verdictsPerSecond = 20_000

// sweepInterval is the interval at which Run removes verdicts that have ended.
const sweepInterval = time.Second

// Defence is the verdicts of a gateway. Its methods may be called by any goroutine.
type Defence struct {
	attaching sync.Mutex // is held while devices are attached again; taken before mu
	suspended bool       // by Suspend

	maps     *ebpf.Defence
	rules    rules
	policy   atomic.Pointer[policy]
	verdicts verdicts
	second   limiter

	namespace *os.File // of the network, at Open

	refused [reasons]atomic.Uint64

	mu      sync.Mutex // guards all below; not taken by Submit
	lists   map[netip.Prefix]config.DefencePrefix
	devices []*device
	syns    int
}

// policy is the part of a configuration that Submit reads.
type policy struct {
	lists  *config.DefenceLists
	listed map[netip.Prefix]config.DefencePrefix
	max    int64
	time   time.Duration
}

func (p *policy) isListed(source netip.Prefix) bool {
	_, ok := p.listed[source]
	return ok
}

// allows returns why there is no verdict on a prefix beyond the lists, nil where there may be one.
func (p *policy) allows(source netip.Prefix) error {
	switch {
	case p.lists.Accepted.Lookup(source.Addr()) == config.SourceAllow:
		return ErrAccepted
	case p.isListed(source):
		return ErrListed
	}
	return nil
}

// Why Submit did not write a verdict.
const (
	refusedAccepted = iota
	refusedListed
	refusedFull
	refusedKept
	refusedBusy
	refusedKernel
	reasons
)

var reasonNames = [reasons]string{"accepted", "listed", "full", "kept", "busy", "kernel"}

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
	d := &Defence{maps: maps, namespace: ns, lists: map[netip.Prefix]config.DefencePrefix{}}
	d.rules.init()
	if err := d.Reload(c); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// Close returns the maps. The devices are detached before.
func (d *Defence) Close() error { return errors.Join(d.maps.Close(), d.namespace.Close()) }

// Verdict is the decision of the gateway about a source.
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
// some microseconds and waits for no goroutine. It replaces neither longer prefixes, nor a verdict of the operator on the
// same prefix, nor one of the gateway that lasts longer; but a drop replaces a limit. An error is counted, too.
func (d *Defence) Submit(v Verdict) error {
	p := d.policy.Load()
	if v.For == 0 {
		v.For = p.time
	}
	err := d.submit(p, v, false)
	for i, e := range [reasons]error{ErrAccepted, ErrListed, ErrFull, errKept, errBusy} {
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

func (d *Defence) submit(p *policy, v Verdict, operator bool) error {
	source := v.Source.Masked()
	if err := p.allows(source); err != nil {
		return err
	}
	now := time.Now()
	e := &entry{
		Verdict: ebpf.Verdict{Prefix: source, Rule: d.rules.number(v.Rule), Rate: uint32(v.Rate), Burst: uint32(v.Burst), For: v.For},
		rule:    v.Rule, operator: operator, since: now,
	}
	if v.For != 0 {
		e.until = now.Add(v.For)
	}
	old, err := d.verdicts.enter(e, now, p.max, &d.second)
	if err != nil {
		return err
	}
	if err := d.write(source); err != nil {
		d.verdicts.restore(e, old)
		return err
	}
	if err := d.policy.Load().allows(source); err != nil { // since a reload meanwhile
		return errors.Join(err, d.end(e))
	}
	return nil
}

// Run removes verdicts that have ended, until ctx ends.
func (d *Defence) Run(ctx context.Context) {
	tick := time.NewTicker(sweepInterval)
	defer tick.Stop()
	for n := 1; ; {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			d.sweep(now)
			d.reattach()
			if n++; n%60 == 0 { // which also notes that a table is empty, so that packets are not looked up in it
				_, _ = d.maps.Expire()
			}
		}
	}
}

// sweep removes the verdicts that have ended.
func (d *Defence) sweep(now time.Time) {
	for e := range d.verdicts.all() {
		if e.ended(now) {
			_ = d.end(e)
		}
	}
}

// end removes a verdict, unless another has taken its place.
func (d *Defence) end(e *entry) error {
	if !d.verdicts.remove(e) {
		return nil
	}
	return d.write(e.Prefix)
}

// step is called between the steps of a change: tests make another one there.
var step = func(string) {}

// write makes the kernel's entry of a prefix what the lists and the verdicts say. Of two goroutines the one that changed
// the verdict last may write first, so each looks again.
func (d *Defence) write(source netip.Prefix) error {
	for {
		p, e := d.policy.Load(), d.verdicts.on(source)
		err := d.writeOnce(p, e, source)
		step("written")
		if err != nil || d.verdicts.on(source) == e && d.policy.Load() == p {
			return err
		}
	}
}

func (d *Defence) writeOnce(p *policy, e *entry, source netip.Prefix) error {
	if listed, ok := p.listed[source]; ok {
		return d.maps.Put(d.listed(&listed))
	}
	if e == nil {
		return d.maps.Remove(source)
	}
	return d.maps.Put(e.Verdict)
}

// Add is Submit for the operator, whose verdict replaces any other on the prefix. With forever it stays until it is removed
// or the gateway ends; otherwise For 0 is the default of the configuration.
func (d *Defence) Add(v Verdict, forever bool) error {
	if !v.Source.IsValid() || v.Rate < 0 || v.Burst < 0 || v.For < 0 {
		return fmt.Errorf("%w: %v", ebpf.ErrValue, v.Source)
	}
	p := d.policy.Load()
	if v.For == 0 && !forever {
		v.For = p.time
	}
	if err := d.submit(p, v, true); err != nil {
		return fmt.Errorf("%v: %w", v.Source, err)
	}
	return nil
}

// Remove takes back a verdict of the operator or of the gateway.
func (d *Defence) Remove(p netip.Prefix) error {
	p = p.Masked()
	for e := d.verdicts.on(p); e != nil; e = d.verdicts.on(p) {
		if d.verdicts.remove(e) {
			return d.write(p)
		}
	}
	if d.policy.Load().isListed(p) {
		return fmt.Errorf("%w: %v: edit the list and reload", ErrListed, p)
	}
	return fmt.Errorf("%w: %v", ErrUnknown, p)
}

// limiter bounds the calls in a second.
type limiter struct {
	second atomic.Int64
	calls  atomic.Int64
}

// take counts a call. One that comes a little late, of the second before, begins no other; a clock that is set back does.
func (l *limiter) take(now time.Time) bool {
	s, was := now.Unix(), l.second.Load()
	if (s > was || s < was-1) && l.second.CompareAndSwap(was, s) {
		l.calls.Store(0)
	}
	return l.calls.Add(1) <= verdictsPerSecond
}
