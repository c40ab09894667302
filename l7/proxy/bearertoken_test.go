package proxy

import (
	"testing"

	"github.com/millrace/millrace/semantics"
)

// A backend may read another cookie, or line, than the one that was verified: of several that differ none counts.
func TestOneTokenIsVerifiedAndPasses(t *testing.T) {
	cookie := func(v string) semantics.Field { return semantics.Field{Name: "cookie", Value: v} }
	bearer := func(v string) semantics.Field { return semantics.Field{Name: "authorization", Value: "Bearer " + v} }
	b := &Bearer{Cookie: "t"}
	for _, c := range []struct {
		fields []semantics.Field
		want   string // "" is none
	}{
		{nil, ""},
		{[]semantics.Field{cookie("t=a")}, "a"},
		{[]semantics.Field{cookie("x=1; t=a; y=2")}, "a"},
		{[]semantics.Field{cookie("t=a; t=a")}, "a"},
		{[]semantics.Field{cookie("t=a; t=b")}, ""},
		{[]semantics.Field{cookie("t=a"), cookie("t=b")}, ""},
		{[]semantics.Field{cookie("t=a; t")}, "a"},
		{[]semantics.Field{cookie("t=a;t =b")}, ""},
		{[]semantics.Field{cookie("t=; t=b")}, ""},
		{[]semantics.Field{bearer("a")}, "a"},
		{[]semantics.Field{bearer("a"), cookie("t=a")}, "a"},
		{[]semantics.Field{bearer("a"), cookie("t=b")}, ""},
		{[]semantics.Field{bearer("a"), bearer("a")}, ""},
		{[]semantics.Field{bearer("a"), bearer("b"), cookie("t=a")}, ""},
		{[]semantics.Field{{Name: "authorization", Value: "Basic x"}, cookie("t=a")}, ""},
	} {
		if got, ok := b.token(c.fields); got != c.want || ok != (c.want != "") {
			t.Errorf("%v: %q, %v, want %q", c.fields, got, ok, c.want)
		}
	}
	if got, ok := (&Bearer{}).token([]semantics.Field{bearer("a"), cookie("t=b")}); got != "a" || !ok {
		t.Errorf("without a cookie: %q", got)
	}
}
