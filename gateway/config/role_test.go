package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const withRole = `
devices: [{name: gw0}]
snat: [198.18.2.1]
sync: {listen: "198.18.9.1:3780", peer: "198.18.9.2:3780", index: 0, key: "` + "0707070707070707070707070707070707070707070707070707070707070707" + `", role: %s}
services:
  - {name: web, address: 198.18.1.1:80, backends: [{address: 198.18.2.11:80}]}
`

func TestTheRole(t *testing.T) {
	for role, want := range map[string]string{
		"{}": "",
		"{priority: 254, lease: 200ms, preempt: true, preempt_delay: 0s}": "",
		`{paths: [{listen: "198.18.2.3:1", peer: "198.18.2.4:1"}]}`:       "",
		"{priority: 0}":       "priority",
		"{priority: 255}":     "priority",
		"{lease: 199ms}":      "lease",
		"{lease: 61s}":        "lease",
		"{preempt_delay: 9s}": "it is for `preempt: true`",
		"{paths: []}":         "paths",
		`{watch: [198.18.2.254, "2001:db8::fe"]}`: "",
		"{watch: []}":           "watch",
		"{watch: [198.18.1.1]}": "198.18.1.1 is a service or SNAT address, for which a gateway answers itself",
		"{watch: [198.18.2.1]}": "198.18.2.1 is a service or SNAT address, for which a gateway answers itself",
		"{watch: [127.0.0.1]}":  "watch cannot be 127.0.0.1",
		"{watch: [198.18.2.4, 198.18.2.5, 198.18.2.6, 198.18.2.7, 198.18.2.8]}": "watch",
		"{paths: [{listen: a}]}":                                                                                    "listen",
		`{paths: [{listen: "198.18.2.3:1", peer: "198.18.2.3:1"}]}`:                                                 "the path leads from",
		`{paths: [{listen: "198.18.2.3:1", peer: "[2001:db8::1]:1"}]}`:                                              "both of one family",
		`{paths: [{listen: "198.18.2.3:1", peer: "198.18.2.4:1"}, {listen: "198.18.2.3:1", peer: "198.18.2.5:1"}]}`: "198.18.2.3:1 is the address of another path already",
		`{paths: [{listen: "198.18.2.3:1", peer: "198.18.2.4:1"}, {listen: "198.18.2.3:2", peer: "198.18.2.4:2"}]}`: "",
		`{paths: [{listen: "198.18.9.1:3780", peer: "198.18.9.2:3780"}]}`:                                           "198.18.9.1:3780 is the address of sync.listen already",
		`{paths: [{listen: "198.18.1.1:3780", peer: "198.18.1.2:3780"}]}`:                                           "198.18.1.1 is a service or SNAT address, which moves",
		`{paths: [{listen: "198.18.2.3:3780", peer: "198.18.2.1:3780"}]}`:                                           "198.18.2.1 is a service or SNAT address, which moves",
	} {
		c, err := Parse("f", []byte(strings.Replace(withRole, "%s", role, 1)))
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", role, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %q", role, err, want)
		case role == "{}" && (c.Sync.Role.Lease != time.Second || c.Sync.Role.Priority != 100 || c.Sync.Role.Preempt):
			t.Errorf("defaults: %+v", c.Sync.Role)
		}
	}
}

// Messages go between addresses that stay.
func TestSyncAtAnAddressThatMoves(t *testing.T) {
	for from, to := range map[string]string{"listen: \"198.18.9.1:": "listen: \"198.18.1.1:", "peer: \"198.18.9.2:": "peer: \"198.18.2.1:"} {
		text := strings.Replace(withRole, from, to, 1)
		if _, err := Parse("f", []byte(strings.Replace(text, "%s", "{}", 1))); err == nil || !strings.Contains(err.Error(), "which moves with the role") {
			t.Errorf("%s: %v", to, err)
		}
	}
}

// Priority and preemption change by a reload, the messages by a restart.
func TestWhatOfTheRoleNeedsARestart(t *testing.T) {
	parse := func(role string) *Config {
		t.Helper()
		c, err := Parse("f", []byte(strings.Replace(withRole, "%s", role, 1)))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	before, none := parse("{}"), parse("{}")
	none.Sync.Role = nil
	for role, want := range map[string]string{
		"{priority: 7, preempt: true, preempt_delay: 3s}":           "",
		"{watch: [198.18.2.254]}":                                   "",
		"{lease: 2s}":                                               "sync",
		`{paths: [{listen: "198.18.2.3:1", peer: "198.18.2.4:1"}]}`: "sync",
	} {
		if got := NeedsRestart(before, parse(role)); got != want {
			t.Errorf("%s: %q, want %q", role, got, want)
		}
	}
	if NeedsRestart(before, none) != "sync" || NeedsRestart(none, before) != "sync" {
		t.Error("a role comes or goes without a restart")
	}
}

// With `stack: devices` a host answers for the addresses of devices, whichever gateway is active.
func TestARoleBesideAHostWithItsAddresses(t *testing.T) {
	text := strings.Replace(withRole, "devices: [{name: gw0}]", `stack: devices
devices: [{name: gw0, addresses: [198.18.1.1/24]}]
listeners: [{name: l, address: 198.18.1.1:8080, protocol: HTTP}]
routes: [{name: r, rules: [{backend_refs: [{name: p}]}]}]
pools: [{name: p, backends: [{address: 198.18.1.9:80}]}]`, 1)
	if _, err := Parse("f", []byte(strings.Replace(text, "%s", "{}", 1))); err == nil || !strings.Contains(err.Error(), "198.18.1.1 is an address of a device") {
		t.Errorf("%v", err)
	}
	if _, err := Parse("f", []byte(strings.Replace(strings.Replace(text, ", role: %s", "", 1), "%s", "", 1))); err != nil {
		t.Errorf("without a role: %v", err)
	}
}

func TestTheExampleOfTwoGateways(t *testing.T) {
	text, err := os.ReadFile("../../examples/two-gateways.yaml")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "gw.yaml")
	key := filepath.Join(filepath.Dir(file), "sync.key")
	if err := errors.Join(os.WriteFile(file, text, 0o600), os.WriteFile(key, []byte(strings.Repeat("07", 32)), 0o600)); err != nil {
		t.Fatal(err)
	}
	c, err := Load(file)
	if err != nil || c.Sync == nil || c.Sync.Role == nil || len(c.Sync.Role.Paths) != 1 {
		t.Errorf("%v, %+v", err, c)
	}
}
