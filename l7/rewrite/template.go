package rewrite

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace/millrace/semantics"
)

// Template is the value of a field with variables, as "${client_address}". A dollar sign in front of a brace that stands for itself
// is written "$$".
type Template struct{ parts []part }

// part is text, or a variable.
type part struct {
	text     string
	variable variable
}

// variable names what a Template has of a request.
type variable uint8

const (
	noVariable variable = iota
	clientAddress
	peerAddress
	peerPort
	listenerName
	listenerAddress
	listenerPort
	scheme
	host
	hostname
	method
	path
	target
	protocol
	tlsVersion
	serverName
	routeName
	ruleName
	poolName
	backendName
	backendAddress
	requestID
	user
	variables
)

// variableNames are the names in templates.
var variableNames = [variables]string{
	clientAddress: "client_address", peerAddress: "peer_address", peerPort: "peer_port",
	listenerName: "listener", listenerAddress: "listener_address", listenerPort: "listener_port",
	scheme: "scheme", host: "host", hostname: "hostname", method: "method", path: "path", target: "target", protocol: "protocol", tlsVersion: "tls_version",
	serverName: "server_name", routeName: "route", ruleName: "rule", poolName: "pool", backendName: "backend", backendAddress: "backend_address",
	requestID: "request_id", user: "user",
}

// Variables returns the names of all variables.
func Variables() []string { return variableNames[1:] }

// Values are what the variables of a request stand for; what does not apply is empty.
type Values struct {
	Client            netip.Addr // of who is behind trusted proxies
	Peer              netip.AddrPort
	Listener          string
	Local             netip.AddrPort // of the listener
	TLS               bool
	TLSVersion        string
	ServerName        string
	Host, Method      string
	Path              string // as rules compare it, without query
	Target            string // as the client sent it, with query
	Protocol          string // "HTTP/2"
	Route, Rule, Pool string
	Backend           string // of responses
	BackendAddress    netip.AddrPort
	BackendPath       string // in place of the address: of a socket
	RequestID         string
	User              string // whom credentials name
}

// ParseTemplate returns the template of a value; nil where it has no variable and no "$$" and is what it is.
func ParseTemplate(s string) (*Template, error) {
	if !strings.Contains(s, "${") {
		return nil, nil
	}
	t, text := &Template{}, []byte(nil)
	flush := func() {
		if len(text) > 0 {
			t.parts, text = append(t.parts, part{text: string(text)}), nil
		}
	}
	for len(s) > 0 {
		before, rest, found := strings.Cut(s, "$")
		text = append(text, before...)
		switch {
		case !found:
		case strings.HasPrefix(rest, "${"):
			text, rest = append(text, "${"...), rest[2:]
		case !strings.HasPrefix(rest, "{"):
			text = append(text, '$')
		default:
			name, after, closed := strings.Cut(rest[1:], "}")
			v := slices.Index(variableNames[:], name)
			if !closed {
				return nil, fmt.Errorf("${%s is not closed by a brace", name)
			}
			if v <= 0 {
				return nil, fmt.Errorf("unknown variable ${%s}", name)
			}
			flush()
			t.parts, rest = append(t.parts, part{variable: variable(v)}), after
		}
		s = rest
	}
	flush()
	return t, nil
}

// Text returns a template without variables.
func Text(s string) *Template { return &Template{parts: []part{{text: s}}} }

// Identifies reports whether the template has the ID of the request.
func (t *Template) Identifies() bool {
	return t != nil && slices.ContainsFunc(t.parts, func(p part) bool { return p.variable == requestID })
}

// Append appends the value for a request.
func (t *Template) Append(dst []byte, v *Values) []byte {
	for i := range t.parts {
		if p := &t.parts[i]; p.variable == noVariable {
			dst = append(dst, p.text...)
		} else {
			dst = v.append(dst, p.variable)
		}
	}
	return dst
}

func (v *Values) append(dst []byte, of variable) []byte {
	switch of {
	case clientAddress:
		return appendAddr(dst, v.Client)
	case peerAddress:
		return appendAddr(dst, v.Peer.Addr())
	case peerPort:
		return appendPort(dst, v.Peer)
	case listenerAddress:
		return appendAddr(dst, v.Local.Addr())
	case listenerPort:
		return appendPort(dst, v.Local)
	case backendAddress:
		switch {
		case v.BackendPath != "":
			return append(append(dst, "unix:"...), v.BackendPath...)
		case v.BackendAddress.IsValid():
			return v.BackendAddress.AppendTo(dst)
		}
		return dst
	case scheme:
		if v.TLS {
			return append(dst, "https"...)
		}
		return append(dst, "http"...)
	}
	return append(dst, v.text(of)...)
}

// text returns a variable that is text.
func (v *Values) text(of variable) string {
	switch of {
	case listenerName:
		return v.Listener
	case host:
		return v.Host
	case hostname:
		return semantics.Host(v.Host)
	case method:
		return v.Method
	case path:
		return v.Path
	case target:
		return v.Target
	case protocol:
		return v.Protocol
	case tlsVersion:
		return v.TLSVersion
	case serverName:
		return v.ServerName
	case routeName:
		return v.Route
	case ruleName:
		return v.Rule
	case poolName:
		return v.Pool
	case backendName:
		return v.Backend
	case user:
		return v.User
	}
	return v.RequestID
}

// appendAddr appends an address as others know it: one of IPv4 in IPv6 form is one of IPv4.
func appendAddr(dst []byte, a netip.Addr) []byte {
	if !a.IsValid() {
		return dst
	}
	return a.Unmap().WithZone("").AppendTo(dst)
}

func appendPort(dst []byte, a netip.AddrPort) []byte {
	if !a.IsValid() {
		return dst
	}
	return strconv.AppendUint(dst, uint64(a.Port()), 10)
}

// Expand is Apply where values have variables: those go to dst, which it returns. A field whose value is empty then, or is none,
// as by a server name with control characters, is left out: in place of others it removes them.
func (h *Headers) Expand(fields []semantics.Field, dst []byte, v *Values) (out []semantics.Field, buf []byte) {
	fields = h.removed(fields)
	for i := range h.Set {
		f, ok := h.Set[i], true
		if dst, ok = expand(&f, dst, h.setTemplates, i, v); ok {
			fields = Set(fields, f)
			continue
		}
		fields = slices.DeleteFunc(fields, func(other semantics.Field) bool { return other.Name == f.Name })
	}
	for i := range h.Add {
		f, ok := h.Add[i], true
		if dst, ok = expand(&f, dst, h.addTemplates, i, v); ok {
			fields = append(fields, f)
		}
	}
	return fields, dst
}

// expand gives f the value of template i, if there is one, and reports whether the field has a value.
func expand(f *semantics.Field, dst []byte, templates []*Template, i int, v *Values) (buf []byte, ok bool) {
	if i >= len(templates) || templates[i] == nil {
		return dst, true
	}
	start := len(dst)
	dst = templates[i].Append(dst, v)
	f.Value = view(dst[start:])
	return dst, f.Value != "" && semantics.IsValue(f.Value)
}

// Compile reads the variables of values. Without it they are text. The error is that of a value that config has not checked.
func (h *Headers) Compile() error {
	var err error
	compile := func(list []semantics.Field) (out []*Template) {
		for i := range list {
			t, wrong := ParseTemplate(list[i].Value)
			if out = append(out, t); wrong != nil {
				err = wrong
			}
			h.Dynamic, h.Identifies = h.Dynamic || t != nil, h.Identifies || t.Identifies()
		}
		return out
	}
	h.setTemplates, h.addTemplates = compile(h.Set), compile(h.Add)
	return err
}
