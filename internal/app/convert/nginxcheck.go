package convert

import "strings"

// check notes mistakes of values that nginx itself would refuse, in all blocks: ports, times and sizes. All are found before anything
// is translated, so that they are reported at once.
func (n *nginx) check(list []*directive, within string) {
	for _, d := range list {
		arg := d.arg(0)
		constant := !strings.Contains(arg, "$") && arg != ""
		switch {
		case d.name == "listen" && !strings.HasPrefix(arg, "unix:"):
			if last := arg[strings.LastIndexByte(arg, ':')+1:]; !strings.Contains(last, "-") {
				n.s.port(d.at, arg)
			}
		case d.name == "server" && within == "upstream" && strings.Contains(arg, ":") && !strings.HasPrefix(arg, "unix:"):
			n.s.port(d.at, arg)
		case d.name == "proxy_pass" && constant && !strings.Contains(arg, "unix:"):
			_, rest, found := strings.Cut(arg, "://")
			if !found {
				rest = arg
			}
			if host, _, _ := strings.Cut(rest, "/"); strings.Contains(host, ":") {
				n.s.port(d.at, host)
			}
		case strings.HasSuffix(d.name, "_timeout") && nginxRead[d.name] && constant:
			if _, ok := nginxTime(arg); !ok {
				n.s.mistake(d.at, "such as 30s", "%s is no time", shorten(arg))
			}
		case (d.name == "client_max_body_size" || d.name == "proxy_buffer_size") && constant:
			if _, ok := size(arg); !ok {
				n.s.mistake(d.at, "such as 10m", "%s is no size", shorten(arg))
			}
		}
		n.check(d.block, d.name)
	}
}
