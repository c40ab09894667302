package convert

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// caddySite is the translation of the requests of one site.
type caddySite struct {
	*caddy
	d      *directive
	depth  int
	edited map[string]bool // samples that directives before the matcher change
}

// layer is a directive that changes requests and leaves the answer to others, with its condition.
type layer struct {
	d     *directive
	cond  verdict
	apply func(it *item)
	guard bool // it keeps clients out: requests that it holds for in part are its own
}

// context holds what a block of directives inherits.
type context struct {
	layers []layer
	prefix string // that handle_path takes off
	root   string
	named  map[string]*directive // matchers
	within verdict
	inside bool
	files  *directive // file_server without a matcher, beside php_fastcgi
}

// The order in which Caddy sorts directives that answer; others are layers.
var caddyOrder = []string{"redir", "handle", "handle_path", "route", "abort", "error", "respond", "metrics", "reverse_proxy", "php_fastcgi", "file_server", "acme_server"}

// collect translates the directives of a block to items in Caddy's order.
func (b *caddySite) collect(list []*directive, in context) (items []item) {
	c := in
	c.layers, c.named = slices.Clone(in.layers), map[string]*directive{}
	for name, d := range in.named {
		c.named[name] = d
	}
	if !in.inside {
		c.within = always
	}
	var answers []*directive
	for _, d := range list {
		if strings.HasPrefix(d.name, "@") {
			c.named[d.name] = d
			b.l.ok(d.at, "routes[].rules[].matches[]")
		}
	}
	for _, d := range list {
		if slices.Contains(caddyOrder, d.name) {
			answers = append(answers, d)
		} else if !strings.HasPrefix(d.name, "@") {
			b.layer(&c, d)
		}
	}
	slices.SortStableFunc(answers, func(x, y *directive) int {
		return cmp.Or(cmp.Compare(group(x.name), group(y.name)), cmp.Compare(specific(y), specific(x)))
	})
	c.files = nil
	php := slices.ContainsFunc(answers, func(d *directive) bool { return d.name == "php_fastcgi" })
	for _, d := range answers {
		if cond, _ := b.matcher(&c, d); php && d.name == "file_server" && cond.known && len(cond.atoms) == 1 && onlyTLS(cond.atoms[0]) {
			c.files = d
		}
	}
	items = b.closeEdited(&in, &c, list)
	outer := b.edited
	own := editedBy(list, outer)
	defer func() { b.edited = outer }()
	for _, d := range answers {
		if b.edited = own; d.name == "redir" { // it comes before directives that change requests
			b.edited = outer
		}
		items = append(items, b.answer(&c, d)...)
	}
	return items
}

// group returns the place of a directive in Caddy's order; handle, handle_path and route share one.
func group(name string) int {
	if name == "handle_path" || name == "route" {
		name = "handle"
	}
	return slices.Index(caddyOrder, name)
}

// specific is by what Caddy sorts directives of one name: those with longer paths come first, those without a matcher last.
func specific(d *directive) int {
	switch m := d.arg(0); {
	case strings.HasPrefix(m, "/"):
		return 2 + len(strings.TrimSuffix(m, "*"))
	case strings.HasPrefix(m, "@"):
		return 1
	}
	return 0
}

// matcher returns the condition of a directive and its other arguments. Within handle_path it is on what is left of the path.
func (b *caddySite) matcher(c *context, d *directive) (verdict, []string) {
	v, args := b.matcherOf(c, d)
	return v.below(c.prefix), args
}

func (b *caddySite) matcherOf(c *context, d *directive) (verdict, []string) {
	args := d.texts()
	if len(args) == 0 {
		return always, args
	}
	if n := len(args); d.name == "redir" && (n == 1 || n == 2 && isCode(args[1])) { // the URL comes first, a matcher before it
		return always, args
	}
	switch m := args[0]; {
	case m == "*":
		return always, args[1:]
	case strings.HasPrefix(m, "/"):
		return caddyPath(m), args[1:]
	case strings.HasPrefix(m, "@"):
		if set := c.named[m]; set != nil {
			return b.named(set), args[1:]
		}
		return verdict{}, args[1:]
	}
	return always, args
}

// layer notes a directive that does not answer.
func (b *caddySite) layer(c *context, d *directive) {
	cond, args := b.matcher(c, d)
	led := b.l
	guards := false
	var apply func(it *item)
	switch d.name {
	case "tls", "bind", "encode", "log", "import":
		return
	case "root":
		b.root(c, d, cond, args)
		return
	case "header":
		apply = b.header(d, args, false)
	case "request_header":
		apply = b.header(d, args, true)
	case "rewrite", "uri":
		apply = b.rewrite(d, args)
	case "try_files":
		apply = b.try(d)
		cond = always
	case "basic_auth", "basicauth":
		led.close(d.at, "passwords are in a file of htpasswd", "write its lines NAME:HASH to a file, and name it in routes[].auth.basic")
		for _, u := range d.block {
			led.left(u.at, "it belongs into a file of htpasswd", "")
		}
		guards = true
		apply = func(it *item) { it.guard.sources = &sources{denyOthers: true} }
	case "forward_auth":
		apply, guards = b.forwardAuth(d, args), true
	case "request_body":
		apply = b.requestBody(d)
	default:
		if b.leftLayer(d) {
			return
		}
		guards = true
		apply = func(it *item) { it.guard.sources = &sources{denyOthers: true} }
	}
	if apply == nil {
		return
	}
	if guards {
		cond = anyCase(b.covering(c, d))
		cond.coarse = ""
	}
	if !cond.known {
		led.left(d.at, "its condition cannot be expressed", "write a rule with matches by path, method, header, query or client")
		return
	}
	if cond.coarse != "" {
		led.changed(d.at, "", cond.coarse)
	}
	c.layers = append(c.layers, layer{d, cond, apply, guards})
}

// root notes the folder of the files.
func (b *caddySite) root(c *context, d *directive, cond verdict, args []string) {
	if len(args) == 0 && len(d.args) == 1 { // root /srv is no matcher
		args, cond = d.texts(), always
	}
	if len(args) == 1 && printable(args[0]) && args[0] != "" && !strings.Contains(args[0], "{") && len(cond.atoms) == 1 && onlyTLS(cond.atoms[0]) {
		c.root = b.s.path(args[0])
		b.l.ok(d.at, "static.root")
		return
	}
	b.l.left(d.at, "the folder has a matcher or a variable", "write a rule for each folder")
}

// answer translates a directive that answers.
func (b *caddySite) answer(c *context, d *directive) []item {
	cond, args := b.matcher(c, d)
	cond = both(cond, c.inner(cond))
	led := b.l
	if never(cond) {
		led.unneeded(d.at, "its condition holds for no request")
		b.quiet(d)
		return nil
	}
	if !cond.known || len(cond.atoms) == 0 {
		b.quiet(d)
		r := led.close(d.at, "its condition cannot be expressed", conditionRemedy)
		return b.layered(c, narrowed(c.within, anyCase(b.covering(c, d))), r)
	}
	if cond.coarse != "" {
		led.changed(d.at, "routes[].rules[]", cond.coarse)
	} else {
		led.ok(d.at, "routes[].rules[]")
	}
	var r *rule
	switch d.name {
	case "handle", "handle_path", "route":
		return b.handle(c, d, cond, args)
	case "redir":
		r = b.redir(d, args)
	case "respond":
		r = b.respond(d, args)
	case "abort":
		r = newRule(d.at)
		r.fixed = &fixed{status: 403}
		led.changed(d.at, "FixedResponse", "the request is answered 403; Caddy closes the connection")
	case "error":
		r = newRule(d.at)
		r.fixed = &fixed{status: 500}
		for _, a := range args {
			if n := atoi(a); n >= 400 && n <= 599 {
				r.fixed.status = n
			}
		}
	case "reverse_proxy":
		r = b.proxy(d, args)
	case "file_server":
		r = b.fileServer(c, d, args)
		if r != nil && r.static != nil {
			return slices.Concat(b.hiddenFiles(c, d, cond, r.static.root), b.layered(c, cond, r))
		}
	case "php_fastcgi":
		r = b.scripts(c, d, args)
	default: // metrics, acme_server
		b.whole(d, Left, "the gateway has metrics of its own, and no authority", "see metrics.listen")
	}
	if r == nil {
		r = newRule(d.at)
		r.note, r.fixed = "not translated, see the report", &fixed{status: 501}
	}
	if r.fixed != nil && r.refuses() {
		cond = anyCase(cond)
	}
	return b.layered(c, cond, r)
}

// handle translates a block of directives with a condition.
func (b *caddySite) handle(c *context, d *directive, cond verdict, args []string) (items []item) {
	if b.depth++; b.depth > maxNesting {
		return nil
	}
	defer func() { b.depth-- }()
	in := *c
	in.within, in.inside = cond, true
	if d.name == "handle_path" {
		m := d.arg(0)
		if prefix := strings.TrimSuffix(strings.TrimSuffix(m, "*"), "/"); strings.HasSuffix(m, "*") && prefix != "" {
			in.prefix = c.prefix + prefix
		}
	}
	items = b.collect(d.block, in)
	if !slices.ContainsFunc(items, func(it item) bool { return it.last }) && d.name != "route" {
		r := newRule(d.at) // a request that nothing answers gets 200 without content
		r.fixed = &fixed{status: 200}
		items = append(items, b.layered(&in, cond, r)...)
	}
	if other := anyCase(cond); guarding(d.block) && fmt.Sprint(other) != fmt.Sprint(cond) {
		r := newRule(d.at)
		r.note, r.fixed = "the path in other letters", &fixed{status: 403}
		b.l.changed(d.at, "routes[].rules[]", "paths are compared by case: in other letters they get 403")
		items = append(items, b.layered(&in, other, r)...)
	}
	return items
}

// mostItems bounds the items that layers with conditions make of one.
const mostItems = 128

// layered makes the items of an answer: one for each alternative of its condition, and for each of its layers with a narrower
// one an item before it.
func (b *caddySite) layered(c *context, cond verdict, r *rule) (items []item) {
	for _, a := range cond.atoms {
		if a.never {
			continue
		}
		plain := item{at: r.at, atom: a, rule: r.clone()}
		if c.prefix != "" && !r.answers() || c.prefix != "" && r.static != nil {
			plain.rule.rewrite = stripped(a.match, c.prefix)
		}
		list := []item{plain}
		for i := range c.layers {
			list = b.apply(&c.layers[i], list)
		}
		if len(list) > mostItems {
			b.l.left(r.at, "too many conditions meet here", "write the rules by hand")
			list = list[:mostItems]
		}
		list[len(list)-1].last = onlyTLS(a) && len(cond.atoms) > 0
		items = append(items, list...)
	}
	return items
}

// apply applies a layer to items: to all requests of those within its condition, and to the part of others that it holds for.
func (b *caddySite) apply(l *layer, items []item) (out []item) {
	for _, it := range items {
		whole := slices.ContainsFunc(l.cond.atoms, func(a atom) bool { return a.includes(it.atom) })
		if whole {
			l.apply(&it)
			out = append(out, it)
			continue
		}
		for _, a := range l.cond.atoms {
			both, ok := it.atom.and(a)
			if l.guard && !both.never {
				if whole = !ok; whole {
					b.l.changed(l.d.at, "", "it holds for all requests of the rules whose path it meets in part")
					break
				}
				both = both.clientsAside(&rule{})
			}
			if !ok {
				if a.match.kind == it.atom.match.kind || a.match.kind == pathRegexp || it.atom.match.kind == pathRegexp {
					b.l.changed(l.d.at, "", "where its path and that of another directive meet in part, it is left out")
				}
				continue
			}
			if both.never || len(both.notFrom) > 0 {
				continue
			}
			part := it
			part.atom, part.rule, part.last = both, it.rule.clone(), false
			l.apply(&part)
			out = append(out, part)
		}
		if whole {
			l.apply(&it)
		}
		out = append(out, it)
	}
	return out
}

// includes reports whether all requests of another atom are its own.
func (a atom) includes(o atom) bool {
	switch {
	case a.never || len(a.notFrom)+len(a.except) > 0 || a.tls != 0 && a.tls != o.tls:
		return false
	case len(a.hosts) > 0 && (len(o.hosts) == 0 || slices.ContainsFunc(o.hosts, func(h string) bool { return !slices.Contains(a.hosts, h) })):
		return false
	case !within(o.match, a.match) || a.match.method != "" && a.match.method != o.match.method:
		return false
	}
	for _, c := range a.match.headers {
		if !slices.Contains(o.match.headers, c) {
			return false
		}
	}
	for _, c := range a.match.query {
		if !slices.Contains(o.match.query, c) {
			return false
		}
	}
	return len(a.match.clients) == 0 || slices.Equal(a.match.clients, o.match.clients)
}

// routes makes the routes of some listeners: one for its hosts, and one for each host that a matcher names.
func (b *caddySite) routes(listeners, hosts []string, items []item, tls bool) {
	side := -1
	if tls {
		side = 1
	}
	items = b.l.resolved(items)
	var all []item
	groups := [][]string{hosts}
	for _, it := range items {
		if it.atom.tls == -side {
			continue
		}
		all = append(all, it)
		for _, h := range it.atom.hosts {
			ours := len(hosts) == 0 || slices.ContainsFunc(hosts, func(own string) bool { return covers(own, h) })
			if ours && !slices.ContainsFunc(groups[1:], func(g []string) bool { return g[0] == h }) && len(groups) < mostItems {
				groups = append(groups, []string{h})
			}
		}
	}
	end := newRule(b.d.at)
	end.note, end.fixed = "nothing answers, as in Caddy", &fixed{status: 200}
	all = append(all, item{at: b.d.at, rule: end, last: true})
	for n, g := range groups {
		if n == 0 && len(g) > 0 { // without those that have a route of their own
			g = slices.DeleteFunc(slices.Clone(g), func(h string) bool {
				return slices.ContainsFunc(groups[1:], func(o []string) bool { return o[0] == h })
			})
			if len(g) == 0 {
				continue
			}
		}
		var list []item
		for _, it := range all {
			if len(it.atom.hosts) == 0 || n > 0 && slices.ContainsFunc(it.atom.hosts, func(of string) bool { return covers(of, g[0]) }) {
				list = append(list, it)
			}
		}
		b.route(listeners, g, list)
	}
}

// route makes the route of some hosts.
func (b *caddySite) route(listeners, hosts []string, items []item) {
	wish := "default"
	if len(hosts) > 0 {
		wish = strings.TrimPrefix(hosts[0], "*.")
	}
	base := &siteRoute{at: b.d.at, listeners: listeners, hosts: hosts, name: b.m.unique("route", wish)}
	var routes []*siteRoute
	for _, p := range b.l.plan(items) {
		r := p.rule.clone()
		r.matches = p.matches
		if r.rewrite != nil && r.rewrite.kind == replacePrefix && slices.ContainsFunc(r.matches, func(m match) bool { return m.kind != pathPrefix && m.kind != "" }) {
			b.l.changed(p.at, "", "the prefix stays: the path of the rule is none")
			r.rewrite = nil
		}
		routes = enterRoute(routes, base, p.guard, r, b.m)
	}
	for _, r := range routes {
		for len(r.hosts) > mostHosts {
			more := *r
			more.name, more.hosts = b.m.unique("route", wish), r.hosts[mostHosts:]
			if len(more.hosts) > mostHosts {
				more.hosts = more.hosts[:mostHosts]
			}
			rest := slices.Concat(r.hosts[:mostHosts], r.hosts[mostHosts+len(more.hosts):])
			r.hosts = rest
			b.m.routes = append(b.m.routes, &more)
		}
	}
	b.m.routes = append(b.m.routes, routes...)
}
