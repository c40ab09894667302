package http3

import (
	"net/http"
	"strings"

	"github.com/millrace/millrace/http3/qpack"
	"github.com/millrace/millrace/semantics"
)

// headerOf returns fields as a header. Its strings are those of the fields. skip is a name that is left out.
func headerOf(fields []qpack.Field, skip string) http.Header {
	h := make(http.Header, len(fields))
	values := make([]string, len(fields)) // one allocation for all lists of one value
	for i := range fields {
		f := &fields[i]
		if f.Name == skip {
			continue
		}
		name := canonicalName(f.Name)
		if list, found := h[name]; found {
			if f.Name == "cookie" {
				// RFC 9114 4.2.1: the parts of a cookie become one again.
				list[0] += "; " + f.Value
			} else {
				h[name] = append(list, f.Value)
			}
			continue
		}
		values[i] = f.Value
		h[name] = values[i : i+1 : i+1]
	}
	return h
}

// appendHeader appends a header as fields. What belongs to connections is left out (RFC 9114 4.2), and so are
// names that skip reports, and names and values that no field can have, unless they were checked before.
func appendHeader(fields []qpack.Field, h http.Header, checked bool, skip func(name string) bool) []qpack.Field {
	for name, values := range h {
		if skip != nil && skip(name) {
			continue
		}
		lower := lowerName(name)
		switch lower {
		case "connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade":
			continue
		}
		if !checked && !semantics.IsToken(name) {
			continue
		}
		for _, v := range values {
			if lower == "te" && !strings.EqualFold(v, "trailers") || !checked && !semantics.IsText(v) {
				continue
			}
			fields = append(fields, qpack.Field{Name: lower, Value: trim(v), Never: secret(lower)})
		}
	}
	return fields
}

// trim removes blanks at both ends, which few values have.
func trim(v string) string {
	if v == "" || v[0] > ' ' && v[len(v)-1] > ' ' {
		return v
	}
	return strings.Trim(v, " \t")
}

// secret reports whether a field is kept out of tables, because an attacker who has a part in other requests
// of the connection could guess it by their sizes (RFC 9204 7.1). Cookies of browsers are long and
// random, and each would be sent again with every request.
func secret(name string) bool {
	return name == "authorization" || name == "proxy-authorization" || name == "set-cookie"
}

// noBody reports whether a response with the status has no content (RFC 9110 6.4.1).
func noBody(status int) bool {
	return status < 200 || status == http.StatusNoContent || status == http.StatusNotModified
}
