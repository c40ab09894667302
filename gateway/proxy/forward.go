package proxy

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/millrace/millrace/semantics"
)

// forwarded adds the fields that tell a backend of the client. What a client says of itself is kept only from the proxies
// that the listener trusts.
func (x *exchange) forwarded(c *clientInfo) {
	trusted := slices.ContainsFunc(c.listener.Trusted, func(p netip.Prefix) bool { return p.Contains(c.addr.Addr().Unmap()) })
	chain := ""
	kept := x.fields[:0]
	for _, f := range x.fields {
		switch f.Name {
		case "x-forwarded-for":
			if trusted {
				chain = f.Value
			}
			continue
		case "x-forwarded-proto", "x-forwarded-host", "forwarded":
			if !trusted {
				continue
			}
		}
		kept = append(kept, f)
	}
	x.scratch = x.scratch[:0]
	if chain != "" {
		x.scratch = append(append(x.scratch, chain...), ", "...)
	}
	x.scratch = c.addr.Addr().Unmap().AppendTo(x.scratch)
	x.fields = append(kept, semantics.Field{Name: "x-forwarded-for", Value: view(x.scratch)})
	if !trusted {
		proto := "http"
		if c.tls {
			proto = "https"
		}
		x.fields = append(x.fields, semantics.Field{Name: "x-forwarded-proto", Value: proto})
	}
}

// join returns path and query as one string, which belongs to the exchange.
func (x *exchange) join(path, query string) string {
	x.target = append(append(x.target[:0], path...), query...)
	return view(x.target)
}

// lower returns s in lower case.
func lower(s string) string { return strings.ToLower(s) }
