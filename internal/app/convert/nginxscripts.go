package convert

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

// fastCGI holds the settings of a pool of scripts.
type fastCGI struct {
	root, local     string // local is "" where it is root
	index, fallback string
	extensions      []string
	keep            bool
	params          []header
}

// ownParams are variables that the gateway sets, with the values that mean the same in nginx.
var ownParams = map[string][]string{
	"SCRIPT_NAME": {"$fastcgi_script_name"}, "PATH_INFO": {"$fastcgi_path_info", "$path_info"}, "QUERY_STRING": {"$query_string", "$args"},
	"REQUEST_METHOD": {"$request_method"}, "CONTENT_TYPE": {"$content_type"}, "CONTENT_LENGTH": {"$content_length"}, "REQUEST_URI": {"$request_uri"},
	"DOCUMENT_URI": {"$document_uri", "$uri"}, "DOCUMENT_ROOT": {"$document_root", "$realpath_root"}, "SERVER_PROTOCOL": {"$server_protocol"}, "REQUEST_SCHEME": {"$scheme"},
	"HTTPS": {"$https"}, "GATEWAY_INTERFACE": {"CGI/1.1"}, "SERVER_SOFTWARE": {"nginx/$nginx_version", "nginx"}, "REMOTE_ADDR": {"$remote_addr"},
	"REMOTE_PORT": {"$remote_port"}, "REMOTE_USER": {"$remote_user"}, "SERVER_ADDR": {"$server_addr"}, "SERVER_PORT": {"$server_port"},
	"SERVER_NAME": {"$server_name", "$host"}, "REDIRECT_STATUS": {"200"}, "HTTP_PROXY": {""}, "PATH_TRANSLATED": {"$document_root$fastcgi_path_info", "$document_root$path_info"},
	"HTTP_HOST": {"$host", "$http_host"},
}

// scripting is the translation of what a site runs by FastCGI.
type scripting struct{ *site }

// scripted translates fastcgi_pass.
func (s scripting) scripted(l *loc, d *directive) *rule {
	fallback := ""
	if try := l.sc.own("try_files"); len(try) > 0 {
		switch last := try[0].arg(len(try[0].args) - 1); {
		case last == "=404" || last == "=403":
			s.n.l.ok(try[0].at, "pools[].fastcgi.check_scripts")
		case strings.HasPrefix(last, "/") && !strings.ContainsAny(last, "$?") && s.find(last, nil) == l:
			fallback = last
			s.n.l.ok(try[0].at, "pools[].fastcgi.fallback")
		default:
			s.n.l.left(try[0].at, "scripts have a path as their fallback", "write pools[].fastcgi.fallback")
		}
	}
	p, script, ok := s.scriptPool(l, d)
	if !ok || script != "" && !validReplacement(script) {
		s.rest(l, "its location is left out")
		return s.refusal(l.at, 501)
	}
	if p.fast.fallback = fallback; script != "" && fallback == "" && l.kind == locNamed { // what leads here keeps its path
		p.fast.fallback, script = script, ""
		s.n.l.changed(d.at, "pools[].fastcgi", "all scripts of the folder run, those too whose source nginx would send")
	}
	r := newRule(d.at)
	r.pools = []weighted{{s.n.enter(p, scriptsName(d)), 1}}
	r.cache = s.cached(l, "fastcgi")
	if script != "" {
		r.rewrite = &modifier{replaceFull, script}
	}
	return r
}

// scriptsName returns the name that a pool of scripts shall have.
func scriptsName(d *directive) string { return strings.TrimPrefix(d.arg(0), "unix:/") }

// scriptPool makes the pool of a location with fastcgi_pass. Script is the one that all of its requests run, "" where their paths
// name it.
func (s scripting) scriptPool(l *loc, d *directive) (p *pool, script string, ok bool) {
	f := &fastCGI{keep: l.sc.on("fastcgi_keep_conn")}
	t := target{scheme: "fastcgi"}
	if t.addr, ok = l.sc.plain(d.arg(0)); !ok {
		s.n.l.left(d.at, "the address has a variable that is no constant", "write a pool for each case")
		return nil, "", false
	}
	if script, ok = s.scriptFile(l, d, f); !ok {
		return nil, "", false
	}
	if p, ok = s.n.backends(l, &t, d); !ok {
		return nil, "", false
	}
	p.protocol, p.fast = "FASTCGI", f
	if !f.keep {
		p.idle, p.uses = -1, 0
		delete(p.timeouts, "idle")
	}
	s.scriptKeys(l, f, script)
	s.n.l.ok(d.at, "pools[].fastcgi")
	return p, script, true
}

// scriptFile reads the folder of the scripts, and the one script that SCRIPT_FILENAME may name.
func (s scripting) scriptFile(l *loc, d *directive, f *fastCGI) (script string, ok bool) {
	base, alias, okBase := s.folder(l)
	var named *directive
	for _, o := range l.sc.find("fastcgi_param") {
		if o.arg(0) == "SCRIPT_FILENAME" {
			named = o
		}
	}
	value := "$document_root$fastcgi_script_name"
	switch {
	case named != nil:
		value = named.arg(1)
	case !strings.Contains(l.path, "php") && !slices.ContainsFunc(l.sc.list, func(o *directive) bool { return o.name == "include" && strings.Contains(o.arg(0), "fastcgi") }):
		s.n.l.left(d.at, "the program has no SCRIPT_FILENAME: it runs no scripts", "put an HTTP server before it")
		return "", false
	}
	value = strings.NewReplacer("$realpath_root", "$document_root", "${document_root}", "$document_root", "${fastcgi_script_name}", "$fastcgi_script_name").Replace(value)
	if value == "$request_filename" {
		value = "$document_root$fastcgi_script_name"
	}
	folder, all := strings.CutSuffix(value, "$fastcgi_script_name")
	rest, below := strings.CutPrefix(folder, "$document_root")
	if below {
		folder = base + rest
	} else {
		folder, okBase = l.sc.plain(folder)
	}
	folder = path.Clean(folder)
	if !okBase || below && alias || !path.IsAbs(folder) || strings.Contains(folder, "$") || !printable(folder) {
		s.n.l.left(d.at, "the folder of the scripts is not known: root, or SCRIPT_FILENAME with an absolute path and $fastcgi_script_name", "write pools[].fastcgi.root")
		return "", false
	}
	if named != nil {
		s.n.l.ok(named.at, "pools[].fastcgi.root")
	}
	if !all { // one script
		script, folder = "/"+path.Base(folder), path.Dir(folder)
		if rest, ok := strings.CutPrefix(folder, base+"/"); ok && base != "" {
			script, folder = "/"+rest+script, base
		}
	}
	f.root = folder
	if base != "" && !alias && base != f.root && all {
		f.local = base
	}
	return script, true
}

// splitForm is a fastcgi_split_path_info that divides a path as the gateway does.
var splitForm = regexp.MustCompile(`^\^\(\.[+*]\??\\\.[a-z(|)]+\)\((?:\|)?/?\.[*+]\)\$$`)

// scriptKeys translates what stands beside fastcgi_pass.
func (s scripting) scriptKeys(l *loc, f *fastCGI, script string) {
	led := s.n.l
	if d := l.sc.last("fastcgi_index"); d != nil {
		if name := d.arg(0); name == "" || strings.ContainsAny(name, "/$\x00") || name == "." || name == ".." || !printable(name) {
			led.left(d.at, "it is no name of a file", "")
		} else {
			f.setIndex(name)
			led.ok(d.at, "pools[].fastcgi.index")
		}
	}
	if d := l.sc.last("fastcgi_keep_conn"); d != nil {
		led.ok(d.at, "pools[].fastcgi.keep_connections")
	}
	if d := l.sc.last("fastcgi_split_path_info"); d != nil {
		if splitForm.MatchString(d.arg(0)) {
			led.ok(d.at, "pools[].fastcgi.extensions")
		} else {
			led.changed(d.at, "pools[].fastcgi.extensions", "PATH_INFO is what follows the first segment that ends as a script")
		}
	}
	f.extensions = s.extensions(l)
	for _, d := range l.sc.find("fastcgi_param") {
		if d.arg(0) == "SCRIPT_NAME" && d.arg(1) == script {
			led.ok(d.at, "")
			continue
		}
		s.param(l, d, f)
	}
}

// setIndex notes the script of folders.
func (f *fastCGI) setIndex(name string) {
	if f.index = name; name == "index.php" {
		f.index = "" // the default
	}
}

// extensions returns the ends of names that a location is for, none where .php alone is.
func (s scripting) extensions(l *loc) (list []string) {
	if l.kind != locRegexp {
		return nil
	}
	re, ok := wholeRegexp(l.path, l.anyCase)
	if !ok {
		return nil
	}
	whole, err := regexp.Compile(`\A(?:` + re + `)\z`)
	if err != nil {
		return nil
	}
	for _, ext := range []string{".php", ".php5", ".php7", ".php8", ".phtml", ".phar", ".inc", ".cgi", ".pl", ".py"} {
		if whole.MatchString("/x"+ext) || whole.MatchString("/index"+ext) {
			list = append(list, ext)
		}
	}
	if slices.Equal(list, []string{".php"}) {
		return nil
	}
	return list
}

// param translates one variable.
func (s scripting) param(l *loc, d *directive, f *fastCGI) {
	led, name, value := s.n.l, d.arg(0), d.arg(1)
	e := l.sc.expand(value, s.v.first)
	switch {
	case name == "SCRIPT_FILENAME":
	case slices.Contains(ownParams[name], value):
		led.ok(d.at, "")
	case !validVariable(name):
		led.left(d.at, "variables have capital letters, digits and _", "have the application read another name")
	case name == "CONTENT_LENGTH" || name == "HTTP_PROXY":
		led.left(d.at, "the variable cannot be set", "leave it out")
	case e.unknown != "":
		led.left(d.at, "the gateway has no variable "+e.unknown, "")
	case !printable(e.text) || strings.ContainsAny(e.text, "\t\r\n") || len(f.params) >= 256:
		led.left(d.at, "it is no value of a variable", "")
	default:
		if strings.Contains(value, "uri") && !strings.Contains(value, "$request_uri") {
			led.changed(d.at, "pools[].fastcgi.params", "the path is that of the request, also where another script is run")
		} else if d.arg(2) == "if_not_empty" {
			led.changed(d.at, "pools[].fastcgi.params", "it is sent without a value, too")
		} else {
			led.ok(d.at, "pools[].fastcgi.params")
		}
		f.params = slices.DeleteFunc(f.params, func(h header) bool { return h.name == name })
		f.params = append(f.params, header{name, e.text})
	}
}

// validVariable reports whether scripts can have a variable of that name.
func validVariable(name string) bool {
	return name != "" && (name[0] < '0' || name[0] > '9') && strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == ""
}

// scriptOf returns the location that runs a path as a script, and the path without its variables; nil for none.
func (s scripting) scriptOf(last string) (*loc, string) {
	name, _, _ := strings.Cut(last, "?")
	name, _, _ = strings.Cut(name, "$")
	if !validReplacement(name) {
		return nil, ""
	}
	if to := s.find(name, nil); to != nil && len(to.sc.own("fastcgi_pass")) > 0 {
		return to, name
	}
	return nil, ""
}

// tryScript gives the rule the pool of a script for what is no file.
func (s scripting) tryScript(l *loc, d *directive, last string, r *rule) *rule {
	led := s.n.l
	to, name := s.scriptOf(last)
	p, script, ok := s.scriptPool(to, to.sc.own("fastcgi_pass")[0])
	switch {
	case !ok || r.static == nil || r.rewrite != nil:
		led.left(d.at, "the fallback is a script whose pool, or whose folder, cannot be expressed", "write static and backend_refs in one rule")
		return s.refusal(l.at, 501)
	case script != "" && script != name:
		name = script
	}
	p.fast.fallback = name
	s.beside(l, to, name)
	s.inFolder(l, p.fast)
	r.cache = s.cached(to, "fastcgi")
	r.pools = []weighted{{s.n.enter(p, scriptsName(to.sc.own("fastcgi_pass")[0])), 1}}
	g := s.guard(to)
	s.named = &g
	if !slices.ContainsFunc(d.texts(), func(a string) bool { return strings.HasSuffix(a, "uri/") }) {
		led.changed(d.at, "pools[].fastcgi.index", "paths of folders run the index.php that they have")
	}
	switch rest := strings.TrimPrefix(last, name); rest {
	case "?$args", "$is_args$args", "?$query_string", "$is_args$query_string":
		led.ok(d.at, "static.try_files, pools[].fastcgi.fallback")
	case "":
		led.changed(d.at, "static.try_files, pools[].fastcgi.fallback", "the script gets the query of the request")
	default:
		led.changed(d.at, "static.try_files, pools[].fastcgi.fallback", "the script gets the path in REQUEST_URI and the query of the request, whatever follows its name here")
	}
	return r
}

// indexScript gives the rule of a folder the pool of the script that its `index` names.
func (s scripting) indexScript(l *loc, r *rule) {
	if r.static == nil || len(r.pools) > 0 || r.rewrite != nil {
		return
	}
	f := &fastCGI{}
	to := s.inFolder(l, f)
	if to == nil {
		return
	}
	d := to.sc.own("fastcgi_pass")[0]
	p, script, ok := s.scriptPool(to, d)
	if !ok || script != "" {
		return
	}
	p.fast.index = f.index
	r.cache = s.cached(to, "fastcgi")
	s.beside(l, to, l.path+"x.php")
	r.pools = []weighted{{s.n.enter(p, scriptsName(d)), 1}}
	g := s.guard(to)
	s.named = &g
}

// beside notes what a rule with files and scripts runs that nginx would not: scripts of other names, and paths below them.
func (s scripting) beside(l, to *loc, name string) {
	switch others, below := s.find(strings.TrimSuffix(l.path, "/")+"/other.php", nil), s.find(name+"/x", nil); {
	case l.kind == locExact:
	case others == nil || others == l || len(others.sc.own("fastcgi_pass")) > 0 && others != to:
		s.n.l.changed(to.at, "pools[].fastcgi", "all scripts of the folder run, those too whose source nginx would send")
	case below == nil || len(below.sc.own("fastcgi_pass")) == 0:
		s.n.l.changed(to.at, "pools[].fastcgi", "paths below scripts run them, with PATH_INFO")
	}
}

// inFolder notes the script of folders that `index` names, and returns its location.
func (s scripting) inFolder(l *loc, f *fastCGI) *loc {
	for _, d := range l.sc.find("index") {
		for _, name := range d.texts() {
			if to := s.indexOf(l, name); to != nil {
				f.setIndex(name)
				return to
			}
		}
	}
	return nil
}

// indexOf returns the location that runs a name in the folder of a location, nil where it is no script.
func (s scripting) indexOf(l *loc, name string) *loc {
	if strings.ContainsAny(name, "/$\x00") || !l.folders() {
		return nil
	}
	to, _ := s.scriptOf(strings.TrimSuffix(l.path, "/") + "/" + name)
	return to
}

// folders reports whether the paths of a location may be those of folders.
func (l *loc) folders() bool {
	return l.kind == locPrefix || l.kind == locExact && strings.HasSuffix(l.path, "/")
}

// checked reports whether an `if` answers 404 where there is no script, as the gateway does.
func (s scripting) checked(l *loc, d *directive) bool {
	what := strings.Join(d.texts(), " ")
	if len(l.sc.own("fastcgi_pass")) == 0 || what != "(!-f $document_root$fastcgi_script_name)" && what != "(!-f $request_filename)" || len(d.block) != 1 || d.block[0].name != "return" || d.block[0].arg(0) != "404" {
		return false
	}
	s.n.l.ok(d.at, "pools[].fastcgi.check_scripts")
	s.n.l.ok(d.block[0].at, "pools[].fastcgi.check_scripts")
	return true
}
