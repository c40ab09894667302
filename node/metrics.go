package node

import (
	"strconv"

	"github.com/millrace/millrace/metrics"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
)

// Registry is made anew for each server, after the services are known. It returns the
// metrics of the process: those of the services, the loops, the engines and the
// devices.
func (n *Node) Registry() *metrics.Registry {
	r := metrics.NewRegistry(n.cfg.Build)
	for _, s := range n.services {
		if s.Metrics != nil {
			r.Add(s.Metrics)
		}
	}
	r.Add(n.writeLoops)
	r.Add(n.writeEngines)
	r.Add(n.writeDevices)
	r.Add(n.writeExtended)
	r.Add(n.writeLinks)
	r.Add(n.writeLog)
	return r
}

// writeLog writes what the log has lost.
func (n *Node) writeLog(w *metrics.Writer) {
	if n.cfg.LogDropped != nil {
		w.Counter("millrace_log_dropped_records_total", "Records dropped because the log was not read.", n.cfg.LogDropped())
	}
}

// maxScrapes is the number of scrapes that are answered at once. They share what is rendered, so each costs
// little, and those that are not read must not keep the others out.
const maxScrapes = 64

// maxPages is the same of requests to PagesHandler: some of them wait for seconds.
const maxPages = 64

// writeLoops writes the counters of each loop, with the reasons of drops as a label:
// one name, so that a dashboard sums them without knowing the reasons of later
// versions.
func (n *Node) writeLoops(w *metrics.Writer) {
	for i, l := range n.loops {
		loop, s := metrics.Label{Name: "loop", Value: strconv.Itoa(i)}, l.Stats()
		w.Counter("millrace_loop_received_packets_total", "Packets taken from drivers.", s.Received, loop)
		w.Counter("millrace_loop_received_bytes_total", "Bytes of packets taken from drivers.", s.ReceivedBytes, loop)
		w.Counter("millrace_loop_originated_packets_total", "Packets that the loop made itself.", s.Originated, loop)
		w.Counter("millrace_loop_taken_over_packets_total", "Packets taken over from other loops.", s.TakenOver, loop)
		w.Counter("millrace_loop_handed_over_packets_total", "Packets handed over to other loops.", s.HandedOver, loop)
		w.Counter("millrace_loop_placed_packets_total", "Packets whose payload the driver received straight to its reader or receive buffer, or kept in a buffer of its own.", s.Placed, loop)
		w.Counter("millrace_loop_merged_packets_total", "Segments and datagrams joined to the one before them.", s.Merged, loop)
		w.Counter("millrace_loop_forwarded_packets_total", "Packets taken by drivers.", s.Forwarded, loop)
		w.Counter("millrace_loop_delivered_packets_total", "Packets taken by local consumers.", s.Delivered, loop)
		w.Counter("millrace_loop_wrong_checksums_total", "Packets with a wrong TCP or UDP checksum, whatever became of them.", s.WrongChecksums, loop)
		w.Counter("millrace_loop_iterations_total", "Times the loop polled its devices.", s.Iterations, loop)
		w.Counter("millrace_loop_busy_iterations_total", "Iterations that moved packets.", s.Busy, loop)
		w.Counter("millrace_loop_sleeps_total", "Times the loop slept.", s.Sleeps, loop)
		for v := packet.Drop; int(v) < packet.Verdicts; v++ {
			w.Counter("millrace_loop_dropped_packets_total", "Packets dropped, by reason.", s.Dropped[v],
				loop, metrics.Label{Name: "reason", Value: v.String()})
		}
	}
}

// writeDevices writes the counters of each queue. Device, queue and driver are labels,
// since a device may be opened by another driver after a restart.
func (n *Node) writeDevices(w *metrics.Writer) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i, dev := range n.devices {
		for k := range dev.Queues {
			writeQueue(w, n.queueInfo(i, k))
		}
	}
}

// writeExtended writes the counters that only the drivers of devices know. They are read outside of the lock: a NIC has
// hundreds, and asks its firmware.
func (n *Node) writeExtended(w *metrics.Writer) {
	for i := range n.cfg.Devices {
		info := n.Info(i)
		if info.Extended == nil {
			continue
		}
		for _, c := range info.Extended() {
			w.Counter("millrace_device_statistic_total", "Counters of a device by the names of its driver (DPDK: xstats), without those that are 0.", c.Value,
				metrics.Label{Name: "device", Value: info.Device}, metrics.Label{Name: "name", Value: c.Name})
		}
	}
}

func writeQueue(w *metrics.Writer, info pmd.Info) {
	device := metrics.Label{Name: "device", Value: info.Device}
	queue := metrics.Label{Name: "queue", Value: strconv.Itoa(info.Queue)}
	driver := metrics.Label{Name: "driver", Value: info.Driver}
	s := info.Stats
	for _, m := range []struct {
		name, help string
		v          uint64
	}{
		{"millrace_rx_packets_total", "Packets received.", s.RxPackets},
		{"millrace_rx_bytes_total", "Bytes received.", s.RxBytes},
		{"millrace_rx_missed_packets_total", "Packets lost before the driver received them.", s.RxMissed},
		{"millrace_rx_invalid_packets_total", "Packets that the driver could not use.", s.RxInvalid},
		{"millrace_tx_packets_total", "Packets sent.", s.TxPackets},
		{"millrace_tx_bytes_total", "Bytes sent.", s.TxBytes},
		{"millrace_tx_invalid_packets_total", "Packets that the device refused.", s.TxInvalid},
		{"millrace_kernel_passed_packets_total", "Packets that no rule claims, passed to the kernel by the exception path.", s.ToKernel},
		{"millrace_kernel_sent_packets_total", "Packets that the kernel sent by the exception path.", s.FromKernel},
		{"millrace_kernel_lost_packets_total", "Packets of the exception path that the kernel or the device did not take.", s.KernelLost},
		{"millrace_rx_steered_packets_total", "Received packets that a rule of the device has marked as claimed (DPDK's rte_flow).", s.Steered},
		{"millrace_rx_steered_software_packets_total", "Received packets of a device with such rules that were looked up in software.", s.SteeredSoftware},
		{"millrace_driver_wakeups_total", "System calls made to move packets.", s.Wakeups},
	} {
		w.Counter(m.name, m.help, m.v, device, driver, queue)
	}
}
