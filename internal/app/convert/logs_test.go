package convert

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/l7/accesslog"
)

// Formats of nginx become templates of the gateway, and the combined one that of its name.
func TestFormatsOfNginx(t *testing.T) {
	for format, want := range map[string]accessLog{
		nginxCombined:                              {format: "combined"},
		`$status ${request_time}s $$ $`:            {format: "text", template: "${status} ${seconds}s $$ $"},
		`$request|$http_x_tenant_id|$http_referer`: {format: "text", template: "${method} ${path} ${protocol}|${header.x-tenant-id}|${referer}"},
		`a $connection b $http_cookie $connection`: {format: "text", template: "a - b - -"},
		"a\n$status":                               {},
	} {
		var a accessLog
		differs := a.useFormat(nginxLogParts(format))
		if a.format != want.format || a.template != want.template {
			t.Errorf("%q: %+v", format, a)
		}
		if missing := strings.Contains(format, "connection"); missing && differs != "the gateway has no $connection, $http_cookie: - stands in its place" {
			t.Errorf("%q: %s", format, differs)
		} else if !missing && want.format != "" && differs != "" {
			t.Errorf("%q: %s", format, differs)
		}
	}
}

func TestFormatsOfHAProxy(t *testing.T) {
	for format, want := range map[string]string{
		`%ci:%cp [%tr] %ST %{+Q}r`:                   `${client_address}:${client_port} [${time_clf}] ${status} "${method} ${path} ${protocol}"`,
		`%{+Q}o %HM %HP %{-Q}ST`:                     `"${method}" "${path}" ${status}`,
		`100%% %[src] %[req.hdr(X-Tenant)] $%{x}`:    `100% ${client_address} ${header.x-tenant} $%`,
		`%tsc %[capture.req.hdr(cookie)] %ID ${x}`:   `- - ${request_id} $${x}`,
		`%[req.hdr(user-agent),lower] %[var(txn.a)]`: `${header.user-agent} -`,
		`%[unclosed`: `-`,
	} {
		if got, _, _ := templateOf(haproxyLogParts(format)); got != want {
			t.Errorf("%q: %s, want %s", format, got, want)
		}
	}
}

// What names become are fields that there are.
func TestFieldsOfFormatsExist(t *testing.T) {
	var all []string
	for _, as := range nginxLogFields {
		all = append(all, as)
	}
	for _, as := range haproxyLogFields {
		all = append(all, as)
	}
	for _, name := range all {
		if err := accesslog.CheckField(name); err != nil {
			t.Error(err)
		}
	}
	for name := range nginxLogDiffers {
		if nginxLogAs(name) == "" {
			t.Errorf("nginx: %s differs, and stands for nothing", name)
		}
	}
	for name := range haproxyLogDiffers {
		if haproxyLogAs(name) == "" {
			t.Errorf("HAProxy: %s differs, and stands for nothing", name)
		}
	}
}

func TestServersOfSyslog(t *testing.T) {
	for target, want := range map[string]string{
		"192.0.2.1:514": "udp:192.0.2.1:514", "192.0.2.1": "udp:192.0.2.1:514", "[2001:db8::1]:601": "udp:[2001:db8::1]:601", "tcp@192.0.2.1:6514": "tcp:192.0.2.1:6514",
		"/dev/log": "unix:/dev/log", "unix@/run/log": "unix:/run/log", "logs.example:514": "", "ring@buf": "", "192.0.2.1:0": "",
	} {
		if got := syslogAddress(target); got != want {
			t.Errorf("%s: %q, want %q", target, got, want)
		}
		if want == "" {
			continue
		}
		text := "access_log: {syslog: {address: \"" + want + "\"}}\nlisteners: [{name: l, address: \"127.0.0.1:1\", protocol: HTTP}]\nroutes: [{name: r, rules: [{filters: [{type: FixedResponse}]}]}]\n"
		if _, err := config.Parse("gw.yaml", []byte(text)); err != nil {
			t.Errorf("%s: %v", want, err)
		}
	}
	if got := nginxSyslog("syslog:server=unix:/dev/log,nohostname"); got != "unix:/dev/log" {
		t.Error(got)
	}
}

func TestSizesOfCaddy(t *testing.T) {
	for text, want := range map[string]int64{"100": 100 << 20, "20MiB": 20 << 20, "1gb": 1e9, "5k": 5000, "x": -1, "": -1, "9999999999GiB": -1, "1 TiB": -1} {
		got, ok := caddySize(text)
		if !ok {
			got = -1
		}
		if got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

// A format that writes JSON becomes the fields of lines of JSON, and a log that is off or discarded none.
func TestLogsOfOtherForms(t *testing.T) {
	const server = " server { listen 127.0.0.1:8080; location / { return 204; } } }"
	for _, c := range []struct{ name, text, has, lacks string }{
		{"nginx.conf", `events {} http { log_format m escape=json '{"h":"$host","s":$status,"p":"$pid"}'; access_log /l m;` + server, "access_log: {file: /l, fields: [host, status]}", ""},
		{"nginx.conf", `events {} http { access_log /l;` + server, "access_log: {file: /l, format: combined}", ""},
		{"nginx.conf", `events {} http { log_format l "$status\n"; access_log /l l if=$x;` + server, "access_log: {file: /l}", ""},
		{"nginx.conf", `events {} http { access_log syslog:server=logs.example;` + server, "", "access_log"},
		{"nginx.conf", `events {} http { access_log off;` + server, "", "access_log"},
		{"Caddyfile", "http://a:80 {\n log {\n output discard\n }\n respond 204\n}\n", "", "access_log"},
		{"Caddyfile", "http://a:80 {\n log {\n output file /l {\n roll_disabled\n }\n }\n respond 204\n}\n", "access_log: {file: /l}", ""},
		{"Caddyfile", "http://a:80 {\n log\n respond 204\n}\n", "access_log: {file: \"-\"}", ""},
	} {
		r, err := Text(c.name, c.text, "")
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		if !strings.Contains(r.Config, c.has) || c.lacks != "" && strings.Contains(r.Config, c.lacks+":") {
			t.Errorf("%s:\n%s", c.text, r.Config)
		}
	}
}
