package node

import (
	"fmt"
	"time"

	"github.com/millrace/millrace/pmd/device"
)

// lossQuiet is the least time between two warnings about a device that loses packets: an overload loses some every
// second. The first warning of each kind comes at once.
const lossQuiet = time.Minute

// lossWatch finds devices that lose packets before a loop gets them: no drop reason of a loop counts those. It reads counters
// once a second, in watch.
type lossWatch struct {
	missed, invalid []lossCount // by device
}

// lossCount is one counter of a device at the last warning.
type lossCount struct {
	total uint64
	at    time.Time
}

// grown returns how much the counter has grown since the last warning, where a new one is due, and 0 otherwise.
func (c *lossCount) grown(now time.Time, total uint64) uint64 {
	if total <= c.total || !c.at.IsZero() && now.Sub(c.at) < lossQuiet {
		return 0
	}
	n := total - c.total
	c.total, c.at = total, now
	return n
}

// watchLosses logs what the devices have lost since the last warning, with the remedy.
func (n *Node) watchLosses(now time.Time) {
	w := &n.losses
	if w.missed == nil {
		w.missed, w.invalid = make([]lossCount, len(n.cfg.Devices)), make([]lossCount, len(n.cfg.Devices))
	}
	for i, d := range n.DeviceCounters() {
		if lost := w.missed[i].grown(now, d.RxMissed); lost > 0 {
			n.log.Warn("rx missed", "device", d.Name, "packets", lost, "total", d.RxMissed, "received", d.RxPackets,
				"why", "they came while the memory for packets that wait for a loop was full", "remedy", n.missedRemedy(i))
		}
		if lost := w.invalid[i].grown(now, d.RxInvalid); lost > 0 {
			n.log.Warn("rx invalid", "device", d.Name, "packets", lost, "total", d.RxInvalid, "received", d.RxPackets,
				"why", "the driver cannot use them: too large for its memory, or with headers that contradict the kernel's description",
				"remedy", "lower the MTU, gso_max_size and gso_ipv4_max_size of the sender's interface")
		}
	}
}

// missedRemedy is the remedy for a device whose ring is too short.
func (n *Node) missedRemedy(i int) string {
	const cores = "give the loop a core of its own (cpus), or the device more queues"
	size := n.ring(i)
	switch {
	case n.devices[i].Driver == device.TAP:
		return fmt.Sprintf("ip link set %s txqueuelen N, or %s", n.cfg.Devices[i].Name, cores)
	case size >= device.MaxRing:
		return cores
	}
	return fmt.Sprintf("set ring of the device to %d (now %d), or %s", 2*size, size, cores)
}
