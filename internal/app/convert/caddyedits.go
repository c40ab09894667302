package convert

import (
	"regexp"
	"slices"
	"strings"
)

// Caddy sorts directives: those that change requests come before the matchers of handle, respond and others, which see the changed
// request. Rules of the gateway match the request as the client has sent it.

// editedBy returns the samples that directives of a block change, beside others.
func editedBy(list []*directive, outer map[string]bool) map[string]bool {
	edited := map[string]bool{}
	for name := range outer {
		edited[name] = true
	}
	for _, d := range list {
		switch d.name {
		case "method":
			edited[editedMethod] = true
		case "request_header":
			args := d.texts()
			if len(args) > 1 && (args[0] == "*" || strings.HasPrefix(args[0], "@") || strings.HasPrefix(args[0], "/")) {
				args = args[1:]
			}
			if len(args) == 0 {
				continue
			}
			name := strings.ToLower(strings.TrimLeft(args[0], "+-?>"))
			edited[name] = true
			if strings.Contains(name, "*") {
				edited[editedAll] = true
			}
		case "forward_auth":
			for _, o := range d.block {
				if o.name != "copy_headers" {
					continue
				}
				names := o.texts()
				for _, inner := range o.block {
					names = append(append(names, inner.name), inner.texts()...)
				}
				for _, name := range names {
					_, to, found := strings.Cut(name, ">")
					if !found {
						to = name
					}
					edited[strings.ToLower(to)] = true
				}
			}
		}
	}
	return edited
}

// closeEdited closes the requests of a block whose path a directive rewrites, where a directive behind it refuses requests by their
// path.
func (b *caddySite) closeEdited(in, c *context, list []*directive) (items []item) {
	if !slices.ContainsFunc(list, func(d *directive) bool { return b.refusesByPath(c, d) }) {
		return nil
	}
	for _, d := range list {
		if d.name != "rewrite" && d.name != "uri" {
			continue
		}
		cond, args := b.covering(c, d), d.texts()
		if len(args) > 0 && (args[0] == "*" || strings.HasPrefix(args[0], "@") || strings.HasPrefix(args[0], "/")) && d.name == "uri" {
			args = args[1:]
		}
		if d.name == "uri" && len(args) == 2 && args[0] == "strip_prefix" {
			cond = narrowed(cond, verdict{atoms: []atom{{match: match{kind: pathPrefix, path: "/" + strings.Trim(args[1], "/")}}}, known: true}.below(c.prefix))
		}
		cond = narrowed(c.within, anyCase(cond))
		cond.coarse = ""
		r := b.l.close(d.at, "a directive behind it refuses requests by the path that it makes", "write the refusal for the path that clients send as well")
		items = append(items, b.layered(in, cond, r)...)
	}
	return items
}

// refusesByPath reports whether a directive, or one within it, keeps clients out by the path of requests.
func (b *caddySite) refusesByPath(c *context, d *directive) bool {
	return b.readsPath(c, d) && refusing(d) || slices.ContainsFunc(d.block, func(inner *directive) bool {
		return slices.Contains([]string{"handle", "handle_path", "route"}, d.name) && (b.readsPath(c, d) && refusing(inner) || b.refusesByPath(c, inner))
	})
}

// readsPath reports whether the matcher of a directive looks at paths.
func (b *caddySite) readsPath(c *context, d *directive) bool {
	m := d.arg(0)
	if strings.HasPrefix(m, "/") && d.name != "redir" {
		return m != "/*"
	}
	set := c.named[m]
	if !strings.HasPrefix(m, "@") || set == nil {
		return strings.HasPrefix(m, "@")
	}
	words := set.texts()
	var read func(list []*directive)
	read = func(list []*directive) {
		for _, o := range list {
			words = append(append(words, o.name), o.texts()...)
			read(o.block)
		}
	}
	read(set.block)
	return slices.ContainsFunc(words, func(w string) bool {
		return slices.Contains([]string{"path", "path_regexp", "expression", "file", "vars", "vars_regexp"}, w)
	})
}

// refusing reports whether a directive keeps clients out.
func refusing(d *directive) bool {
	switch d.name {
	case "abort", "error":
		return true
	case "respond":
		return slices.ContainsFunc(d.texts(), func(s string) bool { return len(s) == 3 && atoi(s) >= 400 })
	case "handle", "handle_path", "route":
		return slices.ContainsFunc(d.block, refusing)
	}
	return guarding([]*directive{d})
}

// below returns a condition within handle_path for the whole path.
func (v verdict) below(prefix string) verdict {
	if prefix == "" {
		return v
	}
	atoms, known := belowAtoms(v.atoms, prefix)
	return verdict{atoms: atoms, known: v.known && known, coarse: v.coarse}
}

func belowAtoms(list []atom, prefix string) (out []atom, known bool) {
	known = true
	for _, a := range list {
		switch m := &a.match; m.kind {
		case pathRegexp:
			re, ok := belowRegexp(m.path, prefix)
			m.path, known = re, known && ok
		case pathExact, pathPrefix:
			m.path = prefix + m.path
		}
		except, ok := belowAtoms(a.except, prefix)
		a.except, known = except, known && ok
		out = append(out, a)
	}
	return out, known
}

// belowRegexp returns the expression for the paths below a prefix whose rest, which begins with a slash, an expression matches.
func belowRegexp(re, prefix string) (string, bool) {
	rest, any := strings.CutPrefix(re, ".*")
	inner, fold := strings.CutPrefix(rest, "(?i:")
	switch {
	case inner == "" || strings.Contains(re, "|"):
		return "", false
	case !any && inner[0] == '/':
		re = regexp.QuoteMeta(prefix) + re
	case any && inner[0] == '/':
		re = regexp.QuoteMeta(prefix) + "(?:/.*)?" + rest
	case any && (inner[0] == '\\' && len(inner) > 1 && !letter(inner[1]) || letter(inner[0])) && !strings.ContainsAny(inner[1:min(3, len(inner))], "?*{"):
		re = regexp.QuoteMeta(prefix) + "/.*" + rest
	default:
		return "", false
	}
	return re, !fold && validPath(pathRegexp, re)
}

func letter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' || c >= '0' && c <= '9' }

// inner returns the condition that a block adds to one whose paths are below its prefix.
func (c *context) inner(cond verdict) verdict {
	if c.prefix == "" || slices.ContainsFunc(cond.atoms, func(a atom) bool { return a.match.kind != pathRegexp }) {
		return c.within
	}
	v := c.within
	v.atoms = slices.Clone(v.atoms)
	for i := range v.atoms {
		if m := &v.atoms[i].match; m.kind == pathPrefix && strings.TrimSuffix(m.path, "/") == c.prefix {
			m.kind, m.path = "", ""
		}
	}
	return v
}

// stripped returns the rewrite that takes the prefix of handle_path off the paths of a condition.
func stripped(m match, prefix string) *modifier {
	rest := strings.TrimPrefix(m.path, prefix)
	switch {
	case m.kind == pathExact && len(rest) > 1:
		return &modifier{replaceFull, rest}
	case m.kind == pathPrefix && len(rest) > 1:
		return &modifier{replacePrefix, rest}
	}
	return &modifier{replacePrefix, "/"}
}

// hiddenFiles returns the refusals of the files that `hide` names: names are of any part of a path, and what has a slash is a file or a
// folder.
func (b *caddySite) hiddenFiles(c *context, d *directive, cond verdict, root string) (items []item) {
	for _, o := range d.block {
		if o.name != "hide" {
			continue
		}
		for _, name := range o.texts() {
			r := newRule(o.at)
			r.note, r.fixed = "hidden", &fixed{status: 404}
			with := cond
			re, outside := hiddenForm(b.s.path(name), name, root)
			if outside {
				continue
			}
			both := both(cond, verdict{atoms: []atom{{match: match{kind: pathRegexp, path: re}}}, known: re != "" && validPath(pathRegexp, re)})
			if with = both; !both.known || never(both) {
				r, with = b.l.close(o.at, "rules have no such pattern", "write rules for the files"), anyCase(cond)
			}
			items = append(items, b.layered(c, with, r)...)
		}
		if b.l.lines[o.at].Result == "" {
			b.l.ok(o.at, "FixedResponse")
		}
	}
	return items
}

// hiddenForm returns the expression for the paths of a pattern of `hide`, "" where there is none.
func hiddenForm(full, name, root string) (re string, outside bool) {
	pattern := name
	switch {
	case strings.ContainsAny(name, `[]{}\`) || name == "":
		return "", false
	case strings.Contains(name, "/"):
		rest, below := strings.CutPrefix(full, strings.TrimSuffix(root, "/")+"/")
		if !below {
			return "", root != "" && !strings.ContainsAny(full, "*?")
		}
		pattern = rest
	}
	re = strings.NewReplacer(`\*`, "[^/]*", `\?`, "[^/]").Replace(regexp.QuoteMeta(pattern))
	return ".*/" + re + "(?:/.*)?", false
}
