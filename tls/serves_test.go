package tls

import "testing"

func TestServes(t *testing.T) {
	ca := newAuthority(t, "root", nil, nil)
	s := storeOf(t, ca.issue(t, nil, nil, "default.example", "192.0.2.1"), ca.issue(t, nil, nil, "*.a.example", "b.example"),
		ca.issue(t, nil, nil, "www.a.example", "c.example"), ca.issue(t, rsaKey(), nil, "www.a.example", "d.example"))
	for _, c := range []struct {
		name, host string
		want       bool
	}{
		{"x.a.example", "y.a.example", true},
		{"x.a.example", "b.example", true},
		{"x.a.example", "www.a.example", true},
		{"X.A.example", "B.example", true},
		{"x.a.example", "c.example", false},
		{"x.a.example", "default.example", false},
		{"x.a.example", "x.y.a.example", false},
		{"www.a.example", "c.example", true},
		{"www.a.example", "d.example", true},
		{"www.a.example", "y.a.example", true},
		{"", "default.example", true},
		{"unknown", "default.example", true},
		{"unknown", "unknown", false},
		{"", "a.example", false},
	} {
		if got := s.Serves(c.name, c.host); got != c.want {
			t.Errorf("%q for %q: %v", c.name, c.host, got)
		}
	}
	if (&Store{}).Serves("a", "a") {
		t.Error("an empty store serves")
	}
}
