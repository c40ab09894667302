package proxy

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/filter/inspect"
	"github.com/millrace/millrace/internal/testkit/wrongcases"
	"github.com/millrace/millrace/l7/rewrite"
)

// otherSpellings are names of fields that rules read, as a backend behind CGI reads them too.
var otherSpellings = []string{"User_Agent", "User.Agent", "Content_Encoding", "Content.Encoding", "Accept_Encoding", "Accept_Language", "Content_Disposition"}

// hiddenFromCGI checks that no variable of what a backend has received has the claim, and that other names have passed.
func hiddenFromCGI(t *testing.T, what string, requests []wrongcases.Request) {
	t.Helper()
	if names := claimed(requests); len(requests) != 1 || len(names) > 0 {
		t.Errorf("%s: the backend has %d requests, and what no rule has seen as %v", what, len(requests), names)
	}
	for _, r := range requests {
		if v, _ := r.Field("x_custom"); v != "1" {
			t.Errorf("%s: x_custom is %q", what, v)
		}
	}
}

// What a rule drops by the name of a field does not reach a backend by another spelling of the name.
func TestNoSpellingOfAFieldGoesAroundRules(t *testing.T) {
	rule := fmt.Sprintf(`drop http any any -> any any (http.user_agent; content:%q; sid:1;)`, claim)
	base := []wrongcases.Field{{":method", "GET"}, {":scheme", "http"}, {":authority", "gateway.test"}, {":path", "/"}, {"x_custom", "1"}}
	for _, name := range otherSpellings {
		field := wrongcases.Field{strings.ToLower(name), claim}
		r := newInspectRig(t, inspect.Prevent, 1<<16, rule)
		r.ask("GET / HTTP/1.1\r\nHost: a\r\nX_Custom: 1\r\n" + name + ": " + claim + "\r\n\r\n")
		hiddenFromCGI(t, name+", HTTP/1.1", r.at.since(0))

		r = newInspectRig(t, inspect.Prevent, 1<<16, rule)
		c := r.connect(memHTTP2)
		c.Write([]byte(wrongcases.Preface + wrongcases.Section(1, 1, append(slices.Clone(base), field))))
		r.run()
		hiddenFromCGI(t, name+", HTTP/2", r.at.since(0))
	}
}

// The same with HTTP/3.
func TestNoSpellingOfAFieldGoesAroundRulesInHTTP3(t *testing.T) {
	backend, got := recordingBackend(t)
	r := http3Rig(t, backend, func(r *rig) { r.tree.Listeners[1].Names = rewrite.NewNames(rewrite.Inspected()) })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	fields := []wrongcases.Field{{":method", "GET"}, {":scheme", "https"}, {":authority", "gateway.test"}, {":path", "/"}, {"x_custom", "1"}}
	for _, name := range otherSpellings {
		fields = append(fields, wrongcases.Field{strings.ToLower(name), claim})
	}
	ask3(t, ctx, r.dial3(ctx, quicSocket(t), nil), &wrongcases.FieldCase{Fields: fields})
	var requests []wrongcases.Request
	for _, b := range got.take() {
		parsed, err := wrongcases.Parse(b)
		must(t, err)
		requests = append(requests, parsed...)
	}
	hiddenFromCGI(t, "HTTP/3", requests)
}
