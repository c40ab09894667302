package convert

import "strings"

// nginxRead are directives that functions of this package read, each with closing of its own where it guards something.
var nginxRead = nginxWords(`
	 access_log add_header alias allow auth_basic auth_basic_user_file auth_request auth_request_set autoindex autoindex_exact_size autoindex_format
	autoindex_localtime break client_body_timeout client_header_timeout client_max_body_size deny empty_gif error_page expires geo gzip gzip_comp_level gzip_min_length
	gzip_static gzip_types brotli brotli_comp_level brotli_min_length brotli_static brotli_types zstd zstd_comp_level zstd_min_length zstd_static zstd_types
	http http2 http2_max_concurrent_streams if include index internal keepalive_requests keepalive_timeout large_client_header_buffers limit_conn limit_conn_dry_run limit_conn_status
	limit_conn_zone limit_except limit_req limit_req_dry_run limit_req_status limit_req_zone listen location log_format map open_log_file_cache real_ip_header resolver
	return rewrite root send_timeout server server_name set set_real_ip_from spdy ssl ssl_certificate ssl_certificate_key ssl_ciphers ssl_client_certificate
	ssl_conf_command ssl_crl ssl_ecdh_curve ssl_preread ssl_protocols ssl_reject_handshake ssl_verify_client try_files upstream valid_referers
	fastcgi_pass fastcgi_param fastcgi_index fastcgi_split_path_info fastcgi_keep_conn fastcgi_hide_header fastcgi_catch_stderr
	proxy_pass proxy_redirect proxy_set_header proxy_hide_header proxy_buffer_size proxy_protocol proxy_timeout proxy_ssl proxy_send_lowat proxy_responses proxy_requests proxy_half_close
	proxy_connect_timeout proxy_read_timeout proxy_send_timeout proxy_next_upstream proxy_next_upstream_tries proxy_ignore_headers proxy_no_cache
	proxy_ssl_certificate proxy_ssl_certificate_key proxy_ssl_ciphers proxy_ssl_conf_command proxy_ssl_crl proxy_ssl_name proxy_ssl_password_file
	proxy_ssl_server_name proxy_ssl_trusted_certificate proxy_ssl_verify grpc_pass grpc_set_header grpc_hide_header grpc_ssl_verify preread_timeout
	fastcgi_connect_timeout fastcgi_read_timeout fastcgi_send_timeout fastcgi_next_upstream fastcgi_next_upstream_timeout fastcgi_next_upstream_tries
	proxy_cache proxy_cache_background_update proxy_cache_bypass proxy_cache_convert_head proxy_cache_key proxy_cache_lock proxy_cache_lock_age proxy_cache_lock_timeout
	proxy_cache_max_range_offset proxy_cache_methods proxy_cache_min_uses proxy_cache_path proxy_cache_revalidate proxy_cache_use_stale proxy_cache_valid
	fastcgi_cache fastcgi_cache_background_update fastcgi_cache_bypass fastcgi_cache_key fastcgi_cache_lock fastcgi_cache_lock_age fastcgi_cache_lock_timeout
	fastcgi_cache_max_range_offset fastcgi_cache_methods fastcgi_cache_min_uses fastcgi_cache_path fastcgi_cache_revalidate fastcgi_cache_use_stale fastcgi_cache_valid
	fastcgi_ignore_headers fastcgi_no_cache memcached_pass memcached_key random_index
`)

// nginxOpen are directives that are left out, and keep no request from its content: what of them is missing opens nothing. Those of
// nginxLeft are among them, but for nginxGuards.
var nginxOpen = nginxWords(`
	add_trailer  directio_alignment fastcgi_bind fastcgi_force_ranges fastcgi_pass_request_body fastcgi_pass_request_headers fastcgi_send_lowat
	fastcgi_store_access grpc_bind grpc_connect_timeout grpc_read_timeout grpc_send_timeout grpc_ignore_headers grpc_intercept_errors grpc_next_upstream
	grpc_next_upstream_timeout grpc_next_upstream_tries grpc_pass_header grpc_socket_keepalive grpc_ssl_certificate grpc_ssl_certificate_key grpc_ssl_ciphers
	grpc_ssl_conf_command grpc_ssl_crl grpc_ssl_name grpc_ssl_password_file grpc_ssl_protocols grpc_ssl_server_name grpc_ssl_session_reuse
	grpc_ssl_trusted_certificate grpc_ssl_verify_depth gunzip_buffers http2_max_concurrent_pushes http2_pool_size http2_push http2_push_preload
	http2_recv_timeout http2_streams_index_size image_filter_buffer image_filter_interlace image_filter_jpeg_quality image_filter_sharpen image_filter_transparency
	image_filter_webp_quality max_headers memcached_bind memcached_buffer_size memcached_connect_timeout memcached_gzip_flag memcached_next_upstream
	memcached_next_upstream_timeout memcached_next_upstream_tries memcached_read_timeout memcached_send_timeout memcached_socket_keepalive ancient_browser
	ancient_browser_value modern_browser modern_browser_value mp4_start_key_frame open_file_cache_events quic_bpf quic_host_key referer_hash_bucket_size
	referer_hash_max_size ssi_last_modified ssi_min_file_chunk ssi_silent_errors ssi_value_length ssl_ocsp_cache ssl_ocsp_responder
	subrequest_output_buffer_size underscores_in_headers userid_domain userid_expires userid_flags userid_mark userid_name userid_p3p userid_path userid_service
	xml_entities xslt_last_modified xslt_param xslt_string_param xslt_types geoip_proxy geoip_proxy_recursive geoip_org 
	charset_map early_hints keepalive_min_timeout ssl_certificate_cache ssl_certificate_compression ssl_object_cache_inheritable
	js_path js_include js_var js_preload_object js_fetch_timeout js_fetch_trusted_certificate js_fetch_verify js_fetch_ciphers js_fetch_protocols
	js_fetch_buffer_size js_fetch_max_response_buffer_size js_fetch_verify_depth js_shared_dict_zone js_body_filter js_header_filter js_periodic js_engine
	lua_package_cpath lua_code_cache lua_socket_connect_timeout lua_socket_read_timeout lua_socket_send_timeout lua_socket_log_errors lua_socket_pool_size
	lua_ssl_trusted_certificate lua_ssl_verify_depth lua_regex_match_limit lua_max_pending_timers lua_max_running_timers lua_need_request_body lua_capture_error_log
	init_by_lua_file init_worker_by_lua init_worker_by_lua_block init_worker_by_lua_file exit_worker_by_lua_block set_by_lua set_by_lua_file log_by_lua log_by_lua_file
	header_filter_by_lua header_filter_by_lua_file body_filter_by_lua body_filter_by_lua_block body_filter_by_lua_file content_by_lua_file perl_modules perl_require
	more_set_headers more_clear_headers more_set_input_headers more_clear_input_headers set_unescape_uri set_escape_uri set_random set_sha1 set_md5 set_if_empty
	set_quote_sql_str set_encode_base64 set_decode_base64 set_hashed_upstream echo echo_exec echo_location echo_sleep echo_duplicate echo_flush
	vhost_traffic_status vhost_traffic_status_display vhost_traffic_status_filter vhost_traffic_status_filter_by_set_key vhost_traffic_status_filter_by_host
	pagespeed fancyindex fancyindex_exact_size fancyindex_localtime fancyindex_header fancyindex_footer fancyindex_css_href fancyindex_ignore fancyindex_name_length
	opentracing opentracing_trace_locations opentracing_propagate_context opentracing_tag opentracing_load_tracer otel_trace otel_trace_context otel_span_name
	otel_span_attr otel_exporter otel_service_name session_log session_log_zone status_format match health_check
	passenger_enabled passenger_app_root passenger_ruby passenger_app_env passenger_env_var passenger_base_uri nchan_publisher nchan_subscriber push_stream_publisher
	upload_progress track_uploads report_uploads scgi_read_timeout
`)

// nginxGuards are directives that decide whether a request gets to its content: why they have no counterpart, and what the gateway
// has in their place.
var nginxGuards = map[string][2]string{}

// nginxParts are settings of such directives, which do nothing without them.
var nginxParts = nginxWords(`
	auth_jwt_key_file auth_jwt_key_request auth_jwt_claim_set auth_jwt_header_set auth_jwt_type auth_jwt_leeway auth_jwt_loginurl auth_jwt_key auth_jwt_validate_sub
	auth_digest_user_file auth_digest_timeout auth_digest_expires auth_digest_replays auth_ldap_servers auth_ldap_cache_enabled ldap_server auth_ldap_server
	auth_pam_service_name auth_pam_set_pam_env auth_gss_realm auth_gss_keytab auth_gss_service_name auth_gss_allow_basic_fallback
	modsecurity_rules modsecurity_rules_file modsecurity_rules_remote modsecurity_transaction_id modsecurity_use_error_log ModSecurityConfig
	MainRule BasicRule CheckRule DeniedUrl LearningMode SecRulesDisabled coraza_rules coraza_rules_file app_protect_policy_file app_protect_security_log
	app_protect_security_log_enable
`)

func init() {
	for _, g := range []struct{ why, remedy, names string }{
		{"the gateway runs no scripts, and this one may refuse requests", "decide at a backend, and name it in routes[].auth.forward", `
			access_by_lua access_by_lua_block access_by_lua_file rewrite_by_lua rewrite_by_lua_block rewrite_by_lua_file server_rewrite_by_lua_block
			server_rewrite_by_lua_file precontent_by_lua_block precontent_by_lua_file ssl_certificate_by_lua_block ssl_certificate_by_lua_file
			ssl_client_hello_by_lua_block ssl_client_hello_by_lua_file balancer_by_lua_block preread_by_lua_block js_access js_preread js_filter`},
		{"the keys of tokens are named in another form", "write routes[].auth.jwt with issuer, audiences and jwks_url or jwks_file", "auth_jwt auth_jwt_require auth_jwt_enabled"},
		{"credentials are not verified in this way", "write routes[].auth.basic, or routes[].auth.forward with a server that verifies them", `
			auth_digest auth_ldap auth_pam auth_gss auth_oidc auth_spnego auth_radius auth_cookie auth_token auth_pubtkt`},
		{"rules of ModSecurity are evaluated by waf", "write waf: {rules: [crs], mode: prevent} of the listener or the route, with the program millrace-waf", `
			modsecurity ModSecurityEnabled SecRulesEnabled coraza app_protect_enable`},
		{"certificates of clients are not verified by OCSP", "write tls.client_auth with crl_file", "ssl_ocsp"},
		{"the gateway does not verify signed links", "decide at a backend, and name it in routes[].auth.forward", "secure_link secure_link_md5 secure_link_secret"},
		{"one address verifies certificates of clients by one file of authorities", "give the server an address of its own, and name the file in tls.client_auth", "ssl_verify_client"},
		{"sessions are not tested", "write rate_limits with a key", "testcookie"},
	} {
		for _, name := range strings.Fields(g.names) {
			nginxGuards[name] = [2]string{g.why, g.remedy}
		}
	}
	for name := range nginxParts {
		nginxLeft[name] = [2]string{"it is of a directive that is not translated", "see that directive"}
	}
}

// nginxWords returns the set of the words of a text.
func nginxWords(text string) map[string]bool {
	set := map[string]bool{}
	for _, w := range strings.Fields(text) {
		set[w] = true
	}
	return set
}

// opens reports whether a directive that is left out keeps no request from its content. Of those that the converter does not
// know none does.
func opens(name string) bool {
	_, unneeded := nginxUnneeded[name]
	_, left := nginxLeft[name]
	_, guards := nginxGuards[name]
	return nginxRead[name] || !guards && (unneeded || left || nginxOpen[name])
}

// unexpressed returns the directive of a location, or of the blocks around it, that closes it: a guard without a counterpart, or
// one that the converter does not know. Directives of the innermost block count, as nginx inherits them.
func (s *site) unexpressed(l *loc) *directive {
	for sc := l.sc; sc != nil; sc = sc.outer {
		if len(sc.own("http"))+len(sc.own("stream")) > 0 { // the file, whose other directives are of the process
			break
		}
		for _, d := range sc.list {
			if opens(d.name) || d.name == "types" {
				continue
			}
			if l.sc.value(d.name) == "off" {
				s.n.l.unneeded(d.at, "it is off")
				continue
			}
			return d
		}
	}
	return nil
}

// guardReason returns why a directive closes its place, and what to write instead.
func guardReason(d *directive) [2]string {
	if g, ok := nginxGuards[d.name]; ok {
		return g
	}
	return [2]string{"the converter does not know the directive, which may keep clients out", "see docs/moving-in.md for what is translated"}
}

// closeFor returns the answer of a location that a directive closes.
func (s *site) closeFor(d *directive, l *loc) *rule {
	why := guardReason(d)
	r := s.n.l.close(d.at, why[0], why[1])
	for _, inner := range d.block {
		s.n.l.left(inner.at, "it is of the directive around it", "")
	}
	s.rest(l, "its location is closed")
	r.at = l.at
	return r
}
