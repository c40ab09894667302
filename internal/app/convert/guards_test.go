package convert

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/l7/route"
	"github.com/millrace/millrace/semantics"
)

// visitor is a request that a test sends through a configuration: "METHOD //host:port/path?query", with header fields.
type visitor struct {
	request string
	fields  [][2]string
	client  string
}

// visit returns what a request gets: the status of an answer, "401" where credentials are required, 403 of a list of clients, "limited"
// and "files", or the pool.
func visit(t *testing.T, c *config.Config, v visitor) string {
	t.Helper()
	method, rest, found := strings.Cut(v.request, " ")
	if !found {
		method, rest = "GET", v.request
	}
	host, port, client := "a.example", 80, netip.MustParseAddr("203.0.113.1")
	if after, ok := strings.CutPrefix(rest, "//"); ok {
		host, rest, _ = strings.Cut(after, "/")
		rest = "/" + rest
		if name, p, ok := strings.Cut(host, ":"); ok {
			host, port = name, atoi(p)
		}
	}
	if v.client != "" {
		client = netip.MustParseAddr(v.client)
	}
	path, query, _ := strings.Cut(rest, "?")
	r := &route.Request{Host: host, Path: path, Query: query, Method: method, Client: client}
	for _, f := range v.fields {
		r.Fields = append(r.Fields, semantics.Field{Name: f[0], Value: f[1]})
	}
	for i := range c.Listeners {
		l := &c.Listeners[i]
		if int(l.Addresses[0].Port()) != port {
			continue
		}
		if refused(&l.Sources, client) {
			return "403"
		}
		rules, refs := c.RulesOf(l.Name)
		table, err := route.New(rules)
		if err != nil {
			t.Fatal(err)
		}
		n := table.Find(r)
		if n < 0 {
			return "404"
		}
		return answer(refs[n].Route, refs[n].Rule, client)
	}
	return "no listener"
}

// answer returns what a rule gives a client.
func answer(r *config.Route, u *config.Rule, client netip.Addr) string {
	if refused(&r.Sources, client) {
		return "403"
	}
	limited := ""
	if len(r.RateLimits) > 0 || r.Concurrency != nil {
		limited = "limited "
	}
	if r.Auth != nil {
		return limited + "401"
	}
	for i := range u.Filters {
		if u.Filters[i].Answers() {
			return limited + fmt.Sprint(u.Filters[i].Status)
		}
	}
	switch {
	case len(u.BackendRefs) > 0:
		return limited + u.BackendRefs[0].Name
	case u.Static != nil:
		return limited + "files"
	}
	return limited + "nothing"
}

// refused reports whether a list of clients keeps one out.
func refused(s *config.Sources, client netip.Addr) bool {
	best, deny := -1, s.Default == "deny"
	for kind, list := range map[bool][]config.SourceList{true: s.Deny, false: s.Allow} {
		for _, e := range list {
			if e.Prefix.IsValid() && e.Prefix.Contains(client) && e.Prefix.Bits() > best {
				best, deny = e.Prefix.Bits(), kind
			}
		}
	}
	return deny
}

// guardCase is a source, and what requests get from its conversion.
type guardCase struct {
	name, text string
	closed     string // the directive whose line is closed; "" where nothing is left out
	want       map[string]string
}

// fieldsOf reads a request of a case: "request | name: value | client=address".
func fieldsOf(s string) visitor {
	parts := strings.Split(s, " | ")
	v := visitor{request: parts[0]}
	for _, p := range parts[1:] {
		if addr, ok := strings.CutPrefix(p, "client="); ok {
			v.client = addr
			continue
		}
		name, value, _ := strings.Cut(p, ": ")
		v.fields = append(v.fields, [2]string{name, value})
	}
	return v
}

func checkGuards(t *testing.T, language Language, list []guardCase) {
	t.Helper()
	for _, g := range list {
		t.Run(g.name, func(t *testing.T) {
			c, r := converted(t, language, g.text)
			for request, want := range g.want {
				if got := visit(t, c, fieldsOf(request)); got != want {
					t.Errorf("%s: %s, want %s", request, got, want)
				}
			}
			for _, l := range r.Lines {
				if l.Closed && (g.closed == "" || l.Reason == "" || l.Remedy == "" || l.Result != Left) {
					t.Errorf("%+v", l)
				}
				if l.Result == Left && g.closed == "" || l.Closed && g.closed == "*" {
					t.Errorf("left out: %+v", l)
				}
			}
			if g.closed != "" && g.closed != "*" {
				if l := resultOf(t, r, g.closed); !l.Closed {
					t.Errorf("not reported as closed: %+v", l)
				}
			}
			if t.Failed() {
				t.Logf("%s\n%s", r.Config, r.Text(true))
			}
		})
	}
}

// inLocation is a server whose folder /g has a guard, beside an open one.
func inLocation(before, guard string) string {
	return before + "\nserver { listen 80; server_name a.example; location /g/ { " + guard + " proxy_pass http://127.0.0.1:1; } location / { proxy_pass http://127.0.0.1:2; } }"
}

// nested is a server with locations before an expression for scripts, and an open folder.
func nested(locations string) string {
	return "server { listen 80; location ~ \\.php$ { proxy_pass http://127.0.0.1:3; } " + locations + " location / { proxy_pass http://127.0.0.1:2; } }"
}

const guarded, open = "127.0.0.1-1", "127.0.0.1-2"

func TestGuardsOfNginx(t *testing.T) {
	checkGuards(t, Nginx, []guardCase{
		{"cookie missing", inLocation("", `if ($cookie_session = "") { return 403; }`), "", map[string]string{
			"/g/x": "403", "/g/x | cookie: session=": "403", "/g/x | cookie: a=b; session=s": guarded, "/g/x | cookie: xsession=s": "403", "/x": open,
		}},
		{"cookie value", inLocation("", `if ($cookie_key != "s3cret") { return 404; }`), "", map[string]string{
			"/g/x": "404", "/g/x | cookie: key=other": "404", "/g/x | cookie: key=s3cret; b=c": guarded, "/x": open,
		}},
		{"cookie expression", inLocation("", `if ($http_cookie ~* "banned=1") { return 403; }`), "", map[string]string{
			"/g/x": guarded, "/g/x | cookie: a=b; BANNED=1": "403",
		}},
		{"field missing", inLocation("", `if ($http_x_token != "t") { return 403; }`), "", map[string]string{
			"/g/x": "403", "/g/x | x-token: u": "403", "/g/x | x-token: t": guarded, "/x": open,
		}},
		{"two fields", inLocation("", `if ($http_x_a != "1") { return 401; } if ($http_x_b = "2") { return 410; } if ($http_x_c !~ "^(x|y)$") { return 403; }`), "", map[string]string{
			"/g/x": "401", "/g/x | x-b: 2": "401", "/g/x | x-a: 1": "403", "/g/x | x-a: 1 | x-b: 2 | x-c: x": "410", "/g/x | x-a: 1 | x-c: y": guarded,
			"/g/x | x-b: 2 | x-c: y": "401",
		}},
		{"a refusal before two fields", inLocation("", `if ($http_x_b = 2) { return 410; } if ($http_x_a != 1) { return 401; } if ($http_x_c != 3) { return 403; }`), "", map[string]string{
			"/g/x | x-a: 1 | x-b: 2 | x-c: 3": "410", "/g/x | x-a: 1 | x-c: 3": guarded, "/g/x | x-b: 2": "410", "/g/x | x-a: 1": "403",
		}},
		{"methods", inLocation("", `if ($request_method !~ ^(GET|HEAD)$) { return 405; }`), "", map[string]string{"/g/x": guarded, "POST /g/x": "405", "POST /x": open}},
		{"parameter", inLocation("", `if ($arg_key != "k") { return 403; }`), "", map[string]string{"/g/x?key=k": guarded, "/g/x": "403"}},
		{"geo", inLocation("geo $bad { default 0; 203.0.113.0/24 1; 203.0.113.9 0; }", `if ($bad) { return 403; }`), "", map[string]string{
			"/g/x": "403", "/g/x | client=203.0.113.9": guarded, "/g/x | client=192.0.2.1": guarded, "/x": open,
		}},
		{"geo of allowed", inLocation("geo $ok { default 0; 192.0.2.0/24 1; }", `if ($ok = 0) { return 403; }`), "", map[string]string{"/g/x": "403", "/g/x | client=192.0.2.1": guarded}},
		{"map of agents", inLocation(`map $http_user_agent $bot { default 0; ~*crawl 1; "~^Bad" 1; exact 1; }`, `if ($bot) { return 403; }`), "", map[string]string{
			"/g/x": guarded, "/g/x | user-agent: a Crawler": "403", "/g/x | user-agent: Bad one": "403", "/g/x | user-agent: EXACT": "403", "/g/x | user-agent: a": guarded,
		}},
		{"map of keys", inLocation(`map $http_x_key $known { default 0; abc 1; def 1; }`, `if ($known = 0) { return 403; }`), "", map[string]string{
			"/g/x": "403", "/g/x | x-key: abc": guarded, "/g/x | x-key: de": "403",
		}},
		{"set and if", inLocation("", `set $block 0; if ($http_x_a = 1) { set $block 1; } if ($arg_b = 2) { set $block 1; } if ($block = 1) { return 403; }`), "", map[string]string{
			"/g/x": guarded, "/g/x | x-a: 1": "403", "/g/x?b=2": "403",
		}},
		{"referers", inLocation("", `valid_referers none server_names *.friend.example; if ($invalid_referer) { return 403; }`), "", map[string]string{
			"/g/x": guarded, "/g/x | referer: https://a.example/x": guarded, "/g/x | referer: http://w.friend.example:81": guarded,
			"/g/x | referer: https://evil.example/a.example": "403", "/g/x | referer: https://a.example.evil/": "403", "/g/x | referer: https://a.example@evil/": "403",
		}},
		{"referers required", inLocation("", `valid_referers a.example/page; if ($invalid_referer) { return 403; }`), "", map[string]string{
			"/g/x": "403", "/g/x | referer: https://a.example/page/1": guarded, "/g/x | referer: https://a.example/other": "403",
		}},
		{"server name", "server { listen 80; server_name a.example b.example; if ($host != a.example) { return 444; } location / { proxy_pass http://127.0.0.1:2; } }", "", map[string]string{
			"//a.example/x": open, "//b.example/x": "403", "//c.example/": "403",
		}},
		{"address of the client", inLocation("", `if ($remote_addr != 192.0.2.1) { return 403; }`), "", map[string]string{"/g/x": "403", "/g/x | client=192.0.2.1": guarded}},
		{"last segment", "server { listen 80; location /admin { deny all; proxy_pass http://127.0.0.1:1; } location /adminer/ { proxy_pass http://127.0.0.1:3; } location / { proxy_pass http://127.0.0.1:2; } }", "", map[string]string{
			"/admin": "403", "/admin/x": "403", "/admin.php": "403", "/adminx": "403", "/adminer/x": "127.0.0.1-3", "/admi": open,
		}},
		{"encoded", "server { listen 80; location '/my files/' { deny all; proxy_pass http://127.0.0.1:1; } location / { proxy_pass http://127.0.0.1:2; } }", "", map[string]string{
			"/my%20files/x": "403", "/x": open,
		}},
		{"without the slash", "server { listen 80; location /g/ { root /srv; } location / { if ($http_x != 1) { return 403; } root /other; } }", "", map[string]string{
			"/g": "403", "/g | x: 1": "files", "/g/x": "files",
		}},
		{"server returns", "server { listen 80; if ($http_x_deny = yes) { return 403; } return 200 content; }", "", map[string]string{"/": "200", "/ | x-deny: yes": "403"}},
		{"unknown before return", "server { listen 80; if ($unknown) { return 403; } return 200 content; }", "if ($unknown)", map[string]string{"/": "403"}},
		{"redirects stay", "server { listen 80; if ($http_a ~ (?!x)) { return 403; } return 301 https://$host$request_uri; }", "*", map[string]string{"/": "301"}},
		{"files decide", inLocation("", `if (-f /srv/closed) { return 403; }`), "if (-f", map[string]string{"/g/x": "403", "/x": open}},
		{"backend by condition", inLocation("", `if ($http_x_beta = 1) { proxy_pass http://127.0.0.1:3; }`), "", map[string]string{"/g/x": guarded, "/g/x | x-beta: 1": "127.0.0.1-3"}},
		{"login by an unknown condition", inLocation("", `if ($secret) { proxy_pass http://127.0.0.1:3; }`), "if ($secret)", map[string]string{"/g/x": "403"}},
		{"methods in part", inLocation("", `limit_except GET { allow 192.0.2.1; deny all; }`), "allow 192.0.2.1", map[string]string{"/g/x": guarded, "POST /g/x": "403"}},
		{"look-ahead of a refusal", `server { listen 80; location ~ ^/(?:\.(?!well-known)|console) { deny all; } location / { proxy_pass http://127.0.0.1:2; } }`, "location ~", map[string]string{
			"/.git": "403", "/console.php": "403", "/x": open,
		}},
		{"look-ahead of content", `server { listen 80; location ~ ^/(?!pub)secret { proxy_pass http://127.0.0.1:1; } location / { proxy_pass http://127.0.0.1:2; } }`, "location ~", map[string]string{
			"/secret/x": "403", "/x": open,
		}},
		{"two expressions", `server { listen 80; location ~ /\.ht { deny all; } location ~ \.php$ { if ($http_x != s) { return 403; } proxy_pass http://127.0.0.1:1; } location / { proxy_pass http://127.0.0.1:2; } }`, "", map[string]string{
			"/.ht.php | x: s": "403", "/a.php | x: s": guarded, "/a.php": "403",
		}},
		{"an expression within a folder, and one for all", nested(`location /g/ { deny all; location ~ \.php$ { proxy_pass http://127.0.0.1:1; } }`), "", map[string]string{
			"/g/a.php": "403", "/g/a": "403", "/a.php": "127.0.0.1-3", "/x": open,
		}},
		{"an expression within a folder that stops", nested(`location ^~ /g/ { proxy_pass http://127.0.0.1:1; location ~ \.(php|inc)$ { deny all; } }`), "", map[string]string{
			"/g/a.php": "403", "/g/a.inc": "403", "/g/a": guarded, "/a.php": "127.0.0.1-3", "/a.inc": open,
		}},
		{"an expression within an expression", nested(`location ~ ^/g/ { proxy_pass http://127.0.0.1:1; location ~ \.cgi$ { deny all; } }`), "", map[string]string{
			"/g/a.cgi": "403", "/g/a": guarded, "/a.cgi": open,
		}},
		{"within an expression of another form", nested(`location ~ /g/ { proxy_pass http://127.0.0.1:1; location ~ \.cgi$ { return 403; } }`), `location ~ \.cgi$`, map[string]string{
			"/x/g/a.cgi": "403", "/g/a": guarded, "/x": open,
		}},
		{
			"a longer folder beside", nested(`location /g/ { proxy_pass http://127.0.0.1:1; location ~ \.cgi$ { proxy_pass http://127.0.0.1:4; } } location /g/h/ { deny all; proxy_pass http://127.0.0.1:1; }`),
			`location ~ \.cgi$`,
			map[string]string{"/g/h/a.cgi": "403", "/g/h/a": "403", "/g/a": guarded},
		},
		{
			"a longer folder that no path of the expression is of", nested(`location /g/ { proxy_pass http://127.0.0.1:1; location ~ ^/g/(css|js)/ { proxy_pass http://127.0.0.1:4; } } location /g/h/ { deny all; proxy_pass http://127.0.0.1:1; }`),
			"",
			map[string]string{"/g/h/a": "403", "/g/a": guarded, "/g/css/a": "127.0.0.1-4"},
		},
		{
			"a longer folder without a guard", nested(`location /g/ { proxy_pass http://127.0.0.1:1; location ~ \.cgi$ { proxy_pass http://127.0.0.1:4; } } location /g/h/ { proxy_pass http://127.0.0.1:1; }`),
			"",
			map[string]string{"/g/h/a": guarded, "/g/a.cgi": "127.0.0.1-4"},
		},
		{"rewritten to a guarded folder", inLocation("", `deny all; } rewrite ^/old/(.*)$ /g/$1 last; rewrite ^/legacy /g/x; rewrite ^/new/(.*) /o/$1 last; location /p/ { rewrite ^ /g/y last;`), "rewrite ^/old/(.*)$", map[string]string{
			"/old/x": "403", "/legacy": "403", "/p/x": "403", "/new/x": open, "/x": open,
		}},
		{"a longer folder within, and an expression beside it", nested(`location /g/ { proxy_pass http://127.0.0.1:1; location /g/h/ { deny all; proxy_pass http://127.0.0.1:1; } location ~ \.cgi$ { proxy_pass http://127.0.0.1:4; } }`), "", map[string]string{
			"/g/h/a": "403", "/g/a.cgi": "127.0.0.1-4",
		}},
		{"rewritten to a path that no guarded expression has", nested(`location ~ \.cgi$ { deny all; } rewrite ^/old$ /new last;`), "*", map[string]string{"/old": open, "/a.cgi": "403"}},
		{"two ways of credentials", inLocation("", `auth_basic x; auth_basic_user_file /u; auth_request /no;`), "auth_request", map[string]string{"/g/x": "403"}},
		{"requests at a time", inLocation("limit_conn_zone $binary_remote_addr zone=a:1m;", `limit_conn a 3;`), "", map[string]string{"/g/x": "limited " + guarded, "/x": open}},
		{"rate of an unknown key", inLocation("limit_req_zone $cookie_x$unknown zone=a:1m rate=5r/s;", `limit_req zone=a;`), "", map[string]string{"/g/x": "limited " + guarded, "/x": open}},
	})
}

// nginxDirectives are the directives of nginx, of its modules and of common ones of others that may stand in a location, a server or
// around them. A directive that is missing here is unknown to the converter, and closes its place.
const nginxDirectives = `
absolute_redirect add_after_body add_before_body add_header add_trailer addition_types aio aio_write alias allow ancient_browser ancient_browser_value auth_basic
auth_basic_user_file auth_delay auth_request auth_request_set autoindex autoindex_exact_size autoindex_format autoindex_localtime break charset charset_map charset_types
chunked_transfer_encoding client_body_buffer_size client_body_in_file_only client_body_in_single_buffer client_body_temp_path client_body_timeout client_header_buffer_size
client_header_timeout client_max_body_size connection_pool_size create_full_put_path dav_access dav_methods default_type deny directio directio_alignment disable_symlinks
empty_gif error_log error_page etag expires fastcgi_bind fastcgi_buffer_size fastcgi_buffering fastcgi_buffers fastcgi_busy_buffers_size fastcgi_cache
fastcgi_cache_background_update fastcgi_cache_bypass fastcgi_cache_key fastcgi_cache_lock fastcgi_cache_lock_age fastcgi_cache_lock_timeout fastcgi_cache_max_range_offset
fastcgi_cache_methods fastcgi_cache_min_uses fastcgi_cache_path fastcgi_cache_revalidate fastcgi_cache_use_stale fastcgi_cache_valid fastcgi_catch_stderr
fastcgi_connect_timeout fastcgi_force_ranges fastcgi_hide_header fastcgi_ignore_client_abort fastcgi_ignore_headers fastcgi_index fastcgi_intercept_errors fastcgi_keep_conn
fastcgi_limit_rate fastcgi_max_temp_file_size fastcgi_next_upstream fastcgi_next_upstream_timeout fastcgi_next_upstream_tries fastcgi_no_cache fastcgi_param fastcgi_pass
fastcgi_pass_header fastcgi_pass_request_body fastcgi_pass_request_headers fastcgi_read_timeout fastcgi_request_buffering fastcgi_send_lowat fastcgi_send_timeout
fastcgi_socket_keepalive fastcgi_split_path_info fastcgi_store fastcgi_store_access fastcgi_temp_file_write_size fastcgi_temp_path flv geo geoip_city geoip_country geoip_org
geoip_proxy geoip_proxy_recursive grpc_bind grpc_buffer_size grpc_connect_timeout grpc_hide_header grpc_ignore_headers grpc_intercept_errors grpc_next_upstream
grpc_next_upstream_timeout grpc_next_upstream_tries grpc_pass grpc_pass_header grpc_read_timeout grpc_send_timeout grpc_set_header grpc_socket_keepalive grpc_ssl_certificate
grpc_ssl_certificate_key grpc_ssl_ciphers grpc_ssl_conf_command grpc_ssl_crl grpc_ssl_name grpc_ssl_password_file grpc_ssl_protocols grpc_ssl_server_name
grpc_ssl_session_reuse grpc_ssl_trusted_certificate grpc_ssl_verify grpc_ssl_verify_depth gunzip gunzip_buffers gzip gzip_buffers gzip_comp_level gzip_disable
gzip_http_version gzip_min_length gzip_proxied gzip_static gzip_types gzip_vary http2 http2_body_preread_size http2_chunk_size http2_idle_timeout http2_max_concurrent_pushes
http2_max_concurrent_streams http2_max_field_size http2_max_header_size http2_max_requests http2_push http2_push_preload http2_recv_buffer_size http2_recv_timeout http3 http3_hq
http3_max_concurrent_streams http3_stream_buffer_size if if_modified_since ignore_invalid_headers image_filter image_filter_buffer image_filter_interlace
image_filter_jpeg_quality image_filter_sharpen image_filter_transparency image_filter_webp_quality index internal keepalive_disable keepalive_requests keepalive_time
keepalive_timeout large_client_header_buffers limit_conn limit_conn_dry_run limit_conn_log_level limit_conn_status limit_conn_zone limit_except limit_rate limit_rate_after
limit_req limit_req_dry_run limit_req_log_level limit_req_status limit_req_zone lingering_close lingering_time lingering_timeout listen location log_format log_not_found
log_subrequest map map_hash_bucket_size map_hash_max_size max_headers max_ranges memcached_bind memcached_buffer_size memcached_connect_timeout memcached_gzip_flag
memcached_next_upstream memcached_next_upstream_timeout memcached_next_upstream_tries memcached_pass memcached_read_timeout memcached_send_timeout memcached_socket_keepalive
merge_slashes min_delete_depth mirror mirror_request_body modern_browser modern_browser_value mp4 mp4_buffer_size mp4_max_buffer_size mp4_start_key_frame msie_padding
msie_refresh open_file_cache open_file_cache_errors open_file_cache_events open_file_cache_min_uses open_file_cache_valid open_log_file_cache output_buffers override_charset
perl perl_modules perl_require perl_set port_in_redirect postpone_output proxy_bind proxy_buffer_size proxy_buffering proxy_buffers proxy_busy_buffers_size proxy_cache
proxy_cache_background_update proxy_cache_bypass proxy_cache_convert_head proxy_cache_key proxy_cache_lock proxy_cache_lock_age proxy_cache_lock_timeout
proxy_cache_max_range_offset proxy_cache_methods proxy_cache_min_uses proxy_cache_path proxy_cache_revalidate proxy_cache_use_stale proxy_cache_valid proxy_connect_timeout
proxy_cookie_domain proxy_cookie_flags proxy_cookie_path proxy_force_ranges proxy_headers_hash_bucket_size proxy_headers_hash_max_size proxy_hide_header proxy_http_version
proxy_ignore_client_abort proxy_ignore_headers proxy_intercept_errors proxy_limit_rate proxy_max_temp_file_size proxy_method proxy_next_upstream proxy_next_upstream_timeout
proxy_next_upstream_tries proxy_no_cache proxy_pass proxy_pass_header proxy_pass_request_body proxy_pass_request_headers proxy_read_timeout proxy_redirect
proxy_request_buffering proxy_send_lowat proxy_send_timeout proxy_set_body proxy_set_header proxy_socket_keepalive proxy_ssl_certificate proxy_ssl_certificate_key
proxy_ssl_ciphers proxy_ssl_conf_command proxy_ssl_crl proxy_ssl_name proxy_ssl_password_file proxy_ssl_protocols proxy_ssl_server_name proxy_ssl_session_reuse
proxy_ssl_trusted_certificate proxy_ssl_verify proxy_ssl_verify_depth proxy_store proxy_store_access proxy_temp_file_write_size proxy_temp_path quic_bpf quic_gso
quic_host_key quic_retry random_index read_ahead real_ip_header real_ip_recursive recursive_error_pages referer_hash_bucket_size referer_hash_max_size request_pool_size
reset_timedout_connection resolver resolver_timeout return rewrite rewrite_log root satisfy send_lowat send_timeout sendfile sendfile_max_chunk server_name
server_name_in_redirect server_names_hash_bucket_size server_names_hash_max_size server_tokens set set_real_ip_from slice source_charset split_clients ssi ssi_last_modified
ssi_min_file_chunk ssi_silent_errors ssi_types ssi_value_length ssl ssl_buffer_size ssl_certificate ssl_certificate_key ssl_ciphers ssl_client_certificate ssl_conf_command
ssl_crl ssl_dhparam ssl_early_data ssl_ecdh_curve ssl_ocsp_cache ssl_ocsp_responder ssl_password_file ssl_prefer_server_ciphers ssl_protocols ssl_reject_handshake
ssl_session_cache ssl_session_ticket_key ssl_session_tickets ssl_session_timeout ssl_stapling ssl_stapling_file ssl_stapling_responder ssl_stapling_verify
ssl_trusted_certificate ssl_verify_client ssl_verify_depth stub_status sub_filter sub_filter_last_modified sub_filter_once sub_filter_types subrequest_output_buffer_size
tcp_nodelay tcp_nopush try_files types types_hash_bucket_size types_hash_max_size underscores_in_headers uninitialized_variable_warn upstream userid userid_domain userid_expires
userid_flags userid_mark userid_name userid_p3p userid_path userid_service uwsgi_pass scgi_pass valid_referers variables_hash_bucket_size variables_hash_max_size xml_entities
xslt_last_modified xslt_param xslt_string_param xslt_stylesheet xslt_types
more_set_headers more_clear_headers brotli brotli_static zstd js_content js_set js_import content_by_lua_block header_filter_by_lua_block set_by_lua_block`

// Directives of nginx are known, so that none of them closes its place without need. One without a class of its own does.
func TestDirectivesOfNginxAreKnown(t *testing.T) {
	for _, name := range strings.Fields(nginxDirectives) {
		if !opens(name) && name != "types" {
			t.Errorf("%s would close its place", name)
		}
	}
	for _, name := range []string{"proxy_passs", "proxy_set_headr", "auth_unheard_of", "wallarm_mode", "deny_by_weather"} {
		if opens(name) {
			t.Errorf("%s is unknown, and would leave its place open", name)
		}
	}
}

// Each directive that decides about requests closes its place where it has no translation: in a location, in the server, and around
// it. `off` in the location takes it back.
func TestGuardDirectivesOfNginxClose(t *testing.T) {
	names := []string{"auth_unheard_of", "proxy_set_headr", "wallarm_mode"}
	for name := range nginxGuards {
		if name != "ssl_verify_client" {
			names = append(names, name)
		}
	}
	for _, name := range names {
		line := name + " on;"
		if strings.HasSuffix(name, "_block") {
			line = name + " { if x then { y } end }"
		}
		for where, text := range map[string]string{
			"location": "server { listen 80; location /g/ { " + line + " proxy_pass http://127.0.0.1:1; } location / { proxy_pass http://127.0.0.1:2; } }",
			"server":   "server { listen 80; " + line + " location /g/ { proxy_pass http://127.0.0.1:1; } location /r/ { return 301 /x; } }",
			"http":     "google_perftools_profiles x; stream { } http { " + line + " server { listen 80; location /g/ { proxy_pass http://127.0.0.1:1; } } }",
			"around":   "server { listen 80; location /g/ { " + line + " location /g/x { proxy_pass http://127.0.0.1:1; } } }",
			"files":    "server { listen 80; root /srv; location /g/ { " + line + " } }",
			"named":    "server { listen 80; root /srv; location /g/ { try_files $uri @app; } location @app { " + line + " proxy_pass http://127.0.0.1:1; } }",
		} {
			c, r := converted(t, Nginx, text)
			want := "403"
			if where == "named" { // files come first, and are served by themselves
				want = "files"
			}
			if got := visit(t, c, visitor{request: "/g/x"}); got != want || strings.Contains(r.Config, "backend_refs") && where != "location" {
				t.Errorf("%s in %s: %s\n%s", name, where, got, r.Config)
			}
			if l := resultOf(t, r, name); !l.Closed || l.Result != Left || !strings.Contains(l.Remedy, "convert again") {
				t.Errorf("%s in %s: %+v", name, where, l)
			}
		}
		c, _ := converted(t, Nginx, "server { listen 80; "+name+" on; location /g/ { "+name+" off; proxy_pass http://127.0.0.1:1; } }")
		if got := visit(t, c, visitor{request: "/g/x"}); !strings.HasSuffix(name, "_block") && got != guarded {
			t.Errorf("%s off: %s", name, got)
		}
	}
}

// Certificates of clients: a server whose clients cannot be verified as in the source is closed.
func TestCertificatesOfClients(t *testing.T) {
	const pair = "ssl_certificate c; ssl_certificate_key k; "
	server := func(name, text string) string {
		return "server { listen 443 ssl; listen 80; server_name " + name + "; " + pair + text + " location / { proxy_pass http://127.0.0.1:1; } }\n"
	}
	for _, c := range []struct {
		text                string
		required            bool // by the listener
		first, second, bare string
	}{
		{server("a.example", "ssl_client_certificate ca; ssl_verify_client on;"), true, guarded, guarded, guarded},
		{server("a.example", "ssl_verify_client on;"), false, "403", "403", "403"},
		{server("a.example", "ssl_client_certificate ca; ssl_verify_client optional; if ($ssl_client_verify != SUCCESS) { return 403; }"), true, guarded, guarded, "403"},
		{server("a.example", "ssl_client_certificate ca; ssl_verify_client optional; if ($ssl_client_verify = NONE) { return 403; }"), false, "403", "403", guarded},
		{server("a.example", "ssl_client_certificate ca; ssl_verify_client optional;"), false, guarded, guarded, guarded},
		{server("a.example", "ssl_client_certificate ca; ssl_verify_client on;") + server("b.example", "ssl_client_certificate ca; ssl_verify_client optional;"), true, guarded, guarded, guarded},
		{server("a.example", "ssl_client_certificate ca; ssl_verify_client on;") + server("b.example", "ssl_client_certificate other; ssl_verify_client on;"), true, guarded, "403", guarded},
		{server("a.example", "ssl_client_certificate ca; ssl_verify_client on; ssl_ocsp on;"), true, "403", "403", "403"},
	} {
		cfg, r := converted(t, Nginx, c.text)
		required := false
		for i := range cfg.Listeners {
			if tls := cfg.Listeners[i].TLS; tls != nil && tls.ClientAuth != nil {
				required = !tls.ClientAuth.Optional
			}
		}
		first, second, bare := visit(t, cfg, visitor{request: "//a.example:443/"}), visit(t, cfg, visitor{request: "//b.example:443/"}), visit(t, cfg, visitor{request: "//a.example:80/"})
		if required != c.required || first != c.first || second != c.second || bare != c.bare {
			t.Errorf("%s: required %v, %s, %s, without TLS %s\n%s\n%s", c.text, required, first, second, bare, r.Config, r.Text(false))
		}
	}
}

// A server of connections is closed as well.
func TestGuardsOfConnections(t *testing.T) {
	for _, line := range []string{"js_access f;", "auth_unheard_of on;", "deny office.example;", "limit_conn x none;"} {
		c, r := converted(t, Nginx, "google_perftools_profiles x; stream { server { listen 5432; "+line+" proxy_pass 192.0.2.1:5432; } }")
		if !refused(&c.Listeners[0].Sources, netip.MustParseAddr("203.0.113.1")) || r.Closed != 1 {
			t.Errorf("%s: %s\n%s", line, r.Config, r.Text(false))
		}
	}
	c, _ := converted(t, Nginx, "stream { server { listen 5432; limit_conn x 7; proxy_pass 192.0.2.1:5432; } }")
	if c.Listeners[0].Limits.Connections != 7 {
		t.Errorf("%+v", c.Listeners[0].Limits)
	}
}
