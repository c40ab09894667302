package inspect

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/millrace/millrace/filter/inspect/ascii"
	"github.com/millrace/millrace/filter/signature"
	"github.com/millrace/millrace/gpukern/literal"
)

// scope says on what a rule is evaluated.
type scope uint8

const (
	scopeIP     scope = iota // addresses only: once for a direction of a flow
	scopePacket              // each packet
	scopeStream              // bytes of a TCP stream, or packets of other protocols
	scopeTx                  // requests and responses of an application protocol
	scopeKinds
)

// rule is a signature.Rule with what Compile found out.
type rule struct {
	*signature.Rule
	id     uint32 // its place in Rules.rules
	key    ruleKey
	gen    uint32 // generation of the rules that it is one of
	since  uint32 // generation in which it came, as it is
	text   uint64 // hash of its text, for ruleRef
	body   bodyUse
	named  bool // it is about the name and the data of one file
	scope  scope
	packet bool // a stream's rule that is evaluated on single packets too
	app    signature.App
	dir    signature.Direction
	parts  []part
	bits   []bit // conditions first

	counters []counter

	fixed   []byte // a content of the payload that has one place, for a look before the rule is evaluated; nil where there is none
	fixedAt int
}

// Rules are compiled rules, immutable and shared by engines.
type Rules struct {
	rules      []*rule
	payloads   payloads                   // contents of scopePacket and scopeStream
	groups     []*group                   // contents of scopeTx, by what they search
	always     [scopeKinds][]*rule        // no content to search for: evaluated every time
	ips        *ranges                    // rules of scopeIP
	unsearched [lists]*lookup             // always, of those that are evaluated on packets and on streams
	txs        [signature.Buffers][]*rule // always, of scopeTx, by a buffer of theirs
	names      nameTable                  // numbers of bits and counters: the same in the generations that follow

	sets     map[string]valueSet // of datasets with files, by their names
	setNames map[string]bool     // of all datasets

	asksForNames bool // some rule has file.name

	asksForApps bool // some rule has app-layer-protocol

	bodies [2]bool // by direction: some rule of messages has a buffer that grows with the body
	hello  bool    // some rule is about the ClientHello

	generation uint32 // from 1
	byKey      map[ruleKey]*rule
}

// ruleKey names a rule in all generations.
type ruleKey struct{ gid, sid uint32 }

// Len returns how many rules there are, and how many of them have no content that can be searched for.
func (r *Rules) Len() (all, unfiltered int) {
	for _, a := range r.always {
		unfiltered += len(a)
	}
	return len(r.rules), unfiltered
}

// All lists the rules, in the order in which they are evaluated.
func (r *Rules) All() iter.Seq[*signature.Rule] {
	return func(yield func(*signature.Rule) bool) {
		for _, q := range r.rules {
			if !yield(q.Rule) {
				return
			}
		}
	}
}

// Unfiltered returns the rules that have no content of 3 bytes or more, and are evaluated on all that their
// header admits.
func (r *Rules) Unfiltered() (list []*signature.Rule) {
	for _, a := range r.always {
		for _, q := range a {
			list = append(list, q.Rule)
		}
	}
	return list
}

// group is the rules whose contents are searched in the same bytes at once.
type group struct {
	buffer     signature.Buffer
	dir        signature.Direction // of its rules: messages of the other one are not searched
	grows      bool                // these bytes are those of a body, which is searched as it grows
	transforms []signature.Transform
	patterns   []literal.Pattern
	rules      [][]*rule // by pattern, counted from 1
	index      map[string]uint32
	set        *literal.Set
}

// Compile orders rules and builds the tables to search their contents.
func Compile(list []*signature.Rule) (*Rules, error) { return CompileNext(list, nil) }

// CompileNext is Compile for rules that follow others in an engine (Engine.Swap). before may be nil.
func CompileNext(list []*signature.Rule, before *Rules) (*Rules, error) {
	r := &Rules{sets: map[string]valueSet{}, setNames: map[string]bool{}, generation: 1, byKey: make(map[ruleKey]*rule, len(list))}
	if before != nil {
		r.generation = before.generation + 1
	}
	names := newNumbering(before)
	for _, s := range list {
		q := newRule(s, names)
		if o := r.byKey[q.key]; o != nil {
			return nil, &DuplicateError{s, o.Rule}
		}
		q.gen, q.since = r.generation, r.generation
		if before != nil {
			if old := before.byKey[q.key]; old != nil && old.Text == q.Text {
				q.since = old.since
			}
		}
		r.byKey[q.key] = q
		r.asksForApps = r.asksForApps || len(q.AppIs) > 0
		r.asksForNames = r.asksForNames || q.uses(signature.FileName)
		r.rules = append(r.rules, q)
		r.noteMessages(q)
		r.loadSets(q)
	}
	r.names = names.nameTable
	slices.SortStableFunc(r.rules, order)
	for i, q := range r.rules {
		q.id = uint32(i)
		r.place(q)
	}
	r.ips = newRanges(r.always[scopeIP])
	segments := slices.DeleteFunc(slices.Clone(r.always[scopeStream]), func(q *rule) bool { return !q.packet })
	r.unsearched = [lists]*lookup{inPackets: newLookup(r.always[scopePacket]), inStreams: newLookup(r.always[scopeStream]), inSegments: newLookup(segments)}
	for _, q := range r.always[scopeTx] {
		b := q.shownBy()
		r.txs[b] = append(r.txs[b], q)
	}
	errs := []error{r.payloads.compile()}
	for _, g := range r.groups {
		var err error
		if g.set, err = literal.Compile(g.patterns); err != nil {
			errs = append(errs, fmt.Errorf("contents of %v: %w", g.buffer, err))
		}
	}
	return r, errors.Join(errs...)
}

// order puts rules that set bits and counters before those that ask for them, then by priority: a request that sets a bit
// matches a rule that wants it.
func order(a, b *rule) int {
	return cmp.Or(cmp.Compare(a.bitRank(), b.bitRank()), cmp.Compare(actionRank(a), actionRank(b)), cmp.Compare(a.Priority, b.Priority))
}

// bitRank is 0 for a rule that only sets bits, 1 for one that asks and sets, 2 for one that has none, 3 for one
// that only asks.
func (r *rule) bitRank() int {
	sets, asks := false, false
	for _, b := range r.Bits {
		if b.Op > signature.IsNotSet {
			sets = true
		} else {
			asks = true
		}
	}
	for _, c := range r.Counters {
		sets, asks = sets || !c.Op.Condition(), asks || c.Op.Condition()
	}
	switch {
	case sets && !asks:
		return 0
	case sets:
		return 1
	case asks:
		return 3
	}
	return 2
}

// newRule finds out on what a rule is evaluated: the narrowest scope that sees all of what its parts are about.
func newRule(s *signature.Rule, names *nameNumbering) *rule {
	q := &rule{Rule: s, key: ruleKey{s.GID, s.SID}, text: hashOf(s.Text), app: s.Protocol.App, dir: s.Flow.Dir}
	if q.dir == 0 {
		q.dir = signature.BothWays
	}
	if s.FTPBounce {
		q.dir &= signature.ToServer
	}
	onlyPacket, position := needsPacket(s), false
	for i := range s.Parts {
		p := &s.Parts[i]
		q.parts = append(q.parts, newPart(p))
		q.dir &= p.Buffer.Directions()
		if a := p.Buffer.App(); a != signature.AppAny {
			if q.app != signature.AppHTTP2 || a != signature.AppHTTP {
				q.app = a
			}
		}
		if !p.Buffer.OfPacket() {
			q.scope = scopeTx
		}
		for _, t := range p.Tests {
			position = position || t.Content != nil && (t.Content.Offset > 0 || t.Content.Depth > 0 || t.Content.StartsWith)
		}
	}
	slices.SortStableFunc(q.parts, func(a, b part) int { return cmp.Compare(a.rank(), b.rank()) })
	if q.scope != scopeTx {
		switch {
		case s.FTPBounce:
			q.scope = scopeStream
		case len(q.parts) == 0 && onlyAddresses(q):
			q.scope = scopeIP
		case len(q.parts) == 0 || onlyPacket || q.ofHeaders() || s.Protocol.IP&signature.TCP == 0:
			q.scope = scopePacket
		default:
			q.scope = scopeStream
			q.packet = position && !s.Flow.OnlyStream && !s.Protocol.Stream || hasStreamSize(s)
		}
	}
	q.body = bodyUseOf(q)
	q.named = q.uses(signature.FileName) && q.uses(signature.FileData)
	q.fix()
	for i := range s.Bits {
		q.bits = append(q.bits, newBit(&s.Bits[i], names))
	}
	for i := range s.Counters {
		q.counters = append(q.counters, newCounter(&s.Counters[i], names))
	}
	return q
}

// uses reports whether a part is of a buffer.
func (q *rule) uses(b signature.Buffer) bool {
	return slices.ContainsFunc(q.parts, func(p part) bool { return p.Buffer == b })
}

// ofHeaders reports whether all parts are of a packet's headers.
func (q *rule) ofHeaders() bool {
	return !slices.ContainsFunc(q.parts, func(p part) bool { return p.Buffer < signature.IPSource })
}

// shownBy returns a buffer that each message has which the rule may match, for one without a content to search for.
func (q *rule) shownBy() signature.Buffer {
	for i := range q.parts {
		if p := &q.parts[i]; !p.Buffer.OfPacket() && !p.Absent {
			return p.Buffer
		}
	}
	return everyMessage
}

// everyMessage stands for a buffer that every message has.
const everyMessage = signature.Payload

// about reports whether a rule is about flows of an application protocol. Those on HTTP are about all of its versions.
func (q *rule) about(app signature.App) bool {
	return app == q.app || q.app == signature.AppHTTP && app == signature.AppHTTP2 && !q.Protocol.Only
}

// fix finds a content that has one place in the payload: a comparison of it excludes most segments before the rule is evaluated.
func (q *rule) fix() {
	for i := range q.parts {
		if q.parts[i].Buffer != signature.Payload || len(q.parts[i].Transforms) > 0 {
			continue
		}
		for _, t := range q.parts[i].Tests {
			c := t.Content
			if t.Kind != signature.TestContent || c.Not || c.NoCase || c.OffsetVar+c.DepthVar > 0 {
				continue
			}
			if c.StartsWith || c.Depth == len(c.Bytes) {
				q.fixed, q.fixedAt = c.Bytes, c.Offset
				return
			}
		}
	}
}

// mayMatch reports whether a segment has the content that has one place.
func (q *rule) mayMatch(b []byte) bool {
	return q.fixed == nil || len(b) >= q.fixedAt && bytes.HasPrefix(b[q.fixedAt:], q.fixed)
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// needsPacket reports whether a rule is about single packets.
func needsPacket(s *signature.Rule) bool {
	if s.Protocol.Packet || s.Flow.NoStream {
		return true
	}
	return slices.ContainsFunc(s.Packet, func(t signature.PacketTest) bool {
		return t.Field != signature.FieldIPProto && t.Field < signature.FieldStreamClient
	})
}

// hasStreamSize reports whether a rule compares how much a stream has: it holds at some packets, and not at those behind them.
func hasStreamSize(s *signature.Rule) bool {
	return slices.ContainsFunc(s.Packet, func(t signature.PacketTest) bool { return t.Field >= signature.FieldStreamClient })
}

// onlyAddresses reports whether a rule says nothing but protocol and addresses: what holds for one packet of a
// flow holds for all.
func onlyAddresses(q *rule) bool {
	return q.app == signature.AppAny && len(q.AppIs) == 0 && q.SrcPorts.Any() && q.DstPorts.Any() && q.Flow == (signature.Flow{}) &&
		len(q.Packet) == 0 && len(q.Bits) == 0 && len(q.Counters) == 0 && q.Protocol.Name != "tcp-pkt"
}

// place puts a rule where it is found: behind one of its contents, or among those that are always evaluated.
func (r *Rules) place(q *rule) {
	at, c := q.chosen()
	if c == nil || isRun(piece(c)) && q.narrow() {
		r.always[q.scope] = append(r.always[q.scope], q)
		return
	}
	text := piece(c)
	if q.scope == scopeTx {
		r.group(&q.parts[at]).add(text, c.NoCase, q)
		return
	}
	r.payloads.add(q.scope, text, c.NoCase, q)
	if q.packet {
		r.payloads.add(scopePacket, text, c.NoCase, q)
	}
}

// isRun reports whether all bytes of a content are the same: padding has thousands of such.
func isRun(b []byte) bool { return len(b) == bytes.Count(b, b[:1]) }

// narrow reports whether few packets have what the header of a rule wants.
func (q *rule) narrow() bool {
	return q.app != signature.AppAny || !q.Both && q.DstPorts.Count() <= fewPorts || q.Protocol.IP&(signature.TCP|signature.UDP) == 0
}

// chosen returns the content to search for and the part that it is in. The one with the most changes is found in the fewest messages,
// so that the rule is evaluated seldom; fast_pattern of its author comes first.
func (q *rule) chosen() (at int, best *signature.Content) {
	score := 0
	for i := range q.parts {
		b := q.parts[i].Buffer
		if b >= signature.Base64Data || b == signature.Payload && (len(q.parts[i].Transforms) > 0 || q.scope == scopeTx) {
			continue // these bytes are made when the rule is evaluated, or are not searched for a rule of requests
		}
		for j := range q.parts[i].Tests {
			c := q.parts[i].Tests[j].Content
			if q.parts[i].Absent || c == nil || c.Not || len(piece(c)) < literal.MinLen {
				continue
			}
			n := 2 * changes(piece(c))
			if common(b) {
				n = 1
			}
			if c.Fast && !isRun(piece(c)) {
				n = 1 << 20
			}
			if n > score {
				at, best, score = i, c, n
			}
		}
	}
	return at, best
}

// changes counts the bytes of a content that differ from the one before: repeated ones say little.
func changes(b []byte) int {
	n := 1
	for i := 1; i < len(b); i++ {
		n += boolInt(b[i] != b[i-1])
	}
	return n
}

// common reports whether contents of a buffer are alike in many rules and messages.
func common(b signature.Buffer) bool {
	switch b {
	case signature.HTTPMethod, signature.HTTPStatCode, signature.HTTPStatMsg, signature.HTTPProtocol, signature.HTTPContentLen:
		return true
	}
	return false
}

// piece returns the bytes of a content that are searched for: a set takes up to 64.
func piece(c *signature.Content) []byte {
	b := c.Bytes
	if c.FastLen > 0 {
		b = b[c.FastFrom : c.FastFrom+c.FastLen]
	}
	return b[:min(len(b), literal.MaxLen)]
}

// group returns the group for the bytes of a part.
func (r *Rules) group(p *part) *group {
	for _, g := range r.groups {
		if g.buffer == p.Buffer && slices.Equal(g.transforms, p.Transforms) {
			return g
		}
	}
	g := &group{
		buffer: p.Buffer, transforms: p.Transforms, grows: isBody(p.Buffer) && len(p.Transforms) == 0,
		rules: [][]*rule{nil}, index: map[string]uint32{},
	}
	r.groups = append(r.groups, g)
	return g
}

// add adds a pattern of a rule. Rules with the same bytes share it.
func (g *group) add(text []byte, noCase bool, q *rule) {
	n := patternOf(g.index, text, noCase)
	if int(n) == len(g.rules) {
		g.rules = append(g.rules, nil)
		g.patterns = append(g.patterns, literal.Pattern{Bytes: text, NoCase: noCase, Rule: n})
	}
	g.rules[n] = append(g.rules[n], q)
	g.dir |= q.dir
}

// patternOf returns the number of a pattern, counted from 1, and gives it one where it has none. 0 stands for more
// matches than a packet engine lists (Search).
func patternOf(index map[string]uint32, text []byte, noCase bool) uint32 {
	key := "=" + string(text)
	if noCase {
		key = "~" + string(ascii.Lower(text))
	}
	n, ok := index[key]
	if !ok {
		n = uint32(len(index) + 1)
		index[key] = n
	}
	return n
}

// actionRank puts pass first: it exempts what later rules would alert on.
func actionRank(r *rule) int {
	return [...]int{signature.Pass: 0, signature.Drop: 1, signature.Reject: 2, signature.Alert: 3}[r.Action]
}
