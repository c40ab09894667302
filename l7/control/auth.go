package control

import (
	"context"
	ctls "crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/l7/auth"
	"github.com/millrace/millrace/l7/proxy"
	"github.com/millrace/millrace/tls"
)

// planAuth returns how requests of a route are asked for credentials, nil if they are not.
func (s *Set) planAuth(cfg *config.Config, g *guards, r *config.Route) (proxy.Authority, error) {
	switch a := r.Auth; {
	case a == nil:
	case a.Basic != nil:
		users := cfg.Users(a.Basic.File)
		if old := s.guards.users[r.Name]; old != nil && old.Same(users) {
			users = old // with the logins that it remembers
		}
		g.users[r.Name] = users
		return &proxy.Basic{Realm: a.Basic.Realm, Users: users}, nil
	case a.JWT != nil:
		i, err := s.planIssuer(cfg, r.Name, a.JWT)
		if err != nil {
			return nil, fmt.Errorf("route %s: %w", r.Name, err)
		}
		g.issuers[r.Name] = i
		return i.bearer, nil
	}
	return nil, nil // a ForwardAuth needs the pools
}

// forwardAuth returns the question that requests of a route lead to, nil if they do not.
func (n *plan) forwardAuth(r *config.Route) proxy.Authority {
	if r.Auth == nil || r.Auth.Forward == nil {
		return nil
	}
	f := r.Auth.Forward
	rule := &proxy.Rule{Name: "auth", Backends: []proxy.Weighted{{Pool: n.pools[f.Pool].proxy, Weight: 1}}, Request: f.Timeout, Attempts: 2}
	return &proxy.ForwardAuth{Rule: rule, Path: f.Path, Copy: f.ResponseHeaders, Send: f.RequestHeaders}
}

// issuer is the issuer of a route's tokens, with its keys.
type issuer struct {
	cfg    config.JWTAuth
	tokens *auth.Tokens
	bearer *proxy.Bearer
	keys   []auth.Key   // of a file
	client *http.Client // of a URL
	stop   context.CancelFunc

	read, failed atomic.Uint64 // of the URL
}

// planIssuer returns an issuer: that which was there, if its configuration is the same. It reads nothing yet.
func (s *Set) planIssuer(cfg *config.Config, route string, c *config.JWTAuth) (*issuer, error) {
	keys := cfg.Keys(c.File)
	if old := s.guards.issuers[route]; old != nil && reflect.DeepEqual(old.cfg, *c) && reflect.DeepEqual(old.keys, keys) {
		return old, nil
	}
	i := &issuer{cfg: *c, keys: keys, tokens: auth.NewTokens(auth.TokenOptions{Issuer: c.Issuer, Audiences: c.Audiences, Leeway: c.Leeway})}
	if c.URL == "" {
		i.tokens.SetKeys(keys)
	} else {
		conf := &ctls.Config{}
		if c.CAFile != "" {
			roots, err := tls.LoadRoots(cfg.Beside(c.CAFile))
			if err != nil {
				return nil, err
			}
			conf.RootCAs = roots.Pool()
		}
		i.client = keyClient(conf)
	}
	b := proxy.Bearer{Realm: c.Realm, Tokens: i.tokens, Cookie: c.Cookie}
	if c.UserClaim != "sub" {
		b.User = c.UserClaim
	}
	for _, f := range c.Claims {
		b.Fields = append(b.Fields, proxy.ClaimField{Name: f.Name, Claim: f.Claim})
	}
	i.bearer = proxy.NewBearer(b, len(s.loops))
	return i, nil
}

// useIssuers begins to read keys, and stops it for issuers that the configuration has no more. The caller holds s.mu.
func (s *Set) useIssuers(old, now map[string]*issuer) {
	for name, i := range old {
		if now[name] != i && i.stop != nil {
			i.stop()
		}
	}
	for name, i := range now {
		if i.client != nil && i.stop == nil {
			var ctx context.Context
			ctx, i.stop = context.WithCancel(s.ctx)
			go i.watch(ctx, s.opt.Log.With("route", name))
		}
	}
}

// Bounds of reading keys.
const (
	keyTime   = 10 * time.Second // of one request
	keyPause  = 5 * time.Second  // after keys were read, whatever tokens name
	keyRetry  = time.Second      // after a failure; doubled with each further one, up to keyMost
	keyMost   = time.Minute
	keyBytes  = 1 << 20
	redirects = 3
)

// watch reads keys now, every Refresh, and when a token names one that is not there: issuers change them without notice.
func (i *issuer) watch(ctx context.Context, log *slog.Logger) {
	retry := keyRetry
	for {
		err := i.readKeys(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			i.failed.Add(1)
			log.Error("keys of tokens", "url", i.cfg.URL, "error", err.Error(), "have_keys", i.tokens.Ready())
			if !pause(ctx, retry, nil) {
				return
			}
			retry = min(2*retry, keyMost)
			continue
		}
		i.read.Add(1)
		retry = keyRetry
		if !pause(ctx, keyPause, nil) || !pause(ctx, i.cfg.Refresh-keyPause, i.tokens.Wanted()) {
			return
		}
	}
}

// pause waits for a time, or for a reason to go on before; false at the end.
func pause(ctx context.Context, d time.Duration, before <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-before:
	case <-t.C:
	}
	return true
}

// readKeys reads the keys once.
func (i *issuer) readKeys(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, i.cfg.URL, http.NoBody)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "application/jwk-set+json, application/json")
	resp, err := i.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the server answers %s", resp.Status)
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, keyBytes+1))
	if err != nil {
		return err
	}
	keys, err := auth.ParseJWKS(text)
	if err != nil {
		return err
	}
	i.tokens.SetKeys(keys)
	return nil
}

// keyClient returns a client that follows no redirect to plain HTTP.
func keyClient(conf *ctls.Config) *http.Client {
	return &http.Client{
		Timeout: keyTime, Transport: &http.Transport{TLSClientConfig: conf, Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true},
		CheckRedirect: func(req *http.Request, via []*http.Request) error {
			if len(via) > redirects || !safeURL(req.URL) {
				return errors.New("a redirect to " + req.URL.Redacted() + " is not followed")
			}
			return nil
		},
	}
}

func safeURL(u *url.URL) bool {
	a, _ := netip.ParseAddr(u.Hostname())
	return u.Scheme == "https" || a.IsLoopback()
}
