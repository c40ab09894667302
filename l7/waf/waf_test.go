package waf

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/semantics"
)

func TestReasonsNameTheRules(t *testing.T) {
	for _, c := range []struct {
		v    Verdict
		want string
	}{
		{Verdict{}, ""},
		{Verdict{Rule: 7, Status: 403}, "waf 7"},
		{Verdict{Rule: 7, Status: 403, Matched: []int{3, 7, 4}}, "waf 7 (3 4)"},
		{Verdict{Matched: []int{3}}, "waf (3)"},
		{Verdict{Rule: 7, Matched: []int{7}}, "waf 7"},
	} {
		if got := string(c.v.AppendReason(nil)); got != c.want {
			t.Errorf("%+v: %q, want %q", c.v, got, c.want)
		}
	}
}

// A header of HTTP/1.1 becomes what came, with what frames the message.
func TestHeadersOfHTTP1(t *testing.T) {
	var r Request
	r.ParseHead([]byte("POST http://b.example/a%20b?c HTTP/1.0\r\nHOST:  a.example \r\nTransfer-Encoding: chunked\r\nX-A:b:c\r\nX-Empty:\r\n\r\n"))
	want := Request{Method: "POST", Target: "http://b.example/a%20b?c", Protocol: "HTTP/1.0", Host: "a.example", Fields: []semantics.Field{
		{Name: "HOST", Value: "a.example"}, {Name: "Transfer-Encoding", Value: "chunked"}, {Name: "X-A", Value: "b:c"}, {Name: "X-Empty"},
	}}
	if d := cmp.Diff(want, r, cmp.AllowUnexported(semantics.Field{}), cmp.Comparer(func(a, b fmt.Stringer) bool { return a.String() == b.String() })); d != "" {
		t.Error(d)
	}
}

// A request of HTTP/2 gets the fields that rules know of HTTP/1.1, and depends on no memory of its connection.
func TestHeadersOfHTTP2(t *testing.T) {
	memory := []byte("GET/pathx-avalue")
	text := func(from, to int) string { return string(memory[from:to]) }
	m := semantics.Message{Method: text(0, 3), Path: text(3, 8), Authority: "a.example", ContentLength: 4, Fields: []semantics.Field{{Name: text(8, 11), Value: text(11, 16)}}}
	var r Request
	r.SetFields(&m)
	if want := []semantics.Field{{Name: "x-a", Value: "value"}, {Name: "host", Value: "a.example"}, {Name: "content-length", Value: "4"}}; !cmp.Equal(r.Fields, want) || r.Method != "GET" || r.Target != "/path" || r.Host != "a.example" {
		t.Errorf("%+v", r)
	}
	m.Fields, m.ContentLength = []semantics.Field{{Name: "host", Value: "b"}}, -1
	if r.SetFields(&m); len(r.Fields) != 1 {
		t.Errorf("%+v: the host is there twice", r.Fields)
	}
}

// Rules are counted one by one, up to a bound.
func TestCountsAreBounded(t *testing.T) {
	var c Counts
	for id := range maxCounted + 10 {
		c.matched([]int{id, 0})
	}
	s := c.Sums()
	if len(s.Rules) != maxCounted || s.OtherRules != 10 || s.Rules[0] != (RuleCount{0, maxCounted + 10 + 1}) {
		t.Errorf("%d rules, %d matches of others, first %+v", len(s.Rules), s.OtherRules, s.Rules[0])
	}
}

// FuzzParseHead looks for headers that make fields of what is none.
func FuzzParseHead(f *testing.F) {
	f.Add([]byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n"))
	f.Fuzz(func(t *testing.T, head []byte) {
		var r Request
		r.ParseHead(head)
		for _, field := range r.Fields {
			if strings.ContainsAny(field.Name+field.Value, "\n") || strings.Contains(field.Name, ":") {
				t.Errorf("%q: field %+v", head, field)
			}
		}
	})
}
