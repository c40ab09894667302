package semantics

import (
	"strings"
	"testing"
)

// variable is the variable of a name, in the strictest reading.
func variable(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, name)
}

func TestSameVariable(t *testing.T) {
	names := []string{
		"x-real-ip", "x_real_ip", "x.real-ip", "x~real`ip", "xreal-ip", "x-real-iq", "x-real-ip-", "forwarded", "x", "-", "_", "", "x-real--p", "2-a", "2_a",
	}
	for _, a := range names {
		for _, b := range names {
			if got, want := SameVariable(a, b), variable(a) == variable(b); got != want {
				t.Errorf("%q and %q: %v, want %v", a, b, got, want)
			}
		}
		if got, want := IsPlainName(a), strings.ReplaceAll(a, "-", "_") == variable(a) && !strings.Contains(a, "_"); got != want {
			t.Errorf("%q: plain %v, want %v", a, got, want)
		}
	}
}

// Trailers that some recipients merge into the header cannot name a client either, in any spelling.
func TestTrailersThatBecomeVariablesOfAHeader(t *testing.T) {
	for name, want := range map[string]TrailerUse{
		"x-forwarded-client-cert": TrailerDropped, "client-cert": TrailerDropped, "client-cert-chain": TrailerDropped, "x-forwarded-user": TrailerDropped,
		"x_forwarded_for": TrailerDropped, "x.real_ip": TrailerDropped, "content_length": TrailerDropped, "transfer.encoding": TrailerDropped, "proxy_authorization": TrailerDropped,
		"client_cert": TrailerDropped, "x-forwarded_client.cert": TrailerDropped, "early_data": TrailerDropped,
		"x-checksum": TrailerKept, "x_checksum": TrailerKept, "grpc-status": TrailerKept, "server_timing": TrailerKept,
		"content-length": TrailerRefused, "authorization": TrailerDropped,
	} {
		if got := UseOfTrailer(name); got != want {
			t.Errorf("%s: %d, want %d", name, got, want)
		}
	}
}
