package convert

import (
	"slices"
	"strings"
)

// header translates header and request_header.
func (b *caddySite) header(d *directive, args []string, request bool) func(it *item) {
	type edit struct {
		at    pos
		words []string
	}
	var list []edit
	if len(args) > 0 {
		list = append(list, edit{d.at, args})
	}
	for _, o := range d.block {
		list = append(list, edit{o.at, append([]string{o.name}, o.texts()...)})
	}
	var edits edits
	for _, e := range list {
		b.edit(&edits, e.at, e.words, request)
	}
	if edits.empty() {
		return nil
	}
	if d.open {
		b.l.ok(d.at, "filters[]")
	}
	return func(it *item) {
		to := &it.rule.response
		if request {
			to = &it.rule.request
		}
		merge(to, &edits)
	}
}

// merge puts edits over others.
func merge(to, from *edits) {
	for _, h := range from.set {
		to.put(h.name, h.value)
	}
	for _, h := range from.add {
		to.more(h.name, h.value)
	}
	for _, name := range from.remove {
		to.without(name)
	}
}

// edit translates one edit of a field: NAME VALUE sets, +NAME adds, -NAME removes, ?NAME sets where there is none.
func (b *caddySite) edit(to *edits, at pos, words []string, request bool) {
	led, name := b.l, words[0]
	key := map[bool]string{true: "RequestHeaderModifier", false: "ResponseHeaderModifier"}[request]
	verb := byte(0)
	if name != "" && strings.ContainsRune("+-?>", rune(name[0])) {
		verb, name = name[0], name[1:]
	}
	if strings.EqualFold(name, "defer") {
		led.ok(at, "")
		return
	}
	value, unknown := "", ""
	if len(words) > 1 {
		value, unknown = caddyText(words[1])
	}
	switch {
	case !validField(name):
		led.left(at, "rules cannot edit the field, or names with *", "")
	case verb == '-', len(words) == 2 && words[1] == "":
		to.without(name)
		led.ok(at, key+".remove")
	case len(words) > 2:
		led.left(at, "values of fields are set as a whole", "")
	case unknown != "":
		led.left(at, "the gateway has no variable "+shorten(unknown), "")
	case !validValue(value) || value == "":
		led.left(at, "it is no value of a field", "")
	case verb == '+':
		if to.more(name, value) {
			led.ok(at, key+".add")
		} else {
			led.left(at, "a field is added once", "put the values into one line, with commas")
		}
	case verb == '?':
		to.put(name, value)
		led.changed(at, key+".set", "a field of the backend is replaced")
	default:
		to.put(name, value)
		led.ok(at, key+".set")
	}
}

// rewrite translates rewrite and uri.
func (b *caddySite) rewrite(d *directive, args []string) func(it *item) {
	led := b.l
	at := func(i int) string { return (&line{words: args}).arg(i) }
	verb, prefix, to := "", "", ""
	switch {
	case d.name == "uri" && at(0) == "strip_prefix":
		verb, prefix, to = "strip", "/"+strings.Trim(at(1), "/"), "/"
	case d.name == "uri" && at(0) == "replace" && strings.HasPrefix(at(1), "/"):
		verb, prefix, to = "strip", "/"+strings.Trim(at(1), "/"), "/"+strings.Trim(at(2), "/")
	case d.name == "rewrite" && (strings.HasSuffix(at(0), "{uri}") || strings.HasSuffix(at(0), "{path}")):
		verb, to = "add", strings.TrimSuffix(strings.TrimSuffix(at(0), "{uri}"), "{path}")
	case d.name == "rewrite":
		verb = "full"
		to, _, _ = strings.Cut(at(0), "?")
	}
	if verb == "" || strings.ContainsAny(to+prefix, "{}") || !validReplacement(to) && !(verb == "add" && to == "") {
		led.left(d.at, "rules replace a whole path, or a prefix", "write URLRewrite in a rule for the path")
		return nil
	}
	led.ok(d.at, "URLRewrite")
	return func(it *item) {
		m, r := it.atom.match, it.rule
		if r.fixed != nil || r.redirect != nil {
			return
		}
		switch {
		case r.rewrite != nil:
			led.left(d.at, "a rule rewrites once", "write one URLRewrite")
		case verb == "full":
			r.rewrite = &modifier{replaceFull, to}
		case verb == "add" && to == "":
		case verb == "add" && (m.kind == "" || m.kind == pathPrefix && m.path == "/"):
			r.rewrite = &modifier{replacePrefix, to}
		case verb == "add" && m.kind == pathPrefix:
			joined := strings.TrimSuffix(to, "/") + strings.TrimSuffix(m.path, "/")
			r.rewrite = &modifier{replacePrefix, joined}
		case verb == "strip" && m.kind == pathPrefix && strings.TrimSuffix(m.path, "/") == prefix:
			r.rewrite = &modifier{replacePrefix, to}
		case verb == "strip" && m.kind == pathPrefix && strings.HasPrefix(m.path, prefix+"/"):
			rest := strings.TrimSuffix(to, "/") + strings.TrimSuffix(m.path[len(prefix):], "/")
			r.rewrite = &modifier{replacePrefix, rest}
		default:
			led.changed(d.at, "URLRewrite", "where the rule has another path, it is left out")
		}
	}
}

// try translates try_files, for the files of the site.
func (b *caddySite) try(d *directive) func(it *item) {
	var list []string
	for _, p := range d.texts() {
		t := strings.NewReplacer("{path}", "${path}", "{file}", "${path}", "{http.request.uri.path}", "${path}").Replace(p)
		if !strings.HasPrefix(t, "/") && !strings.HasPrefix(t, "${path}") {
			t = "/" + t
		}
		t, _, _ = strings.Cut(t, "?")
		rest := strings.Replace(t, "${path}", "/", 1)
		switch {
		case strings.HasPrefix(p, "="):
			if p != "=404" {
				b.l.changed(d.at, "static.try_files", "the fallback is 404")
			}
		case strings.HasSuffix(t, ".php") || strings.ContainsAny(rest, "{}$") || !printable(t) || slices.Contains(strings.Split(rest, "/"), ".."):
			b.l.left(d.at, "the fallback "+shorten(p)+" is no file that can be served", "name its pool as backend_refs of the rule")
		case len(list) < 16:
			list = append(list, t)
		}
	}
	b.l.ok(d.at, "static.try_files")
	return func(it *item) {
		switch {
		case it.rule.static != nil:
			it.rule.static.try = list
		case len(it.rule.pools) > 0:
			b.l.left(d.at, "files decide where requests go", "give the rule static and backend_refs: pools get what is no file")
		}
	}
}

// requestBody translates the bound of content.
func (b *caddySite) requestBody(d *directive) func(it *item) {
	most := int64(0)
	for _, o := range d.block {
		if o.name == "max_size" {
			text := strings.ToLower(o.arg(0))
			unit := int64(1)
			for _, u := range []struct {
				name string
				of   int64
			}{{"gib", 1 << 30}, {"mib", 1 << 20}, {"kib", 1 << 10}, {"gb", 1e9}, {"mb", 1e6}, {"kb", 1e3}, {"b", 1}} {
				if rest, ok := strings.CutSuffix(text, u.name); ok {
					text, unit = rest, u.of
					break
				}
			}
			most = int64(atoi(text)) * unit
			b.l.ok(o.at, "routes[].limits.body_bytes")
		}
	}
	if most <= 0 {
		b.l.left(d.at, "the content has no bound", "")
		return nil
	}
	b.l.ok(d.at, "routes[].limits.body_bytes")
	return func(it *item) { it.guard.bodyBytes = most }
}

// redir translates a redirect.
func (b *caddySite) redir(d *directive, args []string) *rule {
	to, code := "", "temporary"
	if len(args) > 0 {
		to = args[0]
	}
	if len(args) > 1 {
		code = args[1]
	}
	status := map[string]int{"permanent": 301, "temporary": 302, "html": 302}[code]
	if n := atoi(code); slices.Contains([]int{301, 302, 303, 307, 308}, n) {
		status = n
	}
	text, unknown := caddyText(to)
	if status == 0 || unknown != "" || !validLocation(text) {
		b.l.left(d.at, "the URL has a placeholder without a counterpart, or may lead to another host", "write it with the variables of docs/http-gateway.md")
		return nil
	}
	if code == "html" {
		b.l.changed(d.at, "RequestRedirect", "the redirect is 302")
	}
	r := newRule(d.at)
	r.redirect = &redirect{status: status, location: text}
	return r
}

func isCode(s string) bool {
	return s == "permanent" || s == "temporary" || s == "html" || len(s) == 3 && atoi(s) >= 300 && atoi(s) < 400
}

// respond translates a fixed response.
func (b *caddySite) respond(d *directive, args []string) *rule {
	r := newRule(d.at)
	r.fixed = &fixed{status: 200, kind: "text/plain; charset=utf-8"}
	for i, a := range args {
		if n := atoi(a); n >= 200 && n <= 599 && (i == len(args)-1 && len(args) > 1 || len(args) == 1 && len(a) == 3) {
			r.fixed.status = n
		} else if i == 0 {
			r.fixed.body = a
		}
	}
	for _, o := range d.block {
		if o.name == "body" {
			r.fixed.body = o.arg(0)
		}
		b.l.ok(o.at, "FixedResponse")
	}
	if placeholder.MatchString(r.fixed.body) && !strings.Contains(r.fixed.body, "\"") {
		b.l.changed(d.at, "FixedResponse", "the content has no variables")
	}
	if !printable(r.fixed.body) || len(r.fixed.body) > 64<<10 {
		b.l.left(d.at, "the content is no text of 64 KiB", "serve it as a file")
		r.fixed.body = ""
	}
	if s := r.fixed.status; s == 204 || s == 205 || s == 304 {
		r.fixed.body = ""
	}
	return r
}

// fileServer translates the files of a folder.
func (b *caddySite) fileServer(c *context, d *directive, args []string) *rule {
	r := newRule(d.at)
	s := &static{root: c.root}
	r.static = s
	s.listing = slices.Contains(args, "browse")
	for _, o := range d.block {
		b.l.ok(o.at, "static")
		switch o.name {
		case "root":
			if printable(o.arg(0)) && o.arg(0) != "" && !strings.Contains(o.arg(0), "{") {
				s.root = b.s.path(o.arg(0))
			}
		case "browse":
			s.listing = true
		case "index":
			for _, name := range o.texts() {
				if !strings.ContainsAny(name, "/\x00{") && name != "." && name != ".." && name != "" && printable(name) && len(s.index) < 16 {
					s.index = append(s.index, name)
				}
			}
		case "precompressed":
			for _, p := range o.texts() {
				if slices.Contains([]string{"br", "zstd", "gzip"}, p) && !slices.Contains(s.precompressed, p) {
					s.precompressed = append(s.precompressed, p)
				}
			}
			if len(o.args) == 0 {
				s.precompressed = []string{"br", "zstd", "gzip"}
			}
		case "hide": // hiddenFiles
		case "pass_thru", "status", "disable_canonical_uris", "etag_file_extensions":
			b.l.changed(o.at, "static", "it is left out; names that begin with a dot are not served")
		}
	}
	if s.root == "" {
		if b.s.files[0].name == "-" {
			b.l.left(d.at, "the folder is the one that Caddy was started in", "name it with root")
			return nil
		}
		s.root = b.s.dir
		b.l.changed(d.at, "static.root", "the folder is that of the Caddyfile")
	}
	return r
}
