package rewrite

import (
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/semantics"
)

// Cookie returns the value of a request's cookie, the first of several, as it stands there (RFC 6265 4.2, 5.4). Like servers in
// general it takes any white space around the parts, and lines in any number (RFC 9113 8.2.3).
func Cookie(fields []semantics.Field, name string) (value string, ok bool) {
	for i := range fields {
		if fields[i].Name != "cookie" {
			continue
		}
		for rest := fields[i].Value; rest != ""; {
			var pair string
			pair, rest, _ = strings.Cut(rest, ";")
			key, v, found := strings.Cut(pair, "=")
			if found && trim(key) == name {
				return trim(v), true
			}
		}
	}
	return "", false
}

// trim returns s without blanks and tabs at its ends.
func trim(s string) string { return strings.Trim(s, " \t") }

// Sticky is the cookie that leads the requests of a session to one backend. Its value is a token of pool.Pool.
type Sticky struct {
	Name   string
	MaxAge time.Duration // in whole seconds; 0 is until the browser ends
}

// Token returns the token of a request's cookie. Some clients put quotes around a value (RFC 6265 4.1.1), which no token has.
func (s *Sticky) Token(fields []semantics.Field) (token string, ok bool) {
	token, ok = Cookie(fields, s.Name)
	if n := len(token); n >= 2 && token[0] == '"' && token[n-1] == '"' {
		token = token[1 : n-1]
	}
	return token, ok
}

// AppendSetCookie appends the value of the Set-Cookie field (RFC 6265 4.1). The cookie is for all paths of the host, out of
// reach of scripts, and with TLS not sent without it.
func (s *Sticky) AppendSetCookie(dst []byte, token string, tls bool) []byte {
	dst = append(append(append(dst, s.Name...), '='), token...)
	dst = append(dst, "; Path=/; HttpOnly; SameSite=Lax"...)
	if tls {
		dst = append(dst, "; Secure"...)
	}
	if s.MaxAge > 0 {
		dst = strconv.AppendInt(append(dst, "; Max-Age="...), int64(s.MaxAge/time.Second), 10)
	}
	return dst
}
