package replay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"time"

	"github.com/millrace/millrace/capture"
	"github.com/millrace/millrace/filter/inspect"
	"github.com/millrace/millrace/filter/signature"
	"github.com/millrace/millrace/wire"
)

// AlertEvent is one line of filter inspect, with the keys of Suricata's EVE output.
type AlertEvent struct {
	Schema    int        `json:"schema"`
	Timestamp string     `json:"timestamp"`
	FlowID    uint64     `json:"flow_id"`
	Capture   string     `json:"capture"`
	Packet    uint64     `json:"pcap_cnt"`
	Event     string     `json:"event_type"`
	Src       netip.Addr `json:"src_ip"`
	SrcPort   uint16     `json:"src_port"`
	Dst       netip.Addr `json:"dest_ip"`
	DstPort   uint16     `json:"dest_port"`
	Proto     string     `json:"proto"`
	App       string     `json:"app_proto"`
	Direction string     `json:"direction"`
	Tunnels   int        `json:"tunnels"`
	Anomaly   string     `json:"anomaly"`
	Alert     *AlertRule `json:"alert"`
	Payload   string     `json:"payload_printable"`
}

// AlertRule selects which rule an alert is of.
type AlertRule struct {
	Action   string `json:"action"`
	GID      uint32 `json:"gid"`
	SID      uint32 `json:"signature_id"`
	Rev      uint32 `json:"rev"`
	Msg      string `json:"signature"`
	Class    string `json:"category"`
	Severity int    `json:"severity"`
}

// Inspection is a run of inspection rules over captures.
type Inspection struct {
	Rules    *inspect.Rules
	Config   inspect.Config
	Separate bool // forget flows and thresholds between captures

	Stats  inspect.Stats
	Alerts int

	out    *json.Encoder
	engine *inspect.Engine
	path   string
	before uint64 // packets of this engine before this file
	err    error  // of out
}

// Run inspects the captures, one after the other, and writes each alert as a line of JSON, an AlertEvent. The errors of
// captures that could not be read to their end are joined.
func (s *Inspection) Run(ctx context.Context, out io.Writer, captures []string) (err error) {
	s.out = json.NewEncoder(out)
	s.out.SetEscapeHTML(false)
	for _, path := range captures {
		if s.engine == nil || s.Separate {
			s.restart()
		}
		if e := s.file(ctx, path); e != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", path, e))
		}
	}
	s.flush()
	return errors.Join(err, s.err)
}

// restart begins with an engine that knows no flows.
func (s *Inspection) restart() {
	s.flush()
	s.engine = inspect.New(s.Rules, s.Config, s.alert)
	s.before = 0
}

// flush ends the flows and counts what there was.
func (s *Inspection) flush() {
	if s.engine == nil {
		return
	}
	s.engine.Flush()
	t := s.engine.Stats()
	s.Stats.Packets += t.Packets
	s.Stats.Bytes += t.Bytes
	s.Stats.Flows += t.Flows
	s.Stats.Gaps += t.Gaps
	s.Stats.Overflows += t.Overflows
	s.Stats.Suppressed += t.Suppressed
	s.Stats.GaveUp += t.GaveUp
	s.Stats.Evaluated += t.Evaluated
	s.engine = nil
}

// file inspects the packets of one capture.
func (s *Inspection) file(ctx context.Context, path string) error {
	in, err := capture.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	s.path, s.before = path, s.engine.Stats().Packets
	var frame []byte
	for n := 0; ; n++ {
		if n%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		rec, err := in.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		b, err := capture.ToEthernet(rec.LinkType, rec.Data, frame)
		if err != nil {
			s.before-- // packets are counted as in the file
			continue
		}
		if rec.LinkType != capture.LinkTypeEthernet {
			frame = b
		}
		s.engine.Packet(rec.Time, capture.Readable(b, len(b)+rec.Len-len(rec.Data)))
	}
}

// alert writes one alert.
func (s *Inspection) alert(a *inspect.Alert) {
	s.Alerts++
	j := AlertEvent{
		Schema: 1, Timestamp: time.Unix(0, a.Time).UTC().Format(EVETime), FlowID: a.Flow, Capture: s.path,
		Event: "anomaly", Src: a.Src, SrcPort: a.SrcPort, Dst: a.Dst, DstPort: a.DstPort, Proto: EVETransport(wire.ProtoName(a.Proto)), App: a.App.String(), Tunnels: a.Tunnel,
		Anomaly: a.Anomaly.String(), Payload: printable(a.Payload),
	}
	if a.Packet > 0 {
		j.Packet = a.Packet - s.before
	}
	switch a.Dir {
	case signature.ToServer:
		j.Direction = "to_server"
	case signature.ToClient:
		j.Direction = "to_client"
	}
	if r := a.Rule; r != nil {
		j.Event = "alert"
		j.Alert = &AlertRule{r.Action.String(), r.GID, r.SID, r.Rev, r.Msg, r.Class, r.Priority}
	}
	if err := s.out.Encode(&j); err != nil && s.err == nil {
		s.err = err
	}
}

// printable returns at most 80 bytes, with dots for those that are not printable ASCII.
func printable(b []byte) string {
	b = b[:min(len(b), 80)]
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '.'
		}
		return r
	}, strings.ToValidUTF8(string(b), "."))
}
