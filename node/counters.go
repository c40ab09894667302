package node

import (
	"fmt"
	"strings"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/stack"
)

// Counters are the books of a node: what the loops did with packets. They are exact,
// not sampled: a drop without a reason cannot be written (packet.Verdict), and each
// packet is counted once, also one of several frames or one that was handed over
// between loops. They hold at rest; while loops run, packets inside of them are on
// neither side. A packet that a driver received and could not use came to no loop: it
// counts as received and as dropped, for the reason DropRxInvalid.
//
// The JSON keys are stable. After Run, Received + Originated = Forwarded + Delivered +
// Merged + the sum of Dropped.
type Counters struct {
	Received   uint64            `json:"received_packets"`
	Originated uint64            `json:"originated_packets"` // made here
	Forwarded  uint64            `json:"forwarded_packets"`
	Delivered  uint64            `json:"delivered_packets"`
	Merged     uint64            `json:"merged_packets"`  // segments and datagrams joined to the one before, which counts for them
	Dropped    map[string]uint64 `json:"dropped_packets"` // by reason
}

// DropRxInvalid is the reason, as in Dropped, of what a driver received and could not use
// (pmd.Stats.RxInvalid). No loop sees such a packet, so it is no packet.Verdict.
const DropRxInvalid = "rx_invalid"

// DeviceCounters are the drivers' own counts, beside those of the loops: what a device
// lost before a loop saw it (RxMissed) is in no loop's Received. They are what went
// over a device, all queues together.
type DeviceCounters struct {
	Name       string `json:"name"`
	Driver     string `json:"driver"`
	Negotiated string `json:"negotiated"` // what the driver and the kernel agreed on: native or generic, copy or zero-copy
	RxPackets  uint64 `json:"rx_packets"`
	RxBytes    uint64 `json:"rx_bytes"`
	RxMissed   uint64 `json:"rx_missed"`  // lost by the device or the kernel, before the driver
	RxInvalid  uint64 `json:"rx_invalid"` // received by the driver and unusable: DropRxInvalid of Counters
	TxPackets  uint64 `json:"tx_packets"`
	TxBytes    uint64 `json:"tx_bytes"`
	TxInvalid  uint64 `json:"tx_invalid"`

	// Of a device with rules for claims (DPDK's rte_flow): packets that it has marked, and those that were looked up in software.
	Steered         uint64 `json:"rx_steered,omitempty"`
	SteeredSoftware uint64 `json:"rx_steered_software,omitempty"`
}

// Stats sums the loops up. Packets that one loop handed over to another cancel out.
func (n *Node) Stats() (sum stack.Stats) {
	for _, l := range n.loops {
		sum.Add(l.Stats())
	}
	return sum
}

// Counters returns the counters of the loops, and what the drivers refused.
func (n *Node) Counters() Counters {
	total := n.Stats()
	c := Counters{
		Received: total.Received, Originated: total.Originated, Forwarded: total.Forwarded, Delivered: total.Delivered, Merged: total.Merged,
		Dropped: map[string]uint64{},
	}
	for v, k := range total.Dropped {
		if k > 0 {
			c.Dropped[packet.Verdict(v).String()] = k
		}
	}
	c.refused(n.DeviceCounters())
	return c
}

// refused adds what the drivers of the devices refused.
func (c *Counters) refused(devices []DeviceCounters) {
	for _, d := range devices {
		if d.RxInvalid > 0 {
			c.Received += d.RxInvalid
			c.Dropped[DropRxInvalid] += d.RxInvalid
		}
	}
}

// DeviceCounters returns the counters of the devices, in their order.
func (n *Node) DeviceCounters() (list []DeviceCounters) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i, dev := range n.devices {
		info := dev.Queues[0].Info()
		var s pmd.Stats
		for k := range dev.Queues {
			s.Add(n.queueInfo(i, k).Stats)
		}
		list = append(list, DeviceCounters{
			Name: n.cfg.Devices[i].Name, Driver: string(dev.Driver), Negotiated: info.Negotiated,
			RxPackets: s.RxPackets, RxBytes: s.RxBytes, RxMissed: s.RxMissed, RxInvalid: s.RxInvalid,
			TxPackets: s.TxPackets, TxBytes: s.TxBytes, TxInvalid: s.TxInvalid,
			Steered: s.Steered, SteeredSoftware: s.SteeredSoftware,
		})
	}
	return list
}

// Balance writes the sum that shows that every packet is accounted for.
func (c *Counters) Balance() string {
	var dropped uint64
	var reasons []string
	count := func(reason string) {
		if k := c.Dropped[reason]; k > 0 {
			dropped += k
			reasons = append(reasons, fmt.Sprintf("%s %d", reason, k))
		}
	}
	count(DropRxInvalid)
	for v := packet.Drop; int(v) < packet.Verdicts; v++ {
		count(v.String())
	}
	sign := "="
	if c.Received+c.Originated != c.Forwarded+c.Delivered+c.Merged+dropped {
		sign = "is not"
	}
	came := fmt.Sprintf("received %d", c.Received)
	if c.Originated > 0 {
		came += fmt.Sprintf(" + originated %d", c.Originated)
	}
	merged := ""
	if c.Merged > 0 {
		merged = fmt.Sprintf(" + merged %d", c.Merged)
	}
	line := fmt.Sprintf("%s %s forwarded %d + delivered %d%s + dropped %d", came, sign, c.Forwarded, c.Delivered, merged, dropped)
	if len(reasons) > 0 {
		line += " (" + strings.Join(reasons, ", ") + ")"
	}
	return line + "\n"
}
