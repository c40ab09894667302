package proxy

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit/memtransport"
	"github.com/millrace/millrace/l7/waf"
)

// wordRules is an engine that denies what has the word "evil" and panics at "panic". It notes what it was given.
type wordRules struct {
	seen   []string
	closed int
}

func (r *wordRules) Begin() waf.Transaction { return &wordTransaction{r: r} }
func (r *wordRules) Close() error           { return nil }

type wordTransaction struct {
	r       *wordRules
	matched []int
}

func (t *wordTransaction) see(kind, text string, rule int) (v waf.Verdict) {
	t.r.seen = append(t.r.seen, kind)
	if strings.Contains(text, "panic") {
		panic("the engine has failed")
	}
	if strings.Contains(text, "odd") {
		t.matched = append(t.matched, rule)
	}
	if v.Matched = t.matched; strings.Contains(text, "evil") {
		v.Status, v.Rule = 403, rule+1
	}
	return v
}

func (t *wordTransaction) Request(r *waf.Request, ends bool) waf.Verdict {
	v := t.see(fmt.Sprintf("%s %s %s %s %d", r.Protocol, r.Method, r.Target, r.Host, len(r.Fields)), r.Target, 100)
	v.Content = !ends && !strings.Contains(r.Target, "unread")
	return v
}

func (t *wordTransaction) Content(p []byte) waf.Verdict {
	return t.see(fmt.Sprintf("content %d", len(p)), string(p), 200)
}

func (t *wordTransaction) Response(r *waf.Response, ends bool) waf.Verdict {
	text := ""
	for _, f := range r.Fields {
		text += f.Name + ": " + f.Value + "\n"
	}
	v := t.see(fmt.Sprintf("response %d", r.Status), text, 300)
	v.Content = !ends
	return v
}

func (t *wordTransaction) ResponseContent(p []byte) waf.Verdict {
	return t.see(fmt.Sprintf("response content %d", len(p)), string(p), 400)
}

func (t *wordTransaction) Close() []int { t.r.closed++; return t.matched }

// shieldRig is a rig whose rule has a firewall. Evaluations run at once, or wait for finish.
type shieldRig struct {
	*memRig
	rules   *wordRules
	counts  waf.Counts
	wall    *waf.Firewall
	at      *recorder
	records []Record
	slow    bool
	waiting []func()
	panics  int
}

func newShieldRig(t testing.TB, s waf.Settings) *shieldRig {
	t.Helper()
	r := &shieldRig{rules: &wordRules{}, at: &recorder{}}
	if s.Timeout == 0 {
		s.Timeout = time.Second
	}
	r.wall = waf.New(s, r.rules, &r.counts, func(any, []byte) { r.panics++ })
	r.wall.Start = func(f func()) {
		if r.slow {
			r.waiting = append(r.waiting, f)
			return
		}
		f()
	}
	r.memRig = newMemRig(t, func(m *memRig, _ *Tree) { m.rule.Firewall = r.wall })
	r.worker.OnRecord(func(q *Record) { r.records = append(r.records, *q) })
	r.backend = r.at.serve
	return r
}

// finish lets evaluations go on that wait.
func (r *shieldRig) finish() {
	r.t.Helper()
	list := r.waiting
	r.waiting = nil
	for _, f := range list {
		f()
	}
	r.run()
}

func (r *shieldRig) received() string {
	var b strings.Builder
	for _, c := range r.at.connections {
		b.Write(c)
	}
	return b.String()
}

func (r *shieldRig) released(clients ...*memtransport.Peer) {
	r.t.Helper()
	r.slow = false
	r.finish()
	for _, b := range r.backs {
		b.Close()
	}
	r.nothingLeft(clients...)
	begun := 0
	for _, s := range r.rules.seen {
		if strings.HasPrefix(s, "HTTP/") && !strings.Contains(s, "panic") {
			begun++
		}
	}
	if r.rules.closed != begun-r.panics+strings.Count(strings.Join(r.rules.seen, " "), "/panic") {
		r.t.Errorf("%d transactions were closed, of %v", r.rules.closed, r.rules.seen)
	}
}

const formOf = "POST /f HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s"

func form(content string) string { return fmt.Sprintf(formOf, len(content), content) }

// What a rule denies is answered with its status, and nothing of it reaches a backend. The access log names the rules.
func TestAFirewallDenies(t *testing.T) {
	for _, c := range []struct{ request, status, reason, passed string }{
		{"GET /evil HTTP/1.1\r\nHost: a\r\n\r\n", "403", "waf 101", ""},
		{"GET /odd HTTP/1.1\r\nHost: a\r\n\r\n", "200", "waf (100)", "GET /odd"},
		{"GET /oddevil HTTP/1.1\r\nHost: a\r\n\r\n", "403", "waf 101 (100)", ""},
		{"GET http://a/evil HTTP/1.1\r\nHost: a\r\n\r\n", "403", "waf 101", ""},
		{form("so evil"), "403", "waf 201", ""},
		{form("odd evil"), "403", "waf 201 (200)", ""},
		{form("good"), "200", "", "good"},
		{"POST /f HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nev\r\n2\r\nil\r\n0\r\n\r\n", "403", "waf 201", ""},
		{"POST /f HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\ngo\r\n2\r\nod\r\n0\r\n\r\n", "200", "", "od\r\n"},
		{strings.Replace(form("evil"), "/f", "/unread", 1), "200", "", "evil"},
		{"POST /f HTTP/1.1\r\nHost: a\r\nContent-Type: application/grpc\r\nContent-Length: 4\r\n\r\nevil", "200", "", "evil"}, // messages come one by one
		{form("panic"), "503", "waf failure", ""},
		{"GET /panic HTTP/1.1\r\nHost: a\r\n\r\n", "503", "waf failure", ""},
		{form(strings.Repeat("x", 65)), "413", "waf content", ""},
		{"POST /f HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n41\r\n" + strings.Repeat("x", 65) + "\r\n0\r\n\r\n", "413", "waf content", ""},
		{form(strings.Repeat("x", 64)), "200", "", "xx"},
	} {
		r := newShieldRig(t, waf.Settings{Mode: waf.Prevent, Content: 64, Reject: true})
		got := r.ask(c.request)
		if !strings.HasPrefix(got, "HTTP/1.1 "+c.status+" ") {
			t.Errorf("%q: %q, want %s", c.request, got, c.status)
		}
		if sent := r.received(); c.passed == "" && len(sent) > 0 || !strings.Contains(sent, c.passed) {
			t.Errorf("%q: the backend has %q, want %q", c.request, sent, c.passed)
		}
		if r.records[0].Reason != c.reason {
			t.Errorf("%q: reason %q, want %q", c.request, r.records[0].Reason, c.reason)
		}
		r.released()
	}
}

// A firewall that detects lets everything pass, and the access log has the same matches.
func TestAFirewallDetects(t *testing.T) {
	for _, c := range []struct{ request, reason string }{
		{"GET /odd HTTP/1.1\r\nHost: a\r\n\r\n", "waf (100)"},
		{form("panic"), "waf failure"},
		{form("odd" + strings.Repeat("x", 200)), "waf (200)"},
	} {
		r := newShieldRig(t, waf.Settings{Mode: waf.Detect, Content: 64})
		if got := r.ask(c.request); !strings.HasPrefix(got, "HTTP/1.1 200 ") {
			t.Errorf("%q: %q", c.request, got)
		}
		if r.at.whole() != 1 || r.records[0].Reason != c.reason {
			t.Errorf("%q: the backend has %d requests, reason %q, want %q", c.request, r.at.whole(), r.records[0].Reason, c.reason)
		}
		r.released()
	}
}

// Rules see the beginning of content that passes, and the backend gets all of it.
func TestAFirewallSeesTheBeginning(t *testing.T) {
	r := newShieldRig(t, waf.Settings{Mode: waf.Prevent, Content: 64})
	content := strings.Repeat("x", 100_000) + "evil"
	if got := r.ask(form(content)); !strings.HasPrefix(got, "HTTP/1.1 200 ") {
		t.Errorf("%q", got)
	}
	if !strings.HasSuffix(r.received(), content) || !slices.Contains(r.rules.seen, "content 64") {
		t.Errorf("the backend has %d bytes, the rules %v", len(r.received()), r.rules.seen)
	}
	r.released()
}

// What rules see of HTTP/2 is the same, with a Host.
func TestAFirewallSeesHTTP2(t *testing.T) {
	r := newShieldRig(t, waf.Settings{Mode: waf.Prevent, Content: 64})
	c := newMemClient2(r.memRig)
	if a := c.ask("GET", "/evil"); a.status != 403 {
		t.Errorf("%+v", a)
	}
	if a := c.ask("GET", "/good"); a.status != 200 {
		t.Errorf("%+v", a)
	}
	if want := []string{"HTTP/2 GET /evil a 1", "HTTP/2 GET /good a 1"}; !slices.Equal(r.rules.seen, want) {
		t.Errorf("the rules have seen %q, want %q", r.rules.seen, want)
	}
	r.released(c.p)
}

// A message waits for its verdict, and what comes meanwhile is not lost. Other requests are served.
func TestTheLoopDoesNotWaitForAFirewall(t *testing.T) {
	r := newShieldRig(t, waf.Settings{Mode: waf.Prevent, Content: 1 << 16})
	r.slow = true
	c, other := r.connect(memHTTP1), r.connect(memHTTP1)
	c.Write([]byte("POST /f HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\nab"))
	r.run()
	c.Write([]byte("cd"))
	r.run()
	if len(r.waiting) != 1 || len(r.backs) != 0 {
		t.Fatalf("%d evaluations, %d connections", len(r.waiting), len(r.backs))
	}
	r.finish() // of the header
	c.Write([]byte("efgh"))
	r.run()
	if len(r.waiting) != 1 || len(r.backs) != 0 {
		t.Fatalf("%d evaluations of content, %d connections", len(r.waiting), len(r.backs))
	}
	r.slow = false
	other.Write([]byte("GET /o HTTP/1.1\r\nHost: a\r\n\r\n"))
	r.run()
	if got := string(other.Take()); !strings.HasPrefix(got, "HTTP/1.1 200 ") {
		t.Errorf("%q", got)
	}
	r.finish()
	if got := string(c.Take()); !strings.HasPrefix(got, "HTTP/1.1 200 ") || !strings.HasSuffix(r.received(), "abcdefgh") {
		t.Errorf("%q, the backend has %q", got, r.received())
	}
	r.released(c, other)
}

// A verdict that does not come in time is none: with prevent the request gets 503. Its late result changes nothing.
func TestAFirewallThatTakesTooLong(t *testing.T) {
	for mode, want := range map[waf.Mode]string{waf.Prevent: "HTTP/1.1 503 ", waf.Detect: "HTTP/1.1 200 "} {
		r := newShieldRig(t, waf.Settings{Mode: mode, Content: 64, Timeout: time.Second, Responses: true})
		r.slow = true
		c := r.connect(memHTTP1)
		c.Write([]byte("GET /evil HTTP/1.1\r\nHost: a\r\n\r\n"))
		r.run()
		r.pass(999 * time.Millisecond)
		if got := c.Take(); len(got) > 0 {
			t.Errorf("%q before the time", got)
		}
		r.pass(2 * time.Millisecond)
		if got := string(c.Take()); !strings.HasPrefix(got, want) || r.records[0].Reason != "waf timeout" {
			t.Errorf("%q, want %q, reason %q", got, want, r.records[0].Reason)
		}
		if s := r.counts.Sums(); s.Timeouts != 1 || s.Requests != 1 {
			t.Errorf("%+v", s)
		}
		for len(r.waiting) > 0 {
			r.finish()
		}
		if len(r.rules.seen) > 0 {
			t.Errorf("what was answered before it was begun is evaluated: %q", r.rules.seen)
		}
		r.released(c)
	}
}

// A client may leave at any time.
func TestClientsThatLeaveAFirewall(t *testing.T) {
	for steps := range 3 {
		r := newShieldRig(t, waf.Settings{Mode: waf.Prevent, Content: 64, Responses: true})
		r.slow = true
		c := r.connect(memHTTP1)
		c.Write([]byte(form("good")))
		r.run()
		for range steps {
			r.finish()
		}
		c.Abort()
		r.run()
		r.released(c)
	}
}

// A client that stops within content that is gathered gets 408.
func TestContentForAFirewallHasATime(t *testing.T) {
	r := newShieldRig(t, waf.Settings{Mode: waf.Prevent, Content: 64})
	c := r.connect(memHTTP1)
	c.Write([]byte("POST /f HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\nab"))
	r.run()
	r.pass(memTimes.Body + time.Second)
	if got := string(c.Take()); !strings.HasPrefix(got, "HTTP/1.1 408 ") || len(r.backs) > 0 {
		t.Errorf("%q, %d connections to backends", got, len(r.backs))
	}
	r.released(c)
}

// A client that asks before it sends content gets 100 once rules want it.
func TestAFirewallAsksForContent(t *testing.T) {
	r := newShieldRig(t, waf.Settings{Mode: waf.Prevent, Content: 64})
	c := r.connect(memHTTP1)
	c.Write([]byte("POST /f HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n"))
	r.run()
	if got := string(c.Take()); got != "HTTP/1.1 100 Continue\r\n\r\n" {
		t.Errorf("%q", got)
	}
	c.Write([]byte("good"))
	r.run()
	if got := string(c.Take()); !strings.HasPrefix(got, "HTTP/1.1 200 ") {
		t.Errorf("%q", got)
	}
	r.released(c)
}

// More evaluations than may wait are refused, and later ones are served.
func TestAFirewallHasABound(t *testing.T) {
	r := newShieldRig(t, waf.Settings{Mode: waf.Prevent, Content: 64, Timeout: time.Minute})
	r.slow = true
	var clients []*memtransport.Peer
	for range 520 {
		c := r.connect(memHTTP1)
		c.Write([]byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n"))
		clients = append(clients, c)
	}
	r.run()
	if s := r.counts.Sums(); s.Overload != 520-512 || len(r.records) != 8 || r.records[0].Reason != "waf overload" || r.records[0].Status != 503 {
		t.Errorf("%+v, %d lines", s, len(r.records))
	}
	r.slow = false
	r.finish()
	if n := r.at.whole(); n != 512 {
		t.Errorf("%d requests were served", n)
	}
	r.released(clients...)
}

// Responses are evaluated where the firewall does that: what a rule denies, the client does not get.
func TestAFirewallDeniesResponses(t *testing.T) {
	for _, c := range []struct{ response, want, reason string }{
		{"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood", "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ngood", ""},
		{"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", ""},
		{"HTTP/1.1 204 No Content\r\n\r\n", "HTTP/1.1 204 No Content\r\n\r\n", ""},
		{"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil", "HTTP/1.1 403 ", "waf 401"},
		{"HTTP/1.1 200 OK\r\nX-A: evil\r\nContent-Length: 4\r\n\r\ngood", "HTTP/1.1 403 ", "waf 301"},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nev\r\n2\r\nil\r\n0\r\n\r\n", "HTTP/1.1 403 ", "waf 401"},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\ngo\r\n2\r\nod\r\n0\r\nX-T: 1\r\n\r\n", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\ngood\r\n0\r\nx-t: 1\r\n\r\n", ""},
		{"HTTP/1.1 200 OK\r\nContent-Length: 104\r\n\r\n" + strings.Repeat("x", 100) + "evil", "HTTP/1.1 200 OK\r\ncontent-length: 104\r\n\r\n" + strings.Repeat("x", 100) + "evil", ""},
		{"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\npanic", "HTTP/1.1 502 ", "waf failure"},
	} {
		for _, slow := range []bool{false, true} {
			r := newShieldRig(t, waf.Settings{Mode: waf.Prevent, Content: 64, Responses: true})
			asked := ""
			r.backend = func(p *memtransport.Peer) {
				p.Handler = func(p *memtransport.Peer) {
					if got := p.Take(); len(got) > 0 {
						asked = string(got)
						p.Write([]byte(c.response))
					}
				}
			}
			r.slow = slow
			client := r.connect(memHTTP1)
			client.Write([]byte("GET / HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n"))
			for range 4 {
				r.run()
				r.finish()
			}
			if got := string(client.Take()); !strings.HasPrefix(got, c.want) {
				t.Errorf("%q, slow %v: %q, want %q", c.response, slow, got, c.want)
			}
			if len(r.records) != 1 || r.records[0].Reason != c.reason || !strings.Contains(asked, "accept-encoding: identity\r\n") {
				t.Errorf("%q, slow %v: %+v, asked %q", c.response, slow, r.records, asked)
			}
			r.released(client)
		}
	}
}

// A backend that fails while its response is evaluated: the next attempt's response could not be evaluated, and is not passed on.
func TestABackendThatFailsUnderAFirewall(t *testing.T) {
	for steps := range 2 {
		r := newShieldRig(t, waf.Settings{Mode: waf.Prevent, Content: 64, Responses: true})
		r.rule.Attempts = 2
		r.backend = func(p *memtransport.Peer) {
			p.Handler = func(p *memtransport.Peer) {
				if len(p.Take()) > 0 {
					p.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"))
				}
			}
		}
		c := r.connect(memHTTP1)
		c.Write([]byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n"))
		r.slow = true
		r.run()
		r.finish()
		for range steps {
			r.finish()
		}
		r.backs[0].Abort()
		r.run()
		r.finish()
		if got := string(c.Take()); !strings.HasPrefix(got, "HTTP/1.1 502 ") {
			t.Errorf("%d steps: %q", steps, got)
		}
		r.released(c)
	}
}
