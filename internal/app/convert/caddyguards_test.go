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
		{"hidden files", ":80 {\n\troot * /srv\n\tfile_server {\n\t\thide *.ini secret /srv/data/keys /other\n\t}\n}\n", "", map[string]string{
			"/app.ini": "404", "/a/app.ini": "404", "/x/secret": "404", "/secret/x": "404", "/data/keys/a": "404", "/data/other": "files", "/app.inix": "files", "/": "files",
		}},
		{"hidden files of a form that rules lack", ":80 {\n\troot * /srv\n\tfile_server {\n\t\thide [a-c].ini\n\t}\n}\n", "hide", map[string]string{"/a.ini": "403"}},
		{"a field that is removed before", inSite("\trequest_header -X-Role\n\t@admin header X-Role admin\n\thandle @admin {\n\t\treverse_proxy 127.0.0.1:1\n\t}"), "handle @admin", map[string]string{"/x | x-role: admin": "403"}},
		{"a field that is set for a handle", inSite("\trequest_header X-Role none\n\thandle /g/* {\n\t\t@no not header X-Role admin\n\t\trespond @no 403\n\t\treverse_proxy 127.0.0.1:1\n\t}"), "respond @no", map[string]string{
			"/g/x | x-role: admin": "403", "/x": open,
		}},
		{"a field of the server of credentials", inSite("\tforward_auth 127.0.0.1:9 {\n\t\turi /v\n\t\tcopy_headers X-Role\n\t}\n\t@no {\n\t\tpath /g/*\n\t\tnot header X-Role admin\n\t}\n\trespond @no 403"), "respond @no", map[string]string{
			"/g/x | x-role: admin": "401", "/x | x-role: admin": "401",
		}},
		{"a redirect before a field is set", inSite("\trequest_header X-Role none\n\t@in header X-Role admin\n\tredir @in /in"), "", map[string]string{"/x | x-role: admin": "302", "/x": open}},
		{"a field that is copied under another name", inSite("\thandle /g/* {\n\t\tforward_auth 127.0.0.1:9 {\n\t\t\turi /v\n\t\t\tcopy_headers A>X-Role\n\t\t}\n\t\t@no not header X-Role admin\n\t\trespond @no 403\n\t\treverse_proxy 127.0.0.1:1\n\t}"), "respond @no", map[string]string{"/x": open}},
		{"a method that is set before", inSite("\tmethod POST\n\t@no {\n\t\tpath /g/*\n\t\tmethod POST\n\t}\n\trespond @no 403"), "respond @no", map[string]string{"/g/x": "403", "/x": open}},
		{"a path that is rewritten before", inSite("\trewrite /old/* /g{path}\n\trespond /g/* 403"), "rewrite", map[string]string{"/old/x": "403", "/OLD/x": "403", "/g/x": "403", "/x": open}},
		{"a prefix that is taken off before", inSite("\turi strip_prefix /api\n\tbasic_auth /g/* {\n\t\ta $2a$14$x\n\t}"), "uri", map[string]string{"/api/g/x": "403", "/API/g/x": "403", "/g/x": "403", "/x": open}},
		{"a prefix that is taken off for the backend", ":80 {\n\thandle /api/* {\n\t\turi strip_prefix /api\n\t\treverse_proxy 127.0.0.1:1\n\t}\n\trespond /g/* 403\n\treverse_proxy 127.0.0.1:2\n}\n", "", map[string]string{"/api/x": guarded, "/g/x": "403", "/x": open}},
		{"paths below a handle_path", inSite("\thandle_path /api/* {\n\t\t@no path_regexp ^/h[0-9]\n\t\terror @no 404\n\t\trespond /g/* 403\n\t\treverse_proxy /i/* 127.0.0.1:3\n\t\treverse_proxy 127.0.0.1:1\n\t}"), "", map[string]string{
			"/api/g/x": "403", "/api/h1": "404", "/api/i/x": "127.0.0.1-3", "/api/x": guarded, "/g/x": open, "/i/x": open,
		}},
		{"expressions below a handle_path", inSite("\thandle_path /api/* {\n\t\t@git path_regexp \\.git\n\t\terror @git 404\n\t\t@in path_regexp /in/\n\t\terror @in 410\n\t\treverse_proxy 127.0.0.1:1\n\t}"), "", map[string]string{
			"/api/.git": "404", "/api/x/.git/a": "404", "/apix.git": open, "/api/in/x": "410", "/api/x/in/": "410", "/apix/in/": open, "/api/x": guarded,
		}},
		{"an expression of another form below a handle_path", inSite("\thandle_path /api/* {\n\t\t@git path_regexp [.]git\n\t\terror @git 404\n\t\treverse_proxy 127.0.0.1:1\n\t}"), "error @git", map[string]string{"/api/.git": "403", "/x": open}},
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
