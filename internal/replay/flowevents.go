package replay

import (
	"encoding/json"
	"io"
	"net/netip"
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
	Name      string        `json:"name"`
	ALPN      string        `json:"alpn"`
	JA4       string        `json:"ja4"`
	Rules     []uint16      `json:"rules"`
	Flow      FlowEventFlow `json:"flow"`
}

// FlowEventFlow is the traffic of a flow.
type FlowEventFlow struct {
	PacketsToServer uint64  `json:"pkts_toserver"`
	PacketsToClient uint64  `json:"pkts_toclient"`
	BytesToServer   uint64  `json:"bytes_toserver"`
	BytesToClient   uint64  `json:"bytes_toclient"`
	Seconds         float64 `json:"duration_seconds"`
}

// WriteFlows writes a line of JSON for each flow, a FlowEvent, the largest first.
func WriteFlows(w io.Writer, flows *Conversations) error {
	out := json.NewEncoder(w)
	for i := range flows.List {
		f := &flows.List[i]
		e := FlowEvent{
			Schema: 1, Timestamp: f.Start.Format(time.RFC3339Nano), Event: "flow",
			Src: f.A.Addr(), SrcPort: f.A.Port(), Dst: f.B.Addr(), DstPort: f.B.Port(), Proto: f.Protocol,
			Flow: FlowEventFlow{f.PacketsAB, f.PacketsBA, f.BytesAB, f.BytesBA, f.Seconds},
		}
		if a := f.Application; a != nil {
			e.App, e.Name, e.ALPN, e.JA4, e.Rules = a.Protocol, a.Name, a.ALPN, a.JA4, a.Rules
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
