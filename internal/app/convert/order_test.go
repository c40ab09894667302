package convert

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/gateway/config"
)

// converted returns the checked configuration of a source.
func converted(t *testing.T, language Language, text string) (*config.Config, *Report) {
	t.Helper()
	r, err := Text("-", text, language)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	c, err := config.Parse("out", []byte(r.Config))
	if err != nil {
		t.Fatal(err)
	}
	return c, r
}

// resultOf returns the result of the first directive that begins with a text.
func resultOf(t *testing.T, r *Report, directive string) Line {
	t.Helper()
	for _, l := range r.Lines {
		if strings.HasPrefix(l.Directive, directive) {
			return l
		}
	}
	t.Errorf("no line of the report begins with %q", directive)
	return Line{}
}

// What is left out must not open what the source has closed.
func TestWhatIsLeftOutStaysClosed(t *testing.T) {
	for _, c := range []struct {
		language Language
		text     string
		line     string // of the report, which is left out
		closed   string // what the output must have
	}{
		{Nginx, "server { listen 80; root /srv; location ~ \\.php$ { fastcgi_pass $where; } }", "fastcgi_pass", "status_code: 501"},
		{Nginx, "server { listen 80; root /srv; location /x/ { alias /y/; location ~ \\.php$ { fastcgi_pass 127.0.0.1:9000; } } }", "fastcgi_pass", "status_code: 501"},
		{Nginx, "server { listen 80; root /srv; location / { fastcgi_pass 127.0.0.1:9000; } }", "fastcgi_pass", "status_code: 501"},
		{Nginx, "server { listen 80; root /srv; location / { uwsgi_pass 127.0.0.1:9000; } }", "uwsgi_pass", "status_code: 501"},
		{Nginx, "server { listen 80; location / { auth_basic x; auth_basic_user_file $file; proxy_pass http://127.0.0.1:1; } }", "auth_basic x", "default: deny"},
		{Nginx, "server { listen 80; location / { auth_request /no; proxy_pass http://127.0.0.1:1; } }", "auth_request", "default: deny"},
		{Nginx, "server { listen 80; location / { deny office.example; proxy_pass http://127.0.0.1:1; } }", "deny", "default: deny"},
		{HAProxy, "frontend f\n mode http\n bind :80\n http-request auth realm x unless { http_auth(u) }\n default_backend b\nbackend b\n mode http\n server s 127.0.0.1:1\n", "http-request auth", "status_code: 403"},
		{Caddy, ":80 {\n\tbasic_auth {\n\t\ta $2a$14$x\n\t}\n\treverse_proxy 127.0.0.1:1\n}\n", "basic_auth", "default: deny"},
		{Caddy, ":80 {\n\tforward_auth {$NO} {\n\t\turi /v\n\t}\n\treverse_proxy 127.0.0.1:1\n}\n", "forward_auth", "default: deny"},
	} {
		_, r := converted(t, c.language, c.text)
		if l := resultOf(t, r, c.line); l.Result != Left || l.Reason == "" || !strings.Contains(r.Config, c.closed) {
			t.Errorf("%s: %+v\n%s", c.text, l, r.Config)
		}
	}
}

// The order of allow and deny decides in nginx, the longest prefix in the gateway.
func TestListsOfClientsKeepTheirMeaning(t *testing.T) {
	c, _ := converted(t, Nginx, "server { listen 80; location / { deny 10.1.0.0/16; allow 10.0.0.0/8; allow 10.1.2.0/24; deny all; proxy_pass http://127.0.0.1:1; } }")
	s := c.Routes[0].Sources
	if s.Default != "deny" || len(s.Allow) != 1 || s.Allow[0].Prefix.String() != "10.0.0.0/8" || len(s.Deny) != 1 || s.Deny[0].Prefix.String() != "10.1.0.0/16" {
		t.Errorf("%+v", s)
	}
}

// A line for fewer clients does not hold for all of a later one.
func TestNarrowListsComeBeforeWideOnes(t *testing.T) {
	c, _ := converted(t, Nginx, "server { listen 80; location / { allow 10.0.0.0/16; deny 10.0.0.0/8; proxy_pass http://127.0.0.1:1; } }")
	if s := c.Routes[0].Sources; len(s.Allow) != 1 || len(s.Deny) != 1 || s.Deny[0].Prefix.String() != "10.0.0.0/8" {
		t.Errorf("%+v", s)
	}
}

// Variables of fields, and text that looks like one of the gateway's.
func TestValuesOfFields(t *testing.T) {
	c, r := converted(t, Nginx, `server { listen 80; set $zone eu; location / { proxy_pass http://127.0.0.1:1; proxy_set_header A "$zone-$host"; proxy_set_header B $arg_x;
proxy_set_header C "$"; proxy_set_header D "x$$host"; proxy_set_header E "$server_name"; proxy_set_header F ""; proxy_set_header Content-Type $http_content_type; } server_name a.example; }`)
	f := c.Routes[0].Rules[0].Filters[0]
	got := map[string]string{}
	for _, h := range f.Set {
		got[h.Name] = h.Value
	}
	if len(got) != 3 || got["a"] != "eu-${hostname}" || got["c"] != "$" || got["e"] != "a.example" || len(f.Remove) != 1 || f.Remove[0] != "f" {
		t.Errorf("%v, removed %v", got, f.Remove)
	}
	for _, name := range []string{"proxy_set_header B", "proxy_set_header D"} {
		if l := resultOf(t, r, name); l.Result != Left {
			t.Errorf("%+v", l)
		}
	}
}

func TestTimesAndSizes(t *testing.T) {
	for in, want := range map[string]string{"60": "1m0s", "500ms": "500ms", "1h30m": "1h30m0s", "1d": "24h0m0s", "2w": "336h0m0s", "5 s": "", "": "", "x": ""} {
		got, ok := nginxTime(in)
		if ok != (want != "") || ok && got.String() != want {
			t.Errorf("%q: %v %v", in, got, ok)
		}
	}
	for in, want := range map[string]int64{"10m": 10 << 20, "8G": 8 << 30, "1024": 1024, "0": 0, "64k": 64 << 10, "x": -1, "": -1, "-1": -1, "9999999g": -1} {
		got, ok := size(in)
		if ok != (want >= 0) || ok && got != want {
			t.Errorf("%q: %v %v", in, got, ok)
		}
	}
	for in, want := range map[string]string{"5000": "5s", "5s": "5s", "100ms": "100ms", "1500us": "1.5ms", "x": ""} {
		got, ok := haproxyTime(in)
		if ok != (want != "") || ok && got.String() != want {
			t.Errorf("%q: %v %v", in, got, ok)
		}
	}
}

// A regular expression of nginx is searched for, one of the gateway is for the whole.
func TestRegularExpressions(t *testing.T) {
	for in, want := range map[string]string{
		`^/a`: `/a.*`, `\.php$`: `.*\.php`, `^/a$`: `/a`, `b`: `.*b.*`, `^/a|b$`: `.*(?:^/a|b$).*`, `(?!x)a`: "", `\1`: "",
	} {
		got, ok := wholeRegexp(in, false)
		if ok != (want != "") || ok && got != want {
			t.Errorf("%q: %q %v, want %q", in, got, ok, want)
		}
	}
	if got, _ := wholeRegexp(`^/A`, true); got != `(?i:/A).*` {
		t.Error(got)
	}
}

func TestYAMLScalars(t *testing.T) {
	for in, want := range map[string]string{
		"a/b": "a/b", "yes": `"yes"`, "1.1": `"1.1"`, "": `""`, "a b": `"a b"`, "on": `"on"`, "${x}": `"${x}"`, "a: b": `"a: b"`, "<a>\n": `"<a>\n"`, "#x": `"#x"`, "null": `"null"`, "-": `"-"`,
	} {
		if got := scalar(in); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
}

// What a named location asks of requests holds for those that try_files or error_page lead to it.
func TestNamedLocationsStayClosed(t *testing.T) {
	for _, location := range []string{"try_files $uri @app;", "error_page 418 = @app; return 418;"} {
		c, _ := converted(t, Nginx, `server { listen 80; root /srv; location / { `+location+` } location @app { deny 192.0.2.1; auth_basic x; auth_basic_user_file /f; proxy_pass http://127.0.0.1:1; } }`)
		if r := c.Routes[0]; len(c.Routes) != 1 || len(r.Sources.Deny) != 1 || r.Auth == nil || len(r.Rules[0].BackendRefs) != 1 {
			t.Errorf("%s: %+v", location, c.Routes)
		}
	}
}

// Lists of clients in files are those of the gateway.
func TestListsInFiles(t *testing.T) {
	for _, deny := range []string{"deny if { src -f /etc/bad.lst }", "deny if bad", "deny if !{ src -f /etc/good.lst }"} {
		c, r := converted(t, HAProxy, "frontend f\n mode http\n bind :80\n acl bad src -f /etc/bad.lst\n http-request "+deny+"\n default_backend b\nbackend b\n mode http\n server s 127.0.0.1:1\n")
		s := c.Routes[0].Sources
		good := len(s.Deny) == 1 && s.Deny[0].File == "/etc/bad.lst" || s.Default == "deny" && len(s.Allow) == 1 && s.Allow[0].File == "/etc/good.lst"
		if l := resultOf(t, r, "http-request"); !good || l.Result != Translated {
			t.Errorf("%s: %+v %+v", deny, s, l)
		}
	}
}

// Fields of a backend are for all of its requests, or for those with TLS.
func TestConditionsOfBackends(t *testing.T) {
	for use, want := range map[string]Result{"": Translated, "if { ssl_fc }": Translated, "if !{ ssl_fc }": Left, "if { path /x }": Left} {
		_, r := converted(t, HAProxy, "frontend f\n mode http\n bind :80\n default_backend b\nbackend b\n mode http\n http-request set-header X-A 1 "+use+"\n server s 127.0.0.1:1\n")
		if l := resultOf(t, r, "http-request set-header"); l.Result != want {
			t.Errorf("%q: %+v", use, l)
		}
	}
}
