package control

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/l7/route"
	"github.com/millrace/millrace/semantics"
)

// Query is a request whose way through a configuration is asked for.
type Query struct {
	URL      string     `json:"url"`                // http, https; tls and tcp for connections that are passed through
	Method   string     `json:"method"`             // "" is GET
	Headers  []Field    `json:"headers,omitempty"`  //
	Client   netip.Addr `json:"client"`             // the zero address is in no prefix
	SNI      string     `json:"sni,omitempty"`      // "" is the host of an https or tls URL
	JA4      string     `json:"ja4,omitempty"`      //
	Listener string     `json:"listener,omitempty"` // "" is the one of the URL's scheme and port
}

// Field is a field line of a Query.
type Field struct {
	Name  string `json:"name"` // in lower case
	Value string `json:"value"`
}

// Explanation is the way of a request.
type Explanation struct {
	Listener  string      `json:"listener"`
	Host      string      `json:"host"`            // as rules are compared with it
	Path      string      `json:"path"`            // the same, normalised
	Tried     []TriedRule `json:"tried"`           // rules of the host and the path that do not match, in order
	Route     string      `json:"route,omitempty"` // "" is none
	Rule      string      `json:"rule,omitempty"`
	Match     int         `json:"match,omitempty"` // of the rule's matches, from 1; 0 where it has none
	Pools     []PoolShare `json:"pools,omitempty"`
	Status    int         `json:"status,omitempty"`    // of a filter that answers
	Refused   *Refusal    `json:"refused,omitempty"`   // before a rule answers
	Limits    []string    `json:"limits,omitempty"`    // that refuse some requests, which the query does not decide
	Rules     int         `json:"rules"`               // of the listener
	OtherHost bool        `json:"other_host"`          // no rule is for the host
	Others    []string    `json:"listeners,omitempty"` // that do not fit the scheme and the port
}

// TriedRule is a rule that does not match.
type TriedRule struct {
	Rule    string `json:"rule"`
	Missing string `json:"missing"` // the condition that does not hold
}

// PoolShare is a pool with its share of the requests of a rule.
type PoolShare struct {
	Name    string  `json:"name"`
	Percent float64 `json:"percent"`
}

// ErrQuery reports that a query is no request.
var ErrQuery = errors.New("not a request")

// Explain returns the way of a request through a configuration.
func Explain(cfg *config.Config, q Query) (*Explanation, error) {
	u, err := url.Parse(q.URL)
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("%w: %q: write such as https://shop.example.org/api?a=b", ErrQuery, q.URL)
	}
	protocols := map[string]config.ListenerProtocol{
		"http": config.ListenerHTTP, "https": config.ListenerHTTPS, "tls": config.ListenerPass, "tcp": config.ListenerTCP,
	}
	protocol, known := protocols[u.Scheme]
	if !known {
		return nil, fmt.Errorf("%w: scheme %q: allowed: http, https, tls, tcp", ErrQuery, u.Scheme)
	}
	l, others, err := listenerOf(cfg, &q, u, protocol)
	if err != nil {
		return nil, err
	}
	e := &Explanation{Listener: l.Name, Others: others, Tried: []TriedRule{}}
	host, named := semantics.NormalizeHost(semantics.Host(u.Host))
	sni, namedSNI := semantics.NormalizeHost(q.SNI)
	if !named || !namedSNI {
		return nil, fmt.Errorf("%w: a name that may be taken for another one: the gateway answers 400", ErrQuery)
	}
	e.Host = host
	r := route.Request{Host: host, Path: "/", Method: q.Method, SNI: sni, JA4: q.JA4, Client: q.Client}
	for _, h := range q.Headers {
		r.Fields = append(r.Fields, semantics.Field{Name: h.Name, Value: h.Value})
	}
	if r.Method == "" {
		r.Method = "GET"
	}
	if r.SNI == "" && (protocol == config.ListenerHTTPS || protocol == config.ListenerPass) {
		r.SNI = e.Host
	}
	if l.Protocol.IsHTTP() {
		path := u.EscapedPath()
		if path == "" {
			path = "/"
		}
		if r.Path, _, err = semantics.NormalizePath(nil, path); err != nil {
			return nil, fmt.Errorf("%w: path %q: %w: the gateway answers 400", ErrQuery, path, err)
		}
		r.Query = u.RawQuery
	}
	e.Path, q.Method = r.Path, r.Method
	by := refusing{e, cfg, &q}
	by.listener(l, u)
	return e, e.find(by, l, &r, u.EscapedPath())
}

// listenerOf returns the listener that a URL leads to, and the names of those that it does not.
func listenerOf(cfg *config.Config, q *Query, u *url.URL, protocol config.ListenerProtocol) (found *config.Listener, others []string, err error) {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443", "tls": "443"}[u.Scheme]
	}
	host, _ := netip.ParseAddr(u.Hostname())
	var fit []string
	for i := range cfg.Listeners {
		l := &cfg.Listeners[i]
		if q.Listener == l.Name || q.Listener == "" && l.Protocol == protocol && listens(l, host, port) {
			found, fit = l, append(fit, l.Name)
		} else {
			others = append(others, l.Name)
		}
	}
	switch {
	case q.Listener != "" && found == nil:
		return nil, nil, fmt.Errorf("%w: unknown listener %q%s", ErrQuery, q.Listener, near(q.Listener, others))
	case found == nil:
		return nil, nil, fmt.Errorf("%w: no listener has protocol %s and port %s; name one of %s", ErrQuery, protocol, port, strings.Join(others, ", "))
	case len(fit) > 1:
		return nil, nil, fmt.Errorf("%w: several listeners have protocol %s and port %s; name one of %s", ErrQuery, protocol, port, strings.Join(fit, ", "))
	}
	return found, others, nil
}

// listens reports whether a listener has an address with a port. Where the URL has an address for its host that counts as well.
func listens(l *config.Listener, host netip.Addr, port string) bool {
	for _, a := range l.Addresses {
		if strconv.Itoa(int(a.Port())) == port && (!host.IsValid() || a.Addr().IsUnspecified() || a.Addr() == host) {
			return true
		}
	}
	return false
}

// find fills in which rule a request matches. raw is its path as the client sends it.
func (e *Explanation) find(by refusing, l *config.Listener, r *route.Request, raw string) error {
	cfg := by.cfg
	var rules []route.Rule
	var refs []config.RuleRef
	var streams []*config.StreamRoute
	if l.Protocol.IsHTTP() {
		rules, refs = cfg.RulesOf(l.Name)
	} else {
		rules, streams = cfg.StreamRules(l)
	}
	table, err := route.New(rules)
	if err != nil {
		return err
	}
	e.Rules = len(rules)
	if l.Protocol.IsHTTP() && table.AmbiguousRepeats(r, table.Find(r)) {
		return fmt.Errorf("%w: a field or parameter that comes twice: a backend may take the request for one of another rule: the gateway answers 400", ErrQuery)
	}
	if l.Protocol.IsHTTP() && ambiguous(table, refs, r, raw) {
		return fmt.Errorf("%w: path %q: a backend may take it for one of another rule: the gateway answers 400", ErrQuery, raw)
	}
	steps := table.Explain(r)
	for _, s := range steps {
		if s.Missing != "" {
			e.Tried = append(e.Tried, TriedRule{s.Rule, s.Missing})
			continue
		}
		if streams != nil {
			e.Route, e.Pools = s.Rule, shares(streams[s.Number].BackendRefs)
			return nil
		}
		e.matched(&refs[s.Number])
		by.inspection(l, refs[s.Number].Route)
		by.route(refs[s.Number].Route)
		return nil
	}
	e.OtherHost = !anyHost(rules, r.Host)
	by.inspection(l, nil)
	return nil
}

// ambiguous reports whether the gateway refuses a request because backends differ in what they take its path for.
func ambiguous(t *route.Table, refs []config.RuleRef, r *route.Request, raw string) bool {
	n := t.Find(r)
	return t.Ambiguous(r, n) || n >= 0 && refs[n].Route.ForwardPath == config.ForwardRaw && t.AmbiguousRaw(r, n, raw)
}

func (e *Explanation) matched(ref *config.RuleRef) {
	e.Route, e.Rule, e.Pools = ref.Route.Name, ref.Rule.Name, shares(ref.Rule.BackendRefs)
	if len(ref.Rule.Matches) > 0 {
		e.Match = ref.Match + 1
	}
	for i := range ref.Rule.Filters {
		if f := &ref.Rule.Filters[i]; f.Answers() {
			e.Status = f.Status
		}
	}
}

func shares(refs []config.BackendRef) (list []PoolShare) {
	total := 0
	for _, r := range refs {
		total += r.Weight
	}
	for _, r := range refs {
		list = append(list, PoolShare{r.Name, 100 * float64(r.Weight) / float64(max(total, 1))})
	}
	return list
}

// anyHost reports whether a rule is for a host.
func anyHost(rules []route.Rule, host string) bool {
	for i := range rules {
		if len(rules[i].Match.Hosts) == 0 {
			return true
		}
		for _, h := range rules[i].Match.Hosts {
			if h == host || strings.HasPrefix(h, "*.") && strings.HasSuffix(host, h[1:]) {
				return true
			}
		}
	}
	return false
}

// Explain returns the way of a request through the configuration in use.
func (s *Set) Explain(q Query) (*Explanation, error) {
	s.mu.Lock()
	cfg := s.cfg
	s.mu.Unlock()
	return Explain(cfg, q)
}
