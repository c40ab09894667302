package fastcgi

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/semantics"
)

// variables returns the variables of a request, each of which may be there once.
func variables(t *testing.T, p []byte) map[string]string {
	t.Helper()
	all := map[string]string{}
	for len(p) > 0 {
		name, value, n, ok := cutPair(p)
		if !ok {
			t.Fatal("a pair is not complete")
		}
		if _, again := all[string(name)]; again {
			t.Errorf("%s is there twice", name)
		}
		all[string(name)], p = string(value), p[n:]
	}
	return all
}

func testRequest() Request {
	return Request{
		Script: Script{"/blog/index.php", "/2026/a b"}, Root: "/srv/www", Method: "POST", Target: "/blog/index.php/2026/a%20b?x=1&y", Query: "x=1&y", Protocol: "HTTP/2",
		Host: "shop.example:8443", Client: netip.MustParseAddr("::ffff:192.0.2.7"), Port: 4711, Local: netip.MustParseAddrPort("198.18.0.1:443"), TLS: true, User: "ann",
		Fields: []semantics.Field{
			{Name: "host", Value: "other.example"},
			{Name: "content-type", Value: "text/plain"},
			{Name: "content-length", Value: "5"},
			{Name: "accept", Value: "text/html"},
			{Name: "cookie", Value: "a=b"},
			{Name: "accept", Value: "*/*"},
			{Name: "cookie", Value: "c=d"},
			{Name: "x-forwarded-for", Value: "192.0.2.7"},
			{Name: "authorization", Value: "Basic x"},
		},
	}
}

func TestVariablesOfARequest(t *testing.T) {
	r := testRequest()
	want := map[string]string{
		"GATEWAY_INTERFACE": "CGI/1.1", "SERVER_SOFTWARE": "millrace", "SCRIPT_FILENAME": "/srv/www/blog/index.php", "SCRIPT_NAME": "/blog/index.php", "DOCUMENT_ROOT": "/srv/www",
		"DOCUMENT_URI": "/blog/index.php/2026/a b", "PATH_INFO": "/2026/a b", "PATH_TRANSLATED": "/srv/www/2026/a b", "REQUEST_METHOD": "POST",
		"REQUEST_URI": "/blog/index.php/2026/a%20b?x=1&y", "QUERY_STRING": "x=1&y", "SERVER_PROTOCOL": "HTTP/2.0", "SERVER_NAME": "shop.example", "SERVER_ADDR": "198.18.0.1",
		"SERVER_PORT": "443", "REMOTE_ADDR": "192.0.2.7", "REMOTE_PORT": "4711", "REQUEST_SCHEME": "https", "HTTPS": "on", "REMOTE_USER": "ann", "REDIRECT_STATUS": "200",
		"CONTENT_TYPE": "text/plain", "HTTP_ACCEPT": "text/html, */*", "HTTP_COOKIE": "a=b; c=d", "HTTP_X_FORWARDED_FOR": "192.0.2.7", "HTTP_AUTHORIZATION": "Basic x",
		"HTTP_HOST": "shop.example:8443",
	}
	if diff := cmp.Diff(want, variables(t, r.Append(nil, nil))); diff != "" {
		t.Error(diff)
	}
}

func TestVariablesOfAPlainRequest(t *testing.T) {
	r := Request{Script: Script{Name: "/a.php"}, Root: "/srv/", Method: "GET", Target: "/a.php", Protocol: "HTTP/1.1", Local: netip.MustParseAddrPort("[2001:db8::1]:80")}
	got := variables(t, r.Append(nil, nil))
	for name, want := range map[string]string{
		"SERVER_PROTOCOL": "HTTP/1.1", "SERVER_NAME": "2001:db8::1", "SCRIPT_FILENAME": "/srv/a.php", "PATH_INFO": "", "REQUEST_SCHEME": "http", "QUERY_STRING": "",
	} {
		if value, ok := got[name]; !ok || value != want {
			t.Errorf("%s is %q, want %q", name, value, want)
		}
	}
	for _, name := range []string{"HTTPS", "REMOTE_USER", "PATH_TRANSLATED", "CONTENT_TYPE", "CONTENT_LENGTH", "HTTP_HOST", "REMOTE_PORT"} {
		if value, ok := got[name]; ok {
			t.Errorf("%s is %q", name, value)
		}
	}
}

// A client sets no variable but HTTP_*, none that programs act upon, and none in place of another's (RFC 3875 9.2).
func TestFieldsThatBecomeNoVariables(t *testing.T) {
	r := testRequest()
	r.Fields = []semantics.Field{
		{Name: "proxy", Value: "claimed"},
		{Name: "x_forwarded_for", Value: "claimed"},
		{Name: "x.forwarded.for", Value: "claimed"},
		{Name: "content_type", Value: "claimed"},
		{Name: "x-forwarded-for", Value: "192.0.2.7"},
		{Name: "https", Value: "1"},
		{Name: "script-filename", Value: "1"},
		{Name: "~php-value", Value: "claimed"},
	}
	for name, value := range variables(t, r.Append(nil, nil)) {
		if value == "claimed" || value == "1" && !strings.HasPrefix(name, "HTTP_") {
			t.Errorf("%s is %q", name, value)
		}
	}
}

func TestVariablesThatTheOperatorSets(t *testing.T) {
	r := testRequest()
	got := variables(t, AppendPair(r.Append(nil, func(name string) bool { return name == "SERVER_NAME" || name == "HTTP_ACCEPT" }), "SERVER_NAME", "mine"))
	if _, there := got["HTTP_ACCEPT"]; there || got["SERVER_NAME"] != "mine" || got["SERVER_PORT"] != "443" {
		t.Errorf("%v", got)
	}
	for name, want := range map[string]bool{"A": true, "A_1": true, "_A": true, "": false, "a": false, "1A": false, "A-B": false, "A=B": false, "A\x00": false} {
		if IsVariable(name) != want {
			t.Errorf("%q: %v", name, !want)
		}
	}
}
