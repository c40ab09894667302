package inspection

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/millrace/millrace/filter/inspect"
	"github.com/millrace/millrace/filter/signature"
	"github.com/millrace/millrace/wire"
)

// Alert is one line of the alerts' file.
type Alert struct {
	Time      string        `json:"time"`
	Event     string        `json:"event"` // "alert", "anomaly" or "access"
	Policy    string        `json:"policy"`
	Service   string        `json:"service"`
	Flow      uint64        `json:"flow"` // which, of its policy and loop; 0 for a packet of no flow
	Loop      int           `json:"loop"`
	Src       netip.Addr    `json:"src"`
	SrcPort   uint16        `json:"src_port"`
	Dst       netip.Addr    `json:"dst"`
	DstPort   uint16        `json:"dst_port"`
	Proto     string        `json:"proto"`
	App       string        `json:"app"`
	Direction string        `json:"direction"`
	Tunnels   int           `json:"tunnels"` // around the packet
	Late      bool          `json:"late"`    // found when the flow ended: its packets have passed
	Action    string        `json:"action"`  // what was done: "alert", "drop" or "reject"
	Rule      *AlertRule    `json:"rule"`    // null for an anomaly
	Anomaly   string        `json:"anomaly"`
	Request   *AlertRequest `json:"request"` // null for a packet
	Mark      uint32        `json:"mark"`    // that an access rule gave the packet; 0: none
	Payload   []byte        `json:"payload"` // base64, where the rule matched
	Text      string        `json:"text"`    // the same, with dots for what is no printable ASCII
}

// AlertRule selects which rule an Alert is of.
type AlertRule struct {
	GID      uint32 `json:"gid"`
	SID      uint32 `json:"sid"`
	Rev      uint32 `json:"rev"`
	Msg      string `json:"msg"`
	Class    string `json:"class"`
	Priority int    `json:"priority"`
	Action   string `json:"action"` // of the rule
}

// encoder writes the alerts of one loop, each as one record.
type encoder struct {
	line bytes.Buffer
	json *json.Encoder
}

func (e *encoder) encode(a *Alert) []byte {
	if e.json == nil {
		e.json = json.NewEncoder(&e.line)
		e.json.SetEscapeHTML(false)
	}
	e.line.Reset()
	if e.json.Encode(a) != nil {
		return nil // all fields can be encoded
	}
	return e.line.Bytes()
}

// show puts what an alert shows of a payload into it.
func (e *encoder) show(a *Alert, payload []byte, most int) {
	payload = payload[:min(len(payload), most)]
	a.Payload, a.Text = payload, printable(payload)
}

// matched counts a match of a rule.
func (p *policy) matched(r *signature.Rule) {
	if c := p.counts[r]; c != nil {
		c.matches.Add(1)
	}
}

func (l *Loop) matched(r *signature.Rule) { l.engine.policy.matched(r) }

// alert reports what the engine has found. A flow may end while a packet of another is inspected, or none is.
func (l *Loop) alert(a *inspect.Alert) {
	p := l.engine.policy
	action := actionOf(p, a, p.prevent, a.Packet == 0)
	out := newAlert(p, a, action)
	l.write(&out, a.Payload)
	l.report(&out, a.Rule, a.Proto, action)
}

// newAlert returns the alert of what an engine has found, and counts it.
func newAlert(p *policy, a *inspect.Alert, action Action) Alert {
	out := Alert{
		Event: "alert", Policy: p.name, Flow: a.Flow, Src: a.Src, SrcPort: a.SrcPort, Dst: a.Dst, DstPort: a.DstPort,
		Proto: wire.ProtoName(a.Proto), App: a.App.String(), Tunnels: a.Tunnel, Late: a.Packet == 0, Action: action.String(), Anomaly: a.Anomaly.String(),
	}
	switch a.Dir {
	case signature.ToServer:
		out.Direction = "to_server"
	case signature.ToClient:
		out.Direction = "to_client"
	}
	if r := a.Rule; r != nil {
		out.Rule = &AlertRule{r.GID, r.SID, r.Rev, r.Msg, r.Class, r.Priority, r.Action.String()}
		if c := p.counts[r]; c != nil {
			c.alerts.Add(1)
			if action != ActionAlert {
				c.drops.Add(1)
			}
		}
	} else {
		out.Event = "anomaly"
		p.totals.anomalies.Add(1)
	}
	return out
}

// actionOf returns what is done with the packet or request of an alert. prevent is whether rules that drop do so.
func actionOf(p *policy, a *inspect.Alert, prevent, late bool) Action {
	switch {
	case !prevent || late:
		return ActionAlert
	case a.Anomaly == inspect.UrgentData, a.Anomaly == inspect.HTTPFraming, a.Anomaly != inspect.NoAnomaly && p.overlaps:
		return ActionDrop
	case a.Rule == nil:
	case a.Rule.Action == signature.Drop:
		return ActionDrop
	case a.Rule.Action == signature.Reject:
		return ActionReject
	}
	return ActionAlert
}

// write queues an alert for the file, and its packet for the pcapng.
func (l *Loop) write(a *Alert, payload []byte) {
	now := l.of.opt.Wall(l.now)
	if !a.Late {
		a.Service, a.Mark = l.in.Service, l.mark
	}
	a.Loop = l.number
	a.Time = wallTime(now)
	if o := l.of.alerts.Load(); o != nil {
		l.encoder.show(a, payload, l.of.set.Load().payload)
		_, _ = o.queue.Write(l.encoder.encode(a)) // it does not fail
	}
	if f := l.of.packets.Load(); f != nil && !a.Late {
		f.write(now.UnixNano(), l.whole, comment(a))
	}
}

// wallTime returns a time as alerts have it.
func wallTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000Z07:00") }

// comment says in a capture which rule a packet is of.
func comment(a *Alert) []byte {
	if a.Rule == nil {
		return fmt.Appendf(nil, "%s %s: %s", a.Policy, a.Action, a.Anomaly)
	}
	return fmt.Appendf(nil, "%s %s: %d:%d:%d %s", a.Policy, a.Action, a.Rule.GID, a.Rule.SID, a.Rule.Rev, a.Rule.Msg)
}

// report hands a verdict to the caller's function.
func (l *Loop) report(a *Alert, r *signature.Rule, proto uint8, action Action) {
	if l.of.opt.OnVerdict == nil || a.Late {
		return
	}
	v := &Verdict{
		Time: l.now, Policy: a.Policy, Service: a.Service, Device: l.in.Device, Source: a.Src, SrcPort: a.SrcPort, Dest: a.Dst,
		DestPort: a.DstPort, Proto: proto, Inner: a.Tunnels > 0, Rule: r, Action: action,
	}
	src, dst, _ := addresses(&l.in.Chain[0], l.whole)
	if v.Client = src; !l.in.FromClient {
		v.Client = dst
	}
	l.of.opt.OnVerdict(v)
}

// printable returns bytes with dots for those that are not printable ASCII.
func printable(b []byte) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '.'
		}
		return r
	}, strings.ToValidUTF8(string(b), "."))
}
