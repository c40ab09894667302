package convert

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/millrace/millrace/l7/rewrite"
	"github.com/millrace/millrace/l7/route"
	"github.com/millrace/millrace/semantics"
)

// reserved matches the characters that names may not have.
var reserved = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// mostName leaves room for a number behind a name.
const mostName = 50

// unique returns a name of a kind that no other has, as like to the wish as names of the gateway can be.
func (m *model) unique(kind, wish string) string {
	name := strings.Trim(reserved.ReplaceAllString(wish, "-"), "-._")
	if name = name[:min(len(name), mostName)]; name == "" {
		name = kind
	}
	if m.names[kind] == nil {
		m.names[kind] = map[string]bool{}
	}
	free := name
	for i := 2; m.names[kind][free]; i++ {
		free = fmt.Sprintf("%s-%d", name, i)
	}
	m.names[kind][free] = true
	return free
}

// validHost reports whether a route can have the name.
func validHost(s string) bool { return route.CheckHost(s) == nil }

// validPath reports whether a prefix or an exact path is one that requests can have.
func validPath(kind, s string) bool {
	t := map[string]route.PathType{pathPrefix: route.PathPrefix, pathExact: route.PathExact, pathRegexp: route.PathRegexp}[kind]
	return s != "" && printable(s) && route.Path{Type: t, Value: s}.Check() == nil
}

// validReplacement reports whether a request can be given the path.
func validReplacement(s string) bool { return validPath(pathExact, s) }

// ownFields are those that filters of the gateway do not edit.
var ownFields = []string{"host", "connection", "content-length", "transfer-encoding", "keep-alive", "proxy-connection", "upgrade", "te", "trailer"}

// validField reports whether a filter can edit the field.
func validField(name string) bool {
	name = strings.ToLower(name)
	return semantics.IsName(name) && !slices.Contains(ownFields, name)
}

// validValue reports whether a value of a field, with variables, can be set.
func validValue(s string) bool {
	_, err := rewrite.ParseTemplate(s)
	return err == nil && semantics.IsValue(s) && printable(s) && len(s) <= 4096
}

// printable reports whether YAML can have the text as a scalar of one line.
func printable(s string) bool {
	return strings.ToValidUTF8(s, "") == s && strings.IndexFunc(s, func(r rune) bool { return r < ' ' && r != '\t' && r != '\n' && r != '\r' || r == 0x7f }) < 0
}

// literal returns text in which nothing stands for a variable.
func literal(s string) string { return strings.ReplaceAll(s, "${", "$${") }

// prefixOf returns an address or a prefix in the form of the gateway's lists.
func prefixOf(s string) (string, bool) {
	if a, err := netip.ParseAddr(s); err == nil {
		return a.Unmap().WithZone("").String(), a.Zone() == ""
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return "", false
	}
	return p.Masked().String(), true
}

// dnsName is a name that the gateway looks up.
var dnsName = regexp.MustCompile(`^(?:[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?\.)*[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?\.?$`)

// hostPort splits an address into host and port; without a port it has the one that is given.
func hostPort(s, port string) (host, p string, ok bool) {
	host, p = s, port
	switch i := strings.LastIndexByte(s, ':'); {
	case strings.HasPrefix(s, "["):
		end := strings.IndexByte(s, ']')
		if end < 0 {
			return "", "", false
		}
		host = s[1:end]
		if rest := s[end+1:]; rest != "" {
			if rest[0] != ':' {
				return "", "", false
			}
			p = rest[1:]
		}
	case i >= 0 && strings.Count(s, ":") == 1:
		host, p = s[:i], s[i+1:]
	case i >= 0: // a bare address of IPv6
		if _, err := netip.ParseAddr(s); err != nil {
			return "", "", false
		}
	}
	var n int
	if _, err := fmt.Sscanf(p, "%d", &n); err != nil || n < 1 || n > 65535 || fmt.Sprint(n) != p {
		return "", "", false
	}
	return host, p, true
}

// backendAddress returns the address of a server of the source in the gateway's form.
func backendAddress(s, port string) (string, bool) {
	if path, ok := strings.CutPrefix(s, "unix:"); ok {
		return "unix:" + path, strings.HasPrefix(path, "/") && len(path) <= 107 && printable(path)
	}
	host, p, ok := hostPort(s, port)
	if !ok {
		return "", false
	}
	if a, err := netip.ParseAddr(host); err == nil {
		if a.Zone() != "" || a.IsMulticast() || a.IsLinkLocalUnicast() || a.Is4In6() || a.IsUnspecified() || a == netip.AddrFrom4([4]byte{255, 255, 255, 255}) {
			return "", false
		}
		return netip.AddrPortFrom(a, uint16(atoi(p))).String(), true
	}
	last := host[strings.LastIndexByte(strings.TrimSuffix(host, "."), '.')+1:]
	return host + ":" + p, len(host) <= 253 && dnsName.MatchString(host) && strings.Trim(strings.TrimSuffix(last, "."), "0123456789") != ""
}

// named reports whether a pool has a backend by its name, which the gateway looks up.
func (p *pool) named() bool {
	return slices.ContainsFunc(p.backends, func(b backend) bool {
		host, _, ok := hostPort(b.address, "1")
		_, err := netip.ParseAddr(host)
		return ok && err != nil
	})
}

// atoi returns the number that a text has, 0 for none.
func atoi(s string) int {
	n := 0
	if len(s) > 9 {
		return 0
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0
		}
		n = n*10 + int(s[i]-'0')
	}
	return n
}

// key returns a text that pools with the same backends and settings have in common, wherever they stand in the source.
func (p *pool) key(wish string) string {
	c := *p
	c.at, c.name, c.tls, c.health, c.fast, c.backends = pos{}, "", nil, nil, nil, slices.Clone(p.backends)
	for i := range c.backends {
		c.backends[i].at = pos{}
	}
	key := fmt.Sprintf("%s|%+v", wish, c)
	if p.tls != nil {
		key += fmt.Sprintf("|%+v", *p.tls)
	}
	if p.health != nil {
		key += fmt.Sprintf("|%+v", *p.health)
	}
	if p.fast != nil {
		key += fmt.Sprintf("|%+v", *p.fast)
	}
	return key
}
