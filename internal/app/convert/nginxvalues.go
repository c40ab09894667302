package convert

import (
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"time"
)

// scope is a block of nginx's configuration, and the one that it inherits from.
type scope struct {
	outer *scope
	list  []*directive
	names map[string][]*directive
}

func newScope(outer *scope, list []*directive) *scope {
	s := &scope{outer: outer, list: list, names: map[string][]*directive{}}
	for _, d := range list {
		s.names[d.name] = append(s.names[d.name], d)
	}
	return s
}

// own returns the directives of a name in the block itself.
func (s *scope) own(name string) []*directive { return s.names[name] }

// find returns the directives of some names in the innermost block that has any: nginx inherits lists as a whole.
func (s *scope) find(names ...string) (list []*directive) {
	for ; s != nil; s = s.outer {
		for _, d := range s.list {
			if slices.Contains(names, d.name) {
				list = append(list, d)
			}
		}
		if len(list) > 0 {
			return list
		}
	}
	return nil
}

// last returns the directive of a name that counts, nil for none.
func (s *scope) last(name string) *directive {
	if list := s.find(name); len(list) > 0 {
		return list[len(list)-1]
	}
	return nil
}

// value returns the first argument of the directive that counts.
func (s *scope) value(name string) string {
	if d := s.last(name); d != nil {
		return d.arg(0)
	}
	return ""
}

// on reports whether a switch is on.
func (s *scope) on(name string) bool { return s.value(name) == "on" }

// nginxVariables are variables with a counterpart in the gateway.
var nginxVariables = map[string]string{
	"host": "${hostname}", "http_host": "${host}", "scheme": "${scheme}", "remote_addr": "${client_address}", "binary_remote_addr": "${client_address}",
	"remote_port": "${peer_port}", "realip_remote_addr": "${peer_address}", "server_port": "${listener_port}", "server_addr": "${listener_address}",
	"request_uri": "${target}", "uri": "${path}", "document_uri": "${path}", "request_method": "${method}", "remote_user": "${user}",
	"request_id": "${request_id}", "ssl_server_name": "${server_name}", "upstream_addr": "${backend_address}", "server_protocol": "${protocol}",
	"ssl_protocol": "${tls_version}",
}

// otherForm are variables whose counterpart has another form.
var otherForm = map[string]string{
	"server_protocol": "HTTP/2 in place of HTTP/2.0", "ssl_protocol": "TLS 1.3 in place of TLSv1.3",
}

// pieces splits text with variables ("$name", "${name}") into literals and names, in turn.
func pieces(s string) (list []string) {
	text := ""
	for i := 0; i < len(s); i++ {
		if s[i] != '$' || i+1 == len(s) {
			text += s[i : i+1]
			continue
		}
		j, name := i+1, ""
		if s[j] == '{' {
			end := strings.IndexByte(s[j:], '}')
			if end < 0 {
				text += s[i : i+1]
				continue
			}
			name, j = s[j+1:j+end], j+end+1
		} else {
			for j < len(s) && (s[j] == '_' || s[j] >= '0' && s[j] <= '9' || s[j] >= 'a' && s[j] <= 'z' || s[j] >= 'A' && s[j] <= 'Z') {
				j++
			}
			name = s[i+1 : j]
		}
		if name == "" {
			text += s[i : i+1]
			continue
		}
		list, text = append(list, text, name), ""
		i = j - 1
	}
	return append(list, text)
}

// expanded is the outcome of a value with variables.
type expanded struct {
	text    string // a template of the gateway
	unknown string // the first variable without a counterpart
	differs string // why the value has another form
}

// mostExpansions bounds constants that are made of constants.
const mostExpansions = 8

// expand translates the variables of a value. Variables that `set` gives a constant are replaced by it.
func (s *scope) expand(value, serverName string) expanded { return s.expandIn(value, serverName, 0) }

func (s *scope) expandIn(value, serverName string, depth int) (e expanded) {
	value = strings.NewReplacer("$uri$is_args$args", "$request_uri", "$uri?$args", "$request_uri", "$uri?$query_string", "$request_uri").Replace(value)
	for i, p := range pieces(value) {
		if i%2 == 0 {
			e.text += literal(p)
			continue
		}
		if strings.HasSuffix(e.text, "$") { // before a variable it would be its escape
			e.unknown = "$$" + p
		}
		switch with, known := nginxVariables[p]; {
		case p == "server_name" && serverName != "":
			e.text += serverName
		case p == "proxy_add_x_forwarded_for":
			e.text += "${client_address}"
		case known:
			e.text += with
			if otherForm[p] != "" {
				e.differs = otherForm[p]
			}
		default:
			constant, ok := s.constant(p)
			if !ok || depth >= mostExpansions || len(e.text) > 4096 {
				if e.unknown == "" {
					e.unknown = "$" + p
				}
				continue
			}
			inner := s.expandIn(constant, serverName, depth+1)
			e.text += inner.text
			if e.unknown == "" {
				e.unknown = inner.unknown
			}
		}
	}
	return e
}

// constant returns what `set` gives a variable, if there is one such directive in the scope.
func (s *scope) constant(name string) (string, bool) {
	for ; s != nil; s = s.outer {
		var values []string
		for _, d := range s.own("set") {
			if d.arg(0) == "$"+name && len(d.args) == 2 {
				values = append(values, d.arg(1))
			}
		}
		if len(values) > 0 {
			return values[0], len(values) == 1
		}
	}
	return "", false
}

// plain returns a value whose variables are all constants, and whether it is one.
func (s *scope) plain(value string) (string, bool) {
	out := ""
	for depth := 0; ; depth++ {
		list := pieces(value)
		if len(list) == 1 {
			return value, true
		}
		out = ""
		for i, p := range list {
			if i%2 == 1 {
				c, ok := s.constant(p)
				if !ok || depth >= mostExpansions {
					return "", false
				}
				p = c
			}
			out += p
		}
		if len(out) > 4096 {
			return "", false
		}
		value = out
	}
}

var timePart = regexp.MustCompile(`^(\d{1,9})(ms|s|m|h|d|w|M|y)?\s*`)

var timeUnits = map[string]time.Duration{
	"": time.Second, "ms": time.Millisecond, "s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour, "w": 7 * 24 * time.Hour,
	"M": 30 * 24 * time.Hour, "y": 365 * 24 * time.Hour,
}

// nginxTime reads a time of nginx: 30s, 1h30m, 60.
func nginxTime(s string) (sum time.Duration, ok bool) {
	if s == "" {
		return 0, false
	}
	for s != "" {
		m := timePart.FindStringSubmatch(s)
		if m == nil {
			return 0, false
		}
		n, _ := strconv.ParseInt(m[1], 10, 64)
		sum += time.Duration(min(n, 10_000_000)) * timeUnits[m[2]] // longer ones are beyond what the gateway takes
		s = s[len(m[0]):]
	}
	return sum, true
}

// longest is the most that a time of the gateway can be.
const longest = 30 * 24 * time.Hour

// size reads a size of nginx: 10m, 512k, 1024.
func size(s string) (int64, bool) {
	unit := int64(1)
	if s != "" {
		switch s[len(s)-1] {
		case 'k', 'K':
			unit = 1 << 10
		case 'm', 'M':
			unit = 1 << 20
		case 'g', 'G':
			unit = 1 << 30
		}
		if unit > 1 {
			s = s[:len(s)-1]
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n * unit, err == nil && n >= 0 && n <= 1<<50/unit
}

// wholeRegexp returns a regular expression for all of a text that matches where one of nginx is found in it. Expressions that
// RE2 lacks (look-around, back references) have none.
func wholeRegexp(re string, anyCase bool) (string, bool) {
	if _, err := syntax.Parse(re, syntax.Perl); err != nil || len(re) > 2000 || !printable(re) {
		return "", false
	}
	before, after, inner := ".*", ".*", re
	if strings.Contains(re, "|") { // anchors may be of one branch
		inner = "(?:" + re + ")"
	} else {
		if strings.HasPrefix(inner, "^") {
			before, inner = "", inner[1:]
		}
		if strings.HasSuffix(inner, "$") && !strings.HasSuffix(inner, `\$`) {
			after, inner = "", inner[:len(inner)-1]
		}
	}
	if anyCase && inner != "" {
		inner = "(?i:" + inner + ")"
	}
	out := before + inner + after
	return out, validPath(pathRegexp, out)
}
