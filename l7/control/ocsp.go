package control

import (
	"bytes"
	"context"
	"sync"

	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/internal/regfile"
	"github.com/millrace/millrace/tls"
)

// maxOCSP bounds the file of an OCSP response, in bytes.
const maxOCSP = 64 << 10

// stapleFile is an OCSP response in a file, which another program renews.
type stapleFile struct {
	store    *tls.Store
	id, path string

	lock sync.Mutex
	last []byte // that was tried
}

// Reload implements tls.Reloader. A response that the file has had before is not tried again: it was reported.
func (f *stapleFile) Reload() error {
	f.lock.Lock()
	defer f.lock.Unlock()
	response, err := regfile.Read(f.path, maxOCSP)
	if err != nil || bytes.Equal(response, f.last) {
		return err
	}
	f.last = response
	return f.store.Staple(f.id, response)
}

// addStaples adds what sends OCSP responses with the certificates of a listener: files, or a stapler. A response that cannot be used is
// no reason to refuse the configuration: the certificate is served without it.
func (t *servedTLS) addStaples(s *Set, cfg *config.Config, l *config.Listener) error {
	stapled := map[string]bool{}
	for _, c := range l.TLS.Certificates {
		if c.OCSPFile == "" {
			continue
		}
		f := &stapleFile{store: t.store, id: cfg.KeyPair(c).CertFile, path: cfg.Beside(c.OCSPFile)}
		if _, err := regfile.Read(f.path, maxOCSP); err != nil {
			return err
		}
		if err := f.Reload(); err != nil {
			warn(s, "ocsp", "listener", l.Name, "file", f.path, "error", err.Error(), "result", "it is not sent")
		}
		t.files, stapled[f.id] = append(t.files, f), true
	}
	if l.TLS.OCSP == config.OCSPFetch {
		t.stapler = &tls.Stapler{Store: t.store, Report: func(id string, err error) {
			warn(s, "ocsp", "listener", l.Name, "certificate", id, "error", err.Error(), "result", "the last response is sent until it expires; it is tried again")
		}}
		return nil
	}
	for _, c := range t.store.Status() {
		if c.MustStaple && !stapled[c.ID] {
			warn(s, "ocsp", "listener", l.Name, "certificate", c.ID, "result", "clients refuse it: it demands an OCSP response",
				"remedy", "set `ocsp: fetch` of tls, or ocsp_file of the certificate")
		}
	}
	return nil
}

// warn logs a warning.
func warn(s *Set, what string, args ...any) {
	if s.opt.Log != nil { // tests of plans have none
		s.opt.Log.Warn(what, args...)
	}
}

// staple runs the staplers of the listeners of a plan, and ends those of others. The caller holds s.mu.
func staple(s *Set, next map[string]*servedTLS) {
	for name, t := range s.served {
		if t.stop != nil && next[name] != t {
			t.stop()
		}
	}
	for _, t := range next {
		if t.stapler == nil || t.stop != nil {
			continue
		}
		ctx, stop := context.WithCancel(s.ctx)
		t.stop = stop
		s.staplers.Go(func() { _ = t.stapler.Run(ctx) }) // its error is that of ctx
	}
}
