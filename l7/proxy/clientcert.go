package proxy

import (
	"slices"

	"github.com/millrace/millrace/l7/rewrite"
	"github.com/millrace/millrace/semantics"
)

// withoutCert removes what a request says of the client's certificate itself (RFC 9440 2.4): backends trust these fields as they
// trust the handshake, so that a client must not be able to set them. Those of the gateway follow behind.
func (c *clientInfo) withoutCert(fields []semantics.Field) []semantics.Field {
	for i := range fields {
		if rewrite.IsCertName(fields[i].Name) { // most requests have none, and cost no copy
			if c.certFields != nil || !c.listener.Forwarding.Trusts(c.addr.Addr()) {
				fields = slices.DeleteFunc(fields, func(f semantics.Field) bool { return rewrite.IsCertName(f.Name) })
			}
			break
		}
	}
	return fields
}

// passedFields appends the fields of a request that the listener passes on: without those whose names collide with
// fields that the gateway sets or removes (X_Forwarded_For), since CGI makes one variable of both.
func (c *clientInfo) passedFields(dst, fields []semantics.Field) []semantics.Field {
	if c.listener.Colliding == AllowColliding {
		return append(dst, fields...)
	}
	return c.listener.Names.Append(dst, fields)
}
