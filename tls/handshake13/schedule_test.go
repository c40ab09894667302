package handshake13

import (
	"bytes"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"encoding/hex"
	"hash"
	"reflect"
	"testing"
	"unsafe"
)

// unhex decodes what RFC 8448 prints.
func unhex(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestRFC8448 has the secrets of the simple handshake of RFC 8448 3.
func TestRFC8448(t *testing.T) {
	of := suites[tls.TLS_AES_128_GCM_SHA256]
	s := scheduleOf(of)
	defer s.release(of)
	check := func(what string, got []byte, want string) {
		t.Helper()
		if !bytes.Equal(got, unhex(t, want)) {
			t.Errorf("%s: %x, want %s", what, got, want)
		}
	}
	check("early", of.early[:32], "33ad0a1c607ec03b09e6cd9893680ce210adf300aa1f2660e1b22e10f170f92a")
	var handshake, master secret
	s.next(&handshake, &of.early, of, unhex(t, "8bd4054fb55b9d63fdfbacf9f04b9f0d35e6d63f537563efd46272900f89492d"))
	check("handshake", handshake[:32], "1dc826e93606aa6fdc0aadc12f741b01046aa6b99f691ed221a9f0ca043fbeac")
	hello := unhex(t, "860c06edc07858ee8e78f0e7428c58edd6b43f2ca3e6e95f02ed063cf0e1cad8") // of ClientHello and ServerHello
	var client, server Keys
	s.traffic(&client, of, &handshake, "c hs traffic", hello)
	s.traffic(&server, of, &handshake, "s hs traffic", hello)
	check("client", client.Secret(), "b3eddb126e067f35a780b3abf45e2d8f3b1a950738f52e9600746a0e27a55a21")
	check("server", server.Secret(), "b67b7d690cc16c4e75e54213cb2d37b4e9c912bcded9105d42befd59d391ad38")
	check("server's key", server.Key(), "3fce516009c21727d0f2e4e86ee403bc")
	iv := server.IV()
	check("server's IV", iv[:], "5d313eb2671276ee13000b30")
	s.next(&master, &handshake, of, zeros[:32])
	check("master", master[:32], "18df06843d13a08bf2a449844c5f8a478001bc4d4c627984d5a41da8d0402919")
}

// TestTheScheduleIsThatOfCryptoHKDF has its functions compared with crypto/hkdf and crypto/hmac.
func TestTheScheduleIsThatOfCryptoHKDF(t *testing.T) {
	for id, h := range map[uint16]func() hash.Hash{
		tls.TLS_AES_128_GCM_SHA256: sha256.New, tls.TLS_AES_256_GCM_SHA384: sha512.New384, tls.TLS_CHACHA20_POLY1305_SHA256: sha256.New,
	} {
		of := suites[id]
		s := scheduleOf(of)
		var from, to, salt secret
		rand.Read(from[:s.size])
		rand.Read(salt[:s.size])
		context := make([]byte, s.size)
		rand.Read(context)
		for _, n := range []int{1, 12, 16, s.size} {
			s.expand(to[:n], from[:s.size], "label", context)
			want, err := expandAny(h, from[:s.size], "label", context, n)
			if err != nil || !bytes.Equal(to[:n], want) {
				t.Errorf("%x: %d bytes: %x, want %x, %v", id, n, to[:n], want, err)
			}
		}
		s.extract(&to, salt[:s.size], from[:s.size])
		if want, err := hkdf.Extract(h, from[:s.size], salt[:s.size]); err != nil || !bytes.Equal(to[:s.size], want) {
			t.Errorf("%x: extract: %x, want %x, %v", id, to[:s.size], want, err)
		}
		s.finished(to[:s.size], &from, context)
		key, err := expandAny(h, from[:s.size], "finished", nil, s.size)
		if err != nil {
			t.Fatal(err)
		}
		mac := hmac.New(h, key)
		mac.Write(context)
		if !hmac.Equal(to[:s.size], mac.Sum(nil)) {
			t.Errorf("%x: finished: %x", id, to[:s.size])
		}
		s.release(of)
	}
}

// zero reports whether memory has nothing but zeros: no secret is left.
func zero[T any](v *T) bool {
	for _, b := range unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v)) {
		if b != 0 {
			return false
		}
	}
	return true
}

// TestReleaseLeavesNoSecret has the memory of a schedule and of a server overwritten, in every state.
func TestReleaseLeavesNoSecret(t *testing.T) {
	for last := AwaitingHello; last <= Complete; last++ {
		s := New()
		for s.state < last {
			step(t, s)
		}
		k := s.schedule
		if k != nil && zero(&s.Exchange.Private) && last <= AwaitingExchange {
			t.Fatal("there is nothing to overwrite")
		}
		if last == Complete && (zero(&s.read.secret) || zero(&s.ticket) || zero(&s.exporter)) {
			t.Fatal("a complete handshake has no secrets")
		}
		s.Release()
		s.out = nil // public: its memory is used again
		if !zero(s) {
			t.Errorf("%v: a released server holds something: %+v", last, *s)
		}
		if k != nil && !(zero(&k.pad) && zero(&k.info) && zero(&k.sum) && zero(&k.digest)) {
			t.Errorf("%v: a released schedule holds secrets", last)
		}
	}
}

// TestTheExporterHasItsOwnSecret works after Release, and refuses what HKDF does not make.
func TestTheExporterHasItsOwnSecret(t *testing.T) {
	s := New()
	for s.state < Complete {
		step(t, s)
	}
	export := s.Exporter()
	before, err1 := export("label", []byte("context"), 100)
	s.Release()
	after, err2 := export("label", []byte("context"), 100)
	if err1 != nil || err2 != nil || len(before) != 100 || !reflect.DeepEqual(before, after) {
		t.Errorf("%x before, %x after: %v, %v", before, after, err1, err2)
	}
	if _, err := export("label", nil, 255*32+1); err == nil {
		t.Error("more than HKDF makes is exported")
	}
}
