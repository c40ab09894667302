package convert

import (
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/millrace/millrace/l7/accesslog"
)

// haproxyLogFields are fields of the access log by aliases of HAProxy.
var haproxyLogFields = map[string]string{
	"ci": "client_address", "cp": "client_port", "f": "listener", "ft": "listener", "b": "pool", "s": "backend", "ST": "status", "B": "bytes_out", "U": "bytes_in",
	"t": "time_clf", "T": "time_clf", "tr": "time_clf", "trg": "time_clf", "trl": "time_clf", "tl": "time_clf", "Tw": "wait_seconds", "Tr": "backend_seconds", "Tt": "seconds", "Ta": "seconds",
	"Tq": "seconds", "HM": "method", "HP": "path", "HPO": "path", "HU": "path", "HV": "protocol", "sslv": "tls_version", "sslc": "tls_cipher", "ID": "request_id",
	"[src]": "client_address", "[src_port]": "client_port", "[method]": "method", "[path]": "path", "[pathq]": "path", "[url]": "path", "[status]": "status", "[ssl_fc_sni]": "server_name",
	"[ssl_fc_protocol]": "tls_version", "[ssl_fc_cipher]": "tls_cipher", "[unique-id]": "request_id", "[fc_src]": "peer_address",
}

// haproxyLogDiffers says what aliases have that their fields do not.
var haproxyLogDiffers = map[string]string{
	"ft": "listeners with TLS have no mark", "b": "pool is - where none was chosen", "s": "backend is the server alone", "tl": "times have no milliseconds", "t": "times have no milliseconds",
	"tr": "times have no milliseconds", "B": "bytes_out is without the header", "U": "bytes_in is without the header", "Tw": "times are in seconds", "Tr": "times are in seconds",
	"Tt": "times are in seconds", "Ta": "times are in seconds", "Tq": "times are in seconds", "HP": "path has the query", "HPO": "path has the query",
}

// haproxyHeaders are samples of fields of the request.
var haproxyHeaders = regexp.MustCompile(`^\[(?:req\.|capture\.req\.)?f?hdr\(([A-Za-z0-9-]+)\)\]$`)

// haproxyLogAs returns what stands for an alias in a template, "" where nothing does.
func haproxyLogAs(name string) string {
	if name == "r" {
		return requestLine
	}
	if m := haproxyHeaders.FindStringSubmatch(name); m != nil {
		return headerField(m[1])
	}
	return asField(haproxyLogFields[name])
}

// haproxyLogParts divides a log-format: %name, %{flags}name, %[sample] and %%.
func haproxyLogParts(format string) (parts []logPart) {
	quoted := false // by %{+Q}o, for all that follows
	for format != "" {
		text, rest, ok := strings.Cut(format, "%")
		if text != "" {
			parts = append(parts, logPart{text: text})
		}
		if !ok {
			break
		}
		flags := ""
		if inner, after, closed := strings.Cut(strings.TrimPrefix(rest, "{"), "}"); strings.HasPrefix(rest, "{") && closed {
			flags, rest = inner, after
		}
		var name string
		switch {
		case strings.HasPrefix(rest, "%"):
			parts, format = append(parts, logPart{text: "%"}), rest[1:]
			continue
		case strings.HasPrefix(rest, "["):
			end := strings.IndexByte(rest, ']') + 1
			if end == 0 {
				end = len(rest)
			}
			name, format = rest[:end], rest[end:]
		default:
			end := strings.IndexFunc(rest, func(r rune) bool { return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z') })
			if end < 0 {
				end = len(rest)
			}
			name, format = rest[:end], rest[end:]
		}
		if name == "o" {
			quoted = strings.Contains(flags, "+Q")
			format = strings.TrimPrefix(format, " ")
			continue
		}
		quote := logPart{}
		if quoted && !strings.Contains(flags, "-Q") || strings.Contains(flags, "+Q") {
			quote.text = `"`
			parts = append(parts, quote)
		}
		if name == "" {
			parts = append(parts, logPart{text: "%"})
		} else {
			sample, _, _ := strings.Cut(strings.TrimSuffix(name, "]"), ",") // converters of a sample are dropped
			if strings.HasPrefix(name, "[") {
				sample += "]"
			}
			parts = append(parts, logPart{name: "%" + name, as: haproxyLogAs(sample)})
		}
		if quote.text != "" {
			parts = append(parts, quote)
		}
	}
	return parts
}

// logs translates log and log-format of a proxy: the first is the log of all requests.
func (h *haproxy) logs(p *proxy) {
	format := p.last("log-format")
	if logs := p.all("log"); len(logs) > 0 && h.m.accessLog == nil {
		x := logs[0]
		if x.arg(1) == "global" && h.globalLog != nil {
			x = h.globalLog
		}
		h.m.accessLog = h.logTarget(x)
		switch {
		case format != nil && h.m.accessLog != nil:
			h.logFormat(h.m.accessLog, format)
		default:
			h.l.changed(x.at, "", "lines are JSON with the gateway's fields")
		}
		h.formatUsed = format
	}
	if format != nil && format != h.formatUsed {
		h.l.changed(format.at, "", "one log for all listeners, with the format of the first")
	}
	for _, x := range p.all("log") {
		h.l.changed(x.at, "access_log", "one log for all listeners")
	}
}

// logTarget returns the log that a line of HAProxy names: standard output, or a server of syslog.
func (h *haproxy) logTarget(x *line) *accessLog {
	target := x.arg(1)
	if target == "global" || strings.HasPrefix(target, "stdout") || strings.HasPrefix(target, "stderr") || strings.HasPrefix(target, "fd@") {
		h.l.ok(x.at, "access_log.file")
		return &accessLog{file: "-"}
	}
	a := &accessLog{syslog: syslogAddress(target)}
	if a.syslog == "" {
		h.l.changed(x.at, "access_log.file", "the server of syslog is no address that can be written: the log is the standard output; see access_log.syslog")
		return &accessLog{file: "-"}
	}
	for i := 2; i < len(x.words); i++ {
		switch w := x.words[i]; {
		case w == "len" || w == "format" || w == "sample":
			i++
		case slices.Contains(accesslog.Facilities, w):
			a.facility = w
		}
	}
	h.l.ok(x.at, "access_log.syslog")
	return a
}

// syslogAddress returns the address of a server in the form of access_log.syslog, "" where it is none of the gateway's.
func syslogAddress(target string) string {
	network := "udp:"
	for _, prefix := range []string{"udp@", "ipv4@", "ipv6@"} {
		target = strings.TrimPrefix(target, prefix)
	}
	if rest, ok := strings.CutPrefix(target, "tcp@"); ok {
		network, target = "tcp:", rest
	}
	if target = strings.TrimPrefix(target, "unix@"); strings.HasPrefix(target, "/") && len(target) < 108 && printable(target) {
		return "unix:" + target
	}
	if at, err := netip.ParseAddrPort(target); err == nil && at.Port() > 0 {
		return network + at.String()
	}
	if a, err := netip.ParseAddr(strings.Trim(target, "[]")); err == nil {
		return network + netip.AddrPortFrom(a, 514).String()
	}
	return ""
}

// logFormat has the log write a format, and notes what differs.
func (h *haproxy) logFormat(a *accessLog, x *line) {
	parts := haproxyLogParts(strings.Join(x.words[1:], " "))
	var differs []string
	for _, p := range parts {
		if why := haproxyLogDiffers[strings.TrimPrefix(p.name, "%")]; why != "" && !slices.Contains(differs, why) {
			differs = append(differs, why)
		}
	}
	if why := a.useFormat(parts); why != "" {
		differs = append(differs, why)
	}
	if len(differs) > 0 {
		h.l.changed(x.at, "access_log.template", strings.Join(differs, "; "))
		return
	}
	h.l.ok(x.at, "access_log.template")
}
