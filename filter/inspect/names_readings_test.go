package inspect

import (
	"fmt"
	"strings"
	"testing"

	"github.com/millrace/millrace/wire"
)

// A plus sign in a query is a blank for servers that read forms, and itself for others.
func TestPlusSignsOfQueries(t *testing.T) {
	const rules = `alert http any any -> any any (http.uri; content:"union select"; sid:1;)
alert http any any -> any any (http.uri; content:"union+select"; sid:2;)`
	for uri, want := range map[string]string{
		"/?q=union+select": "1 2", "/?q=union%20select": "1", "/?q=union%2Bselect": "1 2", "/?q=%75nion+select": "1 2", "/?q=%2575nion+select": "1 2",
		"/union+select": "2", "/union+select?a": "2", "/?q=unionselect": "", "/a?+": "", "/?q=%u0075nion+select": "1 2",
	} {
		l := newLab(t, rules)
		l.tcp(80).open().send(true, "GET "+uri+" HTTP/1.1\r\nHost: a\r\n\r\n", 1400)
		l.want(uri, want)
	}
}

// A rule on file.name is evaluated on each name that servers read, with the content of that file.
func TestReadingsOfFileNames(t *testing.T) {
	const rules = `alert http any any -> any any (file.name; content:"evil.exe"; sid:1;)
alert http any any -> any any (file.name; content:"evil.exe"; file.data; content:"MZ"; sid:2;)`
	for disposition, want := range map[string]string{
		`filename="evil.exe"`:                                         "1 2",
		`filename="a.txt"; filename="evil.exe"`:                       "1 2",
		`filename="evil.exe"; filename="a.txt"`:                       "1 2",
		`filename="a.txt"; filename*=UTF-8''evil.exe`:                 "1 2",
		`filename="a.txt"; FileName*=utf-8'en'%65vil%2eexe`:           "1 2",
		`filename*="UTF-8''evil.exe"`:                                 "1 2",
		`filename*=evil%2Eexe`:                                        "1 2",
		`filename*0="evil"; filename*1=".exe"`:                        "1 2",
		`filename*1=".exe"; filename*0="evil"`:                        "1 2",
		`filename*0*=UTF-8''%65vil; filename*1*=%2e; filename*2=exe`:  "1 2",
		`filename="=?utf-8?B?ZXZpbC5leGU=?="`:                         "1 2",
		`filename="=?utf-8?q?e=76il.exe?="`:                           "1 2",
		`filename="e\vil.exe"`:                                        "1 2",
		`x="a;filename=b"; filename="evil.exe"`:                       "1 2",
		`filename="a.txt"; names="evil.exe"`:                          "",
		`filename="a.txt"`:                                            "",
		`filename*0=evil; filename*0=a; filename*1=.exe`:              "1 2",
		`filename*9999=evil.exe`:                                      "",
		`filename*=`:                                                  "",
		`filename="=?utf-8?x?evil.exe"`:                               "1 2",
		strings.Repeat(`filename=a; `, 500) + `; filename="evil.exe"`: "1 2",
	} {
		part := "\r\nContent-Disposition: form-data; name=f; " + disposition + "\r\n\r\nMZ payload\r\n--b"
		body := "--b\r\nContent-Disposition: form-data; name=g; filename=other\r\n\r\nfine\r\n--b" + part + "--\r\n"
		head := "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: multipart/form-data; boundary=b\r\nContent-Length: %d\r\n\r\n"
		l := newLab(t, rules)
		l.tcp(80).open().send(true, fmt.Sprintf(head, len(body))+body, 1400)
		l.want("a part: "+disposition, want)

		l = newLab(t, rules)
		conn := l.tcp(80).open()
		conn.send(true, "GET /a HTTP/1.1\r\nHost: a\r\n\r\n", 1400)
		conn.send(false, "HTTP/1.1 200 OK\r\nContent-Disposition: attachment; "+disposition+"\r\nContent-Length: 2\r\n\r\nMZ", 1400)
		l.want("a response: "+disposition, want)
	}
}

// The name of one file and the content of another are no match.
func TestNamesStayWithTheirFiles(t *testing.T) {
	body := "--b\r\nContent-Disposition: form-data; filename=a; filename=evil.exe\r\n\r\nfine\r\n--b\r\nContent-Disposition: form-data; filename=c\r\n\r\nMZ\r\n--b--\r\n"
	head := "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: multipart/form-data; boundary=b\r\nContent-Length: %d\r\n\r\n"
	l := newLab(t, `alert http any any -> any any (file.name; content:"evil.exe"; file.data; content:"MZ"; sid:1;)
alert http any any -> any any (file.name; content:"evil.exe"; file.data; content:"fine"; sid:2;)`)
	l.tcp(80).open().send(true, fmt.Sprintf(head, len(body))+body, 1400)
	l.want("names", "2")
}

// Where recipients may take another boundary, each is looked at, and what lies between the parts of one.
func TestReadingsOfBoundaries(t *testing.T) {
	const rules = `alert http any any -> any any (file.name; content:"evil.exe"; sid:1;)
alert http any any -> any any (file.data; content:"payload"; sid:2;)`
	part := func(boundary, name, text string) string {
		return "--" + boundary + "\r\nContent-Disposition: form-data; filename=" + name + "\r\n\r\n" + text + "\r\n--" + boundary + "--\r\n"
	}
	for kind, body := range map[string]string{
		"multipart/form-data; boundary=x; boundary=b":                    part("b", "evil.exe", "payload") + part("x", "a", "fine"),
		"multipart/form-data; boundary=b; boundary=x":                    part("b", "evil.exe", "payload") + part("x", "a", "fine"),
		"multipart/form-data; a=\"; boundary=x\"; boundary=b":            part("b", "evil.exe", "payload") + part("x", "a", "fine"),
		"multipart/form-data; boundary=x\r\nContent-Type: a; boundary=b": part("b", "evil.exe", "payload") + part("x", "a", "fine"),
		"multipart/form-data; boundary=b\r\nContent-Type: a; boundary=x": part("b", "evil.exe", "payload") + part("x", "a", "fine"),
	} {
		g := newGate(t, Config{}, rules)
		g.open()
		head := "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: " + kind + fmt.Sprintf("\r\nContent-Length: %d\r\n\r\n", len(body))
		g.segment(true, 1, wire.FlagACK, head+body)
		if got := g.sids(); got != "1 2" {
			t.Errorf("%s: alerts %q", kind, got)
		}
	}
}

// Behind more boundaries than are looked at one by one, the body is looked at as a whole.
func TestMoreBoundariesThanAreLookedAt(t *testing.T) {
	body := "--1\r\nA: b\r\n\r\nfine\r\n--1--\r\n--b\r\nA: b\r\n\r\npayload\r\n--b--\r\n"
	for list, want := range map[string]string{"boundary=1": "", "boundary=1; boundary=2; boundary=3; boundary=4; boundary=b": "1"} {
		l := newLab(t, `alert http any any -> any any (file.data; content:"payload"; sid:1;)`)
		head := "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: multipart/form-data; " + list + fmt.Sprintf("\r\nContent-Length: %d\r\n\r\n", len(body))
		l.tcp(80).open().send(true, head+body, 1400)
		l.want(list, want)
	}
}

// A recipient may skip a coding that it does not know, or take the body as it came.
func TestBodiesBehindUnknownCodingsAreReadAsTheyCame(t *testing.T) {
	body := "\x1f\x8b\x08\x08\x00\x00\x00\x00\x00\x03evilbody\x00" + gzipped("fine")[10:]
	for coding, want := range map[string]string{"gzip": "", "foo, gzip": "1", "gzip, foo": "1"} {
		l := newLab(t, `alert http any any -> any any (flow:to_client; file.data; content:"evilbody"; sid:1;)`)
		conn := l.tcp(80).open()
		conn.send(true, "GET / HTTP/1.1\r\nHost: a\r\n\r\n", 1400)
		conn.send(false, fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Encoding: %s\r\nContent-Length: %d\r\n\r\n", coding, len(body))+body, 1400)
		l.want(coding, want)
	}
}

// Files of a body that grows in small pieces are found again with each: their work is bounded, however many names and boundaries a
// client gives them, and the bytes of an honest body pay for it.
func TestFilesOfSmallPiecesAreBounded(t *testing.T) {
	for _, c := range []struct {
		boundaries, names string
		bound             bool
	}{
		{"boundary=b0", "filename=a", false},
		{"boundary=b0; boundary=b1; boundary=b2; boundary=b3", strings.Repeat("filename=a; ", 8) + "filename=1; filename=2; filename=3; filename=4; filename=5; filename=6", true},
	} {
		g := newGate(t, Config{Refuse: true}, `drop http any any -> any any (file.name; content:"evil.exe"; file.data; content:"MZ"; sid:1;)`)
		g.open()
		var body strings.Builder
		for i := range 200 {
			fmt.Fprintf(&body, "--b%d\r\nContent-Disposition: form-data; %s\r\n\r\n%s\r\n", i%4, c.names, strings.Repeat("x", 300))
		}
		head := fmt.Sprintf("POST / HTTP/1.1\r\nHost: a\r\nContent-Type: multipart/form-data; %s\r\nContent-Length: %d\r\n\r\n", c.boundaries, body.Len()+1)
		seq, bound := uint32(1), false
		for _, part := range append([]string{head}, parts(body.String(), 60)...) {
			r := g.segment(true, seq, wire.FlagACK, part)
			bound = bound || r.Bound
			seq += uint32(len(part))
		}
		if bound != c.bound {
			t.Errorf("%s: bound %v", c.boundaries, bound)
		}
	}
}
