package inspection

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/filter"
	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/gpukern/tuple"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// access is the access rules of a policy: the first that matches a packet of a client decides. It is immutable but for
// its counters and token buckets, which all loops share.
type access struct {
	*filter.List
	rates  rates
	counts []*ruleCounts    // by rule; alike for the rules of one line
	marked []*atomic.Uint64 // packets with the mark of the rule; nil for a rule without
}

// newAccess compiles rules; nil where there are none.
func newAccess(rules []filter.Rule) (*access, error) {
	if len(rules) == 0 {
		return nil, nil
	}
	list, err := filter.New(rules)
	if err != nil {
		return nil, err
	}
	a := &access{List: list, rates: rates{filter: filter.NewFilter(0, list)}}
	a.rates.filter.Seed = rand.Uint64()
	return a, nil
}

// rates is the token buckets of a list, which all loops share: a rate is that of all together.
type rates struct {
	mu     sync.Mutex // taken for packets that a rate decides
	filter *filter.Filter
	now    clock.Time // the latest of all loops: their clocks differ by an iteration
}

// follow takes over the buckets of another list's lines that are the same text, before the first packet.
func (r *rates) follow(before *rates) {
	list := r.filter.List
	before.mu.Lock()
	r.filter, r.now = before.filter.Next(list), before.now
	before.mu.Unlock()
}

// within takes the tokens of a packet and reports whether they were there.
func (r *rates) within(rule int, t tuple.Tuple, v4 bool, bytes int, now clock.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now = max(r.now, now)
	return r.filter.Within(rule, t, v4, bytes, r.now)
}

// verdict decides a packet by a rule, from 1.
func (a *access) verdict(rule int, t tuple.Tuple, v4 bool, bytes int, now clock.Time) packet.Verdict {
	switch r := &a.Rules()[rule-1]; {
	case r.Rate.PerSecond != 0 && !a.rates.within(rule, t, v4, bytes, now):
		return packet.DropRateLimit
	case r.Action == filter.Drop:
		return packet.DropRule
	}
	return packet.Undecided
}

// decideAccess decides the packet by the access rules of a policy; Undecided lets it go on to the other rules. With `detect`
// packets that a rule drops only count and alert.
func (l *Loop) decideAccess(p *policy) packet.Verdict {
	t, v4, ok := tupleOf(&l.in.Chain[0], l.whole)
	if !ok {
		return packet.Undecided
	}
	rule := p.access.Find(t, v4)
	if rule == 0 {
		return packet.Undecided
	}
	verdict, n := p.access.verdict(rule, t, v4, len(l.whole), l.now), rule-1
	r, c := &p.access.Rules()[n], p.access.counts[n]
	c.matches.Add(1)
	if r.Capture {
		l.captured(p, fmt.Sprintf("access:%d %s", rule, accessName(r)))
	}
	if verdict == packet.Undecided {
		if l.mark = r.Mark; l.mark != 0 {
			p.access.marked[n].Add(1)
		}
		return packet.Undecided
	}
	l.accessAlert(p, n, &t, verdict)
	if !p.prevent {
		return packet.Undecided
	}
	c.drops.Add(1)
	p.totals.dropped.Add(1)
	return verdict
}

// accessAlertEvery is the interval at which a rate that is exceeded is alerted.
const accessAlertEvery = time.Second

// accessAlert reports that access rule n drops a packet that opens a connection, or one beyond its rate; the others only count.
func (l *Loop) accessAlert(p *policy, n int, t *tuple.Tuple, v packet.Verdict) {
	c := p.access.counts[n]
	if v == packet.DropRateLimit {
		last := c.alerted.Load()
		if last != 0 && int64(l.now)-last < int64(accessAlertEvery) || !c.alerted.CompareAndSwap(last, int64(l.now)) {
			return
		}
	} else if !l.in.Opens {
		return
	}
	c.alerts.Add(1)
	d := &l.in.Chain[0]
	src, dst, _ := addresses(d, l.whole) // of which tupleOf made the tuple
	r := &p.access.Rules()[n]
	action := ActionAlert
	if p.prevent {
		action = ActionDrop
	}
	out := Alert{
		Event: "access", Policy: p.name, Src: src, Dst: dst, Proto: wire.ProtoName(d.Proto), Direction: "to_server", Action: action.String(),
		Rule: &AlertRule{SID: uint32(n + 1), Msg: accessName(r), Action: accessAction(r)},
	}
	out.SrcPort, out.DstPort = uint16(t.Ports>>16), uint16(t.Ports)
	l.write(&out, nil)
	l.report(&out, nil, d.Proto, action)
}

// accessName returns the name of a rule, or its text where it has none.
func accessName(r *filter.Rule) string {
	if r.Name != "" {
		return r.Name
	}
	return r.Text
}

// accessAction returns what a rule does with packets, for people.
func accessAction(r *filter.Rule) string {
	if r.Action == filter.Pass && r.Rate.PerSecond != 0 {
		return "rate"
	}
	return r.Action.String()
}

// tupleOf returns what access rules match of a packet.
func tupleOf(d *packet.Desc, frame []byte) (t tuple.Tuple, v4, ok bool) {
	v4 = d.Flags.Has(packet.FlagIPv4)
	src, dst, ok := addresses(d, frame)
	if !ok {
		return t, v4, false
	}
	t.Proto, t.Known = d.Proto, tuple.Addresses
	t.SrcHi, t.SrcLo = tuple.Words(src)
	t.DstHi, t.DstLo = tuple.Words(dst)
	if d.L4 != 0 && int(d.L4)+4 <= len(frame) && (d.Proto == wire.ProtoTCP || d.Proto == wire.ProtoUDP) {
		t.Known, t.Ports = tuple.Ports, binary.BigEndian.Uint32(frame[d.L4:])
	}
	return t, v4, true
}

// access reads the files of rules on addresses and ports, as one list.
func (l *loader) access(c *config.InspectionPolicy) *access {
	var rules []filter.Rule
	for _, name := range c.Access {
		text, ok := l.read(name, "the file of access rules")
		if !ok {
			continue
		}
		path := l.cfg.Beside(name)
		file, wrong := filter.ParseFile(path, text, l.readPath)
		for _, e := range wrong {
			l.fail(e)
		}
		for _, t := range file.Inspect {
			l.problems = append(l.problems, config.Problem{
				File: path, Line: t.Line,
				Message: "inspection rules are not read in a file of access rules", Hint: "name their file in rules of the policy",
			})
		}
		l.checkAccess(file.List.Rules())
		rules = append(rules, file.List.Rules()...)
	}
	a, err := newAccess(rules)
	l.fail(err)
	return a
}

// checkAccess reports the rules that have no meaning on a gateway, each line once.
func (l *loader) checkAccess(rules []filter.Rule) {
	for i := range rules {
		r := &rules[i]
		if i > 0 && r.Line == rules[i-1].Line && r.File == rules[i-1].File {
			continue
		}
		p := config.Problem{File: r.File, Line: r.Line, Column: 1, Source: r.Text}
		switch {
		case r.Action == filter.Redirect:
			p.Message = "redirect has no meaning on a gateway: the packet's service and backend decide where it leaves"
			p.Hint = "a service with other backends, or a route of a listener, sends clients elsewhere"
		case r.Capture && l.cfg.Inspection.Packets.File == "":
			p.Message, p.Hint = "the rule has capture, but there is no file for packets", "inspection.packets.file names the file"
		default:
			continue
		}
		l.problems = append(l.problems, p)
	}
}
