package devargs

import (
	"strings"
	"testing"
)

func TestParseSocket(t *testing.T) {
	for name, want := range map[string]Socket{
		"vhost:/run/a.sock":                                     {Path: "/run/a.sock", Server: true},
		"vhost:/a,mode=client,mtu=9000":                         {Path: "/a", MTU: 9000},
		"virtio:/a":                                             {Frontend: true, Path: "/a"},
		"virtio:/a,mode=server,ring=packed":                     {Frontend: true, Path: "/a", Server: true, Packed: true},
		"virtio:/a,ring=split,mac=02:00:00:00:00:01":            {Frontend: true, Path: "/a", MAC: [6]byte{2, 0, 0, 0, 0, 1}},
		"vhost:/" + strings.Repeat("a", mostPath-1) + ",mtu=68": {Path: "/" + strings.Repeat("a", mostPath-1), Server: true, MTU: 68},
	} {
		if s, err := ParseSocket(name); err != nil || s != want {
			t.Errorf("%q: %+v, %v", name, s, err)
		}
		if !Is(name) || IsDPDK(name) || !IsSocket(name) || IsVirtio(name) != want.Frontend || Check(name) != nil || Kernel(name) != "" || FrameSize(name) != 2048 {
			t.Errorf("%q: %v, interface %q", name, Check(name), Kernel(name))
		}
	}
	for name, why := range map[string]string{
		"vhost:":       "no absolute path",
		"vhost:a.sock": "no absolute path",
		"virtio:/a b":  "white space",
		"dpdk:/a":      "begins with neither",
		"/a":           "begins with neither",
		"vhost:/" + strings.Repeat("a", mostPath): "more than 107",
		"vhost:/a,mode=both":                      "server or client",
		"vhost:/a,mtu=67":                         "68 to 65495",
		"vhost:/a,mtu=65496":                      "68 to 65495",
		"vhost:/a,mac=01:00:00:00:00:01":          "unicast",
		"vhost:/a,mac=00:00:00:00:00:00":          "unicast",
		"vhost:/a,mac=02:00":                      "unicast",
		"vhost:/a,ring=packed":                    "front end selects",
		"virtio:/a,ring=round":                    "packed or split",
		"virtio:/a,queues=2":                      "no argument",
		"virtio:/a,":                              "no argument",
	} {
		if _, err := ParseSocket(name); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if Check("dpdk:net_null0") != nil || Check("dpdk:nothing") == nil || Is("eth0") {
		t.Error("names of DPDK and of interfaces")
	}
}
