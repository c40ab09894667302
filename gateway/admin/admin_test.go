package admin

import (
	"net/netip"
	"net/url"
	"testing"
	"time"
)

func TestAQueryIsReadAsItWasWritten(t *testing.T) {
	for _, q := range []Query{
		{},
		{Service: "web", Backend: "b&1 = x", Limit: 7},
		{Client: netip.MustParsePrefix("198.18.0.0/15")},
		{Client: netip.MustParsePrefix("2001:db8::1/128"), Limit: 1},
	} {
		v, err := url.ParseQuery(q.Values().Encode())
		if err != nil {
			t.Fatal(err)
		}
		if got, err := ParseQuery(v); err != nil || got != q {
			t.Errorf("%+v came back as %+v, %v", q, got, err)
		}
	}
}

func TestAClientIsAnAddressOrAPrefix(t *testing.T) {
	for s, want := range map[string]string{
		"198.18.0.1": "198.18.0.1/32", "2001:db8::1": "2001:db8::1/128", "198.18.7.9/15": "198.18.0.0/15", "::ffff:198.18.0.1": "198.18.0.1/32", "fe80::1%eth0": "fe80::1/128", "x": "", "198.18.0.0/33": "",
	} {
		p, err := ParseClient(s)
		if (err == nil) != (want != "") || err == nil && p.String() != want {
			t.Errorf("%s: %v, %v", s, p, err)
		}
	}
}

func TestDurationsHaveUnits(t *testing.T) {
	var d Duration
	if err := d.UnmarshalText([]byte("90s")); err != nil || time.Duration(d) != 90*time.Second {
		t.Errorf("%v, %v", d, err)
	}
	if text, err := d.MarshalText(); err != nil || string(text) != "1m30s" {
		t.Errorf("%s, %v", text, err)
	}
	if err := d.UnmarshalText([]byte("90")); err == nil {
		t.Error("a number without a unit was taken")
	}
}
