package dashboard

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	_ "embed" // the page
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Settings come from the configuration, and change with it.
type Settings struct {
	Hosts []string // names by which browsers may ask, beside localhost and IP addresses
	Token []byte   // nil: there are no commands
}

// Options describe a dashboard. All are required.
type Options struct {
	Settings func() Settings
	Data     func() *Data
	Top      func(context.Context) (any, error) // takes seconds
	Commands http.Handler                       // of the control socket
	Log      *slog.Logger
	Now      func() time.Time // time.Now
}

// commands are those of the control socket that the page has.
var commands = []string{"/v1/drain", "/v1/undrain", "/v1/weight", "/v1/reload"}

//go:embed page.html
var page []byte

// server answers requests. Those at about the same time share what is made for them.
type server struct {
	Options
	policy string // Content-Security-Policy
	state  shared
	top    flight
	tries  guesses

	mu     sync.Mutex
	warned time.Time // when a wrong token was logged last
	wrong  int       // tokens since
}

// Handler returns the handler of a dashboard.
func Handler(o Options) http.Handler {
	s := &server{Options: o, policy: policyOf(page)}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", s.servePage)
	mux.HandleFunc("GET /data.json", s.serveData)
	mux.HandleFunc("GET /top.json", s.serveTop)
	for _, path := range commands {
		mux.HandleFunc("POST "+path, s.serveCommand)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.protect(w.Header())
		if code, why := s.refuses(r); code != 0 {
			http.Error(w, why, code)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// policyOf returns the policy of a page with one style and one script in it: these, and requests to where it came from, and nothing
// else. Attributes with styles or scripts do not work then.
func policyOf(page []byte) string {
	hash := func(tag string) string {
		_, rest, _ := strings.Cut(string(page), "<"+tag+">")
		text, _, _ := strings.Cut(rest, "</"+tag+">")
		sum := sha256.Sum256([]byte(text))
		return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	}
	return "default-src 'none'; script-src " + hash("script") + "; style-src " + hash("style") +
		"; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}

// protect sets the fields that keep a browser from using an answer in other ways.
func (s *server) protect(h http.Header) {
	h.Set("Content-Security-Policy", s.policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// refuses returns why a request is not answered: it comes by a name that is not the gateway's, or from another site. 0: it is.
func (s *server) refuses(r *http.Request) (code int, why string) {
	if !s.knows(r.Host) {
		return http.StatusForbidden, "the configuration has no such host: add it to admin.hosts"
	}
	site := r.Header.Get("Sec-Fetch-Site")
	opened := r.Method == http.MethodGet && r.URL.Path == "/" && r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
	if site != "" && site != "same-origin" && site != "none" && !opened { // a link to the page may be anywhere
		return http.StatusForbidden, "requests from other sites are refused"
	}
	if origin := r.Header.Get("Origin"); origin != "" {
		u, err := url.Parse(origin)
		if err != nil || u.Host != r.Host || u.Scheme != "http" && u.Scheme != "https" {
			return http.StatusForbidden, "requests from other sites are refused"
		}
	}
	return 0, ""
}

// knows reports whether a browser that asks by a host shows a page of this gateway: an address is no name that others could have
// resolve to it.
func (s *server) knows(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
	if _, err := netip.ParseAddr(host); err == nil || host == "localhost" {
		return true
	}
	return slices.Contains(s.Settings().Hosts, host)
}

func (s *server) servePage(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(page)
}

// serveData answers with the state, which requests share that come within a second.
func (s *server) serveData(w http.ResponseWriter, _ *http.Request) {
	text, err := s.state.get(func() ([]byte, error) { return json.Marshal(s.Data()) })
	reply(w, text, err)
}

// serveTop answers with the requests of some seconds, which requests share that come meanwhile.
func (s *server) serveTop(w http.ResponseWriter, r *http.Request) {
	text, err := s.top.get(r.Context(), func(ctx context.Context) ([]byte, error) {
		v, err := s.Top(ctx)
		if err != nil {
			return nil, err
		}
		return json.Marshal(v)
	})
	reply(w, text, err)
}

func reply(w http.ResponseWriter, text []byte, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(text)
}

// serveCommand passes a command on to the control socket's handler, if it comes with the token. A form of another page cannot send
// this type of content without the browser asking first.
func (s *server) serveCommand(w http.ResponseWriter, r *http.Request) {
	token := s.Settings().Token
	if token == nil {
		http.Error(w, "the dashboard is read-only: set admin.token_file", http.StatusForbidden)
		return
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		http.Error(w, "the content of a command is application/json", http.StatusUnsupportedMediaType)
		return
	}
	from := sourceOf(r.RemoteAddr)
	if wait := s.tries.take(from, s.Now()); wait > 0 {
		s.warn(r)
		w.Header().Set("Retry-After", strconv.Itoa(int(wait/time.Second)+1))
		http.Error(w, "too many wrong tokens from this address: wait, or use the control socket", http.StatusTooManyRequests)
		return
	}
	given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok || !sameToken([]byte(given), token) {
		s.warn(r)
		w.Header().Set("WWW-Authenticate", "Bearer")
		http.Error(w, "wrong token", http.StatusUnauthorized)
		return
	}
	s.tries.right(from)
	s.Commands.ServeHTTP(w, r)
	s.state.forget()
}

// sameToken compares in a time that depends on neither's content nor length.
func sameToken(a, b []byte) bool {
	x, y := sha256.Sum256(a), sha256.Sum256(b)
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// warnEvery bounds how often wrong tokens are logged.
const warnEvery = time.Minute

func (s *server) warn(r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wrong++
	if now := s.Now(); now.Sub(s.warned) >= warnEvery {
		s.Log.Warn("dashboard", "error", "wrong token", "client", r.RemoteAddr, "tokens", fmt.Sprint(s.wrong))
		s.warned, s.wrong = now, 0
	}
}
