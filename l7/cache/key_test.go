package cache

import (
	"net/url"
	"testing"

	"github.com/millrace/millrace/semantics"
)

func TestAppendKey(t *testing.T) {
	fields := parse("a: 1\nb: 2\na: 3\ncookie: x=4; y=5\nx-forwarded-host: evil.test\nforwarded: for=192.0.2.1;host=evil.test, proto=https")
	for name, c := range map[string]struct {
		rule      Rule
		change    func(*Target)
		url, rest string
	}{
		"plain":           {Rule{Name: "r"}, func(*Target) {}, "http://a.test/p?q", "r"},
		"case and port":   {Rule{}, func(t *Target) { t.Authority = "A.Test:80" }, "http://a.test/p?q", ""},
		"an empty port":   {Rule{}, func(t *Target) { t.Authority = "a.test:" }, "http://a.test/p?q", ""},
		"another port":    {Rule{}, func(t *Target) { t.Authority = "a.test:443" }, "http://a.test:443/p?q", ""},
		"TLS":             {Rule{}, func(t *Target) { t.Secure, t.Authority = true, "a.test:443" }, "https://a.test/p?q", ""},
		"sent otherwise":  {Rule{Name: "r"}, func(t *Target) { t.Sent = "b.test/%70?q" }, "http://a.test/p?q", "r\nb.test/%70?q"},
		"fields":          {Rule{Headers: []string{"a", "c"}, Cookies: []string{"y", "z"}}, func(*Target) {}, "http://a.test/p?q", "\na:1:3\nc\ny=5\nz="},
		"a trusted proxy": {Rule{}, func(t *Target) { t.Trusted = true }, "http://a.test/p?q", "\n\n:evil.test\n\n\n:host=evil.test:proto=https"},
	} {
		target := Target{Authority: "a.test", Path: "/p", Query: "?q", Fields: fields}
		c.change(&target)
		key, n := c.rule.AppendKey([]byte("before "), &target)
		key = key[len("before "):]
		if string(key[:n]) != c.url || string(key[n:]) != c.rest {
			t.Errorf("%s: %q %q, want %q %q", name, key[:n], key[n:], c.url, c.rest)
		}
	}
}

func TestURL(t *testing.T) {
	for in, want := range map[string]string{
		"http://A.test:80":              "http://a.test/",
		"https://a.test:443/%7Eb/../c?": "https://a.test/c?",
		"http://a.test:443/a%2Fb?x=%7E": "http://a.test:443/a%2Fb?x=%7E",
		"ftp://a.test/":                 "",
		"/path":                         "",
		"http:///path":                  "",
		"http://a.test/%00":             "",
	} {
		u, err := url.Parse(in)
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := URL(u); got != want || ok != (want != "") {
			t.Errorf("%s: %q %v, want %q", in, got, ok, want)
		}
	}
}

// An unsafe request invalidates what it names, and what its response names of the same origin (RFC 9111 4.4).
func TestChanged(t *testing.T) {
	urls := []string{"http://a.test/x", "http://a.test/y", "http://a.test/z", "http://a.test:8080/y", "http://b.test/y", "https://a.test/y"}
	for name, c := range map[string]struct {
		status int
		fields []semantics.Field
		gone   string
	}{
		"an error":       {500, parse("location: /y"), ""},
		"interim":        {103, nil, ""},
		"the target":     {204, nil, "http://a.test/x"},
		"relative":       {201, parse("location: y"), "http://a.test/x http://a.test/y"},
		"of this origin": {303, parse("content-location: HTTP://A.TEST:80/z"), "http://a.test/x http://a.test/z"},
		"of others":      {201, parse("location: http://a.test:8080/y\ncontent-location: //b.test/y\nlocation: https://a.test/y"), "http://a.test/x"},
		"no URL":         {201, parse("location: http://[\ncontent-location: /y"), "http://a.test/x http://a.test/y"},
	} {
		s := New(Options{Memory: 1 << 20})
		for _, u := range urls {
			s.put(t, entryOf(u, "", 1))
		}
		(&Named{Cache: s}).Changed("http://a.test/x", &Response{Status: c.status, Fields: c.fields})
		gone := ""
		for _, u := range urls {
			if !s.has(u) {
				gone += " " + u
			}
		}
		if gone != "" {
			gone = gone[1:]
		}
		if gone != c.gone {
			t.Errorf("%s: %q is gone, want %q", name, gone, c.gone)
		}
	}
}

func TestStatusSaysWhyABackendIsAsked(t *testing.T) {
	for want, s := range map[string]Status{
		"hit":                       {Result: CountHit},
		"hit, stale":                {Result: CountStale},
		"fwd=stale; fwd-status=304": {Result: CountRevalidated},
		"fwd=uri-miss; collapsed":   {Result: CountCollapsed},
		"fwd=stale; stored":         {Result: CountMiss, Stale: true, Stored: true},
		"fwd=vary-miss":             {Result: CountMiss, Miss: VariantMiss},
		"fwd=uri-miss":              {Result: CountMiss, Method: "HEAD", NoStore: true},
		"fwd=method":                {Result: CountBypass, Method: "POST", NoStore: true},
		"fwd=request":               {Result: CountBypass, Method: "GET", NoStore: true},
		"fwd=bypass":                {Result: CountBypass, Method: "HEAD"},
	} {
		if want == "hit, stale" {
			want = "hit"
		}
		if got := string(s.Append(nil)); got != "millrace; "+want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
