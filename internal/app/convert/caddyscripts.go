package convert

import (
	"path"
	"strings"
)

// scripts translates php_fastcgi: files of the folder where file_server stands beside it, else scripts, else /index.php.
func (b *caddySite) scripts(c *context, d *directive, args []string) *rule {
	f := &fastCGI{root: c.root, fallback: "/index.php"}
	p := &pool{at: d.at, protocol: "FASTCGI", idle: -1, timeouts: times{}, fast: f}
	r := newRule(d.at)
	policy := ""
	for _, a := range args {
		if !b.upstream(p, a, d.at) || p.tls != nil {
			b.l.left(d.at, shorten(a)+" is no address of a server of FastCGI", "write an address or a name, with a port")
			p.tls = nil
		}
	}
	p.protocol = "FASTCGI"
	for _, o := range d.block {
		b.scriptKey(p, r, o, &policy)
	}
	if c.root != "" && c.root != f.root {
		f.local = c.root
	}
	if !path.IsAbs(f.root) || len(p.backends) == 0 {
		b.l.left(d.at, "the folder of the scripts is not known, or no server of it could be translated", "name the folder with root, as an absolute path")
		return nil
	}
	if len(p.backends) > 1 && policy == "" { // Caddy's default
		p.balance = "random"
	}
	if p.health != nil && p.health.path == "" {
		p.health = nil
	}
	r.hostname = ""
	wish := ""
	if len(args) > 0 {
		wish = strings.TrimLeft(strings.TrimPrefix(args[0], "unix/"), "/")
	}
	r.pools = []weighted{{b.enter(p, wish), 1}}
	if c.files == nil {
		b.l.changed(d.at, "pools[].fastcgi", "what is no script goes to the fallback, also where there is a file")
		return r
	}
	_, rest := b.matcher(c, c.files)
	if s := b.fileServer(c, c.files, rest); s != nil {
		r.static = s.static
		b.l.ok(c.files.at, "static")
	}
	return r
}

// scriptKey translates an option of php_fastcgi.
func (b *caddySite) scriptKey(p *pool, r *rule, o *directive, policy *string) {
	f, led, arg := p.fast, b.l, o.arg(0)
	switch o.name {
	case "root":
		if led.ok(o.at, "pools[].fastcgi.root"); !path.IsAbs(arg) || strings.Contains(arg, "{") || !printable(arg) {
			led.left(o.at, "the folder is no absolute path", "write pools[].fastcgi.root")
			f.root = ""
			return
		}
		f.root = path.Clean(arg)
	case "split":
		if f.extensions = nil; len(o.args) != 1 || arg != ".php" {
			for _, ext := range o.texts() {
				if strings.HasPrefix(ext, ".") && len(ext) > 1 && !strings.ContainsAny(ext, "/\x00{") && printable(ext) && len(f.extensions) < 16 {
					f.extensions = append(f.extensions, ext)
				}
			}
		}
		led.ok(o.at, "pools[].fastcgi.extensions")
	case "index":
		if arg == "off" || strings.ContainsAny(arg, "/\x00{") || arg == "" || strings.Trim(arg, ".") == "" || !printable(arg) {
			f.fallback = ""
			led.changed(o.at, "pools[].fastcgi.index", "paths of folders run the index.php that they have")
			return
		}
		f.setIndex(arg)
		f.fallback = "/" + arg
		led.ok(o.at, "pools[].fastcgi.index")
	case "try_files":
		b.scriptTry(f, o)
	case "env":
		text, unknown := caddyText(o.arg(1))
		if !validVariable(arg) || arg == "CONTENT_LENGTH" || arg == "HTTP_PROXY" || unknown != "" || !printable(text) || len(f.params) >= 256 || f.has(arg) {
			led.left(o.at, "variables have capital letters, digits and _, once, and values with the gateway's variables", "write pools[].fastcgi.params")
			return
		}
		f.params = append(f.params, header{arg, text})
		led.ok(o.at, "pools[].fastcgi.params")
	case "dial_timeout", "read_timeout", "write_timeout":
		b.scriptTime(p, o)
	case "resolve_root_symlink", "capture_stderr":
		led.unneeded(o.at, "the gateway finds scripts below the folder itself, and logs what they complain of")
	case "header_up":
		b.edit(&r.request, o.at, o.texts(), true)
	default:
		b.proxyKey(p, r, o, policy)
		p.protocol, p.tls, p.proxy = "FASTCGI", nil, ""
	}
}

// has reports whether a variable is set.
func (f *fastCGI) has(name string) bool {
	for _, h := range f.params {
		if h.name == name {
			return true
		}
	}
	return false
}

// scriptTry translates try_files of php_fastcgi, whose last path is the fallback.
func (b *caddySite) scriptTry(f *fastCGI, o *directive) {
	f.fallback = ""
	words := o.texts()
	if len(words) == 0 || strings.HasPrefix(words[len(words)-1], "=") {
		b.l.ok(o.at, "pools[].fastcgi.fallback")
		return
	}
	name, query, _ := strings.Cut(words[len(words)-1], "?")
	if !strings.HasPrefix(name, "/") {
		name = "/" + name
	}
	switch {
	case name == "/{path}/index.php":
		b.l.ok(o.at, "pools[].fastcgi.index")
	case strings.Contains(name, "{") || !validReplacement(name):
		b.l.left(o.at, "the fallback has a placeholder", "write pools[].fastcgi.fallback")
	case query != "" && query != "{query}":
		b.l.changed(o.at, "pools[].fastcgi.fallback", "scripts get the query of the request")
		f.fallback = name
	default:
		b.l.ok(o.at, "pools[].fastcgi.fallback")
		f.fallback = name
	}
}

// scriptTime translates a time-out of FastCGI.
func (b *caddySite) scriptTime(p *pool, o *directive) {
	t, ok := caddyTime(o.arg(0))
	if !ok {
		b.l.left(o.at, "it is no time", "")
		return
	}
	switch o.name {
	case "dial_timeout":
		p.timeouts["connect"] = t
	case "read_timeout":
		p.timeouts["response"] = t
		p.timeouts["body"] = max(t, p.timeouts["body"])
	default:
		p.timeouts["body"] = max(t, p.timeouts["body"])
	}
	b.l.ok(o.at, "pools[].timeouts")
}
