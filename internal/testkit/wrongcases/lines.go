package wrongcases

import (
	"fmt"
	"strings"
)

// lines are cases of line ends and control characters (RFC 9112 2.2, RFC 9110 5.5).
func lines() []Case {
	g := &group{name: "lines"}
	for _, l := range []struct{ origin, bytes string }{
		{"9112 2.2", "GET /case HTTP/1.1\nHost: a\n\n"},
		{"9112 2.2", "GET /case HTTP/1.1\r\nHost: a\n\r\n"},
		{"9112 2.2", "GET /case HTTP/1.1\nHost: a\r\n\r\n"},
		{"9112 2.2", get + "\n"},
		{"9112 2.2", get + "X: y\n\r\n"},
		{"9112 2.2", get + "X: y\n\n"},
		{"9112 2.2", get + "X: a\rb\r\n\r\n"},
		{"9112 2.2", get + "X: a\r\r\n\r\n"},
		{"9112 2.2", get + "\rX: a\r\n\r\n"},
		{"9112 2.2", get + "X\r: a\r\n\r\n"},
		{"9112 2.2", get + "X:\ra\r\n\r\n"},
		{"http-garden: \\r\\n\\rX", "GET /case HTTP/1.1\r\nHost: a\r\n\rZGET /smuggled: HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"http-garden: CR for CRLF", get + "Visible: :/\rSmuggled: :)\r\n\r\n"},
		{"9112 2.2", "\n" + get + end},
		{"9112 2.2", "\r" + get + end},
		{"9112 2.2", "\r\n\r\n" + get + end},
		{"9112 2.2", " " + get + end},
		{"9112 2.2", "\x00" + get + end},
		{"9112 2.2", "\xef\xbb\xbf" + get + end},
		{"http-garden: LF in the request line", "GET /case\nHTTP/1.1\r\nHost: a\r\n\r\n"},
		{"9112 2.2", get + " " + end + "X: y\r\n\r\n"},
		{"9112 2.2", get + "\t\r\n\r\n"},
		{"9112 2.2", get + "X: a\r\n \r\n\r\n"},
		{"CVE-2024-53008", get + "X: y\r\n\n" + smuggled},
	} {
		g.refused(l.origin, fmt.Sprintf("%q", shorten(strings.TrimPrefix(l.bytes, get))), l.bytes)
	}
	g.passed("9112 2.2", "CR for CRLF", "GET /case HTTP/1.1\rHost: a\r\r", 0).Unfinished = true
	for c := range 0x21 {
		if c == '\t' || c == ' ' || c == '\n' || c == '\r' {
			continue
		}
		g.refused("9110 5.5", fmt.Sprintf("%#02x in a value", c), get+"X: a"+string(rune(c))+"b\r\n"+end)
	}
	g.refused("9110 5.5", "0x7f in a value", get+"X: a\x7fb\r\n"+end)
	g.refused("CVE-2023-40225 family: NUL", "NUL at the end of a value", get+"X: evil\x00\r\n"+end)
	for _, f := range []string{"X: a\r\n b", "X: a\r\n\tb", "X: a\r\n  b\r\n c", "X:\r\n b", "Host: a\r\n b"} {
		g.refused("9112 5.2", fmt.Sprintf("folded %q", f), "GET /case HTTP/1.1\r\n"+f+"\r\nHost: a\r\n"+end)
	}
	g.refused("9112 2.2", "blank before the first field", "GET /case HTTP/1.1\r\n Host: a\r\nX: y\r\n\r\n")
	g.refused("9112 2.2", "tab before the first field", "GET /case HTTP/1.1\r\n\tX: y\r\nHost: a\r\n\r\n")
	return g.cases
}

// names are cases of field names (RFC 9110 5.1, RFC 9112 5.1).
func names() []Case {
	g := &group{name: "field names"}
	for c := range 256 {
		token := c > ' ' && c < 0x7f && !strings.ContainsRune("\"(),/:;<=>?@[\\]{}", rune(c))
		if token || c == ':' || c == '\n' {
			continue
		}
		g.refused("9110 5.6.2", fmt.Sprintf("%#02x in a name", c), get+"X"+string([]byte{byte(c)})+"Y: z\r\n"+end)
	}
	for _, line := range []struct{ origin, text string }{
		{"http-garden: empty name", ": x"},
		{"http-garden: empty name and value", ":"},
		{"9112 5", "X"},
		{"9112 5", "X y"},
		{"9112 5", "=x"},
		{"9112 5.1", "X : y"},
		{"9112 5.1", "X\t: y"},
		{"9112 5.1", "X  : y"},
		{"9112 5.1", " : y"},
		{"9112 5.1", "Host : b"},
		{"http-garden: a second request line", "GET /smuggled HTTP/1.1"},
		{"9112 5", "\"X\": y"},
	} {
		g.refused(line.origin, fmt.Sprintf("line %q", line.text), get+line.text+"\r\n"+end)
	}
	g.passed("9110 5.6.2", "all characters of tokens", get+"X!#$%&'*+-.^_`|~0a: y\r\n"+end, 1).Stricter = "RFC 9110 5.6.2: these are characters of tokens"
	g.passed("9110 5.1", "a name twice", get+"X: a\r\nx: b\r\n"+end, 1)
	return g.cases
}

// versions are cases of the version in the request line (RFC 9112 2.3).
func versions() []Case {
	g := &group{name: "versions"}
	for _, v := range []struct{ origin, text string }{
		{"9112 2.3", "HTTP/1.2"},
		{"http-garden: longest valid prefix", "HTTP/1.32"},
		{"9112 2.3", "HTTP/2.0"},
		{"9112 2.3", "HTTP/3.0"},
		{"9112 2.3", "HTTP/0.9"},
		{"9112 2.3", "HTTP/9.9"},
		{"9112 2.3", "HTTP/1"},
		{"9112 2.3", "HTTP/1."},
		{"9112 2.3", "HTTP/.1"},
		{"9112 2.3", "HTTP/11"},
		{"9112 2.3", "HTTP/01.1"},
		{"9112 2.3", "HTTP/1.01"},
		{"9112 2.3", "HTTP/1.1.1"},
		{"9112 2.3", "HTTP/1,1"},
		{"9112 2.3", "http/1.1"},
		{"9112 2.3", "HTTPS/1.1"},
		{"9112 2.3", "HTTP 1.1"},
		{"9112 2.3", "HTTP/1.1 "},
		{"9112 2.3", "HTTP/1.1\t"},
		{"9112 2.3", " HTTP/1.1"},
		{"9112 2.3", "HTTP/-1.1"},
		{"9112 2.3", "HTTP/1.x"},
		{"9112 2.3", "RTSP/1.0"},
		{"9112 2.3", "HTTP/1.1 HTTP/1.1"},
		{"9112 2.3", "X HTTP/1.1"},
		{"http-garden: CR", "HTTP/\r\r1.1"},
		{"9112 2.3", "HTTP/1.1\x00"},
		{"9112 2.3", "HTTP/\xef\xbc\x91.1"},
		{"9112 2.3", ""},
	} {
		g.refused(v.origin, fmt.Sprintf("%q", v.text), "GET /case "+v.text+"\r\nHost: a\r\n\r\n")
	}
	g.passed("1945 4.1, HTTP/0.9", "GET without a version", "GET /case\r\n", 0).Unfinished = true
	g.refused("1945 4.1, HTTP/0.9", "GET without a version and an empty line", "GET /case\r\n\r\n")
	g.refused("1945 4.1, HTTP/0.9", "GET without a version, with fields", "GET /case\r\nHost: a\r\n\r\n")
	g.refused("9113 3.4", "preface of HTTP/2 without Host", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
	g.refused("9113 3.4", "PRI with HTTP/1.1", "PRI * HTTP/1.1\r\nHost: a\r\n\r\nSM\r\n\r\n")
	g.passed("9112 2.3", "HTTP/1.0", "GET /case HTTP/1.0\r\nHost: a\r\n\r\n", 1)
	g.passed("9112 3.2", "HTTP/1.0 without Host", "GET /case HTTP/1.0\r\n\r\n", Either)
	g.passed("9112 9.3", "HTTP/1.0 closes", "GET /case HTTP/1.0\r\nHost: a\r\n\r\n"+smuggled, 1)
	return g.cases
}

// pipelines are cases where a request that is well formed comes before another.
func pipelines() []Case {
	g := &group{name: "pipelining"}
	put := func(n int, origin, name, bytes string) *Case { return g.passed(origin, name, bytes, n) }
	put(1, "9112 9.3.2", "a request line that is none", good+"garbage\r\n\r\n")
	put(1, "9112 9.3.2", "a second request with two lengths", good+post+"Content-Length: 5\r\nContent-Length: 6\r\n"+end+"hello"+good)
	put(1, "9112 9.3.2", "CL.TE second", good+post+"Content-Length: 5\r\n"+chunked+end+"0\r\n\r\n"+good)
	put(1, "9112 9.3.2", "bare LF second", good+"GET /smuggled HTTP/1.1\nHost: a\n\n")
	put(1, "9112 9.6", "a request behind Connection: close", get+"Connection: close\r\n"+end+smuggled)
	put(1, "9112 9.6", "a request behind Connection: keep-alive, close", get+"Connection: keep-alive, close\r\n"+end+smuggled)
	put(1, "9112 9.3.2", "TLS record second", good+"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
	put(1, "9113 3.4", "preface of HTTP/2 second", good+"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
	put(2, "9112 9.3.2", "content that is longer than its length: the rest is a request with method loGET", post+"Content-Length: 3\r\n"+end+"hel"+"lo"+good).Stricter = "RFC 9110 9.1: methods are an open set of tokens"
	put(2, "http-garden: content that is a request", "content with the length of the request behind it", withLength("", smuggled)+good)
	put(2, "CL.0", "GET with Content-Length: 0", get+"Content-Length: 0\r\n"+end+good)
	put(2, "9112 7.1", "chunks, and a request behind them", post+chunked+end+"5\r\nhello\r\n0\r\n\r\n"+good)
	put(2, "9112 2.2", "an empty line between", good+"\r\n"+good)
	put(1, "9112 2.2", "two empty lines between", good+"\r\n\r\n"+"garbage\r\n\r\n")
	put(3, "9110 9.3.2", "HEAD, whose response has no content", strings.Replace(good, "GET", "HEAD", 1)+good+good)
	c := g.passed("9112 3", "half of a request", good+"GET /smuggled HTTP/1.1\r\nHo", 1)
	c.Unfinished = true
	c = g.passed("9110 10.1.1", "Expect without content behind it", post+"Content-Length: 5\r\nExpect: 100-continue\r\n"+end, Either)
	c.Unfinished = true
	g.passed("9110 10.1.1", "Expect with content", post+"Content-Length: 5\r\nExpect: 100-continue\r\n"+end+"hello"+good, 2)
	g.passed("9110 10.1.1, 0.CL", "Expect with content that is a request", withLength("Expect: 100-continue\r\n", smuggled)+good, 2)
	g.refused("9110 10.1.1", "an expectation that is not known", post+"Content-Length: 5\r\nExpect: 200-ok\r\n"+end+"hello")
	for i, v := range []string{"y 100-continue", "\n100-continue", "100-continue\x00"} {
		g.refused("PortSwigger 2025: Expect", fmt.Sprintf("obfuscated Expect %d", i), withLength("Expect: "+v+"\r\n", smuggled))
	}
	g.refused("9110 10.1.1", "two expectations", withLength("Expect: 100-continue\r\nExpect: 100-continue\r\n", smuggled)+good)
	g.refused("9110 10.1.1", "an expectation twice in a list", withLength("Expect: 100-continue, 100-continue\r\n", smuggled)+good)
	return g.cases
}

// sizes are cases without measure: a proxy bounds what it keeps.
func sizes() []Case {
	g := &group{name: "sizes"}
	const huge = 1 << 20
	g.refused("9112 3, 414", "target", "GET /"+strings.Repeat("a", huge)+" HTTP/1.1\r\nHost: a\r\n\r\n")
	g.refused("9112 3", "target without an end", "GET /"+strings.Repeat("a", huge))
	g.refused("9112 3", "method", strings.Repeat("A", huge)+" /case HTTP/1.1\r\nHost: a\r\n\r\n")
	g.refused("6585 5, 431", "value", get+"X: "+strings.Repeat("a", huge)+"\r\n"+end)
	g.refused("6585 5, 431", "name", get+strings.Repeat("X", huge)+": a\r\n"+end)
	g.refused("6585 5, 431", "line without an end", get+"X: "+strings.Repeat("a", huge))
	g.refused("6585 5, 431", "lines", get+many(20000, "X-%d: "+strings.Repeat("y", 40)+"\r\n")+end)
	g.refused("6585 5, 431", "header without an end", get+many(20000, "X-%d: "+strings.Repeat("y", 40)+"\r\n"))
	g.refused("6585 5, 431", "10000 empty fields", get+many(10000, "X%d:\r\n")+end)
	g.refused("6585 5, 431", "Host", "GET /case HTTP/1.1\r\nHost: "+strings.Repeat("a", huge)+"\r\n\r\n")
	g.refused("9112 2.2", "empty lines", strings.Repeat("\r\n", huge/2))
	g.refused("9112 2.2", "blanks", strings.Repeat(" ", huge))
	g.refused("9112 2.2", "NULs", strings.Repeat("\x00", huge))
	g.refused("8446 5.1", "a TLS handshake", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"+strings.Repeat("\x01", 512)+"\r\n\r\n")
	return g.cases
}
