package convert

import (
	"net/netip"
	"strings"
	"testing"
)

// inFrontend is a frontend with rules before an open backend and one for /g.
func inFrontend(rules string) string {
	return "frontend f\n mode http\n bind :80\n" + rules + "\n use_backend app if { path_beg /g/ }\n default_backend web\nbackend app\n mode http\n server s 127.0.0.1:1\nbackend web\n mode http\n server s 127.0.0.1:2\n"
}

// inBackend is a backend with rules, which /g leads to.
func inBackend(rules string) string {
	return "frontend f\n mode http\n bind :80\n use_backend app if { path_beg /g/ }\n default_backend web\nbackend app\n mode http\n" + rules + "\n server s 127.0.0.1:1\nbackend web\n mode http\n server s 127.0.0.1:2\n"
}

func TestGuardsOfHAProxy(t *testing.T) {
	checkGuards(t, HAProxy, []guardCase{
		{"path and field", inFrontend(" http-request deny if { path_beg /g/ } !{ hdr(x-key) s }"), "", map[string]string{
			"/g/x": "403", "/g/x | x-key: s": "app", "/g/x | x-key: t": "403", "/x": "web",
		}},
		{"named and negated", inFrontend(" acl key hdr(x-key) s\n acl in src 192.0.2.0/24\n http-request deny if { path_beg /g/ } !key !in"), "", map[string]string{
			"/g/x": "403", "/g/x | x-key: s": "app", "/g/x | client=192.0.2.1": "app", "/x": "web",
		}},
		{"unless", inFrontend(" http-request deny deny_status 404 unless { path_beg /g/ } or { hdr(x-key) s }"), "", map[string]string{"/x": "404", "/g/x": "app", "/x | x-key: s": "web"}},
		{"methods", inFrontend(" http-request deny if !{ method GET HEAD }"), "", map[string]string{"/x": "web", "POST /x": "403", "DELETE /g/x": "403", "HEAD /g/x": "app"}},
		{"hosts", inFrontend(" http-request deny if !{ hdr(host) a.example }"), "", map[string]string{"//a.example/x": "web", "//b.example/g/x": "403"}},
		{"cookie", inFrontend(" http-request deny if { path_beg /g/ } !{ req.cook(session) -m found }"), "", map[string]string{"/g/x": "403", "/g/x | cookie: a=b; session=1": "app"}},
		{"login by cookie", inFrontend(" use_backend web if { path_beg /g/ } !{ req.cook(session) s3 }"), "", map[string]string{"/g/x": "web", "/g/x | cookie: session=s3": "app", "/g/x | cookie: session=s": "web"}},
		{"redirect unless", inFrontend(" http-request redirect location /login if { path_beg /g/ } !{ hdr(x-key) s }"), "", map[string]string{"/g/x": "302", "/g/x | x-key: s": "app"}},
		{"without case", inFrontend(" http-request deny if { path_beg -i /g/se }"), "", map[string]string{"/g/secret": "403", "/G/SEcret": "403", "/g/x": "app"}},
		{"last segment", inFrontend(" http-request deny if { path_beg /adm }"), "", map[string]string{"/admin": "403", "/adm": "403", "/ad": "web"}},
		{"unknown with a path", inFrontend(" http-request deny if { path_beg /g/ } { var(txn.bad) -m bool }"), "http-request deny", map[string]string{"/g/x": "403", "/x": "web"}},
		{"unknown alone", inFrontend(" http-request deny if { sc_http_req_rate(0) gt 100 }"), "http-request deny", map[string]string{"/g/x": "403", "/x": "403"}},
		{"unknown and negated", inFrontend(" acl ok http_auth(users)\n http-request deny if { path_beg /g/ } !ok"), "http-request deny", map[string]string{"/g/x": "403", "/x": "web"}},
		{"unless unknown", inFrontend(" http-request deny unless { path_beg /x } or { var(txn.ok) -m bool }"), "http-request deny", map[string]string{"/g/x": "403", "/x": "web"}},
		{"auth for a path", inFrontend(" http-request auth realm r if { path_beg /g/ } !{ http_auth(users) }"), "http-request auth", map[string]string{"/g/x": "403", "/x": "web"}},
		{"scripts", inFrontend(" http-request lua.check if { path_beg /g/ }"), "http-request lua.check", map[string]string{"/g/x": "403", "/x": "web"}},
		{"unheard of", inFrontend(" http-request wonder if { path_beg /g/ }"), "http-request wonder", map[string]string{"/g/x": "403", "/x": "web"}},
		{"two expressions for a field", inFrontend(" http-request deny if { hdr(user-agent) -m sub bot }\n use_backend app if { hdr(user-agent) -m sub mobile } { hdr(x-app) 1 }"), "use_backend app", map[string]string{
			"/x | user-agent: a mobile bot | x-app: 1": "403", "/x | user-agent: a bot": "403", "/x": "web",
		}},
		{"filter", inFrontend(" filter spoe engine modsecurity config /m.conf"), "filter spoe", map[string]string{"/g/x": "403", "/x": "403"}},
		{"old forms", inFrontend(" reqideny ^GET\\ /g"), "reqideny", map[string]string{"/g/x": "403"}},
		{"unknown keyword", inFrontend(" wonder on"), "wonder on", map[string]string{"/g/x": "403"}},
		{"responses", inFrontend(" http-response deny if { res.hdr(x-secret) -m found }"), "http-response deny", map[string]string{"/g/x": "403"}},
		{"connections of clients", inFrontend(" tcp-request connection reject if { src 203.0.113.0/24 }\n tcp-request content reject if { src 198.51.100.1 }"), "", map[string]string{
			"/g/x": "403", "/x | client=198.51.100.1": "403", "/x | client=192.0.2.1": "web",
		}},
		{"connections but some", inFrontend(" tcp-request connection reject if !{ src 192.0.2.0/24 }"), "", map[string]string{"/g/x": "403", "/x | client=192.0.2.1": "web"}},
		{"accepted, others rejected", inFrontend(" tcp-request connection accept if { src 192.0.2.0/24 }\n tcp-request connection reject"), "", map[string]string{"/g/x": "403", "/x | client=192.0.2.1": "web"}},
		{"connections counted", inFrontend(" tcp-request connection reject if { src_conn_rate gt 10 }"), "tcp-request connection reject", map[string]string{"/x": "403"}},
		{"content rejected", inFrontend(" tcp-request content reject if { path_beg /g/ } { sc0_http_req_rate gt 10 }"), "tcp-request content reject", map[string]string{"/g/x": "403", "/x": "web"}},
		{"silent drop", inFrontend(" http-request silent-drop if { path_beg /g/ } { src_http_req_rate gt 10 }"), "http-request silent-drop", map[string]string{"/g/x": "403", "/x": "web"}},
		{"tarpit", inFrontend(" http-request tarpit if { path_beg /g/ } !{ hdr(x-key) s }"), "", map[string]string{"/g/x": "403", "/g/x | x-key: s": "app"}},
		{"answer by an unknown condition", inFrontend(" http-request return status 200 string login if !{ var(txn.user) -m found } { path_beg /g/ }"), "http-request return", map[string]string{"/g/x": "403", "/x": "web"}},
		{"backend by an unknown condition", inFrontend(" use_backend web if { path_beg /g/ } !{ var(txn.user) -m found }"), "use_backend web", map[string]string{"/g/x": "403", "/x": "web"}},
		{"backend without servers", inFrontend(" use_backend none if { hdr_beg(host) evil }") + "backend none\n mode http\n", "use_backend none", map[string]string{"/g/x": "403", "/x": "403"}},
		{"denied in the backend", inBackend(" http-request deny if !{ hdr(x-key) s }"), "", map[string]string{"/g/x": "403", "/g/x | x-key: s": "app", "/x": "web"}},
		{"a path of the backend", inBackend(" http-request deny if { path_beg /g/admin }"), "", map[string]string{"/g/x": "app", "/g/admin": "403", "/g/administrator": "403"}},
		{"always denied in the backend", inBackend(" http-request deny"), "", map[string]string{"/g/x": "403", "/x": "web"}},
		{"unknown in the backend", inBackend(" http-request deny if { var(txn.bad) -m bool }"), "http-request deny", map[string]string{"/g/x": "403", "/x": "web"}},
		{"auth in the backend", inBackend(" http-request auth unless { http_auth(u) }"), "http-request auth", map[string]string{"/g/x": "403", "/x": "web"}},
		{"tarpit in the backend", inBackend(" http-request tarpit unless { src 192.0.2.0/24 }"), "", map[string]string{"/g/x": "403", "/g/x | client=192.0.2.1": "app", "/x": "web"}},
		{"connections in the backend", inBackend(" tcp-request content reject if !{ src 192.0.2.0/24 }"), "", map[string]string{"/g/x": "403", "/g/x | client=192.0.2.1": "app", "/x": "web"}},
		{"redirect in the backend", inBackend(" http-request redirect location /login unless { hdr(x-key) s }"), "", map[string]string{"/g/x": "302", "/g/x | x-key: s": "app"}},
		{"filter in the backend", inBackend(" filter spoe engine e config c"), "filter spoe", map[string]string{"/g/x": "403", "/x": "web"}},
		{"a field that is removed before", inFrontend(" http-request del-header x-role\n use_backend app if { hdr(x-role) admin }"), "use_backend app", map[string]string{"/x | x-role: admin": "403"}},
		{"a field that is set before", inFrontend(" http-request set-header X-Role none unless { src 192.0.2.0/24 }\n http-request deny if { path_beg /g/ } !{ req.hdr(x-role) admin }"), "http-request deny", map[string]string{
			"/g/x": "403", "/g/x | x-role: admin": "403", "/x": "web",
		}},
		{"a field that is set behind", inFrontend(" http-request deny if { path_beg /g/ } !{ hdr(x-role) admin }\n http-request set-header x-role none"), "", map[string]string{
			"/g/x": "403", "/g/x | x-role: admin": "app", "/x": "web",
		}},
		{"a field that the frontend sets", strings.Replace(inBackend(" http-request deny unless { hdr(x-role) admin }"), "bind :80", "bind :80\n http-request add-header x-role none", 1), "http-request deny", map[string]string{
			"/g/x | x-role: admin": "403", "/x": "web",
		}},
		{"a cookie that is removed before", inFrontend(" http-request del-header cookie\n http-request deny if { path_beg /g/ } !{ req.cook(s) 1 }"), "http-request deny", map[string]string{"/g/x | cookie: s=1": "403", "/x": "web"}},
		{"a client that is set before", inFrontend(" http-request set-src hdr(x-client)\n http-request deny if { path_beg /g/ } !{ src 192.0.2.0/24 }"), "http-request deny", map[string]string{
			"/g/x | client=192.0.2.1": "403", "/x": "web",
		}},
		{"a method that is set before", inFrontend(" http-request set-method POST if { path_beg /g/ }\n http-request deny if { method POST } { path_beg /g/ }"), "http-request deny", map[string]string{"/g/x": "403", "/x": "web"}},
		{"a path that is replaced before", inFrontend(" http-request replace-path /old/(.*) /g/\\1\n http-request deny if { path_beg /g/ }"), "http-request replace-path", map[string]string{
			"/g/x": "403", "/old/x": "403", "/x": "web",
		}},
		{"a path that is set before", inFrontend(" http-request set-path /g/x if { path /go }\n http-request deny if { path_beg /g/ }"), "http-request set-path", map[string]string{"/go": "403", "/x": "web"}},
		{"a part of a path that is taken out", inFrontend(" http-request set-path %[path,regsub(/+v[0-9]+,,g)]\n http-request deny if { path_beg /g/ }"), "http-request set-path", map[string]string{
			"/v1/g/x": "403", "/g/x": "403", "/x": "web",
		}},
		{"a path that is replaced for a backend", inFrontend(" http-request replace-path /old/(.*) /new/\\1"), "*", map[string]string{"/old/x": "web", "/g/x": "app"}},
		{"a path that is replaced, and a backend that denies it", strings.Replace(inBackend(" http-request deny if { path_beg /g/a }"), "bind :80", "bind :80\n http-request set-uri /g/a if { path /go }", 1), "http-request set-uri", map[string]string{
			"/go": "403", "/g/x": "app", "/x": "web",
		}},
		{"a path that is replaced, and the last backend denies it", "frontend f\n mode http\n bind :80\n http-request replace-path /old/(.*) /g/\\1\n default_backend web\nbackend web\n mode http\n http-request deny if { path_beg /g/ }\n server s 127.0.0.1:2\n", "http-request replace-path", map[string]string{
			"/old/x": "403", "/g/x": "403", "/x": "web",
		}},
		{"names of hosts choose a backend", inFrontend(" use_backend web if { hdr_beg(host) static }"), "*", map[string]string{"/g/x": "app", "/x": "web"}},
		{"load chooses a backend", inFrontend(" use_backend web if { nbsrv(app) lt 1 }"), "*", map[string]string{"/g/x": "app", "/x": "web"}},
	})
}

// Each action that rules may have is translated, harmless, or closes: with an unknown condition on a path nothing of the path is open.
func TestActionsOfHAProxyClose(t *testing.T) {
	for _, line := range []string{
		"http-request deny", "http-request tarpit", "http-request reject", "http-request silent-drop", "http-request auth", "http-request lua.f", "http-request send-spoe-group e g", "http-request wonder",
		"http-request return status 200", "http-request redirect location /", "http-request use-service lua.s", "tcp-request content reject", "tcp-request content silent-drop", "tcp-request content lua.f",
		"tcp-request session reject", "tcp-request connection reject", "http-response deny", "http-response silent-drop", "http-response lua.f", "tcp-response content reject", "tcp-response content close",
		"filter spoe engine e", "filter lua.f", "filter wonder", "block", "reqdeny", "reqideny", "reqtarpit", "reqitarpit", "rspdeny", "rspideny", "wonder",
	} {
		for _, text := range []string{inFrontend(" " + line + " if { path_beg /g/ } { var(txn.x) -m bool }"), inBackend(" " + line + " if { var(txn.x) -m bool }"), inBackend(" " + line + " unless { var(txn.x) -m bool }")} {
			c, r := converted(t, HAProxy, text)
			if got := visit(t, c, visitor{request: "/g/x"}); got != "403" && got != "501" {
				t.Errorf("%s: %s\n%s\n%s", line, got, r.Config, r.Text(false))
			}
			if l := resultOf(t, r, line); !l.Closed {
				t.Errorf("%s: %+v", line, l)
			}
		}
	}
}

// A frontend of connections is closed as well.
func TestConnectionsOfHAProxyClose(t *testing.T) {
	const text = "frontend f\n mode tcp\n bind :5432\n RULES\n default_backend b\nbackend b\n mode tcp\n OTHERS\n server s 192.0.2.1:5432\nbackend none\n mode tcp\nbackend other\n mode tcp\n server s 192.0.2.2:5432\n"
	for _, c := range []struct {
		rules, others  string
		first, another bool // refused: 203.0.113.1, 192.0.2.1
	}{
		{"tcp-request connection reject if { src_conn_rate gt 3 }", "", true, true},
		{"tcp-request connection reject if { src 203.0.113.1 }\n tcp-request connection reject if { src 192.0.2.1 }", "", true, true},
		{"tcp-request connection reject if { src 203.0.113.1 }", "", true, false},
		{"tcp-request content reject if !{ src 192.0.2.0/24 }", "", true, false},
		{"tcp-request connection accept if { src 192.0.2.0/24 }\n tcp-request connection reject", "", true, false},
		{"tcp-request content lua.f", "", true, true},
		{"filter spoe engine e", "", true, true},
		{"", "tcp-request content reject if { src_conn_cur gt 3 }", true, true},
		{"", "tcp-request content reject unless { src 192.0.2.1 }", true, false},
		{"tcp-request inspect-delay 5s", "", false, false},
		{"use_backend none if { src 203.0.113.1 }", "", true, false},
		{"use_backend none if { src_conn_cur gt 3 }", "", true, true},
		{"use_backend other if { src_conn_cur gt 3 }", "", true, true},
		{"use_backend other if { req_ssl_sni a.example } !{ src 192.0.2.0/24 }", "", true, true},
		{"use_backend other if { req_ssl_sni a.example }", "", false, false},
		{"use_backend other if { payload(0,3) -m str abc }", "", false, false},
	} {
		cfg, r := converted(t, HAProxy, strings.NewReplacer("RULES", c.rules, "OTHERS", c.others).Replace(text))
		s := &cfg.Listeners[0].Sources
		if first, another := refused(s, netip.MustParseAddr("203.0.113.1")), refused(s, netip.MustParseAddr("192.0.2.1")); first != c.first || another != c.another {
			t.Errorf("%s %s: refused %v %v\n%s\n%s", c.rules, c.others, first, another, r.Config, r.Text(false))
		}
	}
}

// The report names nothing as translated that is not in the output.
func TestReportOfHAProxyIsOfTheOutput(t *testing.T) {
	_, r := converted(t, HAProxy, inFrontend(" acl lone path_beg /lone\n acl part path_beg /g/\n acl odd var(txn.x) -m bool\n http-request deny if FALSE\n http-request deny if part odd\n"+
		" http-request set-header x 1 if lone odd\n use_backend web if { path_beg /g/ }"))
	for directive, want := range map[string]Result{
		"acl lone": Left, "acl part": Translated, "acl odd": Left, "http-request deny if FALSE": Unneeded, "http-request deny if part": Left, "http-request set-header": Left,
		"use_backend web": Unneeded, "use_backend app": Unneeded,
	} {
		if l := resultOf(t, r, directive); l.Result != want {
			t.Errorf("%s: %s, want %s: %+v", directive, l.Result, want, l)
		}
	}
}
