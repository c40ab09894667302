package inspect

import (
	"net/netip"

	"github.com/millrace/millrace/filter/reassembly"
	"github.com/millrace/millrace/filter/signature"
	"github.com/millrace/millrace/wire"
)

// flowKey names a flow: the lower end first.
type flowKey struct {
	a, b         netip.Addr
	aPort, bPort uint16
	proto        uint8
	depth        uint8
}

// keyOf returns the key of the flow of p, and whether p comes from the end that is first in it.
func keyOf(p *packet) (k flowKey, fromFirst bool) {
	k = flowKey{p.src, p.dst, p.srcPort, p.dstPort, p.proto, uint8(p.depth)}
	if c := p.src.Compare(p.dst); c > 0 || c == 0 && p.srcPort > p.dstPort {
		k.a, k.b, k.aPort, k.bPort = k.b, k.a, k.bPort, k.aPort
		return k, false
	}
	return k, true
}

// flow is a conversation of two ends.
type flow struct {
	// What each packet needs comes first, in two lines of memory.
	key         flowKey
	last        int64 // when its last packet came
	linked      int64 // last, when it got its place among the others
	state       tcpState
	app         signature.App
	clientFirst bool      // the client is the end that is first in the key
	appFinal    bool      // app will not change any more
	passed      bool      // a pass rule has matched
	blocked     bool      // a rule that drops has matched: nothing of it passes any more
	empty       [2]uint8  // by direction, bits of the lists of Rules.unsearched in which no rule has its header, of emptyOf
	ipDone      [2]uint32 // generation of the rules on addresses that a direction was evaluated by
	emptyOf     uint32    // generation of those rules
	packets     [2]uint64 // by direction: client, server

	id    uint64
	hash  uint64 // of the key
	conn  uint32 // number of the caller's connection that had it last; 0: none
	older *flow
	newer *flow
	bits  map[int]bool

	counters map[int]uint32 // of flowint

	proto *protocol // the parsers of app; nil where there are none
	held  int       // bytes of the budget that the parsers have
	sides [2]side
}

// tcpState is as much of a connection's state as rules ask for. It only grows within a flow: a SYN that is sent again does not
// undo a handshake.
type tcpState uint8

const (
	tcpNone tcpState = iota // no handshake was seen
	tcpSYN
	tcpSYNACK
	tcpEstablished
	tcpClosed
)

// side is one direction of a flow.
type side struct {
	stream   reassembly.Stream
	fin      bool
	broken   bool // bytes are missing: parsers have stopped
	unparsed int  // bytes of the window that the parsers have not had
	pending  []pendingRule
	fired    map[ruleKey]uint64 // by rule: how far the stream was when it matched last

	spent  int    // work beyond what the direction's bytes pay for: see afford
	resume uint32 // the rule to begin with, since work for it was missing before

	unsearched [lists]headerRules // the rules of Rules.unsearched that this direction may match
}

// headerRules are rules whose header is that of a direction of a flow.
type headerRules struct {
	gen  uint32      // generation of the rules that they are of; 0 until they are asked for
	list *headerList // nil for none
}

// pendingRule is a rule one of whose contents was found, and that did not match yet: what is missing may come in
// a later segment.
type pendingRule struct {
	ruleRef
	at uint64 // the end of that content in the stream
}

// sequenced returns how many sequence numbers of a direction have arrived in order, that of its SYN included: what
// stream_size compares.
func (f *flow) sequenced(side int) uint64 {
	s := &f.sides[side].stream
	if !s.Started() {
		return 0
	}
	return 1 + s.Next()
}

// established reports whether both ends take part: after TCP's handshake, or once both have sent.
func (f *flow) established() bool {
	if f.key.proto == wire.ProtoTCP {
		return f.state >= tcpEstablished
	}
	return f.packets[0] > 0 && f.packets[1] > 0
}

// known returns the application protocol of a flow, AppUnknown while none is recognised.
func (f *flow) known() signature.App {
	if f.app == signature.AppAny {
		return signature.AppUnknown
	}
	return f.app
}

// Times after which a flow that is quiet ends, in nanoseconds. Those of flows without an answer are short: a scan opens one for
// each probe, and would else evict the flows of connections.
const (
	timeoutNew         = 60 * 1e9
	timeoutNewDatagram = 30 * 1e9
	timeoutEstablished = 600 * 1e9
	timeoutDatagram    = 300 * 1e9
	timeoutClosed      = 60 * 1e9
)

// timeout returns the time after which the flow ends if it is quiet.
func (f *flow) timeout() int64 {
	switch {
	case f.key.proto != wire.ProtoTCP && f.established():
		return timeoutDatagram
	case f.key.proto != wire.ProtoTCP:
		return timeoutNewDatagram
	case f.state == tcpEstablished:
		return timeoutEstablished
	case f.state == tcpClosed:
		return timeoutClosed
	}
	return timeoutNew
}

// flowOf returns the flow of p, made where there is none, and sets p's direction. It returns nil where there are too many.
func (e *Engine) flowOf(p *packet) *flow {
	k, first := keyOf(p)
	f, h := e.recentFlow(p, &k), uint64(0)
	if f == nil {
		h = e.flows.hash(&k)
		f = e.flows.find(&k, h)
	} else {
		h = f.hash
	}
	if f != nil && (e.now-f.last > f.timeout() || e.reopens(f, p)) {
		e.end(f)
		f = nil
	}
	if f == nil {
		if e.flows.n >= e.cfg.maxFlows() && !e.evict() {
			return nil
		}
		e.stats.Flows++
		f = &flow{key: k, id: e.flowID(p.depth), clientFirst: first}
		if dir := e.knownDir(p); dir != 0 {
			f.clientFirst = first == (dir == signature.ToServer)
		} else if p.tcp != nil && p.tcp.Flags().Has(wire.FlagSYN|wire.FlagACK) {
			f.clientFirst = !first // the answer to a SYN that was not captured
		}
		e.isTransfer(f, p)
		e.flows.insert(f, h)
		f.last = e.now
		e.relink(f)
	} else if f.last = e.now; e.now-f.linked > relinkAfter {
		e.unlink(f)
		e.relink(f)
	}
	e.noteRecent(p, f)
	p.flow, p.dir = f, signature.ToClient
	if first == f.clientFirst {
		p.dir = signature.ToServer
	}
	f.packets[signature.SideOf(p.dir)]++
	return f
}

// flowID returns the number of a flow that begins. Packets that the caller has numbered number the flows too, so that engines that
// share a capture out give a flow the number that one engine does: a packet begins at most one flow at each depth of tunnels.
func (e *Engine) flowID(depth int) uint64 {
	if e.in.Number == 0 {
		return e.stats.Flows
	}
	return e.in.Number*(maxDepth+1) + uint64(depth)
}

// reopens reports whether p is the SYN of another connection on the ports of a closed one.
func (e *Engine) reopens(f *flow, p *packet) bool {
	if e.knownDir(p) != 0 { // the caller tracks the connection: a forged RST and SYN do not end it
		return e.in.Fresh
	}
	if p.tcp == nil || p.tcp.Flags()&(wire.FlagSYN|wire.FlagACK) != wire.FlagSYN {
		return false
	}
	return f.state == tcpClosed || f.state == tcpNone
}

// relinkAfter is the time that a flow keeps its place among the others although it has packets, in nanoseconds: to move it at
// each would touch its neighbours.
const relinkAfter = 1e9

// unlink and relink keep flows nearly in the order of their last packets.
func (e *Engine) unlink(f *flow) {
	if f.older != nil {
		f.older.newer = f.newer
	} else {
		e.oldest = f.newer
	}
	if f.newer != nil {
		f.newer.older = f.older
	} else {
		e.newest = f.older
	}
	f.older, f.newer = nil, nil
}

func (e *Engine) relink(f *flow) {
	f.linked = f.last
	f.older = e.newest
	if e.newest != nil {
		e.newest.newer = f
	} else {
		e.oldest = f
	}
	e.newest = f
}

// evict makes room for a flow. It reports false where there is none.
func (e *Engine) evict() bool {
	for f := e.oldest; f.last > f.linked; f = e.oldest {
		e.unlink(f)
		e.relink(f)
	}
	if e.cfg.Refuse && e.now-e.oldest.last <= e.oldest.timeout() {
		return false
	}
	e.stats.Evicted++
	e.end(e.oldest)
	return true
}

// conclude inspects what a flow still holds, of which the bytes have left.
func (e *Engine) conclude(f *flow) {
	was := e.ending
	e.ending = true
	e.finish(f)
	e.ending = was
}

// end inspects what a flow still holds, and forgets it.
func (e *Engine) end(f *flow) {
	e.conclude(f)
	for i := range f.sides {
		f.sides[i].stream.Close()
	}
	e.dropParsers(f)
	e.budget.Charge(-f.held)
	for i := range f.sides {
		for k := range f.sides[i].unsearched {
			e.forgetHeaders(&f.sides[i].unsearched[k])
		}
	}
	e.unlink(f)
	e.flows.remove(f)
	e.forgetRecent(f)
}

// packetOf returns an empty packet of a flow in a direction, for what is found without one.
func packetOf(f *flow, d signature.Direction) *packet {
	p := inFlow(f, d)
	return &p
}

// inFlow is packetOf for callers that have a place for the packet.
func inFlow(f *flow, d signature.Direction) packet {
	p := packet{
		src: f.key.a, dst: f.key.b, srcPort: f.key.aPort, dstPort: f.key.bPort, proto: f.key.proto, flow: f, dir: d,
		v6: !f.key.a.Is4In6(), bit: bitOf(f.key.proto), whole: true, hasL4: true, stateOK: f.established(), depth: int(f.key.depth),
	}
	if (d == signature.ToServer) != f.clientFirst {
		p.src, p.dst, p.srcPort, p.dstPort = p.dst, p.src, p.dstPort, p.srcPort
	}
	return p
}
