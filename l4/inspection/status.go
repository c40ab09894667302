package inspection

import (
	"maps"
	"slices"
	"strconv"

	"github.com/millrace/millrace/metrics"
)

// Status counts the work of inspection since the start.
type Status struct {
	Policies []PolicyStatus `json:"policies"`
	Rules    []RuleStatus   `json:"rules"`      // that have matched, those with the most matches first
	More     int            `json:"more_rules"` // that have matched and are left out

	AlertsDropped  uint64 `json:"alerts_dropped"`  // that did not fit the buffer
	AlertsFailed   uint64 `json:"alerts_failed"`   // writes to the file that failed
	PacketsWritten uint64 `json:"packets_written"` // to the pcapng
	PacketsDropped uint64 `json:"packets_dropped"` // beyond its size or buffer
}

// PolicyStatus counts the work of a policy.
type PolicyStatus struct {
	Name      string         `json:"name"`
	Mode      string         `json:"mode"`
	Rules     int            `json:"rules"`
	Access    int            `json:"access"`  // access rules
	Skipped   map[string]int `json:"skipped"` // rules left out for an option
	CompileMS float64        `json:"compile_ms"`

	Requests      int            `json:"request_rules"`   // of the rules, those that apply to requests of listeners
	NotOfRequests map[string]int `json:"not_of_requests"` // the others, by the reason

	Inspected uint64 `json:"requests"` // of listeners
	Packets   uint64 `json:"packets"`
	Bytes     uint64 `json:"bytes"`
	Dropped   uint64 `json:"dropped"`   // packets, by a rule, an access rule or an anomaly
	Blocked   uint64 `json:"blocked"`   // later packets of their flows
	Rejected  uint64 `json:"rejected"`  // connections that were reset
	Bounds    uint64 `json:"bounds"`    // packets that met a bound
	Overload  uint64 `json:"overload"`  // of them dropped
	Discarded uint64 `json:"discarded"` // packets that their receivers discard
	Anomalies uint64 `json:"anomalies"`
	Shortened uint64 `json:"shortened"`      // streams of which less was kept, for memory
	Captured  uint64 `json:"captured"`       // packets that the policy's expression matched
	Searched  uint64 `json:"searched"`       // packets whose payload a GPU had searched
	Again     uint64 `json:"searched_again"` // packets of which it did not list all that it had found

	Marked map[uint32]uint64 `json:"marked"` // packets by the mark that an access rule gave them
}

// RuleStatus counts the matches of a rule.
type RuleStatus struct {
	Policy  string `json:"policy"`
	GID     uint32 `json:"gid"` // 0 for an access rule
	SID     uint32 `json:"sid"`
	Rev     uint32 `json:"rev"`
	Msg     string `json:"msg"`
	Action  string `json:"action"`
	Matches uint64 `json:"matches"`
	Alerts  uint64 `json:"alerts"` // those that no threshold kept back
	Drops   uint64 `json:"drops"`  // alerts whose packet was dropped
}

// Status returns what was counted, with at most so many rules.
func (i *Inspector) Status(rules int) Status {
	s := Status{Policies: []PolicyStatus{}, Rules: []RuleStatus{}}
	s.AlertsDropped, s.AlertsFailed = i.alerts.Load().counts()
	if f := i.packets.Load(); f != nil {
		written, lost := f.counts()
		dropped, failed := f.out.counts()
		s.PacketsWritten, s.PacketsDropped = written, lost+dropped+failed
	}
	i.mu.Lock()
	took := i.loaded
	i.mu.Unlock()
	for _, p := range i.set.Load().rules {
		s.Policies = append(s.Policies, p.status())
		s.Policies[len(s.Policies)-1].CompileMS = float64(took.Microseconds()) / 1000
		s.Rules = append(s.Rules, p.matchedRules()...)
	}
	if s.Rules = sorted(s.Rules); len(s.Rules) > rules {
		s.More, s.Rules = len(s.Rules)-rules, s.Rules[:rules]
	}
	return s
}

func (p *policy) status() PolicyStatus {
	t := p.totals
	s := PolicyStatus{
		Name: p.name, Mode: "detect", Skipped: maps.Clone(p.skipped), Packets: t.packets.Load(), Bytes: t.bytes.Load(), Dropped: t.dropped.Load(),
		Blocked: t.blocked.Load(), Rejected: t.rejected.Load(), Bounds: t.bounds.Load(), Overload: t.overload.Load(), Discarded: t.discarded.Load(),
		Anomalies: t.anomalies.Load(), Shortened: t.shortened.Load(), Captured: t.captured.Load(),
		Searched: t.taken.Load(), Again: t.partial.Load(),
	}
	if p.prevent {
		s.Mode = "prevent"
	}
	if s.Marked = map[uint32]uint64{}; p.access != nil {
		s.Access = len(p.access.Rules())
		for n, r := range p.access.Rules() {
			if r.Mark != 0 {
				s.Marked[r.Mark] = p.access.marked[n].Load()
			}
		}
	}
	s.Rules, s.Inspected, s.NotOfRequests = len(p.all), t.requests.Load(), map[string]int{}
	if p.requests != nil {
		s.Requests, _ = p.requests.Len()
	}
	for why, list := range p.unfit {
		s.NotOfRequests[why] = len(list)
	}
	return s
}

// matchedRules returns the rules of a policy that have matched.
func (p *policy) matchedRules() (list []RuleStatus) {
	for r, c := range p.counts {
		if n := c.matches.Load(); n > 0 {
			list = append(list, RuleStatus{p.name, r.GID, r.SID, r.Rev, r.Msg, r.Action.String(), n, c.alerts.Load(), c.drops.Load()})
		}
	}
	if p.access == nil {
		return list
	}
	for n, r := range p.access.Rules() {
		c := p.access.counts[n]
		if m := c.matches.Load(); m > 0 && (n == 0 || p.access.counts[n-1] != c) {
			list = append(list, RuleStatus{p.name, 0, uint32(n + 1), 0, accessName(&r), accessAction(&r), m, c.alerts.Load(), c.drops.Load()})
		}
	}
	return list
}

// metricRules is the number of rules that the metrics name: those with the most matches.
const metricRules = 100

// WriteMetrics writes the counters.
func (i *Inspector) WriteMetrics(w *metrics.Writer) {
	s := i.Status(metricRules)
	for n := range s.Policies {
		p := &s.Policies[n]
		policy := metrics.Label{Name: "policy", Value: p.Name}
		w.Gauge("millrace_inspection_rules", "Rules of a policy.", float64(p.Rules+p.Access), policy)
		w.Counter("millrace_inspection_packets_total", "Packets that were inspected.", p.Packets, policy)
		w.Counter("millrace_inspection_bytes_total", "Their bytes.", p.Bytes, policy)
		w.Counter("millrace_inspection_requests_total", "Requests of listeners that were inspected.", p.Inspected, policy)
		for _, d := range []struct {
			why string
			n   uint64
		}{{"matched", p.Dropped}, {"blocked", p.Blocked}, {"overload", p.Overload}} {
			w.Counter("millrace_inspection_drop_packets_total", "Packets that inspection dropped.", d.n, policy, metrics.Label{Name: "cause", Value: d.why})
		}
		w.Counter("millrace_inspection_rejected_connections_total", "Connections that a rule has reset.", p.Rejected, policy)
		w.Counter("millrace_inspection_bound_packets_total", "Packets that met a bound of memory or steps.", p.Bounds, policy)
		w.Counter("millrace_inspection_captured_packets_total", "Packets that the expression of the policy matched, for the pcapng.", p.Captured, policy)
		for _, mark := range slices.Sorted(maps.Keys(p.Marked)) {
			w.Counter("millrace_inspection_marked_packets_total", "Packets to which access rules gave a mark.", p.Marked[mark], policy,
				metrics.Label{Name: "mark", Value: strconv.FormatUint(uint64(mark), 10)})
		}
		w.Counter("millrace_inspection_discarded_packets_total", "Packets that their receivers discard, which are not inspected.", p.Discarded, policy)
		w.Counter("millrace_inspection_shortened_streams_total", "Streams of which less was kept, for memory.", p.Shortened, policy)
		w.Counter("millrace_inspection_anomalies_total", "Overlaps whose bytes differ, urgent data that is dropped, and ambiguous requests.", p.Anomalies, policy)
		w.Counter("millrace_inspection_gpu_packets_total", "Packets whose payload a GPU had searched.", p.Searched, policy)
		w.Counter("millrace_inspection_gpu_partial_packets_total", "Packets in which a GPU found more than it lists, which were searched again.", p.Again, policy)
	}
	for _, r := range s.Rules {
		labels := []metrics.Label{{Name: "policy", Value: r.Policy}, {Name: "rule", Value: r.ID()}}
		w.Counter("millrace_inspection_rule_matches_total", "Matches of a rule: of the 100 rules with the most.", r.Matches, labels...)
		w.Counter("millrace_inspection_rule_alerts_total", "Alerts of a rule.", r.Alerts, labels...)
		w.Counter("millrace_inspection_rule_drops_total", "Alerts of a rule whose packet was dropped.", r.Drops, labels...)
	}
	w.Counter("millrace_inspection_alerts_dropped_total", "Alerts that did not fit the buffer.", s.AlertsDropped)
	w.Counter("millrace_inspection_alert_write_errors_total", "Writes to the file of alerts that failed.", s.AlertsFailed)
	w.Counter("millrace_inspection_written_packets_total", "Packets written to the pcapng.", s.PacketsWritten)
	w.Counter("millrace_inspection_capture_dropped_packets_total", "Packets beyond the size of the capture or its buffer.", s.PacketsDropped)
}

// ID returns gid:sid of a rule, "access:n" of an access rule.
func (r *RuleStatus) ID() string {
	if r.GID == 0 {
		return "access:" + strconv.FormatUint(uint64(r.SID), 10)
	}
	return strconv.FormatUint(uint64(r.GID), 10) + ":" + strconv.FormatUint(uint64(r.SID), 10)
}

// Enabled reports whether there are policies, or were since the start.
func (i *Inspector) Enabled() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.numbers) > 0
}
