// Package inspect runs inspection rules over packets and flows: it decodes frames, looks into tunnels, puts
// fragments and TCP streams together, splits application protocols into the buffers that rules name (packages applayer and
// httpmsg), searches all contents of all rules at once (gpukern/literal) and evaluates the rules whose contents were found.
//
// Frames come from the caller, alerts go to a function of the caller. The package decides nothing about packets:
// an Alert says which rule matched, and its action.
//
// Nothing hides a rule by volume: matches of contents are not limited, alerts of a packet are not limited, and a
// rule whose content was found stays a candidate for as long as the stream's window has that content. What is
// bounded is memory (Config) and the steps of one evaluation, and Stats counts where a bound was met.
//
// The package is pure: time comes with the packets. An Engine belongs to one caller.
package inspect

import (
	"cmp"

	"github.com/millrace/millrace/filter/inspect/applayer"
	"github.com/millrace/millrace/filter/reassembly"
	"github.com/millrace/millrace/filter/signature"
	"github.com/millrace/millrace/gpukern/literal"
)

// Config bounds an Engine. The zero value stands for the defaults.
type Config struct {
	MaxFlows    int  // flows at a time; 0 is 65536. The one that is quiet for longest makes room
	MemoryBytes int  // of all streams and what their parsers hold; 0 is 256 MiB
	KeepBytes   int  // of each direction of a stream; 0 is reassembly.DefaultKeep
	BodyBytes   int  // of each body of HTTP that is inspected; 0 is 100 KiB
	Midstream   bool // TCP flows without a handshake are put together too, and count as established

	// Inline reports that the receiver gets a packet only after the engine has seen it, and not where the caller follows
	// Result.Outcome. See inline.go.
	Inline bool

	// Block makes a rule that drops block its flow: Result.Outcome of all that follows is Drop.
	Block bool

	// DropConflicts makes bytes that contradict earlier ones (an anomaly) drop their packet, but not their flow.
	DropConflicts bool

	Urgent Urgent // urgent data of TCP

	// Refuse defines what happens at a bound of memory with Inline: the packet is not taken (Result.Bound), and what is known of
	// other flows stays. Without it flows and bytes are given up, and the packet is inspected as far as possible.
	Refuse bool

	// OnMatch is called for each match of a rule that tests hold for, alerts that a threshold keeps back included. It may be nil.
	OnMatch func(*signature.Rule)

	// For engines that share packets out by Shard: bits of addresses that they share, nil for those of one engine, and whether
	// alerts come without a look at thresholds and detection filters, which the caller applies to those of all engines.
	HostBits        *HostBits
	LeaveThresholds bool
}

// defaultMemory is the default of Config.MemoryBytes.
const defaultMemory = 256 << 20

// maxFlows returns the bound of flows.
func (c *Config) maxFlows() int {
	if c.MaxFlows > 0 {
		return c.MaxFlows
	}
	return 1 << 16
}

// bodyBytes returns the bound of a body or file.
func (c *Config) bodyBytes() int {
	if c.BodyBytes > 0 {
		return c.BodyBytes
	}
	return 100 << 10
}

// Stats counts what an Engine has seen.
type Stats struct {
	Packets    uint64
	Messages   uint64 // calls about messages of a gateway
	Bytes      uint64
	Flows      uint64
	Evicted    uint64 // flows that ended because there were too many
	Fragments  uint64
	Malformed  uint64 // packets that were not decoded
	Gaps       uint64 // places where bytes of a stream were missing
	Full       uint64 // segments that were dropped for memory
	Taken      uint64 // payloads that a packet engine had searched (Searched)
	Overflows  uint64 // payloads with more matches than a packet engine lists, which were searched again without a bound
	Evaluated  uint64 // rules that were evaluated
	GaveUp     uint64 // evaluations that ended at the bound of their steps
	Suppressed uint64 // matches that a threshold kept back
	Blocked    uint64 // flows that a rule or an anomaly has blocked
	Bounds     uint64 // packets that met a bound: not all of them was inspected
	Postponed  uint64 // segments at which rules were left for later, since they would have taken too much work
	Work       uint64 // steps of evaluations: those of expressions, 4 for each test, 1 for each 16 bytes that are searched
	Shortened  uint64 // streams of which less was kept, for memory
	SetsFull   uint64 // values that were not added to a dataset, for memory
}

// Engine inspects packets.
type Engine struct {
	rules   *Rules
	cfg     Config
	onAlert func(*Alert)

	now     int64
	packet  uint64
	stats   Stats
	budget  reassembly.Budget
	streams reassembly.Config

	flows          flowTable
	oldest, newest *flow
	recent         [recentFlows]*flow // by number of the caller's connection
	frags          map[fragKey]*fragments
	transfers      applayer.Transfers // data connections of FTP that are expected
	fragsSwept     int64              // when sweepFragments has looked at them
	hostBits       *HostBits
	thresholds     *Thresholds

	packets       [maxDepth + 1]packet // by how many tunnels are around them
	searched      Search               // of the frame that is inspected
	searchedFrame []byte

	eval      evaluator
	found     []literal.Occurrence
	inPayload []literal.Occurrence // in the payload of the packet that is inspected
	marks     []uint32             // by rule: the round in which it became a candidate
	hits      []uint64             // by rule: the last decoded packet whose stream it has matched
	serial    uint64               // of decoded packets
	round     uint32
	cands     []candidate
	tx        tx
	host      host

	headers map[uint64]*headerList // by hash: of the present rules
	ids     []uint32               // scratch

	relieved int64 // when relieve has found nothing to give back

	in     Input  // the packet that is inspected
	result Result // of it, or of a message

	conns    int         // connections that a gateway hands over (exchange.go)
	conn     *Conn       // of the message that is inspected; nil for packets
	exchange *Exchange   // the same; nil for a ClientHello
	bodies   bodyBuffers // of exchanges

	ending bool // what is found is about bytes of a flow that ends, not about the packet
}

// New returns an engine that calls onAlert for each match. The Alert is borrowed.
func New(r *Rules, cfg Config, onAlert func(*Alert)) *Engine {
	e := &Engine{
		rules: r, cfg: cfg, onAlert: onAlert, frags: map[fragKey]*fragments{},
		hostBits: cmp.Or(cfg.HostBits, NewHostBits(nil)), thresholds: NewThresholds(), marks: make([]uint32, len(r.rules)), hits: make([]uint64, len(r.rules)),
	}
	e.headers, e.host.e = map[uint64]*headerList{}, e
	e.eval.sets = sets{loaded: r.sets, added: map[string]*addedSet{}, charge: e.chargeSet}
	e.streams.Budget = &e.budget
	e.Swap(r, cfg)
	e.flows.grow()
	return e
}

// Stats returns the counters.
func (e *Engine) Stats() Stats {
	s := e.stats
	s.GaveUp, s.Work, s.SetsFull = e.eval.gaveUp, uint64(e.eval.work), e.eval.sets.full
	return s
}

// Packet inspects an Ethernet frame, which it borrows. now is its time in nanoseconds, from any begin.
func (e *Engine) Packet(now int64, frame []byte) { e.Inspect(&Input{Now: now, Frame: frame}) }

// Flush ends all flows: what is incomplete is inspected as far as it came. Of packets that lack fragments nothing is, but
// for the headers, which rules have seen.
func (e *Engine) Flush() {
	e.packet = 0
	for k, f := range e.frags {
		e.forget(k, f)
	}
	for e.oldest != nil {
		e.end(e.oldest)
	}
}

// inspect evaluates rules on one decoded packet.
func (e *Engine) inspect(p *packet) {
	gaveUp := e.eval.gaveUp
	e.evaluate(p)
	if e.eval.gaveUp != gaveUp {
		e.giveUp(p.flow)
	}
}

// evaluate finds the flow of a packet, and evaluates rules in the order in which they may depend on each other: those of the stream,
// which a segment continues, then those on addresses, on the packet, and on the message in a datagram.
func (e *Engine) evaluate(p *packet) {
	e.serial++
	e.find(p)
	if p.hasL4 || p.proto != 0 {
		f := e.flowOf(p)
		if f == nil {
			e.bound()
			return
		}
		if f.blocked {
			e.release(f)
			e.decide(Drop)
			e.result.Blocked = true
			return
		}
		if p.tcp != nil {
			if e.refusesUrgent(p) {
				return
			}
			e.segment(p)
		}
		p.stateOK = f.established()
	}
	if p.tcp == nil && p.flow != nil {
		e.recogniseDatagram(p)
	}
	e.addresses(p)
	e.single(p)
	if p.tcp == nil && p.flow != nil {
		e.datagram(p)
	}
}

// addresses evaluates the rules that are about addresses only: once for a direction of a flow. After a swap of the rules
// those that are new are evaluated.
func (e *Engine) addresses(p *packet) {
	done := uint32(0) // the rules of this generation and before
	if f := p.flow; f != nil {
		side := signature.SideOf(p.dir)
		if done = f.ipDone[side]; done == e.rules.generation {
			return
		}
		f.ipDone[side] = e.rules.generation
	}
	for _, list := range [][]*rule{e.rules.ips.src.at(p.src), e.rules.ips.dst.at(p.dst), e.rules.ips.any} {
		for _, q := range list {
			if q.since > done && e.header(q, p) {
				e.matched(q, p, p.payload)
			}
		}
	}
}

// single evaluates the rules of single packets.
func (e *Engine) single(p *packet) {
	e.begin()
	for _, m := range e.inPayload {
		for _, q := range e.rules.payloads.packet[m.Rule] {
			e.add(q, 0)
		}
	}
	if !p.added && len(p.payload) > 0 { // no stream will show these bytes to the stream's rules
		e.addStream(e.inPayload, 0)
		e.unsearched(inStreams, p)
	}
	e.unsearched(inPackets, p)
	if p.added {
		e.unsearched(inSegments, p)
	}
	for _, c := range e.ordered() {
		q := c.q
		if q.scope == scopeStream && (p.added && !q.packet || e.hits[q.id] == e.serial) || q.Flow.OnlyStream || q.Protocol.Stream {
			continue
		}
		if e.admits(q, p) && e.payload(q, p, p.payload, 0) {
			e.matched(q, p, p.payload)
		}
	}
}

// header reports whether protocol, addresses and ports of a rule are those of a packet.
func (e *Engine) header(q *rule, p *packet) bool {
	if q.Protocol.IP&p.bit == 0 || q.Protocol.V4 && p.v6 || q.Protocol.V6 && !p.v6 {
		return false
	}
	forward := q.Src.Contains(p.src) && q.Dst.Contains(p.dst) && e.ports(q, p, p.srcPort, p.dstPort)
	if forward || !q.Both {
		return forward
	}
	return q.Src.Contains(p.dst) && q.Dst.Contains(p.src) && e.ports(q, p, p.dstPort, p.srcPort)
}

// ports reports whether ports are those of a rule. A protocol without ports matches only rules on any.
func (e *Engine) ports(q *rule, p *packet, src, dst uint16) bool {
	if q.SrcPorts.Any() && q.DstPorts.Any() {
		return true
	}
	return p.bit&(signature.TCP|signature.UDP|signature.SCTP) != 0 && p.hasL4 && q.SrcPorts.Contains(src) && q.DstPorts.Contains(dst)
}

// admits reports whether all of a rule but its buffers holds for a packet.
func (e *Engine) admits(q *rule, p *packet) bool {
	e.stats.Evaluated++
	if e.excepts(q.Rule) || !e.header(q, p) {
		return false
	}
	f := &q.Flow
	if p.flow == nil && (q.app != signature.AppAny || len(q.AppIs) > 0 || f.Dir != 0 || f.Established) {
		return false
	}
	switch {
	case f.Dir != 0 && f.Dir != p.dir,
		f.Established && !p.stateOK,
		f.NotEstablished && p.stateOK,
		f.OnlyFrag && !p.joined,
		f.NoFrag && p.joined,
		q.app != signature.AppAny && !q.about(p.flow.app):
		return false
	}
	for i := range q.AppIs {
		if !q.AppIs[i].Has(p.flow.known()) || p.tcp != nil && !p.flow.appFinal {
			return false
		}
	}
	for i := range q.Packet {
		if !e.packetTest(p, &q.Packet[i]) {
			return false
		}
	}
	return e.bitsHold(q, p) && countersHold(q, p)
}

// payload evaluates a rule whose parts are all of the payload.
func (e *Engine) payload(q *rule, pkt *packet, b []byte, first int) bool {
	for i := range q.parts {
		p := &q.parts[i]
		text, base := b, first
		if p.Buffer != signature.Payload {
			text, base = e.ofPacket(p.Buffer, pkt), 0
		}
		if len(p.Transforms) > 0 {
			text, base = transformed(p.Transforms, text), 0
		}
		if !e.eval.match(p, text, base) {
			return false
		}
	}
	return true
}

// ofPacket returns a buffer that no parser fills, but for the payload.
func (e *Engine) ofPacket(b signature.Buffer, p *packet) []byte {
	switch b {
	case signature.IPSource:
		return p.src.Unmap().AsSlice()
	case signature.IPDestination:
		return p.dst.Unmap().AsSlice()
	}
	return e.eval.decoded
}
