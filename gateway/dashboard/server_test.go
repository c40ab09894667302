package dashboard

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/gateway/config"
	l4control "github.com/millrace/millrace/l4/control"
	l7control "github.com/millrace/millrace/l7/control"
)

const token = "0123456789abcdef0123456789abcdef"

// rig is a dashboard whose parts count how often they are asked.
type rig struct {
	http.Handler
	settings Settings
	data     atomic.Int32
	top      atomic.Int32
	ran      []string // commands
	log      bytes.Buffer
	topGate  chan struct{} // closed: top answers at once
	now      time.Time
	from     string // the client's address, where it is not that of httptest
}

func newRig() *rig {
	r := &rig{settings: Settings{Hosts: []string{"gw.example"}, Token: []byte(token)}, topGate: make(chan struct{}), now: time.Unix(1e9, 0)}
	r.Handler = Handler(Options{
		Settings: func() Settings { return r.settings },
		Data:     func() *Data { r.data.Add(1); return &Data{Version: "v"} },
		Top: func(ctx context.Context) (any, error) {
			r.top.Add(1)
			select {
			case <-r.topGate:
				return map[string]int{"requests": 1}, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		},
		Commands: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			body, _ := io.ReadAll(q.Body)
			r.ran = append(r.ran, q.URL.Path+" "+string(body))
			_, _ = io.WriteString(w, "{}")
		}),
		Log: slog.New(slog.NewTextHandler(&r.log, nil)), Now: func() time.Time { return r.now },
	})
	return r
}

// ask sends a request with fields "name: value".
func (r *rig) ask(method, path, host string, fields ...string) *httptest.ResponseRecorder {
	q := httptest.NewRequest(method, path, strings.NewReader("{}"))
	if q.Host = host; r.from != "" {
		q.RemoteAddr = r.from
	}
	for _, f := range fields {
		name, value, _ := strings.Cut(f, ": ")
		q.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	r.ServeHTTP(w, q)
	return w
}

// Names that the configuration does not have, and other sites, get nothing: not even with the token.
func TestOtherSitesAndHostsAreRefused(t *testing.T) {
	json, bearer := "Content-Type: application/json", "Authorization: Bearer "+token
	for _, c := range []struct {
		method, path, host string
		fields             []string
		code               int
	}{
		{"GET", "/", "127.0.0.1:9180", nil, 200},
		{"GET", "/", "[2001:db8::1]:9180", nil, 200},
		{"GET", "/", "[2001:db8::1]", nil, 200},
		{"GET", "/", "LOCALHOST:1", nil, 200},
		{"GET", "/", "gw.example", nil, 200},
		{"GET", "/data.json", "GW.example.:9180", nil, 200},
		{"GET", "/", "evil.example:9180", nil, 403}, // its name resolves to this machine
		{"GET", "/data.json", "evil.example", nil, 403},
		{"GET", "/data.json", "gw.example.evil.example", nil, 403},
		{"GET", "/", "", nil, 403},
		{"GET", "/data.json", "gw.example", []string{"Sec-Fetch-Site: same-origin"}, 200},
		{"GET", "/data.json", "gw.example", []string{"Sec-Fetch-Site: none"}, 200},
		{"GET", "/data.json", "gw.example", []string{"Sec-Fetch-Site: cross-site"}, 403},
		{"GET", "/data.json", "gw.example", []string{"Sec-Fetch-Site: same-site"}, 403},
		{"GET", "/data.json", "gw.example", []string{"Origin: http://evil.example"}, 403},
		{"GET", "/data.json", "gw.example", []string{"Origin: null"}, 403},
		{"GET", "/data.json", "gw.example", []string{"Origin: http://gw.example:81"}, 403},
		{"GET", "/data.json", "gw.example", []string{"Origin: https://gw.example"}, 200},
		{"GET", "/", "gw.example", []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document"}, 200},
		{"GET", "/", "gw.example", []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: iframe"}, 403},
		{"GET", "/data.json", "gw.example", []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document"}, 403},
		{"POST", "/v1/drain", "gw.example", []string{json, bearer, "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document"}, 403},
		{"POST", "/v1/drain", "evil.example", []string{json, bearer}, 403},
		{"POST", "/v1/drain", "gw.example", []string{json, bearer, "Origin: http://evil.example"}, 403},
		{"POST", "/v1/drain", "gw.example", []string{json}, 401},
		{"POST", "/v1/drain", "gw.example", []string{json, "Authorization: Bearer " + token[1:]}, 401},
		{"POST", "/v1/drain", "gw.example", []string{json, "Authorization: Bearer "}, 401},
		{"POST", "/v1/drain", "gw.example", []string{json, "Authorization: Basic " + token}, 401},
		{"POST", "/v1/drain", "gw.example", []string{"Content-Type: text/plain", bearer}, 415},
		{"POST", "/v1/drain", "gw.example", []string{bearer}, 415},
		{"POST", "/v1/drain", "gw.example", []string{json, bearer, "Origin: http://gw.example", "Sec-Fetch-Site: same-origin"}, 200},
		{"POST", "/v1/stop", "gw.example", []string{json, bearer}, 404},
		{"GET", "/v1/status", "gw.example", []string{bearer}, 404},
		{"PUT", "/v1/drain", "gw.example", []string{json, bearer}, 405},
		{"GET", "/x", "gw.example", nil, 404},
	} {
		r := newRig()
		w := r.ask(c.method, c.path, c.host, c.fields...)
		if w.Code != c.code {
			t.Errorf("%s %s at %q %v: %d, want %d", c.method, c.path, c.host, c.fields, w.Code, c.code)
		}
		if (len(r.ran) > 0) != (c.method == "POST" && c.code == 200) {
			t.Errorf("%s %s %v: commands %v", c.method, c.path, c.fields, r.ran)
		}
		for _, name := range []string{"Content-Security-Policy", "X-Frame-Options", "Cross-Origin-Resource-Policy", "X-Content-Type-Options"} {
			if w.Header().Get(name) == "" {
				t.Errorf("%s %s: no %s", c.method, c.path, name)
			}
		}
		if strings.Contains(w.Body.String(), token) || w.Header().Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s %s: the answer gives something away", c.method, c.path)
		}
	}
}

func TestWithoutATokenThereAreNoCommands(t *testing.T) {
	r := newRig()
	r.settings.Token = nil
	if w := r.ask("POST", "/v1/drain", "gw.example", "Content-Type: application/json", "Authorization: Bearer "); w.Code != 403 || !strings.Contains(w.Body.String(), "admin.token_file") || len(r.ran) > 0 {
		t.Errorf("%d, %s", w.Code, w.Body)
	}
}

// Guesses fill no log.
func TestGuessedTokensAreLoggedOnce(t *testing.T) {
	r := newRig()
	for i := range 1000 {
		want := 401
		if i >= guessesAtOnce {
			want = 429
		}
		if w := r.ask("POST", "/v1/drain", "gw.example", "Content-Type: application/json", "Authorization: Bearer guess"); w.Code != want {
			t.Fatal(i, w.Code)
		}
	}
	if n := strings.Count(r.log.String(), "wrong token"); n != 1 || strings.Contains(r.log.String(), "guess") {
		t.Errorf("%d records: %s", n, r.log.String())
	}
}

// Beyond ten wrong tokens a source has to wait: then not even the right one is compared, so that guessing is of no use. Other sources get
// in meanwhile, and so does this one later.
func TestGuessesAreSlowedDown(t *testing.T) {
	r := newRig()
	try := func(from, token string) *httptest.ResponseRecorder {
		r.from = from
		return r.ask("POST", "/v1/drain", "gw.example", "Content-Type: application/json", "Authorization: Bearer "+token)
	}
	const guesser, neighbour, other = "[2001:db8::1]:700", "[2001:db8::ffff]:9", "[2001:db8:0:1::1]:700"
	for i := range 10 {
		if w := try(guesser, "guess"); w.Code != 401 {
			t.Fatalf("guess %d gets %d", i, w.Code)
		}
	}
	for _, c := range []struct {
		after       time.Duration
		from, token string
		code        int
		retry       string
	}{
		{0, guesser, token, 429, "7"},
		{0, neighbour, "guess", 429, "7"}, // of one /64
		{0, other, "guess", 401, ""},
		{0, other, token, 200, ""},
		{0, "192.0.2.1:1", token, 200, ""},
		{5 * time.Second, guesser, token, 429, "2"},
		{time.Second, guesser, "guess", 401, ""}, // one in six seconds
		{0, guesser, token, 429, "7"},
		{6 * time.Second, guesser, token, 200, ""}, // which forgets the wrong ones
		{0, guesser, "guess", 401, ""},
		{0, guesser, token, 200, ""},
	} {
		r.now = r.now.Add(c.after)
		if w := try(c.from, c.token); w.Code != c.code || w.Header().Get("Retry-After") != c.retry {
			t.Errorf("%+v: %d, Retry-After %q", c, w.Code, w.Header().Get("Retry-After"))
		}
	}
	if len(r.ran) != 4 {
		t.Errorf("commands %q", r.ran)
	}
}

func TestSourcesOfTokens(t *testing.T) {
	for remote, want := range map[string]string{
		"192.0.2.7:9": "192.0.2.7/32", "[::ffff:192.0.2.7]:9": "192.0.2.7/32", "[2001:db8:1:2:3::4]:9": "2001:db8:1:2::/64", "[fe80::1%eth0]:9": "fe80::/64", "@": "invalid Prefix",
	} {
		if got := sourceOf(remote).String(); got != want {
			t.Errorf("%s: %s, want %s", remote, got, want)
		}
	}
}

// The page has one style and one script, which its policy permits, and nothing that the policy forbids.
func TestThePageKeepsItsPolicy(t *testing.T) {
	r := newRig()
	w := r.ask("GET", "/", "localhost")
	policy, text := w.Header().Get("Content-Security-Policy"), w.Body.String()
	if w.Header().Get("Content-Type") != "text/html; charset=utf-8" || len(text) > 40_000 {
		t.Errorf("%s of %d bytes", w.Header().Get("Content-Type"), len(text))
	}
	for _, wrong := range []string{`<[^>]*\son[a-z]+\s*=`, `<[^>]*\sstyle\s*=`, `(?:src|href)\s*=`, `https?://(?:[^w]|w[^w])`, `innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|new Function|localStorage|@import|url\(`} {
		if m := regexp.MustCompile(wrong).FindString(text); m != "" {
			t.Errorf("the page has %q", m)
		}
	}
	if strings.Count(text, "<script>") != 1 || strings.Count(text, "<style>") != 1 || strings.Count(text, "<script") != 1 || strings.Count(policy, "'sha256-") != 2 ||
		strings.Contains(policy, "unsafe") || !strings.Contains(policy, "default-src 'none'") || !strings.Contains(policy, "frame-ancestors 'none'") {
		t.Errorf("policy %s", policy)
	}
	for _, id := range regexp.MustCompile(`\$\('([a-z]+)'\)`).FindAllStringSubmatch(text, -1) {
		if !strings.Contains(text, `id="`+id[1]+`"`) {
			t.Errorf("the script looks for %s, which the page has not", id[1])
		}
	}
}

// The fields that the script reads are in what the gateway sends.
func TestTheScriptReadsFieldsThatThereAre(t *testing.T) {
	d := &Data{Role: &Role{}}
	d.SetBackends([]l4control.ServiceStatus{{Name: "s", Backends: []l4control.BackendStatus{{Name: "b", Down: []l4control.DownStatus{{By: "check", Cause: "refused"}}}}}}, nil)
	d.SetHTTP(&l7control.Status{Listeners: []l7control.ListenerStatus{{Name: "l", Certificates: []l7control.CertificateStatus{{File: "f", NotAfter: new(time.Time), Error: "e"}}}}},
		[]l7control.RouteStatus{{Name: "r"}}, []Bucket{{}}, 1)
	d.Loops = []Loop{{}}
	d.Notices = []Notice{{}}
	text, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range regexp.MustCompile(`\b(?:data|b|x|l|w|h|p|m|c|n|r|e|next|before|d)\.([a-z]+_[a-z_]+|(?:more|down|cause|where|weight|operator|active|done|failed|latency|notices|reload|loops|engine|http|draining|commands|config|version|started|now)\b)`).FindAllStringSubmatch(string(page), -1) {
		if k := key[1]; !bytes.Contains(text, []byte(`"`+k+`":`)) && !strings.HasPrefix(k, "per_") {
			t.Errorf("the script reads %s, which is not in %s", key[0], text)
		}
	}
}

// Requests at about the same time share an answer, and a command makes the next one new.
func TestAnswersAreShared(t *testing.T) {
	r := newRig()
	for range 5 {
		r.ask("GET", "/data.json", "localhost")
	}
	if n := r.data.Load(); n != 1 {
		t.Errorf("the state was made %d times", n)
	}
	r.ask("POST", "/v1/drain", "localhost", "Content-Type: application/json", "Authorization: Bearer "+token)
	r.ask("GET", "/data.json", "localhost")
	if n := r.data.Load(); n != 2 || len(r.ran) != 1 || r.ran[0] != "/v1/drain {}" {
		t.Errorf("the state was made %d times, commands %v", n, r.ran)
	}
	var all sync.WaitGroup
	for range 5 {
		all.Go(func() {
			if w := r.ask("GET", "/top.json", "localhost"); w.Code != 200 {
				t.Errorf("%d", w.Code)
			}
		})
	}
	for r.top.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(20 * time.Millisecond) // the others join; one that is late asks once more, which is no fault
	close(r.topGate)
	all.Wait()
	if n := r.top.Load(); n > 2 {
		t.Errorf("requests were counted %d times", n)
	}
}

// Counting ends when the last client has left, and not before.
func TestCountingEndsWithItsClients(t *testing.T) {
	var f flight
	ended := make(chan error, 1)
	run := func(ctx context.Context) ([]byte, error) {
		<-ctx.Done()
		ended <- ctx.Err()
		return nil, ctx.Err()
	}
	one, leaveOne := context.WithCancel(t.Context())
	two, leaveTwo := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for _, ctx := range []context.Context{one, two} {
		all.Go(func() {
			if _, err := f.get(ctx, run); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
	for {
		f.mu.Lock()
		n := 0
		if f.now != nil {
			n = f.now.waiting
		}
		f.mu.Unlock()
		if n == 2 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	leaveOne()
	for {
		f.mu.Lock()
		n := f.now.waiting
		f.mu.Unlock()
		if n == 1 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	select {
	case <-ended:
		t.Error("it has ended with one client left")
	default:
	}
	leaveTwo()
	<-ended
	all.Wait()
}

func TestRecentKeepsTheLastWarnings(t *testing.T) {
	var r Recent
	var out bytes.Buffer
	log := slog.New(r.Handler(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelError}))).With("loop", 7)
	log.Info("nothing")
	log.Debug("nothing")
	for i := range recentNotices + 5 {
		log.Warn("descriptors", "limit", i)
	}
	log.WithGroup("g").Error("reload", "error", strings.Repeat("é", recentText))
	got := r.Notices()
	if len(got) != recentNotices || got[0].Level != "ERROR" || len(got[0].Text) > recentText+2 || got[1].Text != "descriptors loop=7 limit=54" || got[len(got)-1].Text != "descriptors loop=7 limit=6" {
		t.Errorf("%d: %+v", len(got), got[:2])
	}
	if text := out.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "loop=7") {
		t.Errorf("%s", text)
	}
}

// Of very many backends the page gets those that are down, and then the busiest; and the document stays small.
func TestManyBackendsAreCut(t *testing.T) {
	var pools []l7control.PoolStatus
	for i := range 100 {
		p := l7control.PoolStatus{Name: "p"}
		for k := range 100 {
			p.Backends = append(p.Backends, l7control.BackendStatus{Name: "b", State: "active", Healthy: i != 50 || k > 9, Responses: map[string]uint64{"2xx": uint64(i)}, Failures: map[string]uint64{"reset": 1}})
		}
		pools = append(pools, p)
	}
	d := &Data{}
	d.SetBackends([]l4control.ServiceStatus{{Name: "s", Backends: []l4control.BackendStatus{{Name: "x", Healthy: true, State: config.StateActive, ToPackets: 1e6}}}}, pools)
	if len(d.Backends) != mostRows || d.More != (More{Backends: 10001 - mostRows}) {
		t.Fatalf("%d, %+v", len(d.Backends), d.More)
	}
	for i, b := range d.Backends {
		if want := i >= 10; b.Up != want || i == 10 && !b.Service || i > 10 && b.Done < 98 {
			t.Errorf("backend %d is %+v", i, b)
		}
	}
	if text, err := json.Marshal(d); err != nil || len(text) > 100_000 {
		t.Errorf("%d bytes, %v", len(text), err)
	}
}
