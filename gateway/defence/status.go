package defence

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/millrace/millrace/metrics"
)

// Status is a picture of a Defence.
type Status struct {
	Devices  []DeviceStatus    `json:"devices"`
	Verdicts []VerdictStatus   `json:"verdicts"` // beyond the lists, by prefix
	Rules    []RuleStatus      `json:"rules"`    // that have dropped packets, or have verdicts
	Listed   int               `json:"listed"`   // prefixes of lists
	Max      int64             `json:"max_verdicts"`
	Answered uint64            `json:"answered_syns"` // with cookies
	Refused  map[string]uint64 `json:"refused_verdicts"`
}

// DeviceStatus reports whether a device has the program.
type DeviceStatus struct {
	Name string `json:"name"`
	On   bool   `json:"on"`
	How  string `json:"how,omitempty"`
	Why  string `json:"why,omitempty"` // not
}

// VerdictStatus is a verdict that is in force.
type VerdictStatus struct {
	Source  netip.Prefix `json:"source"`
	Action  string       `json:"action"` // "drop" or "limit"
	Packets int          `json:"packets_per_second,omitempty"`
	Rule    string       `json:"rule"`
	Since   time.Time    `json:"since"`
	Left    float64      `json:"seconds_left,omitempty"` // 0: until it is removed
}

// RuleStatus counts the drops of a rule.
type RuleStatus struct {
	Rule     string `json:"rule"`
	Verdicts int    `json:"verdicts"`
	Packets  uint64 `json:"dropped_packets"`
	Bytes    uint64 `json:"dropped_bytes"` // of first buffers
}

// Status returns a picture of the defence.
func (d *Defence) Status() (s Status, err error) {
	s = Status{Devices: []DeviceStatus{}, Verdicts: []VerdictStatus{}, Rules: []RuleStatus{}, Max: d.policy.Load().max, Refused: map[string]uint64{}}
	now, of := time.Now(), map[string]int{}
	d.mu.Lock()
	for _, dev := range d.devices {
		how := dev.how()
		s.Devices = append(s.Devices, DeviceStatus{Name: dev.name, On: how != "", How: how, Why: dev.why})
	}
	s.Listed = len(d.lists)
	d.mu.Unlock()
	for r := range d.verdicts.all() {
		if r.ended(now) {
			continue // ended, and not removed yet
		}
		v := VerdictStatus{Source: r.Prefix, Action: "drop", Packets: int(r.Rate), Rule: r.rule, Since: r.since}
		if r.Rate != 0 {
			v.Action = "limit"
		}
		if !r.until.IsZero() {
			v.Left = r.until.Sub(now).Seconds()
		}
		of[r.rule]++
		s.Verdicts = append(s.Verdicts, v)
	}
	slices.SortFunc(s.Verdicts, func(a, b VerdictStatus) int {
		return cmp.Or(a.Source.Addr().Compare(b.Source.Addr()), cmp.Compare(a.Source.Bits(), b.Source.Bits()))
	})
	for i := range d.refused {
		s.Refused[reasonNames[i]] = d.refused[i].Load()
	}
	if s.Answered, err = d.maps.AnsweredSYNs(); err != nil {
		return s, err
	}
	for n, name := range d.rules.all() {
		packets, bytes, err := d.maps.Dropped(uint32(n))
		if err != nil {
			return s, err
		}
		if packets > 0 || of[name] > 0 {
			s.Rules = append(s.Rules, RuleStatus{Rule: name, Verdicts: of[name], Packets: packets, Bytes: bytes})
		}
	}
	return s, nil
}

// WriteMetrics writes the counters.
func (d *Defence) WriteMetrics(w *metrics.Writer) {
	s, err := d.Status()
	if err != nil {
		return
	}
	for _, dev := range s.Devices {
		on := 0.0
		if dev.On {
			on = 1
		}
		w.Gauge("millrace_defence_device_attached", "1 while the device has the defence's program.", on, metrics.Label{Name: "device", Value: dev.Name})
	}
	w.Gauge("millrace_defence_verdicts", "Verdicts in force, beyond the lists.", float64(len(s.Verdicts)))
	w.Gauge("millrace_defence_listed_prefixes", "Prefixes of the lists.", float64(s.Listed))
	for _, r := range s.Rules {
		rule := metrics.Label{Name: "rule", Value: r.Rule}
		w.Counter("millrace_defence_dropped_packets_total", "Packets dropped in XDP, by rule.", r.Packets, rule)
	}
	for _, r := range s.Rules {
		rule := metrics.Label{Name: "rule", Value: r.Rule}
		w.Counter("millrace_defence_dropped_bytes_total", "Bytes of packets dropped in XDP, by rule.", r.Bytes, rule)
	}
	w.Counter("millrace_defence_answered_syns_total", "SYNs answered with cookies in XDP.", s.Answered)
	for _, why := range reasonNames {
		w.Counter("millrace_defence_refused_verdicts_total", "Verdicts that were not put in force, by reason.", s.Refused[why], metrics.Label{Name: "reason", Value: why})
	}
}
