package config

import (
	"regexp"

	"go.yaml.in/yaml/v3"

	"github.com/millrace/millrace/internal/strictyaml"
)

// Compression compresses responses for clients that accept it.
type Compression struct {
	Codings  []string // key "codings": the best first, default zstd, br, gzip
	Types    []string // key "types": of content; default text and what is like it
	MinBytes int64    // key "min_bytes": of content that announces its length, default 1024
}

func newCompression() *Compression {
	return &Compression{
		Codings: []string{"zstd", "br", "gzip"}, MinBytes: 1024,
		Types: []string{
			"text/*", "+json", "+xml", "application/json", "application/javascript", "application/xml", "application/yaml", "application/wasm",
			"application/vnd.ms-fontobject", "font/ttf", "font/otf", "image/bmp", "image/x-icon",
		},
	}
}

// mediaType is a media type (RFC 9110 8.3.1), all of a kind, or a suffix of structured syntax (RFC 6838 4.2.8).
var mediaType = regexp.MustCompile("^(?:[a-z0-9!#$&^_.+-]+/(?:[a-z0-9!#$&^_.+-]+|\\*)|\\+[a-z0-9.-]+)$")

func (d *l7Decoder) compression(n *yaml.Node, c *Compression) {
	d.Mapping(n, "compression",
		strictyaml.Optional("codings", func(n *yaml.Node) { d.codings(n, "codings", &c.Codings) }),
		strictyaml.Optional("types", func(n *yaml.Node) {
			c.Types = nil
			lines := map[string]int{}
			d.eachText(n, "types", 256, func(n *yaml.Node, text string) {
				if !mediaType.MatchString(text) {
					d.Fail(n, "such as text/html, text/* or +json, in lower case", "types has no media type: %q", text)
				}
				d.unique(lines, text, n, "type")
				c.Types = append(c.Types, text)
			})
		}),
		strictyaml.Optional("min_bytes", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "min_bytes", &c.MinBytes, 0, 1<<30) }),
	)
}
