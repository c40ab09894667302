package vnet

import "testing"

func TestKernelsThatSegmentUDP(t *testing.T) {
	for release, want := range map[string]bool{
		"5.10.0-28-amd64": false, "6.1.0-32-amd64": false, "6.2.0": true, "6.18.44": true, "10.0": true, "6": false, "": false, "next-6.9": false,
	} {
		if takesUDP(release) != want {
			t.Errorf("%s: not %v", release, want)
		}
	}
}
