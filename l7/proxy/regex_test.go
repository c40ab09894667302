package proxy

import (
	"net/http"
	"testing"

	"github.com/millrace/millrace/l7/rewrite"
)

// A backend gets the path that a regular expression makes of the one that the rule has matched, and none that it makes no path of.
func TestPathsAreRewrittenByRegex(t *testing.T) {
	regex, err := rewrite.NewRegex(`/(.+)x(.+)/(.*)`, "/$1$2/$3?from=$1")
	must(t, err)
	r := newRig(t, echoBackend(t, false), func(r *rig) { r.rule.Rewrite = &rewrite.Rewrite{Regex: regex} })
	for _, c := range []struct {
		path   string
		status int
		want   string
	}{
		{"/axb/c", 200, "/ab/c?from=a"},
		{"/axb/c?d=e", 200, "/ab/c?from=a&d=e"},
		{"/a/%78b//c", 200, "/a/b/c?from=a/"},
		{"/a%20x&/c", 200, "/a%20&/c?from=a%20"},
		{"/none?d", 200, "/none?d"},
		{"/.x./c", 400, ""},
		{"/a/.x./c", 200, "/c?from=a/."},
	} {
		for _, h2 := range []bool{false, true} {
			resp, err := r.client(h2).Get("https://" + r.secure + c.path)
			must(t, err)
			resp.Body.Close()
			if got := resp.Header.Get("X-Path"); resp.StatusCode != c.status || got != c.want {
				t.Errorf("%s: status %d, %s; want %d, %s", c.path, resp.StatusCode, got, c.status, c.want)
			}
		}
	}
	r.settled()
}

// A redirect has the path that the expression makes.
func TestRedirectsByRegex(t *testing.T) {
	regex, err := rewrite.NewRegex(`/blog/(\d+)/(.*)`, "/posts/$2?id=$1")
	must(t, err)
	r := newRig(t, echoBackend(t, false), func(r *rig) {
		r.rule.Redirect = &rewrite.Redirect{Hostname: "b.example", Scheme: "https", Regex: regex}
	})
	c := r.client(false)
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	for path, want := range map[string]string{"/blog/7/a?b": "https://b.example/posts/a?id=7&b", "/other?b": "https://b.example/other?b"} {
		resp, err := c.Get("http://" + r.addr + path)
		must(t, err)
		resp.Body.Close()
		if got := resp.Header.Get("Location"); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
	r.settled()
}
