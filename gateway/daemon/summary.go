package daemon

import (
	"fmt"
	"strings"

	"github.com/millrace/millrace/gateway"
	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/metrics"
	"github.com/millrace/millrace/node"
)

// Summary is what a daemon has done so far.
type Summary struct {
	node.Counters
	Devices []node.DeviceCounters `json:"devices"`
	Engine  gpukern.EngineStats   `json:"engine"`
	Gateway gateway.Status        `json:"gateway"`
}

// Summary returns the counters.
func (d *Daemon) Summary() Summary {
	return Summary{
		Counters: d.node.Counters(), Devices: d.node.DeviceCounters(), Engine: d.node.Engine(), Gateway: d.gate.Status(),
	}
}

// String renders the summary for people.
func (s Summary) String() string {
	var b strings.Builder
	for _, dev := range s.Devices {
		fmt.Fprintf(&b, "%-10s %-9s received %d, sent %d, rx missed %d\n", dev.Name, dev.Driver, dev.RxPackets, dev.TxPackets, dev.RxMissed)
	}
	for _, sv := range s.Gateway.Services {
		for _, be := range sv.Backends {
			fmt.Fprintf(&b, "%-10s %-9s %s: %d connections, %d packets to the backend, %d from it\n",
				sv.Name, be.Name, be.Address, be.Opened, be.ToPackets, be.FromPackets)
		}
	}
	b.WriteString(s.Balance())
	return b.String()
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
