package config

import (
	"encoding/json"
	"testing"
)

func TestAddrPortsRoundTrip(t *testing.T) {
	for text, want := range map[string]PortRange{
		"198.18.0.1:80":               {80, 80},
		"198.18.0.1:8000-8099":        {8000, 8099},
		"198.18.0.1:*":                AllPorts,
		"[2001:db8::1]:*":             AllPorts,
		"[2001:db8::1]:1-65534":       {1, 65534},
		"[2001:db8::1]:50000-65535":   {50000, 65535},
		"[2001:db8:1:2:3:4:5:6]:7-99": {7, 99},
	} {
		a, err := ParseAddrPorts(text)
		if err != nil || a.Ports() != want || a.String() != text || a.IsRange() != (want.Size() > 1) {
			t.Errorf("%s is read as %v with %v: %v", text, a, a.Ports(), err)
		}
		b, err := json.Marshal(a)
		var back AddrPorts
		if err != nil || string(b) != `"`+text+`"` || json.Unmarshal(b, &back) != nil || back != a {
			t.Errorf("%s as JSON is %s, and %v again: %v", text, b, back, err)
		}
	}
	for text, want := range map[string]string{"198.18.0.1:1-65535": "198.18.0.1:*", "198.18.0.1:9-9": "198.18.0.1:9"} {
		if a, err := ParseAddrPorts(text); err != nil || a.String() != want {
			t.Errorf("%s is read as %v: %v", text, a, err)
		}
	}
	if a := addrPorts("198.18.0.1:0"); a.Port() != 0 || a.String() != "198.18.0.1:0" {
		t.Errorf("the address without a port is %v", a)
	}
}

func FuzzParseAddrPorts(f *testing.F) {
	for _, s := range []string{"198.18.0.1:80", "198.18.0.1:8000-8099", "[2001:db8::1]:*", "198.18.0.1:9-8", "198.18.0.1:0-1", ":*", "*:*-*", "[::1%a:b]:1-2"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := ParseAddrPorts(s)
		if err != nil {
			return
		}
		if p := a.Ports(); p.First == 0 || p.First > p.Last || !a.Addr().IsValid() {
			t.Fatalf("%q has ports %v of %v", s, p, a.Addr())
		}
		if b, err := ParseAddrPorts(a.String()); err != nil || b != a {
			t.Fatalf("%q is %v, and that is %v: %v", s, a, b, err)
		}
	})
}
