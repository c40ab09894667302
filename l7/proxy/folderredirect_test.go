package proxy

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/millrace/millrace/l7/files"
	"github.com/millrace/millrace/l7/rewrite"
)

// ambiguousFolders are targets of requests for the folder d. As references some name the host evil.example (RFC 3986 4.2), and browsers
// take a backslash for a slash.
var ambiguousFolders = map[string]string{
	"//evil.example/%2e%2e/d?a=//b": "/d/?a=//b", "//evil.example/../d": "/d/", "//d": "/d/", "///d?x": "/d/?x", "/.//d": "/d/", "/x/..//d": "/d/", "/%64": "/d/", "/d?q": "/d/?q",
	"/%5Cb": "/%5Cb/", "//%5cb?q": "/%5Cb/?q",
}

// checkFolders checks the redirects to folders, in all versions of HTTP.
func checkFolders(t *testing.T, r *rig) {
	t.Helper()
	for _, c := range []*http.Client{r.client(false), r.client(true), r.client3()} {
		c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		for target, want := range ambiguousFolders {
			resp, err := c.Get("https://" + r.secure + target)
			must(t, err)
			resp.Body.Close()
			if got := resp.Header.Get("Location"); resp.StatusCode != 301 || got != want {
				t.Errorf("%s, %s: %d, location %q, want %q", resp.Proto, target, resp.StatusCode, got, want)
			}
		}
	}
	r.settled()
}

// TestARedirectToAFolderNamesNoHost covers folders of files, by the client's path and by one that the rule has rewritten.
func TestARedirectToAFolderNamesNoHost(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{"d", `\b`, `in/d`, `in/\b`} {
		must(t, os.MkdirAll(filepath.Join(root, name), 0o700))
	}
	for what, rw := range map[string]*rewrite.Rewrite{
		"as matched": nil, "rewritten": {Path: rewrite.PathModifier{Type: rewrite.ReplacePrefixMatch, Value: "/in", Prefix: "/"}},
	} {
		for _, try := range [][]string{nil, {files.Path, "/index.html"}} {
			t.Run(what, func(t *testing.T) {
				site, err := files.Open(files.Options{Root: root, Try: try})
				must(t, err)
				checkFolders(t, http3Rig(t, "127.0.0.1:1", func(r *rig) { r.rule.Files, r.rule.Backends, r.rule.Rewrite = site, nil, rw }))
			})
		}
	}
}

// TestARedirectToAFolderOfScriptsNamesNoHost covers pools of FastCGI.
func TestARedirectToAFolderOfScriptsNamesNoHost(t *testing.T) {
	checkFolders(t, http3Rig(t, application(t, variablesOf), scriptRig(t, nil, "d/index.php", `\b/index.php`)))
}
