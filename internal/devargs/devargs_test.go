package devargs

import (
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]Args{
		"net_null0":                       {"net_null0", "net_null0", true, "net_null", "", ""},
		"dpdk:net_null12":                 {"net_null12", "net_null12", true, "net_null", "", ""},
		"dpdk:net_af_xdp0,iface=eth1":     {"net_af_xdp0", "net_af_xdp0,iface=eth1", true, "net_af_xdp", "", ""},
		"dpdk:0000:3b:00.0":               {"0000:3b:00.0", "0000:3b:00.0", false, "", "", ""},
		"3b:00.1":                         {"0000:3b:00.1", "0000:3b:00.1", false, "", "", ""},
		"dpdk:3B:00.0,representor=[0-3]":  {"0000:3B:00.0", "0000:3B:00.0,representor=[0-3]", false, "", "", ""},
		"dpdk:3b:00.0,bind=vfio-pci,a=b":  {"0000:3b:00.0", "0000:3b:00.0,a=b", false, "", "vfio-pci", ""},
		"3b:00.0,exception=mr0,bind=x":    {"0000:3b:00.0", "0000:3b:00.0", false, "", "x", "mr0"},
		"net_null0,exception=eth-1.7,a=b": {"net_null0", "net_null0,a=b", true, "net_null", "", "eth-1.7"},
		"net_pcap0,rx_pcap=/a,tx_pcap=/b": {"net_pcap0", "net_pcap0,rx_pcap=/a,tx_pcap=/b", true, "net_pcap", "", ""},
	} {
		if a, err := Parse(text); err != nil || a != want {
			t.Errorf("%q: %+v, %v", text, a, err)
		}
	}
	for text, why := range map[string]string{
		"": "neither", "dpdk:": "neither", "eth0": "neither", "net_null": "neither", "crypto_null0": "neither", "0000:3b:00.8": "neither",
		"net_null0 -c 1": "white space", "net_null0,bind=vfio-pci": "no PCI device", "3b:00.0,bind=": "lacks the driver", "net_null0,exception=": "no name", "net_null0,exception=a/b": "no name", "net_null0,exception=sixteen-letters-": "no name", "net_null0,exception=a b": "white space", "net_null0\n--no-huge": "white space", strings.Repeat("net_", 20) + "null0": "63 bytes",
	} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestInterfaceOfADevice(t *testing.T) {
	for name, want := range map[string]string{
		"dpdk:net_af_xdp0,iface=eth1":            "eth1",
		"dpdk:net_af_packet0,framesz=1,iface=a":  "a",
		"dpdk:net_null0":                         "",
		"dpdk:0000:3b:00.0":                      "",
		"dpdk:broken":                            "",
		"eth1":                                   "eth1",
		"dpdk:net_af_xdp0,iface=e,exception=mr0": "mr0",
		"dpdk:3b:00.0,exception=mr0":             "mr0",
	} {
		if got := Kernel(name); got != want || Is(name) != strings.HasPrefix(name, "dpdk:") {
			t.Errorf("%q is on %q", name, got)
		}
	}
	for name, want := range map[string]string{"eth1": "eth1", "dpdk:net_af_xdp0,iface=e,exception=mr0": "e", "dpdk:3b:00.0,exception=mr0": ""} {
		if got := Below(name); got != want {
			t.Errorf("%q is on %q, want %q", name, got, want)
		}
	}
	if FrameSize("dpdk:net_af_xdp0,iface=eth1") != 4096 || FrameSize("net_af_packet1,iface=eth1") != 4096 || FrameSize("0000:3b:00.0") != 2048 || FrameSize("net_null0") != 2048 {
		t.Error("frame sizes")
	}
}
