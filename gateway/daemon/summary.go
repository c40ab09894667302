package daemon

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/millrace/millrace/gpukern"
	l4control "github.com/millrace/millrace/l4/control"
	l7control "github.com/millrace/millrace/l7/control"
	"github.com/millrace/millrace/metrics"
	"github.com/millrace/millrace/node"
)

// Summary holds the totals of a daemon.
type Summary struct {
	node.Counters
	Devices []node.DeviceCounters `json:"devices"`
	Engine  gpukern.EngineStats   `json:"engine"`
	Gateway l4control.Status      `json:"gateway"`

	Listeners *l7control.Status `json:"http,omitempty"` // without listeners: none
}

// Summary returns the counters.
func (d *Daemon) Summary() Summary {
	s := Summary{
		Counters: d.node.Counters(), Devices: d.node.DeviceCounters(), Engine: d.node.Engine(), Gateway: d.gate.Status(),
	}
	if d.workers != nil {
		st := d.workers.Status(nil)
		s.Listeners = &st
	}
	return s
}

// String renders the summary for people.
func (s Summary) String() string {
	var b strings.Builder
	for _, dev := range s.Devices {
		fmt.Fprintf(&b, "%-10s %-9s received %d, sent %d, rx missed %d, rx invalid %d\n",
			dev.Name, dev.Driver, dev.RxPackets, dev.TxPackets, dev.RxMissed, dev.RxInvalid)
	}
	s.backends(&b)
	if s.Listeners != nil {
		s.requests(&b)
	}
	if s.Listeners == nil || len(s.Devices) > 0 {
		b.WriteString(s.Balance())
	}
	return b.String()
}

// requests writes what listeners have done, with a line for each backend of the first pools.
func (s *Summary) requests(b *strings.Builder) {
	n, left := &s.Listeners.Counts, maxSummary
	for i := range s.Listeners.Pools {
		p := &s.Listeners.Pools[i]
		for k := range p.Backends {
			of := &p.Backends[k]
			if left--; left < 0 {
				break
			}
			fmt.Fprintf(b, "%-10s %-9s %s: responses %s, failures %s\n", p.Name, of.Name, of.Where(), counted(of.Responses), counted(of.Failures))
		}
	}
	fmt.Fprintf(b, "%d connections, %d requests, responses %s; %d connections passed through\n",
		n.Connections, n.Requests, counted(n.Responses), n.Streams.Passed)
}

// counted writes counts by name.
func counted(m map[string]uint64) string {
	if len(m) == 0 {
		return "none"
	}
	var words []string
	for _, name := range slices.Sorted(maps.Keys(m)) {
		words = append(words, fmt.Sprintf("%s %d", name, m[name]))
	}
	return strings.Join(words, ", ")
}

// maxSummary is the number of backends that the summary for people names: those with the most packets.
const maxSummary = 50

// backends writes a line for each backend, or for the busiest and one for the others.
func (s *Summary) backends(b *strings.Builder) {
	type line struct {
		service string
		of      *l4control.BackendStatus
	}
	var list []line
	for i := range s.Gateway.Services {
		sv := &s.Gateway.Services[i]
		for k := range sv.Backends {
			list = append(list, line{sv.Name, &sv.Backends[k]})
		}
	}
	var more l4control.BackendStatus
	others := 0
	if len(list) > maxSummary {
		slices.SortStableFunc(list, func(a, b line) int {
			return cmp.Compare(b.of.ToPackets+b.of.FromPackets, a.of.ToPackets+a.of.FromPackets)
		})
		others = len(list) - maxSummary
		for _, l := range list[maxSummary:] {
			more.Opened += l.of.Opened
			more.ToPackets += l.of.ToPackets
			more.FromPackets += l.of.FromPackets
		}
		list = list[:maxSummary]
	}
	const counts = "%d connections, %d packets to the backend, %d from it\n"
	for _, l := range list {
		fmt.Fprintf(b, "%-10s %-9s %s: "+counts, l.service, l.of.Name, l.of.Address, l.of.Opened, l.of.ToPackets, l.of.FromPackets)
	}
	if others > 0 {
		fmt.Fprintf(b, "%d more backends: "+counts, others, more.Opened, more.ToPackets, more.FromPackets)
	}
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
