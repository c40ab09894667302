package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/fcgi"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/l7/fastcgi"
	"github.com/millrace/millrace/l7/files"
	"github.com/millrace/millrace/l7/rewrite"
)

// scriptRig changes a rig to speak FastCGI with its backend. The folder of the scripts is one of the test, with these files.
func scriptRig(t *testing.T, change func(f *FastCGI), names ...string) func(r *rig) {
	t.Helper()
	root := t.TempDir()
	for _, name := range names {
		path := filepath.Join(root, name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, []byte("source of "+name), 0o600))
	}
	site, err := files.Open(files.Options{Root: root})
	must(t, err)
	f := &FastCGI{Scripts: fastcgi.Scripts{Extensions: []string{".php"}, Index: "index.php"}, Root: root, Site: site, Most: 64 << 10}
	if change != nil {
		change(f)
	}
	return func(r *rig) { r.pool.Protocol, r.pool.FastCGI = Scripts, f }
}

// application serves FastCGI by Go's own implementation of the application's side.
func application(t *testing.T, h http.HandlerFunc) (addr string) {
	t.Helper()
	l := over.listen(t)
	done := make(chan struct{})
	go func() { defer close(done); _ = fcgi.Serve(l, h) }()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return l.Addr().String()
}

// variablesOf answers with the variables that are no HTTP_*, and the request as Go's package reads it.
func variablesOf(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	env := fcgi.ProcessEnv(r)
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{
		"env": env, "method": r.Method, "uri": r.URL.RequestURI(), "host": r.Host, "body": string(body), "length": r.ContentLength, "header": r.Header, "remote": r.RemoteAddr, "proto": r.Proto,
	})
}

// scriptView is what an application has seen of a request.
type scriptView struct {
	Env                     map[string]string
	Method, URI, Host, Body string
	Remote, Proto           string
	Length                  int64
	Header                  http.Header
}

// ask sends a request, and returns what the application has seen.
func ask(t *testing.T, c *http.Client, req *http.Request) (s scriptView) {
	t.Helper()
	resp, err := c.Do(req)
	must(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("%s: status %d, %v: %s", req.URL, resp.StatusCode, err, text)
	}
	must(t, json.Unmarshal(text, &s))
	return s
}

func newRequest(t *testing.T, method, url string, body io.Reader) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, body)
	must(t, err)
	return req
}

// unsized hides the length of content: it is sent in chunks.
type unsized struct{ io.Reader }

func TestScriptsGetRequestsOfAllVersions(t *testing.T) {
	addr := application(t, variablesOf)
	for _, keep := range []bool{false, true} {
		r := newRig(t, addr, scriptRig(t, func(f *FastCGI) { f.Keep = keep }, "index.php", "blog/index.php"))
		for name, c := range map[string]struct {
			client *http.Client
			base   string
			proto  string
		}{
			"1.1": {r.client(false), "http://" + r.addr, "HTTP/1.1"}, "1.1 with TLS": {r.client(false), "https://" + r.secure, "HTTP/1.1"}, "2": {r.client(true), "https://" + r.secure, "HTTP/2.0"},
		} {
			for _, size := range []int{0, 1, 1000, 64 << 10, 300 << 10} {
				content := strings.Repeat("x", size)
				s := ask(t, c.client, newRequest(t, "POST", c.base+"/blog/index.php/a%20b?q=1", strings.NewReader(content)))
				if s.Body != content || s.Length != int64(size) || !strings.HasSuffix(s.Env["PATH_TRANSLATED"], "/a b") || s.URI != "/blog/index.php/a%20b?q=1" || s.Proto != c.proto {
					t.Errorf("%s, %d bytes: %d bytes of %d, %s, %s, %v", name, size, len(s.Body), s.Length, s.URI, s.Proto, s.Env)
				}
			}
			for _, size := range []int{0, 1, 1000, 64 << 10} {
				content := strings.Repeat("y", size)
				s := ask(t, c.client, newRequest(t, "PUT", c.base+"/", unsized{strings.NewReader(content)}))
				if s.Body != content || s.Length != int64(size) {
					t.Errorf("%s, %d bytes of unknown length: %d bytes of %d", name, size, len(s.Body), s.Length)
				}
			}
			s := ask(t, c.client, newRequest(t, "GET", c.base+"/blog/?a=b", nil))
			if s.Method != "GET" || s.URI != "/blog/?a=b" || !strings.HasSuffix(s.Env["SCRIPT_FILENAME"], "/blog/index.php") {
				t.Errorf("%s: %+v", name, s)
			}
		}
		r.settled()
		var reused uint64
		r.do(func() { reused = r.worker.Stats().Reused })
		if (reused > 0) != keep {
			t.Errorf("keep %v: %d requests on connections that had carried one", keep, reused)
		}
	}
}

func TestScriptsGetRequestsOfHTTP3(t *testing.T) {
	addr := application(t, variablesOf)
	change := scriptRig(t, nil, "index.php")
	r := http3Rig(t, addr, change)
	c := r.client3()
	for _, body := range []io.Reader{strings.NewReader("content"), unsized{strings.NewReader("content")}} {
		if s := ask(t, c, newRequest(t, "POST", "https://"+r.secure+"/", body)); s.Body != "content" || s.Proto != "HTTP/3.0" || s.Length != 7 {
			t.Errorf("%+v", s)
		}
	}
	r.settled()
}

// A client sets no variable that programs act upon, and none in place of another (CVE-2016-5385 and its like).
func TestScriptsGetNoVariablesOfAClientsChoice(t *testing.T) {
	addr := application(t, variablesOf)
	r := newRig(t, addr, scriptRig(t, func(f *FastCGI) {
		f.Params = []FastCGIParam{{"APP_ENV", rewrite.Text("test")}, {"SERVER_SOFTWARE", rewrite.Text("other")}}
	}, "index.php"))
	for _, c := range []*http.Client{r.client(false)} {
		req := newRequest(t, "GET", "http://"+r.addr+"/", nil)
		for _, name := range []string{"Proxy", "X_Forwarded_For", "X.Custom", "Content_Length", "Https", "X_Custom"} {
			req.Header.Set(name, "claimed")
		}
		req.Header.Set("X-Custom", "right")
		req.Header.Add("X-Several", "a")
		req.Header.Add("X-Several", "b")
		s := ask(t, c, req)
		if s.Header.Get("X-Several") != "a, b" || s.Header.Get("X-Custom") != "right" || s.Header.Get("Https") != "claimed" || s.Env["HTTPS"] != "" {
			t.Errorf("%+v", s)
		}
		for name, values := range s.Header {
			if strings.Contains(strings.Join(values, " "), "claimed") && name != "Https" {
				t.Errorf("%s: %q", name, values)
			}
		}
		if s.Env["APP_ENV"] != "test" || s.Env["SERVER_SOFTWARE"] != "other" {
			t.Errorf("%v", s.Env)
		}
	}
	r.settled()
}

// Paths that name no script reach no backend: PHP must not look for one among the parents of a path.
func TestPathsThatNameNoScript(t *testing.T) {
	addr := application(t, variablesOf)
	names := []string{"index.php", "upload/photo.jpg", "admin/index.php", ".git/hook.php"}
	for _, fallback := range []string{"", "/index.php"} {
		r := newRig(t, addr, scriptRig(t, func(f *FastCGI) { f.Fallback = fallback }, names...))
		c := r.client(false)
		c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		for path, want := range map[string]string{
			"/": "/index.php", "/index.php/x": "/index.php", "/admin/": "/admin/index.php", "/upload/photo.jpg/x.php": "", "/upload/photo.jpg%00.php": "", "/.git/hook.php": "", "/none": "",
			"/upload/": "", "/upload/photo.jpg": "",
		} {
			resp, err := c.Get("http://" + r.addr + path)
			must(t, err)
			var s scriptView
			_ = json.NewDecoder(resp.Body).Decode(&s)
			resp.Body.Close()
			if want == "" {
				want = fallback
			}
			got, _ := strings.CutPrefix(s.Env["SCRIPT_FILENAME"], r.pool.FastCGI.Root)
			if wantStatus := map[bool]int{true: 200, false: 404}[want != ""]; strings.Contains(path, "%00") {
				if resp.StatusCode == 200 && got != fallback {
					t.Errorf("%s: %s", path, got)
				}
			} else if resp.StatusCode != wantStatus || got != want {
				t.Errorf("%s with fallback %q: status %d, script %q, want %q", path, fallback, resp.StatusCode, got, want)
			}
		}
		resp, err := c.Get("http://" + r.addr + "/admin?x=1")
		must(t, err)
		resp.Body.Close()
		if resp.StatusCode != 301 || resp.Header.Get("Location") != "/admin/?x=1" {
			t.Errorf("a folder: status %d, %v", resp.StatusCode, resp.Header)
		}
		r.settled()
		var missing uint64
		r.do(func() { missing = r.worker.Stats().NoScript })
		if (missing > 0) != (fallback == "") {
			t.Errorf("fallback %q: %d requests without a script", fallback, missing)
		}
	}
}

// rawScripts serves FastCGI by f, which gets each connection once its request is complete.
func rawScripts(t *testing.T, f func(c net.Conn)) (addr string) {
	t.Helper()
	l := over.listen(t)
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer c.Close()
				for header := make([]byte, 8); ; {
					if _, err := io.ReadFull(c, header); err != nil {
						return
					}
					n := int(header[4])<<8 | int(header[5]) + int(header[6])
					if _, err := io.CopyN(io.Discard, c, int64(n)); err != nil {
						return
					}
					if header[1] == 5 && n == 0 {
						f(c)
						return
					}
				}
			})
		}
	})
	t.Cleanup(func() { l.Close(); all.Wait() })
	return l.Addr().String()
}

// scriptRecord is a record of an application.
func scriptRecord(kind byte, content string) string {
	return string([]byte{1, kind, 0, 1, byte(len(content) >> 8), byte(len(content)), 0, 0}) + content
}

// scriptEnd is FCGI_END_REQUEST.
func scriptEnd(status byte) string {
	return scriptRecord(3, string([]byte{0, 0, 0, 0, status, 0, 0, 0}))
}

func TestResponsesOfScripts(t *testing.T) {
	stdout := func(text string) string { return scriptRecord(6, text) }
	const ok = "Content-Type: text/plain\r\n\r\n"
	for name, c := range map[string]struct {
		sent   string
		status int
		body   string // "cut" is a response that is not complete
	}{
		"plain":                   {stdout(ok+"hello") + stdout("") + scriptEnd(0), 200, "hello"},
		"in parts":                {stdout("Content-Ty") + stdout("pe: text/plain\r\n\r") + stdout("\nhel") + stdout("lo") + scriptEnd(0), 200, "hello"},
		"status":                  {stdout("Status: 404 Gone fishing\r\n"+ok+"no") + scriptEnd(0), 404, "no"},
		"location":                {stdout("Location: /x\r\n\r\n") + scriptEnd(0), 302, ""},
		"length":                  {stdout("Content-Length: 5\r\n"+ok+"hello") + scriptEnd(0), 200, "hello"},
		"more than its length":    {stdout("Content-Length: 5\r\n"+ok+"hello, you") + scriptEnd(0), 200, "cut"},
		"less than its length":    {stdout("Content-Length: 5\r\n"+ok+"hell") + scriptEnd(0), 200, "cut"},
		"framing of its own":      {stdout("Transfer-Encoding: chunked\r\nConnection: close\r\n"+ok+"hello") + scriptEnd(0), 200, "hello"},
		"no content":              {stdout("Status: 204 Nothing\r\nX-A: b\r\n\r\nnoise") + scriptEnd(0), 204, ""},
		"stderr first":            {scriptRecord(7, "PHP Warning: a") + stdout(ok+"hello") + scriptRecord(7, "b") + scriptEnd(0), 200, "hello"},
		"ends before the header":  {stdout("Content-Type: te"), 502, ""},
		"ends without a byte":     {"", 502, ""},
		"ends in the content":     {stdout(ok + "hel"), 200, "cut"},
		"ends in a record":        {stdout(ok + "hello")[:30], 502, ""},
		"ends behind the content": {stdout(ok+"hello") + stdout(""), 200, "cut"},
		"no header":               {stdout("") + scriptEnd(0), 502, ""},
		"wrong header":            {stdout("no header\r\n\r\n") + scriptEnd(0), 502, ""},
		"wrong status":            {stdout("Status: 101\r\n\r\n") + scriptEnd(0), 502, ""},
		"overloaded":              {scriptEnd(2), 503, ""},
		"unknown role":            {scriptEnd(3), 502, ""},
		"HTTP":                    {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 502, ""},
		"too large a header":      {stdout("X-A: "+strings.Repeat("b", 40000)+"\r\n") + stdout("X-B: "+strings.Repeat("b", 40000)+"\r\n\r\n") + scriptEnd(0), 502, ""},
		"a response behind it":    {stdout(ok+"hello") + scriptEnd(0) + stdout(ok+"evil") + scriptEnd(0), 200, "hello"},
	} {
		addr := rawScripts(t, func(conn net.Conn) { _, _ = io.WriteString(conn, c.sent) })
		var lock sync.Mutex
		log := ""
		r := newRig(t, addr, scriptRig(t, func(f *FastCGI) {
			f.Keep = true
			f.Log = func(backend string, text []byte) {
				lock.Lock()
				log += backend + " " + string(text) + "\n"
				lock.Unlock()
			}
		}, "index.php"))
		for _, h2 := range []bool{false, true} {
			client := r.client(h2)
			client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
			resp, err := client.Get("https://" + r.secure + "/")
			must(t, err)
			body, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			switch {
			case resp.StatusCode != c.status:
				t.Errorf("%s (HTTP/2: %v): status %d, want %d", name, h2, resp.StatusCode, c.status)
			case c.body == "cut" && err == nil:
				t.Errorf("%s (HTTP/2: %v): %q ends in order", name, h2, body)
			case c.body != "cut" && c.status < 500 && (err != nil || string(body) != c.body):
				t.Errorf("%s (HTTP/2: %v): %q, %v", name, h2, body, err)
			}
		}
		r.settled()
		lock.Lock()
		if want := strings.Repeat("b PHP Warning: a\nb b\n", 2); name == "stderr first" && log != want {
			t.Errorf("%s: the log is %q", name, log)
		}
		lock.Unlock()
	}
}

// Content of unknown length is held up to a bound, and no longer: 413.
func TestContentOfUnknownLengthIsBounded(t *testing.T) {
	addr := application(t, variablesOf)
	r := newRig(t, addr, scriptRig(t, nil, "index.php"))
	for _, h2 := range []bool{false, true} {
		content := bytes.Repeat([]byte("x"), 64<<10+1)
		resp, err := r.client(h2).Do(newRequest(t, "POST", "https://"+r.secure+"/", unsized{bytes.NewReader(content)}))
		must(t, err)
		resp.Body.Close()
		if resp.StatusCode != 413 {
			t.Errorf("HTTP/2 %v: status %d", h2, resp.StatusCode)
		}
		if s := ask(t, r.client(h2), newRequest(t, "POST", "https://"+r.secure+"/", bytes.NewReader(content))); len(s.Body) != len(content) {
			t.Errorf("HTTP/2 %v: %d bytes of known length", h2, len(s.Body))
		}
	}
	r.settled()
}

// A script that streams is not held back, and its end is the end of the response.
func TestScriptsStream(t *testing.T) {
	next := make(chan struct{})
	addr := application(t, func(w http.ResponseWriter, r *http.Request) {
		for i := range 3 {
			fmt.Fprintf(w, "part %d\n", i)
			w.(http.Flusher).Flush()
			<-next
		}
	})
	r := newRig(t, addr, scriptRig(t, nil, "index.php"))
	resp, err := r.client(true).Get("https://" + r.secure + "/")
	must(t, err)
	defer resp.Body.Close()
	for i := range 3 {
		line := make([]byte, len("part 0\n"))
		if _, err := io.ReadFull(resp.Body, line); err != nil || string(line) != fmt.Sprintf("part %d\n", i) {
			t.Fatalf("%q, %v", line, err)
		}
		next <- struct{}{}
	}
	if rest, err := io.ReadAll(resp.Body); err != nil || len(rest) > 0 {
		t.Errorf("%q, %v", rest, err)
	}
	r.settled()
}

// A large response to a slow client stops the application, and arrives whole.
func TestLargeResponsesOfScripts(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789abcdef"), 1<<19)
	addr := application(t, func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write(content) })
	r := newRig(t, addr, scriptRig(t, nil, "index.php"))
	for _, h2 := range []bool{false, true} {
		resp, err := r.client(h2).Get("https://" + r.secure + "/")
		must(t, err)
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || !bytes.Equal(body, content) {
			t.Errorf("HTTP/2 %v: %d bytes of %d, %v", h2, len(body), len(content), err)
		}
	}
	r.settled()
}

// WebSockets have no way through CGI.
func TestScriptsHaveNoTunnels(t *testing.T) {
	addr := application(t, variablesOf)
	r := newRig(t, addr, scriptRig(t, nil, "index.php"))
	req := newRequest(t, "GET", "http://"+r.addr+"/", nil)
	for name, value := range map[string]string{"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="} {
		req.Header.Set(name, value)
	}
	resp, err := r.client(false).Do(req)
	must(t, err)
	resp.Body.Close()
	if resp.StatusCode != 501 {
		t.Errorf("status %d", resp.StatusCode)
	}
	r.settled()
}

// A client that leaves ends the request at the application: its connection is closed.
func TestTheEndOfAClientEndsTheScript(t *testing.T) {
	closed := make(chan error, 1)
	addr := rawScripts(t, func(c net.Conn) {
		_, _ = io.WriteString(c, scriptRecord(6, "A: b\r\n\r\nx"))
		_, err := c.Read(make([]byte, 1))
		closed <- err
	})
	r := newRig(t, addr, scriptRig(t, nil, "index.php"))
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, "GET", "https://"+r.secure+"/", nil)
	must(t, err)
	resp, err := r.client(true).Do(req)
	must(t, err)
	cancel()
	resp.Body.Close()
	select {
	case err := <-closed:
		if err == nil {
			t.Error("the application has got a byte")
		}
	case <-time.After(20 * time.Second):
		t.Error("the connection to the application stays")
	}
	r.settled()
}
