package convert

import (
	"slices"
	"strings"
)

// caddyLeft are directives that cannot be expressed: the reason, and what to do.
var caddyLeft = map[string][2]string{
	"templates":     {"the gateway does not change content", "change it at the application"},
	"handle_errors": {"pages replace responses of the gateway alone", "name files in routes[].error_pages"},
	"invoke":        {"named routes are not followed", "write the rules where they are invoked"},
	"intercept":     {"responses are not replaced", "change them at the application"},
	"fs":            {"files are those of the system", "name their folder with root"},
	"copy_response": {"responses are not replaced", "change them at the application"},
	"map":           {"the gateway has no maps", "write rules for the cases"},
	"vars":          {"rules have no variables of their own", "write rules for the cases"},
	"skip_log":      {"there is one log for all requests", ""},
	"log_skip":      {"there is one log for all requests", ""},
	"log_append":    {"the log has fields of its own", ""},
	"method":        {"requests keep their method", ""},
	"push":          {"pushes of HTTP/2 have no clients any more", ""},
	"tracing":       {"requests are not traced", "see listeners[].request_id"},
}

// caddyRead are directives that functions of this package read, and that keep no client out.
var caddyRead = []string{"tls", "bind", "encode", "log", "import", "root", "header", "request_header", "rewrite", "uri", "try_files", "request_body"}

// leftLayer notes a directive without a counterpart. It is false for one that may keep clients out: any that is not known to do
// something else.
func (b *caddySite) leftLayer(d *directive) bool {
	if why, ok := caddyLeft[d.name]; ok {
		b.whole(d, Left, why[0], why[1])
		return true
	}
	why, remedy := "the converter does not know the directive, which may keep clients out", "see docs/moving-in.md for what is translated"
	if d.name == "rate_limit" {
		why, remedy = "the plugin has another form", "write rate_limits"
	}
	b.whole(d, Left, "it is of the directive around it", "")
	b.l.lines[d.at].Reason = ""
	b.l.close(d.at, why, remedy)
	return false
}

// covering returns a condition that holds wherever that of a directive does, and is known: lines of a matcher without a counterpart
// are left out.
func (b *caddySite) covering(c *context, d *directive) verdict {
	if cond, _ := b.matcher(c, d); cond.known && len(cond.atoms) > 0 {
		return cond
	}
	set := c.named[d.arg(0)]
	if set == nil || !set.open {
		return always
	}
	v := always
	for _, o := range set.block {
		v = narrowed(v, b.line(o).below(c.prefix))
	}
	return v
}

// anyCase returns a condition for a refusal: Caddy compares paths without case, and a prefix ends within a segment as well.
func anyCase(v verdict) verdict {
	v.atoms = slices.Clone(v.atoms)
	for i := range v.atoms {
		m := &v.atoms[i].match
		path := quoted(m.path)
		switch {
		case m.kind == pathPrefix && m.path == "/":
			continue
		case m.kind == pathPrefix && strings.HasSuffix(m.path, "/"):
			path = quoted(strings.TrimSuffix(m.path, "/")) + "(?:/.*)?"
		case m.kind == pathPrefix:
			path += ".*"
		case m.kind == pathRegexp && !strings.HasPrefix(m.path, "(?i:"):
			path = m.path
		case m.kind != pathExact:
			continue
		}
		m.kind, m.path = pathRegexp, "(?i:"+path+")"
	}
	return v
}

// guarding reports whether some directive of a block keeps clients out.
func guarding(block []*directive) bool {
	return slices.ContainsFunc(block, func(d *directive) bool {
		_, known := caddyLeft[d.name]
		switch d.name {
		case "basic_auth", "basicauth", "forward_auth":
			return true
		case "handle", "handle_path", "route":
			return guarding(d.block)
		}
		return !known && !slices.Contains(caddyRead, d.name) && !slices.Contains(caddyOrder, d.name) && !strings.HasPrefix(d.name, "@")
	})
}

// quiet notes what is in a block that is left out.
func (b *caddySite) quiet(d *directive) {
	for _, inner := range d.block {
		b.whole(inner, Left, "the directive around it is left out", "")
	}
}
