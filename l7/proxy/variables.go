package proxy

import (
	ctls "crypto/tls"
	"encoding/hex"

	"github.com/millrace/millrace/l7/rewrite"
	"github.com/millrace/millrace/semantics"
)

// requestIDLen is the length of an ID that the gateway makes: 16 octets at random, in hexadecimal.
const requestIDLen = 32

// maxRequestID bounds the ID of a trusted client.
const maxRequestID = 128

// editor edits the fields of an exchange by rules with variables, and gives it its ID.
type editor struct{ *exchange }

// values returns what the variables of h stand for. They are the worker's, so that none is allocated; what they hold is valid until the
// exchange ends.
func (x editor) values(h *rewrite.Headers) *rewrite.Values {
	c, m, v := x.client, x.request, &x.w.values
	*v = rewrite.Values{
		Client: c.listener.Forwarding.Client(m.Fields, c.addr.Addr()), Peer: c.addr, Listener: c.listener.Name, Local: c.listener.Address,
		TLS: c.tls, ServerName: c.sni, Host: m.Authority, Method: m.Method, Target: m.Path, Protocol: x.caps.Protocol,
	}
	if h.Identifies {
		v.RequestID = x.requestID()
	}
	v.Path, _ = semantics.SplitTarget(m.Path)
	if c.local.IsValid() {
		v.Local = c.local
	}
	if c.version != 0 {
		v.TLSVersion = ctls.VersionName(c.version)
	}
	if r := x.rule; r != nil {
		if v.Rule = r.Name; r.Route != nil {
			v.Route = r.Route.Name
		}
	}
	if x.pooled != nil {
		v.Pool = x.pooled.Name()
	}
	if x.hold != nil {
		v.User = view(x.hold.user)
	}
	if b := x.backend; b != nil {
		v.Backend, v.BackendAddress, v.BackendPath = b.Name(), b.Address(), b.Path()
	}
	return v
}

// edit applies the edits of a rule to x.fields, with what variables stand for.
func (x editor) edit(h *rewrite.Headers) {
	if h.Dynamic {
		x.fields, x.scratch = h.Expand(x.fields, x.scratch, x.values(h))
		return
	}
	x.fields = h.Apply(x.fields)
}

// requestID returns the ID of the request, which is made when it is first asked for.
func (x editor) requestID() string {
	if len(x.id) == 0 {
		x.id = x.w.appendRequestID(x.id)
	}
	return view(x.id)
}

// appendRequestID appends a new ID.
func (w *Worker) appendRequestID(dst []byte) []byte {
	var raw [requestIDLen / 2]byte
	for i, n := 0, uint64(0); i < len(raw); i, n = i+1, n>>8 {
		if i%8 == 0 {
			n = w.random()
		}
		raw[i] = byte(n)
	}
	return hex.AppendEncode(dst, raw[:])
}

// identify gives the request its ID, in the field of the listener for it. A trusted peer, such as a proxy in front, may have given
// it one already; of others it is replaced, since logs are searched by it.
func (x editor) identify() {
	name, given := x.client.listener.RequestID, ""
	for i := range x.request.Fields {
		if f := &x.request.Fields[i]; f.Name == name {
			if given != "" {
				return // two lines: which of them counts is not known
			}
			given = f.Value
		}
	}
	if usableID(given) && x.client.listener.Forwarding.Trusts(x.client.addr.Addr()) {
		x.id = append(x.id[:0], given...)
	}
}

// usableID reports whether the ID of a client may stand in logs and fields: of a bounded length, in visible ASCII.
func usableID(s string) bool {
	if len(s) == 0 || len(s) > maxRequestID {
		return false
	}
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// setRequestID sets the field of the ID, if the listener has one.
func (x editor) setRequestID() {
	if name := x.client.listener.RequestID; name != "" {
		x.fields = rewrite.Set(x.fields, semantics.Field{Name: name, Value: x.requestID()})
	}
}
