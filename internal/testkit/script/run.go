package script

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/ip"
	"github.com/millrace/millrace/tcp"
	"github.com/millrace/millrace/wire"
)

const (
	begin            = clock.Time(1000 * time.Second)
	defaultTolerance = 4 * time.Millisecond
	defaultMTU       = 1500
	patience         = 10 * time.Minute // for what is expected at any time
	listenPort       = 8080
	peerPort         = 40_000
	maxPolls         = 10_000 // without time passing
)

// run is a script that is being run.
type run struct {
	translation
	script *Script
	mux    *tcp.Mux
	now    clock.Time
	wake   clock.Time // when the Mux wants to be polled
	out    []sent     // not expected yet
	log    io.Writer

	local, remote wire.Addr
	localPort     uint16 // of the connection, as what was sent last says
	remotePort    uint16
	bound         uint16 // sockets of an upstream script, each with a port of its own
	mtu           int    // of the path, as far as ICMP has reported it
	linkMTU       int
	cookie        []byte // of Fast Open, as it was sent last

	files          map[int64]*file
	last           *file // the connection that assertions are about
	defaults       tcp.Options
	listenFastOpen bool // without the option
	pending        []*blocked
	cut            tcp.Segmenter
}

// Run runs a script on a Mux of its own. Its errors are of type *Error. What is sent and what arrives is
// written to log, where that is not nil.
func (s *Script) Run(log io.Writer) error {
	r := &run{
		script: s, now: begin, wake: clock.Never, log: log, mtu: defaultMTU, files: map[int64]*file{},
		local: wire.AddrFrom4([4]byte{198, 18, 0, 1}), remote: wire.AddrFrom4([4]byte{198, 18, 0, 2}), localPort: listenPort, remotePort: peerPort,
	}
	if s.Options.IPv6 {
		r.local, r.remote = wire.Addr{0x20, 1, 0xd, 0xb8, 15: 1}, wire.Addr{0x20, 1, 0xd, 0xb8, 15: 2}
	}
	if r.upstream = s.Options.Upstream; r.upstream {
		r.defaults.MaxPacing = tcp.Unpaced
		r.exactTimes = s.Options.Timestamps
	}
	if s.Options.MTU != 0 {
		r.mtu = s.Options.MTU
	}
	r.linkMTU = r.mtu
	cfg := tcp.Config{Output: r, Now: begin, Budget: s.Options.Memory, Seed: s.Options.Seed, Secret: [32]byte{byte(s.Options.Seed), 1}}
	if s.Options.Cookies {
		cfg.MaxHalfOpen = -1
	}
	r.mux = tcp.NewMux(cfg)
	return r.all()
}

// all runs the events, and sees to it that nothing was sent that nobody expected.
func (r *run) all() error {
	before := begin
	for i := range r.script.Events {
		e := &r.script.Events[i]
		at, err := r.event(e, before)
		if err != nil {
			return r.wrong(e, "%s", err)
		}
		before = at
	}
	if len(r.script.Events) == 0 {
		return nil
	}
	e := &r.script.Events[len(r.script.Events)-1]
	for _, p := range r.pending {
		if err := r.await(p); err != nil {
			return r.wrong(p.event, "%s", err)
		}
	}
	if err := r.poll(); err != nil {
		return r.wrong(e, "%s", err)
	}
	if len(r.out) > 0 && !r.script.Options.Upstream {
		return r.wrong(e, "after it %s was sent, which nobody expects", r.describe(&r.out[0]))
	}
	return nil
}

func (r *run) wrong(e *Event, format string, args ...any) *Error {
	return &Error{r.script.Name, e.Pos, fmt.Sprintf("%s: ", seconds(r.now)) + fmt.Sprintf(format, args...)}
}

// tolerance is how early or late packets may be.
func (r *run) tolerance() time.Duration {
	if t := r.script.Options.Tolerance; t != 0 {
		return t
	}
	return defaultTolerance
}

// event lets an event happen, and returns the time that the next one counts from.
func (r *run) event(e *Event, before clock.Time) (clock.Time, error) {
	base := begin
	if e.When.Kind == Relative {
		base = before
	}
	from, to := base.Add(e.When.From), base.Add(e.When.To)
	if k, ok := e.Do.(*Packet); ok && !k.In {
		if e.When.Kind == Any {
			from, to = 0, r.now.Add(patience)
		}
		at, err := r.expect(k, from, to)
		if e.When.Kind != Any && e.When.From == e.When.To {
			at = from // small errors do not add up
		}
		return at, err
	}
	if from < r.now.Add(-r.tolerance()) {
		return 0, fmt.Errorf("it is too late for what should be at %s", seconds(from))
	}
	if err := r.until(from); err != nil {
		return 0, err
	}
	var err error
	switch do := e.Do.(type) {
	case *Packet:
		r.arrive(do)
	case *ICMP:
		r.icmp(do)
	case *Call:
		err = r.call(e, do, base)
	case *Assertion:
		if err = r.poll(); err == nil { // times in Info are those of the last Poll
			err = r.assert(do)
		}
	case *Command:
		err = r.command(do)
	}
	return from, err
}

// until lets time pass. What blocks is tried again whenever something has happened.
func (r *run) until(t clock.Time) error {
	for {
		if err := r.poll(); err != nil {
			return err
		}
		if r.wake > t {
			break
		}
		r.now = max(r.now, r.wake)
	}
	r.now = max(r.now, t)
	return nil
}

// poll polls the Mux until it has nothing more to do now.
func (r *run) poll() error {
	for range maxPolls {
		r.wake = r.mux.Poll(r.now)
		again, err := r.retry()
		if err != nil {
			return err
		}
		if !again && r.wake > r.now {
			return nil
		}
	}
	return fmt.Errorf("the Mux asks to be polled for ever")
}

// expect waits for a segment between two times and compares it.
func (r *run) expect(k *Packet, from, to clock.Time) (clock.Time, error) {
	limit := to.Add(r.tolerance())
	if err := r.poll(); err != nil {
		return 0, err
	}
	for len(r.out) == 0 && r.wake <= limit {
		if err := r.until(r.wake); err != nil {
			return 0, err
		}
	}
	if len(r.out) == 0 {
		r.now = max(r.now, limit)
		return 0, fmt.Errorf("nothing was sent")
	}
	g := r.take(k)
	if diff := r.compare(k, &g, uint32(r.tolerance()/time.Millisecond)); diff != "" {
		return 0, fmt.Errorf("%s; sent was %s", diff, r.describe(&g))
	}
	if g.at < from.Add(-r.tolerance()) || g.at > limit {
		return 0, fmt.Errorf("sent at %s, not at %s: %s", seconds(g.at), seconds(from), r.describe(&g))
	}
	return g.at, nil
}

// take removes the segment that was sent first. In an upstream script it is joined with those that continue it, as
// far as the expected one goes: where a kernel hands its NIC one large segment, several of the MSS are sent here.
func (r *run) take(k *Packet) sent {
	g := r.out[0]
	r.out = r.out[1:]
	for r.script.Options.Upstream && len(r.out) > 0 && uint32(len(g.seg.Payload())) < k.Len {
		next := r.out[0].seg
		if len(g.seg.Payload()) == 0 || next.Seq() != g.seg.Seq()+uint32(len(g.seg.Payload())) || next.Ack() != g.seg.Ack() {
			break
		}
		g.seg = append(slices.Clip(g.seg), next.Payload()...)
		g.seg[13] |= byte(next.Flags())
		r.out = r.out[1:]
	}
	return g
}

// learnCookie asks for a Fast Open cookie where a script of packetdrill takes the one that Linux derives from its key as known.
func (r *run) learnCookie(k *Packet) {
	if r.cookie != nil || !slices.ContainsFunc(k.Options, func(o Option) bool { return o.Last }) {
		return
	}
	before, port, saved := len(r.out), r.remotePort, r.translation
	r.remotePort = peerPort - 1
	r.arrive(&Packet{In: true, Flags: wire.FlagSYN, Window: 1000, Options: []Option{{Kind: wire.TCPOptFastOpen}}})
	r.wake = r.mux.Poll(r.now)
	if len(r.out) > before {
		r.arrive(&Packet{In: true, Flags: wire.FlagRST, Seq: 1})
	}
	r.out, r.remotePort, r.translation = r.out[:before], port, saved
}

// arrive has a segment arrive.
func (r *run) arrive(k *Packet) {
	if r.upstream {
		r.learnCookie(k)
	}
	if k.Flags.Has(wire.FlagSYN) {
		r.peerISS = k.Seq
	}
	ack := k.Ack
	if r.hasISS {
		ack += r.iss
	}
	seq := k.Seq
	if !k.Flags.Has(wire.FlagSYN) {
		seq += r.peer()
	}
	b := wire.AppendTCP(nil, &wire.TCPHeader{
		SrcPort: r.remotePort, DstPort: r.localPort, Seq: seq, Ack: ack, Flags: k.Flags,
		Window: k.Window, Urgent: k.Urgent, Options: k.shift(r.iss, r.cookie).encode(r.ts),
	})
	at := len(b)
	b = append(b, make([]byte, k.Len)...)
	payload := seq - r.peerISS
	if k.Flags.Has(wire.FlagSYN) {
		payload++
	}
	fill(b[at:], payload)
	seg := wire.TCP(b)
	seg.SetAE(k.AE)
	t := r.tuple()
	var m tcp.Coalescer
	m.Begin(seg, k.ECN)
	atMark := r.last != nil && r.last.atMark()
	v := r.mux.Input(r.now, &t, &m.Segment)
	if atMark && !r.last.atMark() {
		r.last.got++ // a later urgent byte has taken the place of one that will not be read
	}
	if r.log != nil {
		fmt.Fprintf(r.log, "%s < %s %d:%d(%d) ack %d: %v\n", seconds(r.now), flagString(k.Flags, k.AE), k.Seq, k.Seq+k.Len, k.Len, k.Ack, v)
	}
	r.wake = r.now
}

// tuple is the connection that the peer speaks to.
func (r *run) tuple() wire.Tuple {
	return wire.Tuple{Local: r.local, Remote: r.remote, LocalPort: r.localPort, RemotePort: r.remotePort}
}

// icmp has an ICMP error arrive.
func (r *run) icmp(m *ICMP) {
	t := r.tuple()
	e := ip.ICMPError{Kind: m.Kind, MTU: m.MTU, Proto: wire.ProtoTCP, Tuple: t, From: r.remote}
	e.Quote = wire.AppendTCP(nil, &wire.TCPHeader{SrcPort: t.LocalPort, DstPort: t.RemotePort, Seq: m.Seq + r.iss})
	r.inputICMP(&t, &e)
	r.wake = r.now
}

// Send implements tcp.Output.
func (r *run) Send(now clock.Time, o *tcp.Outgoing) bool {
	for r.cut.Begin(o, 0); r.cut.Size() > 0; {
		b := make([]byte, r.cut.Size())
		r.cut.Next(b)
		g := sent{now, b, o.ECN, o.TOS | uint8(o.ECN)}
		r.keepCookie(g.seg)
		r.localPort, r.remotePort = o.Tuple.LocalPort, o.Tuple.RemotePort
		r.out = append(r.out, g)
		if r.log != nil {
			tr := r.translation
			if !tr.hasISS {
				tr.iss = g.seg.Seq()
			}
			fmt.Fprintf(r.log, "%s > %s\n", seconds(now), tr.describe(&g))
		}
	}
	return true
}

// MTU implements tcp.Output.
func (r *run) MTU(*wire.Tuple) int { return r.mtu }

// LinkMTU implements tcp.Output.
func (r *run) LinkMTU(*wire.Tuple) int { return r.linkMTU }

// Offload implements tcp.Output.
func (r *run) Offload() int { return 65_535 - 100 }

// keepCookie notes the cookie that a SYN-ACK brings.
func (r *run) keepCookie(s wire.TCP) {
	var o wire.TCPOptions
	if s.ParseOptions(&o); o.HasFastOpen && len(o.FastOpen) > 0 {
		r.cookie = slices.Clone(o.FastOpen)
	}
}

// drop removes a call that no longer blocks.
func (r *run) drop(b *blocked) {
	r.pending = slices.DeleteFunc(r.pending, func(x *blocked) bool { return x == b })
}
