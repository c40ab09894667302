package http3

import (
	"testing"
	"time"
)

func TestParseAltSvc(t *testing.T) {
	for value, want := range map[string]struct {
		addr string
		age  time.Duration
	}{
		`h3=":443"`: {"origin:443", 24 * time.Hour},
		`h2=":443", h3="alt.example:8443"; ma=60; persist=1`: {"alt.example:8443", time.Minute},
		`h3="[2001:db8::1]:443";ma=1`:                        {"[2001:db8::1]:443", time.Second},
		`clear`:                                              {},
		`h3-29=":443"`:                                       {},
		`h3=":0"`:                                            {},
		`h3=":99999"`:                                        {},
		`h3="443"`:                                           {},
		``:                                                   {},
		`h3=":70000", h3=":444"; ma=5`:                       {"origin:444", 5 * time.Second},
		`h3=":443"; ma=x`:                                    {"origin:443", 24 * time.Hour},
		`x="a,h3=\":1\"", h3=":2"; ma="7"`:                   {"origin:2", 7 * time.Second},
		`h2=":443",`:                                         {},
		`,, h3=":443",,`:                                     {"origin:443", 24 * time.Hour},
		`h2="a\\\\", h3=":443"`:                              {"origin:443", 24 * time.Hour},
		`h3=":443"; ma=99999999999999999999`:                 {"origin:443", 24 * time.Hour},
	} {
		addr, age, found := parseAltSvc(value, "origin")
		if addr != want.addr || found != (want.addr != "") || found && age != want.age {
			t.Errorf("%s: %s, %v, %v", value, addr, age, found)
		}
	}
}

func FuzzAltSvc(f *testing.F) {
	f.Add(`h2=":443", h3="alt.example:8443"; ma=60`)
	f.Fuzz(func(t *testing.T, s string) {
		if addr, age, found := parseAltSvc(s, "host"); found && (addr == "" || age < 0) {
			t.Fatal(addr, age)
		}
	})
}
