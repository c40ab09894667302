package tls

import (
	"crypto/tls"
	"slices"

	"github.com/millrace/millrace/tls/clienthello"
)

// JA4 returns the fingerprint JA4 of a ClientHello over TCP, for use in GetConfigForClient and
// GetCertificate. With Encrypted ClientHello it is that of the inner hello.
func JA4(hello *tls.ClientHelloInfo) string {
	return string(features(hello).AppendJA4(nil, 't'))
}

// JA4QUIC returns the fingerprint JA4 of a ClientHello over QUIC: see JA4.
func JA4QUIC(hello *tls.ClientHelloInfo) string {
	return string(features(hello).AppendJA4(nil, 'q'))
}

// JA3 returns the fingerprint JA3. crypto/tls does not pass on legacy_version; it is TLS 1.2 where
// the client has supported_versions (RFC 8446 4.1.2), and otherwise the highest version offered.
func JA3(hello *tls.ClientHelloInfo) string {
	return string(features(hello).AppendJA3(nil))
}

func features(hello *tls.ClientHelloInfo) *clienthello.Features {
	const serverName, supportedVersions = 0, 43 // extensions
	f := &clienthello.Features{
		HasServerName: slices.Contains(hello.Extensions, serverName),
		Suites:        hello.CipherSuites,
		Extensions:    hello.Extensions,
		PointFormats:  hello.SupportedPoints,
	}
	for _, v := range hello.SupportedVersions {
		if v&0x0f0f != 0x0a0a { // GREASE (RFC 8701)
			f.MaxVersion = max(f.MaxVersion, v)
		}
	}
	f.Version = f.MaxVersion
	if slices.Contains(hello.Extensions, supportedVersions) {
		f.Version = tls.VersionTLS12
	}
	for _, g := range hello.SupportedCurves {
		f.Groups = append(f.Groups, uint16(g))
	}
	for _, s := range hello.SignatureSchemes {
		f.Signatures = append(f.Signatures, uint16(s))
	}
	if len(hello.SupportedProtos) > 0 {
		f.FirstALPN = []byte(hello.SupportedProtos[0])
	}
	return f
}
