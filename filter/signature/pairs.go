package signature

import (
	"fmt"
	"slices"
)

// A rule that names a buffer which its protocol never has would load and never match. Each pair of protocol and buffer works
// or is refused by name.

// transports are the protocols of IP that carry an application protocol.
func (a App) transports() IPProtocols {
	switch a {
	case AppDNS, AppSIP, AppNFS:
		return TCP | UDP
	case AppQUIC:
		return UDP
	}
	return TCP
}

// transports are the protocols of IP that carry the protocols which have a buffer.
func (b Buffer) transports() (set IPProtocols) {
	for a := range AppUnknown {
		if a != AppAny && a.has(b) {
			set |= a.transports()
		}
	}
	return set
}

// has reports whether flows of a protocol fill the buffers of another: HTTP/2 those of HTTP, but for the reason phrase (RFC
// 9113 8.3.2).
func (a App) has(b Buffer) bool {
	switch owner := b.App(); b {
	case FileData:
		return a == AppHTTP || a == AppHTTP2 || a == AppSMTP || a == AppFTPData || a == AppSMB
	case FileName:
		return a == AppHTTP || a == AppHTTP2 || a == AppSMTP || a == AppFTPData || a == AppSMB || a == AppNFS
	case JA3Hash, JA3String, JA4Hash:
		return a == AppTLS || a == AppQUIC
	case HTTPStatMsg:
		return a == AppHTTP
	default:
		return owner == AppAny || a == owner || a == AppHTTP2 && owner == AppHTTP
	}
}

// together reports whether messages of some protocol have both buffers.
func together(a, b Buffer) bool {
	for app := range AppUnknown {
		if app != AppAny && app.has(a) && app.has(b) {
			return true
		}
	}
	return false
}

// has reports whether a part is of a buffer.
func (r *Rule) has(b Buffer) bool {
	return slices.ContainsFunc(r.Parts, func(q Part) bool { return q.Buffer == b })
}

// pairs checks the buffers of a rule against its protocol, and against each other.
func (p *ruleParser) pairs() {
	r := p.rule
	first := Payload
	if len(r.AppIs) > 0 && r.Protocol.App != AppAny {
		p.fail(0, unsupported{"app-layer-protocol of " + r.Protocol.Name})
	}
	for i := range r.Parts {
		b := r.Parts[i].Buffer
		if b >= IPSource && r.Protocol.Stream && !r.has(Payload) {
			p.fail(0, unsupported{fmt.Sprintf("%v of %s", b, r.Protocol.Name)})
			return
		}
		if b.OfPacket() {
			continue
		}
		switch app := r.Protocol.App; {
		case app != AppAny && !app.has(b), app == AppAny && r.Protocol.IP&b.transports() == 0:
			p.fail(0, unsupported{fmt.Sprintf("%v of %s", b, r.Protocol.Name)})
			return
		case first != Payload && !together(first, b):
			p.fail(0, unsupported{fmt.Sprintf("%v beside %v", b, first)})
			return
		}
		first = b
	}
}
