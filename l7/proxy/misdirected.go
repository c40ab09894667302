package proxy

import "strings"

// SameName is a Listener.Serves: every host needs a connection of its own.
func SameName(serverName, host string) bool { return serverName == host }

// misdirects reports whether a request for a host came on a connection that does not serve it (RFC 9110 15.5.20): the
// client opens another one then. It borrows host.
func (c *clientInfo) misdirects(host string) bool {
	serves := c.listener.Serves
	if serves == nil || !c.tls || host == "" || strings.EqualFold(host, c.sni) {
		return false
	}
	if host != c.host {
		c.host = strings.Clone(host)
		c.misdirected = !serves(c.sni, c.host)
	}
	return c.misdirected
}
