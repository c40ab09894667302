package replay

import (
	"time"

	"github.com/millrace/millrace/filter"
	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd/pcap"
	"github.com/millrace/millrace/stack"
)

// Report is the result of a run. Its JSON form is stable: fields are added, never renamed.
type Report struct {
	Engine       gpukern.EngineStats `json:"engine"` // what looked at the packets
	Output       *Output             `json:"output"` // null where packets went nowhere
	Files        []File              `json:"files"`
	Total        Part                `json:"total"`
	Rules        []Hits              `json:"rules"`
	Patterns     []Hits              `json:"patterns"`          // lines of patterns; Matches is set
	NextHops     map[string]uint64   `json:"next_hops"`         // packets by next hop, of those that have one
	MoreMatches  uint64              `json:"more_matches"`      // packets with more matches than the limit
	Matches      []PatternMatch      `json:"matches,omitempty"` // where they were asked for
	FlowsUnknown uint64              `json:"flows_unknown"`     // packets of flows beyond the bound of the flow table
	Saved        *Saved              `json:"saved"`             // null where packets were not written to a capture
	Captured     *Saved              `json:"captured"`          // the same, of those that rules capture

	Expressions   *Expressions   `json:"expressions,omitempty"`   // where patterns have expressions
	Inspected     *Inspected     `json:"inspected,omitempty"`     // where there were inspection rules
	Conversations *Conversations `json:"conversations,omitempty"` // where they were asked for
	Stopped       bool           `json:"stopped"`                 // before the end, by a signal
}

// Output names the device that packets were sent to.
type Output struct {
	Device     string `json:"device"`
	Driver     string `json:"driver"`
	Negotiated string `json:"negotiated"`
	Packets    uint64 `json:"packets"`    // accepted by the device
	Bytes      uint64 `json:"bytes"`      // of those
	TxInvalid  uint64 `json:"tx_invalid"` // accepted by the driver, rejected by the device
	MTU        int    `json:"mtu"`        // of the device; 0 where it is unknown
	Longest    int    `json:"longest"`    // bytes of the longest packet for the device, without its Ethernet header

	Seconds    float64 `json:"seconds"` // of all files, waits of the rate included
	PacketRate float64 `json:"packets_per_second"`
	BitRate    float64 `json:"bits_per_second"` // of Ethernet frames without preamble, check sequence and gap
}

// Hits is a line of rules and how many packets it decided, or a line of literals and how many packets have one.
type Hits struct {
	File    string `json:"file,omitempty"` // of rules, where Line is
	Line    int    `json:"line"`
	Name    string `json:"name"` // "" where it has none
	Text    string `json:"text"`
	Packets uint64 `json:"packets"`
	Matches uint64 `json:"matches,omitempty"` // of literals; a packet may have several
	Over    uint64 `json:"over,omitempty"`    // of rules: packets dropped since they exceed the rate
}

// Part is the result for one file, or for all. Packets = Passed + the sum of Dropped.
type Part struct {
	Sum
	Passed     uint64            `json:"passed"`  // to the output, or to the end of the path where there is none
	Dropped    map[string]uint64 `json:"dropped"` // packets by reason
	Seconds    float64           `json:"seconds"`
	Mpps       float64           `json:"mpps"`
	BitRate    float64           `json:"bits_per_second"`
	NsPacket   float64           `json:"ns_per_packet"`
	EngineNs   float64           `json:"engine_ns_per_packet"` // the part of it that the engine took
	seconds    time.Duration
	engine     time.Duration
	byVerdicts [packet.Verdicts]uint64
}

// File is a Part that came from one file.
type File struct {
	Path    string  `json:"path"`
	Mode    string  `json:"mode"` // "stream", "preload" or "resident": where packets waited
	Records Records `json:"records"`
	Error   string  `json:"error"` // why it could not be read, or not to its end; "" where it could
	Err     error   `json:"-"`     // the same
	Part
}

// Records defines what became of the records of a file, once however often it was replayed.
type Records struct {
	Read        uint64 `json:"read"`
	Cut         uint64 `json:"cut"`         // stored with fewer bytes than the packet had
	Unsupported uint64 `json:"unsupported"` // of a link type that carries no Ethernet or IP
	NotIP       uint64 `json:"not_ip"`      // of a link type without EtherTypes, and not IP
	Empty       uint64 `json:"empty"`
	Filtered    uint64 `json:"filtered"` // that Config.Keep refused
	TooLong     uint64 `json:"too_long"`
}

func newReport() *Report {
	r := &Report{Files: []File{}, Rules: []Hits{}, Patterns: []Hits{}, NextHops: map[string]uint64{}}
	r.Total.Sum = *newSum()
	return r
}

// take reads the counters of a loop that has ended.
func (f *File) take(h *handler, s stack.Stats, rec pcap.RecordStats) {
	f.Sum = *h.sum
	f.Records = Records{rec.Records, rec.Truncated, rec.Unsupported, rec.NotIP, rec.Empty, rec.Filtered, rec.TooLong}
	f.byVerdicts, f.Passed = s.Dropped, s.Forwarded
	if !h.forward {
		f.byVerdicts = h.dropped
		f.Passed = s.Received
		for _, n := range h.dropped {
			f.Passed -= n
		}
	}
}

// add adds a file to the report.
func (r *Report) add(f File) {
	t := &r.Total
	t.merge(&f.Sum)
	t.Passed += f.Passed
	t.seconds += f.seconds
	t.engine += f.engine
	for v, n := range f.byVerdicts {
		t.byVerdicts[v] += n
	}
	f.derive()
	r.Files = append(r.Files, f)
}

// finish works out what follows from the counts of all files.
func (r *Report) finish(fl *flows, rules *filter.List, f *filter.Filter) {
	r.Total.derive()
	r.Total.Flows = uint64(fl.used)
	r.FlowsUnknown = fl.beyond
	if o := r.Output; o != nil && r.Total.Seconds > 0 {
		o.Seconds = r.Total.Seconds
		o.PacketRate = float64(o.Packets) / o.Seconds
		o.BitRate = float64(o.Bytes) * 8 / o.Seconds
	}
	for i, rule := range rules.Rules() {
		last := len(r.Rules) - 1
		if last < 0 || r.Rules[last].Line != rule.Line || r.Rules[last].File != rule.File { // a line that lists ports is several rules
			r.Rules = append(r.Rules, Hits{File: rule.File, Line: rule.Line, Name: rule.Name, Text: rule.Text})
			last++
		}
		r.Rules[last].Packets += f.Hits[i]
		r.Rules[last].Over += f.Over[i]
	}
}

// derive works out names and rates from counts.
func (p *Part) derive() {
	p.name()
	p.Dropped = map[string]uint64{}
	for v, n := range p.byVerdicts {
		if n > 0 {
			p.Dropped[packet.Verdict(v).String()] = n
		}
	}
	p.Seconds = p.seconds.Seconds()
	if p.Packets > 0 && p.seconds > 0 {
		n := float64(p.Packets)
		p.Mpps = n / p.Seconds / 1e6
		p.BitRate = float64(p.Bytes) * 8 / p.Seconds
		p.NsPacket = float64(p.seconds) / n
		p.EngineNs = float64(p.engine) / n
	}
}
