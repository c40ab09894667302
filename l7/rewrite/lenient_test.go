package rewrite

import (
	"net/netip"
	"testing"

	"github.com/millrace/millrace/semantics"
)

// Empty elements of a list are ignored: they do not end the chain of proxies.
func TestEmptyEntriesOfTheChainAreIgnored(t *testing.T) {
	f := Forwarding{Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
	peer, client := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("192.0.2.7")
	for _, lines := range [][]string{{"192.0.2.7,"}, {"192.0.2.7, , 10.0.0.2,"}, {"192.0.2.7", ""}, {", 192.0.2.7 ,"}} {
		var fields []semantics.Field
		for _, l := range lines {
			fields = append(fields, semantics.Field{Name: "x-forwarded-for", Value: l})
		}
		if got := f.Client(fields, peer); got != client {
			t.Errorf("%q: %v, want %v", lines, got, client)
		}
	}
	if got := f.Client([]semantics.Field{{Name: "x-forwarded-for", Value: "192.0.2.7, none"}}, peer); got != peer {
		t.Errorf("an entry that is no address: %v", got)
	}
}

func TestQuotedCookies(t *testing.T) {
	for line, want := range map[string]string{
		`s=abc`: "abc", `s="abc"`: "abc", `a=1; s="abc" ; b`: "abc", `s="`: `"`, `s="a`: `"a`, `s=a"`: `a"`, `s=""`: "",
	} {
		if got, ok := (&Sticky{Name: "s"}).Token([]semantics.Field{{Name: "cookie", Value: line}}); got != want || !ok {
			t.Errorf("%s: %q, %v; want %q", line, got, ok, want)
		}
	}
}
