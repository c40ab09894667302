package fastcgi

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/millrace/millrace/semantics"
)

// Request holds what the variables of a request are made of (RFC 3875 4.1).
type Request struct {
	Script   Script
	Root     string // of the scripts at the application: DOCUMENT_ROOT
	Method   string
	Target   string // as the client sent it: REQUEST_URI
	Query    string // without the question mark
	Protocol string // of the client, as "HTTP/1.1"
	Host     string // with its port, if it has one
	Client   netip.Addr
	Port     uint16 // of the client, 0 where it is not known
	Local    netip.AddrPort
	TLS      bool
	User     string // whom credentials name; "" is none
	Fields   []semantics.Field
}

// Software is the value of SERVER_SOFTWARE.
const Software = "millrace"

// Append appends the variables as name-value pairs, but those whose names replaced reports, and CONTENT_LENGTH, which is known when the
// content is.
//
// Fields become HTTP_*, and no client can set another variable. Left out are Proxy, which programs take for their HTTP_PROXY (CVE-2016-5385),
// and names with other characters than letters, digits and hyphens: as variables they could take the place of others, and which of two
// counts differs. Content-Type and Content-Length have variables of their own.
func (r *Request) Append(dst []byte, replaced func(name string) bool) []byte {
	w := writer{dst, replaced}
	file := strings.TrimSuffix(r.Root, "/") + r.Script.Name
	w.pair("GATEWAY_INTERFACE", "CGI/1.1")
	w.pair("SERVER_SOFTWARE", Software)
	w.pair("SCRIPT_FILENAME", file)
	w.pair("SCRIPT_NAME", r.Script.Name)
	w.pair("DOCUMENT_ROOT", r.Root)
	w.pair("DOCUMENT_URI", r.Script.Name+r.Script.Info)
	w.pair("PATH_INFO", r.Script.Info)
	if r.Script.Info != "" {
		w.pair("PATH_TRANSLATED", strings.TrimSuffix(r.Root, "/")+r.Script.Info)
	}
	w.pair("REQUEST_METHOD", r.Method)
	w.pair("REQUEST_URI", r.Target)
	w.pair("QUERY_STRING", r.Query)
	w.pair("SERVER_PROTOCOL", versionOf(r.Protocol))
	w.server(r)
	if r.User != "" {
		w.pair("REMOTE_USER", r.User)
	}
	w.pair("REDIRECT_STATUS", "200") // without it a PHP that was built with force-cgi-redirect refuses to serve
	w.fields(r.Fields)               // without Host: Host may have been rewritten
	if r.Host != "" {
		w.pair("HTTP_HOST", r.Host)
	}
	return w.dst
}

// versionOf returns a version of HTTP with both digits, as RFC 3875 4.1.16 has it.
func versionOf(protocol string) string {
	if strings.Contains(protocol, ".") {
		return protocol
	}
	return protocol + ".0"
}

func has(fields []semantics.Field, name string) bool {
	for i := range fields {
		if fields[i].Name == name {
			return true
		}
	}
	return false
}

// writer appends pairs.
type writer struct {
	dst      []byte
	replaced func(name string) bool
}

func (w *writer) pair(name, value string) {
	if w.replaced == nil || !w.replaced(name) {
		w.dst = AppendPair(w.dst, name, value)
	}
}

// server appends the variables of the connection.
func (w *writer) server(r *Request) {
	name := semantics.Host(r.Host)
	if name == "" {
		name = r.Local.Addr().Unmap().String()
	}
	w.pair("SERVER_NAME", name)
	w.pair("SERVER_ADDR", r.Local.Addr().Unmap().WithZone("").String())
	w.pair("SERVER_PORT", strconv.Itoa(int(r.Local.Port())))
	w.pair("REMOTE_ADDR", r.Client.Unmap().WithZone("").String())
	if r.Port != 0 {
		w.pair("REMOTE_PORT", strconv.Itoa(int(r.Port)))
	}
	if r.TLS {
		w.pair("REQUEST_SCHEME", "https")
		w.pair("HTTPS", "on")
		return
	}
	w.pair("REQUEST_SCHEME", "http")
}

// fields appends CONTENT_TYPE and HTTP_*. Lines of one name become one variable, in their order.
func (w *writer) fields(fields []semantics.Field) {
	for i := range fields {
		f := &fields[i]
		switch {
		case f.Name == "content-length", f.Name == "host", f.Name == "proxy", !semantics.IsPlainName(f.Name), has(fields[:i], f.Name):
			continue
		case f.Name == "content-type":
			w.pair("CONTENT_TYPE", joined(fields[i:], f.Name, ", "))
			continue
		}
		separator := ", "
		if f.Name == "cookie" {
			separator = "; " // RFC 9113 8.2.3
		}
		w.pair(Variable(f.Name), joined(fields[i:], f.Name, separator))
	}
}

// joined returns the value of all lines of a name, of which the first of fields is one.
func joined(fields []semantics.Field, name, separator string) string {
	value := fields[0].Value
	for _, f := range fields[1:] {
		if f.Name == name {
			value += separator + f.Value
		}
	}
	return value
}

// Variable returns the variable of a field with a plain name.
func Variable(field string) string {
	b := append(make([]byte, 0, len("HTTP_")+len(field)), "HTTP_"...)
	for i := range len(field) {
		c := field[i]
		switch {
		case c == '-':
			c = '_'
		case c >= 'a' && c <= 'z':
			c -= 'a' - 'A'
		}
		b = append(b, c)
	}
	return string(b)
}

// IsVariable reports whether a name can be that of a variable which the operator sets.
func IsVariable(name string) bool {
	for i := range len(name) {
		c := name[i]
		if (c < 'A' || c > 'Z') && (c < '0' || c > '9' || i == 0) && c != '_' {
			return false
		}
	}
	return name != ""
}
