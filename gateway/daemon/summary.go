package daemon

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/millrace/millrace/gateway"
	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/metrics"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/stack"
)

// Summary is what a daemon has done so far. After Run, Received + Originated = Forwarded + Delivered +
// the sum of Dropped.
type Summary struct {
	Received   uint64              `json:"received_packets"`
	Originated uint64              `json:"originated_packets"` // made here: announcements of addresses
	Forwarded  uint64              `json:"forwarded_packets"`
	Delivered  uint64              `json:"delivered_packets"`
	Dropped    map[string]uint64   `json:"dropped_packets"` // by reason
	Devices    []DeviceSummary     `json:"devices"`
	Engine     gpukern.EngineStats `json:"engine"`
	Gateway    gateway.Status      `json:"gateway"`
}

// DeviceSummary is what went over a device.
type DeviceSummary struct {
	Name       string `json:"name"`
	Driver     string `json:"driver"`
	Negotiated string `json:"negotiated"`
	RxPackets  uint64 `json:"rx_packets"`
	TxPackets  uint64 `json:"tx_packets"`
	RxMissed   uint64 `json:"rx_missed"` // by the device or the kernel, before the gateway saw them
	TxInvalid  uint64 `json:"tx_invalid"`
}

// Summary returns the counters.
func (d *Daemon) Summary() Summary {
	total := d.total()
	s := Summary{
		Received: total.Received, Originated: total.Originated, Forwarded: total.Forwarded, Delivered: total.Delivered,
		Dropped: map[string]uint64{}, Engine: d.account(), Gateway: d.gate.Status(),
	}
	for v, n := range total.Dropped {
		if n > 0 {
			s.Dropped[packet.Verdict(v).String()] = n
		}
	}
	for _, dev := range d.devices {
		info := dev.Queues[0].Info()
		one := DeviceSummary{Name: info.Device, Driver: info.Driver, Negotiated: info.Negotiated}
		for _, q := range dev.Queues {
			st := q.Info().Stats
			one.RxPackets += st.RxPackets
			one.TxPackets += st.TxPackets
			one.RxMissed += st.RxMissed
			one.TxInvalid += st.TxInvalid
		}
		s.Devices = append(s.Devices, one)
	}
	return s
}

// total sums the loops up.
func (d *Daemon) total() (sum stack.Stats) {
	for _, l := range d.loops {
		sum.Add(l.Stats())
	}
	return sum
}

// String renders the summary for people.
func (s Summary) String() string {
	var b strings.Builder
	for _, dev := range s.Devices {
		fmt.Fprintf(&b, "%-10s %-9s received %d, sent %d, lost before the driver %d\n",
			dev.Name, dev.Driver, dev.RxPackets, dev.TxPackets, dev.RxMissed)
	}
	for _, sv := range s.Gateway.Services {
		for _, be := range sv.Backends {
			fmt.Fprintf(&b, "%-10s %-9s %s: %d connections, %d packets there, %d back\n",
				sv.Name, be.Name, be.Address, be.Opened, be.ToPackets, be.FromPackets)
		}
	}
	b.WriteString(s.Balance())
	return b.String()
}

// Balance shows that every packet has met its end.
func (s Summary) Balance() string {
	var dropped uint64
	var reasons []string
	for v := packet.Drop; int(v) < packet.Verdicts; v++ {
		if n := s.Dropped[v.String()]; n > 0 {
			dropped += n
			reasons = append(reasons, fmt.Sprintf("%s %d", v, n))
		}
	}
	sign := "="
	if s.Received+s.Originated != s.Forwarded+s.Delivered+dropped {
		sign = "is not"
	}
	came := fmt.Sprintf("received %d", s.Received)
	if s.Originated > 0 {
		came += fmt.Sprintf(" + originated %d", s.Originated)
	}
	line := fmt.Sprintf("%s %s forwarded %d + delivered %d + dropped %d", came, sign, s.Forwarded, s.Delivered, dropped)
	if len(reasons) > 0 {
		line += " (" + strings.Join(reasons, ", ") + ")"
	}
	return line + "\n"
}

// registry returns the metrics of the process: the gateway's, and those of the loops and devices.
func (d *Daemon) registry() *metrics.Registry {
	r := metrics.NewRegistry(d.opt.Build)
	r.Add(d.gate.WriteMetrics)
	r.Add(d.writeLoops)
	r.Add(d.writeEngines)
	r.Add(d.writeDevices)
	r.Add(d.writeLinks)
	r.Add(d.writeReload)
	return r
}

func (d *Daemon) writeReload(w *metrics.Writer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	ok := 1.0
	if d.reload.err != nil {
		ok = 0
	}
	w.Gauge("millrace_config_last_reload_successful", "1 unless the last reload was refused and the old configuration stays.", ok)
	w.Gauge("millrace_config_last_reload_success_timestamp_seconds", "When the configuration in use was read, Unix time.",
		float64(d.reload.at.UnixMilli())/1e3)
}

func (d *Daemon) writeLoops(w *metrics.Writer) {
	for i, l := range d.loops {
		loop, s := metrics.Label{Name: "loop", Value: strconv.Itoa(i)}, l.Stats()
		w.Counter("millrace_loop_received_packets_total", "Packets taken from drivers.", s.Received, loop)
		w.Counter("millrace_loop_received_bytes_total", "Bytes of packets taken from drivers.", s.ReceivedBytes, loop)
		w.Counter("millrace_loop_originated_packets_total", "Packets that the loop made itself.", s.Originated, loop)
		w.Counter("millrace_loop_taken_over_packets_total", "Packets taken over from other loops.", s.TakenOver, loop)
		w.Counter("millrace_loop_handed_over_packets_total", "Packets handed over to other loops.", s.HandedOver, loop)
		w.Counter("millrace_loop_forwarded_packets_total", "Packets taken by drivers.", s.Forwarded, loop)
		w.Counter("millrace_loop_delivered_packets_total", "Packets taken by local consumers.", s.Delivered, loop)
		w.Counter("millrace_loop_iterations_total", "Times the loop polled its devices.", s.Iterations, loop)
		w.Counter("millrace_loop_busy_iterations_total", "Iterations that moved packets.", s.Busy, loop)
		w.Counter("millrace_loop_sleeps_total", "Times the loop slept.", s.Sleeps, loop)
		for v := packet.Drop; int(v) < packet.Verdicts; v++ {
			w.Counter("millrace_loop_dropped_packets_total", "Packets dropped, by reason.", s.Dropped[v],
				loop, metrics.Label{Name: "reason", Value: v.String()})
		}
	}
}

func (d *Daemon) writeDevices(w *metrics.Writer) {
	for _, dev := range d.devices {
		for _, q := range dev.Queues {
			writeQueue(w, q.Info())
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
		{"millrace_rx_missed_packets_total", "Packets lost before the driver saw them.", s.RxMissed},
		{"millrace_rx_invalid_packets_total", "Packets that the driver could not use.", s.RxInvalid},
		{"millrace_tx_packets_total", "Packets sent.", s.TxPackets},
		{"millrace_tx_bytes_total", "Bytes sent.", s.TxBytes},
		{"millrace_tx_invalid_packets_total", "Packets that the device refused.", s.TxInvalid},
		{"millrace_driver_wakeups_total", "System calls made to move packets.", s.Wakeups},
	} {
		w.Counter(m.name, m.help, m.v, device, driver, queue)
	}
}
