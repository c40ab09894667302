package route

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/millrace/millrace/semantics"
)

// hasPath reports whether the path is one of a rule's, in whose list the rule was found: only regular expressions are to be
// compared.
func (c *rule) hasPath(path string) bool { return c.regexp == nil || c.regexp.MatchString(path) }

// matches reports whether the conditions beside host and path hold.
func (c *rule) matches(r *Request) bool { return c.mismatch(r) == "" }

// mismatch returns what does not hold, "" if everything does. The names are those of the configuration.
func (c *rule) mismatch(r *Request) string {
	switch {
	case c.method != "" && c.method != r.Method:
		return "method"
	case len(c.sni) > 0 && !namesHost(c.sni, r.SNI):
		return "sni"
	case len(c.ja4) > 0 && !slices.Contains(c.ja4, r.JA4):
		return "ja4"
	case len(c.alpn) > 0 && !slices.ContainsFunc(c.alpn, func(p string) bool { return slices.Contains(r.ALPN, p) }):
		return "alpn"
	case len(c.clients) > 0 && !c.hasClient(r):
		return "clients"
	}
	for i := range c.fields {
		if !c.fields[i].field(r) {
			return "field " + c.fields[i].Name
		}
	}
	for i := range c.query {
		if !c.query[i].parameter(r) {
			return "query " + c.query[i].Name
		}
	}
	return ""
}

// namesHost reports whether a list of names, some of the form "*.name", has a host.
func namesHost(list []string, host string) bool {
	for _, l := range list {
		if l == host || strings.HasPrefix(l, "*.") && strings.HasSuffix(host, l[1:]) && len(host) >= len(l) {
			return true
		}
	}
	return false
}

func (c *rule) hasClient(r *Request) bool {
	addr := r.Client.Unmap()
	return slices.ContainsFunc(c.clients, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// reading is one of the ways in which recipients read a field that comes in several lines, or a parameter that comes twice.
type reading uint8

const (
	regular     reading = iota // any line of a field, and the first parameter
	firstLine                  // of both
	lastLine                   // of both
	joinedLines                // of a field (RFC 9110 5.2)
	anyParameter
)

// readings are those of other recipients. Some join parameters as well (ASP): queries with lists are too common to refuse them for that.
var readings = [...]reading{firstLine, lastLine, joinedLines, anyParameter}

// field reports whether a field is as the condition wants it. Of several lines of one name any may be: HTTPRoute leaves that
// open, and a list in one line is compared as it stands. AmbiguousRepeats has what recipients read otherwise.
func (v *value) field(r *Request) bool {
	if r.reading == joinedLines {
		return v.joined(r)
	}
	found, last := false, -1
	for i := range r.Fields {
		if r.Fields[i].Name != v.Name {
			continue
		}
		r.repeats = r.repeats || last >= 0 && r.Fields[i].Value != r.Fields[last].Value
		if last = i; r.reading != lastLine && !found {
			if found = v.is(r.Fields[i].Value); r.reading == firstLine {
				return found
			}
		}
	}
	return found || r.reading == lastLine && last >= 0 && v.is(r.Fields[last].Value)
}

// joined compares all lines of a field as one value.
func (v *value) joined(r *Request) bool {
	text, separator := "", ""
	for i := range r.Fields {
		if r.Fields[i].Name == v.Name {
			text += separator + r.Fields[i].Value
			separator = ", "
		}
	}
	return separator != "" && v.is(text)
}

// parameter reports whether the first parameter of the query with the name is as the condition wants it. Names and values are compared as
// backends read them, decoded once, like those of keys of limits and hashes: a client could else go around a rule by another spelling.
func (v *value) parameter(r *Request) bool {
	found, seen := false, false
	for query := r.Query; query != ""; {
		var p string
		p, query, _ = strings.Cut(query, "&")
		name, s, _ := strings.Cut(p, "=")
		if semantics.DecodeQuery(name) != v.Name {
			continue
		}
		r.repeats = r.repeats || seen
		if is := v.is(semantics.DecodeQuery(s)); !seen || r.reading == lastLine || r.reading == anyParameter && is {
			found = is
		}
		seen = true
	}
	return found
}

// Step is one rule of Explain.
type Step struct {
	Rule    string
	Number  int
	Missing string // the condition that does not hold; "" for the rule that matches
}

// Explain returns the rules of the request's host and path in the order in which Find tries them, up to the one that matches.
func (t *Table) Explain(r *Request) (steps []Step) {
	t.hosts(r.Host, func(p *paths) bool {
		return p.lists(r.Path, func(list []*rule) bool {
			for _, c := range list {
				if !c.hasPath(r.Path) {
					continue
				}
				missing := c.mismatch(r)
				steps = append(steps, Step{c.name, c.number, missing})
				if missing == "" {
					return false
				}
			}
			return true
		})
	})
	return steps
}

// join puts errors into one, of which at most 20 are named.
func join(errs []error) error {
	const most = 20
	if len(errs) > most {
		errs = append(errs[:most:most], fmt.Errorf("and %d more", len(errs)-most))
	}
	return errors.Join(errs...)
}
