package node

import "time"

// checksumWindow is the time that checksumWatch adds up: clients send a SYN again after 1, 3 and 7 s.
// checksumWrong of them are none of chance. A second warning about a device comes after
// checksumQuiet at the earliest.
const (
	checksumWindow = 10 * time.Second
	checksumWrong  = 3
	checksumQuiet  = time.Hour
)

// checksumWatch finds devices from which little else arrives than packets with a wrong TCP or UDP
// checksum. A sender with transmit offload leaves it to a device that may not exist: every SYN is
// dropped, here or by a backend, and no peer or program sees a reason. Those of virtual interfaces
// are completed (stack.Loop), so that mostly a guest's or a broken device is behind the others. It
// reads counters once a second, in watch.
type checksumWatch struct {
	since  time.Time
	wrong  uint64   // packets with a wrong checksum, at since
	rx     []uint64 // packets received then, by device
	warned []time.Time
}

// suspects returns the devices to warn about, and the packets with a wrong checksum in the window. The
// loops do not count them by device: a device is suspect where they are half or more of what it
// received, and it received as many.
func (w *checksumWatch) suspects(now time.Time, wrong uint64, rx []uint64) (devices []int, n uint64) {
	if w.rx == nil {
		w.warned = make([]time.Time, len(rx))
		w.restart(now, wrong, rx)
		return nil, 0
	}
	if n = wrong - w.wrong; n >= checksumWrong {
		for i := range rx {
			got := rx[i] - w.rx[i]
			quiet := !w.warned[i].IsZero() && now.Sub(w.warned[i]) < checksumQuiet
			if got >= n && got <= 2*n && !quiet {
				devices, w.warned[i] = append(devices, i), now
			}
		}
	}
	if len(devices) > 0 || now.Sub(w.since) >= checksumWindow {
		w.restart(now, wrong, rx)
	}
	return devices, n
}

// restart begins a window.
func (w *checksumWatch) restart(now time.Time, wrong uint64, rx []uint64) {
	w.since, w.wrong, w.rx = now, wrong, rx
}

// watchChecksums logs the devices that checksumWatch finds.
func (n *Node) watchChecksums(now time.Time) {
	total := n.Stats()
	var rx []uint64
	for _, c := range n.DeviceCounters() {
		rx = append(rx, c.RxPackets)
	}
	devices, wrong := n.checksums.suspects(now, total.WrongChecksums, rx)
	for _, i := range devices {
		n.log.Warn("checksum", "device", n.cfg.Devices[i].Name, "packets", wrong,
			"error", "the TCP and UDP checksums of what arrives are wrong: the other end leaves them to its device",
			"remedy", "ethtool -K PEER tx off, where PEER is the interface at the other end")
	}
}
