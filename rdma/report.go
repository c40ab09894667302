package rdma

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/millrace/millrace/rdma/cm"
)

// Report is the state of a context, with the numbers of `rdma statistic` and `rdma resource` of iproute2.
type Report struct {
	Address       netip.Addr `json:"address"`
	MTU           uint32     `json:"mtu"` // largest payload of a packet
	Regions       int        `json:"memory_regions"`
	Windows       int        `json:"memory_windows"`
	Connections   int        `json:"connections"` // of RDMA-CM, in any state
	HalfOpen      int        `json:"half_open"`   // of them, those that peers began and that are not established
	Received      uint64     `json:"received_packets"`
	Sent          uint64     `json:"sent_packets"`
	Dropped       uint64     `json:"dropped_packets"` // received and not taken
	Unreachable   uint64     `json:"unreachable_packets"`
	QueuePairs    int        `json:"queue_pairs"`
	QueuePairList []QPReport `json:"queue_pair_list"` // the first MostReported by number
}

// MostReported bounds Report.QueuePairList.
const MostReported = 1000

// QPReport is the state of a queue pair.
type QPReport struct {
	Number       uint32     `json:"number"`
	Service      string     `json:"service"`
	State        string     `json:"state"`
	Peer         netip.Addr `json:"peer"` // zero of UD
	PeerNumber   uint32     `json:"peer_number"`
	MTU          uint32     `json:"mtu"`
	Sent         uint64     `json:"sent_packets"`
	Received     uint64     `json:"received_packets"`
	Repeated     uint64     `json:"repeated_packets"`
	Timeouts     uint64     `json:"timeouts"`
	SequenceNaks uint64     `json:"sequence_naks"`
	RNRNaks      uint64     `json:"rnr_naks"`
}

// Report returns the state of the context.
func (c *Context) Report() Report {
	c.lock.Enter()
	defer c.lock.ExitUnchanged()
	m := c.gsi.manager
	r := Report{
		Address: c.cfg.Addr, MTU: c.maxMTU(), Regions: c.table.Len(), Windows: c.table.Windows(), Connections: m.Conns(), HalfOpen: m.HalfOpen(),
		Received: c.count.received, Sent: c.count.sent, Unreachable: c.count.noPath + c.gsi.noPath, QueuePairs: len(c.qps), QueuePairList: []QPReport{},
	}
	r.Dropped = c.count.unknownQP + c.count.otherAddr
	for _, n := range c.count.refused[1:] {
		r.Dropped += n
	}
	for _, n := range c.count.dropped[1:] { // of queue pairs
		r.Dropped += n
	}
	for _, n := range c.gsi.dropped[1:] { // of queue pair 1
		r.Dropped += n
	}
	for why, n := range m.Counters().Received {
		if messageVerdicts[why].Dropped() && why != int(cm.RepliesFull) {
			r.Dropped += n
		}
	}
	for _, q := range c.qps {
		a, n := q.qp.Attr(), q.qp.Counters()
		p := QPReport{
			Number: q.qp.QPN(), Service: [...]string{RC: "RC", UC: "UC", 2: "", UD: "UD"}[q.cfg.Service], State: q.qp.State().String(), PeerNumber: a.DestQP,
			MTU: a.MTU, Sent: n.Sent, Received: n.Received, Repeated: n.Repeated, Timeouts: n.Timeouts, SequenceNaks: n.SequenceNaks, RNRNaks: n.RNRNaks,
		}
		if q.path != nil {
			p.Peer = q.path.addr.Netip()
		}
		r.QueuePairList = append(r.QueuePairList, p)
	}
	slices.SortFunc(r.QueuePairList, func(a, b QPReport) int { return cmp.Compare(a.Number, b.Number) })
	r.QueuePairList = r.QueuePairList[:min(len(r.QueuePairList), MostReported)]
	return r
}
