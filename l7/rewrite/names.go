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
	plain bool        // a name of own is not plain: plain names of clients may collide with it
	begin [256]uint64 // by first byte, the lengths of names that may collide, as bits; the last bit is that of all longer ones
}

// everyGateway are the names with a hyphen that each gateway sets, removes or reads, beside those that begin with claimPrefix.
var everyGateway = newNames([]string{
	"x-real-ip", "client-cert", "client-cert-chain", "early-data", "x-forwarded-client-cert",
	"content-length", "content-type", "transfer-encoding", "keep-alive", "proxy-connection", "http2-settings", "sec-websocket-key", "sec-websocket-accept",
})

// inspected are the names with a hyphen of fields that rules of inspection read: a client that names one otherwise would have a
// backend read what no rule has seen.
var inspected = []string{
	"user-agent", "accept-charset", "accept-encoding", "accept-language", "content-disposition", "content-encoding", "content-language",
	"content-location", "content-md5", "content-range", "x-requested-with", "proxy-authorization", "soapaction",
	"accept", "authorization", "connection", "cookie", "from", "host", "origin", "range", "referer", // these have no other spelling but in trailers
}

// Inspected returns what a listener guards, beside what all do, where rules of inspection read its requests.
func Inspected() []string { return inspected }

// claimPrefix begins the names by which proxies speak of a client.
const claimPrefix = "x-forwarded-"

// NewNames returns the names of every gateway and those that rules add: in lower case, in any number of repetitions.
func NewNames(more []string) *Names { return newNames(slices.Concat(everyGateway.own, more)) }

func newNames(own []string) *Names {
	n := &Names{own: own}
	slices.Sort(n.own)
	n.own = slices.Compact(n.own)
	n.plain = slices.ContainsFunc(n.own, func(name string) bool { return !semantics.IsPlainName(name) })
	n.mayBegin(claimPrefix, ^uint64(1<<(len(claimPrefix)+1)-1))
	for _, name := range n.own {
		n.mayBegin(name, lengthBit(name))
	}
	return n
}

// mayBegin enters lengths of names that become the variable of one which begins as name does.
func (n *Names) mayBegin(name string, lengths uint64) {
	for c := range n.begin {
		if semantics.SameVariable(name[:1], string([]byte{byte(c)})) {
			n.begin[c] |= lengths
		}
	}
}

// lengthBit returns the bit of a name's length.
func lengthBit(name string) uint64 { return 1 << min(len(name), 63) }

// Collides reports whether a client's field becomes the variable of one that the gateway sets, removes or reads, under another
// name.
func (n *Names) Collides(name string) bool {
	if n == nil {
		n = everyGateway
	}
	return n.mayCollide(name) && n.collides(name)
}

// mayCollide looks at the first byte and the length: most names need no other look.
func (n *Names) mayCollide(name string) bool {
	return name != "" && n.begin[name[0]]&lengthBit(name) != 0
}

func (n *Names) collides(name string) bool {
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
	if n == nil {
		n = everyGateway
	}
	from := 0
	for i := range fields {
		if name := fields[i].Name; n.mayCollide(name) && n.collides(name) {
			dst = append(dst, fields[from:i]...)
			from = i + 1
		}
	}
	return append(dst, fields[from:]...) // mostly all at once
}

// Any reports whether a field collides.
func (n *Names) Any(fields []semantics.Field) bool {
	return slices.ContainsFunc(fields, func(f semantics.Field) bool { return n.Collides(f.Name) })
}

// Trailers removes the fields behind the content that the gateway sets, removes or reads in headers, by whatever name: a recipient
// may merge them into the header (RFC 9110 6.5.1). It changes fields in place.
func (n *Names) Trailers(fields []semantics.Field) []semantics.Field {
	if n == nil {
		n = everyGateway
	}
	return slices.DeleteFunc(fields, func(f semantics.Field) bool {
		return slices.ContainsFunc(n.own, func(own string) bool { return semantics.SameVariable(own, f.Name) })
	})
}
