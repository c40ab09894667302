package health

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestMistakesAreFoundByTheirKeys(t *testing.T) {
	for _, c := range []struct {
		name, keys string
		change     func(c *Check)
	}{
		{"none", "", func(*Check) {}},
		{"least", "", func(c *Check) { c.Interval, c.Timeout, c.Rise, c.Fall = 10*time.Millisecond, 10*time.Millisecond, 1, 1 }},
		{"most", "", func(c *Check) { c.Interval, c.Timeout, c.Rise, c.Fall = time.Hour, time.Hour, 100, 100 }},
		{"too little", "interval rise fall", func(c *Check) { c.Interval, c.Rise, c.Fall = 9*time.Millisecond, 0, 0 }},
		{"too much", "interval rise fall", func(c *Check) { c.Interval, c.Rise, c.Fall = time.Hour+1, 101, 101 }},
		{"a short timeout", "timeout", func(c *Check) { c.Timeout = 9 * time.Millisecond }},
		{"a long timeout", "timeout", func(c *Check) { c.Timeout = c.Interval + 1 }},
		{"an unknown type", "type", func(c *Check) { c.Type = "icmp" }},
		{"HTTP", "", func(c *Check) { c.Type = TypeHTTP }},
		{"what is not HTTP's does not count", "", func(c *Check) { c.HTTP = HTTP{}; c.UDP = UDP{} }},
		{"empty HTTP", "http.method http.path http.status", func(c *Check) { c.Type, c.HTTP = TypeHTTP, HTTP{} }},
		{"paths", "http.path", func(c *Check) { c.Type, c.HTTP.Path = TypeHTTP, "http://x/" }},
		{"paths with a space", "http.path", func(c *Check) { c.Type, c.HTTP.Path = TypeHTTP, "/a b" }},
		{"paths with a line", "http.path", func(c *Check) { c.Type, c.HTTP.Path = TypeHTTP, "/a\r\nb" }},
		{"fragments", "http.path", func(c *Check) { c.Type, c.HTTP.Path = TypeHTTP, "/a#b" }},
		{"hosts", "", func(c *Check) { c.Type, c.HTTP.Host = TypeHTTP, "[2001:db8::1]:80" }},
		{"hosts with a path", "http.host", func(c *Check) { c.Type, c.HTTP.Host = TypeHTTP, "a/b" }},
		{"hosts with a user", "http.host", func(c *Check) { c.Type, c.HTTP.Host = TypeHTTP, "a@b" }},
		{"hosts with a query", "http.host", func(c *Check) { c.Type, c.HTTP.Host = TypeHTTP, "a?b" }},
		{"hosts with a line", "http.host", func(c *Check) { c.Type, c.HTTP.Host = TypeHTTP, "a\r\nX: y" }},
		{"much to look for", "http.body", func(c *Check) { c.Type, c.HTTP.Body = TypeHTTP, strings.Repeat("a", 4097) }},
		{"HTTPS in HTTP", "http.server_name http.insecure http.ca_file", func(c *Check) {
			c.Type, c.HTTP.ServerName, c.HTTP.Insecure, c.HTTP.CAFile = TypeHTTP, "a", true, "/x"
		}},
		{"names", "http.server_name", func(c *Check) { c.Type, c.HTTP.ServerName = TypeHTTPS, "a:443" }},
		{"UDP", "udp.send", func(c *Check) { c.Type = TypeUDP }},
		{"large datagrams", "udp.send", func(c *Check) { c.Type, c.UDP.Send = TypeUDP, make([]byte, 1201) }},
		{"the largest", "", func(c *Check) { c.Type, c.UDP.Send, c.UDP.Expect = TypeUDP, make([]byte, 1200), make([]byte, 4096) }},
		{"more than is read", "udp.expect", func(c *Check) { c.Type, c.UDP.Send, c.UDP.Expect = TypeUDP, []byte("a"), make([]byte, 4097) }},
		{"silence", "udp.silence", func(c *Check) { c.Type, c.UDP = TypeUDP, UDP{Send: []byte("a")} }},
		{"silence and an answer", "udp.silence", func(c *Check) {
			c.Type, c.UDP = TypeUDP, UDP{Send: []byte("a"), Expect: []byte("b"), Silence: SilenceSuccess}
		}},
		{"no command", "command", func(c *Check) { c.Type = TypeCommand }},
		{"a command", "", func(c *Check) { c.Type, c.Command = TypeCommand, []string{"/bin/true", ""} }},
		{"a relative one", "command", func(c *Check) { c.Type, c.Command = TypeCommand, []string{"true"} }},
		{"a folder", "command", func(c *Check) { c.Type, c.Command = TypeCommand, []string{"/bin"} }},
		{"a text", "command", func(c *Check) { c.Type, c.Command = TypeCommand, []string{"/etc/passwd"} }},
		{"a zero byte", "command", func(c *Check) { c.Type, c.Command = TypeCommand, []string{"/bin/true", "a\x00"} }},
		{"65 words", "command", func(c *Check) { c.Type, c.Command = TypeCommand, slices.Repeat([]string{"/bin/true"}, 65) }},
	} {
		check := New()
		c.change(check)
		var keys []string
		for _, p := range check.Validate() {
			keys = append(keys, p.Key)
			if _, last, _ := strings.Cut("."+p.Key, "."); !strings.Contains(p.Message, last[strings.LastIndex(last, ".")+1:]) {
				t.Errorf("%s: the message %q does not name %s", c.name, p.Message, p.Key)
			}
		}
		if got := strings.Join(keys, " "); got != c.keys {
			t.Errorf("%s: mistakes in %q, want %q", c.name, got, c.keys)
		}
	}
}

func TestMistakesInPassiveAreFoundByTheirKeys(t *testing.T) {
	ok := []Passive{*NewPassive(), {1, time.Second, time.Second, time.Second, 0}, {1_000_000, time.Hour, 24 * time.Hour, 24 * time.Hour, 100}}
	for _, p := range ok {
		if got := p.Validate(); len(got) != 0 {
			t.Errorf("%+v: %v", p, got)
		}
	}
	for keys, p := range map[string]Passive{
		"failures window down max_down max_ejected": {0, time.Second - 1, time.Second - 1, time.Second - 1, -1},
		"failures window down max_ejected":          {1_000_001, time.Hour + 1, 24*time.Hour + 1, 24 * time.Hour, 101},
		"max_down":                                  {1, time.Second, 2 * time.Second, time.Second, 0},
	} {
		var got []string
		for _, m := range p.Validate() {
			if !slices.Contains(got, m.Key) {
				got = append(got, m.Key)
			}
		}
		if keys == "failures window down max_ejected" {
			got = slices.DeleteFunc(got, func(k string) bool { return k == "max_down" })
		}
		if strings.Join(got, " ") != keys {
			t.Errorf("%+v: %v, want %s", p, got, keys)
		}
	}
}
