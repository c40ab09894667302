package main

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/gpukern/cuda/dl"
)

// TestDPDKInTheStaticProgram names devices of DPDK to a program that loads no libraries.
func TestDPDKInTheStaticProgram(t *testing.T) {
	if dl.Linked() {
		t.Skip("this program loads libraries")
	}
	for _, args := range [][]string{
		{"forward", "dpdk:net_null0", "dpdk:net_null1"},
		{"replay", "--to", "dpdk:net_null0", sample(t)},
		{"stack", "up", "--socket", "", "--dev", "dpdk:net_null0", "--addr", "198.18.0.1/24"},
	} {
		code, _, errs := run(args...)
		if code != exitFailure || !strings.Contains(errs, "built without support for DPDK") || !strings.Contains(errs, "make build-cuda") {
			t.Errorf("%v: code %d, %s", args, code, errs)
		}
	}
	for _, args := range [][]string{
		{"forward", "dpdk:eth0", "dpdk:net_null1"},
		{"replay", "--to", "dpdk:eth0", sample(t)},
	} {
		if code, _, errs := run(args...); code != exitFailure || !strings.Contains(errs, `"eth0" is neither a PCI address`) {
			t.Errorf("%v: code %d, %s", args, code, errs)
		}
	}
}

// TestDPDKRelease names what is no NIC, and one that is not there.
func TestDPDKRelease(t *testing.T) {
	if code, _, err := run("dpdk", "release", "eth0"); code != exitUsage || !strings.Contains(err, "lspci -D") {
		t.Errorf("code %d, %s", code, err)
	}
	if code, _, err := run("dpdk", "release", "ffff:ff:1f.7"); code != exitFailure || !strings.Contains(err, "no such device") {
		t.Errorf("code %d, %s", code, err)
	}
	if code, _, _ := run("dpdk", "release"); code != exitUsage {
		t.Errorf("code %d without an address", code)
	}
}
