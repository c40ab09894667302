package files

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/semantics"
)

// born is when the files of a test were changed.
var born = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// folder makes a folder with files: names that end with a slash are folders.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if strings.HasSuffix(name, "/") {
			if err := os.MkdirAll(path, 0o755); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644), os.Chtimes(path, born, born)); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func site(t *testing.T, o Options) *Site {
	t.Helper()
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// field returns the value of a field.
func field(a *Answer, name string) string {
	for _, f := range a.Fields {
		if f.Name == name {
			return f.Value
		}
	}
	return ""
}

// ask returns an answer as text: status, content and the fields that are asked for. It is asked as a loop asks: what it does not get now,
// it gets later.
func ask(t *testing.T, s *Site, method, path, lines string, show ...string) string {
	t.Helper()
	var fields []semantics.Field
	for line := range strings.SplitSeq(lines, "\n") {
		if name, value, ok := strings.Cut(line, ": "); ok {
			fields = append(fields, semantics.Field{Name: name, Value: value})
		}
	}
	url := path
	path, _ = semantics.SplitTarget(path)
	shown, query := semantics.SplitTarget(url)
	q := NewRequest(method, path, shown, query, fields)
	a, err := s.Answer(&q, Now)
	if err == ErrWait {
		q = q.Clone()
		a, err = s.Answer(&q, Later)
	}
	if err != nil {
		return err.Error()
	}
	defer a.Close()
	var content []byte
	for {
		b := make([]byte, 7)
		n, err := a.Read(b, Now)
		if err == ErrWait {
			n, err = a.Read(b, Later)
		}
		content = append(content, b[:n]...)
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if a.Left() != 0 {
		t.Errorf("%d bytes are left", a.Left())
	}
	out := fmt.Sprintf("%d %d %s", a.Status, a.Length, content)
	for _, name := range show {
		out += " " + name + "=" + field(a, name)
	}
	return out
}

func check(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

const notFound = "files: no such file"

func TestFilesAndFolders(t *testing.T) {
	root := folder(t, map[string]string{"a.html": "<p>a", "empty.txt": "", "d/index.html": "index", "d/x y%.css": "css", "e/": "", `\h/`: "", "noext": "?", "ü.JSON": "{}"})
	s := site(t, Options{Root: root, Index: []string{"none.html", "index.html"}, CacheControl: "max-age=9"})
	for path, want := range map[string]string{
		"/a.html": "200 4 <p>a content-type=text/html; charset=utf-8 location=", "/a.html?q=1": "200 4 <p>a content-type=text/html; charset=utf-8 location=",
		"/empty.txt": "200 0  content-type=text/plain; charset=utf-8 location=", "/d/": "200 5 index content-type=text/html; charset=utf-8 location=",
		"/d": "301 0  content-type= location=/d/", "/d?a=b&c": "301 0  content-type= location=/d/?a=b&c",
		"/d/x%20y%25.css": "200 3 css content-type=text/css; charset=utf-8 location=", "/%C3%BC.JSON": "200 2 {} content-type=application/json location=",
		"/noext": "200 1 ? content-type=application/octet-stream location=", "/e/": notFound, "/e": "301 0  content-type= location=/e/", `/\h`: "301 0  content-type= location=/%5Ch/", "/a.html/": notFound, "/b": notFound,
		"/": notFound, "/d/index.html/x": notFound,
	} {
		check(t, path, ask(t, s, "GET", path, "", "content-type", "location"), want)
	}
	check(t, "HEAD", ask(t, s, "HEAD", "/a.html", "", "cache-control", "last-modified", "accept-ranges"), "200 4  cache-control=max-age=9 last-modified=Fri, 02 Jan 2026 03:04:05 GMT accept-ranges=bytes")
	check(t, "POST", ask(t, s, "POST", "/a.html", ""), ErrMethod.Error())
	if _, err := Open(Options{Root: filepath.Join(root, "none")}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a folder that is not there: %v", err)
	}
	if _, err := Open(Options{Root: filepath.Join(root, "a.html")}); !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("a file: %v", err)
	}
}

// TestNothingOutsideIsServed has each way by which servers have been led out of their folder.
func TestNothingOutsideIsServed(t *testing.T) {
	root := folder(t, map[string]string{"secret": "s3cret", "www/in/a": "inside", "www/.env": "hidden", "www/.git/config": "hidden", "www/.well-known/x": "public", "www/in/.well-known": "hidden"})
	www := filepath.Join(root, "www")
	for name, to := range map[string]string{"up": "../secret", "abs": filepath.Join(root, "secret"), "dir": "..", "root": "/", "within": "in/a", "loop": "loop", "in/proc": "/proc/self/environ", "magic": "/proc/self/root"} {
		if err := os.Symlink(to, filepath.Join(www, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(filepath.Join(www, "pipe"), 0o644); err != nil {
		t.Fatal(err)
	}
	s := site(t, Options{Root: www, Listing: true})
	for _, path := range []string{
		"/up", "/abs", "/dir/secret", "/root/etc/passwd", "/magic/etc/passwd", "/loop", "/in/proc", "/pipe", "/../secret", "/in/../../secret", "/%2e%2e/secret", "/in/%2e%2e/%2e%2e/secret",
		"/..%2fsecret", "/in%2fa", "/in/a%00", "/in/a%00.html", "/%00", "/in/%", "/in/%4", "/in/%zz", "/./in/a", "/.env", "/%2eenv", "/.git/config", "/.git/", "/in/.well-known", "//etc/passwd", "in/a", "",
		"/" + strings.Repeat("a", 300), "/" + strings.Repeat("a/", 3000),
	} {
		if got := ask(t, s, "GET", path, ""); got != notFound {
			t.Errorf("%q: %q", path, got)
		}
	}
	check(t, "a link within", ask(t, s, "GET", "/within", ""), "200 6 inside")
	check(t, "/.well-known", ask(t, s, "GET", "/.well-known/x", ""), "200 6 public")
	if list := ask(t, s, "GET", "/", ""); strings.Contains(list, ".env") || !strings.Contains(list, `<a href="./in/">in/</a>`) {
		t.Errorf("listing: %s", list)
	}
	s = site(t, Options{Root: www, Hidden: true})
	check(t, "with hidden", ask(t, s, "GET", "/.env", ""), "200 6 hidden")
	check(t, "and still", ask(t, s, "GET", "/up", ""), notFound)
	if os.Getuid() != 0 {
		if err := os.Chmod(filepath.Join(www, "in"), 0); err != nil {
			t.Fatal(err)
		}
		check(t, "without the right", ask(t, s, "GET", "/in/a", ""), unix.EACCES.Error())
	}
}

func TestTryFiles(t *testing.T) {
	root := folder(t, map[string]string{"index.html": "app", "a": "a", "b.html": "b", "d/index.html": "d", "e/": ""})
	s := site(t, Options{Root: root, Index: []string{"index.html"}, Try: []string{Path, Path + ".html", Path + "/", "/index.html"}})
	for path, want := range map[string]string{
		"/a": "200 1 a", "/b": "200 1 b", "/d/": "200 1 d", "/d": "301 0 ", "/e/": "200 3 app", "/x/y": "200 3 app", "/": "200 3 app", "/.x": "200 3 app", "/%2e%2e/x": notFound, "/x%00": notFound,
	} {
		check(t, path, ask(t, s, "GET", path, ""), want)
	}
	s = site(t, Options{Root: root, Index: []string{"index.html"}, Try: []string{Path + "/", "/none"}})
	check(t, "a folder without the slash", ask(t, s, "GET", "/d", ""), "200 1 d")
	check(t, "nothing of it", ask(t, s, "GET", "/a", ""), notFound)
}

func TestConditions(t *testing.T) {
	root := folder(t, map[string]string{"a": "0123456789"})
	s := site(t, Options{Root: root})
	tag := strings.TrimPrefix(ask(t, s, "HEAD", "/a", "", "etag"), "200 10  etag=")
	if len(tag) < 4 || tag[0] != '"' {
		t.Fatalf("tag %q", tag)
	}
	const at, before, after = "Fri, 02 Jan 2026 03:04:05 GMT", "Fri, 02 Jan 2026 03:04:04 GMT", "Friday, 02-Jan-26 03:04:06 GMT"
	whole, same, failed := "200 10 0123456789", "304 -1 ", "412 0 "
	for lines, want := range map[string]string{
		"if-none-match: " + tag: same, "if-none-match: W/" + tag: same, "if-none-match: *": same, `if-none-match: "x", ` + tag: same, "if-none-match: \"x\"\nif-none-match: " + tag: same,
		`if-none-match: "x"`: whole, "if-none-match: x": whole, "if-none-match: \"": whole, `if-none-match: W/`: whole,
		"if-modified-since: " + at: same, "if-modified-since: " + after: same, "if-modified-since: Fri Jan  2 03:04:05 2026": same, "if-modified-since: " + before: whole, "if-modified-since: yesterday": whole,
		"if-none-match: \"x\"\nif-modified-since: " + at: whole, // the tag decides (RFC 9110 13.2.2)
		"if-match: " + tag: whole, "if-match: *": whole, "if-match: W/" + tag: failed, `if-match: "x"`: failed,
		"if-unmodified-since: " + at: whole, "if-unmodified-since: " + before: failed, "if-unmodified-since: never": failed,
		"if-match: " + tag + "\nif-unmodified-since: " + before: whole, "if-match: \"x\"\nif-none-match: *": failed,
		"range: bytes=2-4\nif-none-match: " + tag: same,
	} {
		if lines == "if-unmodified-since: never" {
			want = whole // a date that is none is ignored
		}
		check(t, lines, ask(t, s, "GET", "/a", lines), want)
	}
	check(t, "fields of 304", ask(t, s, "GET", "/a", "if-none-match: *", "etag", "content-type", "last-modified"), "304 -1  etag="+tag+" content-type= last-modified="+at)
}

func TestRanges(t *testing.T) {
	root := folder(t, map[string]string{"a": "0123456789", "empty": ""})
	s := site(t, Options{Root: root})
	tag := strings.TrimPrefix(ask(t, s, "HEAD", "/a", "", "etag"), "200 10  etag=")
	const huge = "99999999999999999999999"
	for value, want := range map[string]string{
		"bytes=0-0": "206 1 0 content-range=bytes 0-0/10", "bytes=2-4": "206 3 234 content-range=bytes 2-4/10", "bytes=8-": "206 2 89 content-range=bytes 8-9/10", "bytes=-3": "206 3 789 content-range=bytes 7-9/10",
		"bytes=-99": "206 10 0123456789 content-range=bytes 0-9/10", "bytes=9-" + huge: "206 1 9 content-range=bytes 9-9/10", "BYTES= 1-1 ": "206 1 1 content-range=bytes 1-1/10",
		"bytes=10-": "416 0  content-range=bytes */10", "bytes=" + huge + "-": "416 0  content-range=bytes */10", "bytes=-0": "416 0  content-range=bytes */10",
		"bytes=4-2": "200 10 0123456789 content-range=", "bytes=0-1,3-4": "200 10 0123456789 content-range=", "bytes=a-b": "200 10 0123456789 content-range=", "bytes=": "200 10 0123456789 content-range=",
		"bytes=1": "200 10 0123456789 content-range=", "lines=1-2": "200 10 0123456789 content-range=", "bytes=-": "200 10 0123456789 content-range=", "bytes=+1-2": "200 10 0123456789 content-range=",
	} {
		check(t, value, ask(t, s, "GET", "/a", "range: "+value, "content-range"), want)
	}
	check(t, "of nothing", ask(t, s, "GET", "/empty", "range: bytes=0-", "content-range"), "416 0  content-range=bytes */0")
	check(t, "HEAD", ask(t, s, "HEAD", "/a", "range: bytes=2-4", "content-range"), "200 10  content-range=")
	for value, want := range map[string]string{
		tag: "206 3 234", "W/" + tag: "200 10 0123456789", `"x"`: "200 10 0123456789", "Fri, 02 Jan 2026 03:04:05 GMT": "206 3 234", "Fri, 02 Jan 2026 03:04:06 GMT": "200 10 0123456789", "x": "200 10 0123456789",
	} {
		check(t, "if-range: "+value, ask(t, s, "GET", "/a", "range: bytes=2-4\nif-range: "+value), want)
	}
}

func TestPrecompressed(t *testing.T) {
	root := folder(t, map[string]string{"a.css": "plain", "a.css.gz": "gzip", "a.css.br": "brotli", "b.css": "plain", "b.css.gz": "stale", "c.css": "plain", "c.css.gz/": "", "d.css.gz": "alone"})
	old := born.Add(-time.Second)
	if err := os.Chtimes(filepath.Join(root, "b.css.gz"), old, old); err != nil {
		t.Fatal(err)
	}
	s := site(t, Options{Root: root, Precompressed: []string{"br", "zstd", "gzip"}})
	show := []string{"content-encoding", "content-type", "vary"}
	const css = " content-type=text/css; charset=utf-8 vary=accept-encoding"
	for accept, want := range map[string]string{
		"gzip, br": "200 6 brotli content-encoding=br" + css, "gzip": "200 4 gzip content-encoding=gzip" + css, "br;q=0, gzip;q=0.1": "200 4 gzip content-encoding=gzip" + css,
		"zstd": "200 5 plain content-encoding=" + css, "identity": "200 5 plain content-encoding=" + css, "*": "200 6 brotli content-encoding=br" + css, "br;q=0.1, gzip;q=0.2": "200 4 gzip content-encoding=gzip" + css,
	} {
		check(t, accept, ask(t, s, "GET", "/a.css", "accept-encoding: "+accept, show...), want)
	}
	check(t, "without the field", ask(t, s, "GET", "/a.css", "", show...), "200 5 plain content-encoding="+css)
	check(t, "one that is older", ask(t, s, "GET", "/b.css", "accept-encoding: gzip"), "200 5 plain")
	check(t, "a folder", ask(t, s, "GET", "/c.css", "accept-encoding: gzip"), "200 5 plain")
	check(t, "one without the plain one", ask(t, s, "GET", "/d.css", "accept-encoding: gzip"), notFound)
	check(t, "by its own name", ask(t, s, "GET", "/d.css.gz", "", "content-type", "content-encoding"), "200 5 alone content-type=application/gzip content-encoding=")
	if a, b := ask(t, s, "HEAD", "/a.css", "", "etag"), ask(t, s, "HEAD", "/a.css", "accept-encoding: gzip", "etag"); a == b {
		t.Errorf("both codings have one tag: %s", a)
	}
	check(t, "a range of the coding", ask(t, s, "GET", "/a.css", "accept-encoding: br\nrange: bytes=1-2", "content-range"), "206 2 ro content-range=bytes 1-2/6")
}

func TestListing(t *testing.T) {
	root := folder(t, map[string]string{"b": "12", `a"<&'>.txt`: "1", "d/x": "", "javascript:alert(1)": "", "#?%41": ""})
	s := site(t, Options{Root: root, Listing: true, Index: []string{"index.html"}})
	page := ask(t, s, "GET", "/", "", "content-type")
	for _, want := range []string{
		`<a href="./d/">d/</a>`, `<a href="./b">b</a><td class="n">2<td>2026-01-02 03:04:05`, `<a href="./a%22%3C&amp;%27%3E.txt">a&#34;&lt;&amp;&#39;&gt;.txt</a>`,
		`<a href="./javascript:alert%281%29">`, `<a href="./%23%3F%2541">#?%41</a>`, "content-type=text/html; charset=utf-8",
	} {
		if !strings.Contains(page, want) && !strings.Contains(page, strings.NewReplacer("%281%29", "(1)", "%27", "&#39;").Replace(want)) {
			t.Errorf("%q is not in %s", want, page)
		}
	}
	if strings.Index(page, "./d/") > strings.Index(page, "./b") || strings.Contains(page, "../") || strings.Contains(page, `"<`) {
		t.Errorf("%s", page)
	}
	if sub := ask(t, s, "GET", "/d/?<script>", ""); !strings.Contains(sub, `<a href="../">`) || strings.Contains(sub, "<script>") {
		t.Errorf("%s", sub)
	}
	if head := ask(t, s, "HEAD", "/", ""); !strings.HasPrefix(head, "200 ") || strings.Contains(head, "<") {
		t.Errorf("HEAD: %s", head)
	}
}

// TestAFileThatBecomesShorter has an answer end before its length.
func TestAFileThatBecomesShorter(t *testing.T) {
	root := folder(t, map[string]string{"a": "0123456789"})
	s := site(t, Options{Root: root})
	q := NewRequest("GET", "/a", "/a", "", nil)
	a, err := s.Answer(&q, Later)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if err := os.Truncate(filepath.Join(root, "a"), 4); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 20)
	if n, err := a.Read(b, Later); n != 4 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if n, err := a.Read(b, Later); n != 0 || err != ErrShort {
		t.Errorf("%d, %v", n, err)
	}
}

// TestWithoutTheCaches has a kernel and a file system that cannot be asked without a wait.
func TestWithoutTheCaches(t *testing.T) {
	root := folder(t, map[string]string{"a": "0123456789"})
	s := site(t, Options{Root: root})
	s.cached.Store(0)
	q := NewRequest("GET", "/a", "/a", "", nil)
	if _, err := s.Answer(&q, Now); err != ErrWait {
		t.Errorf("%v", err)
	}
	a, err := s.Answer(&q, Later)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	a.never = true
	if _, err := a.Read(make([]byte, 1), Now); err != ErrWait {
		t.Errorf("%v", err)
	}
	check(t, "later", ask(t, s, "GET", "/a", ""), "200 10 0123456789")
}

// FuzzPath has no path lead to what is outside, and every name inside be found by its encoded path.
func FuzzPath(f *testing.F) {
	for _, s := range []string{"/a", "/../x", "/%2e%2e/x", "/a%2fb", "/%00", "/.x/%", "//"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, path string) {
		name, ok := decode(path)
		if !ok {
			return
		}
		for part := range strings.SplitSeq(name, "/") {
			if part == ".." || part == "." || strings.Contains(part, "\x00") {
				t.Errorf("%q is %q", path, name)
			}
		}
		if strings.Count(name, "/") != strings.Count(path, "/")-1 {
			t.Errorf("%q is %q: another depth", path, name)
		}
	})
}
