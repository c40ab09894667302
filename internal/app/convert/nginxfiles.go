package convert

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// folder returns the folder of a location's files, and the prefix that is put in the place of the path for alias.
func (s *site) folder(l *loc) (root string, alias, ok bool) {
	d := l.sc.find("root", "alias")
	if len(d) == 0 {
		return "", false, false
	}
	last := d[len(d)-1]
	root, ok = l.sc.plain(last.arg(0))
	if base, found := strings.CutSuffix(last.arg(0), "/$1/$2"); found && last.name == "alias" && l.kind == locRegexp && wholePath.MatchString(l.path) {
		if root, ok = l.sc.plain(base); ok && root != "" && printable(root) { // the captures are all of the path
			return s.n.s.path(root), false, true
		}
	}
	if !ok || root == "" || !printable(root) {
		s.n.l.left(last.at, "the folder has a variable, or no name", "write a rule for each folder")
		return "", false, false
	}
	return s.n.s.path(root), last.name == "alias", true
}

// wholePath is a regular expression with two captures, of the first segment and of the rest.
var wholePath = regexp.MustCompile(`^\^/\([^()]*\)/\(\.\*\)\$?$`)

// files translates the files of a location: root or alias, index and try_files.
func (s *site) files(l *loc) *rule {
	led, r := s.n.l, newRule(l.at)
	root, alias, ok := s.folder(l)
	r.static = &static{root: root}
	switch {
	case !ok && len(l.sc.find("root", "alias")) > 0:
		r = s.refusal(l.at, 501)
	case !ok: // nginx has a folder of its own, html
		r = s.refusal(l.at, 404)
		r.note = "no root"
	case alias:
		s.alias(l, r)
	}
	if d := l.sc.find("root", "alias"); ok {
		led.ok(d[len(d)-1].at, "static.root")
	}
	if r.static != nil {
		s.staticKeys(l, r)
	}
	own := l.sc.own("try_files")
	if l.d == nil {
		own = s.v.sc.own("try_files")
	}
	if len(own) > 0 {
		return s.try(l, own[0], r)
	}
	return r
}

// alias puts the folder in the place of the prefix.
func (s *site) alias(l *loc, r *rule) {
	d := l.sc.last("alias")
	switch {
	case len(l.sc.own("alias")) == 0:
		s.n.l.left(d.at, "it is of a location around others", "write it in each location")
	case l.kind == locPrefix && strings.HasSuffix(l.path, "/") != strings.HasSuffix(d.arg(0), "/"):
		s.n.l.changed(d.at, "URLRewrite", "segments are replaced, as if both ended with a slash")
		fallthrough
	case l.kind == locPrefix:
		if l.path != "/" {
			r.rewrite = &modifier{replacePrefix, "/"}
		}
	case l.kind == locExact:
		name := "/" + filepath.Base(r.static.root)
		if !validReplacement(name) {
			s.n.l.left(d.at, "requests cannot have the name of the file", "")
			return
		}
		r.static.root, r.rewrite = filepath.Dir(r.static.root), &modifier{replaceFull, name}
	default:
		s.n.l.left(d.at, "rules do not replace by captures", "write a location with a prefix")
		r.static, r.fixed = nil, &fixed{status: 501}
	}
}

// staticKeys translates what nginx has beside the folder.
func (s *site) staticKeys(l *loc, r *rule) {
	led := s.n.l
	for _, d := range l.sc.find("index") {
		for _, name := range d.texts() {
			switch {
			case strings.ContainsAny(name, "/$\x00") || name == "." || name == ".." || name == "" || !printable(name):
				led.changed(d.at, "static.index", shorten(name)+" is left out: it is no name of a file")
				continue
			case (scripting{s}).indexOf(l, name) != nil, strings.HasSuffix(name, ".php") && !l.folders():
				continue // a script: indexScript and tryScript
			case strings.HasSuffix(name, ".php"):
				led.changed(d.at, "static.index", name+" is left out: no location runs it")
				continue
			}
			if !slices.Contains(r.static.index, name) && len(r.static.index) < 16 {
				r.static.index = append(r.static.index, name)
			}
		}
		led.ok(d.at, "static.index")
	}
	if slices.Equal(r.static.index, []string{"index.html"}) {
		r.static.index = nil // the default
	}
	if d := l.sc.last("autoindex"); d != nil {
		r.static.listing = d.arg(0) == "on"
		led.ok(d.at, "static.listing")
	}
	for _, d := range l.sc.find("autoindex_exact_size", "autoindex_localtime", "autoindex_format") {
		led.changed(d.at, "", "the list of names has the gateway's form")
	}
	for _, c := range [][2]string{{"brotli_static", "br"}, {"gzip_static", "gzip"}} {
		if d := l.sc.last(c[0]); d != nil {
			if d.arg(0) != "off" {
				r.static.precompressed = append(r.static.precompressed, c[1])
			}
			led.ok(d.at, "static.precompressed")
		}
	}
}

// try translates try_files. A named location, or a status, may come last.
func (s *site) try(l *loc, d *directive, r *rule) *rule {
	led := s.n.l
	words := d.texts()
	if len(words) < 2 {
		led.left(d.at, "it has no fallback", "")
		return r
	}
	paths, last := words[:len(words)-1], words[len(words)-1]
	if strings.HasPrefix(last, "@") {
		r = s.tryNamed(l, d, last, r)
	} else if to, _ := (scripting{s}).scriptOf(last); to != nil {
		r = scripting{s}.tryScript(l, d, last, r)
	} else if strings.HasPrefix(last, "=") {
		if last != "=404" {
			led.changed(d.at, "static.try_files", "the fallback is 404")
		} else {
			led.ok(d.at, "static.try_files")
		}
	} else {
		paths = append(slices.Clone(paths), s.tryPath(l, d, last)...)
	}
	if r.static == nil {
		return r
	}
	for _, p := range paths {
		t, ok := tried(p)
		if !ok {
			led.changed(d.at, "static.try_files", shorten(p)+" is left out: the path of the request is the only variable")
			continue
		}
		if len(r.static.try) < 16 && !slices.Contains(r.static.try, t) {
			r.static.try = append(r.static.try, t)
		}
	}
	if slices.Equal(r.static.try, []string{"${path}"}) {
		r.static.try = nil // the default
	}
	return r
}

// tried returns a path of try_files in the gateway's form.
func tried(p string) (string, bool) {
	for _, v := range []string{"$uri", "${uri}", "$request_filename", "$document_uri"} {
		if rest, ok := strings.CutPrefix(p, v); ok {
			p = "${path}" + rest
			break
		}
	}
	rest := strings.Replace(p, "${path}", "/", 1)
	ok := strings.HasPrefix(rest, "/") && !strings.Contains(rest, "$") && !slices.Contains(strings.Split(rest, "/"), "..") && printable(p)
	return p, ok
}

// tryNamed gives the rule the pools of a named location for what is no file.
func (s *site) tryNamed(l *loc, d *directive, name string, r *rule) *rule {
	i := slices.IndexFunc(s.locs, func(o *loc) bool { return o.kind == locNamed && o.path == name })
	if i < 0 || s.depth > 2 {
		s.n.l.left(d.at, "there is no location "+shorten(name), "")
		return r
	}
	s.depth++
	defer func() { s.depth-- }()
	to, g := s.handler(s.locs[i])
	switch {
	case len(to.pools) == 0 || to.rewrite != nil || r.rewrite != nil && r.static != nil:
		s.n.l.left(d.at, "what is no file cannot go to "+shorten(name), "the fallback is a pool whose requests keep their path")
		if r.static == nil {
			return s.refusal(l.at, 501)
		}
		return r
	}
	to = to.clone()
	to.at, to.response = l.at, edits{}
	if r.static != nil {
		to.static = r.static
	}
	s.named = &g
	s.n.l.ok(d.at, "static.try_files, backend_refs")
	return to
}

// tryPath returns the fallback of try_files that is a path, if its location has files of the same folder.
func (s *site) tryPath(l *loc, d *directive, last string) []string {
	led := s.n.l
	path, query, _ := strings.Cut(last, "?")
	path = strings.TrimSuffix(path, "$is_args$args")
	if query != "" {
		led.changed(d.at, "static.try_files", "the query of the fallback is left out")
	}
	if path == "$uri" || strings.HasPrefix(path, "$uri/") {
		led.ok(d.at, "static.try_files")
		return []string{path}
	}
	to := s.find(path, nil)
	if to == nil || s.depth > 2 {
		led.left(d.at, "no location has the fallback "+shorten(path), "")
		return nil
	}
	a, _, okA := s.folder(l)
	b, _, okB := s.folder(to)
	switch {
	case passes(to.sc) && len(to.sc.own("proxy_pass")) == 0:
		led.left(d.at, "the fallback is a program that uWSGI, SCGI or a cache runs", "put an HTTP server before the application, and name its pool as backend_refs")
	case passes(to.sc) || !okA || !okB || a != b || len(to.sc.own("return")) > 0:
		led.left(d.at, "the fallback "+shorten(path)+" has another location", "name its pool as backend_refs of the rule")
	default:
		led.ok(d.at, "static.try_files")
		return []string{path}
	}
	return nil
}

// fileOf returns the file of a path, "" where its location has none.
func (s *site) fileOf(uri string) string {
	if !strings.HasPrefix(uri, "/") || slices.Contains(strings.Split(uri, "/"), "..") {
		return ""
	}
	l := s.find(uri, nil)
	if l == nil || passes(l.sc) || len(l.sc.own("return")) > 0 {
		return ""
	}
	root, alias, ok := s.folder(l)
	switch {
	case !ok || alias && l.kind == locRegexp:
		return ""
	case alias && l.kind == locExact:
		return root
	case alias:
		return filepath.Join(root, strings.TrimPrefix(uri, l.path))
	}
	return filepath.Join(root, uri)
}

// asks translates auth_request: the location that it names passes the question on.
func (s *site) asks(l *loc, g *guard) {
	led, d := s.n.l, l.sc.last("auth_request")
	if d == nil {
		return
	}
	if d.arg(0) == "off" {
		led.unneeded(d.at, "no server is asked")
		return
	}
	closed := func(why string) {
		g.sources = led.closeSources(d.at, why, "write routes[].auth.forward")
	}
	uri, _, _ := strings.Cut(d.arg(0), "?")
	to := s.passing(s.find(uri, nil))
	if to == nil || to == l || len(to.sc.own("proxy_pass")) == 0 {
		closed("the location that is asked passes nothing on")
		return
	}
	pass := to.sc.own("proxy_pass")[0]
	url, ok := to.sc.plain(strings.TrimSuffix(pass.arg(0), "$request_uri"))
	t, good := parseTarget(url, "http")
	if !ok || !good {
		closed("the address of the server that is asked has a variable")
		return
	}
	name, ok := s.n.pool(to, &t, pass)
	path := t.uri
	if path == "" {
		path = uri
	}
	if p, _, _ := strings.Cut(path, "?"); !ok || !validReplacement(p) || !printable(path) || strings.ContainsAny(path, "$# ") {
		closed("the server that is asked cannot be expressed")
		return
	}
	if g.users != "" {
		closed("a route asks for credentials in one way")
		return
	}
	g.askPool, g.askPath = name, path
	led.ok(pass.at, "routes[].auth.forward.pool")
	led.changed(d.at, "routes[].auth.forward", "the server gets X-Forwarded-Method and X-Forwarded-Uri")
	s.askedFields(l, g)
}

// askedFields translates auth_request_set, whose fields keep their names.
func (s *site) askedFields(l *loc, g *guard) {
	led := s.n.l
	for _, set := range l.sc.find("auth_request_set") {
		field, ok := strings.CutPrefix(set.arg(1), "$upstream_http_")
		field = strings.ReplaceAll(field, "_", "-")
		if !ok || !validField(field) {
			led.left(set.at, "fields of the server's response alone can be taken", "")
			continue
		}
		used := s.fieldOf(l.sc, set.arg(0))
		switch {
		case used == "":
			led.unneeded(set.at, "no field of the request has it")
		case used != field:
			led.left(set.at, "the field keeps its name: "+field+", not "+used, "have the application read "+field)
		default:
			led.ok(set.at, "routes[].auth.forward.response_headers")
			if !slices.Contains(g.askFields, field) {
				g.askFields = append(g.askFields, field)
			}
		}
	}
}

// passing returns the named location that try_files of a location leads to, if the location passes nothing on by itself.
func (s *site) passing(l *loc) *loc {
	if l == nil || passes(l.sc) || len(l.sc.own("try_files")) == 0 {
		return l
	}
	d := l.sc.own("try_files")[0]
	for _, o := range s.locs {
		if o.kind == locNamed && o.path == d.arg(len(d.args)-1) {
			s.n.l.ok(d.at, "routes[].auth.forward")
			return o
		}
	}
	return l
}

// fieldOf returns the field of requests to backends that has a variable as its value.
func (s *site) fieldOf(sc *scope, variable string) string {
	for _, d := range sc.find("proxy_set_header") {
		if d.arg(1) == variable {
			return strings.ToLower(d.arg(0))
		}
	}
	return ""
}

// asked reports whether a value is a variable of auth_request_set, whose field the gateway sets by itself.
func (s *site) asked(sc *scope, value string) bool {
	return slices.ContainsFunc(sc.find("auth_request_set"), func(d *directive) bool {
		field := strings.ReplaceAll(strings.TrimPrefix(d.arg(1), "$upstream_http_"), "_", "-")
		return d.arg(0) == value && s.fieldOf(sc, value) == field
	})
}
