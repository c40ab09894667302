package tls

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit/testcert"
	"github.com/millrace/millrace/tls/handshake13"
)

// keep changes nothing.
func keep(s, c *tls.Config) {}

// rules are the Configs, options and clients by which crypto/tls makes the handshake, and others.
var rules = []struct {
	name   string
	own    bool
	o      EngineOptions
	change func(s, c *tls.Config)
}{
	{"the common case", true, EngineOptions{}, keep},
	{"X25519 alone", true, EngineOptions{}, func(s, c *tls.Config) { c.CurvePreferences = []tls.CurveID{tls.X25519} }},
	{"no tickets", true, EngineOptions{}, func(s, c *tls.Config) { s.SessionTicketsDisabled = true }},
	{"long chain", true, EngineOptions{}, func(s, c *tls.Config) {
		cert := s.Certificates[0]
		for range 60 { // more than one record
			cert.Certificate = append(slices.Clip(cert.Certificate), cert.Certificate[0])
		}
		s.Certificates = []tls.Certificate{cert}
	}},
	{"large ticket", true, EngineOptions{}, func(s, c *tls.Config) {
		c.ClientSessionCache = tls.NewLRUClientSessionCache(1)
		s.WrapSession = func(tls.ConnectionState, *tls.SessionState) ([]byte, error) { return make([]byte, 40_000), nil }
	}},
	{"GetConfigForClient without an answer", true, EngineOptions{}, func(s, c *tls.Config) {
		s.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return nil, nil }
	}},
	{"option", false, EngineOptions{StandardHandshake: true}, keep},
	{"records", false, EngineOptions{StandardRecords: true}, keep},
	{"client certificates", false, EngineOptions{}, func(s, c *tls.Config) { s.ClientAuth = tls.RequestClientCert }},
	{"VerifyConnection", false, EngineOptions{}, func(s, c *tls.Config) { s.VerifyConnection = func(tls.ConnectionState) error { return nil } }},
	{"Rand", false, EngineOptions{}, func(s, c *tls.Config) { s.Rand = rand.Reader }},
	{"KeyLogWriter", false, EngineOptions{}, func(s, c *tls.Config) { s.KeyLogWriter = io.Discard }},
	{"NameToCertificate", false, EngineOptions{}, func(s, c *tls.Config) {
		//lint:ignore SA1019 users may have it
		s.NameToCertificate = map[string]*tls.Certificate{}
	}},
	{"TLS 1.2", false, EngineOptions{}, func(s, c *tls.Config) { s.MaxVersion = tls.VersionTLS12 }},
	{"client of TLS 1.2", false, EngineOptions{}, func(s, c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }},
	{"another group", false, EngineOptions{}, func(s, c *tls.Config) { c.CurvePreferences = []tls.CurveID{tls.CurveP256} }},
	{"HelloRetryRequest", false, EngineOptions{}, func(s, c *tls.Config) {
		c.CurvePreferences = []tls.CurveID{tls.X25519, tls.CurveP384}
		s.CurvePreferences = []tls.CurveID{tls.CurveP384}
	}},
	{"GetConfigForClient whose tickets are not known", false, EngineOptions{}, func(s, c *tls.Config) {
		other := s.Clone()
		s.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return other, nil }
	}},
	{"GetConfigForClient with client certificates", false, EngineOptions{}, func(s, c *tls.Config) {
		other := s.Clone()
		other.ClientAuth, other.SessionTicketsDisabled = tls.RequestClientCert, true
		s.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return other, nil }
	}},
}

// TestHandshakesThatAreCryptoTLSs has one Config or client for each rule by which crypto/tls makes the handshake. Each handshake works.
func TestHandshakesThatAreCryptoTLSs(t *testing.T) {
	for _, test := range rules {
		t.Run(test.name, func(t *testing.T) {
			s, c := engineConfigs(t)
			test.change(s, c)
			asked := 0
			if get := s.GetConfigForClient; get != nil {
				s.GetConfigForClient = func(i *tls.ClientHelloInfo) (*tls.Config, error) { asked++; return get(i) }
			}
			srv, cli := &end{Engine: NewServerEngine(s, test.o)}, &end{Engine: NewClientEngine(c, EngineOptions{})}
			defer srv.Close()
			defer cli.Close()
			srv.feed(cli.take(), randomCuts(5))
			if own := srv.OwnHandshake(); own != test.own {
				t.Errorf("own handshake: %v", own)
			}
			exchange(srv, cli, wholly)
			talk(t, srv, cli, wholly)
			if want := map[bool]int{true: 1}[s.GetConfigForClient != nil]; asked != want {
				t.Errorf("GetConfigForClient was called %d times", asked)
			}
		})
	}
}

// sharedTickets are ways in which two servers have the same keys of tickets.
var sharedTickets = map[string]func(t *testing.T, s *tls.Config){
	"the Config's own": func(*testing.T, *tls.Config) {},
	"SetSessionTicketKeys": func(_ *testing.T, s *tls.Config) {
		s.SetSessionTicketKeys([][32]byte{{1}})
	},
	"TicketKeys": func(t *testing.T, s *tls.Config) {
		k, err := NewTicketKeys(0, make([]byte, 32))
		if err != nil {
			t.Fatal(err)
		}
		k.Attach(s)
	},
}

// TestBothHandshakesResumeEachOthersSessions: tickets of either are accepted by the other, and by crypto/tls alone.
func TestBothHandshakesResumeEachOthersSessions(t *testing.T) {
	for name, share := range sharedTickets {
		for _, suite := range []uint16{tls.TLS_AES_128_GCM_SHA256, tls.TLS_CHACHA20_POLY1305_SHA256} {
			for i := range 4 {
				t.Run(fmt.Sprint(name, suite, i), func(t *testing.T) {
					s, c := engineConfigs(t)
					share(t, s)
					c.ClientSessionCache = tls.NewLRUClientSessionCache(1)
					for j, standard := range []bool{i&1 != 0, i&2 != 0, false} {
						srv, cli := handshaken(t, s, c, EngineOptions{StandardHandshake: standard}, wholly)
						say(t, srv, cli, []byte("the ticket comes before this"), wholly)
						if cs := srv.ConnectionState(); cs.DidResume != (j > 0) || !cli.ConnectionState().DidResume == (j > 0) {
							t.Fatalf("connection %d: resumed %v", j, cs.DidResume)
						}
					}
				})
			}
		}
	}
}

// TestSessionsThatAreNotResumed lead to a full handshake: too old, of a hash that the client does not offer any more, of unknown keys.
func TestSessionsThatAreNotResumed(t *testing.T) {
	s, c := engineConfigs(t)
	c.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	now := time.Now()
	s.Time = func() time.Time { return now }
	srv, cli := handshaken(t, s, c, EngineOptions{}, wholly)
	say(t, srv, cli, []byte("the ticket comes before this"), wholly)
	now = now.Add(handshake13.TicketLifetime*time.Second + time.Second)
	if srv, _ = handshaken(t, s, c, EngineOptions{}, wholly); srv.ConnectionState().DidResume {
		t.Error("a session is resumed after its time")
	}
	s2, _ := engineConfigs(t)
	s2.SetSessionTicketKeys([][32]byte{{2}})
	if srv, _ = handshaken(t, s2, c, EngineOptions{}, wholly); srv.ConnectionState().DidResume {
		t.Error("a session of other keys is resumed")
	}
}

// TestABinderThatIsWrongIsRefused as crypto/tls refuses it.
func TestABinderThatIsWrongIsRefused(t *testing.T) {
	s, c := engineConfigs(t)
	c.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	srv, cli := handshaken(t, s, c, EngineOptions{}, wholly)
	say(t, srv, cli, []byte("the ticket comes before this"), wholly)
	again := NewClientEngine(c, EngineOptions{})
	defer again.Close()
	again.Pending()[len(again.Pending())-1] ^= 1
	for _, standard := range []bool{false, true} {
		hello := bytes.Clone(again.Pending())
		srv := &end{Engine: NewServerEngine(s, EngineOptions{StandardHandshake: standard})}
		srv.feed(hello, wholly)
		if got := srv.take(); srv.err == nil || !bytes.HasSuffix(got, []byte{levelFatal, byte(alertDecryptError)}) {
			t.Errorf("crypto/tls %v: %v, % x", standard, srv.err, got)
		}
		srv.Close()
	}
}

// TestAClientsKeyOfLowOrder gets crypto/tls's alert, also where the batch shows it.
func TestAClientsKeyOfLowOrder(t *testing.T) {
	for _, standard := range []bool{false, true} {
		s, c := batchConfigs(t, "ECDSA", tls.VersionTLS13)
		c.CurvePreferences = []tls.CurveID{tls.X25519}
		cli := NewClientEngine(c, EngineOptions{})
		hello := bytes.Clone(cli.Pending())
		cli.Close()
		at := bytes.Index(hello, []byte{0, 29, 0, 32})
		clear(hello[at+4:][:32])
		var q Signatures
		var srv *end
		signed := func() { srv.feedPiece(nil) }
		srv = &end{Engine: NewServerEngine(s, EngineOptions{StandardHandshake: standard, Signatures: &q, Signed: signed})}
		srv.feed(hello, wholly)
		q.Run()
		if got := srv.take(); srv.err == nil || !bytes.HasSuffix(got, []byte{levelFatal, byte(alertIllegalParameter)}) {
			t.Errorf("crypto/tls %v: %v, % x", standard, srv.err, got)
		}
		srv.Close()
	}
}

// failingKey is a key that does not sign.
type failingKey struct{ ed25519.PrivateKey }

var errKey = errors.New("no signature")

func (failingKey) Sign(io.Reader, []byte, crypto.SignerOpts) ([]byte, error) { return nil, errKey }

// TestAKeyThatFails, and tickets that cannot be made, end the handshake as with crypto/tls.
func TestAKeyThatFails(t *testing.T) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert, roots := testcert.SelfSignedBy(key, "example.com")
	for name, change := range map[string]func(s *tls.Config, cert *tls.Certificate){
		"key": func(s *tls.Config, cert *tls.Certificate) { cert.PrivateKey = failingKey{key} },
		"ticket": func(s *tls.Config, cert *tls.Certificate) {
			s.WrapSession = func(tls.ConnectionState, *tls.SessionState) ([]byte, error) { return nil, errKey }
		},
		"GetCertificate": func(s *tls.Config, cert *tls.Certificate) {
			s.Certificates = nil
			s.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, errKey }
		},
	} {
		var errs [2]string
		var alerts [2][]byte
		for i := range errs {
			cert := cert
			s := &tls.Config{Certificates: []tls.Certificate{cert}}
			change(s, &s.Certificates[:1:1][0])
			c := &tls.Config{RootCAs: roots, ServerName: "example.com", ClientSessionCache: tls.NewLRUClientSessionCache(1)}
			srv, cli := &end{Engine: NewServerEngine(s, EngineOptions{StandardHandshake: i == 1})}, &end{Engine: NewClientEngine(c, EngineOptions{})}
			srv.feed(cli.take(), wholly)
			if srv.err == nil {
				t.Fatal(name, ": the handshake goes on")
			}
			errs[i] = srv.err.Error()
			if p := srv.take(); len(p) <= 7 { // else the flight came before
				alerts[i] = p
			}
			srv.Close()
			cli.Close()
		}
		if errs[0] != errs[1] || !bytes.Equal(alerts[0], alerts[1]) {
			t.Errorf("%s: %q and % x, with crypto/tls %q and % x", name, errs[0], alerts[0], errs[1], alerts[1])
		}
	}
}

// TestTheFieldsOfCryptoTLSAreKnown fails where a release of Go changes what the own handshake relies on: then crypto/tls makes
// all handshakes.
func TestTheFieldsOfCryptoTLSAreKnown(t *testing.T) {
	if !fieldsKnown || !handshake13.SessionsSupported() || !ownSupported() {
		t.Fatal("fields known:", fieldsKnown, "sessions known:", handshake13.SessionsSupported(), "groups:", defaultGroups())
	}
	var cs tls.ConnectionState
	setExport(&cs, func(label string, _ []byte, length int) ([]byte, error) {
		return make([]byte, length), errors.New(label)
	})
	if b, err := cs.ExportKeyingMaterial("a", nil, 3); len(b) != 3 || err == nil || err.Error() != "a" {
		t.Error("ExportKeyingMaterial:", b, err)
	}
	var info tls.ClientHelloInfo
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	config := &tls.Config{MaxVersion: tls.VersionTLS12}
	setHello(&info, ctx, config)
	info.SupportedVersions = []uint16{tls.VersionTLS13}
	if cert, _ := testCertificate(); info.Context() != ctx || info.SupportsCertificate(&cert) == nil {
		t.Error("ClientHelloInfo has no context, or does not read its config")
	}
}

// TestLoopsShareAConfig has several loops make handshakes with one Config, in batches, full and resumed ones.
func TestLoopsShareAConfig(t *testing.T) {
	s, c := batchConfigs(t, "ECDSA", tls.VersionTLS13)
	var wg sync.WaitGroup
	for loop := range 4 {
		wg.Go(func() {
			client := c.Clone()
			client.ClientSessionCache = tls.NewLRUClientSessionCache(8)
			if loop%2 == 0 {
				client.CurvePreferences = []tls.CurveID{tls.X25519}
			}
			var q Signatures
			for round := range 5 {
				var pairs [3][2]*end
				for i := range pairs {
					srv := &end{Engine: NewServerEngine(s, EngineOptions{Signatures: &q})}
					pairs[i] = [2]*end{srv, {Engine: NewClientEngine(client, EngineOptions{})}}
					pump(srv, pairs[i][1])
				}
				q.Run()
				for _, p := range pairs {
					p[0].feedPiece(nil)
					pump(p[0], p[1])
					if p[0].err != nil || !p[0].Handshaken() || !p[1].Handshaken() || !p[0].OwnHandshake() {
						t.Errorf("loop %d, round %d: %v, %v", loop, round, p[0].err, p[1].err)
						return
					}
					say(t, p[0], p[1], []byte("data"), wholly)
					p[0].Close()
					p[1].Close()
				}
			}
		})
	}
	wg.Wait()
}

// TestHellosInOtherRecords are crypto/tls's: a ClientHello in two records, and one with a message behind it.
func TestHellosInOtherRecords(t *testing.T) {
	for _, cut := range []cutter{wholly, byteWise} {
		s, c := engineConfigs(t)
		srv, cli := &end{Engine: NewServerEngine(s, EngineOptions{})}, &end{Engine: NewClientEngine(c, EngineOptions{})}
		hello := cli.take()[recordHeader:]
		srv.feed(append(plain(typeHandshake, hello[:100]...), plain(typeHandshake, hello[100:]...)...), cut)
		exchange(srv, cli, cut)
		if talk(t, srv, cli, cut); srv.OwnHandshake() {
			t.Error("an own handshake with a ClientHello in two records")
		}
		srv.Close()
		cli.Close()

		cli = &end{Engine: NewClientEngine(c, EngineOptions{})}
		srv = &end{Engine: NewServerEngine(s, EngineOptions{})}
		srv.feed(plain(typeHandshake, append(cli.take()[recordHeader:], message(20)...)...), cut)
		if srv.err == nil || srv.OwnHandshake() {
			t.Errorf("a message behind the ClientHello: %v, an own handshake: %v", srv.err, srv.OwnHandshake())
		}
		srv.Close()
		cli.Close()
	}
}

// TestOtherReleasesOfGo: where the fields that the own handshake sets have changed, crypto/tls makes all handshakes.
func TestOtherReleasesOfGo(t *testing.T) {
	defer func(known bool) { fieldsKnown = known }(fieldsKnown)
	fieldsKnown = false
	s, c := engineConfigs(t)
	srv, cli := handshaken(t, s, c, EngineOptions{}, wholly)
	if talk(t, srv, cli, wholly); srv.OwnHandshake() {
		t.Error("an own handshake")
	}
	if _, known := fieldOffset[tls.ConnectionState, func()]("ekm"); known {
		t.Error("a field of another type is known")
	}
	if _, known := fieldOffset[tls.ConnectionState, func()]("none"); known {
		t.Error("a field that does not exist is known")
	}
}
