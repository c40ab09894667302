package convert

// nginxUnneeded are directives without a counterpart that is needed.
var nginxUnneeded = map[string]string{}

// nginxLeft are directives that cannot be expressed: the reason, and what to do.
var nginxLeft = map[string][2]string{}

func init() {
	for why, names := range map[string][]string{
		"processes, threads and events are the gateway's own": {
			"user", "worker_processes", "worker_connections", "worker_rlimit_nofile", "worker_cpu_affinity", "worker_priority", "worker_shutdown_timeout", "daemon",
			"master_process", "pid", "events", "use", "multi_accept", "accept_mutex", "pcre_jit", "thread_pool", "load_module", "timer_resolution", "lock_file",
			"worker_rlimit_core", "working_directory", "env", "debug_connection", "ssl_engine", "worker_aio_requests",
		},
		"how files and sockets are read is the gateway's own": {
			"sendfile", "sendfile_max_chunk", "tcp_nopush", "tcp_nodelay", "aio", "aio_write", "directio", "output_buffers", "postpone_output", "read_ahead", "open_file_cache",
			"open_file_cache_valid", "open_file_cache_min_uses", "open_file_cache_errors", "reset_timedout_connection", "lingering_close", "lingering_time",
			"lingering_timeout", "keepalive_disable", "send_lowat", "disable_symlinks", "connection_pool_size", "request_pool_size", "keepalive_time",
		},
		"sizes of tables and buffers adapt": {
			"types_hash_max_size", "types_hash_bucket_size", "server_names_hash_bucket_size", "server_names_hash_max_size", "variables_hash_max_size",
			"variables_hash_bucket_size", "map_hash_bucket_size", "map_hash_max_size", "proxy_headers_hash_max_size", "proxy_headers_hash_bucket_size",
			"client_body_buffer_size", "client_body_temp_path", "client_body_in_file_only", "client_body_in_single_buffer", "client_header_buffer_size",
			"proxy_buffers", "proxy_busy_buffers_size", "proxy_temp_path", "proxy_temp_file_write_size", "proxy_max_temp_file_size", "zone",
			"gzip_buffers", "grpc_buffer_size", "fastcgi_temp_path", "uwsgi_temp_path", "scgi_temp_path", "server_tokens", "preread_buffer_size",
			"ignore_invalid_headers",
		},
		"the gateway passes content on as it comes": {
			"fastcgi_buffers", "fastcgi_buffer_size", "fastcgi_busy_buffers_size", "fastcgi_request_buffering", "fastcgi_buffering", "fastcgi_temp_file_write_size",
			"fastcgi_max_temp_file_size", "fastcgi_pass_header", "fastcgi_socket_keepalive", "fastcgi_ignore_client_abort", "fastcgi_limit_rate",
			"proxy_buffering", "proxy_request_buffering", "proxy_ignore_client_abort", "proxy_force_ranges", "chunked_transfer_encoding",
		},
		"the gateway has types of its own":   {"types", "default_type", "charset", "charset_types", "override_charset"},
		"the gateway logs to standard error": {"error_log", "log_not_found", "log_subrequest", "rewrite_log", "uninitialized_variable_warn"},
		"HTTP/1.1 with connections that are kept is what backends get": {
			"proxy_http_version", "proxy_socket_keepalive", "proxy_pass_request_headers", "proxy_pass_request_body",
		},
		"the gateway chooses as a current TLS library does": {
			"ssl_prefer_server_ciphers", "ssl_session_cache", "ssl_session_timeout", "ssl_session_tickets", "ssl_buffer_size", "ssl_stapling", "ssl_stapling_verify",
			"ssl_trusted_certificate", "ssl_stapling_file", "ssl_stapling_responder", "ssl_dhparam", "proxy_ssl_session_reuse", "proxy_ssl_protocols",
			"ssl_handshake_timeout", "ssl_verify_depth", "proxy_ssl_verify_depth",
		},
		"it is what the gateway does": {
			"break",
			"etag", "if_modified_since", "max_ranges", "gzip_vary", "gzip_disable", "gzip_http_version", "gzip_window", "gzip_hash", "gzip_no_buffer", "merge_slashes",
			"absolute_redirect", "server_name_in_redirect", "port_in_redirect", "recursive_error_pages", "http2_max_field_size", "http2_max_header_size", "http2_chunk_size",
			"http2_recv_buffer_size", "http2_idle_timeout", "http2_max_requests", "http2_body_preread_size", "quic_retry", "quic_gso", "quic_active_connection_id_limit",
			"http3", "http3_hq", "http3_max_concurrent_streams", "http3_stream_buffer_size", "real_ip_recursive", "msie_padding", "msie_refresh",
			"resolver_timeout", "limit_req_log_level", "limit_conn_log_level", "proxy_next_upstream_timeout", "gzip_proxied", "proxy_pass_header",
			"auth_delay",
		},
	} {
		for _, name := range names {
			nginxUnneeded[name] = why
		}
	}
	for _, g := range []struct {
		why, remedy string
		names       []string
	}{
		{"the gateway does not speak uWSGI and SCGI", "put an HTTP server before the application, as gunicorn or uvicorn for Python", []string{"uwsgi_pass", "scgi_pass"}},
		{"it is of uWSGI or SCGI, which the gateway does not speak", "see the directive that passes requests on", []string{
			"uwsgi_param", "uwsgi_read_timeout", "uwsgi_send_timeout", "uwsgi_connect_timeout", "uwsgi_buffering", "uwsgi_request_buffering", "uwsgi_max_temp_file_size",
			"uwsgi_buffers", "uwsgi_buffer_size", "scgi_param",
		}},
		{"responses are stored as RFC 9111 has it, and in memory", "write caches, and cache of the rule", []string{"proxy_store", "proxy_store_access", "slice", "proxy_cache_purge", "fastcgi_store"}},
		{"the gateway does not change content", "change it at the application", []string{
			"sub_filter", "sub_filter_once", "sub_filter_types", "sub_filter_last_modified", "addition_types", "add_before_body", "add_after_body", "ssi", "ssi_types",
			"image_filter", "xslt_stylesheet", "proxy_set_body", "proxy_method", "gunzip", "source_charset",
		}},
		{"the gateway runs no scripts", "decide at a backend, or by auth_request", []string{
			"lua_shared_dict", "lua_package_path", "perl", "perl_set", "js_import", "js_content", "js_set", "content_by_lua", "init_by_lua", "content_by_lua_block",
			"content_by_lua_file", "init_by_lua_block", "header_filter_by_lua_block", "set_by_lua_block", "log_by_lua_block",
		}},
		{"the gateway has metrics of its own", "see metrics.listen, and millrace gateway status", []string{"stub_status", "status_zone", "vhost_traffic_status_zone"}},
		{"the gateway does not rewrite Set-Cookie and Location of backends", "set the public URL at the application", []string{"proxy_cookie_path", "proxy_cookie_domain", "proxy_cookie_flags"}},
		{"pages replace responses of the gateway alone", "send the page from the application", []string{"proxy_intercept_errors", "fastcgi_intercept_errors"}},
		{"the gateway does not send requests twice", "mirror at the application", []string{"mirror", "mirror_request_body"}},
		{"the gateway does not write files", "use a WebDAV server as a backend", []string{"dav_methods", "dav_access", "dav_ext_methods", "create_full_put_path", "min_delete_depth", "dav_ext_lock", "dav_ext_lock_zone"}},
		{"the gateway has no such variable", "decide at the application", []string{"geoip_country", "geoip_city", "geoip2", "split_clients", "userid", "browser"}},
		{"tickets of the gateway have keys of another form", "see tls.ticket_key_file", []string{"ssl_session_ticket_key"}},
		{"a key with a password cannot be read", "take the password off: openssl pkey", []string{"ssl_password_file"}},
		{"crypto/tls accepts no early data over TCP", "with HTTP/3 there is listeners[].early_data", []string{"ssl_early_data"}},
		{"mail is not proxied as such", "pass it through by a TCP or TLS listener", []string{"mail", "imap_capabilities", "smtp_auth", "pop3_auth"}},
		{"the rate of one response is not bounded", "", []string{"limit_rate", "limit_rate_after", "proxy_limit_rate", "proxy_upload_rate", "proxy_download_rate"}},
		{"all conditions of a route must hold", "put the parts into routes of their own", []string{"satisfy"}},
		{"media are not cut", "use a media server as a backend", []string{"mp4", "flv", "mp4_buffer_size", "mp4_max_buffer_size", "rtmp", "hls"}},
		{"sockets of backends have no address of their own", "", []string{"proxy_bind"}},
	} {
		for _, name := range g.names {
			nginxLeft[name] = [2]string{g.why, g.remedy}
		}
	}
}
