package config

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/millrace/millrace/internal/strictyaml"
	"github.com/millrace/millrace/l7/rewrite"
	"github.com/millrace/millrace/l7/route"
	"github.com/millrace/millrace/semantics"
)

// named indexes the names that routes refer to.
type named struct {
	listeners, pools map[string]int // index by name
	listenerNames    []string
	poolNames        []string
}

func namesOf(c *Config) *named {
	n := &named{listeners: map[string]int{}, pools: map[string]int{}}
	for i := range c.Listeners {
		n.listeners[c.Listeners[i].Name] = i
	}
	for i := range c.Pools {
		n.pools[c.Pools[i].Name] = i
	}
	n.listenerNames, n.poolNames = slices.Sorted(maps.Keys(n.listeners)), slices.Sorted(maps.Keys(n.pools))
	return n
}

// checkRoutes reports what of routes does not fit together, nor with listeners and pools.
func (d *checker) checkRoutes(c *Config) {
	known, lines := namesOf(c), map[string]int{}
	for i := range c.Routes {
		r, at := &c.Routes[i], &d.places.routes[i]
		d.unique(lines, r.Name, at.name, "route")
		d.checkParents(c, known, r.Listeners, at, ListenerHTTP, ListenerHTTPS)
		d.checkHosts(r.Hostnames, at.hostnames, "hostname")
		rules := map[string]int{}
		for j := range r.Rules {
			d.unique(rules, r.Rules[j].Name, at.rules[j].name, "rule")
			d.checkRule(c, known, r, &r.Rules[j], &at.rules[j])
			d.noteFiles(c, nil, at.rules[j].files)
		}
	}
	for i := range c.TLSRoutes {
		d.checkStreamRoute(c, known, lines, &c.TLSRoutes[i], &d.places.tlsRoutes[i], ListenerPass)
	}
	taken := map[string]int{}
	for i := range c.TCPRoutes {
		r, at := &c.TCPRoutes[i], &d.places.tcpRoutes[i]
		d.checkStreamRoute(c, known, lines, r, at, ListenerTCP)
		for _, l := range r.listenersOf(c, ListenerTCP) {
			if line, ok := taken[l]; ok {
				d.Fail(at.node, "a TCP listener has one route", "listener %q is already that of the route on line %d", l, line)
				continue
			}
			taken[l] = at.node.Line
		}
	}
}

func (d *checker) checkStreamRoute(c *Config, known *named, lines map[string]int, r *StreamRoute, at *routePlace, protocol ListenerProtocol) {
	d.unique(lines, r.Name, at.name, "route")
	d.checkParents(c, known, r.Listeners, at, protocol)
	d.checkHosts(r.Hostnames, at.hostnames, "hostname")
	d.checkJA4(r.JA4, at.node)
	d.checkRefs(c, known, r.BackendRefs, at.refs, func(p PoolProtocol) bool { return p == PoolTCP },
		fmt.Sprintf("listeners with protocol %s lead to pools with `protocol: TCP`", protocol))
}

// checkParents reports listeners of a route that are not there, or speak another protocol.
func (d *checker) checkParents(c *Config, known *named, list []string, at *routePlace, protocols ...ListenerProtocol) {
	for i, name := range list {
		j, ok := known.listeners[name]
		switch {
		case !ok:
			d.Fail(at.listeners[i], d.nearest(name, known.listenerNames), "unknown listener %q", name)
		case !slices.Contains(protocols, c.Listeners[j].Protocol) && c.Listeners[j].Protocol != "":
			d.Fail(at.listeners[i], "", "listener %q is %s, which these routes are not for", name, c.Listeners[j].Protocol)
		}
	}
	if len(list) > 0 || len(c.Listeners) == 0 {
		return
	}
	for i := range c.Listeners {
		if p := c.Listeners[i].Protocol; slices.Contains(protocols, p) || p == "" {
			return
		}
	}
	d.Fail(at.node, "", "there is no listener for this route: none is %s", orProtocols(protocols))
}

func orProtocols(list []ListenerProtocol) string {
	var words []string
	for _, p := range list {
		words = append(words, string(p))
	}
	return strings.Join(words, " or ")
}

func (d *checker) checkHosts(list []string, at []*yaml.Node, what string) {
	lines := map[string]int{}
	for i, h := range list {
		if err := route.CheckHost(h); err != nil {
			d.Fail(at[i], "such as example.org or *.example.org, without a port", "%s %q is not a name of a host", what, h)
			continue
		}
		d.unique(lines, h, at[i], what)
	}
}

func (d *checker) checkRule(c *Config, known *named, r *Route, u *Rule, at *rulePlace) {
	for i := range u.Matches {
		d.checkMatch(&u.Matches[i], &at.matches[i])
	}
	answers := d.checkFilters(u, at)
	checkConnectUDP(d, c, r, u, at, answers)
	checkWebTransport(d, c, known, r, u, at)
	switch {
	case answers != nil && u.Static != nil:
		d.Fail(at.static, "leave one of them out", "static is not used: the filter on line %d answers", answers.Line)
	case answers == nil && len(u.BackendRefs) == 0 && u.Static == nil && u.ConnectUDP == nil:
		d.Fail(at.node, "add backend_refs, static, or a filter that answers: RequestRedirect or FixedResponse", "a rule of route %q leads nowhere", r.Name)
	case answers != nil && len(at.refs) > 0:
		d.Fail(at.refs[0], "leave one of them out", "backend_refs are not used: the filter on line %d answers", answers.Line)
	}
	d.checkRefs(c, known, u.BackendRefs, at.refs, func(p PoolProtocol) bool { return p != PoolTCP }, "requests go to pools that speak HTTP")
	for i, ref := range u.BackendRefs {
		if j, ok := known.pools[ref.Name]; ok && len(r.Upgrades) > 0 && !c.Pools[j].Protocol.IsHTTP1() && c.Pools[j].Protocol != PoolTCP {
			d.Fail(at.refs[i], "leave upgrades out, or give the pool `protocol: HTTP` or HTTPS", "pool %q speaks %s, which has no Upgrade: route %q has upgrades", ref.Name, c.Pools[j].Protocol, r.Name)
		}
	}
	for i := range u.Filters {
		if f := &u.Filters[i]; r.ForwardPath == ForwardRaw && f.Type == FilterRewrite && f.Path != nil && f.Path.Type == ReplaceRegexMatch {
			d.Fail(at.filters[i], "leave forward_path out", "ReplaceRegexMatch is for paths as rules compare them, and route %q has `forward_path: raw`", r.Name)
		}
	}
	d.checkMirror(c, known, u, at)
	if i := mixedSticky(c, known, u); i > 0 {
		d.Fail(at.refs[i], "give all pools of the rule the same sticky, or none", "pool %q has another sticky than %q", u.BackendRefs[i].Name, u.BackendRefs[0].Name)
	}
	if t := &u.Timeouts; t.Request > 0 && t.BackendRequest > t.Request {
		d.Fail(at.timeouts, "", "backend_request %v is longer than request %v", t.BackendRequest, t.Request)
	}
}

// checkMirror reports a pool for copies that is not there, or that cannot have them.
func (d *checker) checkMirror(c *Config, known *named, u *Rule, at *rulePlace) {
	for i := range u.Filters {
		f := &u.Filters[i]
		if f.Type != FilterMirror || f.Pool == "" {
			continue
		}
		switch j, ok := known.pools[f.Pool]; {
		case !ok:
			d.Fail(at.filters[i], d.nearest(f.Pool, known.poolNames), "unknown pool %q", f.Pool)
		case c.Pools[j].Protocol == PoolTCP:
			d.Fail(at.filters[i], "requests go to pools that speak HTTP", "pool %q speaks %s", f.Pool, c.Pools[j].Protocol)
		case c.Pools[j].ProxyProtocol != ProxyNone:
			d.Fail(at.filters[i], "leave proxy_protocol out", "connections of pool %q belong to one client each, and a copy outlives its client", f.Pool)
		}
	}
}

// mixedSticky returns the first of a rule's pools that has another cookie than the first pool, 0 for none: a session has one
// cookie for the pools of a rule.
func mixedSticky(c *Config, known *named, u *Rule) int {
	for i, r := range u.BackendRefs {
		first, ok := known.pools[u.BackendRefs[0].Name]
		other, okToo := known.pools[r.Name]
		if ok && okToo && !reflect.DeepEqual(c.Pools[first].Sticky, c.Pools[other].Sticky) {
			return i
		}
	}
	return 0
}

// checkRefs reports pools that are not there, do not fit or have no share.
func (d *checker) checkRefs(c *Config, known *named, list []BackendRef, at []*yaml.Node, fits func(PoolProtocol) bool, why string) {
	lines, weights := map[string]int{}, 0
	for i, r := range list {
		weights += r.Weight
		j, ok := known.pools[r.Name]
		switch {
		case r.Name == "":
			weights++ // the entry could not be read
		case !ok:
			d.Fail(at[i], d.nearest(r.Name, known.poolNames), "unknown pool %q", r.Name)
		case !fits(c.Pools[j].Protocol):
			d.Fail(at[i], why, "pool %q speaks %s", r.Name, c.Pools[j].Protocol)
		}
		d.unique(lines, r.Name, at[i], "pool")
	}
	if len(list) > 0 && weights == 0 {
		d.Fail(at[0], "", "all weights are 0: no pool takes anything")
	}
}

var ja4Form = regexp.MustCompile(`^[tqd][0-9a-z]{9}_[0-9a-f]{12}_[0-9a-f]{12}$`)

func (d *checker) checkMatch(m *Match, at *matchPlace) {
	if err := m.Path.compiled().Check(); err != nil {
		hint := "begin with a slash: no query, no host"
		if m.Path.Type == MatchRegexp {
			hint = "RE2: https://github.com/google/re2/wiki/Syntax"
		}
		d.Fail(at.path, hint, "%s", plainError(err))
	}
	if m.Method != "" && !semantics.IsToken(m.Method) {
		d.Fail(at.method, "such as GET", "method %q is none", m.Method)
	} else if up := strings.ToUpper(m.Method); up != m.Method {
		d.Fail(at.method, "write "+up, "method %q has lower-case letters: methods are told apart by case", m.Method)
	}
	for i := range m.Headers {
		if n := m.Headers[i].Name; n != "" && !semantics.IsName(n) {
			d.Fail(at.headers[i], "", "%q is not a name of a field", n)
		}
		d.checkValue(&m.Headers[i], at.headers[i])
	}
	for i := range m.QueryParams {
		d.checkValue(&m.QueryParams[i], at.query[i])
	}
	d.checkHosts(m.SNI, at.sni, "sni")
	d.checkJA4(m.JA4, at.node)
}

func (d *checker) checkJA4(list []string, at *yaml.Node) {
	for _, s := range list {
		if !ja4Form.MatchString(s) {
			d.Fail(at, "such as t13d1516h2_8daaf6152771_e5627efa2ab1", "%q is not a fingerprint JA4", s)
		}
	}
}

func (d *checker) checkValue(v *ValueMatch, at *yaml.Node) {
	one := v.compiled()
	if err := one.Check(); err != nil {
		d.Fail(at, "RE2: https://github.com/google/re2/wiki/Syntax", "%s", plainError(err))
	}
}

// plainError returns an error of package route in words of the file.
func plainError(err error) string {
	return strings.Replace(err.Error(), "error parsing regexp: ", "", 1)
}

// checkFilters reports filters that exclude each other, as in Gateway API, and returns the one that answers.
func (d *checker) checkFilters(u *Rule, at *rulePlace) (answers *yaml.Node) {
	lines := map[FilterType]int{}
	for i := range u.Filters {
		f, n := &u.Filters[i], at.filters[i]
		if line, ok := lines[f.Type]; ok && f.Type != "" {
			d.Fail(n, "put both into one", "%s is already on line %d", f.Type, line)
			continue
		}
		lines[f.Type] = n.Line
		if f.Answers() {
			if answers != nil {
				d.Fail(n, "leave one of them out", "%s does not go with the filter on line %d: either answers", f.Type, answers.Line)
			}
			answers = n
		}
		if f.Path != nil && f.Path.Type == ReplacePrefixMatch && !prefixOnly(u.Matches) {
			d.Fail(n, "make all matches of the rule `type: PathPrefix`", "ReplacePrefixMatch needs a prefix that matched")
		}
	}
	if line, ok := lines[FilterRewrite]; ok && answers != nil {
		d.Fail(answers, "leave one of them out", "a filter that answers does not go with the URLRewrite on line %d", line)
	}
	return answers
}

// prefixOnly reports whether all matches are of a prefix; without any the prefix is "/".
func prefixOnly(list []Match) bool {
	return !slices.ContainsFunc(list, func(m Match) bool { return m.Path.Type != MatchPrefix })
}

// redirects are the codes of RequestRedirect (RFC 9110 15.4).
var redirects = []int{301, 302, 303, 307, 308}

// checkFilter reports keys that are not for the filter's type, and what is missing. It fills in defaults.
func (d *l7Decoder) checkFilter(f *Filter, k keyPlaces) {
	if f.Type == "" {
		return
	}
	for key, types := range filterKeys {
		if n := k[key]; n != nil && !slices.Contains(types, f.Type) {
			d.Fail(n, "", "%s is not for %s", key, f.Type)
		}
	}
	switch f.Type {
	case FilterRedirect:
		if f.Status == 0 {
			f.Status = 302
		}
		if !slices.Contains(redirects, f.Status) {
			d.Fail(k.at("status_code"), "allowed: 301, 302, 303, 307, 308", "status_code of a redirect cannot be %d", f.Status)
		}
		parts := 0
		for _, key := range []string{"scheme", "hostname", "path", "port"} {
			if k[key] != nil {
				parts++
			}
		}
		switch {
		case parts == 0 && k["location"] == nil:
			d.Fail(k[""], "say what changes: scheme, hostname, path or port, or a location", "the redirect leads to where the request was")
		case parts > 0 && k["location"] != nil:
			d.Fail(k["location"], "leave the others out", "location has all of the URL: scheme, hostname, path and port do not go with it")
		}
	case FilterRewrite:
		if k["hostname"] == nil && k["path"] == nil {
			d.Fail(k[""], "say what changes: hostname or path", "URLRewrite changes nothing")
		}
	case FilterCORS:
		d.checkCORS(f, k)
	case FilterMirror:
		if k["pool"] == nil {
			d.Fail(k[""], "name the pool that gets the copies", "RequestMirror lacks the key \"pool\"")
		}
	case FilterFixed:
		if f.Status == 0 {
			f.Status = 200
		}
		if f.Body != "" && (f.Status == 204 || f.Status == 205 || f.Status == 304) {
			d.Fail(k["body"], "", "a response with status %d has no content", f.Status)
		}
	default:
		if len(f.Set)+len(f.Add)+len(f.Remove) == 0 && k["set"] == nil && k["add"] == nil && k["remove"] == nil {
			d.Fail(k[""], "say what changes: set, add or remove", "%s changes nothing", f.Type)
		}
	}
}

// ownFields are fields that a filter cannot edit: they say how the message is framed and routed.
var ownFields = []string{"host", "connection", "content-length", "transfer-encoding", "keep-alive", "proxy-connection", "upgrade", "te", "trailer"}

// editable reads a name of a field that a filter may edit.
func (d *l7Decoder) editable(n *yaml.Node, to *string) {
	var s string
	if !d.Text(n, "name", &s) {
		return
	}
	s = strings.ToLower(s)
	switch {
	case !semantics.IsName(s):
		d.Fail(n, "", "%q is not a name of a field", s)
	case s == "host":
		d.Fail(n, "URLRewrite with hostname changes the host", "a filter cannot edit %s", s)
	case slices.Contains(ownFields, s):
		d.Fail(n, "", "a filter cannot edit %s: the gateway writes it", s)
	default:
		*to = s
	}
}

func (d *l7Decoder) headers(n *yaml.Node, what string) (list []Header) {
	lines := map[string]int{}
	d.List(n, what, maxEdits, func(n *yaml.Node) {
		var h Header
		var at *yaml.Node
		d.Mapping(n, "an entry of "+what,
			strictyaml.Required("name", func(n *yaml.Node) { at = n; d.editable(n, &h.Name) }),
			strictyaml.Required("value", func(n *yaml.Node) {
				if d.scalar(n, "value", &h.Value); !semantics.IsValue(h.Value) {
					d.Fail(n, "no control characters, and no white space at the ends", "%q is not a value of a field", h.Value)
				}
				if _, err := rewrite.ParseTemplate(h.Value); err != nil {
					d.Fail(n, strictyaml.Allowed(rewrite.Variables())+"; $${ stands for itself", "%s", err)
				}
			}),
		)
		d.unique(lines, h.Name, at, "field")
		list = append(list, h)
	})
	return list
}

func (d *l7Decoder) removed(n *yaml.Node, f *Filter) {
	d.OneOrMore(n, "remove", maxEdits, func(n *yaml.Node) {
		var s string
		if d.editable(n, &s); s != "" {
			f.Remove = append(f.Remove, s)
		}
	})
}

// checkReplacement reports a path that no request could have.
func (d *l7Decoder) checkReplacement(m *PathModifier, n *yaml.Node) {
	if n == nil || m.Value == "" {
		return
	}
	if path, _, err := semantics.NormalizePath(nil, m.Value); m.Value[0] != '/' || err != nil || path != m.Value || strings.ContainsAny(m.Value, "?#") {
		d.Fail(n, "begin with a slash: no query, no host", "%q is not a path", m.Value)
	}
}

// oneHost reads a name of a host without a wildcard.
func (d *l7Decoder) oneHost(n *yaml.Node, to *string) {
	var s string
	if !d.Text(n, "hostname", &s) {
		return
	}
	if s = strings.ToLower(s); errors.Is(route.CheckHost(s), route.ErrHost) || strings.HasPrefix(s, "*.") {
		d.Fail(n, "such as example.org, without a port", "%q is not a name of a host", s)
		return
	}
	*to = s
}

// token reads a token (RFC 9110 5.6.2), such as the name of a cookie.
func (d *l7Decoder) token(n *yaml.Node, what string, to *string) {
	var s string
	if d.describeText(n, what, to) || !d.Text(n, what, &s) {
		return
	}
	if !semantics.IsToken(s) {
		d.Fail(n, "letters, digits and - _ .", "%s %q is not a token", what, s)
		return
	}
	*to = s
}

// describeText is Text of a decoder that describes: its default is that of to.
func (d *l7Decoder) describeText(_ *yaml.Node, _ string, to *string) bool {
	return d.Takes(strictyaml.Schema{Type: "string", Title: "text", Default: *to})
}
