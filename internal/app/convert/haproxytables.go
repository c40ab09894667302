package convert

// haproxyUnneeded are keywords without a counterpart that is needed.
var haproxyUnneeded = map[string]string{}

// haproxyLeft are keywords that cannot be expressed: the reason, and what to do.
var haproxyLeft = map[string][2]string{}

func init() {
	for why, names := range map[string][]string{
		"processes, threads and rights are the gateway's own": {
			"daemon", "chroot", "user", "group", "uid", "gid", "nbproc", "nbthread", "cpu-map", "pidfile", "master-worker", "ulimit-n", "hard-stop-after", "node", "description",
			"thread-groups", "grace", "zero-warning", "set-dumpable", "expose-experimental-directives", "bind-process", "set-var", "presetenv", "setenv", "mworker-max-reloads",
			"numa-cpu-mapping", "fd-hard-limit", "localpeer", "id", "program", "strict-limits", "insecure-fork-wanted", "external-check", "h1-case-adjust",
		},
		"millrace gateway status and the admin socket have it": {
			"stats socket", "stats timeout", "stats maxconn", "stats bind-process", "server-state-file", "server-state-base", "load-server-state-from-file",
		},
		"sizes and buffers adapt": {
			"maxpipes", "maxsslconn", "maxsslrate", "maxcompcpuusage", "maxzlibmem", "maxsessrate", "noepoll", "nosplice", "spread-checks", "fullconn", "backlog", "busy-polling", "max-spread-checks",
		},
		"it is what the gateway does": {
			"option httplog", "option tcplog", "option dontlognull", "option http-server-close", "option http-keep-alive", "option httpclose", "option forceclose", "option redispatch",
			"option log-health-checks", "option logasap", "option log-separate-errors", "option http-buffer-request", "option tcpka", "option clitcpka", "option srvtcpka",
			"option nolinger", "option splice-auto", "option splice-request", "option splice-response", "option abortonclose", "option allbackups", "option socket-stats",
			"option dontlog-normal", "option persist", "option prefer-last-server", "option tcp-smart-accept", "option tcp-smart-connect", "option independent-streams",
			"option contstats", "option http-tunnel", "option http-pretend-keepalive", "option checkcache", "option http-use-htx", "option http-no-delay", "option idle-close-on-response",
			"option http-ignore-probes", "option httpslog", "option accept-invalid-http-request", "option accept-invalid-http-response", "option originalto", "option disable-h2-upgrade",
			"no option", "hash-type", "hash-balance-factor", "http-reuse", "log-tag", "tcp-request inspect-delay", "enabled", "compression offload", "dispatch", "option spop-check",
			"http-send-name-header", "default-path", "ssl-server-verify", "rate-limit sessions", "max-keep-alive-queue", "load-balance",
		},
		"the gateway chooses as a current TLS library does": {
			"ssl-default-server-options", "ssl-default-server-ciphers", "ssl-default-server-ciphersuites", "ssl-dh-param-file", "ssl-engine", "ssl-mode-async", "ssl-load-extra-files",
			"ssl-default-bind-curves", "ssl-default-bind-sigalgs", "ssl-security-level", "issuers-chain-path", "ssl-skip-self-issued-ca",
		},
	} {
		for _, name := range names {
			haproxyUnneeded[name] = why
		}
	}
	for _, g := range []struct {
		why, remedy string
		names       []string
	}{
		{"the gateway runs no scripts", "decide at a backend, or by routes[].auth.forward", []string{"lua-load", "lua-load-per-thread", "lua-prepend-path", "filter", "unique-id-format-lua", "http-request lua"}},
		{"tables of counters have no counterpart", "rate_limits count requests by a key, limits.connections connections", []string{
			"stick-table", "http-request track-sc0", "http-request track-sc1", "http-request track-sc2", "tcp-request connection track-sc0", "http-request sc-inc-gpc0",
			"http-request sc-inc-gpc1", "http-request sc-set-gpt0", "http-response track-sc0", "peers",
		}},
		{"sessions go by a cookie of the gateway, or by a hash", "see pools[].sticky and pools[].hash", []string{"stick match", "stick store-request", "stick store-response", "appsession", "persist"}},
		{"the gateway has metrics of its own", "see metrics.listen, and millrace gateway status", []string{
			"stats enable", "stats uri", "stats realm", "stats auth", "stats admin", "stats refresh", "stats hide-version", "stats show-legends", "stats show-node", "stats scope",
			"stats http-request", "stats show-desc", "stats show-modules", "http-request use-service",
		}},
		{"a file of HAProxy has a header before its page", "write the page alone to a file of html, and name it in error_pages", []string{"errorfile", "errorfiles", "http-errors", "http-error", "errorloc", "errorloc302", "errorloc303"}},
		{"requests are not captured", "access_log.fields may name header fields", []string{"capture", "capture request", "capture response", "http-request capture", "http-response capture", "declare"}},
		{"rules have no variables of their own", "write rules for the cases", []string{"http-request set-var", "http-response set-var", "http-request unset-var", "http-request set-var-fmt", "tcp-request content set-var", "http-request set-map", "http-request add-acl"}},
		{"mail is not sent", "alert by the metrics", []string{"mailers", "email-alert"}},
		{"expressions of old forms are not translated", "write http-request set-header, del-header or replace-path, and convert again", []string{
			"reqrep", "reqirep", "rspirep", "rsprep", "reqadd", "rspadd", "reqdel", "reqidel", "rspdel", "rspidel", "reqallow", "reqdeny", "block", "reqiallow", "reqideny", "reqpass", "reqtarpit",
		}},
		{"a log of another form is not written", "access_log has `format: text` with a template of its own", []string{"log-format-sd", "error-log-format", "unique-id-format", "log-forward", "ring", "log-profile"}},
		{"sections of FastCGI are not translated", "write a pool with protocol FASTCGI, see docs/http-gateway.md", []string{"fcgi-app", "use-fcgi-app"}},
		{"responses are not changed beyond their fields", "change them at the backend", []string{"http-response replace-header", "http-response replace-value", "http-response deny", "http-response set-status", "http-response redirect", "http-response return", "rspdeny"}},
		{"values of fields are set as a whole", "write set-header", []string{"http-request replace-header", "http-request replace-value", "http-request set-method", "http-request set-query", "http-request set-uri"}},
		{"packets have no marks", "", []string{"http-request set-mark", "http-request set-tos", "http-request set-nice", "http-request set-priority-class", "http-request set-priority-offset", "http-request set-log-level", "http-request disable-l7-retry"}},
		{"backends see the gateway's address", "see pools[].proxy_protocol", []string{"source", "usesrc"}},
		{"bots are not delayed", "take http-request deny", []string{"timeout tarpit"}},
	} {
		for _, name := range g.names {
			haproxyLeft[name] = [2]string{g.why, g.remedy}
		}
	}
}
