// Package wrongcases has malformed and hostile input for HTTP proxies, and what a back end may receive of it.
//
// The shapes are those of RFC 9112 11.2, of published advisories, and of the tools that look for request smuggling; Origin
// names them. The package has its own encodings and its own check of what was forwarded (Parse), and shares nothing with the
// protocol machines.
package wrongcases

import (
	"fmt"
	"slices"
	"strings"
)

// Case is what a client sends on one connection of HTTP/1.1.
type Case struct {
	Group  string // heading in tables
	Name   string // unique among all cases
	Origin string // section of an RFC, identifier of a vulnerability, or the name that a tool gives the technique
	Bytes  string
	// Passed is the number of requests that a back end receives whole. 0 is a case of which nothing may pass, but for the beginning of a
	// request whose content turns out to be malformed: its connection must end before it is whole.
	// Either leaves it open.
	Passed int
	// Absent are texts that no back end may receive, Present those that it must. Both are in lower case, and so are the received
	// bytes for the comparison.
	Absent, Present []string
	// Stricter says why a proxy may pass it on although another proxy refuses it, with the section of an RFC.
	Stricter string
	// Gateway says that a gateway refuses it by what it knows of its back ends, and not by the grammar.
	Gateway bool
	// Unfinished says that a proxy may wait for more, and answer nothing.
	Unfinished bool
}

// Either is the value of Passed where a proxy may refuse the case or pass on a request that is not ambiguous.
const Either = -1

// Requests that the cases are made of. A smuggled one is never the request of a case: it is what a back end would see if it read
// the content differently.
const (
	get      = "GET /case HTTP/1.1\r\nHost: a\r\n"
	post     = "POST /case HTTP/1.1\r\nHost: a\r\n"
	smuggled = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
	good     = "GET /good HTTP/1.1\r\nHost: a\r\n\r\n"
	end      = "\r\n"
	chunked  = "Transfer-Encoding: chunked\r\n"
)

// All returns all cases of HTTP/1.1.
func All() []Case {
	all := slices.Concat(valid(), lengths(), codings(), chunks(), lines(), names(), targets(), hosts(), versions(), pipelines(), hops(), paths(), sizes())
	seen := map[string]bool{}
	for i := range all {
		c := &all[i]
		if seen[c.Name] {
			panic("wrongcases: two cases are named " + c.Name)
		}
		seen[c.Name] = true
	}
	return all
}

// group makes the cases of one heading.
type group struct {
	name  string
	cases []Case
}

// refused adds a case of which nothing may pass.
func (g *group) refused(origin, name, bytes string) {
	g.cases = append(g.cases, Case{Group: g.name, Name: g.name + ": " + name, Origin: origin, Bytes: bytes})
}

// gateway marks the cases that a gateway refuses and a machine need not.
func (g *group) gateway(is func(c *Case) bool) []Case {
	for i := range g.cases {
		g.cases[i].Gateway = is(&g.cases[i])
	}
	return g.cases
}

// passed adds a case that is one request, or several.
func (g *group) passed(origin, name, bytes string, n int) *Case {
	g.cases = append(g.cases, Case{Group: g.name, Name: g.name + ": " + name, Origin: origin, Bytes: bytes, Passed: n})
	return &g.cases[len(g.cases)-1]
}

// withLength returns a POST whose Content-Length covers the content.
func withLength(fields, content string) string {
	return fmt.Sprintf("%sContent-Length: %d\r\n%s\r\n%s", post, len(content), fields, content)
}

// many returns n lines that format makes of their number.
func many(n int, format string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

// valid returns requests that every proxy must pass on: who refuses all has not passed the test.
func valid() []Case {
	g := &group{name: "valid"}
	g.passed("9112 2.1", "GET", get+end, 1)
	g.passed("9112 6.2", "content with a length", withLength("", "hello"), 1).Present = []string{"hello"}
	g.passed("9112 7.1", "content in chunks", post+chunked+end+"5\r\nhello\r\n0\r\n\r\n", 1).Present = []string{"hello"}
	g.passed("9112 9.3.2", "three requests ahead", good+good+good, 3)
	g.passed("9110 5.5", "empty value", get+"X:\r\n"+end, 1)
	g.passed("9110 5.5", "bytes above ASCII in a value", get+"X: \xe9\xff\r\n"+end, 1)
	g.passed("9112 2.2", "empty line before the request", "\r\n"+get+end, 1)
	g.passed("9112 3.2.2", "absolute form", "GET http://a/case HTTP/1.1\r\nHost: a\r\n\r\n", 1)
	g.passed("9112 3.2.4", "asterisk form", "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", 1).Stricter = "RFC 9110 7.1: OPTIONS * may be forwarded; a server may also answer it"
	g.passed("9112 7.1.2", "trailers", post+chunked+"TE: trailers\r\nTrailer: x-sum\r\n"+end+"1\r\na\r\n0\r\nX-Sum: 1\r\n\r\n", 1)
	g.passed("9112 6.3", "Content-Length: 0", post+"Content-Length: 0\r\n"+end, 1)
	return g.cases
}
