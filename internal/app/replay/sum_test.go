package replay

import "testing"

func TestSizesFallIntoTheClassThatNamesThem(t *testing.T) {
	for n, want := range map[int]string{
		0: "0-63", 63: "0-63", 64: "64-127", 127: "64-127", 128: "128-255", 511: "256-511", 512: "512-1023",
		1023: "512-1023", 1024: "1024-2047", 2047: "1024-2047", 2048: "2048-", 65535: "2048-", 262144: "2048-",
	} {
		if got := sizeNames[sizeClass(n)]; got != want {
			t.Errorf("%d bytes are counted as %s, want %s", n, got, want)
		}
	}
}
