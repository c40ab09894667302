package convert

import "strings"

// nginxLogFields are fields of the access log by variables of nginx. Of times the gateway has seconds with six digits, and nginx with
// three.
var nginxLogFields = map[string]string{
	"remote_addr": "client_address", "remote_port": "client_port", "realip_remote_addr": "peer_address", "realip_remote_port": "peer_port", "remote_user": "user",
	"time_local": "time_clf", "time_iso8601": "time", "request_method": "method", "request_uri": "path", "server_protocol": "protocol", "status": "status",
	"body_bytes_sent": "bytes_out", "bytes_sent": "bytes_out", "request_length": "bytes_in", "http_referer": "referer", "http_user_agent": "user_agent",
	"host": "host", "http_host": "host", "ssl_protocol": "tls_version", "ssl_cipher": "tls_cipher", "ssl_server_name": "server_name", "request_time": "seconds",
	"upstream_response_time": "backend_seconds", "upstream_header_time": "backend_seconds", "upstream_connect_time": "wait_seconds", "upstream_addr": "backend",
	"upstream_cache_status": "cache", "request_id": "request_id", "uri": "path",
}

// nginxLogDiffers says what variables have that their fields do not.
var nginxLogDiffers = map[string]string{
	"bytes_sent": "bytes_out is without the header", "request_length": "bytes_in is without the header", "uri": "path has the query",
	"upstream_response_time": "backend_seconds ends with the header of the response", "upstream_connect_time": "wait_seconds is up to the begin of the attempt",
	"upstream_addr": "backend is the name of the backend", "ssl_protocol": "tls_version is written with a blank",
}

// nginxLogAs returns what stands for a variable in a template, "" where nothing does.
func nginxLogAs(name string) string {
	if name == "request" {
		return requestLine
	}
	if field := nginxLogFields[name]; field != "" {
		return asField(field)
	}
	if header, ok := strings.CutPrefix(name, "http_"); ok {
		return headerField(strings.ReplaceAll(header, "_", "-"))
	}
	return ""
}

// nginxLogParts divides a format of nginx.
func nginxLogParts(format string) (parts []logPart) {
	for format != "" {
		text, rest, ok := strings.Cut(format, "$")
		if text != "" {
			parts = append(parts, logPart{text: text})
		}
		if !ok {
			break
		}
		name := ""
		if inner, after, closed := strings.Cut(strings.TrimPrefix(rest, "{"), "}"); strings.HasPrefix(rest, "{") && closed {
			name, format = inner, after
		} else {
			end := strings.IndexFunc(rest, func(r rune) bool {
				return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_')
			})
			if end < 0 {
				end = len(rest)
			}
			name, format = rest[:end], rest[end:]
		}
		if name == "" {
			parts = append(parts, logPart{text: "$"})
			continue
		}
		parts = append(parts, logPart{name: "$" + name, as: nginxLogAs(name)})
	}
	return parts
}

// logFormats are the formats of a file by name.
func (n *nginx) logFormats(list []*directive, to map[string]*directive) {
	for _, d := range list {
		if d.name == "log_format" {
			to[d.arg(0)] = d
		}
	}
}

// nginxCombined is the format that a log has without another one.
const nginxCombined = `$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent"`

// logFormat has the log write the format of a name, and notes what differs at the place of the format.
func (n *nginx) logFormat(a *accessLog, name string, formats map[string]*directive) {
	d := formats[name]
	if d == nil {
		if name == "" || name == "combined" {
			a.useFormat(nginxLogParts(nginxCombined))
		}
		return
	}
	var texts []string
	for _, arg := range d.args[min(len(d.args), 1):] {
		texts = append(texts, arg.text)
	}
	json := false
	if len(texts) > 0 && strings.HasPrefix(texts[0], "escape=") {
		json, texts = texts[0] == "escape=json", texts[1:]
	}
	text := strings.Join(texts, "")
	parts := nginxLogParts(text)
	var differs []string
	for _, p := range parts {
		if why := nginxLogDiffers[strings.TrimPrefix(p.name, "$")]; why != "" {
			differs = append(differs, why)
		}
	}
	keys := "access_log.template"
	if json && strings.HasPrefix(strings.TrimSpace(text), "{") {
		_, fields, unknown := templateOf(parts)
		keys, a.fields = "access_log.fields", fields
		differs = append(differs, "members have the gateway's names")
		if len(unknown) > 0 {
			differs = append(differs, "the gateway has no "+strings.Join(unknown, ", "))
		}
	} else if why := a.useFormat(parts); why != "" {
		differs = append(differs, why)
	}
	if a.format == "combined" {
		keys = "access_log.format"
	}
	if len(differs) > 0 {
		n.l.changed(d.at, keys, strings.Join(differs, "; "))
		return
	}
	n.l.ok(d.at, keys)
}

// logs translates access_log: the first is the log of all requests.
func (n *nginx) logs(sc *scope) {
	formats := map[string]*directive{}
	n.logFormats(sc.list, formats)
	defer func() {
		for name, d := range formats { // those of no log, or of another one
			n.l.unneeded(d.at, "no log has the format "+name)
		}
	}()
	var walk func(list []*directive, top bool)
	walk = func(list []*directive, top bool) {
		for _, d := range list {
			switch {
			case d.name == "access_log" && d.arg(0) == "off" && !top:
				n.l.changed(d.at, "", "there is one log for all requests")
			case d.name == "access_log" && d.arg(0) == "off":
				n.l.unneeded(d.at, "there is no log without access_log")
			case d.name == "access_log":
				n.accessLog(d, formats)
			}
			if d.name == "server" || d.name == "location" {
				walk(d.block, false)
			}
		}
	}
	walk(sc.list, true)
}

// accessLog translates one line of access_log.
func (n *nginx) accessLog(d *directive, formats map[string]*directive) {
	a := &accessLog{file: d.arg(0)}
	switch {
	case a.file == "/dev/stdout" || a.file == "/dev/stderr":
		a.file = "-"
	case strings.HasPrefix(a.file, "syslog:"):
		if a.file, a.syslog, a.facility = "", nginxSyslog(a.file), "local7"; a.syslog == "" {
			n.l.left(d.at, "the server of syslog has a name, and needs an address", "write access_log.syslog")
			return
		}
		for _, part := range strings.Split(strings.TrimPrefix(d.arg(0), "syslog:"), ",") {
			if f, ok := strings.CutPrefix(part, "facility="); ok {
				a.facility = f
			}
		}
	case a.file == "" || strings.Contains(a.file, "$") || !printable(a.file):
		n.l.left(d.at, "the name of the log has a variable", "one log has all requests, with their route and host")
		return
	default:
		a.file = n.s.path(a.file)
	}
	format := ""
	if arg := d.arg(1); !strings.Contains(arg, "=") && arg != "gzip" {
		format = arg
	}
	if n.m.accessLog != nil {
		n.l.changed(d.at, "access_log", "one log for all hosts, with the format of the first")
		return
	}
	n.m.accessLog = a
	n.logFormat(a, format, formats)
	for _, arg := range d.args[min(len(d.args), 1):] {
		if strings.HasPrefix(arg.text, "if=") || strings.HasPrefix(arg.text, "gzip") {
			n.l.changed(d.at, "access_log", "all requests are logged, without compression")
		}
	}
	n.l.ok(d.at, "access_log")
}

// nginxSyslog returns the address of a server of syslog, "" where it is none of the gateway's.
func nginxSyslog(text string) string {
	for _, part := range strings.Split(strings.TrimPrefix(text, "syslog:"), ",") {
		server, ok := strings.CutPrefix(part, "server=")
		if !ok {
			continue
		}
		if strings.HasPrefix(server, "unix:") {
			return server
		}
		return syslogAddress(server)
	}
	return ""
}
