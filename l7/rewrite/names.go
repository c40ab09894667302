package rewrite

import (
	"slices"
	"strings"

	"github.com/millrace/millrace/semantics"
)

// Names are the fields of requests that a gateway sets, removes or reads. A client must not name one of them otherwise: programs
// that read fields as variables take X_Real_IP for X-Real-IP (semantics.SameVariable), and believe the client what only the gateway
// may say. Names are not changed once they are made. The nil pointer has those of every gateway alone.
type Names struct {
	own   []string
	plain bool // a name of own is not plain: plain names of clients may collide with it
}

// everyGateway are the names with a hyphen that each gateway sets, removes or reads, beside those that begin with claimPrefix.
var everyGateway = Names{own: []string{
	"x-real-ip", "client-cert", "client-cert-chain", "early-data", "x-forwarded-client-cert",
	"content-length", "content-type", "transfer-encoding", "keep-alive", "proxy-connection", "http2-settings", "sec-websocket-key", "sec-websocket-accept",
}}

// claimPrefix begins the names by which proxies speak of a client.
const claimPrefix = "x-forwarded-"

// NewNames returns the names of every gateway and those that rules add: in lower case, in any number of repetitions.
func NewNames(more []string) *Names {
	n := &Names{own: slices.Concat(everyGateway.own, more)}
	slices.Sort(n.own)
	n.own = slices.Compact(n.own)
	n.plain = slices.ContainsFunc(n.own, func(name string) bool { return !semantics.IsPlainName(name) })
	return n
}

// Collides reports whether a client's field becomes the variable of one that the gateway sets, removes or reads, under another
// name.
func (n *Names) Collides(name string) bool {
	if n == nil {
		n = &everyGateway
	}
	if semantics.IsPlainName(name) && !n.plain {
		return false
	}
	if len(name) > len(claimPrefix) && !strings.HasPrefix(name, claimPrefix) && semantics.SameVariable(name[:len(claimPrefix)], claimPrefix) {
		return true
	}
	for _, own := range n.own {
		if own != name && semantics.SameVariable(own, name) {
			return !slices.Contains(n.own, name)
		}
	}
	return false
}

// Append appends the fields of a request but those that collide.
func (n *Names) Append(dst, fields []semantics.Field) []semantics.Field {
	for i := range fields {
		if !n.Collides(fields[i].Name) {
			dst = append(dst, fields[i])
		}
	}
	return dst
}

// Any reports whether a field collides.
func (n *Names) Any(fields []semantics.Field) bool {
	return slices.ContainsFunc(fields, func(f semantics.Field) bool { return n.Collides(f.Name) })
}

// Trailers removes the fields behind the content that the gateway sets, removes or reads in headers, by whatever name: a recipient
// may merge them into the header (RFC 9110 6.5.1). It changes fields in place.
func (n *Names) Trailers(fields []semantics.Field) []semantics.Field {
	if n == nil {
		n = &everyGateway
	}
	return slices.DeleteFunc(fields, func(f semantics.Field) bool {
		return slices.ContainsFunc(n.own, func(own string) bool { return semantics.SameVariable(own, f.Name) })
	})
}
