package tls

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/tls"
	"fmt"
	"slices"
)

// ability describes what a client must support for a certificate.
type ability struct {
	name string
	rank uint8 // which of several certificates is preferred: the lowest
	// schemes13 and schemes12 are the signature schemes of the key in TLS 1.3 and 1.2. In TLS 1.3 a
	// scheme of ECDSA names its curve (RFC 8446 4.2.3).
	schemes13, schemes12 []tls.SignatureScheme
	curve                tls.CurveID // of an ECDSA key; 0 for others
	// ecdsaSuite reports that TLS 1.2 needs a suite of ECDHE_ECDSA, which Ed25519 uses too (RFC 8422 5.1.1).
	ecdsaSuite bool
}

var (
	schemesECDSA = []tls.SignatureScheme{tls.ECDSAWithP256AndSHA256, tls.ECDSAWithP384AndSHA384, tls.ECDSAWithP521AndSHA512}
	schemesPSS   = []tls.SignatureScheme{tls.PSSWithSHA256, tls.PSSWithSHA384, tls.PSSWithSHA512}
	schemesRSA   = append(schemesPSS[:3:3], tls.PKCS1WithSHA256, tls.PKCS1WithSHA384, tls.PKCS1WithSHA512)
	schemesEd    = []tls.SignatureScheme{tls.Ed25519}
)

// abilityOf returns what a certificate needs. Keys that clients of today refuse are an error.
func abilityOf(cert *tls.Certificate) (ability, error) {
	signer, ok := cert.PrivateKey.(crypto.Signer)
	if !ok {
		return ability{}, fmt.Errorf("%w: the key does not sign", ErrUnusableCertificate)
	}
	switch pub := signer.Public().(type) {
	case *ecdsa.PublicKey:
		a := ability{schemes12: schemesECDSA, ecdsaSuite: true, name: "ECDSA " + pub.Curve.Params().Name}
		switch pub.Curve {
		case elliptic.P256():
			a.curve, a.schemes13 = tls.CurveP256, schemesECDSA[0:1]
		case elliptic.P384():
			a.curve, a.schemes13 = tls.CurveP384, schemesECDSA[1:2]
		case elliptic.P521():
			a.curve, a.schemes13 = tls.CurveP521, schemesECDSA[2:3]
		default:
			return ability{}, fmt.Errorf("%w: %s is no curve of TLS 1.3", ErrUnusableCertificate, a.name)
		}
		return a, nil
	case ed25519.PublicKey:
		return ability{name: "Ed25519", rank: 1, schemes13: schemesEd, schemes12: schemesEd, ecdsaSuite: true}, nil
	case *rsa.PublicKey:
		bits := pub.N.BitLen()
		if bits < 2048 { // RFC 9325 4.5
			return ability{}, fmt.Errorf("%w: an RSA key of %d bits; 2048 are the least", ErrUnusableCertificate, bits)
		}
		return ability{name: fmt.Sprintf("RSA %d", bits), rank: 2, schemes13: schemesPSS, schemes12: schemesRSA}, nil
	}
	return ability{}, fmt.Errorf("%w: keys of type %T", ErrUnusableCertificate, signer.Public())
}

// suits reports whether a client supports the key. A client that offers TLS 1.3 gets it.
func (a *ability) suits(hello *tls.ClientHelloInfo) bool {
	if slices.Contains(hello.SupportedVersions, tls.VersionTLS13) {
		return intersect(hello.SignatureSchemes, a.schemes13)
	}
	if !intersect(hello.SignatureSchemes, a.schemes12) { // RFC 9155: TLS 1.2 needs the extension too
		return false
	}
	if a.curve != 0 && !slices.Contains(hello.SupportedCurves, a.curve) { // RFC 8422 5.1.1
		return false
	}
	for _, suite := range hello.CipherSuites {
		switch suite {
		case tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
			tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256:
			if a.ecdsaSuite {
				return true
			}
		case tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
			tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256:
			if !a.ecdsaSuite {
				return true
			}
		}
	}
	return false
}

func intersect(a, b []tls.SignatureScheme) bool {
	for _, x := range a {
		if slices.Contains(b, x) {
			return true
		}
	}
	return false
}
