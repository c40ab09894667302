package inspection

import (
	"net/netip"
	"runtime/metrics"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/filter/inspect"
	"github.com/millrace/millrace/filter/signature"
	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/l4/datapath"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// Loop inspects the packets of one loop. Its methods belong to that loop.
type Loop struct {
	of      *Inspector
	number  int
	set     *set      // that the engines were last compared with
	engines []*engine // by number of the policy; nil where there is none
	frame   []byte    // scratch for packets in several pieces
	part    []byte    // scratch for one of the datagrams that a packet joins
	encoder encoder

	// Of the packet that is inspected.
	in     *datapath.Inspected
	now    clock.Time
	engine *engine
	whole  []byte
	mark   uint32 // of an access rule; 0: none
}

// engine holds the state of one policy in one loop.
type engine struct {
	policy *policy
	swept  clock.Time // when flows were ended last

	shortened uint64 // streams, as counted in policyCounts
	*inspect.Engine
}

// Flows that have been quiet for their time end a few at a time.
const (
	sweepEvery = 100 * time.Millisecond
	sweepMost  = 256
)

// Inspect is a datapath.Inspector.
func (l *Loop) Inspect(in *datapath.Inspected) (verdict packet.Verdict, reject bool) {
	set := l.of.set.Load()
	if set != l.set {
		l.follow(set)
	}
	p := set.policy(in.Policy)
	if p == nil { // the snapshot of the gateway is ahead of a reload, or behind it
		return packet.Forward, false
	}
	t := p.totals
	if in.Discarded != packet.Undecided {
		t.discarded.Add(1)
		if p.prevent {
			return in.Discarded, false
		}
		return packet.Forward, false
	}
	e := l.engineOf(p)
	l.in, l.now, l.engine, l.whole, l.mark = in, in.Now, e, l.assemble(in), 0
	if in.Now.Sub(e.swept) >= sweepEvery {
		e.swept = in.Now
		e.Expire(int64(in.Now), sweepMost)
		if n := e.Stats().Shortened; n != e.shortened {
			t.shortened.Add(n - e.shortened)
			e.shortened = n
		}
	}
	t.packets.Add(1)
	t.bytes.Add(uint64(len(l.whole)))
	if p.capture != nil && p.capture.Match(l.whole, len(l.whole)) {
		l.captured(p, "capture")
	}
	if p.access != nil && in.FromClient {
		if v := l.decideAccess(p); v != packet.Undecided {
			return v, false
		}
	}
	dir := signature.ToClient
	if in.FromClient {
		dir = signature.ToServer
	}
	r := l.inspectAll(p, &inspect.Input{Now: int64(in.Now), Dir: dir, Fresh: in.Opens, Layers: inspect.LayersOf(&in.Chain[0]), Conn: in.Conn, Search: l.search(p)})
	if r.Taken {
		t.taken.Add(1)
	}
	if r.Partial {
		t.partial.Add(1)
	}
	if verdict, reject = l.decide(p, r); verdict == packet.Forward && p.strip {
		stripUrgent(&in.Chain[0], in.Arena.Bytes(&in.Chain[0]))
	}
	return verdict, reject
}

// captured writes the packet to the pcapng, with what asked for it as its comment.
func (l *Loop) captured(p *policy, cause string) {
	p.totals.captured.Add(1)
	if f := l.of.packets.Load(); f != nil {
		f.write(l.of.opt.Wall(l.now).UnixNano(), l.whole, []byte(p.name+" "+cause))
	}
}

// search returns what a packet engine has found in the packet: nothing where it has searched for the literals of other
// rules, as after a swap, or where the packet is not all in one frame, of which the window is empty.
func (l *Loop) search(p *policy) (s inspect.Search) {
	in := l.in
	d := &in.Chain[0]
	if in.Searched == 0 || in.Searched != p.literals.ID() || d.Flags.Has(packet.FlagOffload) {
		return s
	}
	s.From, s.To = gpukern.Window(d, l.whole)
	s.Base = p.base
	n := 0
	for n < len(in.Matches) && int(in.Matches[n].D) == in.Index {
		n++
	}
	s.Matches = in.Matches[:n]
	return s
}

// decide returns the verdict that follows from what the engine has found.
func (l *Loop) decide(p *policy, r inspect.Result) (verdict packet.Verdict, reject bool) {
	t := p.totals
	if r.Bound {
		t.bounds.Add(1)
	}
	switch {
	case !p.prevent:
		return packet.Forward, false
	case r.Blocked:
		t.blocked.Add(1)
		return packet.DropInspection, false
	case r.Outcome == inspect.Reject:
		t.dropped.Add(1)
		t.rejected.Add(1)
		return packet.DropInspection, true
	case r.Outcome == inspect.Drop:
		t.dropped.Add(1)
		return packet.DropInspection, false
	case r.Bound && !p.failOpen:
		t.overload.Add(1)
		return packet.DropInspectionFull, false
	}
	return packet.Forward, false
}

// follow abandons the engines of policies that a reload has removed.
func (l *Loop) follow(set *set) {
	l.set = set
	for n, e := range l.engines {
		if e != nil && set.policy(e.policy.number) == nil {
			l.engines[n] = nil
		}
	}
}

// engineOf returns the engine of a policy, with its present rules.
func (l *Loop) engineOf(p *policy) *engine {
	n := int(p.number)
	for len(l.engines) <= n {
		l.engines = append(l.engines, nil)
	}
	e := l.engines[n]
	switch {
	case e == nil:
		e = &engine{policy: p, Engine: inspect.New(p.rules, l.config(p), l.alert)}
		l.engines[n] = e
	case e.policy != p:
		e.Swap(p.rules, l.config(p))
		e.policy = p
	}
	return e
}

// leastMemory is the least memory of a loop for streams.
const leastMemory = 1 << 18

// config returns this loop's part of the bounds of a policy.
func (l *Loop) config(p *policy) inspect.Config {
	cfg := l.of.part(p)
	cfg.OnMatch = l.matched
	return cfg
}

// liveBytes returns how many bytes may be in use where the process may take so many: what is in use may grow by GOGC percent with
// garbage before that is collected.
func liveBytes(memory int) int {
	const name, usual, most = "/gc/gogc:percent", 100, 400
	sample := []metrics.Sample{{Name: name}}
	metrics.Read(sample)
	percent := uint64(usual)
	if v := sample[0].Value; v.Kind() == metrics.KindUint64 && v.Uint64() <= most { // more is "off"
		percent = v.Uint64()
	}
	return int(uint64(memory) * 100 / (100 + percent))
}

// assemble returns the bytes of a packet, which may lie in several frames or outside of them.
func (l *Loop) assemble(in *datapath.Inspected) []byte {
	d := &in.Chain[0]
	first := in.Arena.Bytes(d)
	more := d.Flags.Has(packet.FlagMore)
	external := []byte(nil)
	if d.Flags.Has(packet.FlagOffload) {
		external = in.Arena.External(d)
	}
	if !more && external == nil {
		return first
	}
	l.frame = append(append(l.frame[:0], first...), external...)
	for i := 1; more && i < len(in.Chain); i++ {
		l.frame = append(l.frame, in.Arena.Bytes(&in.Chain[i])...)
		more = in.Chain[i].Flags.Has(packet.FlagMore)
	}
	return l.frame
}

// addresses returns the outer addresses of a packet.
func addresses(d *packet.Desc, frame []byte) (src, dst netip.Addr, ok bool) {
	switch {
	case int(d.L3) >= len(frame):
	case d.Flags.Has(packet.FlagIPv4):
		if ip := wire.IPv4(frame[d.L3:]); ip.ValidHeader() {
			return ip.SrcAddr(), ip.DstAddr(), true
		}
	case d.Flags.Has(packet.FlagIPv6):
		if ip := wire.IPv6(frame[d.L3:]); ip.ValidHeader() {
			return ip.SrcAddr(), ip.DstAddr(), true
		}
	}
	return src, dst, false
}
