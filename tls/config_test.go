package tls

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/tls/clienthello"
)

func TestDefaultsAreSafe(t *testing.T) {
	t.Setenv("GODEBUG", "tlsrsakex=1,tls3des=1,tls10server=1")
	ca := newAuthority(t, "root", nil, nil)
	s := storeOf(t, ca.issue(t, rsaKey(), nil, "a.example"))
	var log bytes.Buffer
	server := serverConfig(t, ServerOptions{Store: s, Protocols: []string{"h2", "http/1.1"}, KeyLog: &log})
	client := clientConfig(t, ClientOptions{ServerName: "a.example", Roots: ca.loadRoots(t), Protocols: []string{"http/1.1", "h2"}})
	ss, cs := mustShake(t, server, client)
	if cs.Version != tls.VersionTLS13 || cs.CurveID != tls.X25519MLKEM768 || ss.NegotiatedProtocol != "h2" {
		t.Errorf("version %#x, group %v, ALPN %q", cs.Version, cs.CurveID, ss.NegotiatedProtocol)
	}
	if !strings.Contains(log.String(), "SERVER_HANDSHAKE_TRAFFIC_SECRET ") {
		t.Errorf("key log %q", log.String())
	}
	anything := &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS10}
	for what, tc := range map[string]struct {
		change func(*tls.Config)
		alert  string
	}{
		"TLS 1.1": {func(c *tls.Config) { c.MaxVersion = tls.VersionTLS11 }, "protocol version not supported"},
		"static RSA": {func(c *tls.Config) {
			c.MaxVersion, c.CipherSuites = tls.VersionTLS12, []uint16{tls.TLS_RSA_WITH_AES_128_GCM_SHA256}
		}, "handshake failure"},
		"CBC": {func(c *tls.Config) {
			c.MaxVersion, c.CipherSuites = tls.VersionTLS12, []uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA}
		}, "handshake failure"},
		"3DES": {func(c *tls.Config) {
			c.MaxVersion, c.CipherSuites = tls.VersionTLS12, []uint16{tls.TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA}
		}, "handshake failure"},
		"other protocol": {func(c *tls.Config) { c.NextProtos = []string{"smtp"} }, "no application protocol"},
	} {
		c := anything.Clone()
		tc.change(c)
		if _, _, _, err := shake(t, server, c); err == nil || !strings.Contains(err.Error(), tc.alert) {
			t.Errorf("%s: %v, want %s", what, err, tc.alert)
		}
	}
	if client.Renegotiation != tls.RenegotiateNever {
		t.Error("clients renegotiate")
	}
	unknown := serverConfig(t, ServerOptions{Store: &Store{}})
	if _, _, _, err := shake(t, unknown, anything); err == nil || !strings.Contains(err.Error(), "unrecognized name") {
		t.Errorf("no certificate: %v", err)
	}
}

func TestOptionsThatContradict(t *testing.T) {
	s := &Store{}
	for _, o := range []ServerOptions{{}, {Store: s, MinVersion: tls.VersionTLS11}, {Store: s, MinVersion: 0x305}, {Store: s, ClientAuth: &ClientAuth{}}} {
		if _, err := NewServerConfig(o); !errors.Is(err, ErrConfig) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if _, err := NewClientConfig(ClientOptions{MinVersion: tls.VersionTLS10}); !errors.Is(err, ErrConfig) {
		t.Error(err)
	}
}

// TestAServersChainIsRefusedForTheRightReason covers chains that clients must not accept.
func TestAServersChainIsRefusedForTheRightReason(t *testing.T) {
	root := newAuthority(t, "root", nil, nil)
	other := newAuthority(t, "other", nil, nil)
	constrained := newAuthority(t, "constrained", root, func(c *x509.Certificate) {
		c.PermittedDNSDomains, c.PermittedDNSDomainsCritical = []string{"b.example"}, true
	})
	revoked := root.issue(t, nil, nil, "a.example")
	revocation, err := LoadRevocation(RevocationOptions{Files: []string{crlFile(t, root, nil, revoked.Leaf)}})
	if err != nil {
		t.Fatal(err)
	}
	for what, tc := range map[string]struct {
		cert  tls.Certificate
		want  error
		alert string // that the server gets: crypto/tls clients send no other
	}{
		"expired":          {root.issue(t, nil, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }, "a.example"), ErrExpired, "bad certificate"},
		"not yet valid":    {root.issue(t, nil, func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Hour) }, "a.example"), ErrNotYetValid, "bad certificate"},
		"wrong name":       {root.issue(t, nil, nil, "b.example"), ErrWrongName, "bad certificate"},
		"unknown CA":       {other.issue(t, nil, nil, "a.example"), ErrUnknownCA, "bad certificate"},
		"name constraints": {constrained.issue(t, nil, nil, "a.example"), ErrNameConstraints, "bad certificate"},
		"for clients":      {root.issue(t, nil, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} }, "a.example"), ErrWrongUse, "bad certificate"},
		"revoked":          {revoked, ErrRevoked, "bad certificate"},
		"must staple":      {root.issue(t, nil, mustStaple, "a.example"), ErrNoStaple, "bad certificate"},
		"good":             {root.issue(t, nil, nil, "a.example"), nil, ""},
	} {
		server := serverConfig(t, ServerOptions{Store: storeOf(t, tc.cert)})
		client := clientConfig(t, ClientOptions{ServerName: "a.example", Roots: root.loadRoots(t), Revocation: revocation})
		_, _, serverErr, err := shake(t, server, client)
		if tc.want == nil {
			if err != nil {
				t.Errorf("%s: %v", what, err)
			}
			continue
		}
		err = Diagnose(err)
		var v *VerifyError
		if !errors.As(err, &v) || !errors.Is(err, tc.want) || v.Certificate == nil {
			t.Errorf("%s: %v, want %v", what, err, tc.want)
		}
		if serverErr == nil || !strings.Contains(serverErr.Error(), tc.alert) {
			t.Errorf("%s: the server gets %v, want %s", what, serverErr, tc.alert)
		}
	}
	if err := errors.New("other"); Diagnose(err) != err || Diagnose(nil) != nil {
		t.Error("Diagnose changes other errors")
	}
}

// TestClientCertificates is mutual TLS: who is let in, and which reason and alert the others get.
func TestClientCertificates(t *testing.T) {
	serverCA, root, other := newAuthority(t, "server root", nil, nil), newAuthority(t, "client root", nil, nil), newAuthority(t, "other", nil, nil)
	revoked := root.issue(t, nil, nil, "revoked.client")
	revocation, err := LoadRevocation(RevocationOptions{Files: []string{crlFile(t, root, nil, revoked.Leaf)}})
	if err != nil {
		t.Fatal(err)
	}
	auth := &ClientAuth{Roots: root.loadRoots(t), Revocation: revocation}
	store := storeOf(t, serverCA.issue(t, nil, nil, "a.example"))
	server := serverConfig(t, ServerOptions{Store: store, ClientAuth: auth})
	lenient := *auth
	lenient.Optional = true
	optional := serverConfig(t, ServerOptions{Store: store, ClientAuth: &lenient})
	for what, tc := range map[string]struct {
		certs []tls.Certificate
		want  error
		alert string
	}{
		"good":    {[]tls.Certificate{root.issue(t, nil, nil, "good.client")}, nil, ""},
		"revoked": {[]tls.Certificate{revoked}, ErrRevoked, "bad certificate"},
		"expired": {[]tls.Certificate{root.issue(t, nil, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Hour) }, "x")}, ErrExpired, "expired certificate"},
		"for servers": {
			[]tls.Certificate{root.issue(t, nil, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }, "x")},
			ErrWrongUse, "bad certificate",
		},
	} {
		client := &tls.Config{RootCAs: serverCA.roots(), ServerName: "a.example", Certificates: tc.certs}
		ss, _, err, clientErr := shake(t, server, client)
		if tc.want == nil {
			if err != nil || clientErr != nil || len(ss.VerifiedChains) == 0 {
				t.Errorf("%s: %v, %v", what, err, clientErr)
			}
			continue
		}
		if !errors.Is(Diagnose(err), tc.want) {
			t.Errorf("%s: %v, want %v", what, Diagnose(err), tc.want)
		}
		if clientErr == nil || !strings.Contains(clientErr.Error(), tc.alert) {
			t.Errorf("%s: the client gets %v, want %s", what, clientErr, tc.alert)
		}
		if _, _, err, _ := shake(t, optional, client); !errors.Is(Diagnose(err), tc.want) {
			t.Errorf("%s, optional: %v, want %v", what, err, tc.want)
		}
	}
	// crypto/tls clients send nothing that the server's list of authorities does not have.
	force := func(c tls.Certificate) *tls.Config {
		return &tls.Config{RootCAs: serverCA.roots(), ServerName: "a.example", GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &c, nil }}
	}
	_, _, err, clientErr := shake(t, server, force(other.issue(t, nil, nil, "x")))
	if !errors.Is(Diagnose(err), ErrUnknownCA) || clientErr == nil || !strings.Contains(clientErr.Error(), "unknown certificate authority") {
		t.Errorf("unknown CA: %v, the client gets %v", err, clientErr)
	}
	none := &tls.Config{RootCAs: serverCA.roots(), ServerName: "a.example"}
	if _, _, _, clientErr = shake(t, server, none); clientErr == nil || !strings.Contains(clientErr.Error(), "certificate required") {
		t.Errorf("no certificate: the client gets %v", clientErr)
	}
	mustShake(t, optional, none)
	// Our client finds the certificate that the server accepts among several.
	mine := clientConfig(t, ClientOptions{ServerName: "a.example", Roots: serverCA.loadRoots(t), Certificates: storeOf(t, other.issue(t, nil, nil, "x"), root.issue(t, nil, nil, "y"))})
	if ss, _ := mustShake(t, server, mine); ss.PeerCertificates[0].Subject.CommonName != "y" {
		t.Error("sent", ss.PeerCertificates[0].Subject)
	}
	mine = clientConfig(t, ClientOptions{ServerName: "a.example", Roots: serverCA.loadRoots(t), Certificates: storeOf(t, other.issue(t, nil, nil, "x"))})
	if ss, _ := mustShake(t, optional, mine); len(ss.PeerCertificates) != 0 {
		t.Error("sent", ss.PeerCertificates[0].Subject)
	}
}

// TestARevokedClientDoesNotResume revokes a certificate and replaces the authorities between two
// connections of a client that keeps its session.
func TestARevokedClientDoesNotResume(t *testing.T) {
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		ca := newAuthority(t, "root", nil, nil)
		cert := ca.issue(t, nil, nil, "x")
		list := crlFile(t, ca, nil)
		revocation, err := LoadRevocation(RevocationOptions{Files: []string{list}, Strict: true})
		if err != nil {
			t.Fatal(err)
		}
		rootsFile := ca.file(t)
		roots, err := LoadRoots(rootsFile)
		if err != nil {
			t.Fatal(err)
		}
		keys, err := NewTicketKeys(0, bytes.Repeat([]byte{1}, 32))
		if err != nil {
			t.Fatal(err)
		}
		server := serverConfig(t, ServerOptions{Store: storeOf(t, ca.issue(t, nil, nil, "a.example")), ClientAuth: &ClientAuth{Roots: roots, Revocation: revocation}, Tickets: keys})
		client := &tls.Config{RootCAs: ca.roots(), ServerName: "a.example", Certificates: []tls.Certificate{cert}, ClientSessionCache: tls.NewLRUClientSessionCache(1), MaxVersion: version}
		mustShake(t, server, client)
		if ss, _ := mustShake(t, server, client); !ss.DidResume {
			t.Fatalf("%#x: does not resume", version)
		}
		crlInto(t, list, ca, nil, cert.Leaf)
		if err := revocation.Reload(); err != nil {
			t.Fatal(err)
		}
		if _, _, err, _ := shake(t, server, client); !errors.Is(Diagnose(err), ErrRevoked) {
			t.Errorf("%#x: revoked, and yet %v", version, err)
		}
		crlInto(t, list, ca, nil)
		if err := revocation.Reload(); err != nil {
			t.Fatal(err)
		}
		client.ClientSessionCache = tls.NewLRUClientSessionCache(1)
		mustShake(t, server, client)
		other := newAuthority(t, "other", nil, nil)
		b, _ := readFile(other.file(t), maxFile)
		writeFile(t, rootsFile, b)
		if err := roots.Reload(); err != nil {
			t.Fatal(err)
		}
		client.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil }
		if _, _, err, _ := shake(t, server, client); !errors.Is(Diagnose(err), ErrUnknownCA) {
			t.Errorf("%#x: the authority is no longer trusted, and yet %v", version, err)
		}
		writeFile(t, rootsFile, []byte("garbage"))
		if err := roots.Reload(); !errors.Is(err, ErrNoRoots) || !roots.Pool().Equal(other.roots()) {
			t.Errorf("bad file: %v", err)
		}
	}
}

func TestForClientChoosesAConfig(t *testing.T) {
	ca := newAuthority(t, "root", nil, nil)
	special := serverConfig(t, ServerOptions{Store: storeOf(t, ca.issue(t, nil, nil, "b.example")), MinVersion: tls.VersionTLS13})
	keys, _ := NewTicketKeys(0, bytes.Repeat([]byte{1}, 32))
	var ja4, ja3 string
	server := serverConfig(t, ServerOptions{
		Store: storeOf(t, ca.issue(t, nil, nil, "a.example")), Tickets: keys,
		ForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			ja4, ja3 = JA4(hello), JA3(hello)
			if hello.ServerName == "b.example" {
				return special, nil
			}
			return nil, nil
		},
	})
	for _, name := range []string{"a.example", "b.example"} {
		client := &tls.Config{RootCAs: ca.roots(), ServerName: name, ClientSessionCache: tls.NewLRUClientSessionCache(1), NextProtos: []string{"h2"}}
		mustShake(t, server, client)
		if ss, _ := mustShake(t, server, client); !ss.DidResume {
			t.Errorf("%s: does not resume", name)
		}
	}
	if special.WrapSession != nil {
		t.Error("a config of the caller was changed")
	}
	// The fingerprints are those of the bytes on the wire.
	h := wireHello(t, &tls.Config{ServerName: "a.example", NextProtos: []string{"h2"}, InsecureSkipVerify: true})
	mustShake(t, server, &tls.Config{RootCAs: ca.roots(), ServerName: "a.example", NextProtos: []string{"h2"}})
	if ja4 != h.JA4() || ja3 != h.JA3() {
		t.Errorf("%s %s, on the wire %s %s", ja4, ja3, h.JA4(), h.JA3())
	}
	h = wireHello(t, &tls.Config{MaxVersion: tls.VersionTLS12, InsecureSkipVerify: true})
	_, _, _, _ = shake(t, server, &tls.Config{MaxVersion: tls.VersionTLS12, InsecureSkipVerify: true})
	if ja4 != h.JA4() || ja3 != h.JA3() {
		t.Errorf("TLS 1.2: %s %s, on the wire %s %s", ja4, ja3, h.JA4(), h.JA3())
	}
}

// wireHello returns the hello that a client sends.
func wireHello(t *testing.T, config *tls.Config) *clienthello.Hello {
	t.Helper()
	client, server := net.Pipe()
	go func() { _ = tls.Client(client, config).Handshake() }()
	defer client.Close()
	defer server.Close()
	_ = server.SetDeadline(time.Now().Add(patience))
	h, err := new(clienthello.Peeker).Read(server)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// TestGarbageAndHostileHellos sends to a server what is no ClientHello, and reads its alert.
func TestGarbageAndHostileHellos(t *testing.T) {
	ca := newAuthority(t, "root", nil, nil)
	server := serverConfig(t, ServerOptions{Store: storeOf(t, ca.issue(t, nil, nil, "a.example"))})
	for what, tc := range map[string]struct {
		sent  []byte
		alert []byte // the descriptions that are right; none where crypto/tls closes, since the peer does not speak TLS
	}{
		"HTTP":             {[]byte("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n"), nil},
		"random":           {bytes.Repeat([]byte{0x9c}, 600), nil},
		"long record":      {[]byte{22, 3, 1, 0xff, 0xff, 1}, []byte{22}},
		"no ClientHello":   {[]byte{22, 3, 1, 0, 4, 2, 0, 0, 0}, []byte{10, 50}},
		"oversized":        {append([]byte{22, 3, 1, 0x40, 0, 1, 1, 0, 1}, make([]byte, 1<<14-4)...), []byte{10, 80, 50}},
		"malformed":        {[]byte{22, 3, 1, 0, 6, 1, 0, 0, 2, 3, 3}, []byte{50, 10}},
		"application data": {[]byte{23, 3, 3, 0, 1, 0}, nil},
	} {
		c, s := net.Pipe()
		done := make(chan error, 1)
		go func() { done <- tls.Server(s, server).Handshake(); _ = s.Close() }()
		_ = c.SetDeadline(time.Now().Add(patience))
		go func() { _, _ = c.Write(tc.sent) }()
		reply := make([]byte, 7)
		n, _ := c.Read(reply)
		_ = c.Close()
		if err := <-done; err == nil {
			t.Errorf("%s: accepted", what)
		}
		if tc.alert == nil {
			if n != 0 {
				t.Errorf("%s: reply %x", what, reply[:n])
			}
			continue
		}
		if n != 7 || reply[0] != 21 || !slices.Contains(tc.alert, reply[6]) {
			t.Errorf("%s: reply %x, want an alert of %d", what, reply[:n], tc.alert)
		}
	}
}

// TestEnginesTakeTheseConfigs has engines serve with client certificates, shared tickets and ECH.
func TestEnginesTakeTheseConfigs(t *testing.T) {
	ca := newAuthority(t, "root", nil, nil)
	keys, _ := NewTicketKeys(0, bytes.Repeat([]byte{1}, 32))
	ech := newECH(t, t.TempDir())
	if err := ech.Rotate("public.example", 2); err != nil {
		t.Fatal(err)
	}
	list, _ := ech.ConfigList()
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		server := serverConfig(t, ServerOptions{
			Store: storeOf(t, ca.issue(t, nil, nil, "a.example", "public.example")), Tickets: keys, ECH: ech, ClientAuth: &ClientAuth{Roots: ca.loadRoots(t)},
		})
		o := ClientOptions{ServerName: "a.example", Roots: ca.loadRoots(t), Certificates: storeOf(t, ca.issue(t, nil, nil, "c.example")), Sessions: tls.NewLRUClientSessionCache(1)}
		if version == tls.VersionTLS13 {
			o.ECHConfigList = list
		}
		client := clientConfig(t, o)
		client.MaxVersion = version
		for round := range 2 {
			srv, cli := handshaken(t, server, client, EngineOptions{}, byteWise)
			st := srv.ConnectionState()
			if st.Version != version || st.DidResume != (round == 1) || len(st.VerifiedChains) == 0 || st.ECHAccepted != (version == tls.VersionTLS13) {
				t.Errorf("%#x, round %d: resumed %v, %d chains, ECH %v", version, round, st.DidResume, len(st.VerifiedChains), st.ECHAccepted)
			}
			srv.Close()
			cli.Close()
		}
	}
}

func TestSuitesAndVersionsOfServersAreChecked(t *testing.T) {
	store := &Store{}
	for what, o := range map[string]ServerOptions{
		"a maximum below the minimum": {Store: store, MinVersion: tls.VersionTLS13, MaxVersion: tls.VersionTLS12}, "TLS 1.1": {Store: store, MaxVersion: tls.VersionTLS11},
		"an unknown version": {Store: store, MaxVersion: tls.VersionTLS13 + 1}, "static RSA": {Store: store, Suites: []uint16{tls.TLS_RSA_WITH_AES_128_GCM_SHA256}},
	} {
		if _, err := NewServerConfig(o); !errors.Is(err, ErrConfig) {
			t.Errorf("%s: %v", what, err)
		}
	}
	suites := []uint16{tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384}
	c, err := NewServerConfig(ServerOptions{Store: store, MaxVersion: tls.VersionTLS12, Suites: suites})
	if err != nil || c.MaxVersion != tls.VersionTLS12 || !slices.Equal(c.CipherSuites, suites) {
		t.Errorf("%v, %v", c, err)
	}
	for _, name := range SuiteNames() {
		if id := SuiteByName(name); tls.CipherSuiteName(id) != name || !slices.Contains(safeSuites, id) {
			t.Errorf("%s is %x", name, id)
		}
	}
	if id := SuiteByName("TLS_RSA_WITH_AES_128_GCM_SHA256"); id != 0 {
		t.Errorf("static RSA is %x", id)
	}
}
