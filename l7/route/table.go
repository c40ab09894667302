package route

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Table finds rules. It is not changed once it is built.
type Table struct {
	exact    map[string]*paths // by host
	wildcard map[string]*paths // by what follows "*."
	any      *paths
	hello    bool
}

// paths is the rules of one host, by their paths. Each list is in the order in which its rules are tried.
type paths struct {
	exact    byPath
	prefixes byPath // but for "/", which every path has
	regexps  []*rule
	root     []*rule // of the prefix "/"
}

// byPath has lists of rules by a path. Most paths of requests have a length that none of them has: those are not looked up.
type byPath struct {
	rules   map[string][]*rule
	lengths uint64 // of the paths, modulo 64
}

func (b *byPath) add(r *rule) {
	if b.rules == nil {
		b.rules = map[string][]*rule{}
	}
	b.rules[r.path.Value] = append(b.rules[r.path.Value], r)
	b.lengths |= 1 << (len(r.path.Value) % 64)
}

// of returns the rules of a path, nil where there are none.
func (b *byPath) of(path string) []*rule {
	if b.lengths>>(len(path)%64)&1 == 0 {
		return nil
	}
	return b.rules[path]
}

// New builds a table. The error names every rule that is wrong, by its name.
func New(rules []Rule) (*Table, error) {
	t := &Table{exact: map[string]*paths{}, wildcard: map[string]*paths{}, any: &paths{}}
	var errs []error
	for i := range rules {
		r, err := compile(i, &rules[i])
		if err != nil {
			errs = append(errs, fmt.Errorf("rule %s: %w", rules[i].Name, err))
			continue
		}
		t.add(r, rules[i].Match.Hosts)
		t.hello = t.hello || len(r.ja4)+len(r.alpn) > 0
	}
	if len(errs) > 0 {
		return nil, join(errs)
	}
	t.sort()
	return t, nil
}

// ReadsHello reports whether a rule has a condition on JA4 or ALPN: otherwise these of a Request are not read.
func (t *Table) ReadsHello() bool { return t.hello }

// ReadHello has ReadsHello report true: something beside the rules has use for the ClientHello.
func (t *Table) ReadHello() { t.hello = true }

// add enters a rule for its hosts.
func (t *Table) add(r *rule, hosts []string) {
	if len(hosts) == 0 {
		t.any.add(r)
	}
	for _, h := range hosts {
		in, key := t.exact, h
		if suffix, ok := strings.CutPrefix(h, "*."); ok {
			in, key = t.wildcard, suffix
		}
		if in[key] == nil {
			in[key] = &paths{}
		}
		in[key].add(r)
	}
}

func (p *paths) add(r *rule) {
	switch r.path.Type {
	case PathExact:
		p.exact.add(r)
	case PathPrefix:
		if r.path.Value == "/" {
			p.root = append(p.root, r)
		} else {
			p.prefixes.add(r)
		}
	case PathRegexp:
		p.regexps = append(p.regexps, r)
	}
}

// sort puts all lists into the order of precedence.
func (t *Table) sort() {
	for _, hosts := range []map[string]*paths{t.exact, t.wildcard, {"": t.any}} {
		for _, p := range hosts {
			for _, lists := range []map[string][]*rule{p.exact.rules, p.prefixes.rules, {"": p.regexps}, {"": p.root}} {
				for _, l := range lists {
					slices.SortStableFunc(l, precedence)
				}
			}
		}
	}
}

// precedence orders rules of one host and path: those with a method first, then those with more fields, with more parameters of
// the query, and with more conditions on the client; of equal ones the first in the configuration.
func precedence(a, b *rule) int {
	return cmp.Or(
		cmp.Compare(len(b.method), 0)-cmp.Compare(len(a.method), 0),
		cmp.Compare(len(b.fields), len(a.fields)),
		cmp.Compare(len(b.query), len(a.query)),
		cmp.Compare(b.about(), a.about()),
	)
}

// about counts the conditions on the client.
func (r *rule) about() (n int) {
	for _, has := range []bool{len(r.sni) > 0, len(r.ja4) > 0, len(r.alpn) > 0, len(r.clients) > 0} {
		if has {
			n++
		}
	}
	return n
}

// Find returns the number of the rule that a request matches, -1 for none. The most specific host decides first: its own name,
// then the longest name below which it is, then rules for every host; then the path: an exact one, then a regular expression,
// then the longest prefix; then the order of precedence. Where no rule of a host matches, the next host is tried.
func (t *Table) Find(r *Request) int {
	n := -1
	t.hosts(r.Host, func(p *paths) bool {
		return p.lists(r.Path, func(list []*rule) bool {
			for _, c := range list {
				if c.hasPath(r.Path) && c.matches(r) {
					n = c.number
					return false
				}
			}
			return true
		})
	})
	return n
}

// hosts calls f for the rules of each host that a name is or is below, the most specific first, until it returns false.
func (t *Table) hosts(host string, f func(p *paths) bool) {
	if p := t.exact[host]; p != nil && !f(p) {
		return
	}
	if len(t.wildcard) > 0 {
		for rest := host; ; {
			dot := strings.IndexByte(rest, '.')
			if dot < 0 {
				break
			}
			rest = rest[dot+1:]
			if p := t.wildcard[rest]; p != nil && !f(p) {
				return
			}
		}
	}
	f(t.any)
}

// lists calls f for the lists of rules that a path may match, in the order of Find, until it returns false. It reports whether
// there may be more.
func (p *paths) lists(path string, f func(list []*rule) bool) bool {
	if list := p.exact.of(path); list != nil && !f(list) {
		return false
	}
	if len(p.regexps) > 0 && !f(p.regexps) {
		return false
	}
	if p.prefixes.lengths != 0 {
		for prefix := strings.TrimSuffix(path, "/"); prefix != ""; prefix = prefix[:max(strings.LastIndexByte(prefix, '/'), 0)] {
			if list := p.prefixes.of(prefix); list != nil && !f(list) {
				return false
			}
		}
	}
	return p.root == nil || f(p.root)
}
