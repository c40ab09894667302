package control

import (
	"context"
	ctls "crypto/tls"
	"reflect"
	"slices"

	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/l7/proxy"
	"github.com/millrace/millrace/l7/rewrite"
	"github.com/millrace/millrace/tls"
	"github.com/millrace/millrace/tls/acme"
)

// servedTLS is the TLS of a listener: what the workers have, and the files that it is made of.
type servedTLS struct {
	settings config.ListenerTLS
	versions []config.HTTPVersion
	config   *ctls.Config
	store    *tls.Store
	serves   func(serverName, host string) bool // see proxy.Listener
	files    []tls.Reloader
	demand   *acme.OnDemand     // nil: none
	stapler  *tls.Stapler       // fetches OCSP responses; nil: none
	stop     context.CancelFunc // of the stapler, nil while it does not run
}

// planTLS returns the TLS of a listener. What has the same settings stays, so that clients resume their sessions, and its
// files are read again.
func (s *Set) planTLS(n *plan, l *config.Listener) (*servedTLS, error) {
	cfg := n.cfg
	if old := s.served[l.Name]; old != nil && reflect.DeepEqual(old.settings, *l.TLS) && slices.Equal(old.versions, l.Versions) {
		for _, f := range old.files {
			if err := f.Reload(); err != nil {
				return nil, err
			}
		}
		return old, nil
	}
	t := &servedTLS{settings: *l.TLS, versions: l.Versions}
	store := &tls.Store{}
	var pairs []tls.KeyPair
	for _, c := range l.TLS.Certificates {
		pairs = append(pairs, cfg.KeyPair(c))
	}
	if err := store.Load(pairs...); err != nil {
		return nil, err
	}
	t.store, t.files = store, append(t.files, store)
	var issuer *authority
	if a := l.TLS.ACME; a != nil {
		issuer = n.authorities[cfg.Beside(a.Dir)]
		for _, c := range certificatesOf(l.TLS, store) { // what there is serves the first client
			if err := issuer.Restore(c); err != nil {
				return nil, err
			}
		}
	}
	t.serves = servesOf(l.TLS.Misdirected, store)
	o := tls.ServerOptions{Store: store, MinVersion: ctls.VersionTLS12}
	if l.TLS.MinVersion == config.TLS13 {
		o.MinVersion = ctls.VersionTLS13
	}
	if l.TLS.MaxVersion == config.TLS12 {
		o.MaxVersion = ctls.VersionTLS12
	}
	for _, name := range l.TLS.Ciphers {
		o.Suites = append(o.Suites, tls.SuiteByName(name))
	}
	if l.HTTP2() {
		o.Protocols = append(o.Protocols, "h2")
	}
	if slices.Contains(l.Versions, config.HTTP1) {
		o.Protocols = append(o.Protocols, "http/1.1", "http/1.0") // the latter for clients that offer nothing else (RFC 7301 6)
	}
	if err := t.addClientAuth(cfg, l.TLS.ClientAuth, &o); err != nil {
		return nil, err
	}
	if file := l.TLS.TicketKeyFile; file != "" {
		keys, err := tls.LoadTicketKeys(tls.TicketPeriod, cfg.Beside(file))
		if err != nil {
			return nil, err
		}
		o.Tickets, t.files = keys, append(t.files, keys)
	}
	var err error
	if t.config, err = tls.NewServerConfig(o); err != nil {
		return nil, err
	}
	if err := t.addStaples(s, cfg, l); err != nil {
		return nil, err
	}
	if issuer != nil {
		issuer.Attach(t.config)
		if t.demand, err = newDemand(cfg, issuer, l.TLS.ACME.OnDemand, store); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// closeStores overwrites the private keys of listeners and pools that are not kept, as far as Store.Close does. Handshakes under
// way end.
func closeStores(all, kept map[string]*servedTLS, pools, keptPools map[string]*pooled) {
	for name, t := range all {
		if kept[name] != t {
			t.store.Close()
		}
	}
	for name, p := range pools {
		if next := keptPools[name]; next == nil || !slices.Equal(next.files, p.files) {
			closeFiles(p.files)
		}
	}
}

// closeFiles closes the stores among files.
func closeFiles(files []tls.Reloader) {
	for _, f := range files {
		if s, ok := f.(*tls.Store); ok {
			s.Close()
		}
	}
}

// servesOf returns which hosts a connection serves; nil is all.
func servesOf(m config.Misdirected, store *tls.Store) func(serverName, host string) bool {
	switch m {
	case config.MisdirectedCertificate:
		return func(serverName, host string) bool { // a client that asks for no name has looked at the certificate, or takes any
			return serverName == "" || store.Serves(serverName, host)
		}
	case config.MisdirectedServerName:
		return proxy.SameName
	}
	return nil
}

// clientCert returns what backends learn of certificates of clients.
func clientCert(a *config.ClientAuth) rewrite.ClientCert {
	if a == nil {
		return rewrite.ClientCert{}
	}
	styles := map[config.ForwardCert]rewrite.CertStyle{config.ForwardCertRFC: rewrite.CertRFC9440, config.ForwardCertX: rewrite.CertXFCC}
	return rewrite.ClientCert{Style: styles[a.Forward], Chain: a.ForwardChain}
}

func (t *servedTLS) addClientAuth(cfg *config.Config, a *config.ClientAuth, o *tls.ServerOptions) error {
	if a == nil {
		return nil
	}
	roots, err := tls.LoadRoots(beside(cfg, a.CAFiles)...)
	if err != nil {
		return err
	}
	o.ClientAuth, t.files = &tls.ClientAuth{Roots: roots, Optional: a.Optional}, append(t.files, roots)
	if len(a.CRLFiles) == 0 {
		return nil
	}
	lists, err := tls.LoadRevocation(tls.RevocationOptions{Files: beside(cfg, a.CRLFiles)})
	if err != nil {
		return err
	}
	o.ClientAuth.Revocation, t.files = lists, append(t.files, lists)
	return nil
}
