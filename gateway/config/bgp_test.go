package config

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

const peersOnly = "bgp: {as: 64512, router_id: 192.0.2.1, peers: [{address: 192.0.2.2, as: 65000}]}\n"

// listening is a file whose listener at an address is announced.
func listening(at string) string {
	return peersOnly + "listeners: [{name: l, address: " + at + ", protocol: HTTP, announce: {}}]\nroutes: [{name: r, rules: [{backend_refs: [{name: p}]}]}]\npools: [{name: p, backends: [{address: 192.0.2.7:1}]}]\n"
}

const announced = "devices: [{name: eth0}]\nsnat: 198.18.2.1\nservices: [{name: s, address: 198.18.1.1:80, announce: {}, backends: [{address: 198.18.2.2:80}]}]\n"

func TestMistakesInBGPNameTheRemedy(t *testing.T) {
	peer := func(keys string) string {
		return "bgp: {as: 64512, router_id: 192.0.2.1, peers: [{address: 192.0.2.2, as: 65000" + keys + "}]}\n" + announced
	}
	both := strings.Replace(announced, "198.18.1.1:80", `[198.18.1.1:80, "[2001:db8:1::1]:80"], source: client`, 1)
	for _, c := range []struct{ file, want string }{
		{listening("0.0.0.0:80"), "has all addresses"},
		{listening("'[2001:db8:1::1]:80'"), "is announced to no peer: none has ipv6"},
		{strings.TrimPrefix(listening("198.18.1.1:80"), peersOnly), "announce has no effect: there are no routers to announce the listener to"},
		{strings.Replace(listening("198.18.1.1:80"), ", announce: {}", "", 1), "none has announce"},
		{"bgp: {router_id: 192.0.2.1, peers: [{address: 192.0.2.2, as: 65000}]}\n" + announced, `bgp lacks the key "as"`},
		{"bgp: {as: 64512, peers: [{address: 192.0.2.2, as: 65000}]}\n" + announced, `bgp lacks the key "router_id"`},
		{"bgp: {as: 64512, router_id: 192.0.2.1}\n" + announced, `bgp lacks the key "peers"`},
		{"bgp: {as: 64512, router_id: 192.0.2.1, peers: []}\n" + announced, "peers is empty"},
		{"bgp: {as: 0, router_id: 192.0.2.1, peers: [{address: 192.0.2.2, as: 65000}]}\n" + announced, "as is 0"},
		{"bgp: {as: 23456, router_id: 192.0.2.1, peers: [{address: 192.0.2.2, as: 65000}]}\n" + announced, "as cannot be 23456, which is reserved"},
		{"bgp: {as: 4294967295, router_id: 192.0.2.1, peers: [{address: 192.0.2.2, as: 65000}]}\n" + announced, "as is 4294967295"},
		{"bgp: {as: 64512, router_id: '2001:db8::1', peers: [{address: 192.0.2.2, as: 65000}]}\n" + announced, "router_id cannot be 2001:db8::1"},
		{"bgp: {as: 64512, router_id: 192.0.2.1, graceful_restart: 5000s, peers: [{address: 192.0.2.2, as: 65000}]}\n" + announced, "graceful_restart"},
		{"bgp: {as: 64512, router_id: 192.0.2.1, graceful_restart: 1500ms, peers: [{address: 192.0.2.2, as: 65000}]}\n" + announced, "graceful_restart must be whole seconds"},
		{"bgp: {as: 64512, router_id: 192.0.2.1, communities: 70000:1, peers: [{address: 192.0.2.2, as: 65000}]}\n" + announced, `"70000" in the community "70000:1" is no number of 16 bits`},
		{"bgp: {as: 64512, router_id: 192.0.2.1, communities: '65535:0', peers: [{address: 192.0.2.2, as: 65000}]}\n" + announced, "graceful-shutdown, which the speaker sets itself"},
		{"bgp: {as: 64512, router_id: 192.0.2.1, local_preference: 5, peers: [{address: 192.0.2.2, as: 65000}]}\n" + announced, "local_preference has no effect"},
		{"bgp: {as: 64512, router_id: 192.0.2.1, prepend: 5, peers: [{address: 192.0.2.2, as: 64512}]}\n" + announced, "prepend has no effect"},
		{"bgp: {as: 64512, router_id: 192.0.2.1, peers: [{address: 192.0.2.2, as: 65000}, {address: 192.0.2.2, as: 65001}]}\n" + announced, `peer "192.0.2.2" is already`},
		{"bgp: {as: 64512, router_id: 192.0.2.1, peers: [{address: 192.0.2.2, as: 65000}]}\n" + oneService, "none has announce"},
		{"sync: {listen: '198.18.9.9:1', peer: '198.18.9.8:1', key_file: a, index: 0, role: {}}\n" + peer(""), "bgp cannot go with sync.role"},
		{announced, "announce has no effect: there are no routers"},
		{peer(", hold_time: 2s"), "hold_time"},
		{peer(", hold_time: 3500ms"), "hold_time must be whole seconds"},
		{peer(", hops: 0"), "hops"},
		{peer(", families: [ipv4, ipv4]"), "families has ipv4 twice"},
		{peer(", families: [ipv4, ipv6]"), "ipv6 routes need a next_hop"},
		{peer(", families: ipv4, next_hop: '2001:db8::1'"), "families is without ipv6"},
		{peer(", next_hop: [192.0.2.7, 192.0.2.8]"), "next_hop has two IPv4 addresses"},
		{peer(", local_address: 198.18.1.1"), "local_address 198.18.1.1 is an address of service s, of which the kernel gets no packets"},
		{peer(", local_address: 198.18.2.1"), "local_address 198.18.2.1 is an snat address"},
		{peer(", local_address: '2001:db8::1'"), "local_address 2001:db8::1 is IPv6, but the peer is IPv4"},
		{strings.Replace(peer(", local_address: 192.0.2.9"), "name: eth0", "name: eth0, addresses: 192.0.2.9/24", 1) + "stack: devices\nlisteners: [{name: l, address: '192.0.2.9:81', protocol: HTTP}]\n" + toPool + "pools: [{name: p, backends: [{address: 192.0.2.7:1}]}]\n", "local_address 192.0.2.9 is an address of `stack: devices`"},
		{"bgp: {as: 64512, router_id: 192.0.2.1, peers: [{address: 198.18.1.1, as: 65000}]}\n" + announced, "peer 198.18.1.1 is this gateway"},
		{"bgp: {as: 64512, router_id: 192.0.2.1, peers: [{address: 192.0.2.2, as: 64512, ttl_security: true}]}\n" + announced, "ttl_security needs to know"},
		{"bgp: {as: 64512, router_id: 192.0.2.1, peers: [{address: 192.0.2.2, as: 65000}]}\n" + strings.Replace(both, "backends: [", "backends: [{address: '[2001:db8:2::2]:80'}, ", 1), "is announced to no peer: none has ipv6"},
	} {
		if _, err := Parse("f", []byte(c.file)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.file, err, c.want)
		}
	}
}

func TestFamiliesOfAPeer(t *testing.T) {
	for keys, want := range map[string][]string{
		"": {"ipv4"}, ", next_hop: '2001:db8::1'": {"ipv4", "ipv6"}, ", next_hop: 192.0.2.7": {"ipv4"},
		", families: [ipv6, ipv4], next_hop: ['2001:db8::1', 192.0.2.7]": {"ipv6", "ipv4"},
	} {
		c, err := Parse("f", []byte("bgp: {as: 64512, router_id: 192.0.2.1, peers: [{address: 192.0.2.2, as: 65000"+keys+"}]}\n"+announced))
		if err != nil {
			t.Errorf("%s: %v", keys, err)
			continue
		}
		if got := c.BGP.Peers[0].FamiliesOf(); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, want %v", keys, got, want)
		}
	}
}

// TestAttributesOfAServiceStandInForTheOthers has each of them on both levels.
func TestAttributesOfAServiceStandInForTheOthers(t *testing.T) {
	c, err := Parse("f", []byte("bgp: {as: 64512, router_id: 192.0.2.1, med: 5, communities: no-export, prepend: 1, peers: [{address: 192.0.2.2, as: 65000}]}\n"+
		strings.Replace(announced, "announce: {}", "announce: {med: 0, communities: ['64512:1', '64512:1:2']}", 1)))
	if err != nil {
		t.Fatal(err)
	}
	a := c.Services[0].Announce.Or(c.BGP.Attributes)
	if *a.MED != 0 || *a.Prepend != 1 || a.LocalPref != nil || len(a.Communities.Standard) != 1 || a.Communities.Standard[0] != 64512<<16|1 || len(a.Communities.Large) != 1 {
		t.Errorf("attributes %+v", a)
	}
	if a := (Attributes{}).Or(c.BGP.Attributes); *a.MED != 5 || len(a.Communities.Standard) != 1 {
		t.Errorf("attributes %+v", a)
	}
}

func TestThePasswordOfAPeer(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "f")
	c, err := Parse(file, []byte("bgp: {as: 64512, router_id: 192.0.2.1, peers: [{address: 192.0.2.2, as: 65000, password_file: p}]}\n"+announced))
	if err != nil {
		t.Fatal(err)
	}
	write := func(text string, mode os.FileMode) {
		_ = os.Remove(filepath.Join(dir, "p"))
		if err := os.WriteFile(filepath.Join(dir, "p"), []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	for text, want := range map[string]string{
		"":                      "0 characters; 1 to 80 are allowed",
		"a\nb\n":                "2 lines; one is allowed",
		strings.Repeat("x", 81): "81 characters",
	} {
		write(text, 0o600)
		if err := c.ReadLists(); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "f:1:") {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	write("secret word\n", 0o644)
	if err := c.ReadLists(); err == nil || !strings.Contains(err.Error(), "chmod 640") {
		t.Errorf("a file that all may read: %v", err)
	}
	write("secret word\n", 0o600)
	if err := c.ReadLists(); err != nil || c.BGP.Peers[0].Password != "secret word" {
		t.Errorf("password %q, %v", c.BGP.Peers[0].Password, err)
	}
}
