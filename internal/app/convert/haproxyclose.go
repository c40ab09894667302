package convert

import (
	"slices"
	"strings"
)

// haproxyRead are keywords of frontends and backends that functions of this package read. Rules on requests are among haproxyActions.
var haproxyRead = nginxWords(`
	acl backlog balance bind capture cookie default-server default_backend description disabled dispatch email-alert enabled errorfile errorfiles errorloc errorloc302
	errorloc303 fullconn guid hash-type http-check http-error http-reuse http-send-name-header id log log-format log-tag maxconn mode monitor monitor-net monitor-uri no option
	redirect retries retry-on server server-state-file-name server-template source stats stick stick-table tcp-check timeout unique-id-format unique-id-header use-fcgi-app
	use_backend use-server compression force-persist ignore-persist persist external-check tcp-check max-session-srv-conns retry rate-limit clitcpka-cnt clitcpka-idle
	clitcpka-intvl srvtcpka-cnt srvtcpka-idle srvtcpka-intvl load-server-state-from-file reqadd rspadd reqdel reqidel rspdel rspidel reqrep reqirep rsprep rspirep
	default-path hash-balance-factor hash-preserve-affinity error-log-format log-format-sd log-steps http-request http-response http-after-response tcp-request tcp-response
	reqpass reqallow reqiallow appsession declare filter mailers publish
`)

// haproxyActions are actions of rules that decide nothing about whether a request is served, or that functions read.
var haproxyActions = map[string]map[string]bool{
	"http-request": nginxWords(`add-acl add-header allow auth cache-use capture del-acl del-header del-map deny disable-l7-retry do-log do-resolve early-hint normalize-uri pause
		redirect reject replace-header replace-path replace-pathq replace-uri replace-value return sc-add-gpc sc-inc-gpc sc-inc-gpc0 sc-inc-gpc1 sc-set-gpt sc-set-gpt0
		set-bandwidth-limit set-bc-mark set-bc-tos set-dst set-dst-port set-fc-mark set-fc-tos set-header set-log-level set-map set-mark set-method set-nice set-path set-pathq
		set-priority-class set-priority-offset set-query set-src set-src-port set-timeout set-tos set-uri set-var set-var-fmt set-retries silent-drop strict-mode tarpit
		track-sc0 track-sc1 track-sc2 unset-var use-service wait-for-body wait-for-handshake del-headers-bin add-headers-bin set-headers-bin replace-headers-bin`),
	"http-response": nginxWords(`add-acl add-header allow cache-store capture del-acl del-header del-map do-log pause redirect replace-header replace-value return sc-add-gpc sc-inc-gpc
		sc-inc-gpc0 sc-inc-gpc1 sc-set-gpt sc-set-gpt0 set-bandwidth-limit set-fc-mark set-fc-tos set-header set-log-level set-map set-mark set-nice set-status set-tos set-var
		set-var-fmt strict-mode track-sc0 track-sc1 track-sc2 unset-var`),
	"http-after-response": nginxWords(`add-acl add-header allow capture del-acl del-header del-map do-log replace-header replace-value sc-add-gpc sc-inc-gpc sc-inc-gpc0 sc-inc-gpc1
		sc-set-gpt sc-set-gpt0 set-header set-log-level set-map set-status set-var set-var-fmt strict-mode unset-var`),
	"tcp-response": nginxWords("inspect-delay"),
}

// tcpActions are those of tcp-request, behind the layer that they are for.
var tcpActions = nginxWords(`accept capture do-log do-resolve expect-netscaler-cip expect-proxy reject sc-add-gpc sc-inc-gpc sc-inc-gpc0 sc-inc-gpc1 sc-set-gpt sc-set-gpt0 send-spoe-group
	set-bandwidth-limit set-bc-mark set-bc-tos set-dst set-dst-port set-fc-mark set-fc-tos set-log-level set-mark set-nice set-priority-class set-priority-offset set-src set-src-port set-tos
	set-var set-var-fmt silent-drop switch-mode track-sc0 track-sc1 track-sc2 unset-var use-service`)

// openFilters are filters that decide nothing about requests.
var openFilters = []string{"compression", "comp-req", "comp-res", "trace", "cache", "fcgi-app", "bwlim-in", "bwlim-out", "opentracing", "otel"}

// guards reports whether a line may keep requests from their backends, and is none that functions translate: a rule with an action that
// the converter does not know, a filter, or an unknown keyword.
func (x *line) guards() bool {
	action, _, _ := strings.Cut(x.arg(1), "(")
	switch w := x.words[0]; w {
	case "http-request", "http-response", "http-after-response", "tcp-response":
		if w == "http-request" && action == "set-uri" {
			return false
		}
		return !haproxyActions[w][action]
	case "tcp-request":
		if action == "inspect-delay" {
			return false
		}
		action, _, _ = strings.Cut(x.arg(2), "(")
		return !tcpActions[action]
	case "filter":
		return !slices.Contains(openFilters, x.arg(1))
	case "block", "reqdeny", "reqideny", "reqtarpit", "reqitarpit", "rspdeny", "rspideny":
		return true
	default:
		_, unneeded := haproxyUnneeded[x.name()]
		_, left := haproxyLeft[x.name()]
		return !unneeded && !left && !haproxyRead[w]
	}
}

// guardReason returns why a line closes what it guards, and what to write instead.
func (x *line) guardReason() (why, remedy string) {
	switch {
	case x.words[0] == "filter":
		return "the filter may refuse requests", "decide at a backend, by routes[].auth.forward or by waf"
	case strings.HasPrefix(x.arg(1), "lua.") || strings.HasPrefix(x.arg(2), "lua."):
		return "the gateway runs no scripts, and this one may refuse requests", "decide at a backend, and name it in routes[].auth.forward"
	case strings.HasPrefix(x.words[0], "http-response") || strings.HasPrefix(x.words[0], "rsp") || x.words[0] == "tcp-response":
		return "responses are not refused", "decide at the backend, or by waf with responses"
	case x.words[0] == "http-request" || x.words[0] == "tcp-request":
		return "the gateway has no such rule, which may refuse requests", "write rules with matches by host, path, method, header, query or client"
	case strings.HasPrefix(x.words[0], "req") || x.words[0] == "block":
		return "rules of old forms are not translated", "write http-request deny, and convert again"
	}
	return "the converter does not know the line, which may keep clients out", "see docs/moving-in.md for what is translated"
}

// covering returns a condition that holds wherever that of a line does, and is known: tests without a counterpart are left out, so that
// it holds for more requests.
func (h *haproxy) covering(p *proxy, words []string) verdict {
	if v := h.condition(p, words); v.known {
		return v
	}
	i := slices.IndexFunc(words, func(w string) bool { return w == "if" || w == "unless" })
	if i < 0 {
		return always
	}
	defer h.aclsUsed(true)
	parts := splitWords(words[i+1:], "or", "||")
	out := verdict{known: true}
	if words[i] == "unless" { // no part holds
		out = always
	}
	for _, part := range parts {
		if words[i] == "unless" {
			out = narrowed(out, h.noPart(p, part))
			continue
		}
		v := always
		for _, term := range terms(part) {
			v = narrowed(v, h.term(p, term))
		}
		out = either(out, v)
	}
	if !out.known || len(out.atoms) == 0 {
		return always
	}
	return out
}

// noPart returns the condition that some term of a conjunction does not hold.
func (h *haproxy) noPart(p *proxy, part []string) verdict {
	out := verdict{known: true}
	for _, term := range terms(part) {
		term[0] = map[string]string{"": "!", "!": ""}[term[0]]
		v := h.term(p, term)
		if !v.known {
			return verdict{}
		}
		out = either(out, v)
	}
	return out
}

// narrowed returns the conjunction, or the first where the second is not known or both cannot be expressed.
func narrowed(a, b verdict) verdict {
	if !b.known {
		return a
	}
	if both := both(a, b); both.known {
		return both
	}
	return a
}

// routing reports whether all tests of a line that have no counterpart are on names of hosts, on paths or on the load of servers: they
// choose among backends, and keep no client from one.
func (h *haproxy) routing(p *proxy, words []string) bool {
	h.edited = h.editedBefore(p, words)
	for _, term := range conditionTerms(words) {
		if h.term(p, term).known {
			continue
		}
		tests := p.testsOf(term)
		if len(tests) == 0 || slices.ContainsFunc(tests, func(t []string) bool { return len(t) == 0 || !routingFetch(t[0]) }) {
			return false
		}
	}
	return true
}

// routingFetch reports whether a sample is of a host's name, of a path or of the load of servers.
func routingFetch(s string) bool {
	name, arg, _ := strings.Cut(strings.TrimPrefix(s, "req."), "(")
	name, _, _ = strings.Cut(name, ",")
	bare := name
	for _, suffix := range []string{"_beg", "_end", "_sub", "_reg", "_dir", "_dom", "_len"} {
		bare = strings.TrimSuffix(bare, suffix)
	}
	if bare == "hdr" || bare == "fhdr" {
		host, _, _ := strings.Cut(strings.ToLower(arg), ")")
		return host == "host" || host == "upgrade" || host == "connection"
	}
	return slices.Contains([]string{
		"nbsrv", "connslots", "queue", "avg_queue", "be_conn", "be_conn_free", "be_sess_rate", "be_id", "be_name", "fe_conn", "fe_sess_rate", "fe_req_rate", "srv_is_up", "srv_conn", "srv_sess_rate",
		"srv_queue", "rand", "date", "path", "pathq", "url", "base", "capture.req.uri", "ssl_fc_sni", "req_ssl_sni", "ssl_sni", "req_ssl_hello_type", "ssl_hello_type", "ssl_fc", "ssl_fc_alpn", "proto_http",
		"req_proto_http", "ssl_ver", "req_ssl_ver", "payload", "req_len", "len", "dst_port", "dst", "so_id",
	}, bare)
}

// closeLine closes the requests that a line is for: with its condition where that can be expressed, and else more.
func (f *frontend) closeLine(x *line) {
	why, remedy := x.guardReason()
	f.closeWith(x, f.h.covering(f.p, x.words), why, remedy)
}

// closeWith adds the refusal of requests in the place of a line.
func (f *frontend) closeWith(x *line, v verdict, why, remedy string) {
	r := f.h.l.close(x.at, why, remedy)
	for _, a := range strictly(v).atoms {
		if a = a.clientsAside(r); !a.never {
			f.items = append(f.items, item{at: x.at, atom: a, rule: r})
		}
	}
}

// clientsAside returns an atom whose excepted clients are as other exceptions, unless a list of clients of a route stands for them.
func (a atom) clientsAside(r *rule) atom {
	listed := r.redirect != nil || r.fixed != nil && r.fixed.status == 403
	if len(a.notFrom) > 0 && (!listed || len(a.except) > 0 || !a.match.bare()) {
		a.except, a.notFrom = append(slices.Clone(a.except), atom{match: match{clients: a.notFrom}}), nil
	}
	return a
}

// strictly returns a condition for a refusal: a prefix of HAProxy and Caddy ends within a segment as well.
func strictly(v verdict) verdict {
	v.atoms = slices.Clone(v.atoms)
	for i := range v.atoms {
		m := &v.atoms[i].match
		if m.kind == pathPrefix && m.path != "/" && !strings.HasSuffix(m.path, "/") {
			m.kind, m.path = pathRegexp, quoted(m.path)+".*"
		}
	}
	v.coarse = ""
	return v
}

// resolved returns items without exceptions: before an item that does not hold for some requests stand those that come after it, for
// these requests.
func (l *ledger) resolved(items []item) []item {
	out := []item{}
	for i := len(items) - 1; i >= 0; i-- {
		it := items[i]
		except := it.atom.except
		it.atom.except = nil
		list := []item{}
		fits := len(out) < mostResolved
		for _, e := range except {
			part, ok := it.atom.and(e)
			fits = fits && ok
			if !ok || part.never {
				continue
			}
			for _, later := range out {
				with, ok := part.and(later.atom)
				if fits = fits && ok; ok && !with.never {
					later.atom, later.last = with, false
					list = append(list, later)
				}
			}
		}
		if !fits || len(list) > mostResolved {
			list = nil
			it.rule = l.close(it.at, "rules cannot have all of its conditions", "write rules with matches by host, path, method, header, query or client")
		}
		out = slices.Concat(list, []item{it}, out)
	}
	return out
}

// mostResolved bounds the items of a frontend or a site.
const mostResolved = 160
