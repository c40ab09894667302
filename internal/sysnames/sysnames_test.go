package sysnames

import (
	"net/netip"
	"testing"
)

func TestNamesOfTheSystem(t *testing.T) {
	if n, ok := lookupProtocol("# c\nip 0 IP\ntcp\t6\tTCP # x\n", "TCP"); n != 6 || !ok {
		t.Error(n, ok)
	}
	if _, ok := lookupProtocol("tcp 6 TCP\n", "6"); ok {
		t.Error("a number is no name")
	}
	if n, ok := lookupProtocol("", "udp"); n != 17 || !ok {
		t.Error(n, ok)
	}
	if mac, ok := lookupEther("2:0:0:0:0:1 other\n02:00:00:00:00:01 Host\n", "host"); !ok || mac[5] != 1 || mac[0] != 2 {
		t.Error(mac, ok)
	}
	if a, ok := lookupNetwork("loopback 127\nlab 10.20.30.0 l\n", "l"); !ok || a != netip.MustParseAddr("10.20.30.0") {
		t.Error(a, ok)
	}
	if a, ok := lookupNetwork("loopback 127\n", "loopback"); !ok || a != netip.MustParseAddr("127.0.0.0") {
		t.Error(a, ok)
	}
}
