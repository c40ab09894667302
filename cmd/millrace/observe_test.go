package main

import (
	"bufio"
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/gateway/daemon"
	"github.com/millrace/millrace/internal/testkit/testcert"
	"github.com/millrace/millrace/internal/testkit/testport"
)

// queries returns the expressions of the Grafana dashboard and of the alert rules, with what has them.
func queries(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	text, err := os.ReadFile("../../deploy/grafana/millrace-gateway.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		UID, Title string
		Templating struct {
			List []struct {
				Name, Type string
				Query      any
			}
		}
		Annotations struct{ List []struct{ Name, Expr string } }
		Panels      []struct {
			ID      int
			Title   string
			Type    string
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	if board.UID == "" || len(board.Panels) < 20 {
		t.Errorf("%q has %d panels", board.UID, len(board.Panels))
	}
	ids := map[int]bool{}
	for _, p := range board.Panels {
		if ids[p.ID] || p.GridPos.X+p.GridPos.W > 24 || (p.Type == "row") != (len(p.Targets) == 0) {
			t.Errorf("panel %q: id %d twice, wider than the board, or without a query", p.Title, p.ID)
		}
		ids[p.ID] = true
		for i, q := range p.Targets {
			all[fmt.Sprintf("panel %q, query %d", p.Title, i)] = q.Expr
		}
	}
	for _, a := range board.Annotations.List {
		all["annotation "+a.Name] = a.Expr
	}
	rules, err := os.ReadFile("../../deploy/prometheus/millrace-alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range strings.Split(string(rules), "- alert: ")[1:] {
		name, _, _ := strings.Cut(rule, "\n")
		m := regexp.MustCompile(`(?s)\n +expr: (?:\|\n)?(.*?)\n +(?:for|labels): `).FindStringSubmatch(rule)
		if m == nil || !strings.Contains(rule, "summary: ") || !strings.Contains(rule, "remedy: ") || !strings.Contains(rule, "severity: ") {
			t.Errorf("rule %s lacks an expression, a summary, a remedy or a severity", name)
			continue
		}
		all["alert "+name] = m[1]
	}
	return all
}

// exposed returns the metrics of a gateway with labels, as a scrape of Prometheus has them.
func exposed(t *testing.T) map[string]map[string]bool {
	t.Helper()
	dir := t.TempDir()
	cert, _ := testcert.SelfSigned("site.example")
	der, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	key := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	if err := os.WriteFile(filepath.Join(dir, "c.pem"), append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]}), key...), 0o600); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "gw.yaml")
	var ports []any
	for range 3 {
		ports = append(ports, testport.Hold(t).String())
	}
	src := fmt.Sprintf(`
admin: {socket: ""}
metrics: {listen: %q}
access_log: {file: log}
rate_limits: [{name: limit, requests: 5}]
caches: [{name: pages, memory: 2097152}]
listeners:
- {name: web, address: %q, protocol: HTTP, sources: {deny: 192.0.2.1}}
- {name: tls, address: %q, protocol: HTTPS, tls: {certificates: [{cert: c.pem}]}}
routes:
- {name: r, rate_limits: [limit], sources: {deny: 192.0.2.1}, concurrency: {requests: 9}, rules: [{matches: [{}], cache: {name: pages}, backend_refs: [{name: p}]}]}
pools: [{name: p, retry_budget: {percent: 5}, backends: [{name: b, address: "127.0.0.1:1"}]}]
`, ports...)
	runDaemon(t, file, src, daemon.Options{})
	for range 3 { // counters of a backend's failures begin with the first
		resp, err := http.Get("http://" + ports[1].(string) + "/")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	resp, err := http.Get("http://" + ports[0].(string) + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	all := map[string]map[string]bool{}
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		m := regexp.MustCompile(`^([a-z_0-9]+)(?:\{(.*)\})? `).FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		if all[m[1]] == nil {
			all[m[1]] = map[string]bool{}
		}
		for _, l := range regexp.MustCompile(`([a-z_]+)="`).FindAllStringSubmatch(m[2], -1) {
			all[m[1]][l[1]] = true
		}
	}
	return all
}

// documented returns the metrics of the reference pages with their labels; another test holds these to the code.
func documented(t *testing.T) map[string]map[string]bool {
	t.Helper()
	all := map[string]map[string]bool{}
	for _, page := range []string{"gateway-metrics.md", "http-gateway.md"} {
		text, err := os.ReadFile("../../docs/" + page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile("(?m)^\\| `(millrace_[a-z0-9_]+)` \\| ([a-z]+) \\|([^|]*)\\|").FindAllStringSubmatch(string(text), -1) {
			names := []string{m[1]}
			if m[2] == "histogram" {
				names = []string{m[1] + "_bucket", m[1] + "_sum", m[1] + "_count"}
			}
			for _, name := range names {
				all[name] = map[string]bool{}
				for _, label := range strings.FieldsFunc(m[3], func(r rune) bool { return r == ',' || r == ' ' }) {
					all[name][label] = true
				}
			}
		}
	}
	return all
}

// Every metric and label that the dashboard and the alerts name exists: those of HTTP and of the process in a scrape of a gateway,
// and those of packets, which need devices, in the reference.
func TestDashboardAndAlertsNameMetricsThatThereAre(t *testing.T) {
	scraped, reference := exposed(t), documented(t)
	ofHTTP := regexp.MustCompile(`^(?:millrace_http_|millrace_pool_|millrace_config_|millrace_build_|process_|go_)`)
	everywhere := map[string]bool{"instance": true, "job": true, "le": true}
	name := regexp.MustCompile(`\b(?:millrace|process|go)_[a-z0-9_]+`)
	used := map[string]bool{}
	for at, expr := range queries(t) {
		expr = strings.ReplaceAll(expr, "$instance", "")
		names := name.FindAllString(expr, -1)
		if len(names) == 0 && !strings.HasPrefix(expr, `up{`) {
			t.Errorf("%s names no metric: %s", at, expr)
		}
		labels := map[string]bool{}
		for _, n := range names {
			used[n] = true
			of := reference[n]
			if ofHTTP.MatchString(n) && n != "millrace_http_certificate_attempt_failures" { // which is of ACME
				if of = scraped[n]; of == nil {
					t.Errorf("%s: a scrape has no %s", at, n)
				}
			} else if of == nil {
				t.Errorf("%s: there is no %s", at, n)
			}
			maps.Copy(labels, of)
		}
		for _, m := range regexp.MustCompile(`(?:by|on) \(([^)]*)\)|([a-z_]+)(?:=~|=|!=|!~)"`).FindAllStringSubmatch(expr, -1) {
			for _, label := range strings.FieldsFunc(m[1]+m[2], func(r rune) bool { return r == ',' || r == ' ' }) {
				if !labels[label] && !everywhere[label] {
					t.Errorf("%s: no metric of it has the label %s: %s", at, label, expr)
				}
			}
		}
		if strings.Count(expr, "(") != strings.Count(expr, ")") || strings.Count(expr, "{") != strings.Count(expr, "}") {
			t.Errorf("%s: brackets of %s", at, expr)
		}
	}
	if len(used) < 45 {
		t.Errorf("only %d metrics are used: %v", len(used), slices.Sorted(maps.Keys(used)))
	}
}

// Prometheus's own tool parses each query and runs the tests of the rules.
func TestPrometheusTakesTheRulesAndQueries(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not installed (apt-get install prometheus)")
	}
	var b strings.Builder
	b.WriteString("groups:\n- name: panels\n  rules:\n")
	n := 0
	for _, expr := range queries(t) {
		expr = strings.NewReplacer("$__rate_interval", "1m", "$instance", "a", "$pool", "b").Replace(expr)
		text, _ := json.Marshal(strings.Join(strings.Fields(expr), " "))
		fmt.Fprintf(&b, "  - {record: r%d, expr: %s}\n", n, text)
		n++
	}
	file := filepath.Join(t.TempDir(), "panels.yaml")
	if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"check", "rules", "millrace-alerts.yaml"}, {"test", "rules", "millrace-alerts-test.yaml"}, {"check", "rules", file}} {
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		cmd := exec.CommandContext(ctx, promtool, args...)
		cmd.Dir = "../../deploy/prometheus"
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v: %s", args, err, out)
		}
		stop()
	}
}
