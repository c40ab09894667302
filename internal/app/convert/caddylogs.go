package convert

import (
	"strconv"
	"strings"
)

// Sizes of a log of Caddy that states none: it is rotated after 100 MiB, and 10 files stay.
const (
	caddyLogSize = 100 << 20
	caddyLogKeep = 10
)

// log translates the log of requests.
func (c *caddy) log(d *directive) {
	a, discarded := &accessLog{file: "-"}, false
	c.l.changed(d.at, "access_log", "one log for all hosts, and members of lines have the gateway's names")
	for _, o := range d.block {
		switch {
		case o.name == "output" && o.arg(0) == "file" && printable(o.arg(1)) && o.arg(1) != "" && !strings.Contains(o.arg(1), "{"):
			a.file, a.size, a.keep = c.s.path(o.arg(1)), caddyLogSize, caddyLogKeep
			c.logRotation(o, a)
			c.l.ok(o.at, "access_log.file")
		case o.name == "output" && o.arg(0) == "discard":
			discarded = true
			c.l.unneeded(o.at, "there is no log without access_log")
		case o.name == "output" && o.arg(0) != "stdout" && o.arg(0) != "stderr":
			c.whole(o, Left, "the log is a file, standard output or a server of syslog", "write access_log")
		case o.name == "format":
			c.whole(o, Changed, "lines are JSON, and members have the gateway's names", "")
		case o.name == "output":
			c.l.ok(o.at, "access_log.file")
		default:
			c.whole(o, Changed, "all requests are logged", "")
		}
	}
	if c.m.accessLog == nil && !discarded {
		c.m.accessLog = a
	}
}

// logRotation translates options of a file.
func (c *caddy) logRotation(o *directive, a *accessLog) {
	for _, r := range o.block {
		switch r.name {
		case "roll_disabled":
			a.size = 0
			c.l.ok(r.at, "access_log.rotate")
		case "roll_size":
			size, ok := caddySize(r.arg(0))
			if !ok || size < 4096 {
				c.l.left(r.at, "it is no size that can be read", "write access_log.rotate.size")
				continue
			}
			a.size = size
			c.l.ok(r.at, "access_log.rotate.size")
		case "roll_keep":
			if a.keep = atoi(r.arg(0)); a.keep < 1 || a.keep > 1000 {
				a.keep = caddyLogKeep
				c.l.left(r.at, "1 to 1000 files are kept", "")
				continue
			}
			c.l.ok(r.at, "access_log.rotate.keep")
		default:
			c.l.changed(r.at, "", "files are kept by their number, and not compressed")
		}
	}
}

// caddySize reads a size such as 100MiB; a number alone is of MiB.
func caddySize(text string) (int64, bool) {
	digits := strings.TrimRight(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ")
	factor, ok := map[string]int64{"": 1 << 20, "b": 1, "kb": 1e3, "k": 1e3, "kib": 1 << 10, "mb": 1e6, "m": 1e6, "mib": 1 << 20, "gb": 1e9, "g": 1e9, "gib": 1 << 30}[strings.ToLower(strings.TrimSpace(text[len(digits):]))]
	n, err := strconv.ParseUint(digits, 10, 20)
	return int64(n) * factor, ok && err == nil
}
