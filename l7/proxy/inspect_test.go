package proxy

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/filter/inspect"
	"github.com/millrace/millrace/filter/signature"
	"github.com/millrace/millrace/http2"
	"github.com/millrace/millrace/internal/testkit/memtransport"
	"github.com/millrace/millrace/l7/rewrite"
	"github.com/millrace/millrace/semantics"
)

// inspectRig is a rig whose listeners inspect requests by rules.
type inspectRig struct {
	*memRig
	engine  *inspect.Engine
	mode    inspect.Mode
	alerts  []string // sids, with "late" where what has matched has passed
	at      *recorder
	records []Record
	begun   int // requests that were counted
}

// compiledRules compiles rules, which must all be about messages.
func compiledRules(t testing.TB, text string, before *inspect.Rules) *inspect.Rules {
	t.Helper()
	f := signature.Parse("test", text, nil)
	for _, e := range append(f.Errors, f.Skipped...) {
		t.Fatal(e)
	}
	for _, r := range f.Rules {
		if why := inspect.NotOfMessages(r); why != "" {
			t.Fatalf("%s: %s", r.Text, why)
		}
	}
	r, err := inspect.CompileNext(f.Rules, before)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func newInspectRig(t testing.TB, mode inspect.Mode, hold int, rules string) *inspectRig {
	t.Helper()
	r := &inspectRig{mode: mode, at: &recorder{}}
	r.memRig = newMemRig(t, func(_ *memRig, tree *Tree) {
		for _, ln := range tree.Listeners {
			ln.Inspection, ln.Names = &Inspection{Policy: 1, Hold: hold}, rewrite.NewNames(rewrite.Inspected())
		}
	})
	r.use(inspect.New(compiledRules(t, rules, nil), inspect.Config{Inline: true, Refuse: mode == inspect.Prevent}, r.alert))
	r.worker.Inspect(func(policy uint8, request bool) (*inspect.Engine, inspect.Mode) {
		if request {
			r.begun++
		}
		if policy != 1 {
			return nil, inspect.Detect
		}
		return r.engine, r.mode
	})
	r.worker.OnRecord(func(q *Record) { r.records = append(r.records, *q) })
	r.backend = r.at.serve
	return r
}

func (r *inspectRig) use(e *inspect.Engine) { r.engine = e }

func (r *inspectRig) alert(a *inspect.Alert) {
	sid := fmt.Sprint(a.Rule.SID)
	if a.Packet == 0 {
		sid += " late"
	}
	r.alerts = append(r.alerts, sid)
}

// taken returns the alerts so far, sorted, and forgets them.
func (r *inspectRig) taken() string {
	slices.Sort(r.alerts)
	s := strings.Join(r.alerts, " ")
	r.alerts = nil
	return s
}

// received returns what the backend has received, of all connections.
func (r *inspectRig) received() string { return string(bytes.Join(r.at.connections, nil)) }

// released checks that nothing is left, in the engine neither.
func (r *inspectRig) released(clients ...*memtransport.Peer) {
	r.t.Helper()
	for _, b := range r.backs {
		b.Close()
	}
	r.nothingLeft(clients...)
	if flows, used := r.engine.Flows(); flows != 0 || used != 0 {
		r.t.Errorf("the engine holds %d flows and %d bytes", flows, used)
	}
}

const evilURI = `drop http any any -> any any (http.uri; content:"/evil"; sid:1;)` + "\n"

// A request whose header matches is answered 403, and nothing of it reaches a backend; with detect it passes, and alerts.
func TestARequestThatMatchesIsAnswered403(t *testing.T) {
	for _, c := range []struct{ name, rule, request string }{
		{"uri", evilURI, "GET /evil HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"uri, escaped", evilURI, "GET /a/../%65vil HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"method", `reject http any any -> any any (flow:established,to_server; http.method; content:"PURGE"; sid:1;)`, "PURGE / HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"header as it came", `drop http any any -> any any (http.header.raw; content:"X-Probe:  1"; sid:1;)`, "GET / HTTP/1.1\r\nHost: a\r\nX-Probe:  1\r\n\r\n"},
		{"names", `drop http any any -> any any (http.header_names; content:"|0d 0a|Host|0d 0a|X-B|0d 0a 0d 0a|"; bsize:15; sid:1;)`, "GET / HTTP/1.1\r\nHost: a\r\nX-B: 1\r\n\r\n"},
		{"address", `drop http any any -> 192.0.2.1 80 (http.uri; content:"/addressed"; sid:1;)`, "GET /addressed HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"content of a request without any", `drop http any any -> any any (http.uri; content:"/none"; http.request_body; content:!"x"; absent:or_else; sid:1;)`, ""},
	} {
		if c.request == "" {
			continue
		}
		for _, mode := range []inspect.Mode{inspect.Prevent, inspect.PreventOpen, inspect.Detect} {
			r := newInspectRig(t, mode, 1<<16, c.rule)
			want, whole := "HTTP/1.1 403 ", 0
			if mode == inspect.Detect {
				want, whole = "HTTP/1.1 200 ", 1
			}
			if got := r.ask(c.request); !strings.HasPrefix(got, want) {
				t.Errorf("%s: %q, want %q", c.name, got, want)
			}
			if n := r.at.whole(); n != whole || whole == 0 && len(r.backs) > 0 {
				t.Errorf("%s: the backend has %d requests over %d connections, want %d", c.name, n, len(r.backs), whole)
			}
			if got := r.taken(); got != "1" {
				t.Errorf("%s: alerts %q", c.name, got)
			}
			if q := r.records[0]; mode != inspect.Detect && (q.Reason != "inspection 1:1" || q.Error != "http_request_denied") || mode == inspect.Detect && q.Reason != "" {
				t.Errorf("%s: the access log has %+v", c.name, q)
			}
			if s := r.worker.Stats(); s.InspectionEnded != uint64(1-whole) || r.begun != 1 {
				t.Errorf("%s: %d ended, of %d", c.name, s.InspectionEnded, r.begun)
			}
			r.released()
		}
	}
}

// What matches no rule passes as it came, and a connection goes on after a request that was refused.
func TestOtherRequestsPass(t *testing.T) {
	r := newInspectRig(t, inspect.Prevent, 1<<16, evilURI)
	c := r.connect(memHTTP1)
	for i, path := range []string{"/fine", "/evil", "/fine"} {
		c.Write([]byte("GET " + path + " HTTP/1.1\r\nHost: a\r\n\r\n"))
		r.run()
		if got, want := string(c.Take()), []string{"HTTP/1.1 200 ", "HTTP/1.1 403 ", "HTTP/1.1 200 "}[i]; !strings.HasPrefix(got, want) {
			t.Errorf("%d: %q", i, got)
		}
	}
	if strings.Contains(r.received(), "evil") || r.at.whole() != 2 {
		t.Errorf("the backend has %q", r.received())
	}
	r.released(c)
}

const evilBody = `drop http any any -> any any (http.request_body; content:"evilbody"; sid:2;)
drop http any any -> any any (http.uri; content:"/whole"; http.request_body; content:"tail"; endswith; sid:3;)
`

// Content is held until all of it was inspected: the backend has no byte of a request that is refused.
func TestContentIsHeldUntilItWasInspected(t *testing.T) {
	chunked := func(parts ...string) string {
		s := "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
		for _, p := range parts {
			s += fmt.Sprintf("%x\r\n%s\r\n", len(p), p)
		}
		return s + "0\r\n\r\n"
	}
	sized := func(path, body, more string) string {
		return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: a\r\n%sContent-Length: %d\r\n\r\n%s", path, more, len(body), body)
	}
	for _, c := range []struct {
		name, request string
		matches       bool
	}{
		{"in one", sized("/", "an evilbody of text", ""), true},
		{"chunks", chunked("an evi", "lbody"), true},
		{"only the whole", sized("/whole", "a long tail", ""), true},
		{"only the whole, chunks", strings.Replace(chunked("a long ", "tail"), "POST /", "POST /whole", 1), true},
		{"fine", sized("/", "a fine body", ""), false},
		{"fine chunks", chunked("a ", "fine", " body"), false},
		{"waits for 100", sized("/", "a fine body", "Expect: 100-continue\r\n"), false},
		{"waits for 100, and matches", sized("/", "evilbody", "Expect: 100-continue\r\n"), true},
	} {
		for _, size := range []int{1, 5, 1000} {
			r := newInspectRig(t, inspect.Prevent, 1<<16, evilBody)
			p := r.connect(memHTTP1)
			for part := range slices.Chunk([]byte(c.request), size) {
				if r.received() != "" {
					t.Fatalf("%s, in %d bytes: the backend has %q before the end", c.name, size, r.received())
				}
				p.Write(part)
				r.run()
			}
			got, want := strings.TrimPrefix(string(p.Take()), "HTTP/1.1 100 Continue\r\n\r\n"), "HTTP/1.1 200 "
			if c.matches {
				want = "HTTP/1.1 403 "
			}
			if !strings.HasPrefix(got, want) || c.matches != (r.received() == "") || c.matches != (r.taken() != "") {
				t.Errorf("%s, in %d bytes: %q, and the backend has %q", c.name, size, got, r.received())
			}
			r.released(p)
		}
	}
}

// Content beyond the bound passes in pieces, each once it was inspected: the backend never has all of what matches, and no end.
func TestLongContentPassesInPieces(t *testing.T) {
	const before = 3000
	text := strings.Repeat("x", before) + "evil" + "body" + strings.Repeat("y", 500)
	head := fmt.Sprintf("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", len(text))
	r := newInspectRig(t, inspect.Prevent, 1000, evilBody)
	p := r.connect(memHTTP1)
	p.Write([]byte(head))
	for part := range slices.Chunk([]byte(text), 500) {
		p.Write(part)
		r.run()
	}
	got := string(p.Take())
	if !strings.HasPrefix(got, "HTTP/1.1 403 ") {
		t.Errorf("%q", got)
	}
	if all := r.received(); strings.Contains(all, "evilbody") || !strings.Contains(all, strings.Repeat("x", 2500)) || r.at.whole() != 0 {
		t.Errorf("the backend has %d bytes, %d requests", len(all), r.at.whole())
	}
	if len(r.backs) != 1 || !r.backs[0].Ended {
		t.Error("the connection to the backend goes on")
	}
	r.released(p)
}

// A call of gRPC is not held, since its server may answer before its end.
func TestStreamsAreNotHeld(t *testing.T) {
	r := newInspectRig(t, inspect.Prevent, 1<<16, evilBody)
	p := r.connect(memHTTP1)
	p.Write([]byte("POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/grpc\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nfine\r\n"))
	r.run()
	if !strings.Contains(r.received(), "fine") {
		t.Errorf("the backend has %q", r.received())
	}
	p.Write([]byte("8\r\nevilbody\r\n0\r\n\r\n"))
	r.run()
	if got := string(p.Take()); !strings.HasPrefix(got, "HTTP/1.1 403 ") || strings.Contains(r.received(), "evilbody") {
		t.Errorf("%q, and the backend has %q", got, r.received())
	}
	r.released(p)
}

const evilResponses = `drop http any any -> any any (flow:to_client; http.stat_code; content:"418"; sid:4;)
drop http any any -> any any (flow:to_client; http.response_body; content:"secret"; sid:5;)
drop http any any -> any any (flow:to_client; http.response_body; content:!"fine"; http.header; content:"x-only-fine"; nocase; sid:6;)
`

// A response that matches is answered 502 where nothing of it has left, and cut where something has.
func TestResponsesThatMatch(t *testing.T) {
	long := strings.Repeat("z", 60000)
	for _, c := range []struct{ name, response, want string }{
		{"fine", "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nfine!!", "HTTP/1.1 200 "},
		{"status", "HTTP/1.1 418 Teapot\r\nContent-Length: 2\r\n\r\nno", "HTTP/1.1 502 "},
		{"content", "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\na secret", "HTTP/1.1 502 "},
		{"no content that is wanted", "HTTP/1.1 200 OK\r\nX-Only-Fine: 1\r\nContent-Length: 4\r\n\r\nnone", "HTTP/1.1 502 "},
		{"content that is wanted", "HTTP/1.1 200 OK\r\nX-Only-Fine: 1\r\nContent-Length: 4\r\n\r\nfine", "HTTP/1.1 200 "},
		{"long content", fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%ssecret%s", 120006, long, long), "HTTP/1.1 200 "},
		{"chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\na sec\r\n3\r\nret\r\n0\r\n\r\n", "HTTP/1.1 200 "},
		{"until the end", "HTTP/1.1 200 OK\r\n\r\na secret", "HTTP/1.1 200 "},
	} {
		for _, size := range []int{7, 100000} {
			r := newInspectRig(t, inspect.Prevent, 1000, evilResponses)
			r.backend = func(p *memtransport.Peer) {
				sent := false
				p.Handler = func(p *memtransport.Peer) {
					if p.Take(); sent {
						return
					}
					sent = true
					for part := range slices.Chunk([]byte(c.response), size) {
						p.Write(part)
					}
					if c.name == "until the end" {
						p.Close()
					}
				}
			}
			p := r.connect(memHTTP1)
			p.Write([]byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n"))
			r.run()
			got := string(p.Take())
			fine := strings.HasSuffix(c.name, "wanted") && c.want == "HTTP/1.1 200 " || c.name == "fine"
			if !strings.HasPrefix(got, c.want) && !(got == "" && c.want == "HTTP/1.1 200 " && !fine && p.Reset) {
				t.Errorf("%s, in %d bytes: %q", c.name, size, got)
			}
			if strings.Contains(got, "secret") || fine != (r.taken() == "") || fine == (p.Reset || strings.HasPrefix(got, "HTTP/1.1 502 ")) {
				t.Errorf("%s, in %d bytes: the client has %q, reset %v", c.name, size, got, p.Reset)
			}
			r.released(p)
		}
	}
}

// Another attempt follows a backend that fails within a response that is held, and the client gets that of the second alone.
func TestAnotherAttemptWhileAResponseIsHeld(t *testing.T) {
	r := newInspectRig(t, inspect.Prevent, 1000, evilResponses)
	r.rule.Attempts = 2
	n := 0
	r.backend = func(p *memtransport.Peer) {
		n++
		first := n == 1
		p.Handler = func(p *memtransport.Peer) {
			if len(p.Take()) == 0 {
				return
			}
			if first {
				p.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"))
				p.Abort()
				return
			}
			p.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwhole"))
		}
	}
	c := r.connect(memHTTP1)
	c.Write([]byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n"))
	r.run()
	if got := string(c.Take()); !strings.HasSuffix(got, "\r\n\r\nwhole") || strings.Contains(got, "half") || n != 2 {
		t.Errorf("after %d attempts: %q", n, got)
	}
	r.released(c)
}

// Content of a slow client is held for the time-out of content, on connections that requests share too.
func TestHeldContentHasATime(t *testing.T) {
	r := newInspectRig(t, inspect.Prevent, 1<<16, evilBody)
	c, m := r.connect(memHTTP2), http2.NewMachine(http2.RoleClient, http2.Options{})
	s, err := m.Open()
	must(t, err)
	q := semantics.Message{Method: "POST", Scheme: "http", Authority: "a", Path: "/", ContentLength: 9}
	out, err := m.AppendRequest(m.AppendControl(nil), s, &q, false)
	must(t, err)
	c.Write(out)
	r.run()
	r.pass(memTimes.Body + time.Second)
	if r.records == nil || r.records[0].Status != 408 {
		t.Errorf("%+v", r.records)
	}
	r.released(c)
}

// With HTTP/2 a match ends one stream, and the others of its connection go on.
func TestAMatchEndsOneStream(t *testing.T) {
	r := newInspectRig(t, inspect.Prevent, 1<<16, evilURI+evilBody)
	c, m := r.connect(memHTTP2), http2.NewMachine(http2.RoleClient, http2.Options{})
	var out []byte
	for _, path := range []string{"/fine/1", "/evil", "/fine/2"} {
		s, err := m.Open()
		must(t, err)
		q := semantics.Message{Method: "GET", Scheme: "http", Authority: "a", Path: path, ContentLength: -1}
		out, err = m.AppendRequest(m.AppendControl(out), s, &q, true)
		must(t, err)
	}
	c.Write(out)
	r.run()
	status := map[int]int{}
	for p := c.Take(); ; {
		ev, used, err := m.Input(p)
		must(t, err)
		if p = p[used:]; ev.Kind == http2.NeedInput {
			break
		}
		if ev.Kind == http2.Headers {
			status[ev.Stream.Message.Status]++
		}
	}
	if status[200] != 2 || status[403] != 1 || strings.Contains(r.received(), "evil") {
		t.Errorf("%v, and the backend has %q", status, r.received())
	}
	r.released(c)
}

// Bits hold for a connection, and end with it.
func TestBitsAreThoseOfAConnection(t *testing.T) {
	r := newInspectRig(t, inspect.Prevent, 1<<16, `alert http any any -> any any (http.uri; content:"/login"; flowbits:set,in; flowbits:noalert; sid:1;)
drop http any any -> any any (http.uri; content:"/admin"; flowbits:isnotset,in; sid:2;)
`)
	c := r.connect(memHTTP1)
	for _, s := range []struct{ path, want string }{{"/admin", "403"}, {"/login", "200"}, {"/admin", "200"}} {
		c.Write([]byte("GET " + s.path + " HTTP/1.1\r\nHost: a\r\n\r\n"))
		r.run()
		if got := string(c.Take()); !strings.HasPrefix(got, "HTTP/1.1 "+s.want) {
			t.Errorf("%s: %q", s.path, got)
		}
	}
	if got := r.ask("GET /admin HTTP/1.1\r\nHost: a\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 403") {
		t.Errorf("on another connection: %q", got)
	}
	r.released(c)
}

// Other rules are in force with the next request, also for what was begun, and an engine that is replaced keeps nothing.
func TestOtherRulesWhileARequestIsHeld(t *testing.T) {
	r := newInspectRig(t, inspect.Prevent, 1<<16, evilBody)
	c := r.connect(memHTTP1)
	c.Write([]byte("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nevil"))
	r.run()
	before := r.engine
	next := compiledRules(t, `drop http any any -> any any (http.request_body; content:"other"; sid:9;)`, nil)
	other := inspect.New(next, inspect.Config{Inline: true}, r.alert)
	r.use(other)
	c.Write([]byte("body!GET /x HTTP/1.1\r\nHost: a\r\n\r\n"))
	r.run()
	if got := string(c.Take()); !strings.HasPrefix(got, "HTTP/1.1 403") { // of the rules that it began with
		t.Errorf("%q", got)
	}
	if got := r.ask("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nother"); !strings.HasPrefix(got, "HTTP/1.1 403") {
		t.Errorf("%q", got)
	}
	if got := r.taken(); got != "2 9" {
		t.Errorf("alerts %q", got)
	}
	r.released(c)
	if _, used := before.Flows(); used != 0 {
		t.Errorf("the engine of before holds %d bytes", used)
	}
}

// Where there is no memory for a request, prevent ends it and prevent that fails open does not.
func TestOverload(t *testing.T) {
	for mode, want := range map[inspect.Mode]string{inspect.Prevent: "HTTP/1.1 503 ", inspect.PreventOpen: "HTTP/1.1 200 ", inspect.Detect: "HTTP/1.1 200 "} {
		r := newInspectRig(t, mode, 1<<16, evilBody)
		r.use(inspect.New(compiledRules(t, evilBody, nil), inspect.Config{Inline: true, Refuse: mode == inspect.Prevent, MemoryBytes: 6000}, r.alert))
		body := strings.Repeat("x", 8000)
		if got := r.ask(fmt.Sprintf("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s", len(body), body)); !strings.HasPrefix(got, want) {
			t.Errorf("mode %d: %q", mode, got)
		}
		if n := r.worker.Stats().InspectionFull; (n == 1) != (mode == inspect.Prevent) {
			t.Errorf("mode %d: %d were ended", mode, n)
		}
		r.use(inspect.New(compiledRules(t, evilURI, nil), inspect.Config{Inline: true, MaxFlows: 1}, r.alert))
		c := r.connect(memHTTP1)
		c.Write([]byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n"))
		r.run()
		if got := r.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n"); !strings.HasPrefix(got, want) {
			t.Errorf("mode %d, a second connection: %q", mode, got)
		}
		r.released(c)
	}
}

// A client that leaves has its request inspected as far as it came.
func TestARequestThatIsCut(t *testing.T) {
	r := newInspectRig(t, inspect.Detect, 1<<16, `alert http any any -> any any (http.request_body; content:"x"; startswith; bsize:4; sid:7;)`)
	c := r.connect(memHTTP1)
	c.Write([]byte("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nxabc"))
	r.run()
	c.Abort()
	r.run()
	if got := r.taken(); got != "7 late" {
		t.Errorf("alerts %q", got)
	}
	r.released(c)
}
