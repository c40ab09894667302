package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/bench/harness"
	"github.com/millrace/millrace/internal/testkit/checkout"
)

// TestPerformancePage: the page and the README's table are of the stored results, and mark suites whose code is newer.
func TestPerformancePage(t *testing.T) {
	root, err := checkout.Root()
	if err != nil {
		t.Fatal(err)
	}
	p, err := readPerformance(root)
	if errors.Is(err, errNoHistory) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if read(performancePage) != p.page() {
		t.Errorf("%s is not that of %s and of today's code: make performance", performancePage, publishedDir)
	}
	text := read("README.md")
	if want, err := p.readme(text); err != nil || text != want {
		t.Errorf("the README's table is not that of %s: make performance (%v)", publishedDir, err)
	}
	for _, s := range p.suites {
		if read(filepath.Join(publishedDir, s.name+".md")) != s.result.Markdown() {
			t.Errorf("%s/%s.md is not of its JSON: make performance", publishedDir, s.name)
		}
	}
}

// outcome is a contestant with one sample.
func outcome(name string, rate, own float64) harness.Outcome {
	return harness.Outcome{Name: name, Samples: []harness.Round{{Sample: harness.Sample{Units: 1000, Seconds: 1000 / rate, CPU: own, Own: own}}}}
}

// TestHeadlines: less CPU and a higher rate are won, and rows that were not run are left out.
func TestHeadlines(t *testing.T) {
	p := &performance{suites: []published{
		{name: "gateway", result: &harness.Result{Measures: []harness.MeasureResult{
			{Name: "HTTP/1.1, 128 B", Peer: "nginx", Contestants: []harness.Outcome{outcome("millrace", 10, 4), outcome("nginx", 20, 5)}},
			{Name: "WebSocket echo of 64 B", Peer: "nginx", Contestants: []harness.Outcome{outcome("millrace", 20, 6), outcome("nginx", 10, 5)}},
		}}},
		{name: "l4", result: &harness.Result{Measures: []harness.MeasureResult{
			{Name: "UDP 64 B, 1 flow", Peer: "nft DNAT", Contestants: []harness.Outcome{outcome("millrace", 15, 4), outcome("nft DNAT", 10, 1)}},
			{Name: "UDP 64 B, 16 384 flows", Peer: "nft DNAT", Contestants: []harness.Outcome{outcome("millrace", 5, 4), outcome("nft DNAT", 10, 5)}},
		}}},
	}}
	var w strings.Builder
	p.table(&w)
	want := `| | won | lost |
|---|---|---|
| HTTP gateway, CPU to nginx's | HTTP/1.1 0.80 | WebSocket 1.20 |
| UDP 64 B, rate to nft DNAT's | one flow 1.50 | 16 384 flows 0.50 |
`
	if w.String() != want {
		t.Errorf("table:\n%swant:\n%s", w.String(), want)
	}
	text, err := p.readme("before\n" + tableBegins + "old\n" + tableEnds + "after\n")
	if err != nil || text != "before\n"+tableBegins+"\n"+want+"\n"+tableEnds+"after\n" {
		t.Errorf("readme: %v\n%s", err, text)
	}
	if _, err := p.readme("no marks"); err == nil {
		t.Error("a README without marks is accepted")
	}
}

// TestHeadlinesName rows and contestants that suites have.
func TestHeadlinesName(t *testing.T) {
	for _, h := range headlines {
		if _, ok := suiteNamed(h.suite); !ok {
			t.Errorf("%s: no suite %s", h.text, h.suite)
		}
	}
	for _, s := range pageSuites {
		for _, folder := range s.paths {
			if st, err := os.Stat(filepath.Join("..", folder)); err != nil || !st.IsDir() {
				t.Errorf("suite %s: folder %s: %v", s.name, folder, err)
			}
		}
	}
}

// TestChangedSince: tests, pages and data of tests do not make figures old.
func TestChangedSince(t *testing.T) {
	root := t.TempDir()
	git := func(args ...string) string {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-C", root, "-c", "user.name=t", "-c", "user.email=t@example.com"}, args...)...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	commit := func(name string) string {
		t.Helper()
		path := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(name), 0o644)); err != nil {
			t.Fatal(err)
		}
		git("add", "-A")
		git("commit", "-qm", name)
		return git("rev-parse", "HEAD")
	}
	git("init", "-q")
	measured := commit("tcp/a.go")
	for _, c := range []struct {
		name string
		want bool
	}{{"tcp/a_test.go", false}, {"tcp/README.md", false}, {"tcp/b/testdata/x", false}, {"udp/a.go", false}, {"tcp/b/a.go", true}} {
		commit(c.name)
		if got, err := changedSince(root, measured, []string{"tcp"}); err != nil || got != c.want {
			t.Errorf("after %s: %v, %v", c.name, got, err)
		}
	}
	if _, err := changedSince(root, "0123456789ab", []string{"tcp"}); !errors.Is(err, errNoHistory) {
		t.Errorf("an unknown commit: %v", err)
	}
}
