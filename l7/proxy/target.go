package proxy

import (
	"strings"

	"github.com/millrace/millrace/l7/route"
	"github.com/millrace/millrace/semantics"
)

// ambiguous reports whether the backend of rule n, which a request for target matches, may take its path for one of another
// rule. Servers differ in what they decode and in whether /a//b is /a/b: where the difference would lead to a rule with
// other rights, the request is refused, since a client could choose it to get past a rule that denies.
func (ln *Listener) ambiguous(r *route.Request, n int, target string) bool {
	if ln.Table.Ambiguous(r, n) {
		return true
	}
	if n < 0 || ln.Rules[n].PathForm != RawPath {
		return false
	}
	raw, _ := semantics.SplitTarget(target)
	return ln.Table.AmbiguousRaw(r, n, raw)
}

// outgoingPath sets the path that the backend gets: all of what the rule has matched, or of what was sent, or what the rule makes
// of that. path is the normal form, query begins with the question mark or is empty.
func (x *exchange) outgoingPath(path, query string) {
	sent := x.request.Path[:len(x.request.Path)-len(query)]
	if x.rule.PathForm == RawPath {
		path = sent
	}
	switch r := x.rule.Rewrite; {
	case r != nil:
		x.target = r.Apply(&x.outgoing, x.target[:0], path, query)
	case path != sent:
		x.target = append(append(x.target[:0], path...), query...)
		x.outgoing.Path = view(x.target)
	}
}

// normalHost returns the host of a request as rules compare it, and takes the dot that ends an absolute name from its authority: a
// backend may know the name without it alone, and serve another site for it. ok is false for a name that is none, and one that a backend
// may take for another.
func normalHost(m *semantics.Message) (host string, ok bool) {
	sent := semantics.Host(m.Authority)
	if !semantics.IsPort(m.Authority[len(sent):]) {
		return "", false
	}
	m.Authority = semantics.WithoutRootDot(m.Authority, sent)
	return semantics.NormalizeHost(sent)
}

// SameName is a Listener.Serves: every host needs a connection of its own. It is for listeners that demand client
// certificates of some hosts only.
func SameName(serverName, host string) bool { return serverName == host }

// misdirects reports whether a request for a host came on a connection that does not serve it (RFC 9110 15.5.20): the
// client opens another one then. It borrows host.
func (c *clientInfo) misdirects(host string) bool {
	serves := c.listener.Serves
	if serves == nil || !c.tls || host == "" || strings.EqualFold(host, c.sni) {
		return false
	}
	if host != c.host { // the last answer is kept: a client asks for few hosts, mostly for one many times
		c.host = strings.Clone(host)
		c.misdirected = !serves(c.sni, c.host)
	}
	return c.misdirected
}
