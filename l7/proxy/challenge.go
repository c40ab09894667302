package proxy

import (
	"strings"

	"github.com/millrace/millrace/semantics"
)

// challengePath begins the paths at which authorities look for proof of control of a name (RFC 8555 8.3).
const challengePath = "/.well-known/acme-challenge/"

// acmeTLS is the protocol of ALPN by which authorities look for proof (RFC 8737 4).
const acmeTLS = "acme-tls/1"

// challenge answers the challenge of an authority, and reports whether there was one. The rules handle tokens that are not known: another
// client of ACME may have them. A token cannot be guessed (RFC 8555 8.3 asks for 128 bits).
func (x editor) challenge(path string) bool {
	m := x.request
	if !strings.HasPrefix(path, challengePath) || m.Method != "GET" && m.Method != "HEAD" {
		return false
	}
	content, ok := x.client.listener.Challenge(path)
	if !ok {
		return false
	}
	x.fields = append(x.fields[:0], semantics.Field{Name: "content-type", Value: "application/octet-stream"})
	x.send(200, []byte(content))
	return true
}
