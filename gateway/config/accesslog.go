package config

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/millrace/millrace/internal/strictyaml"
	"github.com/millrace/millrace/l7/accesslog"
)

// AccessLog configures where a line is written for each request and each stream, and what it has. Lines that do not fit the buffer
// are counted and dropped: a slow disk does not delay requests.
type AccessLog struct {
	File     string    // key "file": path, relative to the configuration file's folder, or "-", the standard output; this or Syslog
	Buffer   int       // key "buffer": bytes that may wait, default 1048576
	Format   LogFormat // key "format", default "json"
	Fields   []string  // key "fields", of "json": in their order; none are the usual ones
	Template string    // key "template", of "text"
	Rotate   LogRotation
	Sample   LogSample
	Syslog   *LogSyslog // key "syslog": a server in place of a file; nil is none
}

// LogFormat is the form of lines.
type LogFormat string

// Values of LogFormat.
const (
	LogJSON     LogFormat = "json"
	LogCombined LogFormat = "combined" // the combined log format, as of Apache httpd and nginx
	LogText     LogFormat = "text"     // a template
)

// LogRotation bounds the file of a log.
type LogRotation struct {
	Size int64 // key "rotate.size": bytes after which another file begins, default 0: never
	Keep int   // key "rotate.keep": files that are kept beside it, default 5
}

// LogSample selects the requests that have a line. Failures always have one.
type LogSample struct {
	OneIn int           // key "sample.one_in": a line for one in so many, default 1: for each
	Slow  time.Duration // key "sample.slow": requests that took as long always have one; default 0: none for that
}

// LogSyslog is a server that takes lines as messages (RFC 5424).
type LogSyslog struct {
	Network  string // of key "syslog.address", before the colon: "unix", "udp" or "tcp"
	Address  string // and what follows it
	Facility string // key "syslog.facility", default "local0"
	App      string // key "syslog.app_name", default "millrace"
}

// Used reports whether there is a log.
func (a *AccessLog) Used() bool { return a.File != "" || a.Syslog != nil }

// Layout returns what lines have.
func (a *AccessLog) Layout() (*accesslog.Layout, error) {
	switch a.Format {
	case LogCombined:
		return accesslog.Text(accesslog.Combined)
	case LogText:
		return accesslog.Text(a.Template)
	}
	return accesslog.JSON(a.Fields)
}

func newAccessLog() AccessLog {
	return AccessLog{Buffer: 1 << 20, Format: LogJSON, Rotate: LogRotation{Keep: 5}, Sample: LogSample{OneIn: 1}}
}

func (d *l7Decoder) accessLog(n *yaml.Node, a *AccessLog) {
	d.Mapping(n, "access_log",
		strictyaml.Optional("file", func(n *yaml.Node) { d.Text(n, "file", &a.File) }),
		strictyaml.Optional("buffer", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "buffer", &a.Buffer, 64<<10, 1<<30) }),
		strictyaml.Optional("format", func(n *yaml.Node) {
			strictyaml.Choice(d.Decoder, n, "format", &a.Format, LogJSON, LogCombined, LogText)
		}),
		strictyaml.Optional("fields", func(n *yaml.Node) {
			d.List(n, "fields", 64, func(n *yaml.Node) { readLogField(d, n, a) })
		}),
		strictyaml.Optional("template", func(n *yaml.Node) {
			if d.Text(n, "template", &a.Template) {
				if _, err := accesslog.Text(a.Template); err != nil {
					d.Fail(n, logFieldsHint, "template: %v", err)
				}
			}
		}),
		strictyaml.Optional("rotate", func(n *yaml.Node) {
			d.Mapping(n, "rotate",
				strictyaml.Required("size", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "size", &a.Rotate.Size, 4096, 1<<40) }),
				strictyaml.Optional("keep", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "keep", &a.Rotate.Keep, 1, 1000) }),
			)
		}),
		strictyaml.Optional("sample", func(n *yaml.Node) {
			d.Mapping(n, "sample",
				strictyaml.Required("one_in", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "one_in", &a.Sample.OneIn, 1, 1e6) }),
				strictyaml.Optional("slow", func(n *yaml.Node) { d.Duration(n, "slow", &a.Sample.Slow, 0, time.Hour) }),
			)
		}),
		strictyaml.Optional("syslog", func(n *yaml.Node) { readLogSyslog(d, n, a) }),
	)
}

const logFieldsHint = "docs/http-gateway.md#access-log lists the fields"

// readLogField reads the name of a field of lines.
func readLogField(d *l7Decoder, n *yaml.Node, a *AccessLog) {
	name := ""
	if !d.Text(n, "fields", &name) {
		return
	}
	if err := accesslog.CheckField(name); err != nil {
		hint := logFieldsHint
		if !strings.HasPrefix(name, "header.") {
			hint = d.Hint(name, accesslog.Fields())
		}
		d.Fail(n, hint, "fields: %v", err)
		return
	}
	if slices.Contains(a.Fields, name) {
		d.Fail(n, "leave it out", "%q is in fields already", name)
		return
	}
	a.Fields = append(a.Fields, name)
}

// readLogSyslog reads a server, and where lines are filed there.
func readLogSyslog(d *l7Decoder, n *yaml.Node, a *AccessLog) {
	s := &LogSyslog{Facility: "local0", App: "millrace"}
	d.Mapping(n, "syslog",
		strictyaml.Required("address", func(n *yaml.Node) {
			address := ""
			if !d.Text(n, "address", &address) {
				return
			}
			var ok bool
			s.Network, s.Address, ok = strings.Cut(address, ":")
			switch {
			case s.Network == "unix" && strings.HasPrefix(s.Address, "/") && len(s.Address) < 108:
			case ok && (s.Network == "udp" || s.Network == "tcp") && isAddrPort(s.Address):
			default:
				d.Fail(n, "such as unix:/dev/log, udp:192.0.2.1:514 or tcp:[2001:db8::1]:601", "address must be unix:/path, udp:IP:port or tcp:IP:port, not %s", strictyaml.Kind(n))
			}
		}),
		strictyaml.Optional("facility", func(n *yaml.Node) {
			strictyaml.Choice(d.Decoder, n, "facility", &s.Facility, accesslog.Facilities...)
		}),
		strictyaml.Optional("app_name", func(n *yaml.Node) {
			if d.Text(n, "app_name", &s.App) && (len(s.App) > 48 || strings.Trim(s.App, printable) != "") {
				d.Fail(n, "such as edge-gateway", "app_name has at most 48 printable characters of ASCII, and no space")
			}
		}),
	)
	a.Syslog = s
}

// printable are the characters of PRINTUSASCII (RFC 5424 6).
var printable = func() (s string) {
	for c := '!'; c <= '~'; c++ {
		s += string(c)
	}
	return s
}()

func isAddrPort(s string) bool {
	a, err := netip.ParseAddrPort(s)
	return err == nil && a.Port() != 0
}

// checkAccessLog reports a log without a target, or with two, and a template that is missing.
func (d *checker) checkAccessLog(c *Config) {
	at, a := d.places.keys["access_log"], &c.AccessLog
	if at == nil || at.Kind != yaml.MappingNode || d.FailedAt(at) {
		return
	}
	switch {
	case d.Find(at, "file") != nil && a.Syslog != nil:
		d.Fail(at, "leave one of them out", "access_log has both file and syslog")
	case d.Find(at, "file") == nil && d.Find(at, "syslog") == nil:
		d.Fail(at, "add file: access.log, or syslog", "access_log lacks file or syslog")
	case a.Format == LogText && d.Find(at, "template") == nil:
		d.Fail(at, "add it, or set `format: combined`", "access_log lacks template, which `format: text` needs")
	}
}
