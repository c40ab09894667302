package proxy

import (
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/filter/inspect"
	"github.com/millrace/millrace/internal/testkit/wrongcases"
	"github.com/millrace/millrace/l7/ratelimit"
	"github.com/millrace/millrace/l7/rewrite"
	"github.com/millrace/millrace/l7/route"
)

// repeatedRequests are a request for each order of two values in a field and in a parameter. Backends take the first, the last, or both.
func repeatedRequests(a, b string) (list []string) {
	for _, v := range [][2]string{{a, b}, {b, a}} {
		list = append(list,
			"GET / HTTP/1.1\r\nHost: a\r\nX-Role: "+v[0]+"\r\nX-Role: "+v[1]+"\r\n\r\n",
			"GET /?x-role="+v[0]+"&x-role="+v[1]+" HTTP/1.1\r\nHost: a\r\n\r\n")
	}
	return list
}

// Rules that deny a value, and rules that guard one, are not gone around by a second value: the backend gets no request of which it may
// take another value than the rule has compared.
func TestRulesAreNotGoneAroundByRepeatedFields(t *testing.T) {
	for name, denied := range map[string]bool{"a rule that denies": true, "a rule that serves": false} {
		at := &recorder{}
		r := newMemRig(t, func(r *memRig, tree *Tree) {
			match := []route.Value{{Name: "x-role", Value: "admin"}}
			table, err := route.New([]route.Rule{{Name: "field", Match: route.Match{Fields: match}}, {Name: "query", Match: route.Match{Query: match}}, {Name: "all"}})
			mustMem(t, err)
			deny := &Rule{Name: "deny", Response: &Response{Status: 403}}
			rules := []*Rule{deny, deny, r.rule}
			if !denied {
				rules = []*Rule{r.rule, r.rule, deny}
			}
			for _, ln := range tree.Listeners {
				ln.Table, ln.Rules = table, rules
			}
		})
		r.backend = at.serve
		for _, request := range repeatedRequests("admin", "other") {
			if got := r.ask(request); !strings.HasPrefix(got, "HTTP/1.1 400 ") || at.whole() != 0 {
				t.Errorf("%s: %q: %.20q", name, request, got)
			}
		}
		r.nothingLeft()
	}
}

// The same with HTTP/2, whose fields have lines as well.
func TestRulesAreNotGoneAroundByRepeatedFieldsOfHTTP2(t *testing.T) {
	r := newMemRig(t, func(r *memRig, tree *Tree) {
		table, err := route.New([]route.Rule{{Name: "field", Match: route.Match{Fields: []route.Value{{Name: "x-role", Value: "admin"}}}}, {Name: "all"}})
		mustMem(t, err)
		for _, ln := range tree.Listeners {
			ln.Table, ln.Rules = table, []*Rule{{Name: "deny", Response: &Response{Status: 403}}, r.rule}
		}
	})
	var records []Record
	r.worker.OnRecord(func(q *Record) { records = append(records, *q) })
	c := r.connect(memHTTP2)
	c.Write([]byte(wrongcases.Preface + wrongcases.Section(1, 1, []wrongcases.Field{
		{":method", "GET"}, {":scheme", "http"}, {":authority", "a"}, {":path", "/"}, {"x-role", "other"}, {"x-role", "admin"},
	})))
	r.run()
	if len(records) != 1 || records[0].Status != 400 {
		t.Errorf("%+v", records)
	}
	r.nothingLeft(c)
}

// A limit counts each value, and rules of an inspection see each: in any order.
func TestLimitsAndInspectionSeeRepeatedFields(t *testing.T) {
	for _, request := range repeatedRequests("admin", "other") {
		by := rewrite.ByHeader
		if strings.HasPrefix(request, "GET /?") {
			by = rewrite.ByQuery
		}
		r, _ := limited(t, RateKey{Key: rewrite.Key{By: by, Name: "x-role"}}, ratelimit.Options{Requests: 1, Interval: time.Hour, Burst: 1, Keys: 100})
		if got := r.ask(repeatedOnce(by)); !strings.HasPrefix(got, "HTTP/1.1 200 ") {
			t.Errorf("%.20q", got)
		}
		if got := r.ask(request); !strings.HasPrefix(got, "HTTP/1.1 429 ") {
			t.Errorf("%q: %.20q", request, got)
		}
		r.nothingLeft()
		if by == rewrite.ByQuery {
			continue
		}
		i := newInspectRig(t, inspect.Prevent, 1<<16, `drop http any any -> any any (http.header; content:"X-Role|3a| admin|0d 0a|"; nocase; sid:1;)`)
		if got := i.ask(request); !strings.HasPrefix(got, "HTTP/1.1 403 ") || i.at.whole() != 0 {
			t.Errorf("inspection: %q: %.20q", request, got)
		}
	}
}

// repeatedOnce is a request with one value of the key.
func repeatedOnce(by rewrite.KeyBy) string {
	if by == rewrite.ByQuery {
		return "GET /?x-role=admin HTTP/1.1\r\nHost: a\r\n\r\n"
	}
	return "GET / HTTP/1.1\r\nHost: a\r\nX-Role: admin\r\n\r\n"
}
