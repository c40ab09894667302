package inspect

import (
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/filter/signature"
	"github.com/millrace/millrace/wire"
)

// handed is an engine that gets messages of a gateway, with the alerts.
type handed struct {
	*Engine
	t    *testing.T
	sids []string
	last Alert
}

func newHanded(t *testing.T, cfg Config, rules string) *handed {
	t.Helper()
	h := &handed{t: t}
	cfg.Inline = true
	h.Engine = New(rulesOf(t, rules, nil), cfg, func(a *Alert) {
		h.last = *a
		h.sids = append(h.sids, fmt.Sprint(a.Rule.SID))
	})
	return h
}

// take returns the alerts so far and forgets them.
func (h *handed) take() string {
	slices.Sort(h.sids)
	s := strings.Join(h.sids, " ")
	h.sids = nil
	return s
}

func (h *handed) connect() *Conn {
	h.t.Helper()
	c := h.Connect(1, Client{
		From: netip.MustParseAddrPort("192.0.2.1:40000"), To: netip.MustParseAddrPort("198.18.0.1:443"), Proto: wire.ProtoTCP, Listener: "web",
	})
	if c == nil {
		h.t.Fatal("no connection")
	}
	return c
}

// empty checks that nothing is held.
func (h *handed) empty() {
	h.t.Helper()
	if _, used := h.Flows(); used != 0 {
		h.t.Errorf("%d bytes are held", used)
	}
	if h.conns != 0 {
		h.t.Errorf("%d connections are counted", h.conns)
	}
}

// raw is a head of HTTP/1.
func raw(text string, ends bool) *Head {
	return &Head{Raw: []byte(strings.ReplaceAll(text, "\n", "\r\n")), Ends: ends}
}

// pairs is a head of a later version.
func pairs(version string, ends bool, list ...string) *Head {
	return &Head{Version: version, Ends: ends, Fields: iter.Seq2[string, string](func(yield func(string, string) bool) {
		for i := 0; i < len(list); i += 2 {
			if !yield(list[i], list[i+1]) {
				return
			}
		}
	})}
}

// Each buffer of a request has the same text, whatever its version.
func TestBuffersOfMessages(t *testing.T) {
	const rules = `alert http any any -> any 443 (http.method; content:"POST"; bsize:4; sid:1;)
alert http any any -> any any (http.uri; content:"/a/b?c=d e"; bsize:10; sid:2;)
alert http any any -> any any (http.uri.raw; content:"/a/./b?c=d%20e"; bsize:14; sid:3;)
alert http any any -> any any (http.host; content:"site.test"; bsize:9; sid:4;)
alert http any any -> any any (http.host.raw; content:"Site.test:8443"; bsize:14; sid:5;)
alert http any any -> any any (http.user_agent; content:"probe"; bsize:5; sid:6;)
alert http any any -> any any (http.header; content:"ser-agent: probe|0d 0a|"; nocase; sid:7;)
alert http any any -> any any (http.header_names; content:"Agent|0d 0a|"; nocase; sid:8;)
alert http any any -> any any (http.cookie; content:"a=1"; sid:9;)
alert http any any -> any any (http.request_line; content:"POST /a/./b?c=d%20e HTTP/"; startswith; sid:10;)
alert http any any -> any any (http.protocol; content:"HTTP/"; sid:11;)
alert http any any -> any any (http.content_type; content:"text/plain"; sid:12;)
alert http any any -> any any (http.content_len; content:"11"; bsize:2; sid:13;)
alert http any any -> any any (http.referer; content:"there"; sid:14;)
alert http any any -> any any (http.accept; content:"*/*"; http.accept_enc; content:"br"; http.accept_lang; content:"de"; sid:15;)
alert http any any -> any any (flow:established,to_server; http.request_body; content:"the content"; bsize:11; sid:16;)
alert http any any -> any any (file.data; content:"content"; file.name; content:"b"; sid:17;)
alert http any any -> any any (flow:to_client; http.stat_code; content:"404"; sid:18;)
alert http any any -> any any (http.response_body; content:"not here"; bsize:8; sid:19;)
alert http any any -> any any (http.server; content:"ours"; http.location; content:"/else"; sid:20;)
alert http any any -> any any (http.header; content:"Host:"; http.header.raw; content:"Host:  Site"; sid:21;)
alert http any any -> any any (http.stat_msg; content:"Not Found"; sid:22;)
alert http any any -> 198.18.0.0/15 443 (ip.src; content:"|c0 00 02 01|"; http.method; content:"POST"; sid:23;)
alert http1 any any -> any any (http.method; content:"POST"; sid:24;)
alert http2 any any -> any any (http.method; content:"POST"; sid:25;)
alert http any any -> any 80 (http.method; content:"POST"; sid:99;)
`
	one := "POST /a/./b?c=d%20e HTTP/1.1\nHost:  Site.test:8443\nUser-Agent: probe\nCookie: a=1\nContent-Type: text/plain\nContent-Length: 11\n" +
		"Referer: there\nAccept: */*\nAccept-Encoding: br\nAccept-Language: de\n\n"
	later := []string{
		":method", "POST", ":scheme", "https", ":path", "/a/./b?c=d%20e", ":authority", "Site.test:8443", "user-agent", "probe", "cookie", "a=1",
		"content-type", "text/plain", "content-length", "11", "referer", "there", "accept", "*/*", "accept-encoding", "br", "accept-language", "de",
	}
	for _, c := range []struct {
		name     string
		ask, say *Head
		want     string
	}{
		{
			"HTTP/1.1", raw(one, false), raw("HTTP/1.1 404 Not Found\nServer: ours\nLocation: /else\nContent-Length: 8\n\n", false),
			"1 10 11 11 12 13 14 15 16 17 18 19 2 20 21 22 23 24 3 4 5 6 7 8 9",
		},
		{
			"HTTP/2", pairs("HTTP/2", false, later...), pairs("HTTP/2", false, ":status", "404", "server", "ours", "location", "/else"),
			"1 10 11 11 12 13 14 15 16 17 18 19 2 20 23 25 3 4 5 6 7 8 9",
		},
	} {
		h := newHanded(t, Config{}, rules)
		conn := h.connect()
		x := begun(conn)
		x.Head(1, signature.ToServer, c.ask)
		x.Body(2, signature.ToServer, []byte("the con"))
		x.Body(3, signature.ToServer, []byte("tent"))
		x.End(4, signature.ToServer)
		x.Head(5, signature.ToClient, c.say)
		x.Body(6, signature.ToClient, []byte("not here"))
		x.End(7, signature.ToClient)
		if got := h.take(); got != c.want {
			t.Errorf("%s: alerts %q, want %q", c.name, got, c.want)
		}
		if h.last.Exchange != x || string(x.URI()) != "/a/./b?c=d%20e" || !strings.Contains(string(x.Host()), "Site.test") || string(x.Method()) != "POST" {
			t.Errorf("%s: the alert is about %q %q %q", c.name, x.Method(), x.Host(), x.URI())
		}
		if a := h.last; a.Src != netip.MustParseAddr("198.18.0.1") || a.DstPort != 40000 || a.Packet == 0 || a.Conn != conn {
			t.Errorf("%s: %+v", c.name, a)
		}
		x.Close(8)
		conn.Close()
		h.empty()
	}
}

// A rule is evaluated as soon as what it asks for is there: on the head, on the piece that completes a content, at the end.
func TestMessagesAreEvaluatedEarly(t *testing.T) {
	h := newHanded(t, Config{}, `drop http any any -> any any (http.uri; content:"/evil"; sid:1;)
reject http any any -> any any (http.request_body; content:"evil"; sid:2;)
drop http any any -> any any (http.request_body; content:"x"; endswith; sid:3;)
`)
	c := h.connect()
	for _, s := range []struct {
		head   string
		pieces []string
		want   []string // the rule that decides, after the head, each piece and the end
	}{
		{"POST /evil HTTP/1.1\nHost: a\n\n", []string{"fine"}, []string{"1", "", ""}},
		{"POST / HTTP/1.1\nHost: a\n\n", []string{"e", "vi", "l", "more"}, []string{"", "", "", "2", "", ""}},
		{"POST / HTTP/1.1\nHost: a\n\n", []string{"y", "x"}, []string{"", "", "", "3"}},
		{"POST / HTTP/1.1\nHost: a\n\n", []string{"x", "y"}, []string{"", "", "", ""}},
	} {
		x := begun(c)
		results := []Result{x.Head(1, signature.ToServer, raw(s.head, false))}
		for _, p := range s.pieces {
			results = append(results, x.Body(1, signature.ToServer, []byte(p)))
		}
		results = append(results, x.End(1, signature.ToServer))
		for i, r := range results {
			got := ""
			if r.Outcome != Pass {
				got = fmt.Sprint(r.Rule.SID)
			}
			if got != s.want[i] || (r.Outcome == Reject) != (got == "2") {
				t.Errorf("%q %q: result %d is %v by %q, want %q", s.head, s.pieces, i, r.Outcome, got, s.want[i])
			}
		}
		if x.Wants(signature.ToServer) || x.End(1, signature.ToServer) != (Result{}) {
			t.Error("a message that has ended wants more")
		}
		x.Close(1)
	}
	if x := begun(c); x.Head(1, signature.ToServer, raw("GET / HTTP/1.1\nHost: a\n\n", true)).Outcome != Pass || x.Wants(signature.ToServer) {
		t.Error("a request without content wants some")
	} else if x.Head(1, signature.ToClient, raw("HTTP/1.1 200 OK\n\n", false)); x.Wants(signature.ToClient) {
		t.Error("content of a response is wanted, and no rule is about it")
	} else {
		x.Close(1)
	}
	c.Close()
	h.empty()
}

// A ClientHello has the buffers of TLS, and only rules about it make engines want one.
func TestHelloOfAGateway(t *testing.T) {
	h := newHanded(t, Config{}, `drop tls any any -> any any (tls.sni; content:"evil.test"; sid:1;)
alert tls any any -> any any (ja3.hash; content:"900150983cd24fb0d6963f7d28e17f72"; sid:2;)
alert tls any any -> any any (ja3.string; content:"abc"; bsize:3; sid:3;)
alert ip any any -> any any (ja4.hash; content:"t13d"; startswith; sid:4;)
`)
	c := h.connect()
	if r := c.Hello(1, &Hello{ServerName: "fine.test"}); r.Outcome != Pass || h.take() != "" {
		t.Errorf("%+v", r)
	}
	if r := c.Hello(1, &Hello{ServerName: "evil.test", JA3: "abc", JA4: "t13d1516h2"}); r.Outcome != Drop || h.take() != "1 2 3 4" || h.last.Exchange != nil {
		t.Errorf("%+v", r)
	}
	c.Close()
	h.empty()
	if !h.WantsHello() || newHanded(t, Config{}, `alert http any any -> any any (http.uri; content:"abc"; sid:1;)`).WantsHello() {
		t.Error("WantsHello")
	}
}

// Rules that need packets are told apart, with the reason.
func TestRulesThatAreNotOfMessages(t *testing.T) {
	for rule, want := range map[string]string{
		`alert http any any -> any any (http.uri; content:"a"; sid:1;)`:                                           "",
		`alert tcp any any -> any any (http.uri; content:"a"; ip_proto:6; sid:1;)`:                                "",
		`alert http any any -> any any (file.data; content:"a"; base64_decode; base64_data; content:"b"; sid:1;)`: "",
		`alert tls any any -> any any (tls.sni; content:"a"; sid:1;)`:                                             "",
		`alert tcp any any -> any any (content:"a"; sid:1;)`:                                                      "content of packets",
		`alert http any any -> any any (http.uri; content:"a"; pkt_data; content:"b"; sid:1;)`:                    "content of packets",
		`alert http any any -> any any (msg:"any"; sid:1;)`:                                                       "no buffer of a message",
		`alert tcp any any -> any any (ip.src; content:"a"; sid:1;)`:                                              "no buffer of a message",
		`alert dns any any -> any any (dns.query; content:"a"; sid:1;)`:                                           "dns.query",
		`alert tls any any -> any any (tls.cert_subject; content:"a"; sid:1;)`:                                    "tls.cert_subject",
		`alert smtp any any -> any any (file.data; content:"a"; sid:1;)`:                                          "protocol smtp",
		`alert http any any -> any any (http.uri; content:"a"; ttl:5; sid:1;)`:                                    "fields of packets",
		`alert http any any -> any any (http.uri; content:"a"; flow:not_established; sid:1;)`:                     "flow:not_established",
	} {
		f := signature.Parse("test", rule, nil)
		if len(f.Rules) != 1 {
			t.Errorf("%s: %v %v", rule, f.Errors, f.Skipped)
			continue
		}
		if got := NotOfMessages(f.Rules[0]); got != want {
			t.Errorf("%s: %q, want %q", rule, got, want)
		}
	}
}

// At the bounds of memory and of connections a result says so, and what was held is given back.
func TestBoundsOfMessages(t *testing.T) {
	const rules = `alert http any any -> any any (http.request_body; content:"abc"; sid:1;)`
	h := newHanded(t, Config{MaxFlows: 1, MemoryBytes: 8000}, rules)
	c := h.connect()
	if h.Connect(1, Client{From: c.From, To: c.To, Proto: wire.ProtoTCP}) != nil {
		t.Error("a second connection")
	}
	x := begun(c)
	x.Head(1, signature.ToServer, raw("POST / HTTP/1.1\nHost: a\n\n", false))
	if r := x.Body(1, signature.ToServer, []byte("abc")); r.Bound {
		t.Error("a bound, with room")
	}
	if r := x.Body(1, signature.ToServer, make([]byte, 9000)); !r.Bound || x.Wants(signature.ToServer) {
		t.Errorf("%+v", r)
	}
	if got := h.take(); got != "1" {
		t.Errorf("alerts %q", got)
	}
	c.Close() // before its exchange, as at the end of a client's connection
	x.Close(1)
	h.empty()
	for mode, want := range map[Mode][3]bool{Detect: {}, Prevent: {false, true, true}, PreventOpen: {false, true, false}} {
		for i, r := range []Result{{}, {Outcome: Drop}, {Bound: true}} {
			if mode.Ends(r) != want[i] {
				t.Errorf("mode %d: %+v ends: %v", mode, r, mode.Ends(r))
			}
		}
	}
}

func begun(c *Conn) *Exchange {
	x := &Exchange{}
	c.Begin(x)
	return x
}

// The work of rules on a body is paid for by its bytes: many small pieces of one are evaluated to its end, and an expression that takes
// too many steps is a bound.
func TestWorkOfMessages(t *testing.T) {
	h := newHanded(t, Config{Refuse: true}, `alert http any any -> any any (http.request_body; content:"abcd"; content:"efgh"; sid:1;)
alert http any any -> any any (http.request_body; content:"zaaa"; pcre:"/(a+)+(a+)+\1\2\1b/"; sid:2;)
alert http any any -> any any (http.uri; content:"long"; pcre:"/(a+)+(a+)+\1\2\1b/"; sid:3;)
`)
	c := h.connect()
	x := begun(c)
	x.Head(1, signature.ToServer, raw("POST / HTTP/1.1\nHost: a\n\n", false))
	x.Body(1, signature.ToServer, []byte("abcd"))
	for i := range 900 {
		if r := x.Body(1, signature.ToServer, []byte(strings.Repeat("x", 100))); r.Bound {
			t.Fatalf("a bound at piece %d", i)
		}
	}
	x.Body(1, signature.ToServer, []byte("efgh"))
	if got := h.take(); got != "1" {
		t.Errorf("alerts %q", got)
	}
	x.Close(1)
	x = begun(c)
	if r := x.Head(1, signature.ToServer, raw("GET /long"+strings.Repeat("a", 1200)+" HTTP/1.1\nHost: a\n\n", true)); !r.Bound {
		t.Error("no bound in a header")
	}
	x.Close(1)
	x = begun(c)
	x.Head(1, signature.ToServer, raw("POST / HTTP/1.1\nHost: a\n\n", false))
	if r := x.Body(1, signature.ToServer, []byte("z"+strings.Repeat("a", 1200))); !r.Bound {
		t.Error("no bound in a body")
	}
	x.Close(1)
	c.Close()
	h.empty()
}

// An exchange that ends after its connection gives back what it holds, and nothing else.
func TestAnExchangeThatOutlivesItsConnection(t *testing.T) {
	h := newHanded(t, Config{}, `alert http any any -> any any (http.method; content:"POST"; flowbits:set,one; sid:1;)
alert http any any -> any any (http.request_body; bsize:3; flowbits:set,two; sid:2;)
`)
	c := h.connect()
	x := begun(c)
	x.Head(1, signature.ToServer, raw("POST / HTTP/1.1\nHost: a\n\n", false))
	x.Body(1, signature.ToServer, []byte("abc"))
	c.Close()
	x.Close(1)
	if got := h.take(); got != "1 2" || h.last.Packet != 0 {
		t.Errorf("alerts %q", got)
	}
	h.empty()
}

// A rule that an exchange excepts sets no bit and counts nowhere; other exchanges of the connection have it.
func TestExceptedRules(t *testing.T) {
	matches := 0
	h := newHanded(t, Config{OnMatch: func(*signature.Rule) { matches++ }}, `alert http any any -> any any (http.method; content:"POST"; flowbits:set,one; sid:1;)
drop http any any -> any any (http.method; content:"GET"; flowbits:isset,one; sid:2;)
`)
	c := h.connect()
	ask := func(method string, choice *Choice) Result {
		x := begun(c)
		x.Choice = choice
		r := x.Head(1, signature.ToServer, raw(method+" / HTTP/1.1\nHost: a\n\n", true))
		x.Close(1)
		return r
	}
	without := func(sid uint32) *Choice { return &Choice{Except: map[RuleID]bool{{1, sid}: true}} }
	ask("POST", without(1))
	if r := ask("GET", nil); r.Outcome != Pass || matches != 0 {
		t.Errorf("%+v after a rule that was excepted, %d matches", r, matches)
	}
	ask("POST", without(2))
	if r := ask("GET", without(2)); r.Outcome != Pass {
		t.Errorf("%+v of a rule that is excepted", r)
	}
	if r := ask("GET", without(1)); r.Outcome != Drop {
		t.Errorf("%+v", r)
	}
	c.Close()
	h.empty()
}
