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
	Cores    int  // engines that share the packets out; 0 and 1 are one

	Stats  inspect.Stats
	Alerts int

	out *json.Encoder
	err error // of out
}

// reading goes over the packets of captures, one capture after the other.
type reading struct {
	path   string
	before uint64 // records before this capture
	number uint64 // of the record that was read last, in all captures
	frame  []byte // scratch for what is not Ethernet
}

// found is an alert on its way to the output.
type found struct {
	inspect.Alert
	text   string // of its payload
	at     uint64 // the packet at which it was found
	path   string
	before uint64
}

// Run inspects the captures, one after the other, and writes each alert as a line of JSON, an AlertEvent. The errors of
// captures that could not be read to their end are joined.
func (s *Inspection) Run(ctx context.Context, out io.Writer, captures []string) (err error) {
	s.out = json.NewEncoder(out)
	s.out.SetEscapeHTML(false)
	to := taker(&oneEngine{of: s})
	if s.Cores > 1 {
		to = newShards(s, s.Cores)
	}
	var src reading
	for i, path := range captures {
		if i > 0 && s.Separate {
			to.end()
		}
		if e := src.file(ctx, path, to); e != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", path, e))
		}
	}
	to.end()
	to.close()
	return errors.Join(err, s.err)
}

// taker takes the packets of captures.
type taker interface {
	// packet inspects a frame, which it borrows, of the record that src has read last.
	packet(src *reading, now int64, frame []byte)
	// end ends all flows. Packets that follow begin anew.
	end()
	// close returns when all alerts are written.
	close()
}

// file reads the packets of one capture.
func (src *reading) file(ctx context.Context, path string, to taker) error {
	in, err := capture.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	src.path, src.before = path, src.number
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
		src.number++ // of those, too, that are not inspected
		b, err := capture.ToEthernet(rec.LinkType, rec.Data, src.frame)
		if err != nil {
			continue
		}
		if rec.LinkType != capture.LinkTypeEthernet {
			src.frame = b
		}
		to.packet(src, rec.Time, capture.Readable(b, len(b)+rec.Len-len(rec.Data)))
	}
}

// oneEngine inspects all packets on the calling goroutine.
type oneEngine struct {
	of     *Inspection
	engine *inspect.Engine // nil until a packet comes
	src    *reading
}

func (o *oneEngine) packet(src *reading, now int64, frame []byte) {
	if o.engine == nil {
		o.engine = inspect.New(o.of.Rules, o.of.Config, func(a *inspect.Alert) {
			o.of.write(&found{Alert: *a, text: printable(a.Payload), path: o.src.path, before: o.src.before})
		})
	}
	o.src = src
	o.engine.Inspect(&inspect.Input{Now: now, Frame: frame, Number: src.number})
}

func (o *oneEngine) end() {
	if o.engine == nil {
		return
	}
	o.engine.Flush()
	o.of.add(o.engine.Stats())
	o.engine = nil
}

func (o *oneEngine) close() {}

// add counts what an engine has seen.
func (s *Inspection) add(t inspect.Stats) {
	s.Stats.Packets += t.Packets
	s.Stats.Bytes += t.Bytes
	s.Stats.Flows += t.Flows
	s.Stats.Gaps += t.Gaps
	s.Stats.Overflows += t.Overflows
	s.Stats.Suppressed += t.Suppressed
	s.Stats.GaveUp += t.GaveUp
	s.Stats.Evaluated += t.Evaluated
}

// write writes one alert.
func (s *Inspection) write(a *found) {
	s.Alerts++
	j := AlertEvent{
		Schema: 1, Timestamp: time.Unix(0, a.Time).UTC().Format(EVETime), FlowID: a.Flow, Capture: a.path,
		Event: "anomaly", Src: a.Src, SrcPort: a.SrcPort, Dst: a.Dst, DstPort: a.DstPort, Proto: EVETransport(wire.ProtoName(a.Proto)), App: a.App.String(), Tunnels: a.Tunnel,
		Anomaly: a.Anomaly.String(), Payload: a.text,
	}
	if a.Packet > 0 {
		j.Packet = a.Packet - a.before
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
