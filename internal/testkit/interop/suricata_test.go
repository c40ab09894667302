package interop

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/capture"
	"github.com/millrace/millrace/filter/inspect"
	"github.com/millrace/millrace/filter/signature"
	"github.com/millrace/millrace/internal/testkit/testpcaps"
)

// The environment of TestSuricata.
const (
	suricataOn    = "MILLRACE_SURICATA"      // any value: run it
	suricataRules = "MILLRACE_RULES"         // a folder of rules beside those of testdata, such as ET-open
	suricataPage  = "MILLRACE_SURICATA_PAGE" // the page to write
)

// TestSuricata compares the alerts of Suricata and of filter/inspect on the same rules and captures, as they were
// recorded and as an attacker would send them.
func TestSuricata(t *testing.T) {
	if os.Getenv(suricataOn) == "" {
		t.Skip(suricataOn + " is not set: make interop-suricata")
	}
	program, err := exec.LookPath("suricata")
	if err != nil {
		t.Fatal(err)
	}
	rules, sets := suricataRuleFile(t)
	compiled, err := inspect.Compile(rules)
	if err != nil {
		t.Fatal(err)
	}
	packets := loadPackets(t)
	var table, costs, reasons strings.Builder
	none := t.TempDir()
	writePackets(t, filepath.Join(none, "none.pcap"), packets[:1])
	_, idle := runSuricata(t, program, none, sets, filepath.Join(none, "none.pcap")) // to load the rules
	oneSided := oneSidedFlows(packets)
	for _, form := range slices.Concat(forms, fragmentForms()) {
		dir := t.TempDir()
		file := filepath.Join(dir, "all.pcap")
		sent := form.apply(packets)
		writePackets(t, file, sent)
		theirs, cpu := runSuricata(t, program, dir, sets, file)
		began := ownCPU(t)
		mine := runInspect(compiled, sent)
		took := ownCPU(t) - began
		c := compareAlerts(theirs, mine, oneSided)
		t.Logf("%s: %s", form.name, c.line())
		fmt.Fprintf(&table, "| %s | %s |\n", form.name, c.row())
		fmt.Fprintf(&costs, "| %s | %.2f | %.2f | %.2f |\n", form.name, nsPerByte(cpu-idle, sent), nsPerByte(took, sent), float64(took)/float64(cpu-idle))
		c.writeReasons(&reasons, form.name, rules)
		if c.both*100 < c.theirs*98 {
			t.Errorf("%s: of %d pairs of rule and flow that Suricata reports, %d are found", form.name, c.theirs, c.both)
		}
	}
	if page := os.Getenv(suricataPage); page != "" {
		writeSuricataPage(t, page, program, len(rules), table.String(), costs.String(), reasons.String())
	}
}

// suricataRuleFile returns the rules that both programs read, and the file that has them.
func suricataRuleFile(t *testing.T) (rules []*signature.Rule, file string) {
	t.Helper()
	paths := []string{"testdata/suricata/keywords.rules"}
	if dir := os.Getenv(suricataRules); dir != "" {
		more, _ := filepath.Glob(filepath.Join(dir, "*.rules"))
		paths = append(paths, more...)
	}
	cfg := signature.Default()
	for name := range cfg.Addresses {
		cfg.Addresses[name] = "any"
	}
	var text bytes.Buffer
	seen := map[uint32]bool{}
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		f := signature.Parse(path, string(b), cfg)
		for _, e := range f.Errors {
			t.Error(e)
		}
		for _, r := range f.Rules {
			none := !r.Src.Any() && r.Src.Ranges() == 0 || !r.Dst.Any() && r.Dst.Ranges() == 0
			if !seen[r.SID] && !none { // "!$HOME_NET" is no address here, which Suricata refuses
				seen[r.SID] = true
				rules = append(rules, r)
				text.WriteString(r.Text + "\n")
			}
		}
	}
	file = filepath.Join(t.TempDir(), "all.rules")
	if err := os.WriteFile(file, text.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return rules, file
}

// timed is a frame and its time.
type timed struct {
	at    int64
	frame []byte
}

// loadPackets reads all captures as one sequence: each begins an hour after the end of the one before, so that no
// flow and no threshold goes on. Time goes forward, and by a minute at most: a few captures jump by decades.
func loadPackets(t *testing.T) (list []timed) {
	t.Helper()
	now := int64(1e18)
	for _, path := range testpcaps.Files(t) {
		in, err := capture.Open(path)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		before := int64(-1)
		for {
			rec, err := in.Next()
			if err != nil {
				if !errors.Is(err, io.EOF) {
					t.Logf("%s: %v", path, err)
				}
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
			list = append(list, timed{now, bytes.Clone(frame)})
		}
		now += 3600e9
		in.Close()
	}
	return list
}

func writePackets(t *testing.T, path string, list []timed) {
	t.Helper()
	w, err := capture.Create(path, capture.WriterConfig{Interfaces: []capture.Interface{{LinkType: capture.LinkTypeEthernet}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range list {
		if err := w.Write(&capture.Record{Data: p.frame, Len: len(p.frame), Time: p.at}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

// pair is a rule and the two ends that it has matched between.
type pair struct {
	sid  uint32
	kind string // tcp, udp, icmp or other
	a, b netip.AddrPort
}

func pairOf(sid uint32, proto string, src, dst netip.Addr, srcPort, dstPort uint16) pair {
	p := pair{sid: sid, kind: "other"}
	switch proto = strings.ToLower(proto); {
	case srcPort|dstPort == 0: // a fragment: the programs name the protocol inside, or that of fragments
	case proto == "tcp" || proto == "udp":
		p.kind = proto
	default:
		if strings.Contains(proto, "icmp") {
			p.kind = "icmp"
		}
		srcPort, dstPort = 0, 0
	}
	p.a, p.b = netip.AddrPortFrom(src.Unmap(), srcPort), netip.AddrPortFrom(dst.Unmap(), dstPort)
	if p.b.Compare(p.a) < 0 {
		p.a, p.b = p.b, p.a
	}
	return p
}

// ownCPU returns the CPU time that this process has used.
func ownCPU(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// nsPerByte returns CPU time by bytes of frames.
func nsPerByte(d time.Duration, sent []timed) float64 {
	n := 0
	for _, p := range sent {
		n += len(p.frame)
	}
	return float64(d) / float64(n)
}

// runSuricata returns how often each rule matched between each two ends, and the CPU time that it took.
func runSuricata(t *testing.T, program, dir, rules, file string) (map[pair]int, time.Duration) {
	t.Helper()
	cmd := exec.Command(program, "-c", "testdata/suricata/suricata.yaml", "-S", rules, "-l", dir, "-k", "none", "--runmode", "single", "-r", file)
	out, err := cmd.CombinedOutput()
	if err != nil || bytes.Contains(out, []byte("E: ")) {
		t.Fatalf("%s: %v\n%.3000s", program, err, out)
	}
	f, err := os.Open(filepath.Join(dir, "eve.json"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	found := map[pair]int{}
	s := bufio.NewScanner(f)
	s.Buffer(nil, 4<<20)
	for s.Scan() {
		var j struct {
			Event   string     `json:"event_type"`
			Src     netip.Addr `json:"src_ip"`
			Dst     netip.Addr `json:"dest_ip"`
			SrcPort uint16     `json:"src_port"`
			DstPort uint16     `json:"dest_port"`
			Proto   string     `json:"proto"`
			Alert   struct {
				SID uint32 `json:"signature_id"`
			} `json:"alert"`
		}
		if err := json.Unmarshal(s.Bytes(), &j); err != nil {
			t.Fatal(err)
		}
		if j.Event == "alert" {
			found[pairOf(j.Alert.SID, j.Proto, j.Src, j.Dst, j.SrcPort, j.DstPort)]++
		}
	}
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	return found, cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
}

// mineOf is what filter/inspect found of one pair.
type mineOf struct{ alerts, tunnel int }

func runInspect(rules *inspect.Rules, list []timed) map[pair]mineOf {
	found := map[pair]mineOf{}
	e := inspect.New(rules, inspect.Config{}, func(a *inspect.Alert) {
		if a.Rule == nil {
			return
		}
		proto := map[uint8]string{1: "icmp", 6: "tcp", 17: "udp", 58: "icmp"}[a.Proto]
		k := pairOf(a.Rule.SID, proto, a.Src, a.Dst, a.SrcPort, a.DstPort)
		m := found[k]
		m.alerts++
		m.tunnel = max(m.tunnel, a.Tunnel)
		found[k] = m
	})
	for _, p := range list {
		e.Packet(p.at, p.frame)
	}
	e.Flush()
	return found
}

// comparison counts pairs.
type comparison struct {
	theirs, mine, both, equal int
	less, more                int // of both: fewer or more alerts than Suricata
	why                       map[string][]pair
}

func (c *comparison) line() string {
	return fmt.Sprintf("%d pairs of Suricata, %d here, %d both; %d with as many alerts, %d fewer, %d more", c.theirs, c.mine, c.both, c.equal, c.less, c.more)
}

func (c *comparison) row() string {
	return fmt.Sprintf("%d | %d | %d (%.2f %%) | %d | %d | %d", c.theirs, c.mine, c.both, 100*float64(c.both)/float64(max(1, c.theirs)), c.equal, c.less, c.more)
}

func compareAlerts(theirs map[pair]int, mine map[pair]mineOf, oneSided map[pair]bool) *comparison {
	c := &comparison{theirs: len(theirs), mine: len(mine), why: map[string][]pair{}}
	withAlerts := map[pair]bool{}
	for k := range theirs {
		k.sid = 0
		withAlerts[k] = true
	}
	for k, n := range theirs {
		m, ok := mine[k]
		switch {
		case !ok:
			c.why["Suricata only"] = append(c.why["Suricata only"], k)
			continue
		case m.alerts == n:
			c.equal++
		case m.alerts < n:
			c.less++
		default:
			c.more++
		}
		c.both++
	}
	for k, m := range mine {
		if _, ok := theirs[k]; ok {
			continue
		}
		flow := k
		flow.sid = 0
		why := "Millrace only"
		switch {
		case m.tunnel > 0 && !withAlerts[flow]:
			why = "Millrace only: in a tunnel that Suricata does not decode (GTP-U, GRE of this kind)"
		case k.kind == "tcp" && oneSided[flow]:
			why = "Millrace only: one direction of the connection was captured, which Suricata does not put together"
		}
		c.why[why] = append(c.why[why], k)
	}
	return c
}

// writeReasons lists the pairs of one program by reason, and those without a reason by rule or by flow: whichever is
// shorter.
func (c *comparison) writeReasons(w io.Writer, form string, rules []*signature.Rule) {
	text := map[uint32]string{}
	for _, r := range rules {
		text[r.SID] = strings.ReplaceAll(strings.TrimSpace(options(r)), "|", `\|`)
	}
	for _, why := range slices.Sorted(maps.Keys(c.why)) {
		byRule, byFlow := map[uint32]int{}, map[pair]int{}
		for _, k := range c.why[why] {
			byRule[k.sid]++
			k.sid = 0
			byFlow[k]++
		}
		if strings.Contains(why, ":") || form != forms[0].name && form != "in fragments" {
			fmt.Fprintf(w, "| %s | %s | %d | %d rules, %d flows |\n", form, why, len(c.why[why]), len(byRule), len(byFlow))
			continue
		}
		if len(byFlow) < len(byRule) {
			for _, k := range slices.SortedFunc(maps.Keys(byFlow), func(a, b pair) int { return cmp.Or(a.a.Compare(b.a), a.b.Compare(b.b)) }) {
				fmt.Fprintf(w, "| %s | %s | %d | all of %s, %v and %v |\n", form, why, byFlow[k], k.kind, k.a, k.b)
			}
			continue
		}
		for _, sid := range slices.Sorted(maps.Keys(byRule)) {
			fmt.Fprintf(w, "| %s | %s | %d | %d: `%.90s` |\n", form, why, byRule[sid], sid, text[sid])
		}
	}
}

// options returns what a rule tests, without its text for people.
func options(r *signature.Rule) string {
	_, o, _ := strings.Cut(r.Text, "(")
	var s []string
	for part := range strings.SplitSeq(o, ";") {
		part = strings.TrimSpace(part)
		if k, _, _ := strings.Cut(part, ":"); !slices.Contains([]string{"msg", "sid", "rev", "metadata", "reference", "classtype", ")"}, k) {
			s = append(s, part)
		}
	}
	return strings.Join(s, "; ")
}

func writeSuricataPage(t *testing.T, page, program string, rules int, table, costs, reasons string) {
	t.Helper()
	version, err := exec.Command(program, "-V").Output()
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf(suricataPageText, strings.TrimPrefix(strings.TrimSpace(string(version)), "This is "), rules, table, costs, reasons)
	if err := os.WriteFile(page, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
