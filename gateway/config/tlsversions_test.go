package config

import (
	"strings"
	"testing"
)

func TestVersionsSuitesAndStaplesOfListeners(t *testing.T) {
	with := func(tls string) string {
		return strings.Replace(strings.Replace(kinds["https"], "versions: ['1.1', '2', '3'], ", "", 1), "{cert: b}]", "{cert: b}], "+tls, 1)
	}
	c, err := Parse("f", []byte(strings.Replace(with("max_version: '1.2', ciphers: [TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384], ocsp: fetch"), "{cert: c}", "{cert: c, ocsp_file: o}", 1)))
	if err != nil {
		t.Fatal(err)
	}
	if s := c.Listeners[0].TLS; s.MaxVersion != TLS12 || len(s.Ciphers) != 1 || s.OCSP != OCSPFetch || s.Certificates[0].OCSPFile != "o" {
		t.Errorf("%+v", s)
	}
	for _, bad := range []struct{ file, want string }{
		{with("min_version: '1.3', max_version: '1.2'"), "below min_version"},
		{with("max_version: '1.1'"), "max_version"},
		{with("min_version: '1.3', ciphers: TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"), "ciphers has no effect"},
		{with("ciphers: TLS_RSA_WITH_AES_128_GCM_SHA256"), "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"},
		{with("ciphers: [TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384, TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384]"), "cipher suite"},
		{strings.Replace(kinds["https"], "{cert: b}]", "{cert: b}], max_version: '1.2'", 1), "HTTP/3 has TLS 1.3"},
		{with("ocsp: yes"), "fetch"},
	} {
		if _, err := Parse("f", []byte(bad.file)); err == nil || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("%s: %v, want %q", bad.file, err, bad.want)
		}
	}
}
