package config

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/gateway/health"
)

// referencePages are the pages that list keys and metrics.
func referencePages(t *testing.T) (text string) {
	t.Helper()
	for _, file := range []string{"gateway-keys.md", "http-gateway.md"} {
		page, err := os.ReadFile("../../docs/" + file)
		if err != nil {
			t.Fatal(err)
		}
		text += string(page)
	}
	return text
}

// keyRows returns the first two cells of the rows of the page whose first matches.
func keyRows(page, first string) (names []string, second map[string]string) {
	second = map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `("+first+")` \\| ([^|]*) \\|").FindAllStringSubmatch(page, -1) {
		names, second[m[1]] = append(names, m[1]), strings.Trim(m[2], " `")
	}
	slices.Sort(names)
	return names, second
}

// keysOf returns the keys of the schema, which the decoder describes.
func keysOf(t *testing.T) (keys []string) {
	t.Helper()
	for _, k := range Schema().Keys() {
		if !describedElsewhere(k.Path) {
			keys = append(keys, k.Path)
		}
	}
	slices.Sort(keys)
	return keys
}

// describedElsewhere reports whether a key is described as one of the same name.
func describedElsewhere(path string) bool {
	for _, prefix := range []string{"services[].limits.", "services[].sources.", "listeners[].sources.", "routes[].sources.", "pools[].health.", "listeners[].announce."} {
		if strings.HasPrefix(path, prefix) {
			return true
		}
	}
	return false
}

func TestTheReferenceHasEveryKeyAndItsDefault(t *testing.T) {
	names, defaults := keyRows(referencePages(t), `(?:stack|loops|network|access_log|tracing|resolver|rate_limits|caches|listeners|routes|tls_routes|tcp_routes|pools|devices|hash_key|snat|checksum|engine|cpus|extra_processor|kernel_flows|spin|tunnel|sources|limits|defence|table|sync|bgp|admin|metrics|inspection|services)[a-z0-9_.\[\]]*`)
	if diff := cmp.Diff(keysOf(t), names); diff != "" {
		t.Errorf("docs/gateway-keys.md and docs/http-gateway.md list other keys than the code has: %s", diff)
	}
	c, dev, sv, h := newConfig(), newDevice(), newService(), health.New()
	p := health.NewPassive()
	for key, want := range map[string]any{
		"devices[].driver": dev.Driver, "devices[].mode": dev.Mode, "devices[].queues": dev.Queues, "devices[].ring": dev.Ring,
		"snat_ports": fmt.Sprintf("%d-%d", c.SNATPorts.First, c.SNATPorts.Last), "checksum": c.Checksum, "engine": c.Engine, "extra_processor": c.ExtraProcessor,
		"table.size": c.Table.Size, "table.tcp.established": c.Table.TCPEstablished, "table.tcp.syn": c.Table.TCPSYN,
		"table.tcp.syn_recv": c.Table.TCPSYNReceived, "table.tcp.half_closed": c.Table.TCPHalfClosed, "table.tcp.reset": c.Table.TCPReset,
		"table.tcp.fin": c.Table.TCPFIN, "table.udp": c.Table.UDP,
		"inspection.flows": c.Inspection.Flows, "inspection.memory": c.Inspection.Memory, "inspection.overload": c.Inspection.Overload,
		"inspection.alerts.buffer": c.Inspection.Alerts.Buffer, "inspection.alerts.payload": c.Inspection.Alerts.Payload, "inspection.packets.size": c.Inspection.Packets.Size,
		"inspection.policies[].mode": newInspectionPolicy().Mode, "inspection.policies[].overlaps": newInspectionPolicy().Overlaps, "inspection.policies[].lenient": false, "inspection.policies[].hold": newInspectionPolicy().Hold, "inspection.policies[].urgent": newInspectionPolicy().Urgent,
		"spin": c.Spin, "tunnel.gue_port": c.Tunnel.GUEPort, "tunnel.too_big": c.Tunnel.TooBig, "sources.default": c.Sources.Default, "limits.burst": c.Limits.Burst,
		"sync.role.priority": newRole().Priority, "sync.role.lease": newRole().Lease, "sync.role.preempt": newRole().Preempt, "sync.role.preempt_delay": newRole().PreemptDelay,
		"defence.time": newDefence().Time, "defence.max_verdicts": newDefence().Max, "defence.syn_rate": newDefence().SYNRate,
		"limits.clients": c.Limits.Clients, "table.fragments": c.Table.Fragments, "kernel_flows": c.KernelFlows, "table.kernel_flows": c.Table.KernelFlows, "admin.socket": c.Admin.Socket,
		"services[].balance": sv.Balance, "services[].when_full": sv.WhenFull, "services[].persistence.by": newPersistence().By,
		"services[].persistence.prefix4": newPersistence().Prefix4, "services[].persistence.prefix6": newPersistence().Prefix6,
		"bgp.drain": newBGP().Drain, "bgp.graceful_restart": newBGP().GracefulRestart, "bgp.peers[].port": newBGPPeer().Port, "bgp.peers[].hold_time": newBGPPeer().HoldTime,
		"bgp.peers[].connect_retry": newBGPPeer().ConnectRetry, "bgp.peers[].max_prefixes": newBGPPeer().MaxPrefixes,
		"services[].mode": sv.Mode, "services[].slow_start": sv.SlowStart, "services[].drain": sv.Drain,
		"services[].protocol": sv.Protocol, "services[].source": sv.Source, "services[].removed": sv.Removed, "services[].unhealthy": sv.Unhealthy, "services[].unknown": sv.Unknown,
		"services[].hash_size": map[int]string{0: "auto"}[sv.HashSize], "services[].health.type": h.Type, "services[].health.interval": h.Interval,
		"services[].health.timeout": h.Timeout, "services[].health.rise": h.Rise, "services[].health.fall": h.Fall,
		"services[].health.http.method": h.HTTP.Method, "services[].health.http.path": h.HTTP.Path,
		"services[].health.http.status": h.HTTP.Status[0], "services[].health.http.insecure": h.HTTP.Insecure,
		"services[].health.udp.silence": h.UDP.Silence, "services[].passive.failures": p.Failures, "services[].passive.window": p.Window,
		"services[].passive.down": p.Down, "services[].passive.max_down": p.MaxDown, "services[].passive.max_ejected": p.MaxEjected,
	} {
		if got := defaults[key]; got != fmt.Sprint(want) {
			t.Errorf("the default of %s is %v, docs/gateway-keys.md says %q", key, want, got)
		}
	}
	for _, k := range Schema().Keys() { // those at L7, whose defaults all are in the schema
		byDefault, got := k.Schema.DefaultOf(), defaults[k.Path]
		if laterSection.MatchString(k.Path) && !describedElsewhere(k.Path) && byDefault != "" && got != byDefault && !k.Required {
			t.Errorf("the default of %s is %v, docs/http-gateway.md says %q", k.Path, byDefault, got)
		}
	}
}

var laterSection = regexp.MustCompile(`^(?:stack|loops|network|access_log|tracing|resolver|rate_limits|caches|listeners|routes|tls_routes|tcp_routes|pools)\b`)
