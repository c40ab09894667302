package stackd

import (
	"errors"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/millrace/millrace/internal/app/service"
	"github.com/millrace/millrace/tcp"
)

// least is the start of most files here; its second line is free.
const least = "devices: [{name: eth1, addresses: [198.18.0.2/24]}]\n"

func TestTheExampleIsValidAndShowsEveryKeyOnce(t *testing.T) {
	src, err := os.ReadFile("../../../examples/stack.yaml")
	if err != nil {
		t.Fatal(err)
	}
	c, err := Parse("stack.yaml", src)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Services) != 6 || c.Services[5].Port != 8080 || c.Services[0].Port != 7 || c.TCP.Memory != 64<<20 || c.TCP.Nagle ||
		c.TCP.Options.KeepAlive.Idle != 2*time.Hour || c.Routes[0].To.String() != "0.0.0.0/0" || c.Neighbors[0].MAC.String() != "02:00:00:00:00:09" {
		t.Errorf("%+v", c)
	}
	for _, key := range schemaKeys() {
		word := key[strings.LastIndexByte(key, '.')+1:]
		if !regexp.MustCompile(`(?m)[ {,-]*\b` + word + `:`).Match(src) {
			t.Errorf("the example lacks %s", key)
		}
	}
}

// schemaKeys returns the keys of the schema, which the decoder describes.
func schemaKeys() (keys []string) {
	for _, k := range Schema().Keys() {
		keys = append(keys, k.Path)
	}
	slices.Sort(keys)
	return keys
}

func TestReferenceListsEveryKey(t *testing.T) {
	page, err := os.ReadFile("../../../docs/stack.md")
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_.\\[\\]]+)` \\| [^|]* \\| [^|]* \\|$").FindAllStringSubmatch(string(page), -1) {
		listed = append(listed, m[1])
	}
	slices.Sort(listed)
	if diff := cmp.Diff(schemaKeys(), listed); diff != "" {
		t.Errorf("keys of the decoder (-) and of docs/stack.md (+):\n%s", diff)
	}
}

func TestErrorsAreShownWithTheirPlace(t *testing.T) {
	for _, tc := range []struct{ src, want string }{
		{"", "1:1: the file is empty"},
		{"devices: [oops\n", "not YAML"},
		{"devices:\n\t- x\n", "indent with spaces"},
		{"devices: x\n", `1:10: devices must be a list, not "x"`},
		{"devices: []\n", "devices is empty"},
		{"{}\n", `the configuration lacks the key "devices"`},
		{least + "devcies: 1\n", `2:1: unknown key "devcies" in the configuration`},
		{least + "engine: cpu\nengine: cpu\n", `3:1: key "engine" is repeated: it is already on line 2`},
		{least + "---\n" + least, "a second document"},
		{least + "engine: gpu\n", `2:9: engine cannot be "gpu"`},
		{"devices: [{name: eth1}]\n", "eth1 has no address"},
		{"devices: [{name: eth1, addresses: [198.18.0.2]}]\n", "1:36: \"198.18.0.2\" cannot be an address: the prefix length is missing"},
		{"devices: [{name: eth1, addresses: [198.18.0.0/24]}]\n", "the network's own"},
		{"devices: [{name: eth1, addresses: [198.18.0.255/24]}]\n", "broadcast"},
		{"devices: [{name: eth1, addresses: [224.0.0.1/24]}]\n", "no host has it"},
		{"devices: [{name: eth1, addresses: [\"::1/128\"]}]\n", "no host has it"},
		{"devices: [{name: eth1, addresses: [198.18.0.2/24], queues: 65}]\n", "queues is 65; it must lie between 1 and 64"},
		{"devices: [{name: eth1, addresses: [198.18.0.2/24], ring: 3000}]\n", "ring is 3000; it must be a power of two"},
		{"devices: [{name: eth1, addresses: [198.18.0.2/24], ring: 256}]\n", "ring is 256; it must lie between 512 and 32768"},
		{"devices: [{name: eth1, addresses: [198.18.0.2/24], ring: 65536}]\n", "ring is 65536; it must lie between 512 and 32768"},
		{"devices: [{name: eth1, addresses: [198.18.0.2/24], ring: auto}]\n", "ring must be a whole number"},
		{"devices: [{name: mr0, driver: tap, addresses: [198.18.0.2/24], ring: 4096}]\n", "1:11: mr0 has ring 4096, but packets of a tap device wait in the kernel"},
		{"devices: [{name: 'dpdk:eth1', dhcp: true}]\n", `1:11: no device: "eth1" is neither a PCI address`},
		{"devices: [{name: 'dpdk:net_null0', dhcp: true, driver: afxdp}]\n", "1:11: dpdk:net_null0 has driver afxdp, mode auto"},
		{"devices: [{name: 'dpdk:net_null0', addresses: [198.18.0.2/24], take: addresses}]\n", "1:11: dpdk:net_null0 brings every packet"},
		{"devices: [{name: eth1, addresses: [198.18.0.2/24], take: some}]\n", "allowed: auto, all, addresses"},
		{"devices: [{name: eth1, dhcp: true, take: addresses}]\n", "cannot learn an address"},
		{"devices: [{name: eth1, dhcp: 1}]\n", "dhcp must be true or false, not the number 1"},
		{"devices: [{name: a, dhcp: true}, {name: a, dhcp: true}]\n", `the device "a" is there twice`},
		{"devices: [{name: a, dhcp: true}, {name: b, dhcp: true, queues: 2}]\n", "b has 2 queues, and a has 1"},
		{"devices: [{name: a, addresses: [198.18.0.2/24]}, {name: b, addresses: [198.18.0.2/16]}]\n", "the address 198.18.0.2 is on a already"},
		{least + "routes: [{to: default}]\n", "2:15: a default route without via has no address family"},
		{least + "routes: [{to: 198.19.0.1/16, via: 198.18.0.1}]\n", "198.19.0.1/16 has bits set beyond its length"},
		{least + "routes: [{to: \"2001:db8::/32\", via: 198.18.0.1}]\n", "gateway of the other address family"},
		{least + "routes: [{to: 198.19.0.0/16, via: 198.18.0.1, device: eth2}]\n", `"eth2", which is none of the host's`},
		{"devices: [{name: a, dhcp: true}, {name: b, dhcp: true}]\nroutes: [{to: default, via: 198.18.0.1}]\n", "by which device"},
		{least + "routes: [{to: default, via: 1.2.3.4}]\n", "2:10: the gateway 1.2.3.4 of the route to 0.0.0.0/0 is in no network of the host"},
		{least + "routes: [{to: default, via: 198.18.0.2}]\n", "the gateway 198.18.0.2 of the route to 0.0.0.0/0 is the host itself"},
		{least + "routes: [{to: 1.2.3.5/32}, {to: default, via: 1.2.3.4}]\n", "the gateway 1.2.3.4 of the route"},
		{least + "routes: [{to: 1.2.0.0/16, via: 198.18.0.1}, {to: default, via: 1.2.3.4}]\n", "the gateway 1.2.3.4 of the route"},
		{"devices: [{name: a, addresses: [198.18.0.2/24]}, {name: b, addresses: [198.19.0.2/24]}]\nroutes: [{to: default, via: 198.18.0.1, device: b}]\n", "the gateway 198.18.0.1 of the route"},
		{"devices: [{name: a, addresses: [\"2001:db8::2/64\"], dhcp: true}]\nroutes: [{to: \"::/0\", via: \"2001:db9::1\"}]\n", "the gateway 2001:db9::1 of the route"},
		{"devices: [{name: a, addresses: [198.18.0.2/24], slaac: true}]\nroutes: [{to: default, via: 1.2.3.4}]\n", "the gateway 1.2.3.4 of the route"},
		{least + "neighbors: [{address: 198.18.0.9, mac: \"01:00:00:00:00:01\"}]\n", "must be a unicast link address"},
		{least + "neighbors: [{address: 198.18.0.9, mac: \"02:00:00:00:00:01\", device: x}]\n", "on which device"},
		{least + "tcp: {congestion: vegas}\n", "allowed: bbr, cubic, dctcp, reno"},
		{least + "tcp: {send_buffer: 1k}\n", "send_buffer is 1k; it must lie between 4096"},
		{least + "tcp: {memory: 9999999G}\n", "it must lie between"},
		{least + "tcp: {memory: lots}\n", "such as 65536, 512k or 4M"},
		{least + "tcp: {keepalive: 60}\n", "keepalive has no unit"},
		{least + "tcp: {user_timeout: 1ms}\n", "it must lie between 1s and"},
		{least + "services: [ehco]\n", `a service cannot be "ehco"`},
		{least + "services: [echo, {service: discard, port: 7}]\n", "discard is at port 7, where echo is already"},
		{least + "services: [{service: echo, address: 198.18.0.3}]\n", "198.18.0.3, which is no address of the host"},
		{least + "services: [{service: echo, port: 65536}]\n", "port is 65536"},
		{least + "services: [{port: 7}]\n", `a service lacks the key "service"`},
		{least + "control: {socket: 7}\n", "socket must be a string, not the number 7"},
	} {
		_, err := Parse("f.yaml", []byte(tc.src))
		if !errors.As(err, new(*ConfigError)) || !strings.Contains(err.Error(), tc.want) || !strings.HasPrefix(err.Error(), "f.yaml:") {
			t.Errorf("%q: %v, want %q", tc.src, err, tc.want)
		}
	}
}

func TestErrorIsShownWithItsLine(t *testing.T) {
	_, err := Parse("f.yaml", []byte(least+"engine: gpu\n"))
	const want = "f.yaml:2:9: engine cannot be \"gpu\"\n  engine: gpu\n          ^\n  did you mean \"cpu\"? allowed: cpu, cuda, auto"
	if err == nil || err.Error() != want {
		t.Errorf("%v\nwant\n%s", err, want)
	}
}

func TestAddressesOfEveryLengthOfPrefix(t *testing.T) {
	for text, ok := range map[string]bool{
		"198.18.0.2/31": true, "198.18.0.3/31": true, "198.18.0.2/32": true, "198.18.0.4/30": false, "198.18.0.7/30": false, "198.18.0.5/30": true,
		"2001:db8::/64": true, "::ffff:198.18.0.1/120": false, "0.0.0.0/0": false,
	} {
		if _, why := ParseAddress(text); (why == "") != ok {
			t.Errorf("%s: %q", text, why)
		}
	}
}

func TestDefaultsAndChoices(t *testing.T) {
	c, err := Parse("f", []byte(least+"services: all\ntcp: {ecn: accurate, nodelay: false, sack: false, timestamps: false, scaling: false, receive_buffer: 64k}\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := tcp.Options{ECN: tcp.ECNAccurate, NoSACK: true, NoTimestamps: true, NoScaling: true, ReceiveBuffer: 65536}
	if diff := cmp.Diff(want, c.TCP.Options, cmpopts.EquateEmpty()); diff != "" || !c.TCP.Nagle {
		t.Error(diff)
	}
	if len(c.Services) != len(service.Kinds) || c.Control.Socket != DefaultSocket || c.Engine != "cpu" || c.Devices[0].Take != TakeAuto || c.Devices[0].Queues != 1 {
		t.Errorf("%+v", c)
	}
}

func TestAQueryIsReadAsItWasWritten(t *testing.T) {
	for _, q := range []Query{
		{}, {Protocol: "tcp", Family: 6, States: []string{"ESTAB", "SYN-RECV"}, Port: 65535, Limit: 7}, {Family: 4},
	} {
		v, err := url.ParseQuery(q.Values().Encode())
		if err != nil {
			t.Fatal(err)
		}
		got, err := ParseQuery(v)
		if diff := cmp.Diff(q, got); diff != "" || err != nil {
			t.Error(diff, err)
		}
	}
	for _, text := range []string{"protocol=x", "family=5", "port=65536", "port=0", "limit=-1", "state=x", "x=1", "port=1&port=2"} {
		v, _ := url.ParseQuery(text)
		if _, err := ParseQuery(v); err == nil {
			t.Errorf("%s was taken", text)
		}
	}
}

func TestStatesHaveTheNamesOfSS(t *testing.T) {
	for s := tcp.StateSynSent; s <= tcp.StateTimeWait; s++ {
		if !slices.Contains(States, stateName(s)) {
			t.Errorf("%v is %q, which is none of %v", s, stateName(s), States)
		}
	}
	for word, want := range map[string]int{"established": 1, "listening": 1, "all": len(States), "connected": len(States) - 2, "time-wait": 1, "syn_sent": 1, "x": 0} {
		if got := ParseState(word); len(got) != want {
			t.Errorf("%s is %v", word, got)
		}
	}
}

func TestCountersHaveTheNamesOfTheirFields(t *testing.T) {
	if m := counters(tcp.Stats{BytesIn: 7, Conns: 1, Memory: -2}); m["bytes_in"] != 7 || m["conns"] != 1 || m["memory"] != -2 {
		t.Errorf("%v", m)
	}
}

func TestRoutesOfFlags(t *testing.T) {
	for text, want := range map[string]string{
		"default=198.18.0.1": "0.0.0.0/0 via 198.18.0.1", "default=2001:db8::1": "::/0 via 2001:db8::1", "198.19.0.0/16=198.18.0.1": "198.19.0.0/16 via 198.18.0.1",
		"default": "", "default=": "", "198.19.0.1/16=198.18.0.1": "", "2001:db8::/32=198.18.0.1": "", "x=198.18.0.1": "",
	} {
		r, err := ParseRoute(text)
		if (err == nil) != (want != "") || err == nil && r.To.String()+" via "+r.Via.String() != want {
			t.Errorf("%s: %+v, %v", text, r, err)
		}
	}
}

// FuzzParse: no file may do worse than be refused.
func FuzzParse(f *testing.F) {
	example, err := os.ReadFile("../../../examples/stack.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(example)
	f.Add([]byte(least + "services: all\n"))
	f.Add([]byte("devices: &a [*a]\n"))
	f.Fuzz(func(t *testing.T, src []byte) {
		c, err := Parse("f", src)
		if err != nil {
			if err.Error() == "" || !errors.As(err, new(*ConfigError)) {
				t.Errorf("%v", err)
			}
			return
		}
		if err := c.Check(); err != nil {
			t.Errorf("it was taken, and then: %v", err)
		}
	})
}

// TestExtraProcessorReachesTheNode follows the key from the file.
func TestExtraProcessorReachesTheNode(t *testing.T) {
	for text, want := range map[string]bool{"": false, "extra_processor: false\n": false, "extra_processor: true\n": true} {
		cfg, err := Parse("f", []byte(least+text))
		if err != nil {
			t.Fatal(err)
		}
		if got := (&Daemon{cfg: cfg}).nodeConfig().ExtraProcessor; got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// TestGatewaysThatCanBeReached has those that `ip route` takes as well.
func TestGatewaysThatCanBeReached(t *testing.T) {
	for _, text := range []string{
		least + "routes: [{to: default, via: 198.18.0.1}]\n",
		least + "routes: [{to: 1.2.3.4/32}, {to: default, via: 1.2.3.4}]\n", // on the link, by a route
		"devices: [{name: a, dhcp: true}]\nroutes: [{to: default, via: 1.2.3.4}]\n",
		"devices: [{name: a, slaac: true}]\nroutes: [{to: \"::/0\", via: \"2001:db8::1\"}]\n",
		"devices: [{name: a, addresses: [\"2001:db8::2/64\"]}]\nroutes: [{to: \"::/0\", via: \"fe80::1\"}]\n",
		"devices: [{name: a, addresses: [198.18.0.2/24]}, {name: b, addresses: [198.19.0.2/24]}]\nroutes: [{to: default, via: 198.19.0.1, device: b}]\n",
	} {
		if _, err := Parse("f", []byte(text)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestExceptionPathsLeaveTheKernelTheRest asks which packets of a device of DPDK are the host's.
func TestExceptionPathsLeaveTheKernelTheRest(t *testing.T) {
	for _, c := range []struct {
		d     Device
		whole bool
		text  string
	}{
		{Device{Name: "dpdk:3b:00.0"}, true, ""},
		{Device{Name: "dpdk:3b:00.0", DHCP: true}, true, ""},
		{Device{Name: "dpdk:3b:00.0,exception=mr0"}, false, ""},
		{Device{Name: "dpdk:3b:00.0,exception=mr0", DHCP: true}, false, "none can be learned"},
		{Device{Name: "dpdk:net_af_xdp0,iface=lo,exception=mr0", SLAAC: true}, false, "none can be learned"},
		{Device{Name: "dpdk:net_af_xdp0,iface=lo,exception=mr0"}, false, ""},
		{Device{Name: "dpdk:net_af_xdp0,iface=lo"}, true, ""},
		{Device{Name: "dpdk:net_af_xdp0,iface=nowhere0,exception=mr0"}, false, "no interface \"nowhere0\""},
	} {
		whole, err := takesAll(&c.d)
		if whole != c.whole || (err == nil) != (c.text == "") || err != nil && !strings.Contains(err.Error(), c.text) {
			t.Errorf("%+v: %v, %v", c.d.Name, whole, err)
		}
	}
}
