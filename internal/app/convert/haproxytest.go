package convert

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// fetchForm is the sample of a test: its name, its argument and its converters.
var fetchForm = regexp.MustCompile(`^([a-z0-9._]+)(?:\(([^)]*)\))?((?:,[a-z_]+(?:\([^)]*\))?)*)$`)

// testFlags returns the flags of a test, and the values behind them. Values from files are not ok.
func testFlags(words []string) (anyCase bool, how string, values []string, ok bool) {
	i := 1
	for ; i < len(words) && strings.HasPrefix(words[i], "-"); i++ {
		switch words[i] {
		case "-i":
			anyCase = true
		case "-m":
			i++
			how = (&line{words: words}).arg(i)
		case "-f", "-M":
			return false, "", nil, false
		case "--":
			return anyCase, how, words[i+1:], true
		}
	}
	return anyCase, how, words[min(i, len(words)):], true
}

// test translates a test of an ACL: a fetch, flags and values.
func (h *haproxy) test(p *proxy, words []string) verdict {
	if len(words) == 0 {
		return verdict{}
	}
	m := fetchForm.FindStringSubmatch(words[0])
	if m == nil {
		return verdict{}
	}
	fetch, arg := m[1], strings.ToLower(m[2])
	if c := m[3]; c != "" && c != ",lower" && c != ",field(1,:)" && c != ",host_only" {
		return verdict{}
	}
	anyCase, how, values, ok := testFlags(words)
	if !ok { // lists in files are not read: they may change
		return verdict{}
	}
	for _, suffix := range []string{"_beg", "_end", "_sub", "_reg", "_dir", "_dom", "_len", "_cnt", "_val", "_found"} {
		if rest, ok := strings.CutSuffix(fetch, suffix); ok && how == "" {
			fetch, how = rest, suffix[1:]
			break
		}
	}
	fetch = strings.TrimPrefix(fetch, "req.")
	switch {
	case h.changed(fetch, arg):
		return verdict{}
	case fetch == "ssl_fc" && len(values) == 0:
		return verdict{atoms: []atom{{tls: 1}}, known: true}
	case fetch == "always_true":
		return always
	case fetch == "always_false":
		return verdict{atoms: []atom{{never: true}}, known: true}
	case (fetch == "hdr" || fetch == "fhdr" || fetch == "hdr_host") && arg == "host", fetch == "ssl_fc_sni", fetch == "req_ssl_sni", fetch == "ssl_sni":
		return hostTest(how, values)
	case fetch == "path" || fetch == "url" || fetch == "capture.req.uri" || fetch == "pathq":
		return pathTest(how, anyCase, values)
	case fetch == "method":
		return eachValue(values, func(v string) (atom, bool) {
			return atom{match: match{method: strings.ToUpper(v)}}, validToken(v)
		})
	case fetch == "src" && (how == "" || how == "ip"):
		return sourceTest(values)
	case (fetch == "hdr" || fetch == "fhdr") && arg == "upgrade" && (len(values) == 0 || strings.EqualFold(values[0], "websocket")):
		return webSocket
	case (fetch == "hdr" || fetch == "fhdr") && arg == "connection" && len(values) == 1 && strings.EqualFold(values[0], "upgrade"): // beside Upgrade
		return always
	case (fetch == "hdr" || fetch == "fhdr") && validField(arg):
		return h.valueTest(arg, how, anyCase, values, func(c condition) match { return match{headers: []condition{c}} })
	case (fetch == "cook" || fetch == "cookie") && validToken(m[2]):
		return cookieTest(valued{name: "cookie", cookie: m[2]}, how, values)
	case (fetch == "url_param" || fetch == "urlp") && validToken(m[2]):
		return h.valueTest(m[2], how, anyCase, values, func(c condition) match { return match{query: []condition{c}} })
	}
	return verdict{}
}

func eachValue(values []string, f func(v string) (atom, bool)) (out verdict) {
	out.known = len(values) > 0 && len(values) <= mostAtoms
	for _, v := range values {
		a, ok := f(v)
		out.known = out.known && ok
		out.atoms = append(out.atoms, a)
	}
	return out
}

func sourceTest(values []string) verdict {
	var list []string
	for _, v := range values {
		p, ok := prefixOf(v)
		if !ok {
			return verdict{}
		}
		list = append(list, p)
	}
	return verdict{atoms: []atom{{match: match{clients: list}}}, known: len(list) > 0 && len(list) <= 256}
}

func hostTest(how string, values []string) verdict {
	v := verdict{known: len(values) > 0}
	var hosts []string
	for _, s := range values {
		s = strings.ToLower(s)
		if name, _, ok := strings.Cut(s, ":"); ok {
			s = name
		}
		switch how {
		case "", "str":
			hosts = append(hosts, s)
		case "end", "dom":
			bare := strings.TrimPrefix(s, ".")
			if hosts = append(hosts, "*."+bare); how == "dom" || bare == s {
				hosts = append(hosts, bare)
				v.coarse = "hosts are compared by whole labels"
			}
		default:
			return verdict{}
		}
	}
	for _, h := range hosts {
		v.known = v.known && validHost(h)
	}
	v.atoms = []atom{{hosts: hosts}}
	return v
}

func pathTest(how string, anyCase bool, values []string) verdict {
	coarse := ""
	v := eachValue(values, func(s string) (atom, bool) {
		kind, path := pathRegexp, ""
		quoted := regexp.QuoteMeta(s)
		switch how {
		case "", "str":
			kind, path = pathExact, s
		case "beg":
			kind, path = pathPrefix, s
			coarse = "a prefix ends with a segment: " + s + " does not have " + s + "x"
			if strings.HasSuffix(s, "/") {
				coarse = "the prefix " + s + " also has the path without the slash"
			}
			if s == "/" {
				coarse = ""
			}
		case "end":
			path = ".*" + quoted
		case "sub":
			path = ".*" + quoted + ".*"
		case "dir":
			path = ".*/" + strings.Trim(quoted, "/") + "(?:/.*)?"
		case "reg":
			re, ok := wholeRegexp(s, anyCase)
			return atom{match: match{kind: kind, path: re}}, ok
		default:
			return atom{}, false
		}
		if anyCase && (how == "" || how == "str" || how == "beg" && s != "/") {
			kind, path = pathRegexp, regexp.QuoteMeta(s)
			if how == "beg" {
				path += ".*"
			}
			coarse = ""
		}
		if anyCase && kind == pathRegexp && how != "reg" {
			path = "(?i:" + path + ")"
		}
		return atom{match: match{kind: kind, path: path}}, validPath(kind, path)
	})
	v.coarse = coarse
	return v
}

func (h *haproxy) valueTest(name, how string, anyCase bool, values []string, of func(condition) match) verdict {
	if how == "found" && len(values) == 0 {
		return verdict{atoms: []atom{{match: of(condition{name, ".*", true})}}, known: true}
	}
	return eachValue(values, func(s string) (atom, bool) {
		c := condition{name: name, value: s}
		quoted := regexp.QuoteMeta(s)
		ok := printable(s)
		switch how {
		case "", "str":
			if anyCase {
				c.value, c.regexp = "(?i:"+quoted+")", true
			}
		case "beg", "end", "sub":
			c.regexp = true
			c.value = map[string]string{"beg": quoted + ".*", "end": ".*" + quoted, "sub": ".*" + quoted + ".*"}[how]
			if anyCase {
				c.value = "(?i:" + c.value + ")"
			}
		case "reg":
			c.regexp = true
			c.value, ok = wholeRegexp(s, anyCase)
		default:
			return atom{}, false
		}
		return atom{match: of(c)}, ok
	})
}

// cookieTest translates a test of a cookie.
func cookieTest(c valued, how string, values []string) verdict {
	if how == "found" && len(values) == 0 || how == "" && len(values) == 0 {
		return verdict{atoms: []atom{{match: c.inCookie("[^;]*")}}, known: true}
	}
	return eachValue(values, func(s string) (atom, bool) {
		switch how {
		case "", "str":
			return atom{match: c.is(s)}, printable(s) && !strings.Contains(s, ";") && len(s) < mostPattern
		case "beg":
			return atom{match: c.inCookie(regexp.QuoteMeta(s) + "[^;]*")}, printable(s) && len(s) < mostPattern
		}
		return atom{}, false
	})
}

// quoted returns a path as an expression.
func quoted(path string) string { return regexp.QuoteMeta(path) }

// webSocket is the condition of requests that ask for WebSocket: Upgrade is of HTTP/1.1 alone.
var webSocket = verdict{atoms: []atom{{match: match{headers: []condition{{"sec-websocket-version", ".*", true}}}}}, known: true}

// segments joins a path and the prefix with a slash behind it, which are the prefix of the gateway together.
func (v verdict) segments() verdict {
	var out []atom
	coarse := v.coarse
	for _, a := range v.atoms {
		bare, slashed := strings.CutSuffix(a.match.path, "/")
		exact := func(o atom) bool {
			o.match.kind, o.match.path = a.match.kind, a.match.path
			return fmt.Sprint(o) == fmt.Sprint(a)
		}
		k := slices.IndexFunc(v.atoms, func(o atom) bool { return o.match.kind == pathExact && o.match.path == bare && exact(o) })
		if a.match.kind == pathPrefix && slashed && bare != "" && k >= 0 {
			a.match.path = bare
			out = slices.DeleteFunc(out, func(o atom) bool { return o.match.kind == pathExact && o.match.path == bare && exact(o) })
			coarse = ""
		}
		if !slices.ContainsFunc(out, func(o atom) bool {
			return o.match.kind == pathPrefix && o.match.path == a.match.path && exact(o) && a.match.kind == pathExact
		}) {
			out = append(out, a)
		}
	}
	v.atoms, v.coarse = out, coarse
	return v
}
