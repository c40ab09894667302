package wrongcases

import (
	"fmt"
	"strings"
)

// chunks are cases of the chunked coding (RFC 9112 7.1).
func chunks() []Case {
	g := &group{name: "chunks"}
	body := func(s string) string { return post + chunked + end + s }
	for _, size := range []struct{ origin, text string }{
		{"9112 7.1", "0x5"},
		{"9112 7.1", "+5"},
		{"9112 7.1", "-5"},
		{"9112 7.1", " 5"},
		{"9112 7.1", "\t5"},
		{"9112 7.1", "5 "},
		{"9112 7.1", "5\t"},
		{"9112 7.1", "5\v"},
		{"9112 7.1", "5\x00"},
		{"9112 7.1", "5h"},
		{"9112 7.1", "h"},
		{"9112 7.1", ""},
		{"CVE-2023-47627", "0_5"},
		{"http-garden: longest valid prefix", "5these-bytes"},
		{"9112 7.1, overflow", "10000000000000005"},
		{"9112 7.1, overflow", "fffffffffffffffb"},
		{"9112 7.1, overflow", "ffffffffffffffff5"},
		{"9112 7.1, overflow", "100000000000000000000000000000005"},
		{"9112 7.1, overflow", "8000000000000005"},
		{"9112 7.1", "5,"},
		{"9112 7.1", "5.0"},
		{"9112 7.1", "\"5\""},
		{"9112 7.1", "\xef\xbc\x95"},
		{"9112 7.1", "5="},
		{"9112 7.1", "5:a"},
		{"9112 7.1, leading zeros", strings.Repeat("0", 40) + "5"},
	} {
		g.refused(size.origin, fmt.Sprintf("size %q", size.text), body(size.text+"\r\nhello\r\n0\r\n\r\n"))
	}
	for _, line := range []struct{ origin, text string }{
		{"9112 7.1", "5\nhello\r\n0\r\n\r\n"},
		{"9112 7.1", "5\rhello\r\n0\r\n\r\n"},
		{"CVE-2023-30589", "5\r\rhello\r\n0\r\n\r\n"},
		{"9112 7.1", "5\r\nhello\n0\r\n\r\n"},
		{"9112 7.1", "5\r\nhello0\r\n\r\n"},
		{"9112 7.1", "5\r\nhello\r0\r\n\r\n"},
		{"9112 7.1", "5\r\nhelloXX0\r\n\r\n"},
		{"9112 7.1, spill", "5\r\nhello!\r\n0\r\n\r\n"},
		{"9112 7.1, spill", "5\r\nhell\r\n0\r\n\r\n"},
		{"http-garden: empty size", "\r\n\r\n"},
		{"http-garden: extra CRLF", "5\r\nhello\r\n\r\n0\r\n\r\n"},
		{"9112 7.1", "0\n\r\n"},
		{"9112 7.1", "0\r\n\n"},
		{"9112 7.1", "0\r\n\rX"},
		{"CVE-2023-40175", "0\r\nXXGET /smuggled HTTP/1.1\r\n\r\n"},
		{"9112 7.1", "\r\n5\r\nhello\r\n0\r\n\r\n"},
		{"9112 7.1", "00x\r\n\r\n"},
		{"http-garden: invalid chunk", "INVALID!!!\r\n" + smuggled},
	} {
		g.refused(line.origin, fmt.Sprintf("lines %q", shorten(line.text)), body(line.text+smuggled))
	}
	g.extensions(body)
	g.trailers(body)
	g.passed("9112 7.1", "leading zeros", body("0005\r\nhello\r\n000\r\n\r\n"), 1).Present = []string{"hello"}
	g.passed("9112 7.1", "upper and lower case", body("A\r\n0123456789\r\na\r\n0123456789\r\n0\r\n\r\n"), 1)
	g.passed("9112 7.1", "a chunk that looks like a request", body(fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(smuggled), smuggled)), 1).Present = []string{"/smuggled"}
	c := g.passed("9112 8", "content that is cut", body("ff\r\nhello"), 0)
	c.Unfinished = true
	c = g.passed("9112 8", "content without the last chunk", body("5\r\nhello\r\n"), 0)
	c.Unfinished = true
	return g.cases
}

// extensions are cases of RFC 9112 7.1.1. They are legal, and nobody uses them: what matters is that all find the end of the
// line in the same place ("funky chunks").
func (g *group) extensions(body func(string) string) {
	for _, ext := range []struct{ origin, text string }{
		{"funky chunks: TERM.EXT", ";\nxx"},
		{"funky chunks: TERM.EXT", ";\r"},
		{"funky chunks: TERM.EXT", ";a\n"},
		{"funky chunks: TERM.EXT", ";a\rX"},
		{"funky chunks: TERM.EXT", ";a\r\r"},
		{"CVE-2023-30589", "\r;a"},
		{"http-garden: CR before the semicolon", "\r\r;ABCD"},
		{"9112 7.1.1", ";a=\"b\r\n"},
		{"9112 7.1.1", ";a=\"b"},
		{"9112 7.1.1", ";a=\x00"},
		{"9112 7.1.1", ";a=\"\x01\""},
		{"9112 7.1.1", ";=b"},
		{"9112 7.1.1", ";"},
		{"9112 7.1.1", ";;"},
		{"9112 7.1.1", " a"},
		{"9112 7.1.1", ";a b"},
		{"9112 7.1.1", ";a=b c"},
		{"9112 7.1.1", ";a=\"b\"c"},
		{"9112 7.1.1", ";a=\x7f"},
		{"CVE-2020-11080, long", ";a=" + strings.Repeat("x", 200<<10)},
	} {
		g.refused(ext.origin, fmt.Sprintf("extension %q", shorten(ext.text)), body("5"+ext.text+"\r\nhello\r\n0\r\n\r\n"+smuggled))
	}
	g.refused("CVE-2023-39326", "many extensions", body(strings.Repeat("1;"+strings.Repeat("x", 100)+"\r\na\r\n", 2000)+"0\r\n\r\n"))
	for _, ext := range []string{";a", ";a=b", ";a=\"b;\\\"c\"", ";a;b=c"} {
		g.passed("9112 7.1.1", fmt.Sprintf("valid extension %q", ext), body("5"+ext+"\r\nhello\r\n0"+ext+"\r\n\r\n"), 1).Absent = []string{";a"}
	}
}

// trailers are cases of RFC 9110 6.5: fields that frame, route or authenticate a message must not come after its content.
func (g *group) trailers(body func(string) string) {
	for _, t := range []struct{ origin, line string }{
		{"9110 6.5.1", "Transfer-Encoding: chunked"},
		{"9110 6.5.1", "Content-Length: 5"},
		{"9110 6.5.1", "Host: b"},
		{"9112 5.1", "X : y"},
		{"9112 5.2", " folded: y"},
		{"9112 5", "no colon"},
		{"9112 5", ": y"},
		{"9110 5.5", "X: \x00"},
		{"9110 5.5", "X: a\rb"},
		{"9112 2.2", "X: a\nY: b"},
		{"9112 5", "\x01X: y"},
		{"9112 5", "X\xff: y"},
		{"http-garden: CR", "\rX: y"},
		{"CVE-2020-11080, long", "X: " + strings.Repeat("y", 200<<10)},
	} {
		g.refused(t.origin, fmt.Sprintf("trailer %q", shorten(t.line)), body("5\r\nhello\r\n0\r\n"+t.line+"\r\n\r\n"+smuggled))
	}
	g.refused("CVE-2020-11080", "many trailers", body("0\r\n"+many(5000, "X-%d: y\r\n")+"\r\n"))
	for _, t := range []string{"Authorization: secret", "Content-Type: x", "Cookie: secret", "X-Forwarded-For: 192.0.2.66", "Connection: close", "Upgrade: h2c", "Te: gzip", "Expect: 100-continue", "Set-Cookie: secret", "Trailer: host"} {
		c := g.passed("9110 6.5.1", fmt.Sprintf("trailer %q", t), body("5\r\nhello\r\n0\r\n"+t+"\r\n\r\n"), Either)
		c.Absent = []string{strings.ToLower(t)}
	}
}
