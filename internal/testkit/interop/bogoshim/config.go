package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"

	"github.com/millrace/millrace/gpukern/sign"
)

// config returns the crypto/tls configuration that the flags describe.
func (f *flags) config() (*tls.Config, error) {
	c := &tls.Config{
		ServerName:         "test",
		MinVersion:         uint16(f.minVersion),
		MaxVersion:         uint16(f.maxVersion),
		ClientSessionCache: tls.NewLRUClientSessionCache(0),
	}
	if c.MinVersion == 0 {
		c.MinVersion = tls.VersionTLS10
	}
	if f.hostName != "" {
		c.ServerName = f.hostName
	}
	for _, s := range append(tls.CipherSuites(), tls.InsecureCipherSuites()...) {
		c.CipherSuites = append(c.CipherSuites, s.ID)
	}
	for _, id := range f.curves {
		c.CurvePreferences = append(c.CurvePreferences, tls.CurveID(id))
	}
	switch {
	case f.requireAnyClientCertificate:
		c.ClientAuth = tls.RequireAnyClientCert
	case f.verifyPeer:
		c.ClientAuth = tls.VerifyClientCertIfGiven
	}
	if f.echConfigList != nil {
		c.EncryptedClientHelloConfigList = f.echConfigList
		c.MinVersion = tls.VersionTLS13
	}
	for _, step := range []func(*tls.Config) error{f.verifiable, f.versions, f.alpn, f.certificate, f.trust, f.echKeys} {
		if err := step(c); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// versions narrows the versions from below or from above, as the -no flags say.
func (f *flags) versions(c *tls.Config) error {
	disabled := []bool{f.noTLS1, f.noTLS11, f.noTLS12, f.noTLS13}
	lowest := slices.Index(disabled, false)
	switch {
	case lowest < 0:
		return errors.New("all versions are disabled")
	case lowest > 0:
		c.MinVersion = tls.VersionTLS10 + uint16(lowest)
	default:
		highest := len(disabled) - 1
		for disabled[highest] {
			highest--
		}
		if highest < len(disabled)-1 {
			c.MaxVersion = tls.VersionTLS10 + uint16(highest)
		}
	}
	return nil
}

// protocols decodes ALPN names, each after its length.
func protocols(s string) (names []string, err error) {
	for len(s) > 0 {
		n := int(s[0])
		if len(s) < 1+n {
			return nil, fmt.Errorf("ALPN list %q", s)
		}
		names, s = append(names, s[1:1+n]), s[1+n:]
	}
	return names, nil
}

func (f *flags) alpn(c *tls.Config) (err error) {
	if c.NextProtos, err = protocols(f.advertiseALPN); err != nil {
		return err
	}
	switch {
	case f.rejectALPN:
		c.NextProtos = []string{"unnegotiableprotocol"}
	case f.declineALPN:
		c.NextProtos = nil
	case f.selectALPN != "":
		c.NextProtos = []string{f.selectALPN}
	}
	if f.expectAdvertisedALPN == "" {
		return nil
	}
	want, err := protocols(f.expectAdvertisedALPN)
	c.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if !slices.Equal(hello.SupportedProtos, want) {
			return nil, fmt.Errorf("ALPN offers %q, want %q", hello.SupportedProtos, want)
		}
		return nil, nil
	}
	return err
}

func (f *flags) certificate(c *tls.Config) error {
	if f.keyFile == "" && f.certFile == "" {
		return nil
	}
	pair, err := tls.LoadX509KeyPair(f.certFile, f.keyFile)
	if err != nil {
		return err
	}
	for _, id := range f.signingPrefs {
		pair.SupportedSignatureAlgorithms = append(pair.SupportedSignatureAlgorithms, tls.SignatureScheme(id))
	}
	pair.OCSPStaple = f.ocspResponse
	if f.millrace != "crypto/tls" { // by the batch, which a key of ECDSA would enter with its ninth signature
		pair.PrivateKey = sign.Wrap(pair.PrivateKey)
		if s := sign.Of(pair.PrivateKey); s != nil {
			s.Prepare()
		}
	}
	choose := func(offered []tls.SignatureScheme) (*tls.Certificate, error) {
		var got []int
		for _, s := range offered {
			got = append(got, int(s))
		}
		if f.expectPeerVerifyPref != nil && !slices.Equal(got, f.expectPeerVerifyPref) {
			return nil, fmt.Errorf("signature algorithms %x, want %x", got, f.expectPeerVerifyPref)
		}
		return &pair, nil
	}
	// These callbacks use the certificate whether it suits or not, which is what the runner expects.
	c.GetCertificate = func(h *tls.ClientHelloInfo) (*tls.Certificate, error) { return choose(h.SignatureSchemes) }
	c.GetClientCertificate = func(r *tls.CertificateRequestInfo) (*tls.Certificate, error) { return choose(r.SignatureSchemes) }
	return nil
}

func (f *flags) trust(c *tls.Config) error {
	if f.trustCert == "" {
		return nil
	}
	text, err := os.ReadFile(f.trustCert)
	if err != nil {
		return err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return errors.New("no PEM block in " + f.trustCert)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return err
	}
	c.RootCAs = x509.NewCertPool()
	c.RootCAs.AddCert(cert)
	return nil
}

func (f *flags) echKeys(c *tls.Config) error {
	if len(f.echServerKey) != len(f.echServerConfig) || len(f.echIsRetry) != len(f.echServerConfig) {
		return errors.New("ECH configurations, keys and retry flags differ in number")
	}
	for i := range f.echServerConfig {
		config, err1 := base64.StdEncoding.DecodeString(f.echServerConfig[i])
		key, err2 := base64.StdEncoding.DecodeString(f.echServerKey[i])
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		c.EncryptedClientHelloKeys = append(c.EncryptedClientHelloKeys, tls.EncryptedClientHelloKey{
			Config: config, PrivateKey: key, SendAsRetry: f.echIsRetry[i] == "1",
		})
	}
	return nil
}

// checkError returns the error that ended a connection, and what else is wrong with it.
func (f *flags) checkError(err error) error {
	var rejected *tls.ECHRejectionError
	if errors.As(err, &rejected) {
		if f.expectNoECHRetries && len(rejected.RetryConfigList) > 0 {
			return errors.New("there are ECH retry configurations")
		}
		if f.expectECHRetryConfigs != nil && !bytes.Equal(rejected.RetryConfigList, f.expectECHRetryConfigs) {
			return errors.New("other ECH retry configurations are expected")
		}
	}
	return fmt.Errorf("connection: %w", err)
}

// check compares the state of connection i with what the flags expect.
func (f *flags) check(cs tls.ConnectionState, i int) error {
	// The algorithm of the peer's signature is a field that crypto/tls does not export.
	signature := int(reflect.ValueOf(cs).FieldByName("testingOnlyPeerSignatureAlgorithm").Uint())
	ech := f.expectECHAccept || i == 0 && f.onInitialExpectECHAccept || i > 0 && f.onResumeExpectECHAccept
	for what, failed := range map[string]bool{
		"protocol":    f.expectALPN != "" && cs.NegotiatedProtocol != f.expectALPN || f.selectALPN != "" && cs.NegotiatedProtocol != f.selectALPN || f.declineALPN && cs.NegotiatedProtocol != "",
		"version":     f.expectVersion != 0 && int(cs.Version) != f.expectVersion,
		"ECH":         ech && !cs.ECHAccepted || i == 0 && !ech && cs.ECHAccepted,
		"HRR":         f.expectHRR && !cs.HelloRetryRequest || f.expectNoHRR && cs.HelloRetryRequest,
		"resumption":  f.expectSessionMiss && cs.DidResume,
		"server name": f.expectServerName != "" && cs.ServerName != f.expectServerName,
	} {
		if failed && cs.HandshakeComplete {
			return fmt.Errorf("unexpected %s: %+v", what, cs)
		}
	}
	if f.expectCurve != 0 && int(cs.CurveID) != f.expectCurve {
		return fmt.Errorf("curve %d, want %d", cs.CurveID, f.expectCurve)
	}
	if f.expectPeerSignature != 0 && !cs.DidResume && signature != f.expectPeerSignature {
		return fmt.Errorf("signature %x, want %x", signature, f.expectPeerSignature)
	}
	return nil
}
