package main

import (
	"time"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/node"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
)

// Forwarded is the report of forward. Received = Forwarded + the sum of Dropped + InFlight. What a driver received and could
// not use is in Received, and in Dropped as node.DropRxInvalid.
type Forwarded struct {
	Interfaces [2]Interface        `json:"interfaces"`
	Received   uint64              `json:"received"`
	Forwarded  uint64              `json:"forwarded"`
	Dropped    map[string]uint64   `json:"dropped"`
	InFlight   uint64              `json:"in_flight"` // 0 at the end
	Seconds    float64             `json:"seconds"`
	Engine     gpukern.EngineStats `json:"engine"`
}

// Interface is one of the two interfaces, the sum of its queues.
type Interface struct {
	Device     string `json:"device"`
	Driver     string `json:"driver"`
	Negotiated string `json:"negotiated"`
	RxPackets  uint64 `json:"rx_packets"`
	RxBytes    uint64 `json:"rx_bytes"`
	RxMissed   uint64 `json:"rx_missed"` // lost by the device or the kernel, before the driver
	RxInvalid  uint64 `json:"rx_invalid"`
	TxPackets  uint64 `json:"tx_packets"`
	TxBytes    uint64 `json:"tx_bytes"`
	TxInvalid  uint64 `json:"tx_invalid"`

	Impaired *Impaired `json:"impaired"` // null without impairment
}

// Impaired counts the effects of --impair-a or --impair-b, in both directions.
type Impaired struct {
	Lost       uint64 `json:"lost"` // received and not forwarded, or forwarded and not sent
	Duplicated uint64 `json:"duplicated"`
	Corrupted  uint64 `json:"corrupted"`
	Marked     uint64 `json:"marked"` // Congestion Experienced
	Reordered  uint64 `json:"reordered"`
}

// count reads the counters of all queues and loops.
func (b *bridge) count() Forwarded {
	sum := b.node.Stats()
	f := Forwarded{
		Received: sum.Received, Forwarded: sum.Forwarded, InFlight: sum.InFlight(), Dropped: map[string]uint64{},
		Seconds: time.Since(b.node.Started()).Seconds(), Engine: b.node.Engine(),
	}
	for v, n := range sum.Dropped {
		if n > 0 {
			f.Dropped[packet.Verdict(v).String()] = n
		}
	}
	for i, d := range b.node.DeviceCounters() {
		f.Interfaces[i] = Interface{
			Device: d.Name, Driver: d.Driver, Negotiated: d.Negotiated,
			RxPackets: d.RxPackets, RxBytes: d.RxBytes, RxMissed: d.RxMissed, RxInvalid: d.RxInvalid,
			TxPackets: d.TxPackets, TxBytes: d.TxBytes, TxInvalid: d.TxInvalid, Impaired: impaired(b.impaired[i]),
		}
		if d.RxInvalid > 0 {
			f.Received += d.RxInvalid
			f.Dropped[node.DropRxInvalid] += d.RxInvalid
		}
	}
	return f
}

// impaired sums up the impairments of an interface; nil for none.
func impaired(queues []*pmd.Impair) *Impaired {
	if len(queues) == 0 {
		return nil
	}
	sum := &Impaired{}
	for _, m := range queues {
		rx, tx := m.Counts()
		for _, c := range []pmd.ImpairStats{rx, tx} {
			sum.Lost += c.Lost()
			sum.Duplicated += c.Duplicated
			sum.Corrupted += c.Corrupted
			sum.Marked += c.Marked
			sum.Reordered += c.Reordered
		}
	}
	return sum
}

// showRates prints the rates since the last time.
func showRates(c *console, last, now Forwarded) {
	dt := now.Seconds - last.Seconds
	rate := func(i int) (pps, mbps float64) {
		was, is := &last.Interfaces[i], &now.Interfaces[i]
		return float64(is.TxPackets-was.TxPackets) / dt, float64(is.TxBytes-was.TxBytes) * 8e-6 / dt
	}
	pps1, mbps1 := rate(1)
	pps0, mbps0 := rate(0)
	c.printf("%6.0f s  -> %s: %.0f pps %.1f Mbps   -> %s: %.0f pps %.1f Mbps   dropped %s\n", now.Seconds,
		now.Interfaces[1].Device, pps1, mbps1, now.Interfaces[0].Device, pps0, mbps0, tally(now.Dropped))
}

// showForward prints the counters at the end.
func showForward(c *console, f Forwarded) {
	for _, p := range f.Interfaces {
		c.line(p.Device, "received %s packets, %s bytes (missed %s, invalid %s); sent %s packets, %s bytes (invalid %s)",
			group(p.RxPackets), group(p.RxBytes), group(p.RxMissed), group(p.RxInvalid),
			group(p.TxPackets), group(p.TxBytes), group(p.TxInvalid))
		if m := p.Impaired; m != nil {
			c.line("", "impaired: lost %s, duplicated %s, corrupted %s, marked %s, reordered %s",
				group(m.Lost), group(m.Duplicated), group(m.Corrupted), group(m.Marked), group(m.Reordered))
		}
	}
	showEngine(c, &f.Engine)
	c.line("balance", "received %s = forwarded %s + dropped (%s) + in flight %s",
		group(f.Received), group(f.Forwarded), tally(f.Dropped), group(f.InFlight))
}
