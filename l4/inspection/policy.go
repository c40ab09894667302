package inspection

import (
	"sync/atomic"

	"github.com/millrace/millrace/filter/expr"
	"github.com/millrace/millrace/filter/inspect"
	"github.com/millrace/millrace/filter/signature"
	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/gpukern/literal"
)

// policy is one policy of a configuration, compiled. It is immutable but for its counters.
type policy struct {
	name     string
	number   uint8 // for good, from 1
	prevent  bool
	overlaps bool // with prevent: drop packets whose bytes contradict earlier ones
	strip    bool // clear the flag of urgent data
	failOpen bool
	all      []*signature.Rule
	packets  bool           // it is for services
	rules    *inspect.Rules // for packets
	requests *inspect.Rules // for requests; nil where it names no listener
	access   *access        // nil without
	capture  *expr.Filter   // what is written to the pcapng beside the packets of alerts; nil is nothing

	counts  map[*signature.Rule]*ruleCounts
	totals  *policyCounts
	skipped map[string]int               // options for which rules were left out, with how many
	unfit   map[string][]*signature.Rule // rules that are not for requests, by the reason
	engine  inspect.Config

	literals *literal.Set // of all policies, for packet engines; nil without
	base     uint32       // the number before that of this policy's first literal
}

// ruleCounts counts what a rule has done since it was first loaded.
type ruleCounts struct {
	matches, alerts, drops atomic.Uint64
	alerted                atomic.Int64 // clock.Time of the last alert of a rate; 0: none
}

// policyCounts counts the packets of a policy. Loops add to it: once a batch is enough for readers, but a packet that is counted
// here has cost a thousand times as much.
type policyCounts struct {
	packets, bytes   atomic.Uint64
	requests         atomic.Uint64 // of listeners
	dropped, blocked atomic.Uint64 // by a rule or anomaly; in flows that one has blocked
	rejected         atomic.Uint64 // connections
	bounds           atomic.Uint64 // packets that met a bound
	overload         atomic.Uint64 // of them dropped
	discarded        atomic.Uint64 // packets that their receivers discard: not inspected
	anomalies        atomic.Uint64
	shortened        atomic.Uint64 // streams of which less was kept, for memory
	captured         atomic.Uint64 // packets that capture matched
	taken            atomic.Uint64 // packets whose payload a packet engine had searched
	partial          atomic.Uint64 // packets of which it did not list all
}

// set is the policies of a configuration: what loops read, once for each packet.
type set struct {
	policies []*policy // by number; nil where there is none
	rules    []*policy // in the order of the configuration
	payload  int       // bytes that an alert shows
	literals *literal.Set
}

// policy returns a policy by its number, nil for none.
func (s *set) policy(n uint8) *policy {
	if int(n) >= len(s.policies) {
		return nil
	}
	return s.policies[n]
}

// engineConfig returns the bounds of the engines of a policy.
func engineConfig(c *config.Inspection, p *config.InspectionPolicy) inspect.Config {
	prevent := p.Mode == config.InspectionPrevent
	return inspect.Config{
		MaxFlows: c.Flows, MemoryBytes: c.Memory, Midstream: true,
		Inline: true, Block: prevent, Refuse: prevent && c.Overload == config.OverloadDrop,
		DropConflicts: prevent && p.Overlaps == config.OverloadDrop, Urgent: urgentOf(p),
	}
}

func urgentOf(p *config.InspectionPolicy) inspect.Urgent {
	switch {
	case p.Urgent != config.UrgentDrop:
		return inspect.UrgentInline
	case p.Mode == config.InspectionPrevent:
		return inspect.UrgentDrop
	}
	return inspect.UrgentApart // nothing is dropped or changed: the receiver leaves the byte out
}
