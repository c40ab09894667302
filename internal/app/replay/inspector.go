package replay

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/millrace/millrace/capture"
	"github.com/millrace/millrace/filter/inspect"
	"github.com/millrace/millrace/filter/signature"
	"github.com/millrace/millrace/packet"
)

// Inspected holds the alerts of inspection rules in a run.
type Inspected struct {
	Rules     int         `json:"rules"`     // that were loaded
	Packets   uint64      `json:"packets"`   // that were inspected: those that no access rule dropped
	Alerts    uint64      `json:"alerts"`    // of all rules
	Anomalies uint64      `json:"anomalies"` // overlapping bytes that differ
	NoFlow    uint64      `json:"no_flow"`   // alerts and anomalies that are of no flow of the flow table
	Hits      []AlertHits `json:"hits"`      // rules that alerted, by gid and sid
}

// AlertHits is an inspection rule and how often it alerted, in a flow or in all packets.
type AlertHits struct {
	GID      uint32 `json:"gid"`
	SID      uint32 `json:"sid"`
	Rev      uint32 `json:"rev"`
	Msg      string `json:"msg"`
	Class    string `json:"class"`
	Priority int    `json:"priority"`
	Action   string `json:"action"` // of the rule; replay only counts
	Alerts   uint64 `json:"alerts"`
}

// alertCounts counts alerts by their rules.
type alertCounts map[*signature.Rule]uint64

func (c alertCounts) export() []AlertHits {
	all := make([]AlertHits, 0, len(c))
	for r, n := range c {
		all = append(all, AlertHits{r.GID, r.SID, r.Rev, r.Msg, r.Class, r.Priority, r.Action.String(), n})
	}
	slices.SortFunc(all, func(a, b AlertHits) int { return cmp.Or(cmp.Compare(a.GID, b.GID), cmp.Compare(a.SID, b.SID)) })
	return all
}

// flowAlerts holds the alerts of a flow. Rules beyond maxFlowRules are counted by more.
type flowAlerts struct {
	counts    alertCounts
	anomalies uint64
	more      uint64
}

func (f *flowAlerts) add(r *signature.Rule) {
	switch {
	case r == nil:
		f.anomalies++
	case f.counts[r] == 0 && len(f.counts) == maxFlowRules:
		f.more++
	default:
		f.counts[r]++
	}
}

// inspector runs inspection rules over the packets of a run and counts their alerts. It is nil without rules.
type inspector struct {
	engine *inspect.Engine
	flows  *flows
	rep    Inspected
	counts alertCounts
	opened []uint32 // by the engine's number of a flow, from 1: the conversation of the packet that began it
	buf    []byte
}

// newInspector returns an inspector that assigns alerts to the conversations of f, if any.
func newInspector(rules *inspect.Rules, f *flows) *inspector {
	if rules == nil {
		return nil
	}
	s := &inspector{flows: f, counts: alertCounts{}}
	s.rep.Rules, _ = rules.Len()
	s.engine = inspect.New(rules, inspect.Config{}, s.alert)
	return s
}

// packet inspects the packet of b with the descriptors d, of which the first has the number first, unless an access rule
// has dropped it. The flow table has counted it already.
func (s *inspector) packet(b *packet.Batch, first int, d []packet.Desc) {
	if s == nil || d[0].Verdict == packet.DropRule || d[0].Verdict == packet.DropRateLimit {
		return
	}
	frame := b.Arena.Bytes(&d[0])
	if len(d) > 1 {
		s.buf = b.Arena.Gather(s.buf[:0], d, 1<<20)
		frame = s.buf
	}
	if r := capture.Rebase(frame); r.Shift > 0 {
		s.buf = append(s.buf[:0], frame[r.Shift:]...)
		frame = s.buf
		binary.BigEndian.PutUint16(frame[12:], r.Ether)
	}
	s.engine.Packet(b.Time(first), frame)
	s.note()
}

// note records the flows that the engine has begun with the present packet.
func (s *inspector) note() {
	if !s.flows.converse {
		return
	}
	for n := s.engine.Stats().Flows; uint64(len(s.opened)) < n; {
		s.opened = append(s.opened, s.flows.present)
	}
}

// alert counts an alert, of the flow that it is in too.
func (s *inspector) alert(a *inspect.Alert) {
	if a.Rule == nil {
		s.rep.Anomalies++
	} else {
		s.rep.Alerts++
		s.counts[a.Rule]++
	}
	if !s.flows.converse {
		return
	}
	s.note()
	at := s.flowOf(a)
	if at == noConversation {
		s.rep.NoFlow++
		return
	}
	c := &s.flows.conversations[at]
	if c.alerts == nil {
		c.alerts = &flowAlerts{counts: alertCounts{}}
	}
	c.alerts.add(a.Rule)
}

// flowOf returns the conversation that an alert is about. An alert at the end of a flow comes with a packet of another
// flow, or with none. A later fragment is of no conversation, but what it completes has ports.
func (s *inspector) flowOf(a *inspect.Alert) uint32 {
	if a.Packet != 0 && s.flows.present != noConversation {
		return s.flows.present
	}
	if a.Flow != 0 && a.Flow <= uint64(len(s.opened)) {
		if at := s.opened[a.Flow-1]; at != noConversation {
			return at
		}
	}
	if a.Tunnel != 0 {
		return noConversation
	}
	var k flowKey
	ports := uint32(a.SrcPort)<<16 | uint32(a.DstPort)
	if src, dst := a.Src.As16(), a.Dst.As16(); a.Src.Is4() {
		var ip [20]byte
		copy(ip[12:], src[12:])
		copy(ip[16:], dst[12:])
		k.read4(ip[:], ports)
		k[4] = 4<<8 | uint64(a.Proto)
	} else {
		var ip [40]byte
		copy(ip[8:], src[:])
		copy(ip[24:], dst[:])
		k[4] = uint64(k.read6(ip[:], ports))<<16 | 6<<8 | uint64(a.Proto)
	}
	return s.flows.conversationOf(&k)
}

// finish ends the flows of the engine and returns what was found.
func (s *inspector) finish() *Inspected {
	if s == nil {
		return nil
	}
	s.flows.present = noConversation
	s.engine.Flush()
	s.rep.Packets, s.rep.Hits = s.engine.Stats().Packets, s.counts.export()
	return &s.rep
}

// conversationOf returns the index of the conversation of a key, or noConversation.
func (f *flows) conversationOf(k *flowKey) uint32 {
	mask := uint64(len(f.slots) - 1)
	for at := k.hash(&f.seed) & mask; f.slots[at].file != 0; at = (at + 1) & mask {
		if f.slots[at].key.is(k) {
			return f.slots[at].conversation
		}
	}
	return noConversation
}
