package signature

import (
	"bytes"
	"fmt"
	"slices"
	"unicode"
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

// earliestEnd returns the least number of bytes that there are up to the end of a content, where the one before it ends at that at the
// earliest.
func (c *Content) earliestEnd(before int) int {
	switch {
	case c.Relative && c.DistanceVar == 0:
		return max(before+c.Distance, 0) + len(c.Bytes)
	case !c.Relative && c.OffsetVar == 0:
		return c.Offset + len(c.Bytes)
	}
	return len(c.Bytes)
}

// check returns what makes the tests of a part fail in every buffer.
func (q *Part) check() error {
	if q.Absent && q.OrElse != (len(q.Tests) > 0) {
		return fmt.Errorf("%v is absent, so nothing is in it; absent:or_else is followed by what may be in it", q.Buffer)
	}
	most, least, end := uint64(1<<62), 0, 0 // end: where the content before ends at the earliest
	for i := range q.Tests {
		switch t := &q.Tests[i]; t.Kind {
		case TestSize:
			if !t.Size.Not {
				most = min(most, t.Size.High)
			}
		case TestContent:
			c := t.Content
			if c.Not {
				continue
			}
			if q.Buffer == HTTPHost && !c.NoCase && bytes.ContainsFunc(c.Bytes, unicode.IsUpper) {
				return fmt.Errorf("%v is in lower case, and %q is not: write it so, or add nocase", q.Buffer, c.Bytes)
			}
			end = c.earliestEnd(end)
			least = max(least, end)
		case TestPattern, TestBase64:
			end = 0
		case TestByte, TestExtract, TestMath, TestJump:
			if t.Kind == TestJump {
				end = 0 // it goes anywhere
			}
			if n := t.Number; n.Offset < 0 && !n.Relative && n.OffsetVar == 0 {
				return fmt.Errorf("offset %d is before the begin of the buffer; it is behind another test with relative", n.Offset)
			}
		case TestIsDataAt:
			if d := t.IsDataAt; d.At < 0 && !d.Relative && d.Var == 0 {
				return fmt.Errorf("isdataat %d is before the begin of the buffer", d.At)
			}
		}
	}
	if uint64(least) > most {
		return fmt.Errorf("a buffer of at most %d bytes has no content that ends at byte %d", most, least)
	}
	return nil
}
