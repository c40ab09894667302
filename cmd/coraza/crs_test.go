package coraza

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	crstests "github.com/corazawaf/coraza-coreruleset/v4/tests"
	"go.yaml.in/yaml/v3"

	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/l7/control"
	"github.com/millrace/millrace/metrics"
)

// This file runs the regression tests of the Core Rule Set, in the form of go-ftw, through a gateway with a backend: `make crs-tests`. Its
// runner is a reader of that form, since go-ftw is no module that others can require here.

// crsCase is a test of the rule set.
type crsCase struct {
	id    string // rule-test
	stage struct {
		Input struct {
			Method, URI, Data string
			Version           *string
			Headers           yaml.Node
			Encoded           string `yaml:"encoded_request"`
			Autocomplete      *bool  `yaml:"autocomplete_headers"`
		}
		Output struct {
			Status      int
			ExpectError bool `yaml:"expect_error"`
			Log         struct {
				ExpectIDs    []int  `yaml:"expect_ids"`
				NoExpectIDs  []int  `yaml:"no_expect_ids"`
				MatchRegex   string `yaml:"match_regex"`
				NoMatchRegex string `yaml:"no_match_regex"`
			}
		}
	}
}

// crsCases returns the tests of the module of the rule set.
func crsCases(t *testing.T) (list []crsCase) {
	t.Helper()
	err := fs.WalkDir(crstests.FS, ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(path, ".yaml") {
			return err
		}
		text, err := fs.ReadFile(crstests.FS, path)
		if err != nil {
			return err
		}
		var f struct {
			Rule  int `yaml:"rule_id"`
			Tests []struct {
				ID     int `yaml:"test_id"`
				Stages []yaml.Node
			}
		}
		if err := yaml.Unmarshal(text, &f); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		for _, one := range f.Tests {
			for i := range one.Stages {
				c := crsCase{id: fmt.Sprintf("%d-%d", f.Rule, one.ID)}
				if err := one.Stages[i].Decode(&c.stage); err != nil {
					return fmt.Errorf("%s: %w", c.id, err)
				}
				list = append(list, c)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// request returns the bytes of the request, as go-ftw writes them.
func (c *crsCase) request(t *testing.T) []byte {
	in := &c.stage.Input
	if in.Encoded != "" {
		b, err := base64.StdEncoding.DecodeString(strings.ReplaceAll(in.Encoded, "\n", ""))
		if err != nil {
			t.Fatalf("%s: %v", c.id, err)
		}
		return b
	}
	type field struct{ name, value string }
	var fields []field
	for i := 0; i+1 < len(in.Headers.Content); i += 2 {
		fields = append(fields, field{in.Headers.Content[i].Value, in.Headers.Content[i+1].Value})
	}
	value := func(name string) (string, bool) {
		i := slices.IndexFunc(fields, func(f field) bool { return strings.EqualFold(f.name, name) })
		if i < 0 {
			return "", false
		}
		return fields[i].value, true
	}
	data, complete := repeated.ReplaceAllStringFunc(in.Data, repeat), in.Autocomplete == nil || *in.Autocomplete
	if data != "" && complete {
		if _, ok := value("content-type"); !ok {
			fields = append(fields, field{"Content-Type", "application/x-www-form-urlencoded"})
		}
		if v, _ := value("content-type"); v == "application/x-www-form-urlencoded" {
			data = escapeForm(data)
		}
	}
	if v, _ := value("content-type"); strings.Contains(v, "multipart/form-data;") {
		data = strings.ReplaceAll(data, "\n", "\r\n")
	}
	method := orElse(in.Method, "GET")
	if complete {
		if _, ok := value("connection"); !ok {
			fields = append(fields, field{"Connection", "close"})
		}
		if _, ok := value("content-length"); !ok && (data != "" || slices.Contains([]string{"POST", "PUT", "PATCH", "DELETE"}, method)) {
			fields = append(fields, field{"Content-Length", strconv.Itoa(len(data))})
		}
	}
	version := "HTTP/1.1"
	if in.Version != nil {
		version = *in.Version
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s %s\r\n", method, orElse(in.URI, "/"), version)
	for _, f := range fields {
		fmt.Fprintf(&b, "%s: %s\r\n", f.name, f.value)
	}
	b.WriteString("\r\n" + data)
	return b.Bytes()
}

// repeated is the one construct of templates that tests have.
var repeated = regexp.MustCompile(`\{\{ *"([^"]*)" *\| *repeat (\d+) *\}\}`)

func repeat(text string) string {
	m := repeated.FindStringSubmatch(text)
	n, _ := strconv.Atoi(m[2])
	return strings.Repeat(m[1], n)
}

func orElse(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// escapeForm escapes a form that is not escaped.
func escapeForm(data string) string {
	if plain, err := url.QueryUnescape(data); err != nil || plain != data {
		return data
	}
	var parts []string
	for part := range strings.SplitSeq(strings.TrimSuffix(data, "&"), "&") {
		k, v, ok := strings.Cut(part, "=")
		if k = url.QueryEscape(k); ok {
			k += "=" + url.QueryEscape(v)
		}
		parts = append(parts, k)
	}
	return strings.Join(parts, "&")
}

// reflector is the backend of the tests: /reflect answers as the request says, all else 200 without content.
func reflector(w http.ResponseWriter, r *http.Request) {
	text, err := io.ReadAll(r.Body)
	if err != nil || r.URL.Path != "/reflect" {
		return
	}
	var spec struct {
		Status  int
		Headers map[string]string
		Body    string
		Encoded string `json:"encodedBody"`
	}
	if err := json.Unmarshal(text, &spec); err != nil {
		http.Error(w, err.Error(), 400)
		return
	}
	for name, value := range spec.Headers {
		w.Header().Set(name, value)
	}
	if len(spec.Headers) == 0 {
		w.Header().Set("Content-Type", "text/plain")
	}
	if spec.Status > 0 {
		w.WriteHeader(spec.Status)
	}
	body := []byte(spec.Body)
	if spec.Encoded != "" {
		body, _ = base64.StdEncoding.DecodeString(spec.Encoded)
	}
	_, _ = w.Write(body)
}

// testGateway is a gateway with the listener "web" at addr.
type testGateway struct {
	t     testing.TB
	set   *control.Set
	addr  string
	lines string // its access log
	done  chan error
}

// newTestGateway starts a gateway whose listener has a firewall, with a backend.
func newTestGateway(t testing.TB, firewall string, backend http.HandlerFunc) *testGateway {
	t.Helper()
	to := serve(t, backend)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &testGateway{t: t, addr: l.Addr().String(), lines: filepath.Join(t.TempDir(), "access.log"), done: make(chan error, 1)}
	l.Close()
	g.set, err = control.Open(g.configuration(firewall, to), control.Options{Log: slog.New(slog.DiscardHandler), Firewall: Compile})
	if err != nil {
		t.Fatal(err)
	}
	go func() { g.done <- g.set.Run() }()
	t.Cleanup(func() {
		g.set.Shutdown()
		if err := <-g.done; err != nil {
			t.Error(err)
		}
	})
	return g
}

// serve serves a handler, and returns the address.
func serve(t testing.TB, h http.Handler) string {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

func (g *testGateway) configuration(firewall, backend string) *config.Config {
	if firewall != "" {
		firewall = ", waf: " + firewall
	}
	text := fmt.Sprintf(`
listeners: [{name: web, address: %q, protocol: HTTP, versions: ["1.1", "2"], request_id: x-request-id%s}]
routes: [{name: r, rules: [{backend_refs: [{name: p}]}]}]
pools: [{name: p, backends: [{address: %q}]}]
access_log: {file: %q, fields: [request_id, status, reason, path], buffer: 4194304}
loops: 1
`, g.addr, firewall, backend, g.lines)
	c, err := config.Parse("gateway.yaml", []byte(text))
	if err != nil {
		g.t.Fatal(err)
	}
	return c
}

// crsAnswer is what a test has got.
type crsAnswer struct {
	status int
	id     string // of the request
	err    error
}

// ask sends a request, and reads the response.
func (g *testGateway) ask(request []byte) (a crsAnswer) {
	c, err := net.DialTimeout("tcp", g.addr, 5*time.Second)
	if err != nil {
		g.t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	if _, err := c.Write(request); err != nil {
		return crsAnswer{err: err}
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return crsAnswer{err: err}
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	return crsAnswer{status: resp.StatusCode, id: resp.Header.Get("X-Request-Id")}
}

var numbers = regexp.MustCompile(`\d+`)

// matches returns the rules that the access log has for each request, once it has the last one.
func (g *testGateway) matches(last string) (all map[string][]int) {
	g.t.Helper()
	for range 500 {
		if all = g.logged(); last == "" || all[last] != nil {
			return all
		}
		time.Sleep(10 * time.Millisecond)
	}
	g.t.Fatalf("the access log lacks %s", last)
	return nil
}

func (g *testGateway) logged() map[string][]int {
	g.t.Helper()
	f, err := os.Open(g.lines)
	if err != nil {
		g.t.Fatal(err)
	}
	defer f.Close()
	all := map[string][]int{}
	in := bufio.NewScanner(f)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		var line struct {
			ID     string `json:"request_id"`
			Reason string
		}
		if err := json.Unmarshal(in.Bytes(), &line); err != nil {
			return all // it is being written
		}
		if all[line.ID] == nil {
			all[line.ID] = []int{}
		}
		for _, n := range numbers.FindAllString(line.Reason, -1) {
			id, _ := strconv.Atoi(n)
			all[line.ID] = append(all[line.ID], id)
		}
	}
	return all
}

// counted returns how often each rule has matched, by the metrics: rules of the last phase match when the line of the access log is written.
func (g *testGateway) counted() map[int]int {
	g.t.Helper()
	reg := metrics.NewRegistry(metrics.Build{})
	reg.Add(g.set.WriteMetrics)
	var b bytes.Buffer
	if err := reg.WriteText(&b, metrics.Selection{All: true}); err != nil {
		g.t.Fatal(err)
	}
	all := map[int]int{}
	for _, m := range regexp.MustCompile(`waf_matches_total\{.*rule="(\d+)".*\} (\d+)`).FindAllStringSubmatch(b.String(), -1) {
		id, _ := strconv.Atoi(m[1])
		all[id], _ = strconv.Atoi(m[2])
	}
	return all
}

// crsSetup are the settings for which the tests are written: rule 900005 of the rule set's README of its tests. Content of responses is plain
// text.
const crsSetup = `SecResponseBodyMimeType text/plain
SecAction "id:900005,phase:1,nolog,pass,ctl:ruleRemoveById=910000,setvar:tx.blocking_paranoia_level=4,setvar:tx.crs_validate_utf8_encoding=1,\
  setvar:tx.arg_name_length=100,setvar:tx.arg_length=400,setvar:tx.total_arg_length=64000,setvar:tx.max_num_args=255,setvar:tx.max_file_size=64100,\
  setvar:tx.combined_file_sizes=65535"
`

// excluded are the tests that do not pass, each with the reason.
var excluded = map[string]string{
	"920100-4":  "CONNECT is refused before any rule: the gateway is no open proxy",
	"920181-1":  "Content-Length beside Transfer-Encoding is refused before any rule (RFC 9112 6.3)",
	"920280-3":  "another version of HTTP is answered 505, and not 400; Coraza's own run leaves it out",
	"920290-4":  "an empty Host is refused before any rule",
	"920430-3":  "as 920280-3",
	"920430-5":  "a request line without a version is refused, with an answer",
	"920430-8":  "as 920280-3; Coraza's own run wants 505",
	"920430-9":  "as 920280-3",
	"920620-1":  "the gateway keeps lines of Content-Type apart, so that the rule matches; it does in Coraza's own run",
	"922130-1":  "Coraza finds the error first, by rule 200003, in its own run too",
	"922130-2":  "as 922130-1",
	"922130-7":  "as 922130-1",
	"931131-1":  "a path that backends read in different ways is refused before any rule",
	"934120-23": "octets beyond ASCII in a target are refused before any rule",
	"934120-24": "as 934120-23",
	"934120-25": "as 934120-23",
	"934120-26": "as 934120-23",
	"934120-39": "as 934120-23",
}

// crsFails returns why a test has failed, "" if it has not.
func crsFails(c *crsCase, a crsAnswer, matched []int) string {
	out := &c.stage.Output
	switch {
	case out.ExpectError && a.err == nil:
		return fmt.Sprintf("answered %d, wants an error", a.status)
	case out.ExpectError:
		return ""
	case a.err != nil:
		return a.err.Error()
	case out.Status > 0 && a.status != out.Status:
		return fmt.Sprintf("status %d, wants %d; matched %v", a.status, out.Status, matched)
	}
	for _, id := range append(out.Log.ExpectIDs, patternIDs(out.Log.MatchRegex)...) {
		if !slices.Contains(matched, id) {
			return fmt.Sprintf("status %d, %d has not matched, but %v", a.status, id, matched)
		}
	}
	for _, id := range append(out.Log.NoExpectIDs, patternIDs(out.Log.NoMatchRegex)...) {
		if slices.Contains(matched, id) {
			return fmt.Sprintf("status %d, %d has matched", a.status, id)
		}
	}
	return ""
}

// patternIDs returns the rules that a pattern for the log names.
func patternIDs(pattern string) (ids []int) {
	for _, m := range regexp.MustCompile(`id "(\d+)"`).FindAllStringSubmatch(pattern, -1) {
		id, _ := strconv.Atoi(m[1])
		ids = append(ids, id)
	}
	return ids
}

// The regression tests of the rule set have the results that they name, through a gateway with a backend: all with MILLRACE_CRS_TESTS=all,
// otherwise every sixteenth.
func TestCoreRuleSet(t *testing.T) {
	setup := filepath.Join(t.TempDir(), "tests.conf")
	if err := os.WriteFile(setup, []byte(crsSetup), 0o600); err != nil {
		t.Fatal(err)
	}
	g := newTestGateway(t, fmt.Sprintf("{rules: [crs:recommended, %q, crs:setup, crs:rules], mode: detect, responses: true, body_bytes: 1048576, timeout: 1m}", setup), reflector)
	cases, answers, late := crsCases(t), map[int]crsAnswer{}, map[int][]int{}
	for i := range cases {
		if os.Getenv("MILLRACE_CRS_TESTS") != "all" && i%16 != 0 {
			continue
		}
		if !strings.HasPrefix(cases[i].id, "980") {
			answers[i] = g.ask(cases[i].request(t))
			continue
		}
		before := g.counted()
		answers[i] = g.ask(cases[i].request(t))
		late[i] = g.later(before, cases[i].stage.Output.Log.ExpectIDs)
	}
	last := g.ask([]byte("GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"))
	matches := g.matches(last.id)
	passed, failed, skipped := 0, 0, 0
	for i, a := range answers {
		why := crsFails(&cases[i], a, append(matches[a.id], late[i]...))
		switch _, known := excluded[cases[i].id]; {
		case why == "" && known:
			t.Errorf("%s passes, and is excluded", cases[i].id)
		case why == "":
			passed++
		case known:
			skipped++
		default:
			failed++
			t.Errorf("%s: %s", cases[i].id, why)
		}
	}
	t.Logf("%d passed, %d failed, %d excluded", passed, failed, skipped)
	if passed < 250 {
		t.Errorf("only %d tests were run", passed)
	}
}

// later waits until rules have matched that are to, and returns those that have matched since before.
func (g *testGateway) later(before map[int]int, wanted []int) (ids []int) {
	for range 100 {
		ids = nil
		for id, n := range g.counted() {
			if n > before[id] {
				ids = append(ids, id)
			}
		}
		if !slices.ContainsFunc(wanted, func(id int) bool { return !slices.Contains(ids, id) }) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	return ids
}
