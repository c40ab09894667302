package rewrite

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/millrace/millrace/semantics"
)

// Style is the form in which backends learn of the client.
type Style uint8

// Values of Style.
const (
	StyleX         Style = iota // X-Forwarded-For, -Proto and -Host
	StyleForwarded              // Forwarded (RFC 7239)
	StyleNone                   // nothing
)

// Forwarding selects what backends learn of clients. What a client claims about itself or about others before it is removed, unless it
// is a proxy that is trusted: then it is continued.
type Forwarding struct {
	Style   Style
	Trusted []netip.Prefix
}

// Peer is who sent a request.
type Peer struct {
	Addr      netip.Addr
	TLS       bool
	Authority string // of the request, before a rule rewrites it
}

// Trusts reports whether the fields of a peer count.
func (f *Forwarding) Trusts(a netip.Addr) bool {
	a = a.Unmap()
	return slices.ContainsFunc(f.Trusted, func(p netip.Prefix) bool { return p.Contains(a) })
}

// Apply changes the fields of a request in place and returns the list. Values are written to buf, which is dst with texts
// appended.
func (f *Forwarding) Apply(fields []semantics.Field, dst []byte, p *Peer) (out []semantics.Field, buf []byte) {
	trusted := f.Trusts(p.Addr)
	if !trusted {
		fields = withoutClaims(fields)
	}
	switch f.Style {
	case StyleX:
		return appendX(fields, dst, p, trusted)
	case StyleForwarded:
		return appendForwarded(fields, dst, p)
	}
	return fields, dst
}

// withoutClaims removes the fields that speak of the client. Most requests have none.
func withoutClaims(fields []semantics.Field) []semantics.Field {
	for i := range fields {
		if claims(fields[i].Name) {
			return slices.DeleteFunc(fields, func(f semantics.Field) bool { return claims(f.Name) })
		}
	}
	return fields
}

// claims reports whether a field speaks of the client: what many programs believe, and none may make up.
func claims(name string) bool {
	return strings.HasPrefix(name, "x-forwarded-") || name == "forwarded" || name == "x-real-ip"
}

// appendX continues X-Forwarded-For, and adds the other fields where a trusted proxy has not.
func appendX(fields []semantics.Field, dst []byte, p *Peer, trusted bool) ([]semantics.Field, []byte) {
	start, proto, host := len(dst), false, p.Authority == ""
	if trusted {
		fields, dst, start = chain(fields, dst, "x-forwarded-for")
		proto, host = has(fields, "x-forwarded-proto"), host || has(fields, "x-forwarded-host")
	}
	dst = p.Addr.Unmap().WithZone("").AppendTo(dst)
	fields = append(fields, semantics.Field{Name: "x-forwarded-for", Value: view(dst[start:])})
	if !proto {
		fields = append(fields, semantics.Field{Name: "x-forwarded-proto", Value: schemeOf(p.TLS)})
	}
	if !host {
		fields = append(fields, semantics.Field{Name: "x-forwarded-host", Value: p.Authority})
	}
	return fields, dst
}

// appendForwarded continues Forwarded (RFC 7239 4).
func appendForwarded(fields []semantics.Field, dst []byte, p *Peer) ([]semantics.Field, []byte) {
	fields, dst, start := chain(fields, dst, "forwarded")
	dst = append(dst, "for="...)
	if a := p.Addr.Unmap().WithZone(""); a.Is4() {
		dst = a.AppendTo(dst)
	} else { // the brackets and colons need quotes (RFC 7239 6)
		dst = append(a.AppendTo(append(dst, `"[`...)), `]"`...)
	}
	if p.Authority != "" {
		dst = appendQuoted(append(dst, ";host="...), p.Authority)
	}
	dst = append(append(dst, ";proto="...), schemeOf(p.TLS)...)
	return append(fields, semantics.Field{Name: "forwarded", Value: view(dst[start:])}), dst
}

// appendQuoted appends a value as a token, or else as a quoted string (RFC 9110 5.6.4).
func appendQuoted(dst []byte, value string) []byte {
	if semantics.IsToken(value) {
		return append(dst, value...)
	}
	dst = append(dst, '"')
	for i := range len(value) {
		if c := value[i]; c == '"' || c == '\\' {
			dst = append(dst, '\\')
		}
		dst = append(dst, value[i])
	}
	return append(dst, '"')
}

// chain removes the lines of a name and begins a value at start of dst that continues them: a list is one over all its
// lines (RFC 9110 5.3).
func chain(fields []semantics.Field, dst []byte, name string) (kept []semantics.Field, buf []byte, start int) {
	start = len(dst)
	kept = fields[:0]
	for _, f := range fields {
		if f.Name != name {
			kept = append(kept, f)
			continue
		}
		if value := strings.TrimRight(f.Value, ", \t"); value != "" { // a sender must not pass empty elements on (RFC 9110 5.6.1.1)
			dst = append(append(dst, value...), ", "...)
		}
	}
	return kept, dst, start
}

func has(fields []semantics.Field, name string) bool {
	return slices.ContainsFunc(fields, func(f semantics.Field) bool { return f.Name == name })
}

// Client returns the address of the client that a request comes from: the peer, or, behind trusted proxies, the last address
// of the chain that is not trusted. An entry that is no address ends the search: the one after it counts.
func (f *Forwarding) Client(fields []semantics.Field, peer netip.Addr) netip.Addr {
	name := "x-forwarded-for"
	if f.Style == StyleForwarded {
		name = "forwarded"
	}
	client := peer.Unmap()
	if len(f.Trusted) == 0 {
		return client
	}
	for i := len(fields) - 1; i >= 0; i-- {
		if fields[i].Name != name {
			continue
		}
		for rest, more := fields[i].Value, true; more; {
			if !f.Trusts(client) {
				return client
			}
			var entry string
			rest, entry, more = cutLast(rest)
			if entry == "" {
				continue // empty elements of a list are ignored (RFC 9110 5.6.1.2)
			}
			next, ok := f.address(entry)
			if !ok {
				return client
			}
			client = next
		}
	}
	return client
}

// cutLast splits the last entry off a list. A comma in a quoted string does not separate (RFC 7239 4).
func cutLast(list string) (rest, entry string, more bool) {
	quoted := false
	for i := len(list) - 1; i >= 0; i-- {
		switch list[i] {
		case '"':
			if i == 0 || list[i-1] != '\\' {
				quoted = !quoted
			}
		case ',':
			if !quoted {
				return list[:i], trim(list[i+1:]), true
			}
		}
	}
	return "", trim(list), false
}

// address returns the address of an entry of the chain.
func (f *Forwarding) address(entry string) (netip.Addr, bool) {
	if f.Style == StyleForwarded {
		entry = node(entry)
	}
	entry = hostWithoutPort(entry)
	a, err := netip.ParseAddr(entry)
	return a.Unmap(), err == nil && a.Zone() == ""
}

// node returns the value of for= of an element of Forwarded, "" where there is none. Names of parameters are not
// case-sensitive.
func node(element string) string {
	for element != "" {
		var pair string
		pair, element, _ = strings.Cut(element, ";") // a host with a semicolon in quotes gives no address
		name, value, _ := strings.Cut(pair, "=")
		if strings.EqualFold(trim(name), "for") {
			return strings.Trim(trim(value), `"`)
		}
	}
	return ""
}

// hostWithoutPort returns the address of a node without brackets and port (RFC 7239 6). A bare IPv6 address, which
// X-Forwarded-For has, stays.
func hostWithoutPort(s string) string {
	if rest, ok := strings.CutPrefix(s, "["); ok {
		host, _, _ := strings.Cut(rest, "]")
		return host
	}
	if host, _, ok := strings.Cut(s, ":"); ok && strings.Count(s, ":") == 1 {
		return host
	}
	return s
}

// Via adds the field of a gateway to a request or response (RFC 9110 7.6.3). version is that of the message that came in:
// "1.0", "1.1", "2" or "3". name is the gateway's pseudonym, a token.
func Via(fields []semantics.Field, dst []byte, version, name string) (out []semantics.Field, buf []byte) {
	fields, dst, start := chain(fields, dst, "via")
	dst = append(append(append(dst, version...), ' '), name...)
	return append(fields, semantics.Field{Name: "via", Value: view(dst[start:])}), dst
}
