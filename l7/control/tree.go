package control

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/http1"
	"github.com/millrace/millrace/http2"
	"github.com/millrace/millrace/http3"
	"github.com/millrace/millrace/l7/files"
	"github.com/millrace/millrace/l7/pool"
	"github.com/millrace/millrace/l7/proxy"
	"github.com/millrace/millrace/l7/rewrite"
	"github.com/millrace/millrace/l7/route"
	"github.com/millrace/millrace/l7/trace"
	"github.com/millrace/millrace/quic"
	"github.com/millrace/millrace/semantics"
	"github.com/millrace/millrace/stack"
)

// plan is a configuration that can be used.
type plan struct {
	cfg        *config.Config
	tree       *proxy.Tree
	pools      map[string]*pooled
	order      []*pooled
	served     map[string]*servedTLS
	routes     map[string]*proxy.Route
	admissions map[string]*proxy.Admission
	guards     guards
	caches     Caches
	disks      map[string]*cacheDisk // by folder
	sites      map[*config.Static]*files.Site
	firewalls  firewalls
	tunnels    tunnelCounts
	sessions   sessionCounts
	fieldNames func(policy string) []string // Options.FieldNames

	authorities map[string]*authority
	log         plannedLog
	traces      traces
	before      *trace.Exporter // in use
}

// openSites opens the folders of rules. Those of the plan before are closed by the collector, once no request needs them.
func openSites(cfg *config.Config, b files.Budget) (map[*config.Static]*files.Site, error) {
	sites := map[*config.Static]*files.Site{}
	for i := range cfg.Routes {
		for k := range cfg.Routes[i].Rules {
			u := &cfg.Routes[i].Rules[k]
			if u.Static == nil {
				continue
			}
			o := u.Static.Options(cfg)
			o.Except, o.Budget = exceptScripts(cfg, u), b
			site, err := files.Open(o)
			if err != nil {
				return nil, fmt.Errorf("route %s, rule %s: static: %w", cfg.Routes[i].Name, u.Name, err)
			}
			sites[u.Static] = site
		}
	}
	return sites, nil
}

// drop gives back what a plan that is not used has opened.
func (n *plan) drop(s *Set) error {
	closeDemands(n.served, s.served)
	closeStores(n.served, s.served, n.pools, s.pools)
	err := errors.Join(n.dropACME(s.authorities), n.dropDisks(s.disks))
	if n.traces.exporter != nil && n.traces.exporter != n.before {
		n.traces.exporter.Close()
	}
	return errors.Join(err, n.log.target.Close(), n.firewalls.close())
}

// plan makes what a configuration needs, and keeps what is there. It changes nothing that is in use. The caller holds s.mu.
func (s *Set) plan(cfg *config.Config) (*plan, error) {
	if err := cfg.ReadLists(); err != nil {
		return nil, err
	}
	n := &plan{
		cfg: cfg, tree: &proxy.Tree{}, pools: map[string]*pooled{}, served: map[string]*servedTLS{},
		before: s.traces.exporter, routes: map[string]*proxy.Route{}, admissions: s.admit(cfg), authorities: map[string]*authority{}, tunnels: tunnelCounts{}, sessions: sessionCounts{},
		disks: map[string]*cacheDisk{}, fieldNames: s.opt.FieldNames,
	}
	var errs []error
	var err error
	for i := range cfg.Pools {
		p, err := s.planPool(cfg, &cfg.Pools[i])
		if err != nil {
			errs = append(errs, fmt.Errorf("pool %s: %w", cfg.Pools[i].Name, err))
			continue
		}
		n.pools[p.cfg.Name], n.order = p, append(n.order, p)
		n.tree.Pools = append(n.tree.Pools, p.proxy)
	}
	if n.guards, err = s.planGuards(cfg); err != nil {
		errs = append(errs, err)
	}
	if err = errors.Join(errs...); err != nil {
		return nil, err
	}
	n.caches = planCaches(cfg, s.caches, len(s.loops))
	if n.sites, err = openSites(cfg, s.static); err != nil {
		return nil, err
	}
	if n.firewalls, err = planFirewalls(cfg, s.opt.Firewall, s.firewalls.counts, logPanic(s.opt.Log)); err != nil {
		return nil, errors.Join(err, n.firewalls.close())
	}
	if err = errors.Join(s.planACME(n), planDisks(s, n)); err != nil {
		return nil, errors.Join(err, n.drop(s))
	}
	if n.log, err = s.planLog(cfg); err != nil {
		errs = append(errs, fmt.Errorf("access log: %w", err))
	}
	for i := range cfg.Listeners {
		if err := s.planListener(n, &cfg.Listeners[i]); err != nil {
			errs = append(errs, fmt.Errorf("listener %s: %w", cfg.Listeners[i].Name, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, errors.Join(err, n.drop(s))
	}
	n.traces = s.traces.plan(s, cfg)
	n.tree.Tracer = n.traces.tracer
	return n, nil
}

// use makes a plan the one in use: pools change their backends. The caller holds s.mu.
func (s *Set) use(n *plan) error {
	now := stack.Now()
	var errs []error
	for name, p := range s.pools {
		if n.pools[name] == nil {
			p.stop()
			s.leave(p, p.Backends())
		}
	}
	for _, p := range n.order {
		p.proxy.Places.Set(queueOf(&p.cfg))
		if p.fresh {
			p.fresh = false
			continue
		}
		errs = append(errs, s.update(now, p, n.cfg))
		s.followStates(&s.pools[p.cfg.Name].cfg, p)
	}
	s.useLog(n.log)
	staple(s, n.served)
	closeDemands(s.served, n.served)
	closeStores(s.served, n.served, s.pools, n.pools)
	s.cfg, s.tree, s.pools, s.order, s.served, s.routes, s.admissions = n.cfg, n.tree, n.pools, n.order, n.served, n.routes, n.admissions
	s.useGuards(n)
	s.traces.leave(&n.traces)
	s.traces = n.traces
	s.caches = n.caches
	errs = append(errs, s.firewalls.close())
	s.firewalls, s.tunnels, s.sessions = n.firewalls, n.tunnels, n.sessions
	s.caches.use(n.cfg)
	errs = append(errs, useDisks(s, n))
	errs = append(errs, s.useACME(n))
	s.probe(now)
	return errors.Join(errs...)
}

// probe has the backends of all pools probed. The caller holds s.mu.
func (s *Set) probe(now clock.Time) {
	var probed []*pool.Pool
	for _, p := range s.order {
		probed = append(probed, p.Pool)
	}
	s.checks.Set(s.probes.Watch(now, probed))
	s.probes.Enter(now, s.checks.Take())
}

// update gives a pool the backends that its configuration and the names in it stand for. The caller holds s.mu.
func (s *Set) update(now clock.Time, p *pooled, cfg *config.Config) error {
	before := p.Backends()
	err := p.Update(now, p.options(s, cfg), backendsOf(s.names, &p.cfg))
	s.leave(p, slices.DeleteFunc(slices.Clone(before), func(b *pool.Backend) bool { return !b.Gone() }))
	return err
}

// followStates begins drains that the configuration requests, and calls those off that it asks for no more. The caller holds s.mu.
func (s *Set) followStates(old *config.Pool, p *pooled) {
	was := map[string]config.State{}
	for i := range old.Backends {
		was[old.Backends[i].Name] = old.Backends[i].State
	}
	for i := range p.cfg.Backends {
		c := &p.cfg.Backends[i]
		if before, ok := was[c.Name]; !ok || before == c.State {
			continue
		}
		after := time.Duration(0)
		if c.State == config.StateDraining {
			after = p.cfg.Drain
		}
		for _, o := range members(s.names, c) {
			if b := p.ByName(o.Name); b != nil {
				p.endDrain(b, after, s.endStreams)
			}
		}
	}
}

// leave ends the streams to backends that the configuration has no more, after the drain time of their pool. The caller holds s.mu.
func (s *Set) leave(p *pooled, gone []*pool.Backend) {
	for _, b := range gone {
		s.leaving.endDrain(b, p.cfg.Drain, s.endStreams)
	}
}

// admit returns what counts the connections of listeners. That of a listener that is gone stays while it has some: they count if
// the listener comes back.
func (s *Set) admit(cfg *config.Config) map[string]*proxy.Admission {
	all := map[string]*proxy.Admission{}
	for name, a := range s.admissions {
		if a.Open() > 0 {
			all[name] = a
		}
	}
	for i := range cfg.Listeners {
		name := cfg.Listeners[i].Name
		if all[name] = s.admissions[name]; all[name] == nil {
			all[name] = &proxy.Admission{}
		}
	}
	return all
}

// planListener adds a listener to the tree, once for each of its addresses.
func (s *Set) planListener(n *plan, l *config.Listener) (err error) {
	out := proxy.Listener{
		Name: l.Name, ProxyProtocol: l.ProxyProtocol, ProxyDatagrams: l.ProxyDatagrams, Admission: n.admissions[l.Name],
		Forwarding: rewrite.Forwarding{Style: styles[l.Forwarded.Style], Trusted: l.Forwarded.Trusted},
		Timeouts: proxy.Timeouts{
			Handshake: l.Timeouts.Handshake, Header: l.Timeouts.RequestHeader, Body: l.Timeouts.RequestBody,
			Write: l.Timeouts.Write, Idle: l.Timeouts.Idle, Tunnel: l.Timeouts.Stream,
			Drain: l.Timeouts.Drain,
		},
		Limits: proxy.Limits{
			Connections: int64(l.Limits.Connections), Requests: l.Limits.ConnectionRequests, Body: l.Limits.BodyBytes,
			Target: l.Limits.TargetBytes,
		},
	}
	if l.Protocol == config.ListenerHTTP {
		out.Challenge = n.challenge()
	}
	if l.Forwarded.Via {
		out.Via = "millrace"
	}
	out.RequestID, out.Guard, out.Pages = l.RequestID, n.listenerGuard(l), n.pagesOf(l.ErrorPages)
	if l.HSTS != nil {
		out.HSTS = hsts(l.HSTS)
	}
	var rules []route.Rule
	if l.Protocol.IsHTTP() {
		rules = s.planHTTP(n, l, &out)
	} else {
		rules = s.planStream(n, l, &out)
	}
	if err := n.inspection(s, l, &out); err != nil {
		return err
	}
	if out.Table, err = route.New(rules); err != nil {
		return err
	}
	if n.log.opt.Layout.ReadsHello() {
		out.Table.ReadHello()
	}
	if l.TLS != nil {
		t, err := s.planTLS(n, l)
		if err != nil {
			return err
		}
		out.TLS, out.Serves, n.served[l.Name] = t.config, t.serves, t
		out.ClientCert, out.Demand = clientCert(l.TLS.ClientAuth), demandOf(t)
	}
	for _, a := range l.Addresses {
		one := out
		one.Address = a
		if l.HTTP3() && l.AltSvc > 0 && len(l.Versions) > 1 {
			one.AltSvc = fmt.Sprintf(`h3=":%d"; ma=%d`, a.Port(), int(l.AltSvc.Seconds()))
		}
		n.tree.Listeners = append(n.tree.Listeners, &one)
	}
	return nil
}

// planHTTP fills in a listener of HTTP, and returns its rules.
func (s *Set) planHTTP(n *plan, l *config.Listener, out *proxy.Listener) []route.Rule {
	if slices.Contains(l.Versions, config.HTTP1) {
		out.HTTP1 = &http1.Options{MaxHead: l.Limits.HeaderBytes, MaxFields: l.Limits.HeaderFields, MaxTarget: l.Limits.TargetBytes}
	}
	if l.HTTP2() {
		out.HTTP2 = &http2.Options{MaxStreams: l.Limits.Streams, MaxFieldSection: l.Limits.HeaderBytes, MaxFields: l.Limits.HeaderFields, ExtendedConnect: true}
	}
	if l.HTTP3() {
		out.HTTP3 = &proxy.HTTP3Options{
			Machine: http3.MachineOptions{MaxFieldSection: l.Limits.HeaderBytes, MaxFields: l.Limits.HeaderFields, ExtendedConnect: true, Datagrams: true},
			QUIC: &quic.Config{
				Datagrams:  true, // also where no rule has tunnels or sessions: a reload may bring one, and connections stay
				ResetAt:    true, // the same
				ZeroRTT:    l.EarlyData,
				MaxStreams: int64(l.Limits.Streams), HandshakeTimeout: handshakeTime(l), IdleTimeout: max(l.Timeouts.Idle, l.Timeouts.Stream),
				StreamWindow: 256 << 10, MaxStreamWindow: 2 << 20, ConnWindow: 512 << 10, MaxConnWindow: 4 << 20, // of a request, of a connection
			},
		}
	}
	rules, refs := n.cfg.RulesOf(l.Name)
	if out.HTTP3 != nil {
		serveSessions(&out.HTTP3.Machine, refs)
	}
	if out.HTTP1 != nil {
		out.HTTP1.KeepCase, out.HTTP1.UpgradeContent = n.keepsCase(refs), upgrades(refs)
	}
	if c := l.Compression; c != nil {
		out.Compression = &proxy.Compression{Codings: c.Codings, Types: c.Types, Least: c.MinBytes}
	}
	out.Names, out.Colliding = rewrite.NewNames(n.listenerNames(l, refs)), collidings[l.Colliding]
	for i := range refs {
		rule := n.rule(rules[i].Name, s.route(n, refs[i].Route.Name), &refs[i])
		rule.Guard, rule.Pages = n.routeGuard(refs[i].Route), n.pagesOf(refs[i].Route.ErrorPages)
		rule.UDP = n.tunnels.service(s.tunnels, refs[i].Route.Name+"/"+refs[i].Rule.Name, refs[i].Rule.ConnectUDP)
		rule.WebTransport = n.sessions.rule(s.sessions, refs[i].Route.Name+"/"+refs[i].Rule.Name, refs[i].Rule.WebTransport)
		rule.Firewall = n.firewalls.of(l, refs[i].Route)
		rule.Files, rule.Cache = n.sites[refs[i].Rule.Static], n.cacheUse(&refs[i])
		rule.Inspection = n.inspectionOf(s, l, refs[i].Route)
		out.RulesInspect = out.RulesInspect || rule.Inspection != nil
		out.Rules, out.CORS = append(out.Rules, rule), out.CORS || rule.CORS != nil
	}
	n.boundBodies(l, out, refs)
	return rules
}

// keepsCase reports whether a pool of some rule gets field names as clients wrote them.
func (n *plan) keepsCase(refs []config.RuleRef) bool {
	for i := range refs {
		for _, r := range refs[i].Rule.BackendRefs {
			if n.pools[r.Name].cfg.FieldNames == config.FieldNamesPreserve {
				return true
			}
		}
	}
	return false
}

// upgrades reports whether some route lets clients change to another protocol than WebSocket.
func upgrades(refs []config.RuleRef) bool {
	return slices.ContainsFunc(refs, func(r config.RuleRef) bool { return len(r.Route.Upgrades) > 0 })
}

// planStream fills in a listener that passes connections through, and returns its rules.
func (s *Set) planStream(n *plan, l *config.Listener, out *proxy.Listener) []route.Rule {
	out.Stream = proxy.StreamTCP
	if l.Protocol == config.ListenerPass {
		out.Stream = proxy.StreamTLS
	}
	rules, refs := n.cfg.StreamRules(l)
	for _, r := range refs {
		out.Rules = append(out.Rules, &proxy.Rule{Name: r.Name, Route: s.route(n, r.Name), Backends: n.weighted(r.BackendRefs), Attempts: streamAttempts})
	}
	return rules
}

// streamAttempts is the number of backends that are tried for a connection that is passed through.
const streamAttempts = 3

// route returns the counters of a route, which stay over reloads.
func (s *Set) route(n *plan, name string) *proxy.Route {
	r := n.routes[name]
	if r == nil {
		if r = s.routes[name]; r == nil {
			r = proxy.NewRoute(name, len(s.loops))
		}
		n.routes[name] = r
	}
	return r
}

// weighted returns the pools of a rule with their shares.
func (n *plan) weighted(refs []config.BackendRef) (list []proxy.Weighted) {
	for _, ref := range refs {
		list = append(list, proxy.Weighted{Pool: n.pools[ref.Name].proxy, Weight: ref.Weight})
	}
	return list
}

// rule returns a rule as workers have it: one for each match, since a filter may depend on the prefix that has matched.
func (n *plan) rule(name string, of *proxy.Route, ref *config.RuleRef) *proxy.Rule {
	u := ref.Rule
	r := &proxy.Rule{
		Name: name, Route: of, Backends: n.weighted(u.BackendRefs), RetryStatus: u.Retry.Codes,
		Request: u.Timeouts.Request, Attempt: u.Timeouts.BackendRequest, Attempts: 1 + u.Retry.Attempts,
	}
	r.Upgrades, r.ForwardExpect = ref.Route.Upgrades, ref.Route.ExpectContinue == config.ExpectForward
	if ref.Route.ForwardPath == config.ForwardRaw {
		r.PathForm = proxy.RawPath
	}
	for _, ref := range u.BackendRefs {
		c := &n.pools[ref.Name].cfg
		if c.Sticky != nil {
			r.Sticky = &rewrite.Sticky{Name: c.Sticky.Cookie, MaxAge: c.Sticky.MaxAge}
		}
	}
	prefix := "/"
	if len(u.Matches) > 0 {
		prefix = u.Matches[ref.Match].Path.Value
	}
	for i := range u.Filters {
		addFilter(r, &u.Filters[i], prefix)
	}
	n.addMirror(r, u)
	if len(u.EarlyHints) > 0 {
		r.EarlyHints = proxy.NewEarlyHints(u.EarlyHints)
	}
	return r
}

// mirrorTime bounds the exchange of a copy where the rule has no bound.
const mirrorTime = time.Minute

// addMirror adds the copies that a rule makes of its requests. They are changed as those are.
func (n *plan) addMirror(r *proxy.Rule, u *config.Rule) {
	for i := range u.Filters {
		f := &u.Filters[i]
		if f.Type != config.FilterMirror {
			continue
		}
		r.Mirror = &proxy.Mirror{Percent: f.Percent, Most: f.ContentBytes, Rule: &proxy.Rule{
			Name: r.Name, Backends: []proxy.Weighted{{Pool: n.pools[f.Pool].proxy, Weight: 1}}, RequestHeaders: r.RequestHeaders, Rewrite: r.Rewrite, PathForm: r.PathForm,
			Request: cmp.Or(r.Request, mirrorTime), Attempts: 1,
		}}
	}
}

// addFilter adds what a filter does. prefix is that of the rule's match.
func addFilter(r *proxy.Rule, f *config.Filter, prefix string) {
	switch f.Type {
	case config.FilterRequestHeaders:
		r.RequestHeaders = headersOf(f)
	case config.FilterResponseHeaders:
		r.ResponseHeaders = headersOf(f)
	case config.FilterRedirect:
		r.Redirect = &rewrite.Redirect{Scheme: f.Scheme, Hostname: f.Hostname, Path: pathModifier(f.Path, prefix), Regex: regexOf(f.Path), Port: f.Port, Status: f.Status}
		location, err := rewrite.ParseTemplate(f.Location)
		if err != nil {
			panic(err) // config has checked it
		}
		if r.Redirect.Location = location; location == nil && f.Location != "" {
			r.Redirect.Location = rewrite.Text(f.Location)
		}
	case config.FilterRewrite:
		r.Rewrite = &rewrite.Rewrite{Hostname: f.Hostname, Path: pathModifier(f.Path, prefix), Regex: regexOf(f.Path)}
	case config.FilterCORS:
		r.CORS = &rewrite.CORS{
			Origins: f.AllowOrigins, Credentials: f.AllowCredentials, Methods: strings.Join(f.AllowMethods, ", "), Headers: strings.Join(f.AllowHeaders, ", "),
			Expose: strings.Join(f.ExposeHeaders, ", "), MaxAge: strconv.Itoa(int(f.MaxAge.Seconds())),
		}
	case config.FilterFixed:
		r.Response = &proxy.Response{Status: f.Status, Fields: *headersOf(f), Body: []byte(f.Body)}
	}
}

// headersOf returns the edits of a filter. Config has checked the variables in them.
func headersOf(f *config.Filter) *rewrite.Headers {
	h := &rewrite.Headers{Set: fieldsOf(f.Set), Add: fieldsOf(f.Add), Remove: f.Remove}
	if err := h.Compile(); err != nil {
		panic(err)
	}
	return h
}

func fieldsOf(list []config.Header) (fields []semantics.Field) {
	for _, h := range list {
		fields = append(fields, semantics.Field{Name: h.Name, Value: h.Value})
	}
	return fields
}

// regexOf returns the regular expression of a modifier, nil without one. Config has checked it.
func regexOf(m *config.PathModifier) *rewrite.Regex {
	if m == nil || m.Type != config.ReplaceRegexMatch {
		return nil
	}
	r, err := rewrite.NewRegex(m.Pattern, m.Value)
	if err != nil {
		panic(err)
	}
	return r
}

func pathModifier(m *config.PathModifier, prefix string) rewrite.PathModifier {
	switch {
	case m == nil, m.Type == config.ReplaceRegexMatch:
		return rewrite.PathModifier{}
	case m.Type == config.ReplaceFullPath:
		return rewrite.PathModifier{Type: rewrite.ReplaceFullPath, Value: m.Value}
	}
	return rewrite.PathModifier{Type: rewrite.ReplacePrefixMatch, Value: m.Value, Prefix: prefix}
}

var styles = map[config.ForwardedStyle]rewrite.Style{
	config.ForwardedX: rewrite.StyleX, config.ForwardedRFC: rewrite.StyleForwarded, config.ForwardedNone: rewrite.StyleNone,
}
