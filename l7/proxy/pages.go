package proxy

import (
	"net/netip"
	"slices"
	"time"
)

// Page is the content of a response of the gateway.
type Page struct {
	Type string // of the content
	Body []byte
}

// Pages are those of responses of the gateway, by status. They are not changed.
type Pages map[int]*Page

// page returns the page of a status: that of the rule comes before that of the listener.
func (x guarding) page(status int) *Page {
	if x.rule != nil {
		if p := x.rule.Pages[status]; p != nil {
			return p
		}
	}
	return x.client.listener.Pages[status]
}

// Maintenance answers requests of a route by 503.
type Maintenance struct {
	RetryAfter time.Duration  // that clients are to wait; 0 says nothing of it
	Allow      []netip.Prefix // clients who are served all the same
}

// serves reports whether a client is served.
func (m *Maintenance) serves(client netip.Addr) bool {
	return m == nil || slices.ContainsFunc(m.Allow, func(p netip.Prefix) bool { return p.Contains(client.Unmap().WithZone("")) })
}
