package convert

import "testing"

// inSite is a site with lines before an open backend.
func inSite(lines string) string {
	return ":80 {\n" + lines + "\n\treverse_proxy 127.0.0.1:2\n}\n"
}

func TestGuardsOfCaddy(t *testing.T) {
	checkGuards(t, Caddy, []guardCase{
		{"missing field", inSite("\t@no {\n\t\tpath /g/*\n\t\tnot header X-Key s\n\t}\n\trespond @no 403"), "", map[string]string{
			"/g/x": "403", "/g/x | x-key: s": open, "/g/x | x-key: t": "403", "/x": open, "/G/X": "403",
		}},
		{"not of a block", inSite("\t@no {\n\t\tnot {\n\t\t\tmethod GET\n\t\t\theader X-Key s\n\t\t}\n\t}\n\tabort @no"), "", map[string]string{"/x": "403", "/x | x-key: s": open, "POST /x | x-key: s": "403"}},
		{"error", inSite("\t@bad header User-Agent *bot*\n\terror @bad 404"), "", map[string]string{"/x": open, "/x | user-agent: a bot": "404"}},
		{"clients", inSite("\t@no not remote_ip 192.0.2.0/24\n\trespond @no 403"), "", map[string]string{"/x": "403", "/x | client=192.0.2.1": open}},
		{"clients of a path", inSite("\t@no {\n\t\tpath /g/*\n\t\tnot remote_ip 192.0.2.0/24\n\t}\n\tabort @no"), "", map[string]string{"/g/x": "403", "/g/x | client=192.0.2.1": open, "/x": open}},
		{"case and segment", inSite("\trespond /adm* 403"), "", map[string]string{"/ADMin": "403", "/adm": "403", "/ad": open}},
		{"unknown matcher", inSite("\t@no {\n\t\tpath /g/*\n\t\texpression {http.auth.user.id} == \"a\"\n\t}\n\trespond @no 403"), "respond @no", map[string]string{"/g/x": "403", "/x": open}},
		{"unknown matcher alone", inSite("\t@no expression 1 == 1\n\trespond @no 403"), "respond @no", map[string]string{"/g/x": "403", "/x": "403"}},
		{"login by an unknown matcher", ":80 {\n\t@anon vars {user} \"\"\n\thandle @anon {\n\t\tredir /login\n\t}\n\thandle {\n\t\treverse_proxy 127.0.0.1:2\n\t}\n}\n", "handle @anon", map[string]string{"/x": "403"}},
		{"no such matcher", inSite("\trespond @none 403"), "respond @none", map[string]string{"/x": "403"}},
		{"passwords", inSite("\tbasic_auth /g/* {\n\t\ta $2a$14$x\n\t}"), "basic_auth", map[string]string{"/g/x": "403", "/G/x": "403", "/x": open}},
		{"passwords but for clients", inSite("\t@out not remote_ip 192.0.2.0/24\n\tbasic_auth @out {\n\t\ta $2a$14$x\n\t}"), "basic_auth", map[string]string{"/x": "403", "/x | client=192.0.2.1": open}},
		{"passwords by an unknown matcher", inSite("\t@x expression true\n\tbasic_auth @x {\n\t\ta $2a$14$x\n\t}"), "basic_auth", map[string]string{"/x": "403"}},
		{"forward_auth of a path", inSite("\tforward_auth /g/* 127.0.0.1:9 {\n\t\turi /v\n\t}"), "", map[string]string{"/g/x": "401", "/G/x": "401", "/x": open}},
		{"path that meets in part", ":80 {\n\tbasic_auth /g/a* {\n\t\ta $2a$14$x\n\t}\n\t@b path *b\n\treverse_proxy @b 127.0.0.1:1\n\treverse_proxy 127.0.0.1:2\n}\n", "basic_auth", map[string]string{"/g/ab": "403", "/x": open}},
		{"plugin", inSite("\tauthorize with policy"), "authorize", map[string]string{"/x": "403"}},
		{"plugin for a path", inSite("\tcrowdsec /g/*"), "crowdsec", map[string]string{"/g/x": "403", "/x": open}},
		{"rates", inSite("\trate_limit {\n\t\tzone z {\n\t\t\tevents 3\n\t\t}\n\t}"), "rate_limit", map[string]string{"/x": "403"}},
		{"firewall", inSite("\tcoraza_waf {\n\t\tload_owasp_crs\n\t}"), "coraza_waf", map[string]string{"/x": "403"}},
		{"handle with passwords", ":80 {\n\thandle_path /g/* {\n\t\tbasic_auth {\n\t\t\ta $2a$14$x\n\t\t}\n\t\treverse_proxy 127.0.0.1:1\n\t}\n\thandle {\n\t\treverse_proxy 127.0.0.1:2\n\t}\n}\n", "basic_auth", map[string]string{
			"/g/x": "403", "/G/x": "403", "/x": open,
		}},
		{"templates are no guard", inSite("\ttemplates"), "*", map[string]string{"/x": open}},
	})
}

// Each directive of Caddy is translated, keeps no client out, or closes: with or without a matcher.
func TestDirectivesOfCaddyClose(t *testing.T) {
	for _, line := range []string{
		"basic_auth", "basicauth", "forward_auth", "authorize", "authenticate", "jwtauth", "crowdsec", "coraza_waf", "rate_limit", "geofence", "webauthn", "oidc", "respond", "abort", "error", "redir",
		"handle", "handle_path", "route", "reverse_proxy", "metrics", "wonder",
	} {
		text := ":80 {\n\t@x {\n\t\tpath /g/*\n\t\texpression true\n\t}\n\t" + line + " @x 127.0.0.1:1\n\treverse_proxy 127.0.0.1:2\n}\n"
		c, r := converted(t, Caddy, text)
		if got := visit(t, c, visitor{request: "/g/x"}); got != "403" && got != "501" && got != "401" && got != "302" {
			t.Errorf("%s: %s\n%s\n%s", line, got, r.Config, r.Text(false))
		}
	}
}
