package config

import (
	"strings"
	"testing"
)

// Limits by user need something that names users, and bounds that bound nothing are errors.
func TestLimitsByUser(t *testing.T) {
	const limit, plain = "rate_limits: [{name: u, key: {by: user}, requests: 5}]\n", "listeners: [{name: l, address: 127.0.0.1:80, protocol: HTTP}]\n"
	const mutual = "listeners: [{name: l, address: 127.0.0.1:443, protocol: HTTPS, tls: {certificates: [{cert: c, key: k}], client_auth: {ca_file: a}}}]\n"
	route := func(keys string) string {
		return "routes: [{name: r, " + keys + ", rules: [{backend_refs: [{name: p}]}]}]\npools: [{name: p, backends: [{address: 127.0.0.1:1}]}]\n"
	}
	pool := func(keys string) string {
		return "routes: [{name: r, rules: [{backend_refs: [{name: p}]}]}]\npools: [{name: p, backends: [{address: 127.0.0.1:1}], " + keys + "}]\n"
	}
	const basic, jwt = "auth: {basic: {file: u}}", "auth: {jwt: {issuer: i, audiences: a, jwks_file: f, user_claim: tenant}}"
	for _, c := range []struct{ file, want string }{
		{limit + plain + route("rate_limits: [u], "+basic), ""},
		{limit + plain + route("rate_limits: [u], "+jwt), ""},
		{limit + mutual + route("rate_limits: [u]"), ""},
		{limit + plain + route("rate_limits: [u]"), "nothing names the users of route \"r\""},
		{limit + plain + route("rate_limits: [u], auth: {forward: {pool: p}}"), "nothing names the users of route \"r\""},
		{limit + strings.Replace(plain, "protocol: HTTP", "protocol: HTTP, rate_limits: [u]", 1) + route(basic), "is by user, who is known once a route has asked"},
		{strings.Replace(limit, "by: user", "by: user, name: x", 1) + plain + route("rate_limits: [u], "+basic), "name is not for `by: user`"},
		{plain + route("concurrency: {per_user: 2}, "+basic), ""},
		{plain + route("concurrency: {per_user: 2, requests: 3, pending: 4}, "+basic), ""},
		{plain + route("concurrency: {per_user: 2}"), "per_user has no effect: nothing names the users"},
		{plain + route("concurrency: {requests: 0}"), "concurrency bounds nothing"},
		{plain + route("concurrency: {}"), "concurrency bounds nothing"},
		{plain + route("concurrency: {per_user: 2, wait: 1s}, "+basic), "wait is not for per_user"},
		{plain + route("concurrency: {per_user: 0}, "+basic), "per_user is 0"},
		{plain + pool("limits: {requests: 3, queued: 4}"), ""},
		{plain + pool("limits: {queued: 4}"), "queued has no effect: pool \"p\" takes any number of requests"},
	} {
		if _, err := Parse("f", []byte(c.file)); c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.file, err, c.want)
		}
	}
	c, err := Parse("f", []byte(plain+route(jwt)))
	if err != nil || c.Routes[0].Auth.JWT.UserClaim != "tenant" {
		t.Errorf("%+v, %v", c, err)
	}
}
