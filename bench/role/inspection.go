package role

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/capture"
	"github.com/millrace/millrace/filter/inspect"
	"github.com/millrace/millrace/filter/signature"
	"github.com/millrace/millrace/wire"
)

// InspectionRules reads the rules of a file, with any address at home.
func InspectionRules(path string) (*signature.File, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	cfg := signature.Default()
	for _, name := range InspectionNetworks() {
		cfg.Addresses[name] = "any"
	}
	return signature.Parse(path, string(text), cfg), nil
}

// InspectionNetworks returns the names of the variables of addresses that rules have, sorted.
func InspectionNetworks() []string { return slices.Sorted(maps.Keys(signature.Default().Addresses)) }

// CollectRules writes to path the rules of all files of a folder that load here and, as addresses go, in Suricata,
// one a line: the active ones or, with all, those that are commented out too. It returns how many there are.
func CollectRules(path, dir string, all bool) (int, error) {
	files, _ := filepath.Glob(filepath.Join(dir, "*.rules"))
	seen := map[uint32]bool{}
	var out bytes.Buffer
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			return 0, err
		}
		if all {
			text = bytes.ReplaceAll(append([]byte{'\n'}, text...), []byte("\n# alert "), []byte("\nalert "))
			text = bytes.ReplaceAll(text, []byte("\n#alert "), []byte("\nalert "))
		}
		if err := os.WriteFile(path, text, 0o600); err != nil {
			return 0, err
		}
		f, err := InspectionRules(path)
		if err != nil {
			return 0, err
		}
		for _, r := range f.Rules {
			nowhere := !r.Src.Any() && r.Src.Ranges() == 0 || !r.Dst.Any() && r.Dst.Ranges() == 0 // "!any", which Suricata refuses
			if !seen[r.SID] && !nowhere {
				seen[r.SID] = true
				out.WriteString(r.Text + "\n")
			}
		}
	}
	return len(seen), os.WriteFile(path, out.Bytes(), 0o600)
}

// CollectCaptures writes the Ethernet form of all packets of captures as one. Each capture begins an hour after the
// end of the one before, so that no flow and no threshold goes on. Time goes forward, by a minute at most.
func CollectCaptures(path string, files []string) (err error) {
	w, err := capture.Create(path, capture.WriterConfig{Interfaces: []capture.Interface{{LinkType: capture.LinkTypeEthernet}}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	now := int64(1e18)
	for _, name := range files {
		in, err := capture.Open(name)
		if err != nil {
			return err
		}
		before := int64(-1)
		for {
			rec, err := in.Next()
			if err != nil { // SampleCaptures has read it to its end
				break
			}
			frame, err := capture.ToEthernet(rec.LinkType, rec.Data, nil)
			if err != nil {
				continue
			}
			if before >= 0 {
				now += min(max(rec.Time-before, 0), 60e9)
			}
			before = rec.Time
			if err := w.Write(&capture.Record{Data: frame, Len: len(frame), Time: now}); err != nil {
				return errors.Join(err, in.Close())
			}
		}
		now += 3600e9
		in.Close()
	}
	return nil
}

// RepeatCapture writes the packets of a capture so many times, each copy an hour behind the one before, and returns how many packets
// a copy has.
func RepeatCapture(path, from string, copies int) (packets uint64, err error) {
	w, err := capture.Create(path, capture.WriterConfig{Interfaces: []capture.Interface{{LinkType: capture.LinkTypeEthernet}}})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	for i, behind := 0, int64(0); i < copies; i++ {
		first, last := int64(-1), int64(0)
		err := EachRecord(from, func(rec *capture.Record) error {
			if first < 0 {
				first = rec.Time
			}
			if i == 0 {
				packets++
			}
			last = rec.Time
			return w.Write(&capture.Record{Data: rec.Data, Len: rec.Len, Time: rec.Time + behind})
		})
		if err != nil {
			return 0, err
		}
		behind += last - first + 3600e9
	}
	return packets, nil
}

// EachRecord calls f with each record of a capture, which it borrows.
func EachRecord(path string, f func(*capture.Record) error) error {
	in, err := capture.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	for {
		rec, err := in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = f(rec)
		}
		if err != nil {
			return err
		}
	}
}

// AlertLine is an alert as programs of inspection write it: a line of JSON with these keys and others.
type AlertLine struct {
	Timestamp string     `json:"timestamp"`
	FlowID    uint64     `json:"flow_id"`
	Packet    uint64     `json:"pcap_cnt"`
	Event     string     `json:"event_type"`
	Src       netip.Addr `json:"src_ip"`
	SrcPort   uint16     `json:"src_port"`
	Dst       netip.Addr `json:"dest_ip"`
	DstPort   uint16     `json:"dest_port"`
	Proto     string     `json:"proto"`
	App       string     `json:"app_proto,omitempty"`
	Alert     struct {
		Action   string `json:"action"`
		GID      uint32 `json:"gid"`
		SID      uint32 `json:"signature_id"`
		Rev      uint32 `json:"rev"`
		Msg      string `json:"signature"`
		Class    string `json:"category"`
		Severity int    `json:"severity"`
	} `json:"alert"`
}

// Pair is a rule and two ends between which it has matched.
type Pair struct {
	SID  uint32
	Kind string // tcp, udp, icmp or other
	A, B netip.AddrPort
}

// Pair returns that of an alert.
func (j *AlertLine) Pair() Pair {
	p := Pair{SID: j.Alert.SID, Kind: "other", A: netip.AddrPortFrom(j.Src.Unmap(), 0), B: netip.AddrPortFrom(j.Dst.Unmap(), 0)}
	switch proto := strings.ToLower(j.Proto); {
	case proto == "tcp" || proto == "udp":
		p.Kind = proto
		p.A, p.B = netip.AddrPortFrom(p.A.Addr(), j.SrcPort), netip.AddrPortFrom(p.B.Addr(), j.DstPort)
	case strings.Contains(proto, "icmp"):
		p.Kind = "icmp"
	}
	if p.B.Compare(p.A) < 0 {
		p.A, p.B = p.B, p.A
	}
	return p
}

// inspectionRun inspects a capture again and again, a packet a step, with an engine that knows no flows each time,
// and writes its alerts to a file, which each pass begins anew.
type inspectionRun struct {
	rules  *inspect.Rules
	path   string
	in     *capture.Reader
	engine *inspect.Engine
	out    *os.File
	buf    bytes.Buffer
	enc    *json.Encoder
	err    error
	bytes  atomic.Uint64
	alerts atomic.Uint64 // of the last whole pass
	now    uint64
}

// openInspection is the role: its arguments are rules, a capture and the file of alerts. It makes one pass before
// the run.
func openInspection(o roleOptions) (roleWork, error) {
	if len(o.args) != 3 {
		return roleWork{}, errors.New("which rules, which capture, which file for alerts?")
	}
	start := time.Now()
	rules, err := compileInspection(o.args[0])
	if err != nil {
		return roleWork{}, err
	}
	took := time.Since(start)
	r := &inspectionRun{rules: rules, path: o.args[1]}
	if r.out, err = os.Create(o.args[2]); err != nil {
		return roleWork{}, err
	}
	if err := r.begin(); err != nil {
		return roleWork{}, err
	}
	for r.alerts.Load() == 0 && err == nil {
		err = r.step()
	}
	n, _ := rules.Len()
	return roleWork{
		version: fmt.Sprintf("%d rules loaded in %.2f s", n, took.Seconds()),
		step:    r.step,
		counts: func() (map[string]uint64, error) {
			return map[string]uint64{"bytes": r.bytes.Load(), "alerts": r.alerts.Load()}, nil
		},
		close: func() error { return errors.Join(r.in.Close(), r.out.Close()) },
	}, err
}

func compileInspection(path string) (*inspect.Rules, error) {
	f, err := InspectionRules(path)
	if err != nil {
		return nil, err
	}
	for _, e := range append(f.Errors, f.Skipped...) {
		return nil, e // CollectRules has left those out
	}
	return inspect.Compile(f.Rules)
}

// begin starts a pass.
func (r *inspectionRun) begin() (err error) {
	if r.in, err = capture.Open(r.path); err != nil {
		return err
	}
	if err := r.out.Truncate(0); err != nil {
		return err
	}
	if _, err := r.out.Seek(0, io.SeekStart); err != nil {
		return err
	}
	r.now = 0
	r.enc = json.NewEncoder(&r.buf)
	r.engine = inspect.New(r.rules, inspect.Config{}, r.alert)
	return nil
}

// step inspects the next packet.
func (r *inspectionRun) step() error {
	rec, err := r.in.Next()
	if errors.Is(err, io.EOF) {
		r.engine.Flush()
		r.alerts.Store(r.now)
		return errors.Join(r.write(), r.in.Close(), r.begin())
	}
	if err != nil {
		return err
	}
	r.engine.Packet(rec.Time, rec.Data)
	r.bytes.Add(uint64(len(rec.Data)))
	if r.buf.Len() >= 64<<10 {
		return r.write()
	}
	return r.err
}

func (r *inspectionRun) write() error {
	_, err := r.out.Write(r.buf.Bytes())
	r.buf.Reset()
	return errors.Join(r.err, err)
}

// alert writes a line.
func (r *inspectionRun) alert(a *inspect.Alert) {
	j := LineOf(a)
	if j == nil {
		return
	}
	r.now++
	if err := r.enc.Encode(j); err != nil {
		r.err = err
	}
}

// LineOf returns the line of an alert, nil for one without a rule.
func LineOf(a *inspect.Alert) *AlertLine {
	q := a.Rule
	if q == nil {
		return nil
	}
	j := &AlertLine{
		Timestamp: time.Unix(0, a.Time).UTC().Format("2006-01-02T15:04:05.000000-0700"), FlowID: a.Flow, Packet: a.Packet, Event: "alert",
		Src: a.Src, SrcPort: a.SrcPort, Dst: a.Dst, DstPort: a.DstPort, Proto: wire.ProtoName(a.Proto), App: a.App.String(),
	}
	j.Alert.Action, j.Alert.GID, j.Alert.SID, j.Alert.Rev = q.Action.String(), q.GID, q.SID, q.Rev
	j.Alert.Msg, j.Alert.Class, j.Alert.Severity = q.Msg, q.Class, q.Priority
	return j
}

// InspectionPairs returns the pairs that inspection of a capture finds here.
func InspectionPairs(rules, path string) (map[Pair]bool, error) {
	compiled, err := compileInspection(rules)
	if err != nil {
		return nil, err
	}
	pairs := map[Pair]bool{}
	e := inspect.New(compiled, inspect.Config{}, func(a *inspect.Alert) {
		if j := LineOf(a); j != nil {
			pairs[j.Pair()] = true
		}
	})
	err = EachRecord(path, func(rec *capture.Record) error {
		e.Packet(rec.Time, rec.Data)
		return nil
	})
	e.Flush()
	return pairs, err
}

// openRuleLoad is the role that reads and compiles the rules of a file again and again.
func openRuleLoad(o roleOptions) (roleWork, error) {
	if len(o.args) != 1 {
		return roleWork{}, errors.New("which rules?")
	}
	var done atomic.Uint64
	return roleWork{
		step: func() error {
			r, err := compileInspection(o.args[0])
			if err != nil {
				return err
			}
			n, _ := r.Len()
			done.Add(uint64(n))
			return nil
		},
		counts: func() (map[string]uint64, error) { return map[string]uint64{"rules": done.Load()}, nil },
	}, nil
}

// CaptureBytes returns how many bytes the packets of a capture have.
func CaptureBytes(path string) (n int, err error) {
	err = EachRecord(path, func(rec *capture.Record) error {
		n += len(rec.Data)
		return nil
	})
	return n, err
}

// CopyFirstPacket writes a capture of the first packet of another.
func CopyFirstPacket(to, from string) error {
	in, err := capture.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	rec, err := in.Next()
	if err != nil {
		return err
	}
	w, err := capture.Create(to, capture.WriterConfig{Interfaces: []capture.Interface{{LinkType: rec.LinkType}}})
	if err != nil {
		return err
	}
	return errors.Join(w.Write(&capture.Record{Data: rec.Data, Len: len(rec.Data), Time: rec.Time}), w.Close())
}
