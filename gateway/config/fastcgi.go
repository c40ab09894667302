package config

import (
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/millrace/millrace/internal/strictyaml"
	"github.com/millrace/millrace/l7/fastcgi"
	"github.com/millrace/millrace/l7/rewrite"
	"github.com/millrace/millrace/semantics"
)

// FastCGI defines how requests become those of scripts, such as those of PHP.
type FastCGI struct {
	Root          string         // key "root", required: folder of the scripts, where the backends have it
	LocalRoot     string         // key "local_root": the same folder where the gateway has it, default Root
	CheckScripts  bool           // key "check_scripts": look scripts up in LocalRoot, default true
	Index         string         // key "index": the script of a folder, default "index.php"
	Fallback      string         // key "fallback": the script of what names none; default none
	Extensions    []string       // key "extensions": of scripts, default ".php"
	Keep          bool           // key "keep_connections": more than one request for each connection, default false
	ContentBuffer int            // key "content_buffer": bytes of content of unknown length, default 1 MiB
	Params        []FastCGIParam // key "params": more variables, or others
}

// FastCGIParam is a variable of a request.
type FastCGIParam struct {
	Name  string // key "name", required
	Value string // key "value", required: text with variables, as of fields
}

func newFastCGI() *FastCGI {
	return &FastCGI{CheckScripts: true, Index: "index.php", Extensions: []string{".php"}, ContentBuffer: 1 << 20}
}

// Local returns the folder where the gateway looks scripts up, "" for none.
func (f *FastCGI) Local(c *Config) string {
	switch {
	case !f.CheckScripts:
		return ""
	case f.LocalRoot != "":
		return c.Beside(f.LocalRoot)
	}
	return f.Root
}

// Template returns the value, which the decoder has checked.
func (p *FastCGIParam) Template() *rewrite.Template {
	t, err := rewrite.ParseTemplate(p.Value)
	if err != nil {
		panic(err)
	}
	if t == nil {
		t = rewrite.Text(p.Value)
	}
	return t
}

// Bounds of content of unknown length: each request may have as much.
const maxContentBuffer = 64 << 20

func (d *l7Decoder) fastCGI(n *yaml.Node, f *FastCGI, at *poolPlace) {
	k := keyPlaces{"": n}
	d.Mapping(n, "fastcgi", k.under("",
		strictyaml.Required("root", func(n *yaml.Node) {
			if d.Text(n, "root", &f.Root) && !path.IsAbs(f.Root) {
				d.Fail(n, "such as /srv/www", "root is no absolute path: %q", f.Root)
			}
		}),
		strictyaml.Optional("local_root", func(n *yaml.Node) { d.Text(n, "local_root", &f.LocalRoot) }),
		strictyaml.Optional("check_scripts", func(n *yaml.Node) { d.Truth(n, "check_scripts", &f.CheckScripts) }),
		strictyaml.Optional("index", func(n *yaml.Node) {
			if d.Text(n, "index", &f.Index); strings.ContainsAny(f.Index, "/\x00") || f.Index == ".." || f.Index == "." {
				d.Fail(n, "such as index.php", "index has no name of a file: %q", f.Index)
			}
		}),
		strictyaml.Optional("fallback", func(n *yaml.Node) {
			if d.Text(n, "fallback", &f.Fallback) && (f.Fallback[0] != '/' || slices.Contains(strings.Split(f.Fallback, "/"), "..") || strings.IndexByte(f.Fallback, 0) >= 0) {
				d.Fail(n, "such as /index.php", "fallback is no path below root: %q", f.Fallback)
			}
		}),
		strictyaml.Optional("extensions", func(n *yaml.Node) {
			f.Extensions = nil
			d.eachText(n, "extensions", 16, func(n *yaml.Node, text string) {
				if !strings.HasPrefix(text, ".") || len(text) < 2 || strings.ContainsAny(text, "/\x00") {
					d.Fail(n, "such as .php", "extensions has no end of a name: %q", text)
				}
				f.Extensions = append(f.Extensions, text)
			})
		}),
		strictyaml.Optional("keep_connections", func(n *yaml.Node) { d.Truth(n, "keep_connections", &f.Keep) }),
		strictyaml.Optional("content_buffer", func(n *yaml.Node) {
			strictyaml.Integer(d.Decoder, n, "content_buffer", &f.ContentBuffer, 0, maxContentBuffer)
		}),
		strictyaml.Optional("params", func(n *yaml.Node) { decodeParams(d, n, f) }),
	)...)
	switch local := k["local_root"]; {
	case local != nil && !f.CheckScripts:
		d.Fail(local, "leave it out", "local_root has no effect: scripts are not looked up")
	case local != nil:
		at.files = append(at.files, filePlace{fileFolder, f.LocalRoot, local})
	case f.CheckScripts && path.IsAbs(f.Root):
		at.files = append(at.files, filePlace{fileFolder, f.Root, k.at("root")})
	}
}

// decodeParams reads variables of requests.
func decodeParams(d *l7Decoder, n *yaml.Node, f *FastCGI) {
	lines := map[string]int{}
	d.List(n, "params", 256, func(n *yaml.Node) {
		var p FastCGIParam
		nameAt := n
		d.Mapping(n, "a variable",
			strictyaml.Required("name", func(n *yaml.Node) {
				nameAt = n
				switch d.Text(n, "name", &p.Name); {
				case p.Name != "" && !fastcgi.IsVariable(p.Name):
					d.Fail(n, "capital letters, digits and _, such as APP_ENV", "%q is no name of a variable", p.Name)
				case p.Name == "CONTENT_LENGTH" || p.Name == "HTTP_PROXY":
					d.Fail(n, "leave it out", "%s cannot be set: programs would misread the content, or take a proxy of a client's choice", p.Name)
				}
			}),
			strictyaml.Required("value", func(n *yaml.Node) {
				d.scalar(n, "value", &p.Value)
				if _, err := rewrite.ParseTemplate(p.Value); err != nil {
					d.Fail(n, strictyaml.Allowed(rewrite.Variables())+"; $${ stands for itself", "%s", err)
				} else if !semantics.IsText(p.Value) {
					d.Fail(n, "", "value has control characters")
				}
			}))
		d.unique(lines, p.Name, nameAt, "variable")
		f.Params = append(f.Params, p)
	})
}

// checkFastCGI reports what of a pool does not go with FastCGI.
func (d *checker) checkFastCGI(p *Pool, at *poolPlace) {
	switch {
	case p.Protocol == PoolFastCGI && p.FastCGI == nil:
		d.Fail(at.node, "fastcgi names the folder of the scripts: `fastcgi: {root: /srv/www}`", "pool %q lacks the key \"fastcgi\": its protocol is %s", p.Name, p.Protocol)
	case p.Protocol != PoolFastCGI && p.FastCGI != nil:
		d.Fail(at.fastCGI, "set `protocol: FASTCGI`, or leave it out", "pool %q speaks %s", p.Name, p.Protocol)
	case p.Protocol == PoolFastCGI && p.ProxyProtocol != ProxyNone:
		d.Fail(at.proxyProtocol, "leave it out: REMOTE_ADDR has the client", "pool %q speaks FastCGI, whose servers take no PROXY header", p.Name)
	}
}
