package rewrite

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/semantics"
)

// What Gateway API v1 says of ReplacePrefixMatch: the table in the description of HTTPPathModifier. Lines that follow from its
// rules are marked.
func TestPrefixesAreReplacedAsGatewayAPISays(t *testing.T) {
	for _, x := range []struct{ path, prefix, value, want string }{
		{"/foo/bar", "/foo", "/xyz", "/xyz/bar"},
		{"/foo/bar", "/foo", "/xyz/", "/xyz/bar"},
		{"/foo/bar", "/foo/", "/xyz", "/xyz/bar"},
		{"/foo/bar", "/foo/", "/xyz/", "/xyz/bar"},
		{"/foo", "/foo", "/xyz", "/xyz"},
		{"/foo/", "/foo", "/xyz", "/xyz/"},
		{"/foo/bar", "/foo", "", "/bar"},
		{"/foo/", "/foo", "", "/"},
		{"/foo", "/foo", "", "/"},
		{"/foo/", "/foo", "/", "/"},
		{"/foo", "/foo", "/", "/"},
		// The rest is derived: a slash at the end is ignored, and only whole segments are a prefix.
		{"/foo", "/foo", "/xyz/", "/xyz"},
		{"/foo/bar", "/", "/xyz", "/xyz/foo/bar"},
		{"/", "/", "/xyz", "/xyz/"},
		{"/", "/", "", "/"},
		{"/foo/bar", "/", "/", "/foo/bar"},
		{"/foobar", "/foo", "/xyz", "/foobar"},
		{"/bar", "/foo", "/xyz", "/bar"},
		{"*", "/", "/xyz", "*"},
	} {
		m := PathModifier{Type: ReplacePrefixMatch, Value: x.value, Prefix: x.prefix}
		if got, _ := m.Apply(nil, x.path); got != x.want {
			t.Errorf("%s, prefix %s by %q: %s, want %s", x.path, x.prefix, x.value, got, x.want)
		}
	}
}

// The cases of Gateway API's conformance test HTTPRouteRewritePath, and those of whole paths.
func TestPathsAreRewrittenAsTheConformanceTestsExpect(t *testing.T) {
	for _, x := range []struct {
		m           PathModifier
		path, query string
		want        string
	}{
		{PathModifier{ReplacePrefixMatch, "/one", "/prefix/one"}, "/prefix/one/two", "", "/one/two"},
		{PathModifier{ReplacePrefixMatch, "/", "/strip-prefix"}, "/strip-prefix/three", "", "/three"},
		{PathModifier{ReplacePrefixMatch, "/", "/strip-prefix"}, "/strip-prefix", "", "/"},
		{PathModifier{Type: ReplaceFullPath, Value: "/one"}, "/full/one/two", "", "/one"},
		{PathModifier{Type: ReplaceFullPath, Value: "/test"}, "/full/rewrite-path-and-modify-headers/test", "", "/test"},
		{PathModifier{ReplacePrefixMatch, "/prefix", "/prefix/rewrite-path-and-modify-headers"}, "/prefix/rewrite-path-and-modify-headers/one", "", "/prefix/one"},
		// The query stays; so does what no modifier changes.
		{PathModifier{Type: ReplaceFullPath, Value: "/one"}, "/two", "?a=/two", "/one?a=/two"},
		{PathModifier{Type: ReplaceFullPath}, "/two", "?a", "/?a"},
		{PathModifier{ReplacePrefixMatch, "/", "/strip"}, "/strip", "?a=b", "/?a=b"},
		{PathModifier{ReplacePrefixMatch, "/x", "/strip"}, "/strip/y/", "?a=b", "/x/y/?a=b"},
		{PathModifier{}, "/two", "?a=b", "/two?a=b"},
		{PathModifier{Type: ReplaceFullPath, Value: "/one"}, "*", "", "*"},
	} {
		m := semantics.Message{Path: x.path + x.query, Authority: "rewrite.example"}
		r := Rewrite{Path: x.m}
		r.Apply(&m, nil, x.path, x.query)
		if m.Path != x.want || m.Authority != "rewrite.example" {
			t.Errorf("%s%s by %+v: %s of %s, want %s", x.path, x.query, x.m, m.Path, m.Authority, x.want)
		}
	}
	m := semantics.Message{Path: "/%61", Authority: "rewrite.example"} // was normalised
	r := Rewrite{Hostname: "one.example.org"}
	if r.Apply(&m, nil, "/a", ""); m.Authority != "one.example.org" || m.Path != "/a" {
		t.Errorf("%s of %s", m.Path, m.Authority)
	}
}

// redirectCase is a case of the conformance tests HTTPRouteRedirectPath, -Port, -Scheme, -HostAndStatus and -PortAndScheme. An
// empty scheme or host is that of the request, as in the tests.
type redirectCase struct {
	listener string // "http 80"
	r        Redirect
	path     string
	scheme   string
	host     string
	port     string
	want     string // path
	status   int
}

func TestRedirectsAreWhatTheConformanceTestsExpect(t *testing.T) {
	prefix := func(value, prefix string) PathModifier {
		return PathModifier{ReplacePrefixMatch, value, prefix}
	}
	full := func(value string) PathModifier { return PathModifier{Type: ReplaceFullPath, Value: value} }
	const org = "example.org"
	for _, x := range []redirectCase{
		{"http 80", Redirect{Path: prefix("/replacement-prefix", "/original-prefix")}, "/original-prefix/lemon", "", "", "", "/replacement-prefix/lemon", 302},
		{"http 80", Redirect{Path: full("/full-path-replacement")}, "/full/path/original", "", "", "", "/full-path-replacement", 302},
		{"http 80", Redirect{Hostname: org, Path: prefix("/replacement-prefix", "/path-and-host")}, "/path-and-host", "", org, "", "/replacement-prefix", 302},
		{"http 80", Redirect{Path: prefix("/replacement-prefix", "/path-and-status"), Status: 301}, "/path-and-status", "", "", "", "/replacement-prefix", 301},
		{"http 80", Redirect{Hostname: org, Path: full("/replacement-full")}, "/full-path-and-host", "", org, "", "/replacement-full", 302},
		{"http 80", Redirect{Path: full("/replacement-full"), Status: 301}, "/full-path-and-status", "", "", "", "/replacement-full", 301},

		{"http 80", Redirect{Port: 8083}, "/port", "", "", "8083", "/port", 302},
		{"http 80", Redirect{Port: 8083, Hostname: org}, "/port-and-host", "", org, "8083", "/port-and-host", 302},
		{"http 80", Redirect{Port: 8083, Status: 301}, "/port-and-status", "", "", "8083", "/port-and-status", 301},
		{"http 80", Redirect{Port: 8083, Hostname: org, Status: 302}, "/port-and-host-and-status", "", org, "8083", "/port-and-host-and-status", 302},

		{"http 80", Redirect{Scheme: "https"}, "/scheme", "https", "", "", "/scheme", 302},
		{"http 80", Redirect{Scheme: "https", Hostname: org}, "/scheme-and-host", "https", org, "", "/scheme-and-host", 302},
		{"http 80", Redirect{Scheme: "https", Status: 301}, "/scheme-and-status", "https", "", "", "/scheme-and-status", 301},
		{"http 80", Redirect{Scheme: "https", Hostname: org, Status: 302}, "/scheme-and-host-and-status", "https", org, "", "/scheme-and-host-and-status", 302},

		{"http 80", Redirect{Hostname: org}, "/hostname-redirect", "", org, "", "/hostname-redirect", 302},
		{"http 80", Redirect{Hostname: org, Status: 301}, "/host-and-status", "", org, "", "/host-and-status", 301},

		{"http 80", Redirect{Hostname: org}, "/scheme-nil-and-port-nil", "http", org, "", "/scheme-nil-and-port-nil", 302},
		{"http 80", Redirect{Hostname: org, Port: 80}, "/scheme-nil-and-port-80", "http", org, "", "/scheme-nil-and-port-80", 302},
		{"http 80", Redirect{Hostname: org, Port: 8080}, "/scheme-nil-and-port-8080", "http", org, "8080", "/scheme-nil-and-port-8080", 302},
		{"http 80", Redirect{Hostname: org, Scheme: "https"}, "/scheme-https-and-port-nil", "https", org, "", "/scheme-https-and-port-nil", 302},
		{"http 80", Redirect{Hostname: org, Scheme: "https", Port: 443}, "/scheme-https-and-port-443", "https", org, "", "/scheme-https-and-port-443", 302},
		{"http 80", Redirect{Hostname: org, Scheme: "https", Port: 8443}, "/scheme-https-and-port-8443", "https", org, "8443", "/scheme-https-and-port-8443", 302},

		{"http 8080", Redirect{Hostname: org}, "/scheme-nil-and-port-nil", "http", org, "8080", "/scheme-nil-and-port-nil", 302},
		{"http 8080", Redirect{Hostname: org, Port: 80}, "/scheme-nil-and-port-80", "http", org, "", "/scheme-nil-and-port-80", 302},
		{"http 8080", Redirect{Hostname: org, Scheme: "https"}, "/scheme-https-and-port-nil", "https", org, "", "/scheme-https-and-port-nil", 302},

		{"https 443", Redirect{Hostname: org}, "/scheme-nil-and-port-nil", "https", org, "", "/scheme-nil-and-port-nil", 302},
		{"https 443", Redirect{Hostname: org, Port: 443}, "/scheme-nil-and-port-443", "https", org, "", "/scheme-nil-and-port-443", 302},
		{"https 443", Redirect{Hostname: org, Port: 8443}, "/scheme-nil-and-port-8443", "https", org, "8443", "/scheme-nil-and-port-8443", 302},
		{"https 443", Redirect{Hostname: org, Scheme: "http"}, "/scheme-http-and-port-nil", "http", org, "", "/scheme-http-and-port-nil", 302},
		{"https 443", Redirect{Hostname: org, Scheme: "http", Port: 80}, "/scheme-http-and-port-80", "http", org, "", "/scheme-http-and-port-80", 302},
		{"https 443", Redirect{Hostname: org, Scheme: "http", Port: 8080}, "/scheme-http-and-port-8080", "http", org, "8080", "/scheme-http-and-port-8080", 302},
	} {
		x.check(t)
	}
}

func (x *redirectCase) check(t *testing.T) {
	t.Helper()
	scheme, port, _ := strings.Cut(x.listener, " ")
	target := Target{TLS: scheme == "https", Port: map[string]uint16{"80": 80, "8080": 8080, "443": 443}[port], Authority: "198.18.0.1:30080", Path: x.path, Query: "?q=1"}
	got := string(x.r.AppendLocation(nil, &target))
	u, err := url.Parse(got)
	if err != nil {
		t.Fatal(err)
	}
	if x.scheme == "" {
		x.scheme = scheme
	}
	if x.host == "" {
		x.host = "198.18.0.1"
	}
	if u.Scheme != x.scheme || u.Hostname() != x.host || u.Port() != x.port || u.Path != x.want || u.RawQuery != "q=1" || x.r.Code() != x.status {
		t.Errorf("%s, %s by %+v: %d %s", x.listener, x.path, x.r, x.r.Code(), got)
	}
}

func TestTheHostOfARedirect(t *testing.T) {
	for authority, want := range map[string]string{
		"a.example":         "http://a.example:8080/x",
		"a.example:81":      "http://a.example:8080/x",
		"a.example:":        "http://a.example:8080/x",
		"[2001:db8::1]":     "http://[2001:db8::1]:8080/x",
		"[2001:db8::1]:443": "http://[2001:db8::1]:8080/x",
		"192.0.2.1":         "http://192.0.2.1:8080/x",
		"4711":              "http://4711:8080/x",
		"":                  "/x", // HTTP/1.0
	} {
		r := Redirect{Path: PathModifier{Type: ReplaceFullPath, Value: "/x"}}
		if got := string(r.AppendLocation(nil, &Target{Port: 8080, Authority: authority, Path: "/"})); got != want {
			t.Errorf("%q: %s, want %s", authority, got, want)
		}
	}
	regex, err := NewRegex("/a/(.*)", "/$1")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []Redirect{{}, {Path: PathModifier{Type: ReplacePrefixMatch, Value: "/", Prefix: "/a"}}, {Regex: regex}} {
		path := `/\b.example`
		if r.Path.Prefix != "" || r.Regex != nil {
			path = "/a" + path
		}
		if got := string(r.AppendLocation(nil, &Target{Port: 80, Path: path, Query: "?q"})); got != "/%5Cb.example?q" {
			t.Errorf("%+v: %s", r, got)
		}
	}
	r := Redirect{Scheme: "https"}
	if got := string(r.AppendLocation([]byte("x"), &Target{Port: 80, Authority: "a.example", Path: "*"})); got != "xhttps://a.example/" {
		t.Error(got)
	}
}

// headerCase is a case of the conformance tests HTTPRouteRequestHeaderModifier and -ResponseHeaderModifier. Lines of one
// name are given as one, joined by commas.
type headerCase struct {
	h      Headers
	in     map[string]string
	want   map[string]string
	absent []string
}

func TestHeadersAreWhatTheConformanceTestsExpect(t *testing.T) {
	f := func(name, value string) semantics.Field { return semantics.Field{Name: name, Value: value} }
	set := Headers{Set: []semantics.Field{f("x-header-set", "set-overwrites-values")}}
	add := Headers{Add: []semantics.Field{f("x-header-add", "add-appends-values")}}
	multiple := Headers{
		Set:    []semantics.Field{f("x-header-set-1", "header-set-1"), f("x-header-set-2", "header-set-2")},
		Add:    []semantics.Field{f("x-header-add-1", "header-add-1"), f("x-header-add-2", "header-add-2"), f("x-header-add-3", "header-add-3")},
		Remove: []string{"x-header-remove-1", "x-header-remove-2"},
	}
	for _, x := range []headerCase{
		{set, map[string]string{"some-other-header": "val"}, map[string]string{"some-other-header": "val", "x-header-set": "set-overwrites-values"}, nil},
		{set, map[string]string{"some-other-header": "val", "x-header-set": "some-other-value"}, map[string]string{"some-other-header": "val", "x-header-set": "set-overwrites-values"}, nil},
		{add, map[string]string{"some-other-header": "val"}, map[string]string{"some-other-header": "val", "x-header-add": "add-appends-values"}, nil},
		{add, map[string]string{"some-other-header": "val", "x-header-add": "some-other-value"}, map[string]string{"some-other-header": "val", "x-header-add": "some-other-value,add-appends-values"}, nil},
		{Headers{Remove: []string{"x-header-remove"}}, map[string]string{"x-header-remove": "val"}, nil, []string{"x-header-remove"}},
		{
			multiple,
			map[string]string{"x-header-set-2": "set-val-2", "x-header-add-2": "add-val-2", "x-header-remove-2": "remove-val-2", "another-header": "another-header-val", "x-header-remove-1": "val"},
			map[string]string{
				"x-header-set-1": "header-set-1", "x-header-set-2": "header-set-2", "x-header-add-1": "header-add-1", "x-header-add-2": "add-val-2,header-add-2",
				"x-header-add-3": "header-add-3", "another-header": "another-header-val",
			},
			[]string{"x-header-remove-1", "x-header-remove-2"},
		},
	} {
		var fields []semantics.Field
		for name, value := range x.in {
			fields = append(fields, f(name, value))
		}
		got := map[string]string{}
		for _, f := range x.h.Apply(fields) {
			if was, ok := got[f.Name]; ok {
				f.Value = was + "," + f.Value
			}
			got[f.Name] = f.Value
		}
		for name, want := range x.want {
			if got[name] != want {
				t.Errorf("%+v of %v: %s is %q, want %q", x.h, x.in, name, got[name], want)
			}
		}
		for name := range got {
			if slices.Contains(x.absent, name) {
				t.Errorf("%+v of %v: %s is there", x.h, x.in, name)
			}
		}
	}
}

// A redirect is a URL of one host, whatever the request holds: net/url reads the host, the port and the query that were meant.
func FuzzRedirect(f *testing.F) {
	f.Add("a.example:8080", "/old/x", "?q=1", "/old", "/new", uint16(8080), true)
	f.Add("[2001:db8::1]", "/", "", "/", "", uint16(0), false)
	f.Add("a.example", "/%2e%2e//b?", "?//c@d/e", "", "/x", uint16(443), true)
	f.Fuzz(func(t *testing.T, authority, path, query, prefix, value string, port uint16, https bool) {
		path, _, err := semantics.NormalizePath(nil, path)
		if err != nil || !strings.HasPrefix(path, "/") || !semantics.IsTarget(path+query) || strings.Contains(path, "?") {
			return
		}
		ok := func(s string) bool {
			return s == "" || s[0] == '/' && semantics.IsTarget(s) && !strings.Contains(s, "?")
		}
		if !semantics.IsAuthority(authority) || query != "" && query[0] != '?' || !ok(prefix) || !ok(value) {
			return
		}
		r := Redirect{Port: port, Path: PathModifier{ReplacePrefixMatch, value, prefix}}
		if https {
			r.Scheme = "https"
		}
		got := string(r.AppendLocation(nil, &Target{Port: 80, Authority: authority, Path: path, Query: query}))
		if !semantics.IsValue(got) {
			t.Fatalf("%q is no value of a field", got)
		}
		u, err := url.Parse(got)
		if err != nil {
			return // net/url refuses hosts that RFC 3986 permits
		}
		original, err := url.Parse("http://" + authority)
		if err == nil && u.Hostname() != original.Hostname() || u.User != nil || u.RawQuery != strings.TrimPrefix(query, "?") {
			t.Errorf("%q: host %q, query %q", got, u.Hostname(), u.RawQuery)
		}
		want := map[bool]string{false: "http", true: "https"}[https]
		if u.Scheme != want || u.Port() != "" && (want == "http" && u.Port() == "80" || want == "https" && u.Port() == "443") {
			t.Errorf("%q: scheme %s, port %s", got, u.Scheme, u.Port())
		}
	})
}
