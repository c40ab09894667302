package main

import (
	"encoding/base64"
	"flag"
	"strconv"
)

// flags are those of the runner's flags that crypto/tls has a counterpart of. With any other the test is skipped.
type flags struct {
	millrace string
	cut      int

	port                  int
	shimID                uint64
	ipv6, server          bool
	isHandshakerSupported bool

	keyFile, certFile, trustCert string
	ocspResponse                 []byte
	signingPrefs, verifyPrefs    []int
	expectPeerVerifyPref         []int
	expectPeerSignature          int

	minVersion, maxVersion, expectVersion int
	noTLS1, noTLS11, noTLS12, noTLS13     bool

	requireAnyClientCertificate, verifyPeer bool
	shimWritesFirst                         bool
	resumeCount                             int
	expectSessionMiss                       bool
	expectHRR, expectNoHRR                  bool
	curves                                  []int
	expectCurve                             int
	hostName, expectServerName              string

	advertiseALPN, expectALPN        string
	expectAdvertisedALPN, selectALPN string
	rejectALPN, declineALPN          bool

	echConfigList, onResumeECHConfigList        []byte
	echServerConfig, echServerKey, echIsRetry   []string
	expectECHAccept, onInitialExpectECHAccept   bool
	onResumeExpectECHAccept, expectNoECHRetries bool
	expectECHRetryConfigs                       []byte
}

func parseFlags(args []string) (*flags, error) {
	f, s := &flags{}, flagSet()
	s.StringVar(&f.millrace, "millrace", "engine", "")
	s.IntVar(&f.cut, "millrace-cut", 0, "")
	for name, p := range map[string]*int{
		"port": &f.port, "resume-count": &f.resumeCount, "min-version": &f.minVersion, "max-version": &f.maxVersion,
		"expect-version": &f.expectVersion, "expect-curve-id": &f.expectCurve,
		"expect-peer-signature-algorithm": &f.expectPeerSignature,
	} {
		s.IntVar(p, name, 0, "")
	}
	s.Uint64Var(&f.shimID, "shim-id", 0, "")
	for name, p := range map[string]*bool{
		"ipv6": &f.ipv6, "server": &f.server, "is-handshaker-supported": &f.isHandshakerSupported,
		"no-tls1": &f.noTLS1, "no-tls11": &f.noTLS11, "no-tls12": &f.noTLS12, "no-tls13": &f.noTLS13,
		"require-any-client-certificate": &f.requireAnyClientCertificate, "verify-peer": &f.verifyPeer,
		"shim-writes-first": &f.shimWritesFirst, "expect-session-miss": &f.expectSessionMiss,
		"expect-hrr": &f.expectHRR, "expect-no-hrr": &f.expectNoHRR,
		"reject-alpn": &f.rejectALPN, "decline-alpn": &f.declineALPN,
		"expect-ech-accept": &f.expectECHAccept, "on-initial-expect-ech-accept": &f.onInitialExpectECHAccept,
		"on-resume-expect-ech-accept": &f.onResumeExpectECHAccept, "expect-no-ech-retry-configs": &f.expectNoECHRetries,
	} {
		s.BoolVar(p, name, false, "")
	}
	for name, p := range map[string]*string{
		"key-file": &f.keyFile, "cert-file": &f.certFile, "trust-cert": &f.trustCert, "host-name": &f.hostName,
		"expect-server-name": &f.expectServerName, "advertise-alpn": &f.advertiseALPN, "expect-alpn": &f.expectALPN,
		"expect-advertised-alpn": &f.expectAdvertisedALPN, "select-alpn": &f.selectALPN,
	} {
		s.StringVar(p, name, "", "")
	}
	for name, p := range map[string]*[]byte{
		"ocsp-response": &f.ocspResponse, "ech-config-list": &f.echConfigList,
		"on-resume-ech-config-list": &f.onResumeECHConfigList, "expect-ech-retry-configs": &f.expectECHRetryConfigs,
	} {
		s.Func(name, "", func(v string) (err error) { *p, err = base64.StdEncoding.DecodeString(v); return err })
	}
	for name, p := range map[string]*[]int{
		"signing-prefs": &f.signingPrefs, "verify-prefs": &f.verifyPrefs, "curves": &f.curves,
		"expect-peer-verify-pref": &f.expectPeerVerifyPref,
	} {
		s.Func(name, "", func(v string) error { n, err := strconv.Atoi(v); *p = append(*p, n); return err })
	}
	for name, p := range map[string]*[]string{
		"ech-server-config": &f.echServerConfig, "ech-server-key": &f.echServerKey, "ech-is-retry-config": &f.echIsRetry,
	} {
		s.Func(name, "", func(v string) error { *p = append(*p, v); return nil })
	}
	ignore(s)
	return f, s.Parse(args)
}

// ignore takes flags that ask for what is the case anyway, or that describe what happens with early data, which
// is never accepted.
func ignore(s *flag.FlagSet) {
	for _, name := range []string{
		"expect-no-ech-name-override", "reverify-on-resume", "on-resume-expect-reject-early-data",
		"on-resume-expect-no-ech-name-override", "enable-early-data", "on-resume-expect-accept-early-data",
		"expect-ticket-supports-early-data", "on-resume-shim-writes-first", "use-custom-verify-callback",
	} {
		s.Bool(name, false, "")
	}
	s.String("expect-ech-name-override", "", "")
}
