package wrongcases

import (
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	good := "POST /a?b HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nx: y\r\n\r\nGET / HTTP/1.1\r\nhost: a\r\nx: \xe9\r\n\r\nPUT / HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n\r\nab"
	requests, err := Parse([]byte(good))
	if err != nil || len(requests) != 3 || requests[0].Content != "hello" || len(requests[0].Trailers) != 1 || !requests[1].Whole || requests[2].Whole {
		t.Errorf("%+v, %v", requests, err)
	}
	head := "GET / HTTP/1.1\r\nhost: a\r\n"
	for _, bad := range []string{
		"GET / HTTP/1.1\nhost: a\n\n", "GET  / HTTP/1.1\r\n", "GET / HTTP/1.2\r\n\r\n", "GET /a#b HTTP/1.1\r\nhost: a\r\n\r\n", "GET /\xe9 HTTP/1.1\r\nhost: a\r\n\r\n", "G(T / HTTP/1.1\r\nhost: a\r\n\r\n",
		"GET / HTTP/1.1\r\n\r\n", head + "host: a\r\n\r\n", head + "x : y\r\n\r\n", head + " x: y\r\n\r\n", head + "x: a\rb\r\n\r\n", head + "x: \x00\r\n\r\n", head + ": y\r\n\r\n", head + "x\r\n\r\n",
		head + "content-length: 1\r\ncontent-length: 1\r\n\r\na", head + "content-length: 01\r\n\r\na", head + "content-length: +1\r\n\r\na", head + "content-length: 1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
		head + "transfer-encoding: gzip\r\n\r\n", head + "transfer-encoding: chunked, chunked\r\n\r\n", head + "transfer-encoding: chunked\r\n\r\nx\r\n", head + "transfer-encoding: chunked\r\n\r\n1;a\r\na\r\n",
		head + "transfer-encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n", head + "transfer-encoding: chunked\r\n\r\n0\r\nx : y\r\n\r\n", "\r\n" + head + "\r\n",
	} {
		if _, err := Parse([]byte(bad)); err == nil {
			t.Errorf("%q is taken as unambiguous", bad)
		}
	}
}

func TestCheck(t *testing.T) {
	one := []byte("GET /case HTTP/1.1\r\nhost: a\r\nx: y\r\n\r\n")
	for _, test := range []struct {
		c    Case
		got  []byte
		want string
	}{
		{Case{Passed: 1}, one, ""},
		{Case{Passed: 0}, one, "1 whole"},
		{Case{Passed: 2}, one, "1 whole"},
		{Case{Passed: Either}, one, ""},
		{Case{Passed: Either}, append(one, one...), "2 whole"},
		{Case{Passed: 1, Absent: []string{"x: y"}}, one, "was passed on"},
		{Case{Passed: 1, Present: []string{"z"}}, one, "was not passed on"},
		{Case{}, one[:20], ""},
		{Case{Passed: 1}, []byte(smuggled), "smuggled"},
		{Case{Passed: 1}, []byte("x\r\n\r\n"), "ambiguous"},
	} {
		err := test.c.Check(test.got)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v with %q: %v, want %q", test.c, test.got, err, test.want)
		}
	}
}

// Every case says where it comes from, and no two are the same.
func TestCasesAreDistinct(t *testing.T) {
	seen := map[string]string{}
	all := All()
	for _, d := range Downgrades() {
		all = append(all, d.Case)
	}
	for _, c := range all {
		if c.Origin == "" || c.Group == "" {
			t.Errorf("%s has no origin or group", c.Name)
		}
		if other, ok := seen[c.Bytes]; ok {
			t.Errorf("%q and %q are the same", c.Name, other)
		}
		seen[c.Bytes] = c.Name
	}
	if len(all) < 1500 {
		t.Errorf("%d cases", len(all))
	}
}
