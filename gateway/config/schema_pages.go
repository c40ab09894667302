package config

import (
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/millrace/millrace/internal/strictyaml"
	"github.com/millrace/millrace/l7/rewrite"
	"github.com/millrace/millrace/semantics"
)

// year is the least max_age of a host that enters the lists of browsers (https://hstspreload.org).
const year = 365 * 24 * time.Hour

func (d guardDecoder) hsts(n *yaml.Node, h *HSTS) {
	k := keyPlaces{"": n}
	d.Mapping(n, "hsts", k.under("",
		strictyaml.Required("max_age", func(n *yaml.Node) { d.wholeSeconds(n, "max_age", &h.MaxAge, 0, 10*year) }),
		strictyaml.Optional("include_subdomains", func(n *yaml.Node) { d.Truth(n, "include_subdomains", &h.Subdomains) }),
		strictyaml.Optional("preload", func(n *yaml.Node) { d.Truth(n, "preload", &h.Preload) }),
	)...)
	if h.Preload && (h.MaxAge < year || !h.Subdomains) {
		d.Fail(k["preload"], "set `max_age: 8760h` or more, and `include_subdomains: true`", "preload has no effect: lists of browsers take no such host")
	}
}

// wholeSeconds reads a duration for a field that has seconds.
func (d guardDecoder) wholeSeconds(n *yaml.Node, what string, to *time.Duration, least, most time.Duration) {
	d.Duration(n, what, to, least, most)
	if *to%time.Second != 0 {
		d.Fail(n, "write whole seconds", "%s cannot be %v", what, *to)
	}
}

// pageTypes are the types of pages by the ends of their names.
var pageTypes = map[string]string{".html": "text/html; charset=utf-8", ".htm": "text/html; charset=utf-8", ".txt": "text/plain; charset=utf-8", ".json": "application/json"}

func (d guardDecoder) errorPages(n *yaml.Node, to *[]ErrorPage, at *guardPlace) {
	seen := map[int]int{}
	d.List(n, "error_pages", 64, func(n *yaml.Node) {
		var p ErrorPage
		k := keyPlaces{"": n}
		d.Mapping(n, "an entry of error_pages", k.under("",
			strictyaml.Required("status", func(n *yaml.Node) {
				d.OneOrMore(n, "status", 64, func(n *yaml.Node) {
					var status int
					if !strictyaml.Integer(d.Decoder, n, "status", &status, 400, 599) {
						return
					}
					if line, ok := seen[status]; ok {
						d.Fail(n, "", "status %d is already on line %d", status, line)
					}
					seen[status] = n.Line
					p.Statuses = append(p.Statuses, status)
				})
			}),
			strictyaml.Required("file", func(n *yaml.Node) { d.oneFile(n, "file", filePage, &p.File, at) }),
			strictyaml.Optional("content_type", func(n *yaml.Node) {
				if d.Text(n, "content_type", &p.Type); p.Type != "" && (!semantics.IsValue(p.Type) || !strings.Contains(p.Type, "/")) {
					d.Fail(n, "such as text/html; charset=utf-8", "content_type cannot be %q", p.Type)
				}
			}),
		)...)
		if i := strings.LastIndexByte(p.File, '.'); p.Type == "" && i >= 0 {
			p.Type = pageTypes[strings.ToLower(p.File[i:])]
		}
		if p.Type == "" && p.File != "" {
			d.Fail(k["file"], "set content_type", "the type of %q is not known", p.File)
		}
		*to = append(*to, p)
	})
}

// location reads the URL of a redirect. A path of the client may not become its beginning: "//evil.example" is another host
// (RFC 3986 4.2).
func (d guardDecoder) location(n *yaml.Node, to *string) {
	if d.scalar(n, "location", to); *to == "" {
		return
	}
	if _, err := rewrite.ParseTemplate(*to); err != nil {
		d.Fail(n, strictyaml.Allowed(rewrite.Variables())+"; $${ stands for itself", "%s", err)
		return
	}
	rest, absolute := *to, false
	for _, scheme := range []string{"https://", "http://", "${scheme}://"} {
		if r, ok := strings.CutPrefix(rest, scheme); ok {
			rest, absolute = r, true
		}
	}
	hosted := rest != "" && (strings.HasPrefix(rest, "${host}") || strings.HasPrefix(rest, "${hostname}") || !strings.ContainsAny(rest[:1], "/\\$?#@"))
	rooted := len(*to) > 1 && (*to)[0] == '/' && !strings.ContainsAny((*to)[1:2], "/\\$") || *to == "/"
	switch {
	case !semantics.IsValue(*to):
		d.Fail(n, "no control characters, and no white space at the ends", "%q is not a URL", *to)
	case absolute && !hosted, !absolute && !rooted:
		d.Fail(n, "begin with https:// and a host, ${scheme}://${host}, or a slash and text", "location %q may lead to another host than it shows", *to)
	}
}
