package control

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	ctls "crypto/tls"

	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/internal/secretfile"
	"github.com/millrace/millrace/metrics"
	"github.com/millrace/millrace/tls"
	"github.com/millrace/millrace/tls/acme"
)

// authority is an account with an authority of ACME, in a folder. Listeners with that folder share it.
type authority struct {
	*acme.Manager
	settings config.ACME // those of the account count
	stop     context.CancelFunc
	running  sync.WaitGroup
	started  bool
}

// errAccount is the error of a reload that changes what a folder's account is with.
var errAccount = errors.New("acme: the folder is in use with another authority, account or challenges: take another dir, or restart")

// planACME opens the folders of accounts that are new, and keeps the others. Those that are not used any more are closed by use.
func (s *Set) planACME(n *plan) error {
	for i := range n.cfg.Listeners {
		l := &n.cfg.Listeners[i]
		if l.TLS == nil || l.TLS.ACME == nil {
			continue
		}
		a := l.TLS.ACME
		dir := n.cfg.Beside(a.Dir)
		if n.authorities[dir] != nil {
			continue
		}
		if old := s.authorities[dir]; old != nil {
			if !old.settings.SameAccount(a) {
				return fmt.Errorf("listener %s: %w", l.Name, errAccount)
			}
			n.authorities[dir] = old
			continue
		}
		opened, err := openAuthority(s.opt.Log, n.cfg, a, dir, s.opt.Inherited.lock(dir))
		if err != nil {
			return fmt.Errorf("listener %s: %w", l.Name, err)
		}
		n.authorities[dir] = opened
	}
	return nil
}

// openAuthority opens the folder of an account.
func openAuthority(log *slog.Logger, cfg *config.Config, a *config.ACME, dir string, lock *os.File) (*authority, error) {
	o := acme.Options{
		Lock:      lock,
		Directory: a.Directory, AgreeToTerms: a.Terms, Dir: dir, Contact: a.Contact, Report: func(e acme.Event) { logCertificate(log, e) },
		NoHTTP: !a.Allows(config.ChallengeHTTP) || !hasHTTP(cfg), NoTLS: !a.Allows(config.ChallengeTLS),
	}
	if len(a.CAFiles) > 0 {
		roots := x509.NewCertPool()
		for _, file := range a.CAFiles {
			b, err := os.ReadFile(cfg.Beside(file))
			if err != nil {
				return nil, err
			}
			roots.AppendCertsFromPEM(b)
		}
		o.Client = &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, TLSClientConfig: &ctls.Config{RootCAs: roots, MinVersion: ctls.VersionTLS12},
		}}
	}
	if a.External != nil {
		key, err := secretfile.Read(cfg.Beside(a.External.KeyFile))
		if err != nil {
			return nil, err
		}
		o.Account = &acme.ExternalAccount{KeyID: a.External.KeyID, MACKey: strings.TrimSpace(string(key))}
	}
	m, err := acme.New(o)
	if err != nil {
		return nil, err
	}
	return &authority{Manager: m, settings: *a}, nil
}

// hasHTTP reports whether a listener can answer challenges of http-01.
func hasHTTP(cfg *config.Config) bool {
	return slices.ContainsFunc(cfg.Listeners, func(l config.Listener) bool { return l.Protocol == config.ListenerHTTP })
}

// dropACME closes the folders that a plan which is not used has opened beside those in use.
func (n *plan) dropACME(used map[string]*authority) (err error) {
	for dir, a := range n.authorities {
		if used[dir] != a {
			err = errors.Join(err, a.Close())
		}
	}
	return err
}

// useACME has certificates obtained and renewed for the listeners of a configuration. The caller holds s.mu.
func (s *Set) useACME(n *plan) (err error) {
	for dir, a := range s.authorities {
		if n.authorities[dir] != a {
			err = errors.Join(err, a.end())
		}
	}
	s.authorities = n.authorities
	for dir, a := range s.authorities {
		var list []acme.Certificate
		for i := range n.cfg.Listeners {
			if l := &n.cfg.Listeners[i]; l.TLS != nil && l.TLS.ACME != nil && n.cfg.Beside(l.TLS.ACME.Dir) == dir {
				list = append(list, certificatesOf(l.TLS, n.served[l.Name].store)...)
			}
		}
		err = errors.Join(err, a.Set(list))
		a.SetOnDemand(demandsOf(n, dir))
		a.start(s.ctx)
	}
	return err
}

// certificatesOf returns what is managed for a listener: a certificate for each name, so that one that cannot be proven keeps no other
// from its own.
func certificatesOf(t *config.ListenerTLS, store *tls.Store) (list []acme.Certificate) {
	for i, name := range t.ACME.Names {
		list = append(list, acme.Certificate{Names: []string{name}, Store: store, Default: i == 0 && len(t.Certificates) == 0})
	}
	return list
}

// start runs the manager, once.
func (a *authority) start(ctx context.Context) {
	if a.started {
		return
	}
	a.started = true
	ctx, a.stop = context.WithCancel(ctx)
	a.running.Go(func() { _ = a.Run(ctx) }) // the error is that of ctx
}

// end ends the manager, and frees its folder.
func (a *authority) end() error {
	if a.started {
		a.stop()
	}
	a.running.Wait()
	return a.Close()
}

// closeACME ends all managers, once.
func (s *Set) closeACME() (err error) {
	s.mu.Lock()
	all := s.authorities
	s.authorities = nil
	closeDemands(s.served, nil)
	s.mu.Unlock()
	for _, a := range all {
		err = errors.Join(err, a.end())
	}
	return err
}

// challenge returns what answers challenges of http-01, nil where there are none.
func (n *plan) challenge() func(path string) (string, bool) {
	if len(n.authorities) == 0 {
		return nil
	}
	all := slices.Collect(maps.Values(n.authorities))
	return func(path string) (string, bool) {
		for _, a := range all {
			if answer, ok := a.HTTPAnswer(path); ok {
				return answer, true
			}
		}
		return "", false
	}
}

// logCertificate logs an attempt to obtain a certificate.
func logCertificate(log *slog.Logger, e acme.Event) {
	of := []any{"names", fmt.Sprint(e.Names), "renewal", e.Renewal, "next", e.Next.UTC().Format(time.RFC3339)}
	if e.Err != nil {
		log.Error("acme", append(of, "error", e.Err.Error(), "remedy", remedyOf(e.Err))...)
		return
	}
	log.Info("acme", append(of, "result", "the certificate is in use")...)
}

// remedyOf returns what to do where a certificate was not obtained.
func remedyOf(err error) string {
	var unreached *url.Error
	var unknown *ctls.CertificateVerificationError
	switch {
	case errors.Is(err, acme.ErrLimited):
		return "orders_per_hour or certificates of on_demand bound it, and any name that is permitted counts: permit fewer (names, ask), or raise them"
	case errors.Is(err, acme.ErrAsk):
		return "the server of on_demand.ask has to answer within 5 s: 200 permits a name, 404 does not"
	case errors.As(err, &unknown):
		return "acme.ca_file names the authorities by which HTTPS of acme.directory is verified, in place of the system's (Debian: ca-certificates)"
	case errors.As(err, &unreached):
		return "the authority of acme.directory cannot be reached from here: check its name in DNS, and that HTTPS may leave; it is tried again at `next`"
	}
	return "the names have to lead here: for http-01 at port 80, for tls-alpn-01 at port 443; it is tried again at `next`"
}

// CertificateStatus is a certificate of a listener.
type CertificateStatus struct {
	Names    []string   `json:"names"`
	File     string     `json:"file,omitempty"`         // without: by ACME
	NotAfter *time.Time `json:"not_after"`              // null: there is none yet
	Staple   *time.Time `json:"staple_until,omitempty"` // until when an OCSP response is sent
	Next     *time.Time `json:"next_attempt,omitempty"`
	Failures int        `json:"failures,omitempty"` // to obtain it, in a row
	Error    string     `json:"error,omitempty"`
}

// acmePrefix begins the IDs of certificates that a Manager has put into a store.
const acmePrefix = "acme:"

// certificates returns those of a listener, the first to expire first. The caller holds s.mu.
func (s *Set) certificates(l *config.Listener) (list []CertificateStatus) {
	t := s.served[l.Name]
	if t == nil {
		return nil
	}
	for _, c := range t.store.Status() {
		if strings.HasPrefix(c.ID, acmePrefix) {
			continue
		}
		one := CertificateStatus{Names: c.Names, File: c.ID, NotAfter: &c.NotAfter}
		if !c.StapleUntil.IsZero() {
			one.Staple = &c.StapleUntil
		}
		if c.Err != nil {
			one.Error = c.Err.Error()
		}
		list = append(list, one)
	}
	if l.TLS.ACME == nil {
		return list
	}
	a := s.authorities[s.cfg.Beside(l.TLS.ACME.Dir)]
	if a == nil { // it ends
		return list
	}
	for _, c := range a.Status() {
		if !slices.Contains(l.TLS.ACME.Names, c.Names[0]) {
			continue
		}
		one := CertificateStatus{Names: c.Names, Next: &c.Next, Failures: c.Failures, Error: c.LastErr}
		if !c.NotAfter.IsZero() {
			one.NotAfter = &c.NotAfter
		}
		list = append(list, one)
	}
	return list
}

func writeCertificates(w *metrics.Writer, listener string, list []CertificateStatus) {
	for _, c := range list {
		of := []metrics.Label{{Name: "listener", Value: listener}, {Name: "certificate", Value: c.label()}}
		expiry := 0.0
		if c.NotAfter != nil {
			expiry = float64(c.NotAfter.Unix())
		}
		w.Gauge("millrace_http_certificate_expiry_timestamp_seconds", "When a certificate of a listener expires; 0 is that there is none yet.", expiry, of...)
		if c.Staple != nil {
			w.Gauge("millrace_http_certificate_staple_expiry_timestamp_seconds", "Until when the OCSP response of a certificate is sent.", float64(c.Staple.Unix()), of...)
		}
		if c.Next == nil {
			continue
		}
		w.Gauge("millrace_http_certificate_attempt_failures", "Attempts in a row that failed to obtain a certificate by ACME.", float64(c.Failures), of...)
		w.Gauge("millrace_http_certificate_next_attempt_timestamp_seconds", "When a certificate is obtained or renewed by ACME.", float64(c.Next.Unix()), of...)
	}
}

// label returns the name of a certificate in metrics and logs.
func (c *CertificateStatus) label() string {
	if c.File == "" {
		return c.Names[0]
	}
	return c.File
}

// expiresSoon is the time before the end of a certificate from which it is logged each day.
const expiresSoon = 14 * 24 * time.Hour

// warnExpiry logs certificates that expire soon, each once a day. Those of ACME are renewed long before, so that one of these shows that
// the renewal fails; those that live for less than a month count from a quarter of their life on, which the caller does not know: their
// failures are in the log in any case.
func (s *Set) warnExpiry(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.cfg.Listeners {
		l := &s.cfg.Listeners[i]
		for _, c := range s.certificates(l) {
			id := l.Name + " " + c.label()
			if c.NotAfter == nil || c.NotAfter.Sub(now) > expiresSoon || c.File == "" && c.Failures == 0 || now.Sub(s.warned[id]) < 24*time.Hour {
				continue
			}
			if s.warned == nil {
				s.warned = map[string]time.Time{}
			}
			s.warned[id] = now
			s.opt.Log.Warn("certificates", "listener", l.Name, "certificate", c.label(), "names", fmt.Sprint(c.Names),
				"expires", c.NotAfter.UTC().Format(time.RFC3339), "remedy", "renew it: files that change are read within a minute")
		}
	}
}
