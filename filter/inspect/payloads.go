package inspect

import (
	"bytes"
	"fmt"

	"github.com/millrace/millrace/filter/signature"
	"github.com/millrace/millrace/gpukern/literal"
	batch "github.com/millrace/millrace/packet"
)

// payloads finds rules by the contents that they want in payloads. One search of a packet serves the rules of packets
// and those of streams.
type payloads struct {
	patterns []literal.Pattern
	index    map[string]uint32
	packet   [][]*rule // rules of packets, by pattern, counted from 1
	stream   [][]*rule // rules of streams
	of       [2]*literal.Set
}

// The sets of payloads: most patterns are about TCP alone, and the other packets need not be searched for them.
const (
	ofTCP = iota
	ofOthers
)

// setOf returns which set a packet is searched with.
func setOf(p *packet) int {
	if p.bit == signature.TCP {
		return ofTCP
	}
	return ofOthers
}

// add makes text lead to a rule. Rules with the same bytes share a pattern.
func (s *payloads) add(sc scope, text []byte, noCase bool, q *rule) {
	if s.index == nil {
		s.index, s.packet, s.stream = map[string]uint32{}, [][]*rule{nil}, [][]*rule{nil}
	}
	n := patternOf(s.index, text, noCase)
	if int(n) == len(s.packet) {
		s.patterns = append(s.patterns, literal.Pattern{Bytes: text, NoCase: noCase, Rule: n})
		s.packet, s.stream = append(s.packet, nil), append(s.stream, nil)
	}
	list := &s.packet[n]
	if sc == scopeStream {
		list = &s.stream[n]
	}
	*list = append(*list, q)
}

// compile builds the sets.
func (s *payloads) compile() error {
	for i := range s.of {
		var list []literal.Pattern
		for _, p := range s.patterns {
			if s.protocols(p.Rule)&protocolsOf[i] != 0 {
				list = append(list, p)
			}
		}
		set, err := literal.Compile(list)
		if err != nil {
			return fmt.Errorf("contents of payloads: %w", err)
		}
		s.of[i] = set
	}
	return nil
}

var protocolsOf = [2]signature.IPProtocols{signature.TCP, ^signature.TCP}

// protocols returns those of all rules of a pattern.
func (s *payloads) protocols(n uint32) (all signature.IPProtocols) {
	for _, list := range [][]*rule{s.packet[n], s.stream[n]} {
		for _, q := range list {
			all |= q.Protocol.IP
		}
	}
	return all
}

// AppendLiterals appends the contents that rules want in payloads to list and returns it, for the set of a packet engine.
// Their numbers follow from their places, so that one set serves several Rules: those of r begin behind
// Search.Base = len(list).
func (r *Rules) AppendLiterals(list []literal.Pattern) []literal.Pattern {
	base := uint32(len(list))
	for _, p := range r.payloads.patterns {
		p.Rule += base
		list = append(list, p)
	}
	return list
}

// Search holds the matches of a packet engine in a frame, with the literals of Rules.AppendLiterals. The zero value means
// that it has searched nothing.
type Search struct {
	From, To int           // the bytes of the frame that it has searched
	Matches  []batch.Match // sorted; ends count from the first byte of the frame. Rule 0 means that there are more
	Base     uint32        // the number before that of the rules' first literal; others are of other rules
}

// Searched inspects a frame as Packet does, without another search of the bytes that a packet engine has searched.
// The alerts are the same: where the engine has found more matches than it lists, or has searched other bytes than
// the payload of a packet (in tunnels, fragments and streams), Searched searches them itself.
func (e *Engine) Searched(now int64, frame []byte, s Search) {
	e.Inspect(&Input{Now: now, Frame: frame, Search: s})
}

// find searches the payload of p, or takes what a packet engine has found in it.
func (e *Engine) find(p *packet) {
	e.inPayload = e.inPayload[:0]
	if len(p.payload) == 0 || e.taken(p) {
		return
	}
	e.inPayload = e.rules.payloads.of[setOf(p)].Scan(nil, p.payload, 0, e.inPayload)
}

// taken takes the matches of a packet engine, where they are all there are in the payload of p.
func (e *Engine) taken(p *packet) bool {
	s := &e.searched
	if s.From < 0 || s.To-s.From != len(p.payload) || s.To > len(e.searchedFrame) || &e.searchedFrame[s.From] != &p.payload[0] {
		return false
	}
	if n := len(s.Matches); n > 0 && s.Matches[n-1].Rule == 0 {
		e.stats.Overflows++
		e.result.Partial = true
		return false
	}
	patterns := e.rules.payloads.patterns
	for _, m := range s.Matches {
		n, end := m.Rule-s.Base, int(m.End)-s.From
		if n-1 >= uint32(len(patterns)) || end < len(patterns[n-1].Bytes) || end > len(p.payload) {
			continue // of other rules, or it begins in an earlier packet of the flow
		}
		e.inPayload = append(e.inPayload, literal.Occurrence{End: uint32(end), Rule: n})
	}
	e.stats.Taken++
	e.result.Taken = true
	return true
}

// inStream makes the rules of streams candidates whose content ends in fresh, the bytes that follow old in a stream.
// at is where they begin in it. Where fresh is the payload of p, only what begins in old is left to search for.
func (e *Engine) inStream(p *packet, old, fresh []byte, at uint64) {
	set := e.rules.payloads.of[ofTCP]
	if !bytes.Equal(p.payload, fresh) {
		e.found = set.Scan(old, fresh, 0, e.found[:0])
		e.addStream(e.found, at)
		return
	}
	if len(old) > 0 {
		edge := fresh[:min(len(fresh), literal.CarryOverLen)]
		e.found = set.Scan(old, edge, 0, e.found[:0])
		e.addStream(e.found, at)
	}
	e.addStream(e.inPayload, at) // those that end in the edge are candidates already
}

// addStream makes the rules of streams candidates whose contents were found.
func (e *Engine) addStream(found []literal.Occurrence, at uint64) {
	for _, m := range found {
		for _, q := range e.rules.payloads.stream[m.Rule] {
			e.add(q, at+uint64(m.End))
		}
	}
}
