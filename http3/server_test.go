package http3_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/http3"
)

func get(t testing.TB, c *http.Client, url string) (*http.Response, string) {
	t.Helper()
	resp, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(b)
}

func TestGet(t *testing.T) {
	url := serve(t, &http3.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 3 || r.TLS == nil || !r.TLS.HandshakeComplete || r.Host == "" || r.Header.Get("Host") != "" {
			t.Errorf("request %+v", r)
		}
		w.Header().Set("X-Path", r.URL.Path)
		fmt.Fprintf(w, "hello %s", r.URL.Query().Get("name"))
	})})
	c := client(t)
	for i := range 3 {
		resp, body := get(t, c, url+"/a/b?name=world")
		if body != "hello world" || resp.StatusCode != 200 || resp.Header.Get("X-Path") != "/a/b" || resp.ContentLength != 11 ||
			resp.Header.Get("Content-Type") != "text/plain; charset=utf-8" || resp.Header.Get("Date") == "" || resp.ProtoMajor != 3 {
			t.Fatalf("%d: %q, %+v", i, body, resp)
		}
	}
}

// Many requests side by side. A server may answer, and end the reading of a request, before the client has
// ended the sending: that is no error (RFC 9114 4.1).
func TestManyRequests(t *testing.T) {
	url := serve(t, &http3.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.URL.Path)
	})})
	c := client(t)
	var all sync.WaitGroup
	for worker := range 16 {
		all.Go(func() {
			for i := range 200 {
				path := fmt.Sprintf("/%d/%d", worker, i)
				resp, err := c.Get(url + path)
				if err != nil {
					t.Error(err)
					return
				}
				b, err := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if err != nil || string(b) != path {
					t.Errorf("%q, %v; want %q", b, err, path)
					return
				}
			}
		})
	}
	all.Wait()
}

func TestEcho(t *testing.T) {
	url := serve(t, &http3.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(w, r.Body); err != nil {
			t.Error(err)
		}
	})})
	c := client(t)
	for _, n := range []int{1, 100, 4000, 4096, 5000, 100_000, 3 << 20} {
		sent := bytes.Repeat([]byte("0123456789abcdef!"), n/17+1)[:n]
		resp, err := c.Post(url, "application/octet-stream", bytes.NewReader(sent))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		if err != nil || !bytes.Equal(got, sent) {
			t.Fatalf("%d bytes: %d came back, %v", n, len(got), err)
		}
		_ = resp.Body.Close()
	}
}

func TestStatusesAndMethods(t *testing.T) {
	url := serve(t, &http3.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/204":
			w.WriteHeader(204)
			if _, err := w.Write([]byte("x")); !errors.Is(err, http.ErrBodyNotAllowed) {
				t.Error(err)
			}
		case "/304":
			w.Header().Set("Etag", `"1"`)
			w.WriteHeader(304)
		case "/404":
			http.NotFound(w, r)
		default:
			w.Header().Set("Content-Length", "5")
			_, _ = io.WriteString(w, "12345")
		}
	})})
	c := client(t)
	for path, want := range map[string]struct {
		status int
		body   string
	}{"/204": {204, ""}, "/304": {304, ""}, "/404": {404, "404 page not found\n"}, "/": {200, "12345"}} {
		if resp, body := get(t, c, url+path); resp.StatusCode != want.status || body != want.body {
			t.Errorf("%s: %d %q", path, resp.StatusCode, body)
		}
	}
	resp, err := c.Head(url)
	if err != nil || resp.ContentLength != 5 {
		t.Fatalf("HEAD: %v, %+v", err, resp)
	}
	if b, err := io.ReadAll(resp.Body); err != nil || len(b) > 0 {
		t.Errorf("HEAD: %q, %v", b, err)
	}
}

// Strings of requests, responses and trailers outlive them, literals included, which lie in memory that is
// used again.
func TestStringsStay(t *testing.T) {
	var mu sync.Mutex
	var kept []string
	url := serve(t, &http3.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		mu.Lock()
		defer mu.Unlock()
		kept = append(kept, r.Header.Get("Authorization"), r.URL.Path, r.Trailer.Get("X-Later"))
		w.Header().Set("Set-Cookie", "for "+r.URL.Path)
		w.Header().Set(http.TrailerPrefix+"X-Later", "trailer "+r.URL.Path)
	})})
	c := client(t)
	var responses, want, wantResponses []string
	for i := range 60 {
		path := fmt.Sprintf("/path/%d", i*7919)
		req, _ := http.NewRequestWithContext(within(t), http.MethodPost, url+path, strings.NewReader("x"))
		req.Header.Set("Authorization", "secret of "+path)
		req.Trailer = http.Header{"X-Later": {"later " + path}}
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		responses = append(responses, resp.Header.Get("Set-Cookie"), resp.Trailer.Get("X-Later"))
		want = append(want, "secret of "+path, path, "later "+path)
		wantResponses = append(wantResponses, "for "+path, "trailer "+path)
	}
	mu.Lock()
	defer mu.Unlock()
	if !slices.Equal(kept, want) {
		t.Errorf("requests %q\nwant %q", kept, want)
	}
	if !slices.Equal(responses, wantResponses) {
		t.Errorf("responses %q\nwant %q", responses, wantResponses)
	}
}

// The Content-Length of a handler holds: more is refused, and less is an error at the client.
func TestContentLength(t *testing.T) {
	url := serve(t, &http3.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "5")
		if r.URL.Path == "/less" {
			_, _ = io.WriteString(w, "123")
			return
		}
		if _, err := io.WriteString(w, "123456"); !errors.Is(err, http.ErrContentLength) {
			t.Error(err)
		}
		_, _ = io.WriteString(w, "12345")
	})})
	c := client(t)
	if resp, body := get(t, c, url+"/more"); body != "12345" || resp.ContentLength != 5 {
		t.Errorf("%q, %d", body, resp.ContentLength)
	}
	resp, err := c.Get(url + "/less")
	if err == nil {
		_, err = io.ReadAll(resp.Body)
		_ = resp.Body.Close()
	}
	var se *http3.StreamError
	if !errors.As(err, &se) || se.Code != http3.InternalError {
		t.Errorf("less: %v", err)
	}
}

func TestTrailers(t *testing.T) {
	url := serve(t, &http3.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, announced := r.Trailer["X-Sum"]; !announced {
			t.Error("the trailer is not announced")
		}
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Trailer", "X-Got")
		_, _ = w.Write(body)
		w.Header().Set("X-Got", r.Trailer.Get("X-Sum"))
		w.Header().Set(http.TrailerPrefix+"X-More", "more")
	})})
	req, err := http.NewRequestWithContext(within(t), http.MethodPost, url, strings.NewReader("content"))
	if err != nil {
		t.Fatal(err)
	}
	req.Trailer = http.Header{"X-Sum": {"42"}}
	resp, err := client(t).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, announced := resp.Trailer["X-Got"]; !announced {
		t.Error("the trailer of the response is not announced")
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil || string(body) != "content" || resp.Trailer.Get("X-Got") != "42" || resp.Trailer.Get("X-More") != "more" {
		t.Errorf("%q, %v, trailers %v", body, err, resp.Trailer)
	}
}

// 103 Early Hints and 100 Continue come before the response (RFC 8297, RFC 9110 10.1.1).
func TestInterimResponses(t *testing.T) {
	url := serve(t, &http3.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</style.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		if b, err := io.ReadAll(r.Body); err != nil || string(b) != "content" {
			t.Errorf("%q, %v", b, err)
		}
		w.Header().Del("Link")
		w.WriteHeader(201)
	})})
	var seen []string
	ctx := httptrace.WithClientTrace(within(t), &httptrace.ClientTrace{
		Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			seen = append(seen, fmt.Sprint(code, h.Get("Link")))
			return nil
		},
		Got100Continue: func() { seen = append(seen, "continue") },
	})
	req, _ := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader("content"))
	req.Header.Set("Expect", "100-continue")
	resp, err := client(t).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if got := strings.Join(seen, ";"); got != "103 </style.css>; rel=preload;continue;100 " && got != "103</style.css>; rel=preload;continue;100" || resp.StatusCode != 201 {
		t.Errorf("%q, then %d", got, resp.StatusCode)
	}
}

// The end of a client's context resets the stream, and ends that of the handler.
func TestCancel(t *testing.T) {
	ended := make(chan error, 1)
	started := make(chan struct{})
	url := serve(t, &http3.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(started)
		select {
		case <-r.Context().Done():
			ended <- nil
		case <-time.After(patience):
			ended <- errors.New("the handler's context goes on")
		}
	})})
	c := client(t)
	ctx, cancel := contextWithCancel(t)
	go func() {
		<-started
		cancel()
	}()
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if _, err := c.Do(req); !errors.Is(err, ctx.Err()) {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A panic resets the stream, and the connection works on.
func TestPanic(t *testing.T) {
	panics := make(chan any, 1)
	url := serve(t, &http3.Server{
		Panicked: func(_ *http.Request, v any) { panics <- v },
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/abort":
				panic(http.ErrAbortHandler)
			case "/panic":
				_, _ = io.WriteString(w, "x")
				panic("test")
			}
		}),
	})
	c := client(t)
	for _, path := range []string{"/abort", "/panic"} {
		var se *http3.StreamError
		if _, err := c.Get(url + path); !errors.As(err, &se) || se.Code != http3.InternalError || !se.Remote {
			t.Errorf("%s: %v", path, err)
		}
	}
	if v := <-panics; v != "test" {
		t.Errorf("panic %v", v)
	}
	if resp, _ := get(t, c, url); resp.StatusCode != 200 {
		t.Error(resp.Status)
	}
}

// Shutdown lets requests under way finish, and refuses new ones; a client goes on with a new connection.
func TestShutdown(t *testing.T) {
	release, started := make(chan struct{}), make(chan struct{})
	s := &http3.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(started)
		<-release
		_, _ = io.WriteString(w, "late")
	})}
	url := serve(t, s)
	c := client(t)
	got := make(chan string, 1)
	go func() {
		_, body := get(t, c, url)
		got <- body
	}()
	<-started
	down := make(chan error, 1)
	go func() { down <- s.Shutdown(within(t)) }()
	time.Sleep(50 * time.Millisecond)
	close(release)
	if body := <-got; body != "late" {
		t.Errorf("%q", body)
	}
	if err := <-down; err != nil {
		t.Error(err)
	}
}

func TestGzip(t *testing.T) {
	text := strings.Repeat("compress me ", 1000)
	url := serve(t, &http3.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept-Encoding") != "gzip" {
			t.Error(r.Header)
		}
		w.Header().Set("Content-Encoding", "gzip")
		writeGzip(w, text)
	})})
	if resp, body := get(t, client(t), url); body != text || !resp.Uncompressed || resp.Header.Get("Content-Encoding") != "" {
		t.Errorf("%d bytes, %v", len(body), resp.Header)
	}
}

// A header above the server's limit is answered with 431 (RFC 9114 4.2.2), and one above the client's is an
// error of its stream.
func TestHeaderLimits(t *testing.T) {
	url := serve(t, &http3.Server{MaxHeaderBytes: 2000, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/large" {
			w.Header().Set("X-Large", strings.Repeat("x", 3000))
		}
	})})
	small := &http.Client{Transport: transport(t, &http3.Transport{Machine: http3.MachineOptions{MaxFieldSection: 2000}})}
	var se *http3.StreamError
	if _, err := small.Get(url + "/large"); !errors.As(err, &se) || se.Code != http3.ExcessiveLoad {
		t.Errorf("a large response: %v", err)
	}
	if resp, _ := get(t, small, url); resp.StatusCode != 200 {
		t.Error(resp.Status)
	}
	req, _ := http.NewRequestWithContext(within(t), http.MethodGet, url, nil)
	req.Header.Set("X-Large", strings.Repeat("x", 3000))
	resp, err := client(t).Do(req)
	// The client knows the limit once the settings have arrived.
	if err == nil && resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge || err != nil && !errors.As(err, &se) {
		t.Errorf("a large request: %v, %v", resp, err)
	}
}
