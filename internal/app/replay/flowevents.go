package replay

import (
	"encoding/json"
	"io"
	"net/netip"
	"strings"
	"time"
)

// FlowEvent is one line of WriteFlows, with the keys of Suricata's EVE output.
type FlowEvent struct {
	Schema    int           `json:"schema"`
	Timestamp string        `json:"timestamp"` // of the flow's first packet
	Event     string        `json:"event_type"`
	Src       netip.Addr    `json:"src_ip"`
	SrcPort   uint16        `json:"src_port"`
	Dst       netip.Addr    `json:"dest_ip"`
	DstPort   uint16        `json:"dest_port"`
	Proto     string        `json:"proto"`
	App       string        `json:"app_proto"`
	Protocol  string        `json:"protocol"` // the name of --classify, of which app_proto is Suricata's
	Name      string        `json:"name"`
	ALPN      string        `json:"alpn"`
	JA4       string        `json:"ja4"`
	Rules     []uint16      `json:"rules"`
	Alerts    []FlowAlert   `json:"alerts"`    // of inspection rules, by gid and sid
	Anomalies uint64        `json:"anomalies"` // overlapping bytes that differ
	Flow      FlowEventFlow `json:"flow"`
}

// FlowAlert is an inspection rule and how often it alerted in a flow.
type FlowAlert struct {
	AlertRule
	Count uint64 `json:"count"`
}

// FlowEventFlow is the traffic of a flow.
type FlowEventFlow struct {
	PacketsToServer uint64  `json:"pkts_toserver"`
	PacketsToClient uint64  `json:"pkts_toclient"`
	BytesToServer   uint64  `json:"bytes_toserver"`
	BytesToClient   uint64  `json:"bytes_toclient"`
	Start           string  `json:"start"`
	End             string  `json:"end"`
	Seconds         float64 `json:"duration_seconds"`
	Alerted         bool    `json:"alerted"`
}

// EVETime is the layout of a time in EVE output.
const EVETime = "2006-01-02T15:04:05.000000-0700"

// EVETransport returns the name that EVE output has for a transport protocol of wire.ProtoName.
func EVETransport(name string) string {
	if name == "icmpv6" {
		return "IPv6-ICMP"
	}
	return strings.ToUpper(name)
}

// eveApps are the application protocols whose names in EVE output are not those of package appid in lower case.
var eveApps = map[string]string{
	"unknown": "failed", "HTTP-CONNECT": "http", "DCE-RPC": "dcerpc", "EtherNet/IP": "enip", "Kerberos": "krb5", "PostgreSQL": "pgsql", "VNC": "rfb",
}

func eveApp(name string) string {
	if other, ok := eveApps[name]; ok {
		return other
	}
	return strings.ReplaceAll(strings.ToLower(name), " ", "-")
}

// WriteFlows writes a line of JSON for each flow, a FlowEvent, the largest first.
func WriteFlows(w io.Writer, flows *Conversations) error {
	out := json.NewEncoder(w)
	for i := range flows.List {
		f := &flows.List[i]
		e := FlowEvent{
			Schema: 1, Timestamp: f.Start.Format(EVETime), Event: "flow",
			Src: f.A.Addr(), SrcPort: f.A.Port(), Dst: f.B.Addr(), DstPort: f.B.Port(), Proto: EVETransport(f.Protocol),
			Flow: FlowEventFlow{
				PacketsToServer: f.PacketsAB, PacketsToClient: f.PacketsBA, BytesToServer: f.BytesAB, BytesToClient: f.BytesBA,
				Start: f.Start.Format(EVETime), End: f.Start.Add(time.Duration(f.Seconds * float64(time.Second))).Format(EVETime), Seconds: f.Seconds,
				Alerted: len(f.Alerts) > 0,
			},
			Alerts: []FlowAlert{}, Anomalies: f.Anomalies,
		}
		if a := f.Application; a != nil {
			e.App, e.Protocol, e.Name, e.ALPN, e.JA4, e.Rules = eveApp(a.Protocol), a.Protocol, a.Name, a.ALPN, a.JA4, a.Rules
		}
		for _, h := range f.Alerts {
			e.Alerts = append(e.Alerts, FlowAlert{AlertRule{h.Action, h.GID, h.SID, h.Rev, h.Msg, h.Class, h.Priority}, h.Alerts})
		}
		if e.Rules == nil {
			e.Rules = []uint16{}
		}
		if err := out.Encode(&e); err != nil {
			return err
		}
	}
	return nil
}
