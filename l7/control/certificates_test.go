package control

import (
	"testing"

	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/internal/testkit/testcert"
	"github.com/millrace/millrace/l7/rewrite"
	"github.com/millrace/millrace/tls"
)

func TestMisdirectedSaysWhichHostsAConnectionServes(t *testing.T) {
	cert, _ := testcert.SelfSigned("a.example")
	store := &tls.Store{}
	if err := store.Set("a", cert, true); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		is         config.Misdirected
		name, host string
		want       bool
	}{
		{config.MisdirectedCertificate, "b.example", "a.example", true},
		{config.MisdirectedCertificate, "a.example", "b.example", false},
		{config.MisdirectedCertificate, "", "b.example", true},
		{config.MisdirectedServerName, "b.example", "a.example", false},
		{config.MisdirectedServerName, "a.example", "a.example", true},
	} {
		if got := servesOf(c.is, store)(c.name, c.host); got != c.want {
			t.Errorf("%s: %q serves %q: %v", c.is, c.name, c.host, got)
		}
	}
	if servesOf(config.MisdirectedOff, store) != nil {
		t.Error("off is not off")
	}
}

func TestForwardSaysHowCertificatesAreTold(t *testing.T) {
	for _, c := range []struct {
		auth *config.ClientAuth
		want rewrite.ClientCert
	}{
		{nil, rewrite.ClientCert{}},
		{&config.ClientAuth{Forward: config.ForwardCertNone, ForwardChain: true}, rewrite.ClientCert{Chain: true}},
		{&config.ClientAuth{Forward: config.ForwardCertRFC}, rewrite.ClientCert{Style: rewrite.CertRFC9440}},
		{&config.ClientAuth{Forward: config.ForwardCertX, ForwardChain: true}, rewrite.ClientCert{Style: rewrite.CertXFCC, Chain: true}},
	} {
		if got := clientCert(c.auth); got != c.want {
			t.Errorf("%+v: %+v", c.auth, got)
		}
	}
}

// The conditions of a TLS route on the hello are those of its rules.
func TestTLSRoutesHaveConditionsOnTheHello(t *testing.T) {
	cfg, err := config.Parse("f", []byte(`
listeners: [{name: tls, address: "198.18.0.3:443", protocol: TLS}]
tls_routes:
- {name: acme, hostnames: a.example, alpn: acme-tls/1, backend_refs: [{name: t}]}
- {name: bots, ja4: t13d1516h2_8daaf6152771_e5627efa2ab1, backend_refs: [{name: t}]}
- {name: near, clients: 192.0.2.0/24, backend_refs: [{name: t}]}
pools: [{name: t, protocol: TCP, backends: [{address: "198.18.1.3:80"}]}]
`))
	if err != nil {
		t.Fatal(err)
	}
	rules, _ := cfg.StreamRules(&cfg.Listeners[0])
	if len(rules) != 3 || rules[0].Match.ALPN[0] != "acme-tls/1" || len(rules[1].Match.JA4) != 1 || len(rules[2].Match.Clients) != 1 {
		t.Errorf("%+v", rules)
	}
	if _, err := config.Parse("f", []byte(`
listeners: [{name: tls, address: "198.18.0.3:443", protocol: TLS}]
tls_routes: [{name: bots, ja4: none, backend_refs: [{name: t}]}]
pools: [{name: t, protocol: TCP, backends: [{address: "198.18.1.3:80"}]}]
`)); err == nil {
		t.Error("a fingerprint that is none is taken")
	}
}
