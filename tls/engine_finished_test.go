package tls

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// handKeys is a client's KeyLogWriter that keeps the secrets of TLS 1.3.
type handKeys struct{ keyLog }

func (h *handKeys) Write(line []byte) (int, error) {
	h.line(line)
	return len(line), nil
}

// awaited is a server that has sent its flight, and its client, which has answered. Neither has tickets.
type awaited struct {
	srv, cli *end
	secrets  *handKeys
	write    protection // as the client writes: with the keys of the handshake
	finished []byte     // the client's Finished message
}

// newAwaited returns one with 16 byte keys.
func newAwaited(t testing.TB, o EngineOptions) *awaited {
	t.Helper()
	s, c := engineConfigs(t)
	s.SessionTicketsDisabled = true
	a := &awaited{secrets: &handKeys{}}
	c.KeyLogWriter = a.secrets
	a.srv, a.cli = &end{Engine: NewServerEngine(s, o)}, &end{Engine: NewClientEngine(c, EngineOptions{})}
	t.Cleanup(func() { a.srv.Close(); a.cli.Close() })
	a.srv.feed(a.cli.take(), wholly)
	a.cli.feed(a.srv.take(), wholly)
	if a.srv.err != nil || a.cli.err != nil || a.srv.Handshaken() || !a.cli.Handshaken() || a.cli.own.suite != &aes128 {
		t.Fatal(a.srv.err, a.cli.err, a.srv.Handshaken())
	}
	a.write.init(&aes128, a.secrets.hands[client])
	_, record := firstRecord(a.cli.take(), typeChangeCipherSpec)
	var open protection
	open.init(&aes128, a.secrets.hands[client])
	plain, typ, err := open.open(record)
	if err != nil || typ != typeHandshake || !oneMessage(plain, messageFinished) {
		t.Fatal(typ, err, plain)
	}
	a.finished = bytes.Clone(plain)
	return a
}

// record protects content as the client does.
func (a *awaited) record(typ byte, p ...byte) []byte { return a.write.seal(nil, typ, p) }

var changeCipherSpec = []byte{typeChangeCipherSpec, 3, 3, 0, 1, 1}

// TestEngineReleasesCryptoTLS has a server end crypto/tls's handshake as soon as its flight is sent where only the client's
// Finished is missing, and keep it otherwise. Both work.
func TestEngineReleasesCryptoTLS(t *testing.T) {
	for _, test := range []struct {
		name     string
		change   func(s, c *tls.Config)
		releases bool
	}{
		{"TLS 1.3", func(s, c *tls.Config) {}, true},
		{"without tickets", func(s, c *tls.Config) { s.SessionTicketsDisabled = true }, true},
		{"without middleboxes", func(s, c *tls.Config) { c.CurvePreferences = []tls.CurveID{tls.X25519} }, true},
		{"long chain", func(s, c *tls.Config) {
			cert := s.Certificates[0]
			for range 60 { // more than one record
				cert.Certificate = append(cert.Certificate[:len(cert.Certificate):len(cert.Certificate)], cert.Certificate[0])
			}
			s.Certificates = []tls.Certificate{cert}
		}, true},
		{"client certificate that is optional", func(s, c *tls.Config) { s.ClientAuth = tls.RequestClientCert }, false},
		{"TLS 1.2", func(s, c *tls.Config) { s.MaxVersion = tls.VersionTLS12 }, false},
		{"second ClientHello", func(s, c *tls.Config) {
			c.CurvePreferences = []tls.CurveID{tls.X25519, tls.CurveP384}
			s.CurvePreferences = []tls.CurveID{tls.CurveP384}
		}, false},
		{"huge ClientHello", func(s, c *tls.Config) {
			for i := range 200 {
				c.NextProtos = append(c.NextProtos, fmt.Sprintf("%0200d", i))
			}
		}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, c := engineConfigs(t)
			test.change(s, c)
			c.ClientSessionCache = tls.NewLRUClientSessionCache(1)
			for i := range 2 { // the second one resumes
				srv, cli := &end{Engine: NewServerEngine(s, EngineOptions{StandardHandshake: true})}, &end{Engine: NewClientEngine(c, EngineOptions{})}
				defer srv.Close()
				defer cli.Close()
				for !cli.Handshaken() && cli.err == nil && srv.fin == nil {
					srv.feed(cli.take(), wholly)
					if srv.fin != nil {
						break
					}
					cli.feed(srv.take(), wholly)
				}
				if released := srv.fin != nil; released != (test.releases || i == 1 && strings.HasPrefix(test.name, "client")) {
					t.Errorf("connection %d: crypto/tls was released: %v", i, released)
				}
				exchange(srv, cli, randomCuts(uint64(i)))
				if !srv.Handshaken() || !cli.Handshaken() {
					t.Fatal(srv.err, cli.err)
				}
				talk(t, srv, cli, wholly)
				a, b := srv.ConnectionState(), cli.ConnectionState()
				if !a.HandshakeComplete || a.Version != b.Version || a.CipherSuite != b.CipherSuite || a.ServerName != "example.com" ||
					a.NegotiatedProtocol != b.NegotiatedProtocol || a.DidResume != b.DidResume || a.CurveID != b.CurveID {
					t.Errorf("the server's state %+v, the client's %+v", a, b)
				}
				if x, err := a.ExportKeyingMaterial("label", nil, 32); a.Version == tls.VersionTLS13 {
					y, errY := b.ExportKeyingMaterial("label", nil, 32)
					if err != nil || errY != nil || !bytes.Equal(x, y) {
						t.Error("keying material:", err, errY)
					}
				}
				want := i == 1 && !s.SessionTicketsDisabled && test.name != "second ClientHello"
				if a.DidResume != want && test.name != "second ClientHello" {
					t.Errorf("connection %d: resumed is %v", i, a.DidResume)
				}
			}
		})
	}
}

// ignores is the alert of crypto/tls where it ignores what it must not.
const ignores tls.AlertError = 255

// awaitedCases are second flights of clients. An alert of 0 is none: the server's error is not one that it sends.
var awaitedCases = []struct {
	name  string
	send  func(a *awaited) []byte
	alert tls.AlertError
	std   tls.AlertError // of crypto/tls, where another
	text  string         // in the error
}{
	{"wrong verify_data", func(a *awaited) []byte {
		a.finished[messageHeader+5] ^= 1
		return a.record(typeHandshake, a.finished...)
	}, alertDecryptError, 0, ""},
	{"last byte of verify_data", func(a *awaited) []byte {
		a.finished[len(a.finished)-1] ^= 0x80
		return a.record(typeHandshake, a.finished...)
	}, alertDecryptError, 0, ""},
	{"no verify_data", func(a *awaited) []byte { return a.record(typeHandshake, messageFinished, 0, 0, 0) }, alertDecryptError, 0, ""},
	{"short verify_data", func(a *awaited) []byte {
		a.finished[3]--
		return a.record(typeHandshake, a.finished[:len(a.finished)-1]...)
	}, alertDecryptError, 0, ""},
	{"long verify_data", func(a *awaited) []byte {
		a.finished[3]++
		return a.record(typeHandshake, append(a.finished, 0)...)
	}, alertDecryptError, 0, ""},
	{"another message", func(a *awaited) []byte { return a.record(typeHandshake, messageKeyUpdate, 0, 0, 1, 0) }, alertUnexpectedMessage, 0, ""},
	{"a certificate", func(a *awaited) []byte {
		return a.record(typeHandshake, 11, 0, 0, 4, 0, 0, 0, 0)
	}, alertUnexpectedMessage, 0, ""},
	{"more behind Finished", func(a *awaited) []byte {
		return a.record(typeHandshake, append(a.finished, messageKeyUpdate)...)
	}, alertUnexpectedMessage, 0, ""},
	{"data with the keys of the handshake", func(a *awaited) []byte { return a.record(typeData, 1) }, alertUnexpectedMessage, 0, ""},
	{"Finished as data", func(a *awaited) []byte { return a.record(typeData, a.finished...) }, alertUnexpectedMessage, 0, ""},
	{"nothing", func(a *awaited) []byte { return a.record(typeHandshake) }, alertUnexpectedMessage, 0, ""},
	{"an empty part", func(a *awaited) []byte {
		return append(a.record(typeHandshake, a.finished[:9]...), a.record(typeHandshake)...)
	}, alertUnexpectedMessage, 0, ""},
	{"padding alone", func(a *awaited) []byte { return a.record(0, 0, 0) }, alertUnexpectedMessage, 0, ""},
	{"damaged", func(a *awaited) []byte {
		p := a.record(typeHandshake, a.finished...)
		p[len(p)-1] ^= 1
		return p
	}, alertBadRecordMAC, 0, ""},
	{"twice the same record", func(a *awaited) []byte {
		p := a.record(typeHandshake, a.finished[:7]...)
		return append(p, p...)
	}, alertBadRecordMAC, 0, ""},
	{"keys of the application", func(a *awaited) []byte {
		a.write.init(&aes128, a.secrets.traffic[client])
		return a.record(typeHandshake, a.finished...)
	}, alertBadRecordMAC, 0, ""},
	{"plaintext", func(a *awaited) []byte {
		return append([]byte{typeHandshake, 3, 3, 0, byte(len(a.finished))}, a.finished...)
	}, alertUnexpectedMessage, alertBadRecordMAC, ""},
	{"plaintext alert", func(a *awaited) []byte { return []byte{typeAlert, 3, 3, 0, 2, 2, 48} }, alertUnexpectedMessage, alertBadRecordMAC, ""},
	{"wrong ChangeCipherSpec", func(a *awaited) []byte { return []byte{typeChangeCipherSpec, 3, 3, 0, 1, 2} }, alertDecodeError, 0, ""},
	{"long ChangeCipherSpec", func(a *awaited) []byte { return []byte{typeChangeCipherSpec, 3, 3, 0, 2, 1, 1} }, alertDecodeError, 0, ""},
	{"empty ChangeCipherSpec", func(a *awaited) []byte { return []byte{typeChangeCipherSpec, 3, 3, 0, 0} }, alertDecodeError, 0, ""},
	{"ChangeCipherSpec within Finished", func(a *awaited) []byte {
		return append(a.record(typeHandshake, a.finished[:9]...), changeCipherSpec...)
	}, alertUnexpectedMessage, 0, ""},
	{"many ChangeCipherSpecs", func(a *awaited) []byte { return bytes.Repeat(changeCipherSpec, maxUseless+1) }, alertUnexpectedMessage, 0, ""},
	{"protected ChangeCipherSpec", func(a *awaited) []byte { return a.record(typeChangeCipherSpec, 1) }, alertUnexpectedMessage, ignores, ""}, // RFC 8446 5
	{"alert", func(a *awaited) []byte { return a.record(typeAlert, levelFatal, 48) }, 0, 0, "remote error: tls: unknown certificate authority"},
	{"alert within Finished", func(a *awaited) []byte {
		return append(a.record(typeHandshake, a.finished[:2]...), a.record(typeAlert, levelFatal, 48)...)
	}, alertUnexpectedMessage, 0, ""},
	{"close_notify", func(a *awaited) []byte { return a.record(typeAlert, levelWarning, 0) }, 0, 0, "EOF"},
	{"too large", func(a *awaited) []byte { return []byte{typeData, 3, 3, 0x41, 1} }, alertRecordOverflow, 0, ""},
	{"wrong version", func(a *awaited) []byte { return []byte{typeData, 3, 1, 0, 50} }, alertProtocolVersion, 0, ""},
	{"a second ClientHello", func(a *awaited) []byte { return a.record(typeHandshake, 1, 0, 0, 0) }, alertUnexpectedMessage, alertDecodeError, ""},
}

// TestEngineRefusesFinished has a server refuse what is not its client's Finished as crypto/tls does, however it arrives.
func TestEngineRefusesFinished(t *testing.T) {
	for _, test := range awaitedCases {
		for _, standard := range []bool{false, true} {
			if standard && test.std == ignores {
				continue
			}
			for name, cut := range map[string]cutter{"wholly": wholly, "by bytes": byteWise} {
				t.Run(fmt.Sprintf("%s/crypto tls %v/%s", test.name, standard, name), func(t *testing.T) {
					a := newAwaited(t, EngineOptions{StandardRecords: standard})
					if released := a.srv.fin != nil; released == standard {
						t.Fatal("crypto/tls was released:", released)
					}
					a.srv.feed(test.send(a), cut)
					if a.srv.err == nil || a.srv.Handshaken() || len(a.srv.events) > 0 || len(a.srv.data) > 0 {
						t.Fatalf("error %v, handshaken %v, events %v", a.srv.err, a.srv.Handshaken(), a.srv.events)
					}
					want := test.alert
					if standard && test.std != 0 {
						want = test.std
					}
					a.checkRefusal(t, want, test.text)
				})
			}
		}
	}
}

// checkRefusal checks the error of the server and the alert that it sends.
func (a *awaited) checkRefusal(t *testing.T, alert tls.AlertError, text string) {
	t.Helper()
	if !strings.Contains(a.srv.err.Error(), text) {
		t.Errorf("the error is %v, want %s", a.srv.err, text)
	}
	if _, _, err := a.srv.Next(changeCipherSpec); err != a.srv.err {
		t.Errorf("later: %v", err)
	}
	if _, err := a.srv.Write([]byte("x")); err != a.srv.err {
		t.Errorf("write: %v", err)
	}
	if alert == 0 {
		if n := len(a.srv.Pending()); n > 0 {
			t.Errorf("%d bytes are pending", n)
		}
		return
	}
	a.cli.feed(a.srv.take(), wholly)
	var got tls.AlertError
	if !errors.As(a.cli.err, &got) || got != alert {
		t.Errorf("the client's error is %v, the server's %v, want %v", a.cli.err, a.srv.err, alert)
	}
}

// TestEngineTakesFinished has a server take the Finished in parts, behind what TLS 1.3 has it ignore, and with data behind it.
func TestEngineTakesFinished(t *testing.T) {
	for name, send := range map[string]func(a *awaited) []byte{
		"whole": func(a *awaited) []byte { return a.record(typeHandshake, a.finished...) },
		"ignored": func(a *awaited) []byte {
			return append(bytes.Repeat(changeCipherSpec, 16), a.record(typeHandshake, a.finished...)...)
		},
		"user_canceled": func(a *awaited) []byte {
			return append(a.record(typeAlert, levelWarning, 90), a.record(typeHandshake, a.finished...)...)
		},
		"in parts": func(a *awaited) (all []byte) {
			for _, b := range a.finished {
				all = append(all, a.record(typeHandshake, b)...)
			}
			return all
		},
	} {
		for _, standard := range []bool{false, true} {
			for _, cut := range []cutter{wholly, byteWise} {
				a := newAwaited(t, EngineOptions{StandardRecords: standard})
				in := send(a)
				if n, err := a.cli.Write([]byte("at once")); n != 7 || err != nil {
					t.Fatal(n, err)
				}
				a.srv.feed(append(in, a.cli.take()...), cut)
				if a.srv.err != nil || !a.srv.Handshaken() || string(a.srv.data) != "at once" || len(a.srv.events) != 1 {
					t.Errorf("%s, crypto/tls %v: %v, %q, events %v", name, standard, a.srv.err, a.srv.data, a.srv.events)
					continue
				}
				talk(t, a.srv, a.cli, wholly)
			}
		}
	}
}

// TestEngineAwaitsFinished has a server that waits for the Finished be no connection yet, and end as one in its handshake.
func TestEngineAwaitsFinished(t *testing.T) {
	a := newAwaited(t, EngineOptions{})
	if _, err := a.srv.Write([]byte("x")); err != ErrHandshaking {
		t.Error("write:", err)
	}
	if _, _, err := a.srv.Seal(make([]byte, 0, 100), []byte("x")); err != ErrHandshaking {
		t.Error("seal:", err)
	}
	if err := a.srv.CloseWrite(); err != ErrHandshaking {
		t.Error("close_notify:", err)
	}
	if s := a.srv.ConnectionState(); s.HandshakeComplete || s.Version != 0 || a.srv.OwnRecords() {
		t.Errorf("state %+v", s)
	}
	a.srv.feed(a.record(typeHandshake, a.finished...)[:20], wholly)
	if a.srv.fin.records.input.buf == nil {
		t.Fatal("a part of a record is not kept")
	}
	if err := a.srv.InputClosed(); err != io.ErrUnexpectedEOF || a.srv.Handshaken() || a.srv.fin != nil {
		t.Error("end of the input:", err)
	}
	b := newAwaited(t, EngineOptions{})
	if b.srv.Close(); b.srv.fin != nil || len(b.srv.Pending()) > 0 {
		t.Error("a closed engine keeps its handshake")
	}
	if _, _, err := b.srv.Next(b.record(typeHandshake, b.finished...)); err != ErrEngineClosed {
		t.Error("after Close:", err)
	}
}

// TestEngineAwaitsInLittle bounds what a server holds for a client that does not send its Finished: memory of the heap, and no
// coroutine. With crypto/tls it would be 24 KiB, of which 8 KiB are stack.
func TestEngineAwaitsInLittle(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector has memory of its own")
	}
	s, c := engineConfigs(t)
	const conns = 100
	var pool Coroutines
	defer pool.Close()
	held := make([]*end, conns)
	open := func() *end {
		srv, cli := &end{Engine: NewServerEngine(s, EngineOptions{Coroutines: &pool})}, &end{Engine: NewClientEngine(c, EngineOptions{})}
		srv.feed(cli.take(), wholly)
		srv.take()
		cli.Close()
		return srv
	}
	open().Close()
	goroutines, before := runtime.NumGoroutine(), heapInUse()
	for i := range held {
		held[i] = open()
	}
	each := (int64(heapInUse()) - int64(before)) / conns
	if n := runtime.NumGoroutine(); each > 4<<10 || each < 500 || n > goroutines {
		t.Errorf("%d bytes for each, %d goroutines, before %d", each, n, goroutines)
	}
	for _, e := range held {
		e.Close()
	}
}

// TestEngineServesECH has a server leave a handshake to crypto/tls whose transcript has a ClientHello that is not on the wire
// (RFC 9849 6.1.3).
func TestEngineServesECH(t *testing.T) {
	ca, keys := newAuthority(t, "root", nil, nil), newECH(t, filepath.Join(t.TempDir(), "ech"))
	if err := keys.Rotate("public.example", 1); err != nil {
		t.Fatal(err)
	}
	list, err := keys.ConfigList()
	if err != nil {
		t.Fatal(err)
	}
	store := storeOf(t, ca.issue(t, nil, nil, "public.example"), ca.issue(t, nil, nil, "secret.example"))
	s := serverConfig(t, ServerOptions{Store: store, ECH: keys})
	c := clientConfig(t, ClientOptions{ServerName: "secret.example", Roots: ca.loadRoots(t), ECHConfigList: list})
	srv, cli := &end{Engine: NewServerEngine(s, EngineOptions{})}, &end{Engine: NewClientEngine(c, EngineOptions{})}
	defer srv.Close()
	defer cli.Close()
	if srv.feed(cli.take(), wholly); srv.fin != nil || srv.hs == nil {
		t.Fatal("crypto/tls was released", srv.err)
	}
	exchange(srv, cli, wholly)
	if talk(t, srv, cli, wholly); !srv.ConnectionState().ECHAccepted || srv.ConnectionState().ServerName != "secret.example" {
		t.Errorf("state %+v", srv.ConnectionState())
	}
}

// TestEngineKeepsWhatCryptoTLSHasRead has bytes follow the ClientHello at once. crypto/tls has read a part of them when it waits, so
// the handshake stays with it.
func TestEngineKeepsWhatCryptoTLSHasRead(t *testing.T) {
	for n := 1; n <= len(changeCipherSpec); n++ {
		s, c := engineConfigs(t)
		c.SessionTicketsDisabled = true
		srv, cli := &end{Engine: NewServerEngine(s, EngineOptions{StandardHandshake: true})}, &end{Engine: NewClientEngine(c, EngineOptions{})}
		srv.feed(append(cli.take(), changeCipherSpec[:n]...), wholly)
		if srv.fin != nil || srv.hs == nil {
			t.Fatal("crypto/tls was released", srv.err)
		}
		srv.feed(changeCipherSpec[n:], wholly)
		exchange(srv, cli, wholly)
		talk(t, srv, cli, wholly)
		srv.Close()
		cli.Close()
	}
}

// FuzzEngineFinished has a server take or refuse any records in the place of the client's Finished, as crypto/tls does.
func FuzzEngineFinished(f *testing.F) {
	f.Add([]byte{0, 40})
	f.Add([]byte{0, 9, 1, 0, 0, 40})
	f.Add([]byte{1, 0, 2, 90, 0, 40})
	f.Add([]byte{3, 20, 0, 40})
	f.Add([]byte{0, 1, 0, 1, 0, 40, 4, 3})
	f.Add([]byte{4, 23, 5, 20})
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) > 2*maxWarnings+2 {
			return // what is ignored has other limits in crypto/tls
		}
		var ends [3]bool
		var errs [3]error
		for i := range ends {
			a := newAwaited(t, EngineOptions{StandardRecords: i == 1, StandardHandshake: i == 2})
			rest := a.finished
			for j := 0; j+1 < len(script) && a.srv.err == nil && !a.srv.Handshaken(); j += 2 {
				arg := script[j+1]
				var in []byte
				switch script[j] % 6 {
				case 0: // a part of the Finished
					n := min(int(arg), len(rest))
					in, rest = a.record(typeHandshake, rest[:n]...), rest[n:]
				case 1:
					in = append(changeCipherSpec[:5:5], 1-arg%3)
				case 2:
					in = a.record(typeAlert, levelWarning, arg)
				case 3:
					in = a.record(typeHandshake, arg)
				case 4:
					if arg == typeChangeCipherSpec {
						return // crypto/tls ignores it
					}
					in = a.record(arg, 1)
				case 5:
					in = []byte{arg, 3, 3, 0, 1, 1}
				}
				a.srv.feed(in, wholly)
			}
			ends[i], errs[i] = a.srv.Handshaken(), a.srv.err
		}
		// crypto/tls may wait for the rest of what is wrong.
		if ends[0] != ends[1] || ends[0] != ends[2] || errs[0] == nil && errs[1] != nil || (errs[0] == nil) != (errs[2] == nil) {
			t.Fatalf("handshaken %v, errors %v", ends, errs)
		}
	})
}
