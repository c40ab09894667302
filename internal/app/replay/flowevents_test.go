package replay

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// TestFlowEventsAreEVE compares a line with what Suricata 7 writes for such a flow: names of protocols, times with microseconds and a
// zone without colon.
func TestFlowEventsAreEVE(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 6789, time.UTC)
	flow := Conversation{
		Protocol: "icmpv6", A: netip.MustParseAddrPort("[2001:db8::1]:0"), B: netip.MustParseAddrPort("[2001:db8::2]:0"), Start: start, Seconds: 1.5,
		PacketsAB: 1, PacketsBA: 2, BytesAB: 3, BytesBA: 4,
	}
	apps := map[string]string{"unknown": "failed", "PostgreSQL": "pgsql", "VNC": "rfb", "Kerberos": "krb5", "TLS": "tls", "HTTP2": "http2", "DCE-RPC": "dcerpc", "World of Warcraft": "world-of-warcraft"}
	for name, want := range apps {
		flow.Application = &Application{Protocol: name}
		var out strings.Builder
		if err := WriteFlows(&out, &Conversations{List: []Conversation{flow}}); err != nil {
			t.Fatal(err)
		}
		var e FlowEvent
		if err := json.Unmarshal([]byte(out.String()), &e); err != nil {
			t.Fatal(err)
		}
		if e.App != want || e.Protocol != name || e.Proto != "IPv6-ICMP" || e.Event != "flow" {
			t.Errorf("%s: %s", name, out.String())
		}
		if e.Timestamp != "2026-01-02T03:04:05.000006+0000" || e.Flow.Start != e.Timestamp || e.Flow.End != "2026-01-02T03:04:06.500006+0000" {
			t.Errorf("times: %s", out.String())
		}
		if f := e.Flow; f.PacketsToServer != 1 || f.PacketsToClient != 2 || f.BytesToServer != 3 || f.BytesToClient != 4 || f.Seconds != 1.5 {
			t.Errorf("counters: %+v", f)
		}
	}
	if got := EVETransport("tcp"); got != "TCP" {
		t.Error(got)
	}
}
