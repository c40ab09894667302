package wrongcases

import (
	"fmt"
	"strings"
)

// lengths are cases of Content-Length (RFC 9110 8.6, RFC 9112 6.2).
func lengths() []Case {
	g := &group{name: "Content-Length"}
	const content = "hello"
	for _, v := range []struct{ origin, value string }{
		{"9110 8.6", "+5"},
		{"9110 8.6", "-5"},
		{"9110 8.6", "-0"},
		{"9110 8.6", "5,5"},
		{"9110 8.6", "5, 5"},
		{"9110 8.6", "5,6"},
		{"9110 8.6", "5;"},
		{"9110 8.6", "5 5"},
		{"9110 8.6", "5a"},
		{"9110 8.6", "5.0"},
		{"9110 8.6", "5e0"},
		{"9110 8.6", "\"5\""},
		{"http-garden: longest valid prefix", "5Z"},
		{"http-garden: strtoll", "0x5"},
		{"http-garden: strtoll", "0o5"},
		{"http-garden: Python's int", "1_0"},
		{"http-garden: Python's int", "\xc2\xa05"},
		{"CVE-2023-40225", ""},
		{"CVE-2023-40225", ","},
		{"9110 8.6", "5,"},
		{"9110 8.6", ",5"},
		{"CVE-2021-40346", "18446744073709551621"},
		{"9110 8.6", "9223372036854775808"},
		{"9110 8.6", "99999999999999999999999999999999999999"},
		{"9110 8.6", "4294967301x"},
		{"9110 8.6", "five"},
		{"9110 8.6", "\v5"},
		{"9110 8.6", "5\v"},
		{"9110 8.6", "\f5"},
		{"CVE-2024-1135", "5\x00"},
		{"9110 8.6", "\xff5"},
		{"9110 8.6", "5\r"},
		{"9110 8.6", "$5"},
		{"9110 8.6", "NaN"},
		{"9110 8.6", "\xd9\xa5"},
	} {
		g.refused(v.origin, fmt.Sprintf("value %q", v.value), post+"Content-Length: "+v.value+"\r\n"+end+content)
	}
	g.refused("CVE-2023-40225", "empty, and then a number", post+"Content-Length:\r\nContent-Length: 5\r\n"+end+content)
	g.refused("CVE-2023-40225", "empty after a number", post+"Content-Length: 5\r\nContent-Length:\r\n"+end+content)
	g.refused("9112 6.3", "twice, different", post+"Content-Length: 5\r\nContent-Length: 0\r\n"+end+content)
	g.refused("9112 6.3", "twice, different, the other order", post+"Content-Length: 0\r\nContent-Length: 5\r\n"+end+content)
	g.refused("9112 6.3", "twice, the same", post+"Content-Length: 5\r\nContent-Length: 5\r\n"+end+content)
	g.refused("9112 6.3", "twice, in other letters", post+"Content-Length: 0\r\ncontent-length: 36\r\n"+end+smuggled)
	g.refused("9112 6.3", "twice, with a leading zero", post+"Content-Length: 5\r\nContent-Length: 05\r\n"+end+content)
	g.refused("9112 5.1", "blank before the colon", post+"Content-Length : 36\r\n"+end+smuggled)
	g.refused("9112 5.1", "tab before the colon", post+"Content-Length\t: 36\r\n"+end+smuggled)
	g.refused("http-garden: no colon", "no colon", post+"Content-Length 36\r\n"+end+smuggled)
	g.refused("http-garden: first line", "blank before the name, first line", "POST /case HTTP/1.1\r\n Content-Length: 36\r\nHost: a\r\n\r\n"+smuggled)
	g.refused("9112 5.2", "folded", post+"Content-Length:\r\n 36\r\n"+end+smuggled)
	g.passed("9110 8.6", "leading zero", post+"Content-Length: 010\r\n"+end+"0123456789", 1).Present = []string{"content-length: 10\r"}
	g.passed("9110 8.6", "blanks around the number", post+"Content-Length: \t 5 \t\r\n"+end+content, 1).Stricter = "RFC 9112 5: blanks around a value are spaces and tabs"
	g.passed("9110 9.3.1", "GET with content that looks like a request", get+fmt.Sprintf("Content-Length: %d\r\n", len(smuggled))+end+smuggled, 1)
	c := g.passed("9112 8", "content that is cut", post+"Content-Length: 500\r\n"+end+content, 0)
	c.Unfinished = true
	return g.cases
}

// The four places of a byte in a field line that tools vary.
var places = []struct{ name, format string }{
	{"after the colon", "Transfer-Encoding:%cchunked"},
	{"before the colon", "Transfer-Encoding%c: chunked"},
	{"before the name", "%cTransfer-Encoding: chunked"},
	{"after the value", "Transfer-Encoding: chunked%c"},
}

// codings are cases of Transfer-Encoding (RFC 9112 6.1): a recipient that sees it reads chunks, one that does not see it reads
// Content-Length.
func codings() []Case {
	g := &group{name: "Transfer-Encoding"}
	const zero = "0\r\n\r\n"
	attack := func(field string) string { // CL.TE: who reads chunks sees a second request
		return withLength(field, zero+smuggled)
	}
	for _, field := range []struct{ origin, line string }{
		{"9112 6.1, CL.TE", "Transfer-Encoding: chunked"},
		{"smuggler: smashed", "Transfer Encoding:chunked"},
		{"smuggler: spacejoin1", "Transfer Encoding: chunked"},
		{"smuggler: sarcasm", "TrAnSFer-EnCODinG: cHuNkeD"},
		{"smuggler: valueprefix1", "Transfer-Encoding:  chunked"},
		{"smuggler: tabprefix1", "Transfer-Encoding:\tchunked"},
		{"smuggler: tabprefix2", "Transfer-Encoding\t:\tchunked"},
		{"smuggler: commaCow", "Transfer-Encoding: chunked, cow"},
		{"smuggler: cowComma", "Transfer-Encoding: cow, chunked"},
		{"smuggler: quoted", "Transfer-Encoding: \"chunked\""},
		{"smuggler: aposed", "Transfer-Encoding: 'chunked'"},
		{"smuggler: lazygrep", "Transfer-Encoding: chunk"},
		{"PortSwigger: xchunked", "Transfer-Encoding: xchunked"},
		{"smuggler: nested", "Transfer-Encoding: cow chunked bar"},
		{"smuggler: nested, list", "Transfer-Encoding: identity, chunked, identity"},
		{"smuggler: revdualchunk", "Transfer-Encoding: cow\r\nTransfer-Encoding: chunked"},
		{"smuggler: dualchunk", "Transfer-Encoding: chunked\r\nTransfer-Encoding: cow"},
		{"PortSwigger: dual, case", "Transfer-Encoding: chunked\r\nTransfer-encoding: x"},
		{"9112 6.1, identity", "Transfer-Encoding: identity"},
		{"9112 6.1, last", "Transfer-Encoding: chunked, identity"},
		{"9112 6.1, last", "Transfer-Encoding: chunked, gzip"},
		{"9112 6.1, gzip", "Transfer-Encoding: gzip, chunked"},
		{"9112 6.1, gzip", "Transfer-Encoding: gzip"},
		{"9112 6.1, twice", "Transfer-Encoding: chunked, chunked"},
		{"CVE-2024-1135", "Transfer-Encoding: chunked,gzip,chunked"},
		{"http-garden: two fields", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked"},
		{"http-garden: empty element", "Transfer-Encoding: ,chunked"},
		{"http-garden: empty element", "Transfer-Encoding: chunked,"},
		{"http-garden: empty element", "Transfer-Encoding: , ,chunked"},
		{"http-garden: empty", "Transfer-Encoding:"},
		{"http-garden: unknown coding", "Transfer-Encoding: blegh"},
		{"9112 6.1, parameter", "Transfer-Encoding: chunked;q=1"},
		{"9112 6.1, parameter", "Transfer-Encoding: chunked; x=\"y\""},
		{"9112 5.2", "Transfer-Encoding:\r\n chunked"},
		{"9112 5.2, tabwrap", "Transfer-Encoding:\r\n\tchunked"},
		{"smuggler: doublewrapped", "Transfer-Encoding:\r\n \r\n chunked"},
		{"smuggler: linewrapped1", "Transfer-Encoding:\n chunked"},
		{"PortSwigger: gareth1", "Transfer-Encoding\n : chunked"},
		{"9112 5.1", "Transfer-Encoding\r\n: chunked"},
		{"9112 5.1", "Transfer-Encoding\r\n : chunked"},
		{"http-garden: name over two lines", "Transfer-\r\nEncoding: chunked"},
		{"PortSwigger: vertwrap", "Transfer-Encoding: \n\vchunked"},
		{"smuggler: 0dspam", "Transfer\r-Encoding: chunked"},
		{"smuggler: x-rout", "X: X\rTransfer-Encoding: chunked"},
		{"smuggler: x-nout", "X: X\nTransfer-Encoding: chunked"},
		{"PortSwigger: 0dwrap", "Foo: bar\r\n\rTransfer-Encoding: chunked"},
		{"PortSwigger: bodysplit", "Foo: bar\n\nTransfer-Encoding: chunked"},
		{"PortSwigger: nameprefix1", "Foo: bar\r\n Transfer-Encoding: chunked"},
		{"PortSwigger: nameprefix2", "Foo: bar\r\n\tTransfer-Encoding: chunked"},
		{"Klein 2020: spjunk", "Transfer-Encoding x: chunked"},
		{"Klein 2020: backslash", "Transfer\\Encoding: chunked"},
		{"smuggler: accentTE", "Transf\x82r-Encoding: chunked"},
		{"smuggler: accentCH", "Transfer-Encoding: ch\x96nked"},
		{"9112 6.1, fullwidth letters", "Transfer-Encoding: \uff43hunked"},
		{"9112 6.1, Kelvin sign", "Transfer-Encoding: chun\u212aed"},
		{"9110 5.1", "Transfer-Encoding"},
		{"9112 6.1, long", "Transfer-Encoding: " + strings.Repeat("chunked, ", 50) + "chunked"},
	} {
		g.refused(field.origin, fmt.Sprintf("CL.TE with %q", shorten(field.line)), attack(field.line+"\r\n"))
	}
	seen := map[string]bool{}
	for _, c := range g.cases {
		seen[c.Bytes] = true
	}
	for _, p := range places { // smuggler's "exhaustive" list: every byte that is no letter of a token
		for c := range 256 {
			if c > ' ' && c < 0x7f {
				continue
			}
			field := strings.Replace(p.format, "%c", string([]byte{byte(c)}), 1)
			if bytes := attack(field + "\r\n"); !seen[bytes] {
				g.refused("smuggler: exhaustive", fmt.Sprintf("CL.TE with %#02x %s", c, p.name), bytes)
			}
		}
	}
	g.otherNames(attack)
	g.refused("9112 6.1, TE.CL", "TE.CL", post+"Content-Length: 4\r\n"+chunked+end+fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(smuggled), smuggled))
	g.refused("9112 6.1, TE.CL", "TE.CL, the other order", post+chunked+"Content-Length: 4\r\n"+end+fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(smuggled), smuggled))
	g.refused("9112 6.1", "Content-Length: 0 beside it", post+"Content-Length: 0\r\n"+chunked+end+zero)
	g.refused("9112 6.1", "in HTTP/1.0", strings.Replace(post, "1.1", "1.0", 1)+chunked+end+zero+smuggled)
	g.refused("9112 6.1", "in HTTP/1.0, kept alive", strings.Replace(post, "1.1", "1.0", 1)+"Connection: keep-alive\r\n"+chunked+end+zero+smuggled)
	g.refused("9112 6.3", "a coding that is not chunked, alone", post+"Transfer-Encoding: gzip\r\n"+end+smuggled)
	g.refused("9112 6.3", "identity, alone", post+"Transfer-Encoding: identity\r\n"+end+smuggled)
	g.refused("9112 6.3", "chunked twice, alone", post+chunked+chunked+end+zero+smuggled)
	g.refused("9112 6.3", "chunked after gzip, alone", post+"Transfer-Encoding: gzip, chunked\r\n"+end+zero)
	g.refused("9112 6.3", "empty, alone", post+"Transfer-Encoding:\r\n"+end+smuggled)
	return g.cases
}

// otherNames are fields that are not Transfer-Encoding: a proxy passes them on as they are, or refuses them, and goes by
// Content-Length.
func (g *group) otherNames(attack func(string) string) {
	for _, f := range []struct{ origin, line string }{
		{"smuggler: underjoin1", "Transfer_Encoding: chunked"},
		{"smuggler: contentEnc", "Content-Encoding: chunked"},
		{"PortSwigger: encode", "Transfer-%45ncoding: chunked"},
		{"smuggler: x-", "X-Transfer-Encoding: chunked"},
	} {
		c := g.passed(f.origin, fmt.Sprintf("CL.TE with %q", f.line), attack(f.line+"\r\n"), 1)
		c.Stricter = "RFC 9110 5.1: the name is a token and a field of its own; the length delimits the content"
	}
}

// shorten keeps names of cases readable.
func shorten(s string) string {
	if len(s) > 60 {
		return s[:57] + "..."
	}
	return s
}
