package proxy

import "github.com/millrace/millrace/semantics"

// preflight answers a request by which a browser asks whether a script may make another one, and reports whether it was one for a
// rule with CORS. The rule is that of the request that is asked for: its method counts, not OPTIONS, which is that of x. No backend
// sees it.
func (x editor) preflight() bool {
	c, m, r := x.client, x.request, &x.w.routed
	origin, method := only(m.Fields, "origin"), only(m.Fields, "access-control-request-method")
	if origin == "" || !semantics.IsToken(method) {
		return false
	}
	r.Method = method
	n := c.listener.Table.Find(r)
	r.Method = m.Method
	if n < 0 || c.listener.Rules[n].CORS == nil {
		return false
	}
	x.rule = c.listener.Rules[n]
	x.fields = x.rule.CORS.Preflight(x.fields[:0], origin, method, only(m.Fields, "access-control-request-headers"))
	x.send(204, nil)
	return true
}

// allowOrigin gives a response what its rule's CORS says, also one that the gateway makes: scripts are to see its status.
func (x editor) allowOrigin() {
	if r := x.rule; r != nil && r.CORS != nil {
		x.fields = r.CORS.Apply(x.fields, only(x.request.Fields, "origin"))
	}
}

// only returns the value of a field with one line; "" where there is none, or several.
func only(fields []semantics.Field, name string) (value string) {
	found := false
	for i := range fields {
		if f := &fields[i]; f.Name == name {
			if found {
				return ""
			}
			value, found = f.Value, true
		}
	}
	return value
}
