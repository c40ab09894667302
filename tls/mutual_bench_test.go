package tls

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"testing"

	"github.com/millrace/millrace/internal/testkit/testcert"
)

// BenchmarkClientCertificate reports the CPU time of what a server verifies of a client's certificate in a full handshake: the
// signature on the certificate, by one authority, and that of CertificateVerify, which crypto/tls computes inside of the handshake.
func BenchmarkClientCertificate(b *testing.B) {
	onP256, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		b.Fatal(err)
	}
	ofRSA, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		b.Fatal(err)
	}
	_, ofEd25519, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		b.Fatal(err)
	}
	message := make([]byte, 130) // RFC 8446 4.4.3
	digest := sha256.Sum256(message)
	pss := &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash, Hash: crypto.SHA256}
	sign := func(k crypto.Signer, m []byte, o crypto.SignerOpts) []byte {
		s, err := k.Sign(rand.Reader, m, o)
		if err != nil {
			b.Fatal(err)
		}
		return s
	}
	byP256, byRSA, byEd25519 := sign(onP256, digest[:], crypto.SHA256), sign(ofRSA, digest[:], pss), sign(ofEd25519, message, crypto.Hash(0))
	for _, c := range []struct {
		name   string
		key    crypto.Signer
		verify func() bool
	}{
		{"P-256", onP256, func() bool { return ecdsa.VerifyASN1(&onP256.PublicKey, digest[:], byP256) }},
		{"RSA-2048", ofRSA, func() bool { return rsa.VerifyPSS(&ofRSA.PublicKey, crypto.SHA256, digest[:], byRSA, pss) == nil }},
		{"Ed25519", ofEd25519, func() bool {
			return ed25519.Verify(ofEd25519.Public().(ed25519.PublicKey), message, byEd25519)
		}},
	} {
		cert, _ := testcert.SelfSignedBy(c.key, "client")
		leaf, err := x509.ParseCertificate(cert.Certificate[0])
		if err != nil {
			b.Fatal(err)
		}
		b.Run(c.name+"/CertificateVerify", func(b *testing.B) { measureCPU(b, c.verify) })
		b.Run(c.name+"/certificate", func(b *testing.B) {
			measureCPU(b, func() bool {
				return leaf.CheckSignature(leaf.SignatureAlgorithm, leaf.RawTBSCertificate, leaf.Signature) == nil
			})
		})
	}
}

// measureCPU reports the CPU time of something that is true.
func measureCPU(b *testing.B, right func() bool) {
	start := cpuTime()
	for b.Loop() {
		if !right() {
			b.Fatal("it is refused")
		}
	}
	b.ReportMetric(float64(cpuTime()-start)/1000/float64(b.N), "cpu-us/op")
}
