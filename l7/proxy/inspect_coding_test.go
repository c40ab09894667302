package proxy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/millrace/millrace/filter/inspect"
	"github.com/millrace/millrace/internal/testkit/memtransport"
)

// Content in a coding that rules cannot read does not get around them: a request is answered 415, and a response 502. Where nothing
// ends by a rule, or no rule asks for content, it passes.
func TestCodingsThatRulesCannotRead(t *testing.T) {
	for _, coding := range []string{"br", "zstd", "compress", "foo, gzip", "gzip, foo", "GZIP, Br", strings.Repeat("gzip,", 9)} {
		for _, c := range []struct {
			mode              inspect.Mode
			rules             string
			request, response int
		}{
			{inspect.Prevent, evilBody + "\n" + evilResponses, 415, 502},
			{inspect.PreventOpen, evilBody + "\n" + evilResponses, 415, 502},
			{inspect.Detect, evilBody + "\n" + evilResponses, 200, 200},
			{inspect.Prevent, evilURI, 200, 200},
			{inspect.Prevent, evilBody, 415, 200},
		} {
			r := newInspectRig(t, c.mode, 1<<16, c.rules)
			answer := r.ask(fmt.Sprintf("POST / HTTP/1.1\r\nHost: a\r\nContent-Encoding: %s\r\nContent-Length: 3\r\n\r\nabc", coding))
			if got := statusOf(t, answer); got != c.request || got == 415 && (!strings.Contains(answer, "\r\naccept-encoding: gzip, deflate\r\n") || len(r.backs) > 0) {
				t.Errorf("%s, mode %v: a request: %s", coding, c.mode, answer)
			}
			r.backend = func(p *memtransport.Peer) {
				p.Handler = func(p *memtransport.Peer) {
					if len(p.Take()) > 0 {
						p.Write([]byte(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Encoding: %s\r\nContent-Length: 3\r\n\r\nabc", coding)))
					}
				}
			}
			r.closeBacks()
			answer = r.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
			if got := statusOf(t, answer); got != c.response || got == 502 && strings.Contains(answer, "abc") {
				t.Errorf("%s, mode %v: a response: %s", coding, c.mode, answer)
			}
			if c.response == 502 {
				if q := r.records[len(r.records)-1]; q.Reason != "inspection coding" || q.Error != "http_request_denied" {
					t.Errorf("%s: the access log has %+v", coding, q)
				}
			}
		}
	}
}

// closeBacks closes the connections to backends.
func (r *inspectRig) closeBacks() {
	for _, b := range r.backs {
		b.Close()
	}
	r.run()
}

// Backends are asked for what rules can read, where these look at the content of responses and may end them.
func TestCodingsThatBackendsMaySend(t *testing.T) {
	for sent, want := range map[string]string{
		"Accept-Encoding: gzip, deflate, br, zstd\r\n":                    "gzip, deflate",
		"Accept-Encoding: br;q=1, GZip;q=0.5,identity;q=0\r\n":            "GZip;q=0.5, identity;q=0",
		"Accept-Encoding: br\r\n":                                         "identity",
		"Accept-Encoding: *\r\n":                                          "identity",
		"Accept-Encoding: br\r\nX: y\r\nAccept-Encoding: gzip, dcb\r\n":   "gzip",
		"Accept-Encoding: gzip\r\nAccept-Encoding: zstd\r\nX-Last: 1\r\n": "gzip",
		"Accept-Encoding: \r\n":                                           "identity",
		"X: br\r\n":                                                       "",
	} {
		for _, c := range []struct {
			mode       inspect.Mode
			rules      string
			restricted bool
		}{
			{inspect.Prevent, evilResponses, true},
			{inspect.PreventOpen, evilResponses, true},
			{inspect.Detect, evilResponses, false},
			{inspect.Prevent, evilURI + evilBody, false},
		} {
			r := newInspectRig(t, c.mode, 1<<16, c.rules)
			r.ask("GET / HTTP/1.1\r\nHost: a\r\n" + sent + "\r\n")
			var got []string
			for line := range strings.SplitSeq(r.received(), "\r\n") {
				if name, value, _ := strings.Cut(line, ": "); strings.EqualFold(name, "accept-encoding") {
					got = append(got, value)
				}
			}
			if text := strings.Join(got, "|"); c.restricted && text != want || !c.restricted && strings.Contains(sent, "br\r\n") && want != "" && !strings.Contains(text, "br") {
				t.Errorf("%q with mode %v: %q, want %q", sent, c.mode, text, want)
			}
		}
	}
}
