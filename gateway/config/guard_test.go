package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// limited is a file with a rate limit.
func limited(keys string) string {
	return "rate_limits: [{name: a, requests: 5" + keys + "}]\n" + strings.Replace(kinds["http"], "name: r,", "name: r, rate_limits: [a],", 1)
}

func TestKeysOfRateLimits(t *testing.T) {
	c, err := Parse("f", []byte(limited(", key: {by: header, name: X-Api-Key, prefix6: 56}, interval: 1m, burst: 9, keys: 1000, announce: always")))
	if err != nil {
		t.Fatal(err)
	}
	want := RateLimit{
		Name: "a", Key: RateKey{By: RateByHeader, Name: "x-api-key", Prefix4: 32, Prefix6: 56}, Requests: 5, Interval: time.Minute, Burst: 9,
		Keys: 1000, Announce: AnnounceAlways,
	}
	if c.RateLimits[0] != want || len(c.Routes[0].RateLimits) != 1 {
		t.Errorf("%+v", c.RateLimits[0])
	}
	for _, c := range []struct{ file, want string }{
		{limited(", interval: 1500ms"), "interval cannot be 1.5s"},
		{limited(", interval: 24h, burst: 1000000"), "more than a year to be given back"},
		{limited(", key: {by: header}"), "`by: header` lacks the key \"name\""},
		{limited(", key: {by: value}"), "`by: value` lacks the key \"value\""},
		{limited(", key: {by: value, value: all}"), "has no variable"},
		{limited(", key: {by: value, value: '${none}'}"), "unknown variable ${none}"},
		{limited(", key: {by: value, value: '${request_id}'}"), "nothing would be limited"},
		{limited(", key: {by: path, name: x}"), "name is not for `by: path`"},
		{limited(", key: {by: path, prefix4: 24}"), "prefix4 is not for `by: path`"},
		{limited(", key: {name: x}"), "name is not for `by: client`"},
		{limited(", dry_run: true, announce: refused"), "a dry run refuses nothing"},
		{limited("}, {name: b, requests: 1"), "rate limit \"b\" has no effect: nothing uses it"},
		{limited("}, {name: a, requests: 1"), "rate limit \"a\" is already on line 1"},
		{strings.Replace(limited(""), "rate_limits: [a]", "rate_limits: [b]", 1), "unknown rate limit \"b\""},
		{strings.Replace(limited(""), "protocol: HTTP}", "protocol: HTTP, rate_limits: [a]}", 1), "requests of listener \"l\" count in rate limit \"a\" already"},
		{strings.Replace(kinds["tcp"], "protocol: TCP}]", "protocol: TCP, rate_limits: [a]}]\nrate_limits: [{name: a, requests: 5}]", 1), "rate_limits has no effect: it is of HTTP"},
		{"rate_limits: [{name: a, requests: 5}]\n" + oneService, "rate_limits is for listeners, and there are none"},
	} {
		if _, err := Parse("f", []byte(c.file)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.file, err, c.want)
		}
	}
}

// route is a file whose route has more keys.
func routed(keys string) string {
	return strings.Replace(kinds["http"], "name: r,", "name: r, "+keys+",", 1)
}

func TestMistakesOfRoutesThatRefuseRequests(t *testing.T) {
	jwt := "auth: {jwt: {issuer: a, audiences: b, "
	for _, c := range []struct{ file, want string }{
		{routed("sources: {allow: 192.0.2.1}"), "sources.allow has no effect: every client is allowed"},
		{routed("concurrency: {requests: 5, pending: 0, wait: 1s}"), "concurrency.wait has no effect: pending is 0"},
		{routed("concurrency: {requests: 0}"), "requests"},
		{strings.Replace(kinds["answers"], "name: r,", "name: r, concurrency: {requests: 5},", 1), "concurrency has no effect: all rules of the route answer"},
		{routed("auth: {}"), "auth has 0 ways"},
		{routed("auth: {basic: {file: a}, forward: {pool: p}}"), "auth has 2 ways"},
		{routed("auth: {basic: {file: a, realm: 'a\"b'}}"), "realm cannot be"},
		{routed(jwt + "}}"), "needs one of jwks_file and jwks_url"},
		{routed(jwt + "jwks_file: a, jwks_url: 'https://a.example'}}"), "needs one of jwks_file and jwks_url"},
		{routed(jwt + "jwks_file: a, refresh: 1m}}"), "refresh has no effect: it is for jwks_url"},
		{routed(jwt + "jwks_file: a, ca_file: b}}"), "ca_file has no effect: it is for jwks_url"},
		{routed(jwt + "jwks_url: 'http://a.example/keys'}}"), "whoever is on the path of plain HTTP could make tokens"},
		{routed(jwt + "jwks_url: 'ftp://a.example/keys'}}"), "jwks_url cannot have ftp"},
		{routed(jwt + "jwks_url: 'https://u:p@a.example/keys'}}"), "jwks_url is not a URL"},
		{routed(jwt + "jwks_url: keys}}"), "jwks_url is not a URL"},
		{routed(jwt + "jwks_file: a, claims: [{name: x-a, claim: b}, {name: X-A, claim: c}]}}"), "field \"x-a\" is already"},
		{routed(jwt + "jwks_file: a, claims: [{name: host, claim: b}]}}"), "cannot edit host"},
		{routed("auth: {forward: {pool: q}}"), "unknown pool \"q\""},
		{routed("auth: {forward: {pool: p, path: verify}}"), "is not a path"},
		{routed("auth: {forward: {pool: p, response_headers: [x-a, X-A]}}"), "field \"x-a\" is already"},
		{routed("maintenance: {retry_after: 1500ms}"), "retry_after cannot be 1.5s"},
		{routed("error_pages: [{status: 200, file: a.html}]"), "status"},
		{routed("error_pages: [{status: 503, file: a.html}, {status: [502, 503], file: b.html}]"), "status 503 is already"},
		{routed("error_pages: [{status: 503, file: page}]"), "the type of \"page\" is not known"},
		{routed("error_pages: [{status: 503, file: a.html, content_type: html}]"), "content_type cannot be"},
		{strings.Replace(kinds["http"], "protocol: HTTP}", "protocol: HTTP, hsts: {max_age: 1h}}", 1), "hsts has no effect: browsers ignore it without TLS"},
		{strings.Replace(kinds["https"], "name: l,", "name: l, hsts: {max_age: 1h, preload: true},", 1), "preload has no effect"},
	} {
		if _, err := Parse("f", []byte(c.file)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.file, err, c.want)
		}
	}
}

// TestARedirectLeadsNowhereElse than its location shows, whatever a client has sent.
func TestARedirectLeadsNowhereElse(t *testing.T) {
	for location, want := range map[string]string{
		"https://a.example${target}": "", "https://${host}${target}": "", "${scheme}://www.${hostname}/": "", "/new": "", "/": "", "/a${path}": "", "http://[2001:db8::1]/": "",
		"${target}": "may lead to another host", "/${path}": "may lead to another host", "//a.example": "may lead to another host", "a.example": "may lead to another host",
		"https://${path}": "may lead to another host", "https:///a": "may lead to another host", "javascript:x": "may lead to another host", "/\\a": "may lead to another host",
		"${none}": "unknown variable", "https://a.example/ ": "is not a URL",
	} {
		_, err := Parse("f", []byte(strings.Replace(kinds["location"], "'/b'", "'"+location+"'", 1)))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", location, err, want)
		}
	}
	if _, err := Parse("f", []byte(strings.Replace(kinds["location"], "'/b'", "'/b', port: 81", 1))); err == nil || !strings.Contains(err.Error(), "do not go with it") {
		t.Errorf("with a port: %v", err)
	}
}

// TestFilesOfGuardsAreReadByCheck and what is wrong with them has its place.
func TestFilesOfGuardsAreReadByCheck(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"users": "ann:$apr1$x$y\nbob\n", "keys": `{"keys": []}`, "prefixes": "192.0.2.0/24\n192.0.2.1/24\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ keys, want string }{
		{"auth: {basic: {file: users}}", "users:1:1: the hash of \"ann\" is not one of bcrypt"},
		{"auth: {basic: {file: users}}", "users:2:1: no name and hash"},
		{"auth: {basic: {file: none}}", "the file of users cannot be used"},
		{"auth: {jwt: {issuer: a, audiences: b, jwks_file: keys}}", "the file of keys cannot be used: no key for RS256"},
		{"auth: {jwt: {issuer: a, audiences: b, jwks_url: 'https://a.example', ca_file: none}}", "the file of authorities cannot be used"},
		{"error_pages: [{status: 404, file: none.html}]", "the page cannot be used"},
		{"sources: {deny: ./prefixes}", "prefixes:2:1: 192.0.2.1/24 has bits beyond its length"},
	} {
		_, err := Read(filepath.Join(dir, "gw.yaml"), strings.NewReader(routed(c.keys)))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.keys, err, c.want)
		}
	}
}
