package semantics

import (
	"net/url"
	"strings"
)

// DecodeQuery returns a name or a value of a query as backends read it: percent-encodings once, and a plus sign as a blank (WHATWG URL,
// application/x-www-form-urlencoded). Another spelling of a name (?%61pi_key=) would else be another name to rules and limits, and the same to
// the backend. Text that cannot be decoded is returned as it is. It allocates where there is something to decode.
func DecodeQuery(s string) string {
	if strings.IndexByte(s, '%') < 0 && strings.IndexByte(s, '+') < 0 {
		return s
	}
	if d, err := url.QueryUnescape(s); err == nil {
		return d
	}
	return s
}
