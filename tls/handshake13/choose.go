package handshake13

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/tls"
	"runtime"
	"slices"

	"github.com/millrace/millrace/tls/clienthello"
	"golang.org/x/sys/cpu"
)

// This file makes the choices of a server as crypto/tls makes them. TestTheChoicesAreThoseOfCryptoTLS compares them.

// Options are what a server offers.
type Options struct {
	Groups    []tls.CurveID // key exchanges, the preferred one first, of crypto/tls's names
	Protocols []string      // ALPN, the preferred one first
}

// aesInHardware reports whether crypto/tls prefers AES-GCM with clients that do. It does not where the CPU lacks the
// instructions.
var aesInHardware = cpu.X86.HasAES && cpu.X86.HasPCLMULQDQ && cpu.X86.HasSSE41 && cpu.X86.HasSSSE3 ||
	cpu.ARM64.HasAES && cpu.ARM64.HasPMULL ||
	cpu.S390X.HasAES && cpu.S390X.HasAESCTR && cpu.S390X.HasGHASH ||
	runtime.GOARCH == "ppc64" || runtime.GOARCH == "ppc64le"

// Cipher suites in order of preference, for clients that prefer AES-GCM and for others.
var (
	suitesAES   = []uint16{tls.TLS_AES_128_GCM_SHA256, tls.TLS_AES_256_GCM_SHA384, tls.TLS_CHACHA20_POLY1305_SHA256}
	suitesOther = []uint16{tls.TLS_CHACHA20_POLY1305_SHA256, tls.TLS_AES_128_GCM_SHA256, tls.TLS_AES_256_GCM_SHA384}
)

// suitesAreAES has the cipher suites that crypto/tls knows, and whether they are of AES-GCM: the first one of a client
// shows which kind it prefers.
var suitesAreAES = func() map[uint16]bool {
	known := map[uint16]bool{}
	for _, s := range append(tls.CipherSuites(), tls.InsecureCipherSuites()...) {
		known[s.ID] = false
	}
	for _, id := range []uint16{
		tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
		tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
		tls.TLS_AES_128_GCM_SHA256, tls.TLS_AES_256_GCM_SHA384,
	} {
		known[id] = true
	}
	return known
}()

// chooseSuite returns the cipher suite for a client's list, 0 if there is none.
func chooseSuite(offered clienthello.List16) uint16 {
	preferred := suitesOther
	for i := range offered.Len() {
		if aes, known := suitesAreAES[offered.At(i)]; known {
			if aes && aesInHardware {
				preferred = suitesAES
			}
			break
		}
	}
	for _, id := range preferred {
		if offered.Contains(id) {
			return id
		}
	}
	return 0
}

// postQuantum reports whether a group is a hybrid with ML-KEM.
func postQuantum(g tls.CurveID) bool {
	return g == tls.X25519MLKEM768 || g == tls.SecP256r1MLKEM768 || g == tls.SecP384r1MLKEM1024
}

// chooseGroup returns the group for a client: one with ML-KEM before others, then one that the client has sent a key of,
// then by preference.
func chooseGroup(preferred []tls.CurveID, h *Hello) (best tls.CurveID, key []byte) {
	rank := -1
	for _, g := range preferred {
		if !h.Groups.Contains(uint16(g)) {
			continue
		}
		r, share := 0, h.share(uint16(g))
		if share != nil {
			r = 1
		}
		if postQuantum(g) {
			r += 2
		}
		if r > rank {
			best, key, rank = g, share, r
		}
	}
	return best, key
}

// fallback is for clients of HTTP/1.1 whose server offers h2 alone: no protocol, and no error.
const (
	protocolHTTP2 = "h2"
	protocolHTTP1 = "http/1.1"
)

// chooseProtocol returns the protocol of ALPN, "" for none, and whether the handshake goes on.
func chooseProtocol(own []string, offered clienthello.ALPN) (protocol string, ok bool) {
	if len(own) == 0 || len(offered) == 0 {
		return "", true
	}
	for _, p := range own {
		if offered.Contains(p) {
			return p, true
		}
	}
	return "", slices.Contains(own, protocolHTTP2) && offered.Contains(protocolHTTP1)
}

// scheme is a signature scheme of TLS 1.3 (RFC 8446 4.2.3).
type scheme struct {
	id   tls.SignatureScheme
	hash crypto.Hash // 0: the key signs the message itself
	opts crypto.SignerOpts
}

func pss(id tls.SignatureScheme, h crypto.Hash) scheme {
	return scheme{id, h, &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash, Hash: h}}
}

var (
	schemesRSA = []scheme{
		pss(tls.PSSWithSHA256, crypto.SHA256), pss(tls.PSSWithSHA384, crypto.SHA384), pss(tls.PSSWithSHA512, crypto.SHA512),
	}
	schemesP256    = []scheme{{tls.ECDSAWithP256AndSHA256, crypto.SHA256, crypto.SHA256}}
	schemesP384    = []scheme{{tls.ECDSAWithP384AndSHA384, crypto.SHA384, crypto.SHA384}}
	schemesP521    = []scheme{{tls.ECDSAWithP521AndSHA512, crypto.SHA512, crypto.SHA512}}
	schemesEd25519 = []scheme{{tls.Ed25519, 0, crypto.Hash(0)}}
)

// schemesOf returns the schemes of a public key.
func schemesOf(public crypto.PublicKey) []scheme {
	switch k := public.(type) {
	case *ecdsa.PublicKey:
		switch k.Curve {
		case elliptic.P256():
			return schemesP256
		case elliptic.P384():
			return schemesP384
		case elliptic.P521():
			return schemesP521
		}
	case *rsa.PublicKey:
		// The encoding of PSS has two hashes and two bytes more (RFC 8017 9.1.1).
		n := 0
		for n < len(schemesRSA) && k.Size() >= 2*schemesRSA[n].hash.Size()+2 {
			n++
		}
		return schemesRSA[:n]
	case ed25519.PublicKey:
		return schemesEd25519
	}
	return nil
}

// chooseScheme returns the first scheme of a client that a certificate's key has, nil if there is none.
func chooseScheme(cert *tls.Certificate, offered clienthello.List16) *scheme {
	key, ok := cert.PrivateKey.(crypto.Signer)
	if !ok {
		return nil
	}
	own := schemesOf(key.Public())
	for i := range offered.Len() {
		for j := range own {
			if s := &own[j]; uint16(s.id) == offered.At(i) &&
				(cert.SupportedSignatureAlgorithms == nil || slices.Contains(cert.SupportedSignatureAlgorithms, s.id)) {
				return s
			}
		}
	}
	return nil
}
