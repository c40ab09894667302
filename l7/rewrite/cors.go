package rewrite

import (
	"slices"
	"strings"

	"github.com/millrace/millrace/semantics"
)

// CORS lets scripts of other origins read responses (https://fetch.spec.whatwg.org/#http-cors-protocol). The lists are those of
// Gateway API's HTTPCORSFilter.
type CORS struct {
	Origins     []string // "https://a.example", "https://*.a.example" for all names below, or "*" alone
	Credentials bool     // also with cookies, and other credentials of the user
	Methods     string   // beside those that need no leave, with commas; "*" is any
	Headers     string   // names of fields of requests, with commas; "*" is any
	Expose      string   // names of fields of responses that scripts may read, with commas; "" is none
	MaxAge      string   // how long browsers keep the answer to a preflight, seconds
}

// Names of the fields.
const (
	allowOrigin      = "access-control-allow-origin"
	allowCredentials = "access-control-allow-credentials"
	exposeHeaders    = "access-control-expose-headers"
)

// Any reports whether all origins are allowed.
func (c *CORS) Any() bool { return len(c.Origins) == 1 && c.Origins[0] == "*" }

// Allows reports whether an origin, as a browser writes it, is allowed.
func (c *CORS) Allows(origin string) bool {
	return origin != "" && (c.Any() || slices.ContainsFunc(c.Origins, func(o string) bool { return matchesOrigin(o, origin) }))
}

// matchesOrigin compares scheme, host and port. A wildcard stands for one label or more, as in names of routes.
func matchesOrigin(pattern, origin string) bool {
	scheme, below, wild := strings.Cut(pattern, "://*.")
	if !wild {
		return pattern == origin
	}
	rest, ok := strings.CutPrefix(origin, scheme+"://")
	name, ok2 := strings.CutSuffix(rest, "."+below)
	return ok && ok2 && name != "" && !strings.ContainsAny(name, "/:@") && name[0] != '.' && name[len(name)-1] != '.'
}

// Apply gives a response the fields for the origin of its request, "" for none. Those that a backend has set go: two of them are none
// to a browser. Where responses differ by origin caches have to know it (RFC 9110 12.5.5), also for requests without one.
func (c *CORS) Apply(fields []semantics.Field, origin string) []semantics.Field {
	fields = slices.DeleteFunc(fields, func(f semantics.Field) bool {
		return f.Name == allowOrigin || f.Name == allowCredentials || f.Name == exposeHeaders
	})
	if !c.Any() {
		fields = append(fields, semantics.Field{Name: "vary", Value: "Origin"})
	}
	if !c.Allows(origin) {
		return fields
	}
	fields = c.allow(fields, origin)
	if c.Expose != "" {
		fields = append(fields, semantics.Field{Name: exposeHeaders, Value: c.Expose})
	}
	return fields
}

// allow appends who may read the response.
func (c *CORS) allow(fields []semantics.Field, origin string) []semantics.Field {
	if c.Any() {
		origin = "*"
	}
	fields = append(fields, semantics.Field{Name: allowOrigin, Value: origin})
	if c.Credentials {
		fields = append(fields, semantics.Field{Name: allowCredentials, Value: "true"})
	}
	return fields
}

// Preflight appends the fields of the answer to a preflight: to an origin that is not allowed none but Vary, so that the browser
// makes no request. With credentials "*" is a name and no wildcard: what was asked for stands in its place.
func (c *CORS) Preflight(fields []semantics.Field, origin, method, headers string) []semantics.Field {
	fields = append(fields, semantics.Field{Name: "vary", Value: "Origin, Access-Control-Request-Method, Access-Control-Request-Headers"})
	if !c.Allows(origin) {
		return fields
	}
	fields = c.allow(fields, origin)
	for _, f := range []struct{ name, allowed, asked string }{
		{"access-control-allow-methods", c.Methods, method}, {"access-control-allow-headers", c.Headers, headers},
	} {
		if f.allowed == "*" && c.Credentials {
			f.allowed = f.asked
		}
		if f.allowed != "" {
			fields = append(fields, semantics.Field{Name: f.name, Value: f.allowed})
		}
	}
	return append(fields, semantics.Field{Name: "access-control-max-age", Value: c.MaxAge})
}
