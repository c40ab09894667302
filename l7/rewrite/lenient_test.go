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

// What is added follows the last element that is not empty.
func TestTheChainGoesOnWithoutEmptyElements(t *testing.T) {
	trusted := []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	for _, c := range []struct {
		style       Style
		name, value string
		want        string
	}{
		{StyleX, "x-forwarded-for", "203.0.113.1,", "203.0.113.1, 192.0.2.9"},
		{StyleX, "x-forwarded-for", "203.0.113.1 , ,\t", "203.0.113.1, 192.0.2.9"},
		{StyleX, "x-forwarded-for", " , ", "192.0.2.9"},
		{StyleForwarded, "forwarded", "for=203.0.113.1,", "for=203.0.113.1, for=192.0.2.9;host=example.org;proto=http"},
		{StyleForwarded, "forwarded", `for="a, ",`, `for="a, ", for=192.0.2.9;host=example.org;proto=http`},
	} {
		f := Forwarding{Style: c.style, Trusted: trusted}
		fields, _ := f.Apply([]semantics.Field{{Name: c.name, Value: c.value}}, nil, &Peer{Addr: netip.MustParseAddr("192.0.2.9"), Authority: "example.org"})
		got := ""
		for _, field := range fields {
			if field.Name == c.name {
				got = field.Value
			}
		}
		if got != c.want {
			t.Errorf("%s: %q becomes %q, want %q", c.name, c.value, got, c.want)
		}
	}
}
