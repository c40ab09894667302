package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/gateway/dashboard"
	"github.com/millrace/millrace/internal/testkit/chromium"
)

const adminToken = "0123456789abcdef0123456789abcdef"

// withDashboard returns a configuration with a dashboard, and its address. The file of the token is in a folder of its own.
func withDashboard(t *testing.T, src string) (config, at string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(adminToken+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	at = free(t)
	return strings.Replace(src, "admin: {socket: SOCKET}", "admin: {socket: SOCKET, listen: '"+at+"', hosts: gw.example, token_file: "+file+"}", 1), at
}

// state returns what the page reads.
func (s *site) state(at string) (d dashboard.Data) {
	s.t.Helper()
	resp, err := s.client.Get("http://" + at + "/data.json")
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&d); err != nil {
		s.t.Fatal(err)
	}
	return d
}

// command sends a command of the page.
func (s *site) command(at, path, token, body string) int {
	s.t.Helper()
	q, err := http.NewRequest(http.MethodPost, "http://"+at+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	q.Header.Set("Content-Type", "application/json")
	q.Header.Set("Authorization", "Bearer "+token)
	resp, err := s.client.Do(q)
	if err != nil {
		s.t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

func TestTheDashboardShowsTheGatewayAndChangesItWithTheToken(t *testing.T) {
	src, at := withDashboard(t, strings.NewReplacer(`"A"`, `"`+named(t, "a")+`"`, `"B"`, `"`+named(t, "b")+`"`).Replace(siteConfig))
	s := newSite(t, src)
	for range 4 {
		s.get("/x")
	}
	d := s.state(at)
	if d.HTTP == nil || d.HTTP.Counts.Requests != 4 || len(d.Backends) != 2 || d.Backends[0].Of != "p" || d.Backends[0].Done != 2 || !d.Backends[0].Up || !d.Commands || d.Draining ||
		d.HTTP.Routes[0].Name != "r" || d.HTTP.Routes[0].Requests != 4 || d.HTTP.LatencyTotal != 4 || d.HTTP.Latency[len(d.HTTP.Latency)-1].Count != 4 || d.CPU <= 0 || d.Memory == 0 {
		t.Errorf("%+v", d)
	}
	if code := s.command(at, "/v1/drain", "wrong", `{"service": "p", "backend": "a"}`); code != http.StatusUnauthorized {
		t.Errorf("a wrong token gets %d", code)
	}
	if code := s.command(at, "/v1/drain", adminToken, `{"service": "p", "backend": "a"}`); code != http.StatusOK {
		t.Errorf("drain gets %d", code)
	}
	for _, b := range s.state(at).Backends {
		if want := map[string]string{"a": "inactive", "b": "active"}[b.Name]; b.State != want && !(b.Name == "a" && b.State == "draining") {
			t.Errorf("%s is %s, not %s", b.Name, b.State, want)
		}
	}
	for path, want := range map[string]string{"/healthz": "ok\n", "/readyz": "ready\n"} {
		resp, err := s.client.Get("http://" + at + path)
		if err != nil {
			t.Fatal(err)
		}
		if text, _ := io.ReadAll(resp.Body); string(text) != want {
			t.Errorf("%s: %q", path, text)
		}
		resp.Body.Close()
	}
	// A reload takes the token away, then the page.
	s.reload(regexp.MustCompile(`, token_file: \S+}`).ReplaceAllString(src, "}"))
	if code := s.command(at, "/v1/undrain", adminToken, `{"service": "p", "backend": "a"}`); code != http.StatusForbidden {
		t.Errorf("without a token in the configuration undrain gets %d", code)
	}
	s.reload(regexp.MustCompile(`, listen: .*}`).ReplaceAllString(src, "}"))
	if c, err := net.Dial("tcp", at); err == nil {
		c.Close()
		t.Error("the page is still there")
	}
}

// 10 000 clients that connect and send nothing, half a request or too much, that read nothing, come from other sites or guess tokens
// neither keep others out, nor get in, nor hold up clients of the listener.
func TestHostileClientsOfTheDashboardKeepNoOthersOut(t *testing.T) {
	src, at := withDashboard(t, strings.NewReplacer(`"A"`, `"`+named(t, "a")+`"`, `, {name: b, address: "B"}`, "").Replace(siteConfig))
	s := newSite(t, src)
	const drain = "POST /v1/drain HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
	hostile := []string{
		"",
		"GET /data.json HTTP/1.1\r\nHo",
		drain + "Content-Length: 1000000000\r\n\r\n{",
		strings.Repeat("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", 50), // whose answers are not read
		drain + "Origin: http://evil.example\r\nAuthorization: Bearer " + adminToken + "\r\nContent-Length: 32\r\n\r\n" + `{"service":"p","backend":"a    "}`,
		drain + "Authorization: Bearer 0123456789abcdef0123456789abcdee\r\nContent-Length: 27\r\n\r\n" + `{"service":"p","backend":"a"}`,
		"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + strings.Repeat("x", 20<<10),
	}
	var open []net.Conn
	defer func() {
		for _, c := range open {
			c.Close()
		}
	}()
	d := net.Dialer{Timeout: time.Minute, LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 9)}} // not the operator's
	for i := range 10_000 {
		c, err := d.Dial("tcp", at)
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		open = append(open, c)
		_ = c.SetWriteDeadline(time.Now().Add(time.Minute))
		_, _ = io.WriteString(c, hostile[i%len(hostile)])
		if i%1000 != 999 {
			continue
		}
		if code, _ := s.get("/x"); code != 200 {
			t.Errorf("a client of the listener gets %d", code)
		}
		if d := s.state(at); d.HTTP == nil || d.Backends[0].State != "active" {
			t.Errorf("the page has %+v", d.Backends)
		}
		for _, c := range open[:len(open)-300] { // which the gateway has closed by now
			c.Close()
		}
		open = open[len(open)-300:]
	}
	if code := s.command(at, "/v1/drain", adminToken, `{"service": "p", "backend": "a", "force": true}`); code != http.StatusOK {
		t.Errorf("the operator gets %d", code)
	}
}

// The page in a browser: it shows the backends, breaks no policy and throws nothing. With MILLRACE_SCREENSHOTS, a folder, it is also
// drawn there as docs/ has it.
func TestTheDashboardInABrowser(t *testing.T) {
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(time.Duration(len(r.URL.Path)) * time.Millisecond / 4)
		if strings.Contains(r.URL.Path, "fail") {
			w.WriteHeader(http.StatusInternalServerError)
		}
		_, _ = io.WriteString(w, strings.Repeat("x", 500))
	}))
	t.Cleanup(slow.Close)
	dir := t.TempDir()
	writePair(t, dir, "shop.example")
	cert := filepath.Join(dir, "shop.example")
	src, at := withDashboard(t, strings.NewReplacer(`"A"`, `"`+strings.TrimPrefix(slow.URL, "http://")+`"`, `{name: b, address: "B"}`, `{name: b, address: "`+free(t)+`"}`).Replace(siteConfig))
	src = strings.Replace(src, "listeners: [", "listeners: [{name: tls, address: '"+free(t)+"', protocol: HTTPS, tls: {certificates: [{cert: "+cert+"}]}}, ", 1)
	src = strings.Replace(src, "pools:\n- {name: p,", "pools:\n- {name: p, passive: {errors: 2}, drain: 9s,", 1)
	s := newLoggedSite(t, src, slog.New(slog.NewTextHandler(io.Discard, nil)))
	s.d.opt.Log.Warn("certificates", "error", "<img src=x onerror=alert(1)> expires in 6 days")
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for i := 0; ctx.Err() == nil; i++ {
			s.get([]string{"/", "/shop/cart?id=7", "/fixed", "/api/items/" + fmt.Sprint(i%40), "/fail", "/<script>alert(1)</script>"}[i%6])
		}
	}()
	defer func() { stop(); <-ended }()
	p := chromium.Open(t)
	p.View(1280, 1000, false)
	p.Go("http://" + at + "/")
	p.Await(`document.querySelector("#paths td.wide") !== null && document.querySelector("#stages .split") !== null && document.querySelectorAll("#tiles polyline").length > 0`)
	t.Logf("first paint after %s ms", p.Eval(`performance.getEntriesByName("first-contentful-paint")[0]?.startTime`))
	text := p.Eval(`document.body.innerText`)
	for _, want := range []string{"serving", "requests/s", "● up, active", "○ down", "127.0.0.1", "/shop/cart", "%3Cscript%3E", "<img src=x", "rules and queues", "expires in"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q in %s", want, text)
		}
	}
	if got := p.Eval(`document.querySelectorAll("#notices img, #paths script").length`); got != "0" {
		t.Errorf("%s elements come from data", got)
	}
	// No style, script or request of others works in the page.
	if got := p.Eval(`fetch("http://127.0.0.1:1/").then(() => "sent", e => e.name)`); got != "TypeError" {
		t.Errorf("a request to another site: %s", got)
	}
	before := len(p.Faults())
	for _, fault := range p.Faults() {
		if !strings.Contains(fault, "127.0.0.1:1/") {
			t.Errorf("the console has %s", fault)
		}
	}
	// With the token the page drains the backend that is down; the other one is refused, as no other takes requests.
	p.Accept()
	p.Eval(`document.querySelector("#token").value = "` + adminToken + `"; document.querySelector("#login").requestSubmit()`)
	const button = `document.querySelectorAll("#backends button")[1]`
	p.Await(button + ` !== undefined`)
	for _, want := range []string{"undrain", "drain"} {
		p.Eval(button + `.click()`)
		p.Await(button + `.textContent === "` + want + `"`)
	}
	if more := p.Faults()[before:]; len(more) > 0 {
		t.Errorf("the console has %s", more)
	}
	if pictures := os.Getenv("MILLRACE_SCREENSHOTS"); pictures != "" {
		draw(t, p, at, pictures)
	}
}

// draw writes the pictures of the docs.
func draw(t *testing.T, p *chromium.Page, at, folder string) {
	t.Helper()
	for _, v := range []struct {
		name          string
		width, height int
		dark          bool
	}{{"desktop-light", 1280, 900, false}, {"desktop-dark", 1280, 900, true}, {"phone-light", 390, 844, false}, {"phone-dark", 390, 844, true}} {
		p.View(v.width, v.height, v.dark)
		p.Go("http://" + at + "/")
		p.Await(`document.querySelectorAll("#tiles polyline")[0]?.getAttribute("points").split(" ").length > 8 && document.querySelector("#stages .split") !== null`)
		if err := os.WriteFile(filepath.Join(folder, "dashboard-"+v.name+".png"), p.Screenshot(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
