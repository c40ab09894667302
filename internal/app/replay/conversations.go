package replay

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"
	"time"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// Conversations are the flows of a run with what was sent in each, the largest first. A is the sender of a flow's first
// packet. Packets that are in none, because they are not IP, malformed, later fragments or of a flow beyond the bound of
// the flow table, are counted by Others: the packets of all flows and Others are the packets of the run.
type Conversations struct {
	Total        int              `json:"total"`                  // flows, listed or not
	Applications []ApplicationSum `json:"applications,omitempty"` // of all flows, listed or not; by bytes
	Others       uint64           `json:"others"`                 // packets of no listed flow: of flows that are not listed, and of none
	List         []Conversation   `json:"list"`
	Began        time.Time        `json:"start,omitzero"` // of capture, of the first packet of all flows, UTC
}

// Conversation is a flow: the packets between two ends of one protocol.
type Conversation struct {
	Protocol  string         `json:"protocol"`
	A         netip.AddrPort `json:"a"` // port 0 for protocols without
	B         netip.AddrPort `json:"b"`
	PacketsAB uint64         `json:"packets_ab"` // from A to B
	PacketsBA uint64         `json:"packets_ba"`
	BytesAB   uint64         `json:"bytes_ab"` // as captured, with link headers
	BytesBA   uint64         `json:"bytes_ba"`
	Start     time.Time      `json:"start"`            // of capture, of its first packet, UTC
	Seconds   float64        `json:"duration_seconds"` // from its first packet to its last

	Application *Application `json:"application,omitempty"` // where it was asked for

	Alerts     []AlertHits `json:"alerts,omitempty"`      // of inspection rules in it, by gid and sid; of the first maxFlowRules rules
	MoreAlerts uint64      `json:"more_alerts,omitempty"` // of other rules
	Anomalies  uint64      `json:"anomalies,omitempty"`   // overlapping bytes that differ
}

// conversation is the traffic of a flow, by direction: 0 is that of the flow's first packet.
type conversation struct {
	key            flowKey
	reversed       bool // the first packet was sent by the higher end of key
	packets, bytes [2]uint64
	first, last    int64 // capture times, ns since the Unix epoch
	application    *application
	alerts         *flowAlerts // nil where nothing was found in it
}

// count adds a packet of size bytes that was captured at time at, and returns its direction. reversed says that its sender is
// the higher end of the key.
func (c *conversation) count(reversed bool, size int, at int64) (way int) {
	if reversed != c.reversed {
		way = 1
	}
	c.packets[way]++
	c.bytes[way] += uint64(size)
	c.first, c.last = min(c.first, at), max(c.last, at)
	return way
}

// reversed reports whether the sender of an IP packet is the higher end of its flow's key.
func reversed(p []byte, d *packet.Desc) bool {
	var ports uint32
	if hasPorts(d) {
		ports = binary.BigEndian.Uint32(p[d.L4:])
	}
	src, dst := p[d.L3+12:d.L3+16], p[d.L3+16:d.L3+20]
	if d.Flags.Has(packet.FlagIPv6) {
		src, dst = p[d.L3+8:d.L3+24], p[d.L3+24:d.L3+40]
	}
	if c := slices.Compare(src, dst); c != 0 {
		return c > 0
	}
	return ports>>16 > ports&0xffff
}

// export returns the flow with its ends as people read them.
func (c *conversation) export() Conversation {
	low, high, proto := c.key.ends()
	if c.reversed {
		low, high = high, low
	}
	r := Conversation{
		Protocol: wire.ProtoName(proto), A: low, B: high,
		PacketsAB: c.packets[0], PacketsBA: c.packets[1], BytesAB: c.bytes[0], BytesBA: c.bytes[1],
		Start: time.Unix(0, c.first).UTC(), Seconds: time.Duration(c.last - c.first).Seconds(),
	}
	if c.application != nil {
		r.Application = c.application.export()
	}
	if c.alerts != nil {
		r.Alerts, r.MoreAlerts, r.Anomalies = c.alerts.counts.export(), c.alerts.more, c.alerts.anomalies
	}
	return r
}

// ends returns the two ends of a flow, the lower one first, and its protocol.
func (k *flowKey) ends() (low, high netip.AddrPort, proto uint8) {
	if uint8(k[4]>>8) == 4 {
		end := func(w uint64) netip.AddrPort {
			return netip.AddrPortFrom(netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, uint32(w>>16)))), uint16(w))
		}
		return end(k[0]), end(k[1]), uint8(k[4])
	}
	end := func(hi, lo, port uint64) netip.AddrPort {
		a := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, hi), lo)
		return netip.AddrPortFrom(netip.AddrFrom16([16]byte(a)), uint16(port))
	}
	return end(k[0], k[1], k[4]>>32), end(k[2], k[3], k[4]>>16), uint8(k[4])
}

// largest returns the n conversations of the most bytes in a run of so many packets.
func (f *flows) largest(n int, packets uint64) *Conversations {
	list := f.conversations
	slices.SortFunc(list, func(a, b conversation) int {
		return cmp.Or(cmp.Compare(b.bytes[0]+b.bytes[1], a.bytes[0]+a.bytes[1]), cmp.Compare(a.first, b.first), slices.Compare(a.key[:], b.key[:]))
	})
	r := &Conversations{Total: len(list), Others: packets, List: make([]Conversation, 0, min(n, len(list)))}
	if len(list) > 0 {
		r.Began = time.Unix(0, slices.MinFunc(list, func(a, b conversation) int { return cmp.Compare(a.first, b.first) }).first).UTC()
	}
	if f.classify {
		r.Applications = sumApplications(list)
	}
	for i := range list[:min(n, len(list))] {
		r.List = append(r.List, list[i].export())
		r.Others -= list[i].packets[0] + list[i].packets[1]
	}
	return r
}
