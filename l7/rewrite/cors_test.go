package rewrite

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/semantics"
)

func TestOriginsAreComparedWhole(t *testing.T) {
	c := CORS{Origins: []string{"https://a.example", "https://*.b.example", "http://c.example:8080"}}
	for origin, want := range map[string]bool{
		"https://a.example": true, "https://x.b.example": true, "https://x.y.b.example": true, "http://c.example:8080": true,
		"": false, "null": false, "http://a.example": false, "https://a.example:444": false, "https://a.example.evil.example": false,
		"https://b.example": false, "https://evilb.example": false, "https://.b.example": false, "https://x/.b.example": false, "https://x@y.b.example": false,
		"https://x:1.b.example": false, "http://x.b.example": false, "https://x.b.example:444": false, "http://c.example": false,
	} {
		if got := c.Allows(origin); got != want {
			t.Errorf("%q: %v", origin, got)
		}
	}
	if all := (CORS{Origins: []string{"*"}}); !all.Allows("null") || !all.Allows("https://x") || all.Allows("") {
		t.Error("* does not allow all origins, or a request without one")
	}
}

func TestFieldsOfCORS(t *testing.T) {
	field := func(list ...string) (fields []semantics.Field) {
		for i := 0; i < len(list); i += 2 {
			fields = append(fields, semantics.Field{Name: list[i], Value: list[i+1]})
		}
		return fields
	}
	backend := field("x", "y", "access-control-allow-origin", "*", "vary", "Accept", "access-control-allow-credentials", "true", "access-control-expose-headers", "b")
	const vary = "Origin, Access-Control-Request-Method, Access-Control-Request-Headers"
	named := CORS{Origins: []string{"https://a.example"}, Credentials: true, Methods: "*", Headers: "*", Expose: "etag", MaxAge: "5"}
	all := CORS{Origins: []string{"*"}, Methods: "PUT, DELETE", MaxAge: "0"}
	for _, c := range []struct {
		what      string
		got, want []semantics.Field
	}{
		{"a response to an origin", named.Apply(backend, "https://a.example"), field("x", "y", "vary", "Accept", "vary", "Origin",
			"access-control-allow-origin", "https://a.example", "access-control-allow-credentials", "true", "access-control-expose-headers", "etag")},
		{"a response to another origin", named.Apply(field("x", "y", "access-control-allow-origin", "*"), "https://b.example"), field("x", "y", "vary", "Origin")},
		{"a response to none", named.Apply(field("x", "y"), ""), field("x", "y", "vary", "Origin")},
		{"a response for all", all.Apply(field("x", "y"), "https://b.example"), field("x", "y", "access-control-allow-origin", "*")},
		{"a preflight with credentials", named.Preflight(nil, "https://a.example", "PATCH", "x-a,x-b"), field("vary", vary, "access-control-allow-origin", "https://a.example",
			"access-control-allow-credentials", "true", "access-control-allow-methods", "PATCH", "access-control-allow-headers", "x-a,x-b", "access-control-max-age", "5")},
		{"a preflight for all", all.Preflight(nil, "https://b.example", "PATCH", "x-a"), field("vary", vary, "access-control-allow-origin", "*",
			"access-control-allow-methods", "PUT, DELETE", "access-control-max-age", "0")},
		{"a preflight of another origin", named.Preflight(nil, "https://b.example", "PATCH", ""), field("vary", vary)},
	} {
		if diff := cmp.Diff(c.want, c.got); diff != "" {
			t.Errorf("%s: %s", c.what, diff)
		}
	}
}
