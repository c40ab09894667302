package health

import (
	"crypto/x509"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/regfile"
)

// Limits of a check.
const (
	minInterval = 10 * time.Millisecond
	maxInterval = time.Hour
	maxStreak   = 100
	maxSend     = 1200 // bytes: fits every path (RFC 9000 14)
	maxExpect   = 4096
	maxBody     = 64 << 10
	maxArgs     = 64
	maxCA       = 4 << 20
)

// Problem is a mistake in a Check or a Passive.
type Problem struct {
	Key     string // path of the key below the check, such as "http.path"
	Message string // what is wrong, beginning with the key
	Hint    string // what would be right; may be empty
}

// problems collects mistakes.
type problems []Problem

// require notes a mistake of a key unless ok.
func (p *problems) require(ok bool, key, hint, format string, args ...any) {
	if !ok {
		*p = append(*p, Problem{key, fmt.Sprintf(format, args...), hint})
	}
}

// span requires that v lies between least and most.
func (p *problems) span(key string, v, least, most time.Duration) {
	p.require(least <= v && v <= most, key, "", "%s is %v; it must lie between %v and %v", key, v, least, most)
}

// count requires that v lies between least and most.
func (p *problems) count(key string, v, least, most int) {
	p.require(least <= v && v <= most, key, "", "%s is %d; it must lie between %d and %d", key, v, least, most)
}

// Validate returns what is wrong with the check. It looks for the program of a command and reads
// the file of authorities, whose present contents become part of the check.
func (c *Check) Validate() []Problem {
	var p problems
	p.span("interval", c.Interval, minInterval, maxInterval)
	if len(p) == 0 { // else the timeout, which may follow from the interval, says nothing
		p.span("timeout", c.Timeout, minInterval, maxInterval)
	}
	p.require(len(p) > 0 || c.Timeout <= c.Interval, "timeout", "", "timeout %v is longer than the interval %v", c.Timeout, c.Interval)
	p.count("rise", c.Rise, 1, maxStreak)
	p.count("fall", c.Fall, 1, maxStreak)
	switch c.Type {
	case TypeTCP:
		p = append(p, validateSteps(c.TCP)...)
	case TypeHTTP, TypeHTTPS:
		p = append(p, c.HTTP.validate(c.Type == TypeHTTPS)...)
	case TypeGRPC, TypeGRPCS:
		p = append(p, c.GRPC.validate(c.Type == TypeGRPCS)...)
	case TypeUDP:
		p = append(p, c.UDP.validate()...)
	case TypeCommand:
		p = append(p, validateCommand(c.Command)...)
	default:
		p.require(false, "type", "", "type cannot be %q", c.Type)
	}
	return p
}

// methods are those that ask and change nothing, and POST for those who have built it so.
var methods = []string{http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodPost}

func (h *HTTP) validate(tls bool) problems {
	var p problems
	p.require(slices.Contains(methods, h.Method), "http.method", "allowed: "+strings.Join(methods, ", "), "method cannot be %q", h.Method)
	u, err := url.ParseRequestURI(h.Path)
	p.require(err == nil && strings.HasPrefix(h.Path, "/") && u.Fragment == "" && !strings.ContainsAny(h.Path, " #"), "http.path",
		"such as /health?full=1", "path is not one of a URL: %q", h.Path)
	p.require(validHost(h.Host), "http.host", "a name or address, with a port if need be", "host is not one of a URL: %q", h.Host)
	p.require(len(h.Status) > 0, "http.status", "such as 200-399", "status is empty")
	p.require(len(h.Body) <= maxExpect, "http.body", "", "body has %d bytes; at most %d are allowed", len(h.Body), maxExpect)
	p.require(h.Body == "" || h.Method != http.MethodHead, "http.body", "take GET", "body cannot be looked for: answers to HEAD have none")
	if !tls {
		p.require(h.ServerName == "", "http.server_name", "set `type: https`", "server_name is for https")
		p.require(!h.Insecure, "http.insecure", "set `type: https`", "insecure is for https")
		p.require(h.CAFile == "", "http.ca_file", "set `type: https`", "ca_file is for https")
		return p
	}
	p.require(!strings.ContainsAny(h.ServerName, " /:[]"), "http.server_name", "a name without port", "server_name is not a name: %q", h.ServerName)
	p.require(h.CAFile == "" || !h.Insecure, "http.ca_file", "remove one", "ca_file counts for nothing when insecure is true")
	return append(p, h.readCA()...)
}

// validHost reports whether a Host header can be sent (RFC 9110 7.2).
func validHost(s string) bool {
	u, err := url.Parse("http://" + s + "/")
	return s == "" || err == nil && u.Host == s && u.User == nil && u.Path == "/"
}

// readCA reads the file of authorities.
func (h *HTTP) readCA() (p problems) {
	h.CA = ""
	if h.CAFile == "" {
		return nil
	}
	pem, err := regfile.Read(h.CAFile, maxCA)
	p.require(err == nil, "http.ca_file", "", "ca_file: %v", err)
	p.require(err != nil || x509.NewCertPool().AppendCertsFromPEM(pem), "http.ca_file", "certificates in PEM", "ca_file %s has no certificate", h.CAFile)
	h.CA = string(pem)
	return p
}

func (u *UDP) validate() problems {
	var p problems
	p.require(len(u.Send) > 0, "udp.send", "a text, or send_hex", "send is required with `type: udp`")
	p.require(len(u.Send) <= maxSend, "udp.send", "", "send has %d bytes; at most %d are allowed", len(u.Send), maxSend)
	p.require(len(u.Expect) <= maxExpect, "udp.expect", "", "expect has %d bytes; at most %d are allowed", len(u.Expect), maxExpect)
	p.require(u.Silence == SilenceFailure || u.Silence == SilenceSuccess, "udp.silence", "allowed: failure, success", "silence cannot be %q", u.Silence)
	p.require(u.Silence != SilenceSuccess || len(u.Expect) == 0, "udp.silence", "remove one", "silence cannot be a success when an answer is expected")
	return p
}

// validateCommand requires a program that can be run.
func validateCommand(argv []string) (p problems) {
	if len(argv) == 0 {
		p.require(false, "command", "such as [/usr/local/bin/check, --fast]", "command is required with `type: command`")
		return p
	}
	p.count("command", len(argv), 1, maxArgs)
	for _, arg := range argv {
		p.require(!strings.ContainsRune(arg, 0), "command", "", "command has an argument with a zero byte")
	}
	if !filepath.IsAbs(argv[0]) {
		p.require(false, "command", "no shell looks for it", "command needs the program's absolute path, not %q", argv[0])
		return p
	}
	st, err := os.Stat(argv[0])
	p.require(err == nil, "command", "", "command: %v", err)
	p.require(err != nil || st.Mode().IsRegular() && st.Mode()&0o111 != 0, "command", "chmod +x", "command %s is not a program", argv[0])
	return p
}
