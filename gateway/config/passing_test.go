package config

import (
	"slices"
	"strings"
	"testing"
)

// passing is a configuration with the keys of what is passed on by choice.
const passing = `
listeners: [{name: web, address: "198.18.0.1:80", protocol: HTTP}]
routes:
- {name: r, upgrades: [TCP, irc/6.9], expect_continue: forward, rules: [{backend_refs: [{name: p}, {name: s}]}]}
- {name: q, upgrades: x, hostnames: [a.example], rules: [{backend_refs: [{name: p}]}]}
- {name: plain, hostnames: [b.example], rules: [{backend_refs: [{name: two}]}]}
pools:
- {name: p, field_names: preserve, backends: [{address: "198.18.1.1:80"}]}
- {name: s, protocol: HTTPS, tls: {insecure: true}, field_names: lower, backends: [{address: "198.18.1.1:81"}]}
- {name: two, protocol: H2C, backends: [{address: "198.18.1.1:82"}]}
`

func TestWhatIsPassedOnByChoice(t *testing.T) {
	c, err := Parse("f", []byte(passing))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []Route{
		{Upgrades: []string{"tcp", "irc/6.9"}, ExpectContinue: ExpectForward},
		{Upgrades: []string{"x"}, ExpectContinue: ExpectAnswer},
		{ExpectContinue: ExpectAnswer},
	} {
		if got := &c.Routes[i]; !slices.Equal(got.Upgrades, want.Upgrades) || got.ExpectContinue != want.ExpectContinue {
			t.Errorf("route %d: %q, %s", i, got.Upgrades, got.ExpectContinue)
		}
	}
	for i, want := range []FieldNames{FieldNamesPreserve, FieldNamesLower, FieldNamesLower} {
		if got := c.Pools[i].FieldNames; got != want {
			t.Errorf("pool %d: %q, want %q", i, got, want)
		}
	}
	for _, wrong := range []struct{ old, new, want string }{
		{"[TCP, irc/6.9]", "[websocket]", "without being named"},
		{"[TCP, irc/6.9]", "[h2c]", "past every rule"},
		{"[TCP, irc/6.9]", "[HTTP/2.0]", "past every rule"},
		{"[TCP, irc/6.9]", `["a b"]`, "not a protocol"},
		{"[TCP, irc/6.9]", "[a/]", "not a protocol"},
		{"[TCP, irc/6.9]", "[tcp, TCP]", "already"},
		{"{name: s}]", "{name: two}]", "has no Upgrade"},
		{"expect_continue: forward", "expect_continue: pass", "forward"},
		{"protocol: H2C,", "protocol: H2C, field_names: preserve,", "no upper case"},
		{"preserve", "keep", "preserve"},
	} {
		text := strings.Replace(passing, wrong.old, wrong.new, 1)
		if _, err := Parse("f", []byte(text)); text == passing || err == nil || !strings.Contains(err.Error(), wrong.want) {
			t.Errorf("%s: %v, want an error with %q", wrong.new, err, wrong.want)
		}
	}
}
