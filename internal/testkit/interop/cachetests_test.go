package interop

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/internal/testkit/testport"
	l7control "github.com/millrace/millrace/l7/control"
)

// cacheTest is a case of http-tests/cache-tests with its result.
type cacheTest struct {
	Suite, ID, Name, Kind, Result, Why string
}

// cacheVerdicts are the results of a case, in the order of the table, with their names there.
var cacheVerdicts = []struct{ kind, result, name string }{
	{"required", "pass", "required: passed"},
	{"required", "fail", "required: failed"},
	{"optimal", "pass", "optional: passed"},
	{"optimal", "optional_fail", "optional: not so"},
	{"check", "yes", "behaviour: yes"},
	{"check", "no", "behaviour: no"},
	{"", "dependency_fail", "not judged: another case has failed"},
	{"", "setup_fail", "not judged: no set-up"},
	{"", "retry", "not judged: repeated"},
	{"", "harness_fail", "not judged: no result"},
}

// unpassedCacheTests are the cases of millrace that do not pass, by how their names begin, with the reason: what is on purpose, and what is left out.
var unpassedCacheTests = []struct{ prefix, why string }{
	{"heuristic-", "heuristics are off by default (`heuristic_percent`), and never for errors"},
	{"pragma-response-no-cache-heuristic", "heuristics are off by default"},
	{"other-heuristic-", "heuristics are off by default"},
	{"headers-store-Set-Cookie", "responses with cookies are not stored"},
	{"304-etag-update-response-Set-Cookie", "responses with cookies are not stored"},
	{"other-set-cookie", "responses with cookies are not stored"},
	{"headers-store-Transfer-Encoding", "the field is no transfer coding: the gateway refuses the response (502)"},
	{"304-etag-update-response-ETag", "a 304 for another tag than that of the request: the response is fetched again"},
	{"partial-", "206 is not stored"},
	{"method-POST", "responses to POST are not stored"},
	{"vary-normalise-lang-select", "the cache does not choose a language itself"},
	{"conditional-lm-fresh-no-lm", "without Last-Modified the Date of the response counts (RFC 9111 4.3.2), which is later"},
	{"stale-close-", "the case before it wants stale responses without permission"},
	{"stale-warning-", "the case before it wants stale responses without permission"},
	{"head-", "HEAD updates no stored header; one that differs removes the response"},
}

// whyNotPassed returns the reason for a case.
func whyNotPassed(id string) string {
	for _, u := range unpassedCacheTests {
		if strings.HasPrefix(id, u.prefix) {
			return u.why
		}
	}
	return ""
}

// judgeCacheTests prints the results of the suite with its own verdict of each. It is called in the folder of the suite.
const judgeCacheTests = `
import fs from 'fs'
const dir = 'file://' + process.cwd()
const { determineTestResult, resultTypes } = await import(dir + '/test-engine/lib/results.mjs')
const tests = (await import(dir + '/tests/index.mjs')).default
const results = JSON.parse(fs.readFileSync(0)), names = new Map(Object.entries(resultTypes).map(([k, v]) => [v, k])), out = []
for (const suite of tests) {
	for (const test of suite.tests) {
		if (results[test.id] === undefined) continue
		out.push({ Suite: suite.name, ID: test.id, Name: test.name, Kind: test.kind || 'required',
			Result: names.get(determineTestResult(tests, test.id, results)), Why: Array.isArray(results[test.id]) ? String(results[test.id][1]) : '' })
	}
}
console.log(JSON.stringify(out))`

const nginxCache = `
daemon off; master_process off; pid %[1]s/pid; error_log stderr;
events {}
http {
	access_log off; client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy;
	fastcgi_temp_path %[1]s/fastcgi; uwsgi_temp_path %[1]s/uwsgi; scgi_temp_path %[1]s/scgi;
	proxy_cache_path %[1]s/cache levels=1:2 keys_zone=one:8m max_size=1000m inactive=600m;
	server {
		listen 127.0.0.1:%[2]s;
		location / { proxy_pass http://%[3]s; proxy_cache one; proxy_cache_revalidate on; proxy_http_version 1.1; }
	}
}`

// TestCacheTests runs the suite of the HTTP working group against the gateway's cache and nginx's. MILLRACE_CACHE_TESTS names its folder;
// `make cache-tests` fetches it. With MILLRACE_CACHE_TESTS_PAGE the results are written there.
func TestCacheTests(t *testing.T) {
	dir := os.Getenv("MILLRACE_CACHE_TESTS")
	if dir == "" {
		t.Skip("MILLRACE_CACHE_TESTS names no folder; make cache-tests fetches the suite")
	}
	needsProgram(t, "node")
	needsProgram(t, "nginx")
	results := map[string][]cacheTest{
		"millrace": runCacheTests(t, dir, millraceCache(t, originOfCacheTests(t, dir))),
		"nginx":    runCacheTests(t, dir, startNginxCache(t, originOfCacheTests(t, dir))),
	}
	for _, who := range []string{"millrace", "nginx"} {
		t.Logf("%s: %d cases", who, len(results[who]))
		for _, v := range cacheVerdicts {
			t.Logf("  %3d %s", countCacheTests(results[who], v.kind, v.result), v.name)
		}
	}
	if n := len(results["millrace"]); n < 350 {
		t.Errorf("%d cases ran: the suite is not what it was", n)
	}
	for _, c := range results["millrace"] {
		switch c.Result {
		case "pass", "yes", "no":
		default:
			if whyNotPassed(c.ID) == "" {
				t.Errorf("%s: %s: %s: %s: %s", c.Result, c.Suite, c.ID, c.Name, c.Why)
			}
		}
	}
	if page := os.Getenv("MILLRACE_CACHE_TESTS_PAGE"); page != "" {
		writeFile(t, page, cacheTestsPage(results))
	}
}

func countCacheTests(list []cacheTest, kind, result string) (n int) {
	for _, c := range list {
		if (kind == "" || c.Kind == kind) && c.Result == result {
			n++
		}
	}
	return n
}

// startedProgram starts a program, and waits until it accepts connections.
func startedProgram(t *testing.T, addr, dir string, env []string, name string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait()
	})
	for range 500 {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			_ = c.Close()
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatalf("%s does not listen at %s: %.2000s", name, addr, out.String())
}

// originOfCacheTests starts the suite's own origin server.
func originOfCacheTests(t *testing.T, dir string) (addr string) {
	t.Helper()
	at := testport.Hold(t)
	env := []string{fmt.Sprintf("npm_config_port=%d", at.Port()), "npm_config_protocol=http", "npm_config_pidfile=" + filepath.Join(t.TempDir(), "pid")}
	startedProgram(t, at.String(), dir, env, "node", "test-engine/server/server.mjs")
	return at.String()
}

// millraceCache starts the gateway with the defaults of a cache.
func millraceCache(t *testing.T, origin string) (addr string) {
	t.Helper()
	at := testport.Hold(t)
	cfg, err := config.Parse("cache-tests", fmt.Appendf(nil, `
listeners: [{name: web, address: "%s", protocol: HTTP, versions: ["1.1"]}]
caches: [{name: all, memory: 67108864}]
routes: [{name: all, rules: [{backend_refs: [{name: origin}], cache: {name: all}}]}]
pools: [{name: origin, backends: [{address: "%s"}]}]
`, at, origin))
	if err != nil {
		t.Fatal(err)
	}
	set, err := l7control.Open(cfg, l7control.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- set.Run() }()
	t.Cleanup(func() {
		set.Shutdown()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return at.String()
}

func startNginxCache(t *testing.T, origin string) (addr string) {
	t.Helper()
	at, dir := testport.Hold(t), t.TempDir()
	conf := filepath.Join(dir, "nginx.conf")
	writeFile(t, conf, fmt.Sprintf(nginxCache, dir, fmt.Sprint(at.Port()), origin))
	startedProgram(t, at.String(), dir, nil, "nginx", "-p", dir, "-c", conf)
	return at.String()
}

// runCacheTests runs the suite against a cache.
func runCacheTests(t *testing.T, dir, addr string) (list []cacheTest) {
	t.Helper()
	run := exec.Command("node", "--no-warnings", "test-engine/cli.mjs")
	run.Dir, run.Env = dir, append(os.Environ(), "npm_config_base=http://"+addr, "npm_config_id=", "npm_package_config_id=")
	var complaints bytes.Buffer
	run.Stderr = &complaints
	out, err := run.Output()
	if err != nil {
		t.Fatalf("the suite: %v\n%.2000s", err, complaints.String())
	}
	judge := exec.Command("node", "--no-warnings", "--input-type=module", "-e", judgeCacheTests)
	judge.Dir, judge.Stdin, judge.Stderr = dir, bytes.NewReader(out[max(bytes.IndexByte(out, '{'), 0):]), &complaints
	if out, err = judge.Output(); err == nil {
		err = json.Unmarshal(out, &list)
	}
	if err != nil {
		t.Fatalf("the verdicts: %v\n%.2000s", err, complaints.String())
	}
	return list
}

// cacheTestsPage returns the page with the results.
func cacheTestsPage(results map[string][]cacheTest) string {
	var b strings.Builder
	b.WriteString(`# The cache judged by the HTTP working group's tests

` + "`make cache-tests`" + ` runs [http-tests/cache-tests](https://github.com/http-tests/cache-tests), whose
results [cache-tests.fyi](https://cache-tests.fyi) publishes, and writes this page. The gateway has
the defaults of ` + "`cache`" + `, and nginx ` + "`proxy_cache`" + ` with ` + "`proxy_cache_revalidate on`" + `, as the suite
configures it. *Required* cases follow from the RFCs; *optional* ones are what a good cache does;
*behaviour* is information, with no right answer.

| | millrace | nginx |
|---|---|---|
`)
	fmt.Fprintf(&b, "| cases | %d | %d |\n", len(results["millrace"]), len(results["nginx"]))
	for _, v := range cacheVerdicts {
		fmt.Fprintf(&b, "| %s | %d | %d |\n", v.name, countCacheTests(results["millrace"], v.kind, v.result), countCacheTests(results["nginx"], v.kind, v.result))
	}
	for _, who := range []string{"millrace", "nginx"} {
		fmt.Fprintf(&b, "\n## What %s does not pass\n\n| case | kind | what the suite has seen | why |\n|---|---|---|---|\n", who)
		for _, result := range []string{"fail", "setup_fail", "retry", "harness_fail", "optional_fail", "dependency_fail"} {
			for _, c := range results[who] {
				if c.Result == result {
					why := ""
					if who == "millrace" {
						why = whyNotPassed(c.ID)
					}
					seen := strings.NewReplacer("|", "\\|", "\n", " ", "<", "&lt;").Replace(c.Why)
					fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", c.ID, cacheVerdictOf(&c), seen, why)
				}
			}
		}
	}
	b.WriteString("\n## Behaviour that differs\n\n| case | question | millrace | nginx |\n|---|---|---|---|\n")
	for _, c := range results["millrace"] {
		i := slices.IndexFunc(results["nginx"], func(o cacheTest) bool { return o.ID == c.ID })
		if c.Kind == "check" && i >= 0 && results["nginx"][i].Result != c.Result {
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", c.ID, strings.ReplaceAll(c.Name, "|", "\\|"), cacheVerdictOf(&c), cacheVerdictOf(&results["nginx"][i]))
		}
	}
	return b.String()
}

// cacheVerdictOf returns the words for a result.
func cacheVerdictOf(c *cacheTest) string {
	return map[string]string{
		"fail": "required", "optional_fail": "optional", "dependency_fail": "not judged", "setup_fail": "no set-up", "retry": "repeated", "harness_fail": "no result",
		"yes": "yes", "no": "no", "pass": "passed",
	}[c.Result]
}
