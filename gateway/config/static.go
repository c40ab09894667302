package config

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/millrace/millrace/internal/strictyaml"
	"github.com/millrace/millrace/l7/files"
	"github.com/millrace/millrace/semantics"
)

// Static serves the files of a folder. What is not there goes to the pools of the rule, or is answered 404.
type Static struct {
	Root          string   // key "root", required: relative to the configuration file's folder
	Index         []string // key "index": files that answer for their folder, default index.html
	TryFiles      []string // key "try_files": paths that are tried one after the other, with ${path}; default that alone
	Listing       bool     // key "listing": of folders without an index, default false
	Precompressed []string // key "precompressed": codings of files that lie beside others, the best first: "br", "zstd", "gzip"; default none
	Hidden        bool     // key "hidden": also names that begin with a dot, default false
	CacheControl  string   // key "cache_control": the field of responses; default none
}

func newStatic() *Static { return &Static{Index: []string{"index.html"}} }

// Options returns the settings of the folder.
func (s *Static) Options(c *Config) files.Options {
	return files.Options{
		Root: c.Beside(s.Root), Index: s.Index, Try: s.TryFiles, Listing: s.Listing, Precompressed: s.Precompressed, Hidden: s.Hidden,
		CacheControl: s.CacheControl,
	}
}

// codings are the content codings that there are files and encoders for.
var codings = []string{"br", "zstd", "gzip"}

func (d *l7Decoder) static(n *yaml.Node, s *Static, at *rulePlace) {
	d.Mapping(n, "static",
		strictyaml.Required("root", func(n *yaml.Node) {
			if d.Text(n, "root", &s.Root) {
				at.files = append(at.files, filePlace{fileFolder, s.Root, n})
			}
		}),
		strictyaml.Optional("index", func(n *yaml.Node) {
			s.Index = nil
			d.eachText(n, "index", 16, func(n *yaml.Node, text string) {
				if strings.ContainsAny(text, "/\x00") || text == ".." || text == "." {
					d.Fail(n, "such as index.html", "index has no name of a file: %q", text)
				}
				s.Index = append(s.Index, text)
			})
		}),
		strictyaml.Optional("try_files", func(n *yaml.Node) {
			d.eachText(n, "try_files", 16, func(n *yaml.Node, text string) {
				d.checkTry(n, text)
				s.TryFiles = append(s.TryFiles, text)
			})
		}),
		strictyaml.Optional("listing", func(n *yaml.Node) { d.Truth(n, "listing", &s.Listing) }),
		strictyaml.Optional("precompressed", func(n *yaml.Node) { d.codings(n, "precompressed", &s.Precompressed) }),
		strictyaml.Optional("hidden", func(n *yaml.Node) { d.Truth(n, "hidden", &s.Hidden) }),
		strictyaml.Optional("cache_control", func(n *yaml.Node) {
			if d.Text(n, "cache_control", &s.CacheControl) && !semantics.IsValue(s.CacheControl) {
				d.Fail(n, "such as max-age=3600", "cache_control is no value of a field: %q", s.CacheControl)
			}
		}),
	)
}

// checkTry reports what is no path below the folder.
func (d *l7Decoder) checkTry(n *yaml.Node, text string) {
	rest := strings.Replace(text, files.Path, "/", 1)
	switch {
	case strings.Contains(rest, "${") || strings.Contains(rest, "$uri"):
		d.Fail(n, "the path of the request is "+files.Path, "try_files has another variable than path: %q", text)
	case !strings.HasPrefix(rest, "/"):
		d.Fail(n, "such as "+files.Path+" or /index.html", "%q begins neither with a slash nor with %s", text, files.Path)
	case slices.Contains(strings.Split(rest, "/"), "..") || strings.IndexByte(rest, 0) >= 0:
		d.Fail(n, "", "%q leads out of the folder", text)
	}
}

// codings reads one or more content codings.
func (d *l7Decoder) codings(n *yaml.Node, what string, to *[]string) {
	lines := map[string]int{}
	*to = nil
	d.OneOrMore(n, what, len(codings), func(n *yaml.Node) {
		coding := ""
		if strictyaml.Choice(d.Decoder, n, what, &coding, codings...); coding != "" {
			d.unique(lines, coding, n, "coding")
			*to = append(*to, coding)
		}
	})
}

// eachText reads one or more texts, and calls f with each.
func (d *l7Decoder) eachText(n *yaml.Node, what string, most int, f func(n *yaml.Node, text string)) {
	d.OneOrMore(n, what, most, func(n *yaml.Node) {
		if s := ""; d.Text(n, what, &s) {
			f(n, s)
		}
	})
}
