package config

import (
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/millrace/millrace/internal/strictyaml"
	"github.com/millrace/millrace/l7/rewrite"
	"github.com/millrace/millrace/semantics"
)

// routePlace is where the parts of a route stand that are compared with others, also of one of streams.
type routePlace struct {
	node, name *yaml.Node
	listeners  []*yaml.Node
	hostnames  []*yaml.Node
	upgrades   *yaml.Node
	guard      guardPlace
	waf        wafPlace
	inspection routeInspectionPlace
	rules      []rulePlace
	refs       []*yaml.Node // of streams
}

type rulePlace struct {
	node, name *yaml.Node
	matches    []matchPlace
	filters    []*yaml.Node
	refs       []*yaml.Node
	timeouts   *yaml.Node
	static     *yaml.Node
	cache      *yaml.Node
	cacheName  *yaml.Node
	udp        *yaml.Node
	sessions   *yaml.Node
	files      []filePlace
}

type matchPlace struct {
	node, path, method *yaml.Node
	headers, query     []*yaml.Node
	sni                []*yaml.Node
}

func (d *l7Decoder) routes(n *yaml.Node, c *Config) {
	d.List(n, "routes", maxRoutes, func(n *yaml.Node) {
		r := Route{ForwardPath: ForwardNormalized, ExpectContinue: ExpectAnswer, Sources: Sources{Default: "allow"}}
		at := routePlace{node: n}
		d.Mapping(n, "a route", append(guardDecoder{d}.guardFields(&r, &at.guard),
			strictyaml.Required("name", func(n *yaml.Node) { at.name = n; d.name(n, "name", &r.Name) }),
			strictyaml.Optional("listeners", func(n *yaml.Node) { r.Listeners, at.listeners = d.references(n, "listeners") }),
			strictyaml.Optional("hostnames", func(n *yaml.Node) { d.hostnames(n, "hostnames", &r.Hostnames, &at.hostnames) }),
			strictyaml.Optional("forward_path", func(n *yaml.Node) {
				strictyaml.Choice(d.Decoder, n, "forward_path", &r.ForwardPath, ForwardNormalized, ForwardRaw)
			}),
			strictyaml.Optional("expect_continue", func(n *yaml.Node) {
				strictyaml.Choice(d.Decoder, n, "expect_continue", &r.ExpectContinue, ExpectAnswer, ExpectForward)
			}),
			strictyaml.Optional("upgrades", func(n *yaml.Node) { d.upgrades(n, &r, &at) }),
			wafDecoder{d}.key(&r.WAF, &at.waf),
			routeInspectionDecoder{d}.key(&r.Inspection, &at.inspection),
			strictyaml.Required("rules", func(n *yaml.Node) { d.rules(n, &r, &at) }),
		)...)
		c.Routes = append(c.Routes, r)
		d.places.routes = append(d.places.routes, at)
	})
}

// upgrades reads protocols that clients may change to, in lower case. A name may have a version (RFC 9110 7.8).
func (d *l7Decoder) upgrades(n *yaml.Node, r *Route, at *routePlace) {
	at.upgrades = n
	lines := map[string]int{}
	d.OneOrMore(n, "upgrades", 16, func(n *yaml.Node) {
		s := ""
		if !d.Text(n, "upgrades", &s) {
			return
		}
		name, version, hasVersion := strings.Cut(s, "/")
		switch s = strings.ToLower(s); {
		case !semantics.IsToken(name) || hasVersion && !semantics.IsToken(version):
			d.Fail(n, "such as tcp", "%q is not a protocol of Upgrade", s)
		case s == "websocket":
			d.Fail(n, "leave it out", "WebSocket is passed on without being named")
		case s == "h2c" || s == "h2" || strings.HasPrefix(s, "http/"):
			d.Fail(n, "clients may begin with HTTP/2 (`versions`), and backends speak it with `protocol: H2C`", "%s cannot be passed on: requests would reach the backend past every rule", s)
		default:
			d.unique(lines, s, n, "protocol")
			r.Upgrades = append(r.Upgrades, s)
		}
	})
}

func (d *l7Decoder) rules(n *yaml.Node, r *Route, at *routePlace) {
	d.List(n, "rules", maxRules, func(n *yaml.Node) {
		u, p := newRule(), rulePlace{node: n}
		d.Mapping(n, "a rule",
			strictyaml.Optional("name", func(n *yaml.Node) { p.name = n; d.name(n, "name", &u.Name) }),
			strictyaml.Optional("matches", func(n *yaml.Node) { d.matches(n, &u, &p) }),
			strictyaml.Optional("filters", func(n *yaml.Node) { d.filters(n, &u, &p) }),
			strictyaml.Optional("backend_refs", func(n *yaml.Node) { u.BackendRefs, p.refs = d.backendRefs(n) }),
			strictyaml.Optional("static", func(n *yaml.Node) { p.static = n; u.Static = newStatic(); d.static(n, u.Static, &p) }),
			strictyaml.Optional("cache", func(n *yaml.Node) { u.Cache = newRuleCache(); cacheDecoder{d}.ruleCache(n, u.Cache, &p) }),
			udpDecoder{d}.key(&u, &p),
			sessionDecoder{d}.key(&u, &p),
			strictyaml.Optional("timeouts", func(n *yaml.Node) {
				p.timeouts = n
				t := &u.Timeouts
				d.Mapping(n, "timeouts", d.timeout("request", &t.Request), d.timeout("backend_request", &t.BackendRequest))
			}),
			strictyaml.Optional("retry", func(n *yaml.Node) { d.retry(n, &u.Retry) }),
			strictyaml.Optional("early_hints", func(n *yaml.Node) {
				d.eachText(n, "early_hints", 32, func(n *yaml.Node, text string) {
					if !strings.HasPrefix(text, "<") || !strings.Contains(text, ">") || !semantics.IsValue(text) {
						d.Fail(n, "such as </style.css>; rel=preload; as=style", "early_hints has no value of Link: %q", text)
					}
					u.EarlyHints = append(u.EarlyHints, text)
				})
			}),
		)
		if u.Name == "" {
			u.Name = strconv.Itoa(len(r.Rules) + 1)
		}
		r.Rules, at.rules = append(r.Rules, u), append(at.rules, p)
	})
}

func (d *l7Decoder) matches(n *yaml.Node, u *Rule, at *rulePlace) {
	d.List(n, "matches", maxMatches, func(n *yaml.Node) {
		m, p := newMatch(), matchPlace{node: n}
		d.Mapping(n, "a match",
			strictyaml.Optional("path", func(n *yaml.Node) {
				p.path = n
				d.Mapping(n, "path",
					strictyaml.Optional("type", func(n *yaml.Node) {
						strictyaml.Choice(d.Decoder, n, "type", &m.Path.Type, MatchPrefix, MatchExact, MatchRegexp)
					}),
					strictyaml.Optional("value", func(n *yaml.Node) { p.path = n; d.Text(n, "value", &m.Path.Value) }))
			}),
			strictyaml.Optional("method", func(n *yaml.Node) { p.method = n; d.Text(n, "method", &m.Method) }),
			strictyaml.Optional("headers", func(n *yaml.Node) { m.Headers, p.headers = d.valueMatches(n, "headers", strings.ToLower) }),
			strictyaml.Optional("query_params", func(n *yaml.Node) {
				m.QueryParams, p.query = d.valueMatches(n, "query_params", func(s string) string { return s })
			}),
			strictyaml.Optional("sni", func(n *yaml.Node) { d.hostnames(n, "sni", &m.SNI, &p.sni) }),
			d.texts("ja4", &m.JA4), d.texts("alpn", &m.ALPN),
			strictyaml.Optional("clients", func(n *yaml.Node) { d.prefixes(n, "clients", &m.Clients) }),
		)
		u.Matches, at.matches = append(u.Matches, m), append(at.matches, p)
	})
}

// valueMatches reads conditions on fields or parameters. HTTPRoute takes the first of several conditions on a name; here
// they are an error.
func (d *l7Decoder) valueMatches(n *yaml.Node, what string, form func(string) string) (list []ValueMatch, at []*yaml.Node) {
	lines := map[string]int{}
	d.List(n, what, maxConditions, func(n *yaml.Node) {
		v := ValueMatch{Type: MatchExact}
		place, nameAt := n, (*yaml.Node)(nil)
		d.Mapping(n, "an entry of "+what,
			strictyaml.Optional("type", func(n *yaml.Node) { strictyaml.Choice(d.Decoder, n, "type", &v.Type, MatchExact, MatchRegexp) }),
			strictyaml.Required("name", func(n *yaml.Node) { nameAt = n; d.Text(n, "name", &v.Name) }),
			strictyaml.Required("value", func(n *yaml.Node) { place = n; d.scalar(n, "value", &v.Value) }),
		)
		v.Name = form(v.Name)
		d.unique(lines, v.Name, nameAt, what+" entry")
		list, at = append(list, v), append(at, place)
	})
	return list, at
}

// scalar reads the text of any scalar: a value of a field or a parameter may look like a number or a truth value.
func (d *decoder) scalar(n *yaml.Node, what string, to *string) {
	if d.Takes(strictyaml.Schema{Type: "string", Title: "text"}) {
		return
	}
	if n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
		d.Fail(n, "", "%s must be text, not %s", what, strictyaml.Kind(n))
		return
	}
	*to = n.Value
}

func (d *l7Decoder) backendRefs(n *yaml.Node) (list []BackendRef, at []*yaml.Node) {
	d.List(n, "backend_refs", maxRefs, func(n *yaml.Node) {
		r, place := BackendRef{Weight: 1}, n
		d.Mapping(n, "an entry of backend_refs",
			strictyaml.Required("name", func(n *yaml.Node) { place = n; d.Text(n, "name", &r.Name) }),
			strictyaml.Optional("weight", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "weight", &r.Weight, 0, maxRefWeight) }),
		)
		list, at = append(list, r), append(at, place)
	})
	return list, at
}

func (d *l7Decoder) retry(n *yaml.Node, r *Retry) {
	d.Mapping(n, "retry",
		strictyaml.Optional("attempts", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "attempts", &r.Attempts, 0, 10) }),
		strictyaml.Optional("codes", func(n *yaml.Node) {
			d.OneOrMore(n, "codes", 64, func(n *yaml.Node) {
				var code int
				if strictyaml.Integer(d.Decoder, n, "codes", &code, 400, 599) {
					r.Codes = append(r.Codes, code)
				}
			})
		}),
	)
}

// maxMirrorContent bounds content_bytes: each copy under way may have as much.
const maxMirrorContent = 4 << 20

// filterKeys are the keys of a filter beside its type, with the types that they are for.
var filterKeys = map[string][]FilterType{
	"set": {FilterRequestHeaders, FilterResponseHeaders}, "add": {FilterRequestHeaders, FilterResponseHeaders, FilterFixed},
	"remove": {FilterRequestHeaders, FilterResponseHeaders}, "scheme": {FilterRedirect}, "hostname": {FilterRedirect, FilterRewrite},
	"path": {FilterRedirect, FilterRewrite}, "port": {FilterRedirect}, "location": {FilterRedirect}, "status_code": {FilterRedirect, FilterFixed}, "body": {FilterFixed},
	"allow_origins": {FilterCORS}, "allow_credentials": {FilterCORS}, "allow_methods": {FilterCORS}, "allow_headers": {FilterCORS},
	"expose_headers": {FilterCORS}, "max_age": {FilterCORS},
	"pool": {FilterMirror}, "percent": {FilterMirror}, "content_bytes": {FilterMirror},
}

func (d *l7Decoder) filters(n *yaml.Node, u *Rule, at *rulePlace) {
	d.List(n, "filters", maxFilters, func(n *yaml.Node) {
		f := Filter{MaxAge: 5 * time.Second, Percent: 100, ContentBytes: 64 << 10}
		k := keyPlaces{"": n}
		d.Mapping(n, "a filter", k.under("",
			strictyaml.Required("type", func(n *yaml.Node) {
				strictyaml.Choice(d.Decoder, n, "type", &f.Type, FilterRequestHeaders, FilterResponseHeaders, FilterRedirect, FilterRewrite, FilterCORS, FilterFixed, FilterMirror)
			}),
			strictyaml.Optional("set", func(n *yaml.Node) { f.Set = d.headers(n, "set") }),
			strictyaml.Optional("add", func(n *yaml.Node) { f.Add = d.headers(n, "add") }),
			strictyaml.Optional("remove", func(n *yaml.Node) { d.removed(n, &f) }),
			strictyaml.Optional("scheme", func(n *yaml.Node) { strictyaml.Choice(d.Decoder, n, "scheme", &f.Scheme, "http", "https") }),
			strictyaml.Optional("hostname", func(n *yaml.Node) { d.oneHost(n, &f.Hostname) }),
			strictyaml.Optional("path", func(n *yaml.Node) { f.Path = d.pathModifier(n) }),
			strictyaml.Optional("location", func(n *yaml.Node) { guardDecoder{d}.location(n, &f.Location) }),
			strictyaml.Optional("port", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "port", &f.Port, 1, 65535) }),
			strictyaml.Optional("status_code", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "status_code", &f.Status, 200, 599) }),
			d.words("allow_origins", &f.AllowOrigins, origin),
			strictyaml.Optional("allow_credentials", func(n *yaml.Node) { d.Truth(n, "allow_credentials", &f.AllowCredentials) }),
			d.words("allow_methods", &f.AllowMethods, semantics.IsToken),
			d.words("allow_headers", &f.AllowHeaders, semantics.IsToken),
			d.words("expose_headers", &f.ExposeHeaders, semantics.IsToken),
			strictyaml.Optional("max_age", func(n *yaml.Node) { d.Duration(n, "max_age", &f.MaxAge, 0, 24*time.Hour) }),
			strictyaml.Optional("body", func(n *yaml.Node) { d.fixedBody(n, &f.Body) }),
			strictyaml.Optional("pool", func(n *yaml.Node) { d.Text(n, "pool", &f.Pool) }),
			strictyaml.Optional("percent", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "percent", &f.Percent, 1, 100) }),
			strictyaml.Optional("content_bytes", func(n *yaml.Node) {
				strictyaml.Integer(d.Decoder, n, "content_bytes", &f.ContentBytes, 0, maxMirrorContent)
			}),
		)...)
		d.checkFilter(&f, k)
		u.Filters, at.filters = append(u.Filters, f), append(at.filters, n)
	})
}

func (d *l7Decoder) fixedBody(n *yaml.Node, to *string) {
	if d.scalar(n, "body", to); len(*to) > maxFixedBody {
		d.Fail(n, "", "body has %d bytes; at most %d are allowed", len(*to), maxFixedBody)
	}
}

func (d *l7Decoder) pathModifier(n *yaml.Node) *PathModifier {
	var m PathModifier
	place, pattern := n, (*yaml.Node)(nil)
	d.Mapping(n, "path",
		strictyaml.Required("type", func(n *yaml.Node) {
			strictyaml.Choice(d.Decoder, n, "type", &m.Type, ReplaceFullPath, ReplacePrefixMatch, ReplaceRegexMatch)
		}),
		strictyaml.Required("value", func(n *yaml.Node) { place = n; d.Text(n, "value", &m.Value) }),
		strictyaml.Optional("pattern", func(n *yaml.Node) { pattern = n; d.Text(n, "pattern", &m.Pattern) }),
	)
	switch regex := m.Type == ReplaceRegexMatch; {
	case regex && pattern == nil:
		d.Fail(n, "an expression that matches all of the path", "path lacks the key \"pattern\": its type is %s", m.Type)
	case !regex && pattern != nil && m.Type != "":
		d.Fail(pattern, "set `type: ReplaceRegexMatch`", "pattern is not for %s", m.Type)
	case regex:
		if _, err := rewrite.NewRegex(m.Pattern, m.Value); err != nil {
			d.Fail(pattern, "", "pattern and value make no replacement: %s", err)
		}
	default:
		d.checkReplacement(&m, place)
	}
	return &m
}

// texts is a key with one or more texts.
func (d *l7Decoder) texts(key string, to *[]string) strictyaml.Field {
	return strictyaml.Optional(key, func(n *yaml.Node) {
		d.OneOrMore(n, key, maxLists, func(n *yaml.Node) {
			if s := ""; d.Text(n, key, &s) {
				*to = append(*to, s)
			}
		})
	})
}

// streamRoutes reads tls_routes or tcp_routes.
func (d *l7Decoder) streamRoutes(n *yaml.Node, what string, to *[]StreamRoute, places *[]routePlace) {
	d.List(n, what, maxRoutes, func(n *yaml.Node) {
		var r StreamRoute
		at := routePlace{node: n}
		fields := []strictyaml.Field{
			strictyaml.Required("name", func(n *yaml.Node) { at.name = n; d.name(n, "name", &r.Name) }),
			strictyaml.Optional("listeners", func(n *yaml.Node) { r.Listeners, at.listeners = d.references(n, "listeners") }),
			strictyaml.Required("backend_refs", func(n *yaml.Node) { r.BackendRefs, at.refs = d.backendRefs(n) }),
		}
		if what == "tls_routes" {
			fields = append(fields, d.texts("ja4", &r.JA4), d.texts("alpn", &r.ALPN),
				strictyaml.Optional("hostnames", func(n *yaml.Node) { d.hostnames(n, "hostnames", &r.Hostnames, &at.hostnames) }),
				strictyaml.Optional("clients", func(n *yaml.Node) { d.prefixes(n, "clients", &r.Clients) }))
		}
		d.Mapping(n, "an entry of "+what, fields...)
		*to, *places = append(*to, r), append(*places, at)
	})
}
