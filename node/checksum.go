package node

import (
	"time"

	"github.com/millrace/millrace/packet"
)

// checksumWindow is the time that checksumWatch adds up: clients send a SYN again after 1, 3 and 7 s.
// checksumDrops of them are none of chance. A second warning about a device comes after
// checksumQuiet at the earliest.
const (
	checksumWindow = 10 * time.Second
	checksumDrops  = 3
	checksumQuiet  = time.Hour
)

// checksumWatch finds devices from which little else arrives than packets with a wrong TCP or UDP
// checksum. The other end of a veth with transmit offload leaves it to a device that does not
// exist: every SYN is dropped, and no peer or program sees a reason. It reads counters once a
// second, in watch, so that packets cost nothing more.
type checksumWatch struct {
	since   time.Time
	dropped uint64   // packets with a wrong checksum, at since
	rx      []uint64 // packets received then, by device
	warned  []time.Time
}

// suspects returns the devices to warn about, and the drops in the window. The loops do not count
// drops by device: a device is suspect where the drops are half or more of what it received, and
// it received as many.
func (w *checksumWatch) suspects(now time.Time, dropped uint64, rx []uint64) (devices []int, drops uint64) {
	if w.rx == nil {
		w.warned = make([]time.Time, len(rx))
		w.restart(now, dropped, rx)
		return nil, 0
	}
	if drops = dropped - w.dropped; drops >= checksumDrops {
		for i := range rx {
			got := rx[i] - w.rx[i]
			quiet := !w.warned[i].IsZero() && now.Sub(w.warned[i]) < checksumQuiet
			if got >= drops && got <= 2*drops && !quiet {
				devices, w.warned[i] = append(devices, i), now
			}
		}
	}
	if len(devices) > 0 || now.Sub(w.since) >= checksumWindow {
		w.restart(now, dropped, rx)
	}
	return devices, drops
}

// restart begins a window.
func (w *checksumWatch) restart(now time.Time, dropped uint64, rx []uint64) {
	w.since, w.dropped, w.rx = now, dropped, rx
}

// watchChecksums logs the devices that checksumWatch finds.
func (n *Node) watchChecksums(now time.Time) {
	total := n.Stats()
	var rx []uint64
	for _, c := range n.DeviceCounters() {
		rx = append(rx, c.RxPackets)
	}
	devices, drops := n.checksums.suspects(now, total.Dropped[packet.DropL4Checksum], rx)
	for _, i := range devices {
		n.log.Warn("checksum", "device", n.cfg.Devices[i].Name, "dropped", drops,
			"error", "the TCP and UDP checksums of what arrives are wrong: the other end leaves them to its device",
			"remedy", "ethtool -K PEER tx off, where PEER is the interface at the other end")
	}
}
