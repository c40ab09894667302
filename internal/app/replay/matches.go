package replay

import (
	"errors"
	"strconv"

	"github.com/millrace/millrace/filter"
	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/gpukern/flow"
	"github.com/millrace/millrace/packet"
)

// PatternMatch is a literal that was found.
type PatternMatch struct {
	Path   string `json:"path"`
	Packet uint64 `json:"packet"` // of those that were replayed of the file, from 1; 0 for an expression that ended with its stream
	Line   int    `json:"line"`   // of the pattern; 0 says that the packet has more matches than the limit
	Name   string `json:"name"`
	End    uint32 `json:"end"` // offset behind the last byte, in the packet, or the piece of it where it is in several
}

// matches counts the matches of literals and the next hops of all files.
type matches struct {
	rules   []filter.PatternRule
	report  func(PatternMatch)
	hits    []Hits
	last    []uint64 // of each rule, the packet that was counted last
	hops    []uint64 // packets by next hop; nil without routes
	more    uint64
	path    string
	all, at uint64 // packets of all files, and of this one

	matches []packet.Match // of the batch, those that are still to come
}

func newMatches(cfg *Config) *matches {
	f := &matches{report: cfg.OnMatch}
	if cfg.Patterns != nil {
		f.rules = cfg.Patterns.Rules()
	}
	if cfg.Routes != nil {
		f.hops = make([]uint64, 1<<16)
	}
	f.hits, f.last = make([]Hits, len(f.rules)), make([]uint64, len(f.rules))
	for i, r := range f.rules {
		f.hits[i] = Hits{Line: r.Line, Name: r.Name, Text: r.Text}
	}
	return f
}

// begin reports that the next packets are of a file.
func (f *matches) begin(path string) { f.path, f.at = path, 0 }

// batch reports that the next packets are of a batch.
func (f *matches) batch(b *packet.Batch) { f.matches = b.Matches }

// packet counts what was found in one packet: d is its first descriptor, end the index behind its last.
func (f *matches) packet(end int, d *packet.Desc) {
	f.all++
	f.at++
	if f.hops != nil {
		f.hops[d.NextHop]++
	}
	for len(f.matches) > 0 && int(f.matches[0].D) < end {
		f.match(f.matches[0])
		f.matches = f.matches[1:]
	}
}

func (f *matches) match(m packet.Match) {
	found := PatternMatch{Path: f.path, Packet: f.at, End: m.End}
	if m.Rule == 0 {
		f.more++
	} else {
		h := &f.hits[m.Rule-1]
		h.Matches++
		if f.last[m.Rule-1] != f.all {
			f.last[m.Rule-1] = f.all
			h.Packets++
		}
		found.Line, found.Name = h.Line, h.Name
	}
	if f.report != nil {
		f.report(found)
	}
}

// expression counts and reports an expression that was found in a packet of the present file, 0 for the end of its stream.
func (f *matches) expression(rule uint32, packet uint64, end uint32) {
	h := &f.hits[rule-1]
	h.Matches++
	h.Packets++
	if f.report != nil {
		f.report(PatternMatch{Path: f.path, Packet: packet, Line: h.Line, Name: h.Name, End: end})
	}
}

// finish writes the counts into the report.
func (f *matches) finish(r *Report) {
	r.Patterns, r.MoreMatches = append(r.Patterns, f.hits...), f.more
	for hop, n := range f.hops {
		if hop > 0 && n > 0 {
			r.NextHops[strconv.Itoa(hop)] = n
		}
	}
}

// followedFlows is the number of flows that literals are followed in at once: 60 MiB with both tables, of which the system
// allocates what is used. Packets of more flows continue no other.
const followedFlows = 1 << 18

// streamState lets an engine find literals that begin in one packet of a flow and end in a later one.
type streamState struct {
	flows   *flow.Table
	streams *gpukern.Streams
}

// newStreamState makes the tables and adds them to the configuration of the engine, which is closed before them.
func newStreamState(cfg *gpukern.Config) (*streamState, error) {
	flows, err := flow.New(flow.Config{Flows: followedFlows})
	if err != nil {
		return nil, err
	}
	streams, err := gpukern.NewStreams(int(flows.Slots()))
	if err != nil {
		return nil, errors.Join(err, flows.Close())
	}
	cfg.Ops |= gpukern.OpFlow
	cfg.Flows, cfg.Streams = flows, streams
	return &streamState{flows, streams}, nil
}

func (a *streamState) close() error { return errors.Join(a.streams.Close(), a.flows.Close()) }
