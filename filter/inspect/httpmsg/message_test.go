package httpmsg

import (
	"fmt"
	"testing"
)

// TestPathsLoseDotSegments has what Suricata 7 makes of paths.
func TestPathsLoseDotSegments(t *testing.T) {
	for path, want := range map[string]string{
		"/a/../": "", "/a/..": "", "/a/b/../": "/a", "/a/b/..": "/a", "/../": "", "/a/./": "/a", "/a/../b": "/b",
		"/b/../../": "", "//a//b": "/a/b", "/a/b/": "/a/b/", "/a/.b/": "/a/.b/", "/a/...": "/a/...", "/a/../?/../": "?/../", "/%2e%2e/a": "/a", "/": "/", ".": ".",
	} {
		if got := normalURI([]byte(path)); string(got) != want || got == nil { // empty is a path
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}

// TestRequestLines has lines with the white space that recipients take, or not.
func TestRequestLines(t *testing.T) {
	for line, want := range map[string]string{
		"GET /a HTTP/1.1": "GET|/a|HTTP/1.1", " \t GET  /a   HTTP/1.1 ": "GET|/a|HTTP/1.1", "GET\t/a\tHTTP/1.1": "GET|/a|HTTP/1.1",
		"GET\f/a\tb HTTP/1.1": "GET|/a\tb|HTTP/1.1", "GET /a": "GET|/a|<nil>", "GET": "GET||<nil>", "": "||<nil>", "GET ": "GET||<nil>", "GET /a b HTTP/1.1": "GET|/a|b HTTP/1.1",
	} {
		method, uri, version := requestLine([]byte(line))
		got := fmt.Sprintf("%s|%s|%s", method, uri, version)
		if version == nil {
			got = fmt.Sprintf("%s|%s|<nil>", method, uri)
		}
		if got != want {
			t.Errorf("%q: %s, want %s", line, got, want)
		}
	}
}

// TestLengthsOfBodies has numbers as the parser of Suricata reads them.
func TestLengthsOfBodies(t *testing.T) {
	for value, want := range map[string]int{"16": 16, " 16\t": 16, "v7Content": 7, "16, 16": 16, "-5": 5, "+3": 3, "0": 0, "007": 7} {
		if n, ok := BodyLength([]byte(value)); n != want || !ok {
			t.Errorf("%q: %d %v, want %d", value, n, ok, want)
		}
	}
	for _, value := range []string{"", " ", "q", "99999999999999999999"} {
		if n, ok := BodyLength([]byte(value)); ok || n != 0 {
			t.Errorf("%q: %d", value, n)
		}
	}
}

// The readings of URIs without oddities allocate nothing, and are none.
func TestPlainURIsHaveOneReading(t *testing.T) {
	m := &Message{Version: []byte("HTTP/1.1")}
	uri := []byte("/a/b?c=d%20e")
	if n := testing.AllocsPerRun(100, func() {
		if list := otherReadings(m, uri[:8]); list != nil {
			t.Fatalf("%q", list)
		}
	}); n != 0 {
		t.Errorf("%.0f allocations", n)
	}
}
