package main

import (
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/millrace/millrace/bench/harness"
	"github.com/millrace/millrace/internal/testkit/checkout"
)

// publishedDir has the results that docs/performance.md and the README's table are made of: of machines of one kind, and of one commit as
// far as the page does not mark them.
const publishedDir = "bench/results/16cores"

// performancePage is what `make performance` writes, beside the table.
const performancePage = "docs/performance.md"

// A suiteOfPage is a suite on the page, with the folders whose changes make its figures old.
type suiteOfPage struct {
	name  string
	paths []string
}

var pageSuites = []suiteOfPage{
	{"gateway", []string{"l7", "http1", "http2", "http3", "quic", "tls", "semantics", "websocket", "gateway"}},
	{"tcp", []string{"tcp", "stack", "ip", "socket", "ring", "pmd"}},
	{"l4", []string{"l4", "packet", "ring", "pmd", "gateway"}},
	{"packet-io", []string{"packet", "ring", "pmd"}},
	{"shim", []string{"shim", "tcp", "udp", "stack", "node"}},
}

// A claim is a ratio of the README's table.
type claim struct{ text, measure, contestant, against string }

// A headline is a row of the README's table. The figures are of a metric of which less is better, or more.
type headline struct {
	text, suite string
	metric      harness.Metric
	less        bool
	claims      []claim
}

var headlines = []headline{
	{"TCP, rate to the kernel's", "tcp", harness.MetricRate, false, []claim{
		{"connections", "over veth: connections, one at a time", "millrace", "kernel"},
		{"receiving", "over veth: bulk, server receives", "millrace", "kernel"},
		{"sending", "over veth: bulk, server sends", "millrace", "kernel"},
		{"round trips", "over veth: 1-byte round trip", "millrace", "kernel"},
		{"64 KiB segments sent", "over veth: 64 KiB segments, server sends", "millrace-gso", "kernel"},
		{"received", "over veth: 64 KiB segments, server receives", "millrace-gso", "kernel"},
	}},
	{"HTTP gateway, CPU to nginx's", "gateway", harness.MetricOwn, true, []claim{
		{"HTTP/1.1", "HTTP/1.1, 128 B", "millrace", "nginx"},
		{"with TLS", "HTTP/1.1 over TLS 1.3, 128 B", "millrace", "nginx"},
		{"1 MiB", "HTTP/1.1, 1 MiB", "millrace", "nginx"},
		{"new TCP connections", "a TCP connection for each request", "millrace", "nginx"},
		{"TLS 1.3 handshakes with P-256", "a TLS 1.3 handshake for each request", "millrace", "nginx"},
		{"RSA-2048", "a TLS 1.3 handshake with RSA-2048 for each request", "millrace", "nginx"},
		{"WebSocket", "WebSocket echo of 64 B", "millrace", "nginx"},
		{"4 KiB files", "static file of 4 KiB", "millrace", "nginx"},
		{"1 MiB files", "static file of 1 MiB", "millrace", "nginx"},
		{"cache hits", "cache hit of 4 KiB", "millrace", "nginx"},
		{"gzip", "gzip of 64 KiB of text", "millrace", "nginx, level 4"},
	}},
	{"the same to HAProxy's", "gateway", harness.MetricOwn, true, []claim{
		{"HTTP/2 with TLS", "HTTP/2 over TLS 1.3, 128 B", "millrace", "HAProxy"},
	}},
	{"UDP 64 B, rate to nft DNAT's", "l4", harness.MetricRate, false, []claim{
		{"one flow", "UDP 64 B, 1 flow", "millrace", "nft DNAT"},
		{"16 384 flows", "UDP 64 B, 16 384 flows", "millrace", "nft DNAT"},
	}},
	{"AF_XDP, rate to C's", "packet-io", harness.MetricRate, false, []claim{
		{"receiving 64 B", "rx 64 B, AF_XDP sender", "millrace", "C"},
		{"sending", "tx 64 B", "millrace", "C"},
		{"forwarding", "forward 64 B", "millrace", "C"},
	}},
}

// performance makes the page and the table of the published results.
type performance struct {
	machine *harness.Machine // of all results
	suites  []published      // in the order of pageSuites
}

// published is a suite with its result.
type published struct {
	name    string
	result  *harness.Result
	changed bool // code of the suite has changed since
}

// readPerformance reads the published results. Suites without one are not on the page.
func readPerformance(root string) (*performance, error) {
	p := &performance{}
	for _, s := range pageSuites {
		b, err := os.ReadFile(filepath.Join(root, publishedDir, s.name+".json"))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		r, err := harness.DecodeResult(b)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		if m := &r.Machine; p.machine == nil {
			p.machine = m
		} else if m.CPU != p.machine.CPU || m.Cores != p.machine.Cores || m.Memory != p.machine.Memory || m.Kernel != p.machine.Kernel {
			return nil, fmt.Errorf("%s is of another machine than the suites before it: %s, %d cores, Linux %s", s.name, m.CPU, m.Cores, m.Kernel)
		}
		changed, err := changedSince(root, r.Machine.Commit, s.paths)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		p.suites = append(p.suites, published{s.name, r, changed})
	}
	if len(p.suites) == 0 {
		return nil, fmt.Errorf("%s has no results", publishedDir)
	}
	return p, nil
}

// errNoHistory is of a checkout whose history does not have the commit of a result.
var errNoHistory = errors.New("the history does not have the commit")

// changedSince reports whether code in one of the folders has changed since a commit, other than tests.
func changedSince(root, commit string, paths []string) (bool, error) {
	args := append([]string{"-C", root, "diff", "--name-only", commit + "..HEAD", "--"}, paths...)
	out, err := exec.Command("git", append(args, ":(exclude)*_test.go", ":(exclude)*.md", ":(exclude,glob)**/testdata/**")...).Output()
	if err != nil {
		return false, fmt.Errorf("%w: %s", errNoHistory, commit)
	}
	return len(out) > 0, nil
}

// commits writes of which commit each suite's results are.
func (p *performance) commits(w *strings.Builder) {
	fmt.Fprint(w, "| suite | commit | measured | rounds | |\n|---|---|---|---:|---|\n")
	for _, s := range p.suites {
		mark, m := "", &s.result.Machine
		if s.changed {
			mark = "its code has changed since"
		}
		fmt.Fprintf(w, "| [%s](../%s/%s.md) | %s | %s | %d | %s |\n", s.name, publishedDir, s.name, m.Commit, m.Date[:10], s.result.Rounds, mark)
	}
}

// page returns docs/performance.md.
func (p *performance) page() string {
	var w strings.Builder
	fmt.Fprint(&w, "# Performance\n\nWritten by `make performance` of the results in\n[", publishedDir, "](../", publishedDir, "); do not edit.\n")
	fmt.Fprint(&w, "Figures are medians of ratios, round by round, with their lowest and highest.\n\n")
	m := p.machine
	fmt.Fprintf(&w, "Machines of one kind: %s, %d cores, %s,\nLinux %s, %s.\nAll ends of a row are on one, joined by veth pairs.\n\n", m.CPU, m.Cores, m.Memory, m.Kernel, m.Go)
	p.commits(&w)
	fmt.Fprint(&w, "\n## In short\n\n")
	p.table(&w)
	for _, s := range p.suites {
		r := s.result
		gates, failed := r.Unmet()
		fmt.Fprintf(&w, "\n## %s\n\n%d gates are not met, %d runs failed.\n", r.Title, gates, failed)
		for _, note := range r.Notes {
			fmt.Fprint(&w, "\n", wrapped(note))
		}
		fmt.Fprintln(&w)
		fmt.Fprint(&w, "| measure | contestant | beside | rate | CPU of all | CPU of its process | gates not met |\n|---|---|---|---:|---:|---:|---|\n")
		for _, m := range r.Measures {
			p.measure(&w, m)
		}
	}
	return w.String()
}

// wrapped breaks a text into lines of at most 100 columns, as the other pages have them.
func wrapped(text string) string {
	var w strings.Builder
	column := 0
	for _, word := range strings.Fields(text) {
		switch {
		case column == 0:
		case column+1+len(word) > 100:
			w.WriteByte('\n')
			column = 0
		default:
			w.WriteByte(' ')
			column++
		}
		w.WriteString(word)
		column += len(word)
	}
	return w.String() + "\n"
}

// measure writes the rows of a measure: of each contestant but the peer.
func (p *performance) measure(w *strings.Builder, m harness.MeasureResult) {
	for _, o := range m.Contestants {
		switch {
		case o.Name == m.Peer:
			continue
		case o.NotRun != "" || len(o.Samples) == 0:
			fmt.Fprintf(w, "| %s | %s | %s | not run | | | |\n", m.Name, o.Name, m.Peer)
			continue
		}
		var unmet []string
		for _, v := range m.Gates {
			if strings.HasPrefix(v.Gate, o.Name+": ") && v.Judged && !v.Met {
				unmet = append(unmet, strings.TrimPrefix(v.Gate, o.Name+": "))
			}
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %s | %s |\n", m.Name, o.Name, m.Peer, spread(m.Ratio(o.Name, m.Peer, harness.MetricRate)),
			spread(m.Ratio(o.Name, m.Peer, harness.MetricCost)), spread(m.Ratio(o.Name, m.Peer, harness.MetricOwn)), strings.Join(unmet, "; "))
	}
}

// spread renders the ratios of a metric.
func spread(s harness.Summary) string {
	if s.N == 0 || math.IsNaN(s.Median) || math.IsInf(s.Median, 0) {
		return ""
	}
	return fmt.Sprintf("%.2f (%.2f-%.2f)", s.Median, s.Min, s.Max)
}

// table writes the README's table.
func (p *performance) table(w *strings.Builder) {
	fmt.Fprint(w, "| | won | lost |\n|---|---|---|\n")
	for _, h := range headlines {
		var won, lost []string
		for _, c := range h.claims {
			x, ok := p.figure(h, c)
			if !ok {
				continue
			}
			entry := fmt.Sprintf("%s %.2f", c.text, x)
			if h.less == (x <= 1) {
				won = append(won, entry)
			} else {
				lost = append(lost, entry)
			}
		}
		if len(won)+len(lost) > 0 {
			fmt.Fprintf(w, "| %s | %s | %s |\n", h.text, strings.Join(won, ", "), strings.Join(lost, ", "))
		}
	}
}

// figure returns the ratio of a claim, unless its row was not run.
func (p *performance) figure(h headline, c claim) (float64, bool) {
	for _, s := range p.suites {
		if s.name != h.suite {
			continue
		}
		for _, m := range s.result.Measures {
			if m.Name == c.measure {
				ratio := m.Ratio(c.contestant, c.against, h.metric)
				return ratio.Median, ratio.N > 0
			}
		}
	}
	return 0, false
}

// Marks of the README's table.
const tableBegins, tableEnds = "<!-- make performance -->\n", "<!-- end -->\n"

// readme returns the README with the table anew.
func (p *performance) readme(text string) (string, error) {
	before, rest, begins := strings.Cut(text, tableBegins)
	_, after, ends := strings.Cut(rest, tableEnds)
	if !begins || !ends {
		return "", fmt.Errorf("README.md has no %q and %q", tableBegins, tableEnds)
	}
	var w strings.Builder
	p.table(&w)
	return before + tableBegins + "\n" + w.String() + "\n" + tableEnds + after, nil
}

// writePerformance writes the page, the README's table and the tables of each suite.
func writePerformance() error {
	root, err := checkout.Root()
	if err != nil {
		return err
	}
	p, err := readPerformance(root)
	if err != nil {
		return err
	}
	for _, s := range p.suites {
		if err := s.result.Write(filepath.Join(root, publishedDir)); err != nil {
			return err
		}
	}
	name := filepath.Join(root, "README.md")
	b, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	text, err := p.readme(string(b))
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(name, []byte(text), 0o644), os.WriteFile(filepath.Join(root, performancePage), []byte(p.page()), 0o644))
}
