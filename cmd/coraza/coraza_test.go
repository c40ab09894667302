package coraza

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/corazawaf/coraza/v3"
	corazahttp "github.com/corazawaf/coraza/v3/http"
	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/l7/control"
	"github.com/millrace/millrace/l7/waf"
	"github.com/millrace/millrace/semantics"
)

// files returns files of rules in a folder of the test.
func files(t *testing.T, texts map[string]string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range texts {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// An error in a file of rules is reported at its line, that of an included file too, and those of all files at once.
func TestErrorsOfRulesHaveTheirPlace(t *testing.T) {
	const good = "# a comment\nSecRule ARGS \"@rx evil\" \\\n  \"id:1,phase:2,deny\"\n"
	for _, c := range []struct {
		text, want string
		line       int
	}{
		{good + "\n  SecRul ARGS \"@rx x\" \"id:2,phase:2,deny\"\n", "unknown directive", 5},
		{good + "SecRule ARGS \"@rx (\" \\\n  \"id:2,phase:2,deny\"\n", "error parsing regexp", 4},
		{good + "SecRule NONE \"@rx x\" \"id:2,phase:2,deny\"\n", "unknown variable", 4},
		{good + "SecRule ARGS \"@rx x\" \"id:1,phase:2,deny\"\n", "duplicated", 4},
		{good + "SecRule ARGS \"@pmFromFile none.data\" \"id:2,phase:2,deny\"\n", "none.data", 4},
		{good + "SecRule ARGS \"@rx x\" \\\n", "not complete", 4},
		{good + "Include bad.inc\n", "unknown directive", 0},
	} {
		dir := files(t, map[string]string{"a.conf": c.text, "bad.inc": "SecRuleEngine On\nSecNone On\n"})
		_, err := Compile(waf.Settings{Files: []waf.File{{Name: "crs:setup"}, {Name: "a.conf", Path: dir + "/a.conf"}}})
		var e *waf.FileError
		if !errors.As(err, &e) || !strings.Contains(strings.ToLower(e.Message), c.want) {
			t.Errorf("%q: %v, want %q", c.text, err, c.want)
			continue
		}
		if c.line == 0 && (filepath.Base(e.Path) != "bad.inc" || e.Line != 2) {
			t.Errorf("%q: at %s:%d, want bad.inc:2", c.text, e.Path, e.Line)
		}
		if e.File.Name != "a.conf" || c.line > 0 && (e.Line != c.line || filepath.Base(e.Path) != "a.conf" || e.Source == "") {
			t.Errorf("%q: at %s:%d %q, want line %d", c.text, e.Path, e.Line, e.Source, c.line)
		}
	}
	for name, want := range map[string]string{"crs:rules": "without its setup", "none-*.conf": "no such file", "crs:nothing": "no part", "/dev/zero": "not a regular file"} {
		if _, err := Compile(waf.Settings{Files: []waf.File{{Name: name, Path: name}}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
}

// The configuration check has the errors of rules at their lines, and without an engine says which program has one.
func TestTheCheckHasErrorsOfRules(t *testing.T) {
	dir := files(t, map[string]string{"a.conf": "SecRuleEngine On\n  SecNone On\n", "gateway.yaml": "listeners: [{name: l, address: 127.0.0.1:80, protocol: HTTP, waf: {rules: [crs, a.conf, b.conf]}}]\n"})
	c, err := config.Load(dir + "/gateway.yaml")
	if err != nil {
		t.Fatal(err)
	}
	ce := new(config.Error)
	if err := control.CheckFirewalls(c, Compile); !errors.As(err, &ce) || len(ce.Problems) != 1 || ce.Problems[0].Line != 1 || !strings.Contains(ce.Problems[0].Message, "b.conf: there is no such file") {
		t.Errorf("%v", err)
	}
	if err := os.WriteFile(dir+"/b.conf", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := control.CheckFirewalls(c, Compile); !errors.As(err, &ce) || len(ce.Problems) != 1 || ce.Problems[0].File != dir+"/a.conf" || ce.Problems[0].Line != 2 || ce.Problems[0].Column != 3 {
		t.Errorf("%v", err)
	}
	if err := control.CheckFirewalls(c, nil); !errors.As(err, &ce) || len(ce.Problems) != 1 || !strings.Contains(ce.Problems[0].Hint, "millrace-waf") {
		t.Errorf("%v", err)
	}
}

// The configuration decides what follows from rules, whatever files say, and files keep the rest.
func TestTheConfigurationDecidesTheMode(t *testing.T) {
	dir := files(t, map[string]string{"a.conf": "SecRuleEngine Off\nSecRequestBodyAccess On\nSecRequestBodyLimit 10\nSecRequestBodyLimitAction Reject\nSecRule ARGS \"@rx evil\" \"id:7,phase:2,deny,status:406,log,msg:'m'\"\nSecRule ARGS \"@rx moved\" \"id:8,phase:2,redirect:https://a.example/,log,msg:'m'\"\n"})
	for mode, want := range map[waf.Mode]int{waf.Detect: 0, waf.Prevent: 406} {
		r, err := Compile(waf.Settings{Files: []waf.File{{Name: "a.conf", Path: dir + "/a.conf"}}, Mode: mode})
		if err != nil {
			t.Fatal(err)
		}
		tx := r.Begin()
		head := &waf.Request{Method: "POST", Target: "/", Protocol: "HTTP/1.1", Fields: []semantics.Field{{Name: "content-type", Value: "application/x-www-form-urlencoded"}}}
		if v := tx.Request(head, false); !v.Content || v.Status != 0 {
			t.Errorf("%+v", v)
		}
		if v := tx.Content([]byte("a=" + strings.Repeat("x", 100) + "evil")); v.Status != want || len(v.Matched) != 1 || v.Matched[0] != 7 {
			t.Errorf("mode %d: %+v, want %d", mode, v, want)
		}
		tx.Close()
		tx = r.Begin()
		if v := tx.Request(&waf.Request{Method: "GET", Target: "/?a=moved", Protocol: "HTTP/1.1"}, true); mode == waf.Prevent && v.Status != 403 {
			t.Errorf("a redirection is answered %+v", v)
		}
		tx.Close()
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}

// The rule set is taken with its setup, the embedded one or one of a file.
func TestTheRuleSetHasItsSetup(t *testing.T) {
	dir := files(t, map[string]string{"setup.conf": "SecAction \"id:900990,phase:1,pass,nolog,setvar:tx.crs_setup_version=4000\"\n", "other.conf": "SecRuleEngine On\n"})
	for list, want := range map[string]bool{"crs": true, "crs:setup crs:rules": true, "setup.conf crs:rules": true, "crs:recommended other.conf crs:rules": false, "crs:rules crs:setup": false} {
		var s waf.Settings
		for name := range strings.FieldsSeq(list) {
			s.Files = append(s.Files, waf.File{Name: name, Path: dir + "/" + name})
		}
		if _, err := newRoot(false).expand(s.Files); (err == nil) != want {
			t.Errorf("%s: %v", list, err)
		}
	}
}

// Rules see content without a directive that asks for it, and a file may forbid it.
func TestRulesSeeContent(t *testing.T) {
	const rules = "SecRule ARGS \"@contains zap\" \"id:1,phase:2,deny,status:418\"\nSecRule RESPONSE_BODY \"@contains zap\" \"id:2,phase:4,deny,status:502\"\n"
	form := &waf.Request{Method: "POST", Target: "/", Protocol: "HTTP/1.1", Fields: []semantics.Field{{Name: "Content-Type", Value: "application/x-www-form-urlencoded"}}}
	page := &waf.Response{Status: 200, Protocol: "HTTP/1.1", Fields: []semantics.Field{{Name: "Content-Type", Value: "text/html"}}}
	for text, want := range map[string][2]int{rules: {418, 502}, "SecRequestBodyAccess Off\nSecResponseBodyAccess Off\n" + rules: {}} {
		dir := files(t, map[string]string{"a.conf": text})
		r, err := Compile(waf.Settings{Files: []waf.File{{Name: "a.conf", Path: dir + "/a.conf"}}, Mode: waf.Prevent, Responses: true})
		if err != nil {
			t.Fatal(err)
		}
		tx := r.Begin()
		if v := tx.Request(form, false); v.Content != (want[0] != 0) {
			t.Errorf("%q: %+v", text, v)
		} else if v.Content {
			if v := tx.Content([]byte("a=zap")); v.Status != want[0] {
				t.Errorf("%q: content: %+v, want %d", text, v, want[0])
			}
		}
		tx.Close()
		tx = r.Begin()
		tx.Request(&waf.Request{Method: "GET", Target: "/", Protocol: "HTTP/1.1"}, true)
		if v := tx.Response(page, false); v.Content != (want[1] != 0) {
			t.Errorf("%q: %+v", text, v)
		} else if v.Content {
			if v := tx.ResponseContent([]byte("<p>zap")); v.Status != want[1] {
				t.Errorf("%q: content of a response: %+v, want %d", text, v, want[1])
			}
		}
		tx.Close()
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Wrong use ends in a verdict or at a bound, with HTTP/1.1 and HTTP/2, and the gateway goes on.
func TestHostileRequestsUnderTheRuleSet(t *testing.T) {
	g := newTestGateway(t, "{rules: crs, mode: prevent, timeout: 300ms}", reflector)
	ask := func(head, body string) int {
		a := g.ask(fmt.Appendf(nil, "%s\r\nHost: a.example\r\nConnection: close\r\nAccept: */*\r\nUser-Agent: x\r\nContent-Length: %d\r\n\r\n%s", head, len(body), body))
		if a.err != nil {
			t.Errorf("%.60q: %v", head, a.err)
		}
		return a.status
	}
	const form = "POST / HTTP/1.1\r\nContent-Type: application/x-www-form-urlencoded"
	for _, c := range []struct {
		head, body string
		want       []int
	}{
		{form, "a=hello", []int{200}},
		{form, "a=' or 1=1 -- ", []int{403}},
		{form, "a=" + strings.Repeat("<", 16000), []int{403, 503, 200}},      // a verdict, or the bound
		{form, "a=" + strings.Repeat("(a+)+$ ", 2200), []int{403, 503, 200}}, // what other engines take exponential time for
		{form, strings.Repeat("a[]=1&", 2700), []int{403, 503, 200, 400}},    // arguments
		{form, "a=" + strings.Repeat("x", 17000), []int{413}},                // beyond body_bytes
		{"POST / HTTP/1.1\r\nContent-Type: application/json", strings.Repeat("[", 8000), []int{400, 403, 503}},
		{"POST / HTTP/1.1\r\nContent-Type: application/xml", strings.Repeat("<a>", 5000), []int{200, 400, 403, 503}},
		{"POST / HTTP/1.1\r\nContent-Type: multipart/form-data; boundary=b", "--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n" + strings.Repeat("x", 9000), []int{400, 403, 503}},
		{"GET /?" + strings.Repeat("a=1&", 1500) + " HTTP/1.1", "", []int{200, 400, 403, 414, 503}},
		{"GET / HTTP/1.1\r\nX-Long: " + strings.Repeat("y", 12000), "", []int{200, 403, 431, 503}},
	} {
		got := ask(c.head, c.body)
		ok := false
		for _, w := range c.want {
			ok = ok || got == w
		}
		if !ok {
			t.Errorf("%.60q, %d bytes: %d, want one of %v", c.head, len(c.body), got, c.want)
		}
	}
	for range 600 { // evaluations that were given up end, and others are served again
		if got := ask(form, "a=hello"); got == 200 {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Error("no request is served afterwards")
}

// A reload has other rules at once.
func TestRulesAreReloaded(t *testing.T) {
	g := newTestGateway(t, "{rules: crs, mode: prevent, timeout: 1m}", reflector)
	evil := []byte("GET /?a=%27%20or%201=1-- HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n")
	if a := g.ask(evil); a.status != 403 {
		t.Fatalf("%+v", a)
	}
	backend := g.set.Status(func(string) bool { return true }).Pools[0].Backends[0].Address.String()
	if err := g.set.Reload(g.configuration("{rules: crs, mode: detect, timeout: 1m}", backend)); err != nil {
		t.Fatal(err)
	}
	if a := g.ask(evil); a.status != 200 {
		t.Errorf("%+v after a reload with detect", a)
	}
}

// BenchmarkRequest measures CPU time of client, gateway and backend together, for a GET and a form, without and with the Core Rule Set: their
// difference is its cost. "middleware" is Coraza's own, of net/http, before the same backend.
func BenchmarkRequest(b *testing.B) {
	const fields = "Host: a.example\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64) bench\r\nAccept: text/html\r\nConnection: close\r\n"
	requests := map[string]string{
		"get":  "GET /api/v2/users?page=1&limit=50&sort=created_at&order=desc HTTP/1.1\r\n" + fields + "\r\n",
		"form": "POST /account HTTP/1.1\r\n" + fields + "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 103\r\n\r\nusername=johndoe&email=john%40example.com&first_name=John&last_name=Doe&address=123+Main+Street&city=Rye",
	}
	for _, kind := range []string{"get", "form"} {
		request := []byte(requests[kind])
		for name, firewall := range map[string]string{"none": "", "detect": "{rules: crs, timeout: 1m}", "responses": "{rules: crs, responses: true, timeout: 1m}"} {
			b.Run(kind+"/"+name, func(b *testing.B) {
				g := newTestGateway(b, firewall, reflector)
				measure(b, func() crsAnswer { return g.ask(request) })
			})
		}
		b.Run(kind+"/middleware", func(b *testing.B) {
			w, err := coraza.NewWAF(coraza.NewWAFConfig().WithRootFS(newRoot(false)).WithDirectives(strings.Join(embedded["crs"], "")))
			if err != nil {
				b.Fatal(err)
			}
			g := &testGateway{t: b, addr: serve(b, corazahttp.WrapHandler(w, http.HandlerFunc(reflector)))}
			measure(b, func() crsAnswer { return g.ask(request) })
		})
		b.Run(kind+"/backend", func(b *testing.B) {
			g := &testGateway{t: b, addr: serve(b, http.HandlerFunc(reflector))}
			measure(b, func() crsAnswer { return g.ask(request) })
		})
	}
}

func measure(b *testing.B, ask func() crsAnswer) {
	cpu := func() time.Duration {
		var u unix.Rusage
		_ = unix.Getrusage(unix.RUSAGE_SELF, &u)
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	if a := ask(); a.status != 200 {
		b.Fatalf("%+v", a)
	}
	before := cpu()
	for b.Loop() {
		ask()
	}
	b.ReportMetric(float64((cpu()-before).Microseconds())/float64(b.N), "cpu-us/op")
}

// A check has the errors of logs that cannot be opened, and makes none of those that can.
func TestACheckMakesNoLogs(t *testing.T) {
	dir := files(t, map[string]string{"old.log": ""})
	rules := "SecAuditEngine On\nSecAuditLogType Serial\nSecAuditLog DIR/audit.log\nSecDebugLog \\\n  DIR/debug.log\nInclude DIR/more.inc\nSecAction \"id:1,phase:1,pass,nolog\"\n"
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(strings.ReplaceAll(text, "DIR", dir)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("a.conf", rules)
	write("more.inc", "secdebuglog \"DIR/third.log\"\nSecDebugLog DIR/old.log\n")
	write("gateway.yaml", "listeners: [{name: l, address: 127.0.0.1:80, protocol: HTTP, waf: {rules: [crs:setup, a.conf, crs:rules]}}]\n")
	c, err := config.Load(dir + "/gateway.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := control.CheckFirewalls(c, Compile); err != nil {
		t.Error(err)
	}
	made := func() string {
		list, _ := filepath.Glob(dir + "/*.log")
		return strings.ReplaceAll(strings.Join(list, " "), dir+"/", "")
	}
	if got := made(); got != "old.log" {
		t.Errorf("a check leaves %s", got)
	}
	r, err := Compile(waf.Settings{Files: []waf.File{{Name: "a.conf", Path: dir + "/a.conf"}}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if got := made(); got != "audit.log debug.log old.log third.log" {
		t.Errorf("in use they have %s", got)
	}
	write("a.conf", strings.Replace(rules, "DIR/debug.log", "DIR/none/debug.log", 1))
	ce := new(config.Error)
	if err := control.CheckFirewalls(c, Compile); !errors.As(err, &ce) || ce.Problems[0].Line != 4 || !strings.Contains(ce.Problems[0].Message, "no such file") {
		t.Errorf("%v", err)
	}
}

// A file of rules is read once: what looks at it later sees the same text, though the file has changed.
func TestFilesOfRulesAreReadOnce(t *testing.T) {
	dir := files(t, map[string]string{"a.conf": "SecAction \"id:1,phase:1,pass,nolog\"\n"})
	r := newRoot(false)
	list, err := r.expand([]waf.File{{Name: "a.conf", Path: dir + "/a.conf"}, {Name: "crs:setup"}, {Name: "crs:rules"}})
	if err != nil || len(list) != 3 {
		t.Fatal(list, err)
	}
	if err := os.WriteFile(dir+"/a.conf", []byte("SecNone On\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if text, err := r.ReadFile(dir + "/a.conf"); err != nil || !strings.Contains(string(text), "id:1") {
		t.Errorf("%q, %v", text, err)
	}
	if text, err := newRoot(false).ReadFile(dir + "/a.conf"); err != nil || strings.Contains(string(text), "id:1") {
		t.Errorf("%q, %v", text, err)
	}
}

// Rules that the configuration leaves out by their IDs, or a range, match nothing.
func TestRulesAreLeftOut(t *testing.T) {
	dir := files(t, map[string]string{"a.conf": "SecRule ARGS \"@rx evil\" \"id:7,phase:1,deny,log,msg:'m'\"\nSecRule ARGS \"@rx evil\" \"id:9,phase:1,deny,log,msg:'m'\"\n"})
	for _, c := range []struct {
		without []waf.Range
		want    int
	}{{nil, 7}, {[]waf.Range{{First: 7, Last: 7}}, 9}, {[]waf.Range{{First: 8, Last: 9}}, 7}, {[]waf.Range{{First: 1, Last: 100}}, 0}} {
		r, err := Compile(waf.Settings{Files: []waf.File{{Name: "a.conf", Path: dir + "/a.conf"}}, Mode: waf.Prevent, Without: c.without})
		if err != nil {
			t.Fatal(err)
		}
		tx := r.Begin()
		if v := tx.Request(&waf.Request{Method: "GET", Target: "/?a=evil", Protocol: "HTTP/1.1"}, true); v.Rule != c.want {
			t.Errorf("without %v: rule %d, want %d", c.without, v.Rule, c.want)
		}
		tx.Close()
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}
