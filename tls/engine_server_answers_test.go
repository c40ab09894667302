package tls

import (
	"bytes"
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"io"
	mathrand "math/rand/v2"
	"os"
	"reflect"
	"slices"
	"testing"

	"github.com/millrace/millrace/internal/testkit/testcert"
)

// schemeKey is a key whose signatures are none: their length shows for which options they were asked.
type schemeKey struct{ public crypto.PublicKey }

func (k schemeKey) Public() crypto.PublicKey { return k.public }

func (schemeKey) Sign(_ io.Reader, _ []byte, opts crypto.SignerOpts) ([]byte, error) {
	n := 64
	if h := opts.HashFunc(); h != 0 {
		n += 2 * h.Size()
	}
	if _, ok := opts.(*rsa.PSSOptions); ok {
		n++
	}
	return make([]byte, n), nil
}

// helloAnswer is what a server does with a ClientHello: a state and the size of its flight, or an alert.
type helloAnswer struct {
	err       string
	alert     []byte
	retry     bool
	state     tls.ConnectionState // without what is a function
	share     []byte              // group and length
	session   []byte
	encrypted int // bytes of messages
	infos     []tls.ClientHelloInfo
	own       bool
}

// answerTo returns what the server of a Config answers, by the engine's own handshake if it makes that, or by crypto/tls.
func answerTo(t testing.TB, config *tls.Config, record []byte, standard bool) (a helloAnswer) {
	t.Helper()
	note := func(i *tls.ClientHelloInfo) {
		info := *i
		if info.Context() == nil || info.Context().Err() != nil || info.Conn == nil {
			t.Error("callbacks have no context, one that has ended, or no connection")
		}
		info.Conn = nil
		setHello(&info, nil, nil)
		a.infos = append(a.infos, info)
	}
	c := config.Clone()
	if get := config.GetCertificate; get != nil {
		c.GetCertificate = func(i *tls.ClientHelloInfo) (*tls.Certificate, error) { note(i); return get(i) }
	}
	if get := config.GetConfigForClient; get != nil {
		c.GetConfigForClient = func(i *tls.ClientHelloInfo) (*tls.Config, error) { note(i); return get(i) }
	}
	e := NewServerEngine(c, EngineOptions{StandardHandshake: standard})
	defer e.Close()
	_, n, err := e.Next(bytes.Clone(record))
	if err != nil {
		p := e.Pending()
		a.err, a.alert = err.Error(), bytes.Clone(p[max(0, len(p)-7):]) // behind a flight of TLS 1.2, if there is one
		return a
	}
	if n != len(record) {
		t.Fatalf("%d of %d bytes were consumed", n, len(record))
	}
	a.own = e.OwnHandshake()
	out := e.Pending()
	hello, rest := firstRecord(out, typeHandshake)
	if len(hello) == 0 {
		a.err = "no answer"
		return a
	}
	a.session = hello[serverHelloSession : serverHelloSession+1+int(hello[serverHelloSession])]
	a.share = shareOf(hello)
	a.retry = bytes.Contains(hello[:40], []byte{0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11}) // RFC 8446 4.1.3
	if _, after := firstRecord(rest, typeChangeCipherSpec); after != nil {
		rest = after
	}
	for len(rest) > 0 {
		body, after := firstRecord(rest, typeData)
		a.encrypted += len(body) - 17 // the type and the tag
		rest = after
	}
	if e.fin != nil {
		a.state = e.fin.state
		setExport(&a.state, nil)
	}
	return a
}

// shareOf returns the group of a ServerHello, and the length of its key.
func shareOf(hello []byte) []byte {
	at := serverHelloSession + 1 + int(hello[serverHelloSession]) + 2 + 1 + 2
	for at+4 <= len(hello) {
		n := int(binary.BigEndian.Uint16(hello[at+2:]))
		if binary.BigEndian.Uint16(hello[at:]) == 51 {
			return hello[at+4 : at+4+min(n, 4)]
		}
		at += 4 + n
	}
	return nil
}

// serverConfigs are Configs of which hellos get one.
func serverConfigs(t testing.TB) []*tls.Config {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert, _ := testcert.SelfSignedBy(key, "example.com")
	cert.PrivateKey = schemeKey{key.Public()}
	cert.OCSPStaple, cert.SignedCertificateTimestamps = []byte("response"), [][]byte{[]byte("timestamp"), []byte("two")}
	other, _ := testcert.SelfSignedBy(key, "other.example")
	one := []tls.Certificate{cert}
	withRSA, _ := batchCertificate()
	withECDSA, _ := batchCertificateECDSA()
	withRSA.PrivateKey = schemeKey{withRSA.PrivateKey.(crypto.Signer).Public()}
	withECDSA.PrivateKey = schemeKey{withECDSA.PrivateKey.(crypto.Signer).Public()}
	get := func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &cert, nil }
	base := func() *tls.Config { return &tls.Config{Certificates: one, NextProtos: []string{"h2", "http/1.1"}} }
	with := func(change func(c *tls.Config)) *tls.Config {
		c := base()
		change(c)
		return c
	}
	wrapped := with(func(c *tls.Config) {
		c.WrapSession = func(tls.ConnectionState, *tls.SessionState) ([]byte, error) { return make([]byte, 77), nil }
		c.UnwrapSession = func([]byte, tls.ConnectionState) (*tls.SessionState, error) { return nil, nil }
	})
	return []*tls.Config{
		base(),
		with(func(c *tls.Config) { c.Certificates, c.GetCertificate = nil, get }),
		with(func(c *tls.Config) { c.GetCertificate = get }),
		with(func(c *tls.Config) { c.Certificates = append(slices.Clone(one), other) }),
		with(func(c *tls.Config) { c.Certificates = []tls.Certificate{withRSA} }),
		with(func(c *tls.Config) { c.Certificates = []tls.Certificate{withECDSA, withRSA, cert} }),
		with(func(c *tls.Config) { c.NextProtos = []string{"h2"} }),
		with(func(c *tls.Config) { c.NextProtos = nil; c.SessionTicketsDisabled = true }),
		with(func(c *tls.Config) { c.CurvePreferences = []tls.CurveID{tls.CurveP256, tls.X25519} }),
		with(func(c *tls.Config) { c.CurvePreferences = []tls.CurveID{tls.X25519MLKEM768} }),
		with(func(c *tls.Config) { c.MinVersion = tls.VersionTLS13 }),
		with(func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }),
		wrapped,
		with(func(c *tls.Config) {
			c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return nil, nil }
		}),
		with(func(c *tls.Config) {
			c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return wrapped, nil }
		}),
		with(func(c *tls.Config) {
			c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return nil, io.ErrClosedPipe }
		}),
		with(func(c *tls.Config) {
			c.Certificates = slices.Clone(one)
			c.Certificates[0].SupportedSignatureAlgorithms = []tls.SignatureScheme{tls.PSSWithSHA256}
		}),
		with(func(c *tls.Config) {
			c.GetEncryptedClientHelloKeys = func(*tls.ClientHelloInfo) ([]tls.EncryptedClientHelloKey, error) { return nil, nil }
		}),
	}
}

// compareAnswers has both ways of a handshake answer a ClientHello, and returns whether the engine's own did.
func compareAnswers(t testing.TB, config *tls.Config, record []byte) bool {
	t.Helper()
	own, standard := answerTo(t, config, record, false), answerTo(t, config, record, true)
	isOwn := own.own
	own.own = false
	// crypto/tls has its flight's messages in records of their own, and the same bytes in all.
	if !isOwn { // what is asked once more: where the own handshake had a certificate, and then could not go on
		own.infos = own.infos[min(len(own.infos), max(0, len(own.infos)-len(standard.infos))):]
	}
	if !reflect.DeepEqual(own, standard) {
		t.Fatalf("hello %x\nthe engine   %+v\ncrypto/tls   %+v", record, own, standard)
	}
	return isOwn
}

// TestTheAnswersAreThoseOfCryptoTLS has generated ClientHellos, right and wrong ones, answered as crypto/tls does: with the same
// version, suite, group, protocol and certificate, in messages of the same size, or with the same alert.
func TestTheAnswersAreThoseOfCryptoTLS(t *testing.T) {
	configs := serverConfigs(t)
	own := 0
	const hellos = 4000
	for seed := range uint64(hellos) {
		r := mathrand.New(mathrand.NewPCG(seed, 1))
		m := &helloMaker{r, []int{1000, 1000, 60}[r.IntN(3)]}
		if compareAnswers(t, configs[r.IntN(len(configs))], m.record()) {
			own++
		}
	}
	if own < hellos/4 {
		t.Errorf("of %d hellos only %d have an own handshake", hellos, own)
	}
	t.Logf("%d of %d are own handshakes", own, hellos)
}

// FuzzServerHandshake has changed ClientHellos answered as crypto/tls does.
func FuzzServerHandshake(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(seed, byte(seed), []byte{})
	}
	f.Add(uint64(1), byte(0), []byte{9, 1, 200, 3})
	configs := serverConfigs(f)
	f.Fuzz(func(t *testing.T, seed uint64, config byte, changes []byte) {
		m := &helloMaker{mathrand.New(mathrand.NewPCG(seed, 2)), 1000}
		record := m.record()
		for ; len(changes) >= 3; changes = changes[3:] { // bytes of the hello
			record[5+int(binary.BigEndian.Uint16(changes))%(len(record)-5)] ^= changes[2]
		}
		compareAnswers(t, configs[int(config)%len(configs)], record)
	})
}

// TestChangedHellosOfSessions has each byte of a ClientHello that resumes a session changed, and answered as crypto/tls does.
func TestChangedHellosOfSessions(t *testing.T) {
	s, c := engineConfigs(t)
	s.SetSessionTicketKeys([][32]byte{{1}}) // clones have them, too
	c.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	c.CurvePreferences = []tls.CurveID{tls.X25519} // a share of ML-KEM has 1184 bytes that make no difference
	srv, cli := handshaken(t, s, c, EngineOptions{}, wholly)
	say(t, srv, cli, []byte("the ticket comes before this"), wholly)
	again := NewClientEngine(c, EngineOptions{})
	defer again.Close()
	// Signatures on P-256 differ in length, which is compared.
	cert := s.Certificates[0]
	cert.PrivateKey = schemeKey{cert.PrivateKey.(crypto.Signer).Public()}
	s.Certificates = []tls.Certificate{cert}
	hello := bytes.Clone(again.Pending())
	if a := answerTo(t, s, hello, false); !a.own || !a.state.DidResume {
		t.Fatalf("the session is not resumed: %+v", a)
	}
	own := 0
	for i := recordHeader; i < len(hello); i++ {
		for _, change := range []byte{1, 0x80} {
			changed := bytes.Clone(hello)
			changed[i] ^= change
			if compareAnswers(t, s, changed) {
				own++
			}
		}
	}
	if own == 0 || own == 2*(len(hello)-recordHeader) {
		t.Errorf("%d of %d are own handshakes", own, 2*(len(hello)-recordHeader))
	}
}

// TestHellosOfClients has the ClientHellos of 20 programs answered as crypto/tls does.
func TestHellosOfClients(t *testing.T) {
	text, err := os.ReadFile("clienthello/testdata/hellos.json")
	if err != nil {
		t.Fatal(err)
	}
	var hellos []struct{ Client, Hello string }
	if err := json.Unmarshal(text, &hellos); err != nil || len(hellos) < 20 {
		t.Fatalf("%d hellos, %v", len(hellos), err)
	}
	configs := serverConfigs(t)
	own := map[bool][]string{}
	for _, h := range hellos {
		record, err := hex.DecodeString(h.Hello)
		if err != nil {
			t.Fatal(err)
		}
		any := false
		for _, c := range configs {
			any = compareAnswers(t, c, record) || any
		}
		own[any] = append(own[any], h.Client)
	}
	if t.Logf("own: %q, crypto/tls: %q", own[true], own[false]); len(own[true]) < 10 {
		t.Errorf("only %d programs have own handshakes", len(own[true]))
	}
}
